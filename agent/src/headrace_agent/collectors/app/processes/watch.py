"""Watches the processes of one engine, so that none of them ends unnoticed until the next probe."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from headrace_agent.collectors.app.processes.exits import Exits
from headrace_agent.collectors.app.processes.lives import Lives
from headrace_agent.collectors.app.processes.scanner import Look, LookError, ProcessScanner
from headrace_agent.collectors.app.processes.table import Process
from headrace_shared import log
from headrace_shared.clock import Clock

# Between two looks, at least; and how long none is taken where nothing suggests one.
LEAST_GAP_S: Final = 0.5
LOOK_AGAIN_S: Final = 60.0
AFTER_FAILURE_S: Final = 5.0


class Engine(Protocol):
    """The engine as it answers: whether it is well, and the number of its life."""

    @property
    def healthy(self) -> bool: ...

    @property
    def life(self) -> int: ...


class ProcessWatch:
    """One engine's processes.

    `exited` is called when one has ended, `replaced(cause)` when another process is found to listen
    in place of the servers, both from the event loop; `engine` is what the probes say of it.
    """

    def __init__(
        self,
        cell_id: str,
        address: str | None,
        port: int,
        scanner: ProcessScanner,
        clock: Clock,
        exited: Callable[[], None],
        replaced: Callable[[str], None],
        engine: Engine,
    ) -> None:
        self._address = address
        self._port = port
        self._scanner = scanner
        self._clock = clock
        self._exited = exited
        self._replaced = replaced
        self._engine = engine
        self._seen_in_life = -1
        self._lives = Lives()
        self._exits = Exits(self._ended, scanner.allowance)
        self._changed = asyncio.Event()
        self._trouble = "not looked yet"
        self._failed = False
        self._log = log.get("processes").bind(cell=cell_id)

    async def run(self) -> None:
        """Watch until cancelled."""
        whole = True
        try:
            while True:
                self._changed.clear()
                await self._look(whole)
                await asyncio.sleep(LEAST_GAP_S)
                whole = await self._nudged()
        finally:
            self._exits.close()

    def nudge(self) -> None:
        """The engine has changed: other processes may be its own now."""
        self._changed.set()

    @property
    def condition(self) -> str:
        """What is watched, or why it cannot be and what to do; for people."""
        count = len(self._exits)
        watching = f"watching {count} process{'es' if count != 1 else ''}"
        trouble = self._trouble or self._exits.trouble
        if not count:
            return trouble or "the engine's processes have ended"
        return f"{watching}; {trouble}" if trouble else watching

    @property
    def over_at(self) -> float | None:
        """When the last of the servers ended, if none has come since."""
        return self._lives.over_at

    def explain(self) -> str:
        """Which processes ended just now, "" for none; each is named once."""
        self._exits.sweep()
        words = self._lives.ended_lately(self._clock.now())
        self._lives.forget_exits()
        return words

    def orphans(self) -> str:
        """Who outlived the server, "" for nobody."""
        return self._lives.orphans()

    async def _nudged(self) -> bool:
        """Wait until a look is due; True for a whole one, False for one at the known servers' descendants."""
        try:
            async with asyncio.timeout(AFTER_FAILURE_S if self._failed else LOOK_AGAIN_S):
                await self._changed.wait()
        except TimeoutError:
            return self._failed or not self._lives.servers
        return True

    async def _look(self, whole: bool) -> None:
        lives = self._lives
        try:
            if whole:
                look = await self._scanner.look(self._address, self._port)
            else:
                look = await self._scanner.grown(lives.servers, lives.basis)
        except LookError as error:
            self._failed = True
            self._say(str(error))
            return
        self._failed = False
        self._take(look)

    def _take(self, look: Look) -> None:
        proof = self._lives.see(look.found, look.titles, self._engine.healthy)
        self._exits.trouble = ""
        for process in self._lives.running:
            if look.processes.has(process):
                self._exits.watch(process)
            else:
                self._lives.end(process, self._clock.now())
        self._say(look.found.trouble)
        known, self._seen_in_life = self._seen_in_life, self._engine.life
        if proof and known == self._engine.life:
            self._replaced(proof)

    def _ended(self, process: Process) -> None:
        self._lives.end(process, self._clock.now())
        self._changed.set()
        self._exited()

    def _say(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            self._log.info("process watch", condition=self.condition)

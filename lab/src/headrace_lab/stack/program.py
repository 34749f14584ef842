"""One program as a subprocess: its own session, its log file, its end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headrace_lab.stack import tether
from headrace_shared.clock import Clock

KILL_WAIT_S = 20.0
"""A machine that is out of breath takes seconds to let go of a program."""


ON_THE_WAY: Final = 2
AT_A_SITE: Final = 8
"""Nice values above the lab's own. What sends the load and reads the clock goes first, then what requests
pass, then engines and agents: in truth these share no machine, and one that waits for another's CPU would be
measured as slow."""


class StackError(Exception):
    """A program did not do what it must; the message names it and quotes its log."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What to run and what to expect of it.

    `ready_url` answers 200 once the program works, within `ready_s` seconds. `ports` are those it
    listens on. A program of this project (`ours`) must exit 0 within `grace_s` seconds of
    SIGTERM; from others only an end is asked, by SIGKILL if need be. `behind` is added to the nice value.
    """

    name: str
    command: tuple[str, ...]
    ports: tuple[int, ...] = ()
    ready_url: str = ""
    ready_s: float = 120.0
    env: Mapping[str, str] = field(default_factory=dict)
    ours: bool = True
    grace_s: float = 2.0
    behind: int = AT_A_SITE


@dataclass(frozen=True, slots=True)
class Exit:
    """How a program ended. `sigterm_s` is None where it ended without being asked to.

    `code` is the exit status, negative for a signal; `killed` says that it needed SIGKILL, or was
    killed on purpose (`planned`).
    """

    name: str
    code: int
    sigterm_s: float | None
    killed: bool = False
    planned: bool = False


def console_script(name: str) -> str:
    """The program `name` beside this Python. Raises StackError where it is not installed."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise StackError(f"{path} does not exist; install the project into this environment (make setup)")
    return str(path)


class Program:
    """A running subprocess."""

    def __init__(self, spec: Spec, process: asyncio.subprocess.Process, log: Path, clock: Clock) -> None:
        self.spec = spec
        self.pid = process.pid
        self.log = log
        self.exit: Exit | None = None
        self.stopping = False
        self._planned = False
        self._killed = False
        self._process = process
        self._clock = clock

    @property
    def alive(self) -> bool:
        """False once its end has been seen."""
        return self._process.returncode is None

    @property
    def code(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        return self._process.returncode

    @property
    def planned(self) -> bool:
        """True once the scenario itself has killed it."""
        return self._planned

    async def ended(self) -> int:
        """Wait for the end; the exit status, negative for a signal."""
        return await self._process.wait()

    def kill(self, *, planned: bool = False) -> None:
        """SIGKILL the whole process group; `planned` = it is part of the scenario."""
        self._planned = self._planned or planned
        self._killed = True
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return  # it ended by itself a moment before

    async def stop(self, grace_s: float | None = None) -> Exit:
        """SIGTERM, then SIGKILL after the grace (default: the spec's); safe to call again."""
        self.stopping = True
        if self.exit is None:
            self.exit = await self._stop(self.spec.grace_s if grace_s is None else grace_s)
        return self.exit

    async def _stop(self, grace_s: float) -> Exit:
        if not self.alive:
            return Exit(self.spec.name, await self.ended(), None, self._killed, self._planned)
        asked = self._clock.now()
        self._process.terminate()
        try:
            async with asyncio.timeout(grace_s):
                await self.ended()
        except TimeoutError:
            self.kill()
            await self._reap()
        took = self._clock.now() - asked
        return Exit(self.spec.name, self._process.returncode or 0, took, self._killed, self._planned)

    async def _reap(self) -> None:
        try:
            async with asyncio.timeout(KILL_WAIT_S):
                await self.ended()
        except TimeoutError as error:
            raise StackError(f"{self.spec.name} (pid {self.pid}) lives on after SIGKILL") from error

    def last_lines(self) -> str:
        """The end of its log, for error messages."""
        return tail(self.log)


def tail(log: Path, count: int = 12, most_bytes: int = 8192) -> str:
    """The last lines of a log, indented; says so where there is none."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - most_bytes))
            text = file.read().decode("utf-8", "replace")
    except OSError as error:
        return f"    (its log {log} cannot be read: {error.strerror or error})"
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(f"    {line[:400]}" for line in lines[-count:]) or "    (its log is empty)"


async def launch(spec: Spec, run_dir: Path, clock: Clock) -> Program:
    """Start the program in its own session, its output in `run_dir`/NAME.log."""
    log = run_dir / f"{spec.name.replace('/', '_')}.log"
    with log.open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            *tether.tied(spec.command, spec.behind),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **spec.env},
            cwd=run_dir,
            start_new_session=True,
        )
    return Program(spec, process, log, clock)

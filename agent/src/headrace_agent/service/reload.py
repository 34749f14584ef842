"""Takes up a changed settings file while the agent runs: whole, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from headrace_agent.collectors.containment import Mishaps
from headrace_agent.service.difference import FixedFieldError
from headrace_agent.service.notify import notify_ready, notify_reloading
from headrace_agent.settings import AgentSettings
from headrace_shared import log
from headrace_shared.clock import Clock
from headrace_shared.config import ConfigError
from headrace_shared.tls import TlsError

# A disk that does not answer must not keep later reloads waiting for ever.
LOAD_TIMEOUT_S: Final = 10.0
RESULTS: Final = ("applied", "unchanged", "refused", "failed")

Load = Callable[[], AgentSettings]
"""Reads and checks the settings and the files they name; may block. Raises ConfigError or TlsError."""


class Subject(Protocol):
    """What is reloaded."""

    @property
    def settings(self) -> AgentSettings:
        """Those in force."""
        ...

    async def apply(self, new: AgentSettings) -> None:
        """Put `new` in force. Raises FixedFieldError or TlsError, and nothing is changed then."""
        ...


class Reloader:
    """Reloads once for every time that `asked` was set, one after the other; what is asked while a
    reload runs is one more, however often.

    `counts` by result: `applied`, `unchanged`, `refused` (the file, or a change that needs a
    restart) and `failed` (a fault of the agent). `trouble` is why the last one was not taken, ""
    where it was.
    """

    def __init__(self, load: Load | None, asked: asyncio.Event, clock: Clock, mishaps: Mishaps) -> None:
        self._load = load
        self._asked = asked
        self._clock = clock
        self._mishaps = mishaps
        self._log = log.get("reload")
        self.counts = dict.fromkeys(RESULTS, 0)
        self.trouble = ""

    async def run(self, subject: Subject, status: Callable[[], str]) -> None:
        """Reload `subject` whenever asked, until cancelled; systemd is told `status()` after each."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            notify_reloading(self._clock.now())
            result = await self._once(subject)
            self.counts[result] += 1
            notify_ready(f"{status()}; last reload {result}")

    async def _once(self, subject: Subject) -> str:
        try:
            changed = await self._reload(subject)
        except (ConfigError, FixedFieldError, TlsError, TimeoutError) as error:
            self.trouble = str(error) or f"the file could not be read within {LOAD_TIMEOUT_S:g} s"
            self._log.error(
                "reload refused; the settings of before stay in force", why=self.trouble.splitlines()
            )
            return "refused"
        except Exception as error:  # noqa: BLE001 - a reload that breaks must not end the agent
            self.trouble = self._mishaps.note("reload", error)
            return "failed"
        self.trouble = ""
        self._mishaps.clear("reload")
        return "applied" if changed else "unchanged"

    async def _reload(self, subject: Subject) -> bool:
        if self._load is None:
            self._log.info("nothing to reload: this agent was started without a file")
            return False
        async with asyncio.timeout(LOAD_TIMEOUT_S):
            new = await asyncio.to_thread(self._load)
        if new == subject.settings:
            self._log.info("reloaded; nothing in it has changed")
            return False
        await subject.apply(new)
        return True

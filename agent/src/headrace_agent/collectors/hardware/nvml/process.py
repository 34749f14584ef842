"""Keeps the NVML process: starts it, ends it when a call hangs, and starts it again."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headrace_agent.collectors.hardware.nvml.calls import NvmlError
from headrace_agent.collectors.hardware.nvml.library import is_visible
from headrace_agent.collectors.hardware.nvml.link import Link, LinkError
from headrace_agent.collectors.hardware.nvml.rows import Rows
from headrace_agent.collectors.hardware.nvml.shunned import Shunned
from headrace_agent.collectors.hardware.nvml.wire import Message
from headrace_agent.collectors.hardware.source import Read
from headrace_agent.collectors.readings import Status
from headrace_shared import log
from headrace_shared.clock import Clock

OnXid = Callable[[str, str, int], None]
"""Called with a GPU's UUID, its MIG instance ("" = the GPU), and the XID."""

NOT_LISTENED: Final = "XIDs are not listened to"
STUCK: Final = "is stuck in the driver and cannot be ended; another is started when it has gone"


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in seconds.

    Starting NVML wakes GPUs that nobody uses, which takes seconds; a reading takes milliseconds. A
    GPU whose call hung is left alone for `shun_s`, doubling to `longest_shun_s`.
    """

    start_s: float = 20.0
    read_s: float = 3.0
    kill_s: float = 0.5
    first_pause_s: float = 1.0
    longest_pause_s: float = 30.0
    absent_pause_s: float = 30.0
    # Where no library can be seen either, another start would only cost time.
    invisible_pause_s: float = 600.0
    well_s: float = 60.0
    watch_s: float = 30.0
    shun_s: float = 15.0
    longest_shun_s: float = 600.0


class NvmlProcess:
    """NVML's figures by way of a process of its own. `on_xid` is called on the loop at each XID."""

    def __init__(self, clock: Clock, on_xid: OnXid | None = None, limits: Limits | None = None) -> None:
        self._clock = clock
        self._on_xid = on_xid
        self._limits = limits if limits is not None else Limits()
        self._log = log.get("nvml")
        self._rows = Rows()
        self._shunned = Shunned(self._limits.shun_s, self._limits.longest_shun_s)
        self._link: Link | None = None
        self._stuck: Link | None = None
        self._last = Read(Status.NO_DATA, detail="not read yet")
        self._try_at = self._started_at = -math.inf
        self._well_since = self._turned_at = math.inf
        self._turns: object = -1
        self._pause_s = 0.0
        self._absent = False
        self._failing = ""

    @property
    def rest_s(self) -> float:
        """How long a reading would bring nothing new."""
        return max(0.0, self._try_at - self._clock.now())

    @property
    def pid(self) -> int:
        """The process's id; 0 where none runs."""
        return 0 if self._link is None else self._link.pid

    async def read(self) -> Read:
        """One reading; never raises for what NVML can do. Between attempts it is the last one again."""
        now = self._clock.now()
        if now < self._try_at:
            return self._last
        self._last = await self._attempt(now)
        return self._last

    async def close(self) -> None:
        """End the process."""
        await self._end()

    async def _attempt(self, now: float) -> Read:
        if self._stuck is not None and not self._stuck.ended:
            self._try_at = now + self._limits.longest_pause_s
            return Read(Status.FAILED, detail=f"NVML process {self._stuck.pid} {STUCK}")
        self._stuck = None
        try:
            return self._take(await self._ask(now))
        except NvmlError as error:
            return await self._refused(error)
        except LinkError as error:
            return await self._failed(error)

    async def _ask(self, now: float) -> Message:
        if self._link is None:
            if self._absent and not self._worth_a_start(now):
                raise NvmlError(self._last.detail, absent=True)
            self._started_at = now
            self._link = Link(self._tell)
            await self._link.start(self._limits.start_s)
            self._well_since = self._turned_at = self._clock.now()
            self._turns = -1
        request = {"ask": "read", "without": self._shunned.at(now)}
        return await self._link.ask(request, self._limits.read_s)

    def _worth_a_start(self, now: float) -> bool:
        return is_visible() or now - self._started_at >= self._limits.invisible_pause_s

    def _take(self, answer: Message) -> Read:
        now = self._clock.now()
        watch = answer.get("watch")
        problem = self._check_watch(watch if isinstance(watch, dict) else {}, now)
        rows = answer.get("gpus")
        gpus = self._rows.take(rows if isinstance(rows, list) else [], answer.get("count"))
        shunned = self._shunned.words(now)
        self._shunned.forgive(now)
        if now - self._well_since >= self._limits.well_s:
            self._pause_s = 0.0
        self._absent, self._failing = False, ""
        if gpus:
            return Read(Status.OK, gpus, "; ".join([*shunned, *problem]))
        if shunned:
            return Read(Status.FAILED, detail="; ".join(shunned))
        return Read(Status.NO_DATA, detail="NVML sees no GPU on this host")

    def _check_watch(self, watch: Message, now: float) -> list[str]:
        """What is wrong with the wait for XIDs. Raises LinkError where it hangs."""
        turns, problem = watch.get("turns"), watch.get("problem")
        if turns != self._turns:
            self._turns, self._turned_at = turns, now
        elif now - self._turned_at > self._limits.watch_s:
            raise LinkError("NVML hangs in the wait for XIDs")
        return [f"{NOT_LISTENED}: {problem}"] if isinstance(problem, str) and problem else []

    async def _refused(self, error: NvmlError) -> Read:
        """NVML says that it cannot serve; only a new process can find that it can again."""
        self._absent = error.absent
        if not error.absent:
            return await self._failed(LinkError(str(error)))
        await self._end()
        self._try_at = self._clock.now() + self._limits.absent_pause_s
        return Read(Status.NO_DATA, detail=str(error), absent=True)

    async def _failed(self, error: LinkError) -> Read:
        await self._end()
        now = self._clock.now()
        if error.blamed is not None:  # without that GPU the next process can do its work at once
            self._shunned.add(error.blamed, str(error), now)
        elif now - self._well_since < self._limits.well_s:
            self._pause_s = min(
                max(2 * self._pause_s, self._limits.first_pause_s), self._limits.longest_pause_s
            )
            self._try_at = now + self._pause_s
        if self._failing != str(error):
            self._failing = str(error)
            self._log.warning("NVML failed; its process is started anew", error=self._failing)
        return Read(Status.FAILED, detail=str(error))

    async def _end(self) -> None:
        link, self._link = self._link, None
        if link is not None and not await link.close(self._limits.kill_s):
            self._stuck = link
            self._log.error("an NVML process cannot be ended", pid=link.pid)

    def _tell(self, message: Message) -> None:
        uuid, instance, xid = (message.get(name) for name in ("uuid", "instance", "xid"))
        if self._on_xid is None or not isinstance(xid, int) or not 0 < xid < 2**31:
            return
        if isinstance(uuid, str) and isinstance(instance, str):
            self._on_xid(uuid, instance, xid)

"""XIDs that are new, whichever source tells them first.

NVML tells each XID as it happens. The exporter has a gauge that keeps the last one, so only a change
says anything, and it comes as late as the exporter collects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Final, NamedTuple

from headrace_agent.collectors.hardware.figures import GpuFigures

Told = list[tuple[str, int]]
"""(`UUID` or `UUID:INSTANCE`, XID) for each GPU and instance that one is news for."""

# Of a host that is split anew again and again, so many GPUs and instances are remembered.
MAX_GAUGES: Final = 4096
# A faulty program can cause the same XID many times a second.
REPEAT_S: Final = 5.0
# Exporters collect every 30 s by default. An XID told late a second time would fail an engine that
# has been restarted since.
LATE_S: Final = 75.0


class _Telling(NamedTuple):
    xid: int
    at: float
    by_nvml: bool


class XidWatch:
    """Remembers what each gauge held last, and what was told of each GPU lately."""

    def __init__(self) -> None:
        self._gauges: dict[str, int] = {}
        self._told: dict[str, list[_Telling]] = {}
        self._last: dict[str, tuple[int, int]] = {}
        self._turns = count()

    def changes(self, gpus: Sequence[GpuFigures], now: float) -> Told:
        """What the exporter's gauges tell that NVML has not told before.

        A GPU seen for the first time tells nothing: its XID may be days old. An absent figure
        means none, so one that appears later is new. A GPU that is missing for a while, as one that
        falls off the bus may be, is not seen for the first time again. A GPU's XID is news for all its
        instances, whether or not their own rows repeat it.
        """
        before, here = self._gauges, {gpu.key: gpu.health.last_xid or 0 for gpu in gpus}
        self._gauges = {**before, **here} if len(before) + len(here) <= MAX_GAUGES else here
        new = {key: xid for key, xid in here.items() if xid and before.get(key, xid) != xid}
        for gpu in gpus:
            if gpu.uuid in new and gpu.key in before:
                new.setdefault(gpu.key, new[gpu.uuid])
        known = [(key, xid) for key, xid in new.items() if not self._nvml_told(key, xid, now)]
        return self._tell(known, now, by_nvml=False)

    def happened(self, uuid: str, instance: str, xid: int, keys: Iterable[str], now: float) -> Told:
        """What NVML tells of one XID; `keys` are the GPU's instances as far as they are known."""
        concerned = [f"{uuid}:{instance}"] if instance else dict.fromkeys((uuid, *keys))
        return self._tell([(key, xid) for key in concerned if not self._just_told(key, xid, now)], now, True)

    def last(self, keys: Iterable[str]) -> int | None:
        """The XID told last of any of the GPUs; None where none was told, whatever their gauges keep."""
        told = [self._last[key] for key in keys if key in self._last]
        return max(told)[1] if told else None

    def _nvml_told(self, key: str, xid: int, now: float) -> bool:
        return any(
            each.xid == xid and each.by_nvml and now - each.at < LATE_S for each in self._told.get(key, ())
        )

    def _just_told(self, key: str, xid: int, now: float) -> bool:
        return any(each.xid == xid and now - each.at < REPEAT_S for each in self._told.get(key, ()))

    def _tell(self, news: Told, now: float, by_nvml: bool) -> Told:
        for key, xid in news:
            recent = (each for each in self._told.get(key, ()) if now - each.at < LATE_S and each.xid != xid)
            self._told[key] = [*recent, _Telling(xid, now, by_nvml)]
            self._last[key] = next(self._turns), xid
        return news

"""One source's condition over time: its last figures, how it is, and since when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace_agent.collectors.hardware.choice import Offer
from headrace_agent.collectors.hardware.figures import GpuFigures, GpuRef, explain_missing, find
from headrace_agent.collectors.hardware.pulse import Pulse
from headrace_agent.collectors.readings import HardwareSource, SourceReading, Status

# A source that comes back beside a working stand-in proves itself for this long.
SETTLE_S = 1.0
# Figures older than this many read intervals are stale, whatever the source said last.
UNREAD_INTERVALS = 4.0
SLOW_ADVICE = "set its interval below 1 s (DCGM_EXPORTER_INTERVAL=500, or -c 500)"
NO_ENERGY = "no DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION in the page, so stale figures cannot be told"
WEAKER = "memory_bw_util is the memory copy share, for want of DRAM_ACTIVE"
WEAKER_NVML = "memory_bw_util is the share of time memory was accessed, for want of GPM (Hopper and later)"


@dataclass(frozen=True, slots=True)
class Read:
    """The outcome of one attempt to read a source; `absent`: this host has nothing to read it by."""

    status: Status
    gpus: tuple[GpuFigures, ...] = ()
    detail: str = ""
    absent: bool = False


class Source:
    """Keeps what the attempts brought. Only OK reads replace the figures."""

    def __init__(self, kind: HardwareSource, interval_s: float, pulse: Pulse | None = None) -> None:
        self.kind = kind
        self.name = kind.value
        self.reads = 0
        self.failures = 0
        self.gpus: tuple[GpuFigures, ...] = ()
        # Asked many times between two reads, and for every cell: what a reading is, and where in
        # `gpus` the GPU stands that a cell names.
        self._known: SourceReading | None = None
        self._known_at = 0.0
        self._names: list[tuple[str, int | None, str, tuple[str, ...]]] = []
        self._places: dict[GpuRef, int | None] = {}
        self._pulse = pulse
        self._unread_s = max(2.0, UNREAD_INTERVALS * interval_s)
        self._last = Read(Status.NO_DATA, detail="not read yet")
        self._read_at: float | None = None
        self._good_since: float | None = None
        self._ever_lost = False

    def take(self, read: Read, now: float) -> bool:
        """Note the outcome of an attempt that ended at `now`; False where it is the last one's again."""
        again, self._last, self._known = read is self._last, read, None
        self.reads += 1
        if read.status is not Status.OK:
            self.failures += read.status is Status.FAILED
            self._ever_lost = self._ever_lost or self._good_since is not None
            self._good_since = None
            if self._pulse is not None:
                self._pulse.interrupt()
            return True
        if read.gpus is not self.gpus:
            names = [(gpu.uuid, gpu.index, gpu.instance, gpu.aliases) for gpu in read.gpus]
            if names != self._names:
                self._names = names
                self._places.clear()
            self.gpus = read.gpus
        self._read_at = now
        self._good_since = now if self._good_since is None else self._good_since
        if self._pulse is not None:
            energy = {
                gpu.uuid: gpu.energy_mj for gpu in read.gpus if gpu.energy_mj is not None and not gpu.instance
            }
            self._pulse.take(energy, now)
        return not again

    def reading(self, now: float) -> SourceReading:
        """How the source as a whole is."""
        if self._known is None or self._known_at != now:
            self._known, self._known_at = self._judge(now), now
        return self._known

    def _judge(self, now: float) -> SourceReading:
        status, detail = self._last.status, self._last.detail
        if status is Status.OK and self._read_at is not None and now - self._read_at > self._unread_s:
            status, detail = Status.STALE, "the last read is too old"
        elif status is Status.OK and self.gpus and all(self._stale(gpu, now) for gpu in self.gpus):
            status, detail = Status.STALE, "the figures stand still: GPU energy does not move"
        elif status is Status.OK:
            detail = "; ".join(self._remarks(self.gpus, detail))
        return SourceReading(self.name, status, self._read_at, detail)

    def find(self, ref: GpuRef) -> GpuFigures | None:
        """The last figures of the GPU that a cell names, however old."""
        if ref not in self._places:
            found = find(self.gpus, ref)
            self._places[ref] = next((at for at, gpu in enumerate(self.gpus) if gpu is found), None)
        place = self._places[ref]
        return None if place is None else self.gpus[place]

    def offer(self, refs: Sequence[GpuRef], now: float) -> Offer:
        """What it has for the cell whose GPUs are `refs`."""
        reading = self.reading(now)
        fresh: list[GpuFigures] = []
        named: dict[GpuRef, GpuFigures | None] = dict.fromkeys(refs)
        if reading.status is Status.OK:
            named = {ref: self.find(ref) for ref in named}
            fresh = [gpu for gpu in named.values() if gpu is not None and not self._stale(gpu, now)]
            reading = self._for_cell(reading, named, len(fresh), now)
        return Offer(
            source=self.kind,
            reading=reading,
            gpus=tuple(fresh) if reading.status is Status.OK else (),
            asked=len(named),
            slow=self._pulse is not None and self._pulse.slow,
            settled=self._settled(now),
            absent=self._last.absent,
        )

    def _for_cell(
        self, reading: SourceReading, named: dict[GpuRef, GpuFigures | None], fresh: int, now: float
    ) -> SourceReading:
        """The same reading as it is for one cell's GPUs, `fresh` of which have fresh figures."""
        known = [gpu for gpu in named.values() if gpu is not None]
        if fresh == len(named):
            words = "; ".join(self._remarks(known, self._last.detail))
            return SourceReading(self.name, Status.OK if known else Status.NO_DATA, reading.read_at, words)
        gone = [explain_missing(self.gpus, ref) for ref, gpu in named.items() if gpu is None]
        still = [f"GPU {gpu.key} stands still" for gpu in known if self._stale(gpu, now)]
        status = Status.OK
        if len(still) == len(known):
            status = Status.STALE if still else Status.NO_DATA
        detail = "; ".join([*gone, *still, *self._remarks(known, self._last.detail)])
        return SourceReading(self.name, status, reading.read_at, detail)

    def _remarks(self, gpus: Sequence[GpuFigures], detail: str) -> list[str]:
        """What people should know of figures that are in order."""
        said = [detail] if detail else []
        if self._pulse is not None:
            if self._pulse.slow:
                said.append(f"the exporter collects every {self._pulse.interval_s or 0:.0f} s; {SLOW_ADVICE}")
            if any(not self._pulse.judges(gpu.uuid) for gpu in gpus):
                said.append(NO_ENERGY)
        if any(gpu.weaker_bandwidth for gpu in gpus):
            said.append(WEAKER if self._pulse is not None else WEAKER_NVML)
        return said

    def _stale(self, gpu: GpuFigures, now: float) -> bool:
        return self._pulse is not None and self._pulse.stale(gpu.uuid, now)

    def _settled(self, now: float) -> bool:
        if not self._ever_lost:
            return True
        return self._good_since is not None and now - self._good_since >= SETTLE_S

"""Polls the hardware sources and hands each cell the figures of its GPUs."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from headrace_agent.collectors.containment import Mishaps, keep_running
from headrace_agent.collectors.exposition import PageError
from headrace_agent.collectors.grid import BEFORE_BEAT_S, next_due
from headrace_agent.collectors.hardware.choice import Offer, choose, condition
from headrace_agent.collectors.hardware.dcgm import PREFIX, WANTED, read_gpus
from headrace_agent.collectors.hardware.exporter import Exporter, FetchError
from headrace_agent.collectors.hardware.figures import (
    GpuRef,
    compute_of,
    fill,
    is_mig_uuid,
    worst_health,
    worst_signals,
)
from headrace_agent.collectors.hardware.nvml.process import NvmlProcess
from headrace_agent.collectors.hardware.page import FieldReader, Page
from headrace_agent.collectors.hardware.pulse import Pulse
from headrace_agent.collectors.hardware.source import Read, Source
from headrace_agent.collectors.hardware.worker import HungError, Worker
from headrace_agent.collectors.hardware.xid import Told, XidWatch
from headrace_agent.collectors.readings import Gpu, HardwareReading, HardwareSource, Health, Status, Tally
from headrace_agent.settings import HardwareSettings
from headrace_shared import log
from headrace_shared.clock import Clock
from headrace_shared.tasks import Supervisor

# Over the exporter's own time-out: what only a stuck thread uses up.
FETCH_SLACK_S = 0.25
CLOSE_GRACE_S = 0.5
# A reading is asked for more often than anything new is read. Only its staleness moves by itself,
# and that is told in seconds.
REMEMBER_S = 0.4


class Nvml(Protocol):
    """What reads NVML. `rest_s` is how long a reading would bring nothing new."""

    @property
    def rest_s(self) -> float: ...

    async def read(self) -> Read: ...

    async def close(self) -> None: ...


class HardwareCollector:
    """All GPU sources of this host. `on_event(gpu, xid)` is called on the loop for each new XID;
    `gpu` is a UUID, or `UUID:INSTANCE` for a MIG instance."""

    def __init__(
        self,
        settings: HardwareSettings,
        clock: Clock,
        on_event: Callable[[str, int], None] | None = None,
        *,
        nvml: Nvml | None = None,
        mishaps: Mishaps | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._on_event = on_event
        self._mishaps = mishaps if mishaps is not None else Mishaps()
        self._log = log.get("hardware")
        self._dcgm: Source | None = None
        self._nvml: Source | None = None
        if settings.dcgm_url is not None:
            self._dcgm = Source(
                HardwareSource.DCGM, settings.dcgm_interval_s, Pulse(settings.dcgm_interval_s)
            )
        if settings.nvml == "auto":
            self._nvml = Source(HardwareSource.NVML, settings.nvml_interval_s)
        self._nvml_reader = nvml if nvml is not None else NvmlProcess(clock, self.take_xid)
        self._sources = [source for source in (self._dcgm, self._nvml) if source is not None]
        self._xids = XidWatch()
        self._said: dict[str, tuple[Status, str]] = {}
        self._in_force: dict[tuple[GpuRef, ...], HardwareSource] = {}
        self._readings: dict[tuple[GpuRef, ...], tuple[float, HardwareReading]] = {}

    async def run(self) -> None:
        """Poll every source until cancelled; a source that hangs or fails harms no other."""
        dcgm, nvml = self._dcgm, self._nvml
        polls: dict[str, Callable[[], Awaitable[None]]] = {}
        if dcgm is not None:
            polls["hardware: dcgm"] = lambda: self._poll_dcgm(dcgm, str(self._settings.dcgm_url))
        if nvml is not None:
            polls["hardware: nvml"] = self._poll_nvml
        async with Supervisor() as tasks:
            for part, poll in polls.items():
                tasks.spawn(part, keep_running(part, poll, self._clock, self._mishaps))
            await tasks.wait(asyncio.Event())

    def reading(self, gpus: tuple[GpuRef, ...], now: float) -> HardwareReading:
        """The worst figures over the GPUs that a cell names, by the best source that has any now.

        Without GPUs, and where no source has figures, `source` is NONE and there are no signals.
        """
        if not gpus:
            return HardwareReading()
        known = self._readings.get(gpus)
        if known is not None and 0 <= now - known[0] < REMEMBER_S:
            return known[1]
        reading = self._read(gpus, now)
        self._readings[gpus] = now, reading
        return reading

    def _read(self, gpus: tuple[GpuRef, ...], now: float) -> HardwareReading:
        refs = tuple(map(self._named, gpus))
        offers = [source.offer(refs, now) for source in self._sources]
        chosen = choose(offers)
        self._note(gpus, chosen, offers)
        facts = self._facts(refs)
        return HardwareReading(
            source=chosen.source if chosen is not None else HardwareSource.NONE,
            signals=worst_signals(chosen.gpus) if chosen is not None else {},
            health=self._with_xid(_health(chosen, offers), facts),
            gpus=facts,
            sources=tuple(condition(offer, chosen) for offer in offers),
            compute=compute_of(chosen.gpus) if chosen is not None else None,
        )

    def _named(self, ref: GpuRef) -> GpuRef:
        """A MIG device's UUID as the name that every source knows."""
        if self._nvml is None or not is_mig_uuid(ref):
            return ref
        found = self._nvml.find(ref)
        return ref if found is None else found.key

    def _with_xid(self, health: Health | None, gpus: Sequence[Gpu]) -> Health | None:
        """Gauges keep old XIDs, each GPU its own: what was told last counts, not what stands first."""
        last = self._xids.last(gpu.uuid for gpu in gpus)
        return health if health is None or last is None else replace(health, last_xid=last)

    def tallies(self) -> Mapping[str, Tally]:
        """By source: attempts to read it, and how many of them failed."""
        return {source.name: Tally(source.reads, source.failures) for source in self._sources}

    def take_dcgm(self, read: Read, now: float) -> None:
        """Note one read of the exporter, and tell of new XIDs."""
        if self._dcgm is None:
            return
        self._take(self._dcgm, read, now)
        if read.status is Status.OK:
            self._tell(self._xids.changes(read.gpus, now))

    def take_nvml(self, read: Read, now: float) -> None:
        """Note one read of NVML."""
        if self._nvml is not None:
            self._take(self._nvml, read, now)

    def take_xid(self, uuid: str, instance: str, xid: int) -> None:
        """Note an XID that NVML tells of, and pass it on."""
        if not uuid:  # it fell off the bus before it was named; its next reading says that it is lost
            self._log.warning("XID of a GPU that cannot be named", xid=xid)
            return
        keys = [gpu.key for source in self._sources for gpu in source.gpus if gpu.uuid == uuid]
        self._tell(self._xids.happened(uuid, instance, xid, keys, self._clock.now()))

    def _tell(self, told: Told) -> None:
        if told:
            self._readings.clear()
        for gpu, xid in told:
            self._log.warning("XID", gpu=gpu, xid=xid)
            if self._on_event is not None:
                self._on_event(gpu, xid)

    def _take(self, source: Source, read: Read, now: float) -> None:
        if source.take(read, now):
            self._readings.clear()
        reading = source.reading(now)
        # Remarks on good figures hold numbers that move a little all the time.
        said = (reading.status, reading.detail if reading.status is not Status.OK else "")
        if self._said.get(source.name) == said:
            return
        self._said[source.name] = said
        tell = self._log.info if reading.status in (Status.OK, Status.NO_DATA) else self._log.warning
        tell("source changed", source=source.name, status=reading.status.value, detail=reading.detail)

    async def _poll_dcgm(self, source: Source, url: str) -> None:
        worker = Worker("dcgm")
        exporter = Exporter(url, self._settings.dcgm_timeout_s, self._clock)
        reader, ended = PageReader(exporter), False
        try:
            while True:
                began = self._clock.now()
                read = await self._attempt(worker, reader.read, self._settings.dcgm_timeout_s + FETCH_SLACK_S)
                self.take_dcgm(read, self._clock.now())
                # An exporter that tidies up idle connections at once must not be asked all the time.
                idle = exporter.idle if read.status is Status.OK and not ended else None
                ended = await self._pause(began, self._settings.dcgm_interval_s, idle)
        finally:
            await worker.close(exporter.close, CLOSE_GRACE_S)

    async def _poll_nvml(self) -> None:
        nvml, interval_s = self._nvml_reader, self._settings.nvml_interval_s
        try:
            while True:
                began = self._clock.now()
                self.take_nvml(await nvml.read(), self._clock.now())
                await self._pause(began, max(interval_s, nvml.rest_s))
        finally:
            await nvml.close()

    async def _attempt(self, worker: Worker, job: Callable[[], Read], timeout_s: float) -> Read:
        part = f"hardware: {worker.name} read"
        try:
            read = await worker.call(job, timeout_s)
        except HungError as error:
            return Read(Status.FAILED, detail=str(error))
        except Exception as error:  # noqa: BLE001 - whatever a source provokes stays its own
            return Read(Status.FAILED, detail=self._mishaps.note(part, error))
        self._mishaps.clear(part)
        return read

    async def _pause(self, began: float, interval_s: float, idle: socket.socket | None = None) -> bool:
        """Wait for the next read; True where the connection `idle` ended first, which wants one at once."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        wait_s = max(next_due(began, interval_s, BEFORE_BEAT_S) - self._clock.now(), interval_s / 10)
        if idle is not None:
            loop.add_reader(idle, ended.set)
        try:
            async with asyncio.timeout(wait_s):
                await ended.wait()
        except TimeoutError:
            return False
        finally:
            if idle is not None:
                loop.remove_reader(idle)
        return True

    def _facts(self, refs: Sequence[GpuRef]) -> tuple[Gpu, ...]:
        """Static facts stay known while their source is away."""
        known = ([source.find(ref) for source in self._sources] for ref in refs)
        found = (next((gpu for gpu in each if gpu is not None), None) for each in known)
        facts = [gpu.gpu for gpu in found if gpu is not None]
        return tuple(dict.fromkeys(facts)) if len(facts) > 1 else tuple(facts)

    def _note(self, refs: tuple[GpuRef, ...], chosen: Offer | None, offers: Sequence[Offer]) -> None:
        source = chosen.source if chosen is not None else HardwareSource.NONE
        before = self._in_force.get(refs)
        if source is before:
            return
        self._in_force[refs] = source
        if before is None and source is HardwareSource.NONE:
            return  # nothing has been read yet; each source tells for itself why
        why = "; ".join(f"{each.reading.name}: {each.reading.detail or 'ok'}" for each in offers)
        self._log.info("hardware figures now come from", source=source.value, gpus=list(refs), why=why)


class PageReader:
    """Fetches and reads the exporter's page, and reads an unchanged page only once.

    Its methods block: call them from a worker's thread.
    """

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter
        self._pages = FieldReader(PREFIX, WANTED)
        self._raw = b""
        self._read: Read | None = None

    def read(self) -> Read:
        """The outcome of one fetch; never raises for what an exporter can send."""
        try:
            raw = self._exporter.fetch()
            if self._read is None or raw != self._raw:
                self._read, self._raw = _read_dcgm(self._pages.read(raw), self._exporter.url), raw
        except FetchError as error:
            return Read(Status.FAILED, detail=str(error))
        except PageError as error:
            return Read(Status.FAILED, detail=f"{self._exporter.url}: {error}")
        return self._read


def _read_dcgm(page: Page, url: str) -> Read:
    if not page.matching:
        return Read(Status.NO_DATA, detail=f"{url} has no {PREFIX} metrics; is it a DCGM exporter's page?")
    gpus = read_gpus(page.samples)
    if not gpus:
        status = Status.FAILED if page.malformed else Status.NO_DATA
        return Read(status, detail=f"{url} has no readable GPU figures ({page.malformed} malformed lines)")
    return Read(Status.OK, gpus, f"{page.malformed} malformed lines left out" if page.malformed else "")


def _health(chosen: Offer | None, offers: Sequence[Offer]) -> Health | None:
    """The chosen source's facts, with what it lacks from the other; a lost GPU counts from any."""
    ordered = sorted(offers, key=lambda offer: offer is not chosen)
    facts = [health for offer in ordered if (health := worst_health(offer.gpus)) is not None]
    if not facts:
        return None
    merged = facts[0]
    for other in facts[1:]:
        merged = fill(merged, other)
    return merged

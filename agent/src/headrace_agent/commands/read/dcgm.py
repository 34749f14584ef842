"""A DCGM exporter's page as the agent reads it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from headrace_agent.collectors.exposition import Sample
from headrace_agent.collectors.hardware.dcgm import (
    BLANK_DOUBLE,
    BLANK_INT32,
    BLANK_INT64,
    COMPUTE,
    COPY,
    DRAM,
    FREE,
    PREFIX,
    RENAMED,
    USED,
    UTIL,
    WANTED,
    gpu_key,
    read_gpus,
)
from headrace_agent.collectors.hardware.figures import GpuFigures, explain_missing, find, worst_signals
from headrace_agent.collectors.hardware.page import FieldReader
from headrace_agent.collectors.hardware.source import NO_ENERGY, WEAKER
from headrace_agent.commands.errors import CommandError
from headrace_agent.commands.read.outcome import PageOutcome

KIND: Final = "dcgm"
# The fields that give signals, with the most that each can be.
_LIMITS: Final[Mapping[str, float]] = (
    dict.fromkeys((UTIL, COPY), 100.0)
    | dict.fromkeys((*COMPUTE, DRAM), 1.0)
    | dict.fromkeys((USED, FREE), BLANK_INT32)
)
# What the page must have for a signal.
_WANT: Final[Mapping[str, str]] = {
    "gpu_util": f"{UTIL} (which no GPU has under MIG)",
    "vram_util": f"{USED} and {FREE}",
    "compute_active": " or ".join(COMPUTE),
    "memory_bw_util": f"{DRAM} or {COPY}",
}
_CUT: Final = (
    "the page is cut short: its last line has no end and was dropped; a running agent takes nothing from it"
)


def read_dcgm(raw: bytes, gpu: str | None = None) -> PageOutcome:
    """What a page gives for the GPU that `gpu` names as a config would, or for its worst GPU.

    Raises PageError where the bytes are no text of metrics, CommandError where the GPU is not on
    the page.
    """
    whole, cut = _whole_lines(raw)
    page = FieldReader(PREFIX, WANTED).read(whole)
    gpus = read_gpus(page.samples)
    said = [_CUT] if cut else []
    if page.malformed:
        said.append(f"{page.malformed} lines cannot be read and were left out")
    if not gpus:
        said.append(_nothing(whole, page.matching))
        if gpu is not None:
            raise CommandError(f"--gpu {gpu}: {said[-1]}")
    chosen = _choose(gpus, gpu)
    said += _remarks(chosen, gpus, gpu, page.samples)
    worst = worst_signals(chosen)
    source = {name: _origin(chosen, name, value) for name, value in worst.items()}
    return PageOutcome(KIND, worst, source, tuple(said))


def _whole_lines(raw: bytes) -> tuple[bytes, bool]:
    """The page without a last line that has no end, and whether there was one."""
    end = raw.rfind(b"\n") + 1
    return raw[:end], raw[end:].strip() != b""


def _nothing(raw: bytes, matching: int) -> str:
    if not raw.strip():
        return "the page is empty: an exporter answers so while it reloads; read it again"
    if not matching:
        return f"the page has no {PREFIX} metric; is it a DCGM exporter's page?"
    return "no GPU has a figure on this page; check which fields the exporter collects"


def _choose(gpus: Sequence[GpuFigures], ref: str | None) -> Sequence[GpuFigures]:
    """The GPU that is asked for; or every GPU as a whole, and by its instances where it has no own row."""
    if ref is None:
        whole = {each.uuid for each in gpus if not each.instance}
        return [each for each in gpus if not each.instance or each.uuid not in whole]
    found = find(gpus, ref)
    if found is None:
        raise CommandError(f"--gpu: {explain_missing(gpus, ref)}; on the page: {_listed(gpus)}")
    return [found]


def _listed(gpus: Sequence[GpuFigures]) -> str:
    names = (
        each.key if each.index is None or each.instance else f"{each.index} = {each.key}" for each in gpus
    )
    return ", ".join(names) or "no GPU"


def _origin(gpus: Iterable[GpuFigures], name: str, value: float) -> str:
    return next(each.origin[name] for each in gpus if each.signals.get(name) == value)


def _remarks(
    chosen: Sequence[GpuFigures], gpus: Sequence[GpuFigures], ref: str | None, samples: Sequence[Sample]
) -> Iterator[str]:
    """What people should know of the figures."""
    yield from _bad_values(samples, {(each.uuid, each.instance) for each in chosen})
    for gpu in chosen:
        yield from (f"GPU {gpu.key}: {words}" for words in _of_gpu(gpu, gpus))
    if ref is None:
        split = sorted({each.key for each in gpus if each.instance})
        if split:
            yield f"MIG splits a GPU here; name the instance of a cell with --gpu: {', '.join(split)}"


def _of_gpu(gpu: GpuFigures, gpus: Sequence[GpuFigures]) -> Iterator[str]:
    for name, want in _WANT.items():
        if name not in gpu.signals:
            yield f"{name} is absent, for want of {want}"
    compute = gpu.origin.get("compute_active", COMPUTE[0])
    if RENAMED.get(compute, (compute,))[0] != COMPUTE[0]:
        yield f"compute_active is {compute}, for want of {COMPUTE[0]}"
    if gpu.weaker_bandwidth:
        yield WEAKER
    if all(each.energy_mj is None for each in gpus if each.uuid == gpu.uuid):
        yield NO_ENERGY
    if gpu.health.last_xid:
        yield f"the last XID was {gpu.health.last_xid}"


def _bad_values(samples: Iterable[Sample], keys: set[tuple[str, str]]) -> Iterator[str]:
    """Fields of these GPUs that hold no figure, each named once."""
    told: set[str] = set()
    for sample in samples:
        labels = sample.labels
        key = gpu_key(labels)
        limit = _LIMITS.get(sample.name)
        if key not in keys or limit is None or sample.name in told or 0 <= sample.value <= limit:
            continue
        told.add(sample.name)
        blank = sample.value >= min(BLANK_INT32, BLANK_DOUBLE, BLANK_INT64)
        what = "a blank, which stands for no figure" if blank else f"{sample.value:g}, which it cannot be"
        yield f"{sample.name} holds {what}; left out"

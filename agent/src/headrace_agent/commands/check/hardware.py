"""What the look at the GPUs says. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace_agent.collectors.readings import HardwareReading, HardwareSource, SourceReading, Status
from headrace_agent.commands.check import remedies
from headrace_agent.commands.check.findings import Finding, error, ok, warn
from headrace_agent.settings import HardwareSettings
from headrace_shared.signals import GPU_SIGNALS


def judge_hardware(
    cell: str, gpus: Sequence[str | int], reading: HardwareReading, settings: HardwareSettings
) -> Iterator[Finding]:
    """The findings on the GPUs of this host under one cell."""
    about = f"GPUs of {cell}"
    if not gpus:
        yield warn(
            about,
            "the cell names none, so its GPU signals stay absent",
            "name them in the cell's gpus; `headrace-agent discover` lists those there",
        )
        return
    if reading.source is HardwareSource.NONE:
        yield error(about, "no source gives figures", _how_to_get_any(settings))
    elif reading.source is HardwareSource.NVML and settings.dcgm_url is not None:
        yield warn(about, "figures come from NVML, as the DCGM exporter gives none that are fresh")
    else:
        yield ok(about, _given(reading))
    for source in reading.sources:
        yield from _source(source, reading.source)


def _given(reading: HardwareReading) -> str:
    names = ", ".join(gpu.name or gpu.uuid for gpu in reading.gpus)
    absent = [name for name in GPU_SIGNALS if name not in reading.signals]
    without = f", without {', '.join(absent)}" if absent else ""
    return f"{reading.source.value} gives their figures{without}: {names}"


def _source(source: SourceReading, in_force: HardwareSource) -> Iterator[Finding]:
    """What is to be said of one source; nothing of a stand-in that nobody needs."""
    needed = in_force is HardwareSource.NONE or source.name == in_force.value
    if source.status is Status.OK:
        for remark in filter(None, source.detail.split("; ")):
            yield warn(source.name, remark, remedies.for_hardware(remark))
    elif needed or source.name == HardwareSource.DCGM.value:
        grave = error if source.status is Status.FAILED else warn
        yield grave(source.name, source.detail, remedies.for_hardware(source.detail))


def _how_to_get_any(settings: HardwareSettings) -> str:
    if settings.dcgm_url is None:
        return (
            "run a DCGM exporter with -c 500 and set hardware.dcgm_url, or install the driver's NVML library"
        )
    return "mend what is said of dcgm and nvml"

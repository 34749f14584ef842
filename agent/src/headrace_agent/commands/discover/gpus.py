"""The GPUs of this host: by NVML, which knows their processes, else from the exporter's page."""

from __future__ import annotations

from collections.abc import Iterable

from headrace_agent.collectors.exposition import PageError
from headrace_agent.collectors.hardware.dcgm import PREFIX, WANTED, read_gpus
from headrace_agent.collectors.hardware.exporter import Exporter, FetchError
from headrace_agent.collectors.hardware.figures import GpuFigures
from headrace_agent.collectors.hardware.nvml.calls import NvmlError
from headrace_agent.collectors.hardware.nvml.host import GpuDescription, describe_gpus
from headrace_agent.collectors.hardware.page import FieldReader
from headrace_agent.commands.discover.found import GpuInstance, GpuSeen
from headrace_shared.clock import Clock

NVML_S = 10.0
EXPORTER_S = 2.0


def from_nvml() -> tuple[tuple[GpuSeen, ...], str]:
    """The GPUs, and why NVML does not tell them ("" = it does). Blocks for up to NVML_S seconds."""
    try:
        return tuple(map(_described, describe_gpus(NVML_S))), ""
    except NvmlError as error:
        return (), str(error)


def from_exporter(url: str, clock: Clock) -> tuple[GpuSeen, ...]:
    """The GPUs on an exporter's page; none where it cannot be read. Blocks for up to EXPORTER_S seconds."""
    exporter = Exporter(url, EXPORTER_S, clock)
    try:
        return fold(read_gpus(FieldReader(PREFIX, WANTED).read(exporter.fetch()).samples))
    except (FetchError, PageError):
        return ()
    finally:
        exporter.close()


def fold(rows: Iterable[GpuFigures]) -> tuple[GpuSeen, ...]:
    """The rows of a page, one of each GPU with its MIG instances."""
    by_gpu: dict[str, list[GpuFigures]] = {}
    for row in rows:
        by_gpu.setdefault(row.uuid, []).append(row)
    return tuple(
        GpuSeen(
            index=next((each.index for each in each_gpu if each.index is not None), None),
            uuid=uuid,
            name=next((each.name for each in each_gpu if each.name), ""),
            memory_mib=next((each.memory_mib for each in each_gpu if not each.instance), None),
            instances=tuple(GpuInstance(each.instance) for each in each_gpu if each.instance),
        )
        for uuid, each_gpu in by_gpu.items()
    )


def _described(gpu: GpuDescription) -> GpuSeen:
    instances = tuple(GpuInstance(each.instance, each.uuids, frozenset(each.pids)) for each in gpu.instances)
    return GpuSeen(gpu.index, gpu.uuid, gpu.name, gpu.memory_mib, frozenset(gpu.pids), instances)

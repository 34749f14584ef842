"""Which GPUs are under which engine. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from headrace_agent.commands.discover.found import Engine, GpuSeen, Placed

Environ = Callable[[int], Mapping[str, str]]

BY_PROCESS: Final = "its processes use them (NVML)"
BY_ENVIRON: Final = "by its CUDA_VISIBLE_DEVICES, whose order may be another: check it"
BY_ELIMINATION: Final = "the only GPU and the only engine here"
_VARIABLES: Final = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")


def assign(engines: Sequence[Engine], gpus: Sequence[GpuSeen], environ: Environ) -> tuple[Placed, ...]:
    """Each engine with its GPUs, by the best evidence that there is; without any, with none."""
    placed = []
    for engine in engines:
        if found := _by_process(engine.pids, gpus):
            placed.append(Placed(engine, found, BY_PROCESS))
        elif found := _by_environ(engine.pids, gpus, environ):
            placed.append(Placed(engine, found, BY_ENVIRON))
        elif len(engines) == 1 and len(gpus) == 1 and not gpus[0].instances:
            placed.append(Placed(engine, (gpus[0].uuid,), BY_ELIMINATION))
        else:
            placed.append(Placed(engine))
    return tuple(placed)


def _by_process(pids: frozenset[int], gpus: Iterable[GpuSeen]) -> tuple[str, ...]:
    found: list[str] = []
    for gpu in gpus:
        inside = [f"{gpu.uuid}:{each.instance}" for each in gpu.instances if each.pids & pids]
        whole = [gpu.uuid] if not gpu.instances and gpu.pids is not None and gpu.pids & pids else []
        found += inside or whole
    return tuple(found)


def _by_environ(pids: frozenset[int], gpus: Sequence[GpuSeen], environ: Environ) -> tuple[str, ...]:
    for pid in sorted(pids):
        values = environ(pid)
        for variable in _VARIABLES:
            if found := _visible(values.get(variable, ""), gpus):
                return found
    return ()


def _visible(text: str, gpus: Sequence[GpuSeen]) -> tuple[str, ...]:
    """The GPUs that a list of visible devices names; none where any entry is not understood."""
    found: list[str] = []
    for word in filter(None, (each.strip() for each in text.split(","))):
        ref = _device(word, gpus)
        if not ref:
            return ()
        found.append(ref)
    return tuple(dict.fromkeys(found))


def _device(word: str, gpus: Sequence[GpuSeen]) -> str:
    for gpu in gpus:
        for each in gpu.instances:
            if word in each.uuids:
                return f"{gpu.uuid}:{each.instance}"
        if gpu.instances:
            continue
        if word == str(gpu.index) or (word.startswith("GPU-") and gpu.uuid.startswith(word)):
            return gpu.uuid
    return ""

"""One GPU's figures, whatever source they came from, and the worst of several."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from typing import Final, TypeVar

from headrace_agent.collectors.readings import Compute, Gpu, Health

N = TypeVar("N", int, float)

GpuRef = str | int
"""How a cell names a GPU: an index, a UUID or the start of one, either with `:INSTANCE` for MIG, or
the UUID of a MIG device ("MIG-...")."""

MIG_NEEDS_NVML: Final = (
    "the UUIDs of MIG devices are told by NVML alone; name the instance, as in GPU-1c2d:INSTANCE"
)
_MIG: Final = "mig-"
# How drivers before 470 name a MIG device: MIG-GPU-<uuid>/<GPU instance>/<compute instance>.
_OLD_MIG: Final = re.compile(r"MIG-(GPU-[0-9a-f-]+)/(\d+)/\d+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class GpuFigures:
    """One GPU, or one MIG instance of it (`instance` is its GPU instance id, "" = the whole GPU).

    `signals` holds catalogue names, fractions in [0, 1]. `energy_mj` is the counter that always
    moves on a live GPU. `weaker_bandwidth` says that memory_bw_util is the share of time memory
    was accessed, which is not bandwidth. `origin` names the field that each signal was read from,
    where the source has names. `aliases` are the UUIDs of the MIG devices within an instance.
    """

    uuid: str
    index: int | None = None
    instance: str = ""
    name: str = ""
    memory_mib: int | None = None
    signals: Mapping[str, float] = field(default_factory=dict)
    health: Health = field(default_factory=Health)
    energy_mj: float | None = None
    weaker_bandwidth: bool = False
    origin: Mapping[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()

    @property
    def gpu(self) -> Gpu:
        """Its static facts; an instance goes by its key."""
        return Gpu(self.key, self.name, self.memory_mib)

    @property
    def key(self) -> str:
        """`UUID`, or `UUID:INSTANCE` for a MIG instance."""
        return f"{self.uuid}:{self.instance}" if self.instance else self.uuid


def within(value: float | None, low: float, high: float) -> float | None:
    """`value` where it is a number in [low, high], else None: what a source cannot mean is missing."""
    return value if value is not None and isfinite(value) and low <= value <= high else None


def split_ref(ref: GpuRef) -> tuple[str | int, str]:
    """A reference as (index or start of a UUID, MIG instance or "")."""
    text = str(ref).strip()
    old = _OLD_MIG.fullmatch(text)
    if old is not None:
        return old[1].lower(), old[2]
    head, _, instance = text.partition(":")
    return (int(head) if head.isascii() and head.isdigit() else head.lower()), instance.strip()


def is_mig_uuid(ref: GpuRef) -> bool:
    """Whether a reference is a MIG device's own UUID, which names no GPU and no instance."""
    if isinstance(ref, int):
        return False
    head, _ = split_ref(ref)
    return isinstance(head, str) and head.startswith(_MIG)


def find(gpus: Iterable[GpuFigures], ref: GpuRef) -> GpuFigures | None:
    """The GPU that `ref` names; None where none does, or where a short UUID fits several."""
    head, instance = split_ref(ref)
    if is_mig_uuid(ref):
        found = [each for each in gpus if any(alias.lower().startswith(str(head)) for alias in each.aliases)]
        return found[0] if len(found) == 1 else None
    found = [each for each in gpus if each.instance == instance and _is(each, head)]
    exact = [each for each in found if each.uuid.lower() == head]
    found = exact or found
    return found[0] if len(found) == 1 else None


def explain_missing(gpus: Sequence[GpuFigures], ref: GpuRef) -> str:
    """Why `find` has no answer for `ref`, and what to write instead."""
    head, instance = split_ref(ref)
    if is_mig_uuid(ref):
        return f"GPU {ref} is not known: {MIG_NEEDS_NVML}"
    like = [each for each in gpus if _is(each, head)]
    if len({each.uuid for each in like}) > 1:
        return f"GPU {ref} fits several GPUs; write more of the UUID"
    instances = sorted({each.instance for each in like if each.instance})
    if instance:
        return f"GPU {ref} has no figures; the instances seen are {', '.join(instances) or 'none'}"
    if instances:
        return f"GPU {ref} is split by MIG; name the instance, as in {like[0].uuid}:{instances[0]}"
    return f"GPU {ref} has no figures"


def _is(gpu: GpuFigures, head: str | int) -> bool:
    if isinstance(head, int):
        return gpu.index == head
    return bool(head) and gpu.uuid.lower().startswith(head)


def worst_signals(gpus: Sequence[GpuFigures]) -> dict[str, float]:
    """Each signal's highest value; a signal that no GPU has is missing."""
    first, *others = gpus or [GpuFigures("")]
    worst = dict(first.signals)
    for gpu in others:
        for name, value in gpu.signals.items():
            worst[name] = max(value, worst.get(name, value))
    return worst


def compute_of(gpus: Iterable[GpuFigures]) -> Compute | None:
    """What compute_active measures on the GPUs that have it; None where on none, or not the same."""
    origins = {
        _measure(each.origin.get("compute_active", "")) for each in gpus if "compute_active" in each.signals
    }
    return origins.pop() if len(origins) == 1 else None


def _measure(field_name: str) -> Compute | None:
    if "TENSOR" in field_name:
        return Compute.TENSOR
    if "SM_" in field_name:
        return Compute.SM
    return Compute.ENGINE if "GR_ENGINE" in field_name else None


def worst_health(gpus: Sequence[GpuFigures]) -> Health | None:
    """Field by field the worst of the GPUs; None without any GPU.

    Power and its limit stay a pair: they are those of the GPU with the least left.
    """
    if len(gpus) < 2:
        return gpus[0].health if gpus else None
    health = [gpu.health for gpu in gpus]
    tightest = min(health, key=_power_left)
    xids = [each.last_xid for each in health if each.last_xid]
    return Health(
        temperature_c=_fold(max, (each.temperature_c for each in health)),
        thermal_margin_c=_fold(min, (each.thermal_margin_c for each in health)),
        power_w=tightest.power_w,
        power_limit_w=tightest.power_limit_w,
        clock_event_reasons=_fold(lambda a, b: a | b, (each.clock_event_reasons for each in health)),
        pcie_replays=_fold(max, (each.pcie_replays for each in health)),
        ecc_correctable=_fold(max, (each.ecc_correctable for each in health)),
        ecc_uncorrectable=_fold(max, (each.ecc_uncorrectable for each in health)),
        remapped_rows=_fold(max, (each.remapped_rows for each in health)),
        remap_pending=_any(each.remap_pending for each in health),
        remap_failed=_any(each.remap_failed for each in health),
        last_xid=xids[0] if xids else None,
        gpu_lost=any(each.gpu_lost for each in health),
    )


def fill(health: Health, other: Health) -> Health:
    """`health` with what it lacks taken from `other`; a GPU that either calls lost is lost."""
    missing = {
        each.name: getattr(other, each.name) for each in fields(Health) if getattr(health, each.name) is None
    }
    return replace(health, **missing, gpu_lost=health.gpu_lost or other.gpu_lost)


def with_parent(gpu: GpuFigures, parent: GpuFigures | None) -> GpuFigures:
    """A MIG instance with what only its GPU has: temperature, power and the like."""
    if not gpu.instance or parent is None:
        return gpu
    return replace(gpu, name=gpu.name or parent.name, health=fill(gpu.health, parent.health))


def _power_left(health: Health) -> tuple[float, float]:
    """Sort key: least power left first; without a limit the highest draw; unknown last."""
    if health.power_w is None:
        return (float("inf"), 0.0)
    if health.power_limit_w is None:
        return (1e9, -health.power_w)
    return (health.power_limit_w - health.power_w, -health.power_w)


def _fold(pick: Callable[[N, N], N], values: Iterable[N | None]) -> N | None:
    result: N | None = None
    for value in values:
        if value is not None:
            result = value if result is None else pick(result, value)
    return result


def _any(values: Iterable[bool | None]) -> bool | None:
    known = [value for value in values if value is not None]
    return any(known) if known else None

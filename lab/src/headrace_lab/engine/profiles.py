"""What engines and GPUs can do, derived from the figures of data sheets and model cards.

docs/lab-profiles.md names the sources and shows the rates that follow. What no data sheet tells, the
efficiencies and the thermal figures, stands here as an assumption with its reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeVar

from headrace_lab.engine.parameters import EngineParameters
from headrace_lab.gpu.model import GpuParameters

T = TypeVar("T")

MEMORY_EFFICIENCY: Final = 0.80
"""Share of the peak bandwidth that streaming weights and caches reaches."""
COMPUTE_EFFICIENCY: Final = 0.45
"""Share of the peak dense tensor rate that prefill reaches."""
QUANTISED_EFFICIENCY: Final = 0.40
"""The same where weights are unpacked from four bits on the way."""
MEMORY_SHARE: Final = 0.92
"""Share of the memory that an engine takes, vLLM's default."""
ACTIVATIONS_GB: Final = 4.0
"""Left for activations and CUDA graphs on a large GPU; less where the memory is small."""
STEP_OVERHEAD_S: Final = 0.002
"""Scheduling, launching and sampling of one step."""
SEQUENCE_OVERHEAD_S: Final = 0.000_03
"""What each decoding sequence adds to that."""
MIB: Final = 1024 * 1024
BATCHED_TOKENS: Final = 2048
STEP_JITTER: Final = 0.02


@dataclass(frozen=True, slots=True)
class GpuSheet:
    """One kind of GPU: memory in GB (10^9 bytes), bandwidth in bytes/s, dense FP16 tensor rate with FP32
    accumulation in FLOP/s, board power in W, boost and memory clocks in MHz. `full_load_c` and
    `throttle_c` are the temperatures of constant full power and of the first lowered clock, and
    `pcie_share` the part of a step's time that goes over the host link: assumptions."""

    name: str
    memory_gb: float
    bandwidth: float
    flops: float
    power_w: float
    idle_w: float
    sm_clock_mhz: int
    memory_clock_mhz: int
    full_load_c: float
    throttle_c: float
    pcie_share: float


@dataclass(frozen=True, slots=True)
class ModelCard:
    """One model: parameters, bytes of weights as served, and the shape that caches and attention follow
    from. Keys and values are held in two bytes each."""

    name: str
    parameters: float
    weight_bytes: float
    layers: int
    hidden: int
    kv_heads: int
    head_dim: int
    quantised: bool

    @property
    def kv_bytes_per_token(self) -> int:
        return 2 * self.layers * self.kv_heads * self.head_dim * 2

    @property
    def flops_per_token(self) -> float:
        """Of the matrix products, without attention."""
        return 2 * self.parameters

    @property
    def flops_per_pair(self) -> float:
        """Of attention, for each pair of a token and one before it: scores and their use."""
        return 4.0 * self.layers * self.hidden


GPUS: Final[Mapping[str, GpuSheet]] = MappingProxyType(
    {
        "h100": GpuSheet("NVIDIA H100 80GB HBM3", 80, 3.35e12, 989.4e12, 700, 70, 1980, 2619, 78, 87, 0.10),
        "h200": GpuSheet("NVIDIA H200", 141, 4.8e12, 989.4e12, 700, 75, 1980, 3201, 78, 87, 0.10),
        "rtx-pro-6000": GpuSheet(
            "NVIDIA RTX PRO 6000 Blackwell", 96, 1.792e12, 503.8e12, 600, 60, 2617, 14001, 88, 90, 0.15
        ),
        "edge": GpuSheet("NVIDIA L4", 24, 300e9, 121e12, 72, 16, 2040, 6251, 80, 84, 0.15),
    }
)

MODELS: Final[Mapping[str, ModelCard]] = MappingProxyType(
    {
        "70b-awq": ModelCard("Llama 3.1 70B AWQ INT4", 70.6e9, 39.8e9, 80, 8192, 8, 128, quantised=True),
        "8b": ModelCard("Llama 3.1 8B BF16", 8.03e9, 16.06e9, 32, 4096, 8, 128, quantised=False),
        "1b": ModelCard("Llama 3.2 1B BF16", 1.24e9, 2.47e9, 16, 2048, 8, 64, quantised=False),
    }
)


@dataclass(frozen=True, slots=True)
class Profile:
    """An engine on a GPU. `pcie_share` is the part of a step's time that goes over the host link."""

    engine: EngineParameters
    gpu: GpuParameters
    pcie_share: float


def split(name: str) -> tuple[str, str]:
    """GPU and model of `GPU/MODEL`, as in h100/70b-awq. Raises ValueError."""
    gpu, sep, model = name.partition("/")
    if not (gpu and sep and model):
        raise ValueError(f"the profile {name!r} is not understood; write GPU/MODEL, as in h100/70b-awq")
    return gpu, model


def profile(
    gpu: str, model: str, *, max_model_len: int = 32_768, speed: float = 1.0, thermal_s: float = 20.0
) -> Profile:
    """The profile of a model on a kind of GPU; `thermal_s` is the time constant of its temperature.

    Raises ValueError for names that are not known, and where the model does not fit.
    """
    sheet, card = _find(GPUS, gpu, "GPU"), _find(MODELS, model, "model")
    compute = sheet.flops * (QUANTISED_EFFICIENCY if card.quantised else COMPUTE_EFFICIENCY)
    bandwidth = sheet.bandwidth * MEMORY_EFFICIENCY
    kv_bytes = _kv_bytes(sheet, card)
    engine = EngineParameters(
        prefill_tokens_per_s=compute / card.flops_per_token,
        attention_per_pair_s=card.flops_per_pair / compute,
        decode_base_s=card.weight_bytes / bandwidth + STEP_OVERHEAD_S,
        decode_per_sequence_s=SEQUENCE_OVERHEAD_S,
        decode_per_context_token_s=card.kv_bytes_per_token / bandwidth,
        max_num_batched_tokens=BATCHED_TOKENS,
        kv_capacity_tokens=math.floor(kv_bytes / card.kv_bytes_per_token),
        max_model_len=max_model_len,
        speed=speed,
        step_jitter=STEP_JITTER,
        prefix_caching=True,
    )
    return Profile(engine, _gpu_parameters(sheet, card, kv_bytes, thermal_s), sheet.pcie_share)


def _kv_bytes(sheet: GpuSheet, card: ModelCard) -> float:
    left = sheet.memory_gb * MEMORY_SHARE - min(ACTIVATIONS_GB, sheet.memory_gb / 16)
    kv_bytes = left * 1e9 - card.weight_bytes
    if kv_bytes <= 0:
        raise ValueError(
            f"{card.name} needs {card.weight_bytes / 1e9:.1f} GB for its weights, and {sheet.name} has "
            f"{sheet.memory_gb:g} GB; take a smaller model or a larger GPU"
        )
    return kv_bytes


def _gpu_parameters(sheet: GpuSheet, card: ModelCard, kv_bytes: float, thermal_s: float) -> GpuParameters:
    return GpuParameters(
        name=sheet.name,
        memory_mib=round(sheet.memory_gb * 1e9 / MIB),
        weights_mib=round(card.weight_bytes / MIB),
        kv_mib=round(kv_bytes / MIB),
        idle_w=sheet.idle_w,
        limit_w=sheet.power_w,
        full_load_c=sheet.full_load_c,
        throttle_c=sheet.throttle_c,
        thermal_time_constant_s=thermal_s,
        sm_clock_mhz=sheet.sm_clock_mhz,
        memory_clock_mhz=sheet.memory_clock_mhz,
    )


def _find(known: Mapping[str, T], name: str, what: str) -> T:
    if name not in known:
        raise ValueError(f"no {what} is called {name!r}; there are {', '.join(known)}")
    return known[name]

"""What a simulated GPU is to suffer, as an exporter is told it."""

from __future__ import annotations

import json
import math
from dataclasses import fields

from headrace_lab.gpu.model import GpuStress

NAMES = tuple(field.name for field in fields(GpuStress))


def read_stress(raw: bytes) -> tuple[str, GpuStress]:
    """Read `{"gpu": UUID, NAME: number, ...}` with the names of GpuStress; what is left out is as in a GPU
    that suffers nothing. Raises ValueError that says what to write."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the body is not valid JSON: {error}") from error
    if not isinstance(body, dict) or not isinstance(body.get("gpu"), str):
        raise ValueError(f'write {{"gpu": UUID, NAME: number}} with NAME one of {", ".join(NAMES)}')
    given = {name: value for name, value in body.items() if name != "gpu"}
    if unknown := sorted(set(given) - set(NAMES)):
        raise ValueError(f"unknown key {unknown[0]!r}; the keys are gpu, {', '.join(NAMES)}")
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{name} is {value!r}; give a number")
    stress = GpuStress(**{name: float(value) for name, value in given.items()})
    if min(stress.heat_w, stress.pcie_contention, stress.ecc_per_min) < 0:
        raise ValueError("heat_w, pcie_contention and ecc_per_min must not be negative")
    if stress.pcie_contention >= 1:
        raise ValueError(f"pcie_contention is {stress.pcie_contention:g}; give a share below 1")
    if not 0 < stress.cooling <= 1:
        raise ValueError(f"cooling is {stress.cooling:g}; give the share that is left, above 0 and at most 1")
    return body["gpu"], stress

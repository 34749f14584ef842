"""What compute_active measures on the GPUs of a cell."""

from __future__ import annotations

import pytest

from headrace_agent.collectors.hardware.figures import GpuFigures, compute_of
from headrace_agent.collectors.readings import Compute


def gpu(field: str) -> GpuFigures:
    if not field:
        return GpuFigures("GPU-x")
    return GpuFigures("GPU-x", signals={"compute_active": 0.5}, origin={"compute_active": field})


@pytest.mark.parametrize(
    ("fields", "measure"),
    [
        (("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",), Compute.TENSOR),
        (("DCGM_FI_PROF_TENSOR_UTIL_RATIO",), Compute.TENSOR),
        (("GPM_METRIC_ANY_TENSOR_UTIL",), Compute.TENSOR),
        (("DCGM_FI_PROF_SM_ACTIVE",), Compute.SM),
        (("GPM_METRIC_SM_UTIL",), Compute.SM),
        (("DCGM_FI_PROF_GR_ENGINE_ACTIVE",), Compute.ENGINE),
        (("something new",), None),
        (("",), None),
        ((), None),
        (("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", ""), Compute.TENSOR),
        (("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_SM_ACTIVE"), None),
    ],
)
def test_the_fields_behind_it_tell(fields: tuple[str, ...], measure: Compute | None) -> None:
    assert compute_of(gpu(field) for field in fields) is measure

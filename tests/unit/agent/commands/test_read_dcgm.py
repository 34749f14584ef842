"""What `read dcgm` takes from a page: figures, the metric of each, and what it warns of."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_agent.collectors.exposition import PageError
from headrace_agent.collectors.hardware.source import NO_ENERGY, WEAKER
from headrace_agent.commands.errors import CommandError
from headrace_agent.commands.read.dcgm import read_dcgm
from headrace_shared.signals import NAMES

DATA = Path(__file__).parents[3] / "data" / "dcgm_pages"
T4 = (DATA / "dcgm_t4.prom").read_bytes()
MIG = (DATA / "dcgm_a100_mig.prom").read_bytes()
A100 = "GPU-00000000-0000-4000-8000-000000000002"


def page(*gpus: dict[str, object]) -> bytes:
    """A page of GPUs 0, 1, …, each with these fields."""
    return "".join(
        f'{field}{{gpu="{at}",UUID="GPU-{at}",Hostname="h"}} {value}\n'
        for at, fields in enumerate(gpus)
        for field, value in fields.items()
    ).encode()


FULL: dict[str, object] = {
    "DCGM_FI_DEV_GPU_UTIL": 50,
    "DCGM_FI_DEV_FB_USED": 30,
    "DCGM_FI_DEV_FB_FREE": 10,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.25,
    "DCGM_FI_PROF_DRAM_ACTIVE": 0.5,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 1000,
}


def without(*fields: str) -> dict[str, object]:
    return {name: value for name, value in FULL.items() if name not in fields}


def test_a_captured_page_gives_all_ten_names_and_nothing_to_warn_of() -> None:
    outcome = read_dcgm(T4).as_json()
    assert outcome["kind"] == "dcgm"
    assert list(outcome["signals"]) == list(NAMES)
    given_ = {name: value for name, value in outcome["signals"].items() if value is not None}
    assert given_ == pytest.approx(
        {"gpu_util": 0.91, "vram_util": 5120 / 14911, "compute_active": 0.005822, "memory_bw_util": 0.092781}
    )
    assert outcome["source"] == {
        "gpu_util": "DCGM_FI_DEV_GPU_UTIL",
        "vram_util": "DCGM_FI_DEV_FB_USED",
        "compute_active": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "memory_bw_util": "DCGM_FI_PROF_DRAM_ACTIVE",
    }
    assert outcome["warnings"] == []


def test_without_a_gpu_the_worst_of_all_counts_signal_by_signal() -> None:
    busy = FULL | {"DCGM_FI_DEV_GPU_UTIL": 90}
    weak = without("DCGM_FI_PROF_DRAM_ACTIVE") | {"DCGM_FI_DEV_MEM_COPY_UTIL": 80}
    outcome = read_dcgm(page(busy, weak))
    assert outcome.signals["gpu_util"] == 0.9
    assert outcome.signals["memory_bw_util"] == 0.8
    assert outcome.source["memory_bw_util"] == "DCGM_FI_DEV_MEM_COPY_UTIL", (
        "the metric of the GPU that counts"
    )


@pytest.mark.parametrize("ref", ["1", "GPU-1", "gpu-1"])
def test_one_gpu_is_named_as_in_a_config(ref: str) -> None:
    outcome = read_dcgm(page(FULL | {"DCGM_FI_DEV_GPU_UTIL": 90}, FULL), ref)
    assert outcome.signals["gpu_util"] == 0.5


def test_a_mig_instance_has_its_own_figures() -> None:
    outcome = read_dcgm(MIG, f"{A100}:13")
    assert outcome.signals["compute_active"] == 0.930433
    assert outcome.signals["memory_bw_util"] == 0.800339
    assert outcome.as_json()["signals"]["gpu_util"] is None


def test_without_a_gpu_a_mig_page_gives_the_whole_gpu_and_names_its_instances() -> None:
    outcome = read_dcgm(MIG)
    assert outcome.signals["compute_active"] == 0.929260
    assert any(f"{A100}:13" in warning for warning in outcome.warnings)


def test_instances_count_where_their_gpu_has_no_row_of_its_own() -> None:
    rows = b"".join(line + b"\n" for line in MIG.splitlines() if b"GPU_I_ID" in line)
    assert read_dcgm(rows).signals["compute_active"] == 0.930433


@pytest.mark.parametrize("ref", ["7", "GPU-7", f"{A100}:9"])
def test_an_unknown_gpu_is_an_error_that_lists_those_there(ref: str) -> None:
    with pytest.raises(CommandError, match=f"{A100}:13") as raised:
        read_dcgm(MIG, ref)
    assert raised.value.code == 2
    assert ref in str(raised.value)


@pytest.mark.parametrize(
    ("fields", "warning"),
    [
        (without("DCGM_FI_DEV_GPU_UTIL"), "gpu_util is absent, for want of DCGM_FI_DEV_GPU_UTIL"),
        (without("DCGM_FI_DEV_FB_FREE"), "vram_util is absent, for want of DCGM_FI_DEV_FB_USED and"),
        (
            without("DCGM_FI_PROF_DRAM_ACTIVE"),
            "memory_bw_util is absent, for want of DCGM_FI_PROF_DRAM_ACTIVE",
        ),
        (without("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"), NO_ENERGY),
        (without("DCGM_FI_PROF_DRAM_ACTIVE") | {"DCGM_FI_DEV_MEM_COPY_UTIL": 70}, WEAKER),
        (
            without("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE") | {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.7},
            "compute_active is DCGM_FI_PROF_GR_ENGINE_ACTIVE, for want of DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        ),
        (FULL | {"DCGM_FI_DEV_XID_ERRORS": 79}, "the last XID was 79"),
        (FULL | {"DCGM_FI_PROF_DRAM_ACTIVE": 140737488355328.0}, "DCGM_FI_PROF_DRAM_ACTIVE holds a blank"),
        (FULL | {"DCGM_FI_DEV_GPU_UTIL": 2147483632}, "DCGM_FI_DEV_GPU_UTIL holds a blank"),
        (FULL | {"DCGM_FI_DEV_GPU_UTIL": 250}, "DCGM_FI_DEV_GPU_UTIL holds 250, which it cannot be"),
        (FULL | {"DCGM_FI_DEV_GPU_UTIL": "NaN"}, "DCGM_FI_DEV_GPU_UTIL holds nan, which it cannot be"),
        (FULL | {"DCGM_FI_DEV_GPU_UTIL": "lots"}, "1 lines cannot be read"),
    ],
)
def test_what_is_wrong_with_a_figure_is_said(fields: dict[str, object], warning: str) -> None:
    assert read_dcgm(page(FULL)).warnings == ()
    outcome = read_dcgm(page(fields))
    assert any(warning in said for said in outcome.warnings), outcome.warnings


def test_a_blank_is_no_figure() -> None:
    outcome = read_dcgm(page(FULL | {"DCGM_FI_DEV_GPU_UTIL": 2147483632}))
    assert outcome.as_json()["signals"]["gpu_util"] is None
    assert "gpu_util" not in outcome.source


def test_a_line_that_was_cut_gives_no_figure_and_the_agent_would_refuse_the_page() -> None:
    outcome = read_dcgm(page(FULL, {"DCGM_FI_DEV_GPU_UTIL": 91})[:-2])
    assert outcome.signals["gpu_util"] == 0.5, "not 9 of the 91 that was cut"
    assert "cut short" in outcome.warnings[0]


@pytest.mark.parametrize(
    ("raw", "warning"),
    [
        (b"", "the page is empty"),
        (b"\n \n", "the page is empty"),
        (b"vllm:num_requests_running 3\n", "no DCGM_FI_ metric"),
        (b'DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-0"} 660\n', "no GPU has a figure"),
    ],
)
def test_a_page_without_figures_says_why(raw: bytes, warning: str) -> None:
    outcome = read_dcgm(raw)
    assert set(outcome.as_json()["signals"].values()) == {None}
    assert warning in outcome.warnings[0]
    with pytest.raises(CommandError, match=warning):
        read_dcgm(raw, "0")


def test_what_is_no_text_is_no_page() -> None:
    with pytest.raises(PageError):
        read_dcgm(b"\xff\xfe\n")


@given(
    st.lists(st.sampled_from(T4.splitlines() + MIG.splitlines() + [b"}{", b""]), max_size=30),
    st.binary(max_size=20),
)
def test_no_page_gives_a_figure_that_is_no_fraction(lines: list[bytes], tail: bytes) -> None:
    try:
        outcome = read_dcgm(b"\n".join(lines) + b"\n" + tail)
    except PageError:
        return
    for name, value in outcome.signals.items():
        assert value is not None
        assert 0 <= value <= 1
        assert outcome.source[name].startswith("DCGM_FI_")

"""The exporter's page becomes figures with the right units, and blanks never become load."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_agent.collectors.exposition import Labels, Sample
from headrace_agent.collectors.hardware.dcgm import PREFIX, WANTED, read_gpus
from headrace_agent.collectors.hardware.figures import GpuFigures
from headrace_agent.collectors.hardware.page import FieldReader

PAGES = Path(__file__).parents[4] / "data" / "dcgm_pages"
UUID = "GPU-00000000-0000-4000-8000-000000000009"
TENSOR = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"
SM = "DCGM_FI_PROF_SM_ACTIVE"
ENGINE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
DRAM = "DCGM_FI_PROF_DRAM_ACTIVE"
COPY = "DCGM_FI_DEV_MEM_COPY_UTIL"
UTIL = "DCGM_FI_DEV_GPU_UTIL"


def capture(name: str) -> tuple[GpuFigures, ...]:
    return read_gpus(FieldReader(PREFIX, WANTED).read((PAGES / name).read_bytes()).samples)


def one(**values: float) -> GpuFigures:
    labels = Labels({"gpu": "3", "UUID": UUID, "modelName": "Test"})
    (gpu,) = read_gpus(Sample(name, labels, value) for name, value in values.items())
    return gpu


def test_a_t4_whose_kernels_run_while_its_tensor_pipe_idles() -> None:
    (gpu,) = capture("dcgm_t4.prom")
    assert gpu.signals == pytest.approx(
        {
            "gpu_util": 0.91,
            "vram_util": 5120 / (5120 + 9791),
            "compute_active": 0.005822,
            "memory_bw_util": 0.092781,
        }
    )
    assert (gpu.index, gpu.name, gpu.memory_mib) == (0, "Tesla T4", 5120 + 9791 + 447)
    assert not gpu.weaker_bandwidth
    assert gpu.health.temperature_c == 74.0
    assert gpu.health.power_w == pytest.approx(68.244)
    assert gpu.health.pcie_replays == 0
    assert gpu.health.last_xid is None, "the page has no XID series"
    assert gpu.energy_mj == 15152422938, "more than an int32 can hold, and no blank"


def test_a_mig_instance_stands_apart_from_its_gpu() -> None:
    parent, instance = capture("dcgm_a100_mig.prom")
    assert (parent.instance, instance.instance) == ("", "13")
    assert parent.uuid == instance.uuid
    assert parent.signals["memory_bw_util"] == pytest.approx(0.690789)
    assert instance.signals == pytest.approx({"compute_active": 0.930433, "memory_bw_util": 0.800339})
    assert "gpu_util" not in parent.signals, "absent under MIG"
    assert instance.health.temperature_c == 61.0, "only the GPU has a temperature"
    assert instance.memory_mib is None, "the GPU's memory is not the instance's"


def test_compute_prefers_the_tensor_pipe_then_sm_then_the_engine() -> None:
    assert one(**{TENSOR: 0.1, SM: 0.2, ENGINE: 0.3}).signals["compute_active"] == 0.1
    assert one(**{SM: 0.2, ENGINE: 0.3}).signals["compute_active"] == 0.2
    assert one(**{ENGINE: 0.3}).signals["compute_active"] == 0.3
    assert "compute_active" not in one(**{UTIL: 90}).signals


def test_a_tensor_pipe_at_zero_is_a_figure_and_no_reason_to_look_further() -> None:
    assert one(**{TENSOR: 0.0, ENGINE: 0.9}).signals["compute_active"] == 0.0


def test_the_copy_share_stands_in_for_bandwidth_and_says_so() -> None:
    gpu = one(**{COPY: 73})
    assert gpu.signals["memory_bw_util"] == 0.73
    assert gpu.weaker_bandwidth
    assert not one(**{COPY: 73, DRAM: 0.1}).weaker_bandwidth


BLANKS = [9223372036854775792.0, 9223372036854775807.0, 2147483632.0, 140737488355328.0]
BAD = [*BLANKS, float("nan"), float("inf"), float("-inf"), -1.0, 101.0]


@pytest.mark.parametrize("value", BAD)
def test_what_a_figure_cannot_be_is_missing(value: float) -> None:
    unfit = ("ENERGY", "MARGIN", "BYTES")  # of these, some of the values are figures
    gpu = one(**{name: value for name in WANTED if not any(each in name for each in unfit)})
    assert gpu.signals.keys() <= {"vram_util"}
    if value != 101.0:
        assert gpu.signals == {}
        assert gpu.health.power_w is None
        assert gpu.health.ecc_uncorrectable is None
        assert gpu.health.last_xid is None
        assert gpu.memory_mib is None


def test_a_blank_first_choice_leaves_the_second() -> None:
    assert one(**{TENSOR: BLANKS[3], SM: 0.4}).signals["compute_active"] == 0.4
    assert one(**{DRAM: BLANKS[0], COPY: 40}).signals["memory_bw_util"] == 0.4


def test_a_blank_energy_counter_is_missing() -> None:
    assert one(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION=BLANKS[0]).energy_mj is None


def test_the_health_facts_that_are_off_by_default() -> None:
    health = one(
        DCGM_FI_DEV_XID_ERRORS=79,
        DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS=2,
        DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS=3,
        DCGM_FI_DEV_ECC_SBE_VOL_TOTAL=4,
        DCGM_FI_DEV_ECC_DBE_AGG_TOTAL=5,
        DCGM_FI_DEV_CLOCK_THROTTLE_REASONS=0x44,
        DCGM_FI_DEV_GPU_TEMP_LIMIT=-3,
        DCGM_FI_DEV_ENFORCED_POWER_LIMIT=700,
    ).health
    assert (health.last_xid, health.remapped_rows, health.ecc_correctable) == (79, 5, 4)
    assert (health.ecc_uncorrectable, health.clock_event_reasons) == (5, 0x44)
    assert (health.thermal_margin_c, health.power_limit_w) == (-3.0, 700.0)


def test_newer_field_names_mean_the_same() -> None:
    health = one(DCGM_FI_DEV_GPU_TEMP_CELSIUS=60, DCGM_FI_DEV_BOARD_POWER_WATTS=300).health
    assert (health.temperature_c, health.power_w) == (60.0, 300.0)


def test_fields_renamed_in_dcgm_4_are_the_same_fields() -> None:
    gpu = one(
        DCGM_FI_PROF_TENSOR_UTIL_RATIO=0.4,
        DCGM_FI_PROF_DRAM_UTIL_RATIO=0.3,
        DCGM_FI_DEV_FB_USED_BYTES=3 * 2**30,
        DCGM_FI_DEV_FB_FREE_BYTES=5 * 2**30,
        DCGM_FI_DEV_FB_RESERVED_BYTES=2**30,
        DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL=7,
    )
    assert gpu.signals == {"compute_active": 0.4, "memory_bw_util": 0.3, "vram_util": 3 / 8}
    assert gpu.origin["compute_active"] == "DCGM_FI_PROF_TENSOR_UTIL_RATIO"
    assert (gpu.memory_mib, gpu.energy_mj) == (9 * 1024, 7000)


@pytest.mark.parametrize("value", [BLANKS[0], BLANKS[1], float("nan"), -1.0])
def test_a_blank_count_of_bytes_is_missing(value: float) -> None:
    gpu = one(DCGM_FI_DEV_FB_USED_BYTES=value, DCGM_FI_DEV_FB_FREE_BYTES=value)
    assert (gpu.signals, gpu.memory_mib) == ({}, None)


@pytest.mark.parametrize(
    "names", [(DRAM, "DCGM_FI_PROF_DRAM_UTIL_RATIO"), ("DCGM_FI_PROF_DRAM_UTIL_RATIO", DRAM)]
)
def test_where_a_page_has_both_names_the_older_one_counts(names: tuple[str, str]) -> None:
    assert one(**{name: 0.5 if name == DRAM else 0.1 for name in names}).signals == {"memory_bw_util": 0.5}


def test_renamed_fields_keep_their_order_of_preference() -> None:
    assert one(DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO=0.9, DCGM_FI_PROF_SM_UTIL_RATIO=0.2).signals == {
        "compute_active": 0.2
    }
    weak = one(DCGM_FI_DEV_MEMORY_UTIL_RATIO=0.7)
    assert weak.signals == {"memory_bw_util": 0.7}
    assert weak.weaker_bandwidth


@pytest.mark.parametrize(
    ("value", "share"), [(0, 0.0), (0.42, 0.42), (1, 1.0), (2, 0.02), (42, 0.42), (100, 1.0), (101, None)]
)
def test_the_utilisation_under_its_new_name_is_a_percentage_or_a_ratio(
    value: float, share: float | None
) -> None:
    assert one(DCGM_FI_DEV_GPU_UTIL_RATIO=value).signals.get("gpu_util") == share


def test_labels_of_newer_exporters_name_the_gpu_too() -> None:
    labels = Labels({"gpu": "1", "gpu_uuid": UUID, "model_name": "New", "hostname": "n"})
    (gpu,) = read_gpus([Sample(UTIL, labels, 5.0)])
    assert (gpu.uuid, gpu.index, gpu.name) == (UUID, 1, "New")


def test_row_remapping_that_waits_or_failed_is_told() -> None:
    health = one(DCGM_FI_DEV_ROW_REMAP_FAILURE=1, DCGM_FI_DEV_ROW_REMAP_PENDING=0).health
    assert (health.remap_failed, health.remap_pending) == (True, False)
    assert one(DCGM_FI_DEV_ROW_REMAP_FAILURE=BLANKS[0]).health.remap_failed is None


def test_spaces_after_commas_and_repeated_comments_are_read_past() -> None:
    comment = "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization.\n# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n"
    rows = "".join(
        f'{comment}{UTIL}{{gpu="{index}", UUID="GPU-{index}",  Hostname="n" }} {10 * index}\n'
        for index in range(3)
    )
    gpus = read_gpus(FieldReader(PREFIX, WANTED).read(rows.encode()).samples)
    assert [gpu.signals["gpu_util"] for gpu in gpus] == [0.0, 0.1, 0.2]


def test_the_host_label_may_be_written_either_way_and_pod_labels_may_follow() -> None:
    text = "".join(
        f'{UTIL}{{gpu="{index}", UUID="GPU-{index}", {host}="n", pod="p", namespace="x"}} {index}\n'
        for index, host in enumerate(("Hostname", "hostname"))
    )
    gpus = read_gpus(FieldReader(PREFIX, WANTED).read(text.encode()).samples)
    assert [(gpu.uuid, gpu.index) for gpu in gpus] == [("GPU-0", 0), ("GPU-1", 1)]


def test_rows_without_a_uuid_belong_to_no_gpu() -> None:
    assert read_gpus([Sample(UTIL, Labels({"gpu": "0"}), 5.0)]) == ()


def test_an_xid_with_its_message_is_read_beside_the_empty_one() -> None:
    labels = Labels({"gpu": "0", "UUID": UUID})
    told = Labels({**labels, "err_code": "48", "err_msg": "DBE"})
    rows = [Sample("DCGM_FI_DEV_XID_ERRORS", labels, 0.0), Sample("DCGM_FI_DEV_XID_ERRORS", told, 48.0)]
    assert read_gpus(rows)[0].health.last_xid == 48


@given(st.dictionaries(st.sampled_from(sorted(WANTED)), st.floats(allow_nan=True, allow_infinity=True)))
def test_no_page_gives_a_signal_out_of_range(values: dict[str, float]) -> None:
    for gpu in read_gpus(Sample(name, Labels({"UUID": UUID}), value) for name, value in values.items()):
        assert all(0.0 <= value <= 1.0 for value in gpu.signals.values())
        assert gpu.health.last_xid is None or 0 <= gpu.health.last_xid < 2**31

"""The exporter's page and what goes into it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from headrace_lab.gpu.exporter import ExporterFault, read_fault
from headrace_lab.gpu.follower import parse_load
from headrace_lab.gpu.model import Gpu, GpuLoad, GpuParameters
from headrace_lab.gpu.page import GpuIdentity, GpuRow, render
from headrace_lab.gpu.settings import ExporterSettings, Placement, parse_placement

LOAD = {"busy": 0.5, "tensor": 0.25, "bandwidth": 0.75, "kv_fill": 0.1, "loading": False}


def rows(count: int, hostname: str = "node-1") -> list[GpuRow]:
    made = []
    for i in range(count):
        gpu = Gpu(GpuParameters(), now=0.0)
        gpu.follow(GpuLoad(0.5, 0.25, 0.75, 0.1, True), 0.0)
        made.append(GpuRow(GpuIdentity(i, f"GPU-{i}", hostname), gpu.parameters, gpu.figures(2.0)))
    return made


def test_a_page_has_dcgms_names_types_and_labels() -> None:
    families = {f.name: f for f in text_string_to_metric_families(render(rows(3)))}
    for name in (
        "DCGM_FI_DEV_GPU_UTIL",
        "DCGM_FI_DEV_MEM_COPY_UTIL",
        "DCGM_FI_DEV_FB_USED",
        "DCGM_FI_DEV_FB_FREE",
        "DCGM_FI_DEV_FB_RESERVED",
        "DCGM_FI_DEV_GPU_TEMP",
        "DCGM_FI_DEV_POWER_USAGE",
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "DCGM_FI_PROF_DRAM_ACTIVE",
    ):
        assert len(families[name].samples) == 3, name
    sample = families["DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"].samples[2]
    assert sample.value == 0.25
    assert sample.labels == {
        "gpu": "2",
        "UUID": "GPU-2",
        "pci_bus_id": "00000000:1A:00.0",
        "device": "nvidia2",
        "modelName": "NVIDIA H100 80GB HBM3",
        "Hostname": "node-1",
    }
    assert families["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"].type == "counter"
    assert "DCGM_FI_DEV_XID_ERRORS" not in families, "absent while there was none"


def test_a_page_without_gpus_is_empty() -> None:
    assert render([]) == ""


@given(st.text(max_size=20))
def test_odd_host_names_survive_the_page(hostname: str) -> None:
    (family, *_) = text_string_to_metric_families(render(rows(1, hostname.replace("\r", ""))))
    assert family.samples[0].labels["Hostname"] == hostname.replace("\r", "")


def test_a_load_is_read() -> None:
    assert parse_load(json.dumps(LOAD).encode()) == GpuLoad(0.5, 0.25, 0.75, 0.1, True)
    assert not parse_load(json.dumps({**LOAD, "loading": True}).encode()).present
    assert parse_load(json.dumps({**LOAD, "busy": 7}).encode()).busy == 1.0


@pytest.mark.parametrize(
    "raw",
    [b"", b"<html>", b"[]", b"{}", b"[" * 100_000, json.dumps({**LOAD, "busy": "x"}).encode(), b"\xff\xfe"],
)
def test_what_is_no_load_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError):
        parse_load(raw)


@given(st.binary(max_size=100))
def test_any_bytes_are_a_load_or_a_value_error(raw: bytes) -> None:
    try:
        parse_load(raw)
    except ValueError:
        return


def test_placements() -> None:
    assert parse_placement("GPU-1=http://127.0.0.1:8001/") == Placement("GPU-1", "http://127.0.0.1:8001")
    for text in ("", "GPU-1", "=http://h:1", "GPU-1=h:1", "GPU-1=ftp://h", "GPU-1=http://[", "G=http://h:x"):
        with pytest.raises(ValueError, match="UUID=http"):
            parse_placement(text)


def test_settings_name_all_that_is_wrong() -> None:
    twice = (Placement("GPU-1", "http://a"), Placement("GPU-1", "http://b"))
    with pytest.raises(ValueError, match=r"GPU-1 is given twice.*collect_s"):
        ExporterSettings(twice, collect_s=0)
    with pytest.raises(ValueError, match="no GPU"):
        ExporterSettings(())


def test_faults_are_read() -> None:
    assert read_fault(b'{"fault": "stale"}') is ExporterFault.STALE
    for raw in (b"", b"{}", b"[]", b'{"fault": "x"}', b'{"fault": [1]}', b'{"fault": "hang", "more": 1}'):
        with pytest.raises(ValueError):
            read_fault(raw)


def test_the_fields_of_a_gpus_health_are_given_where_they_are_asked_for() -> None:
    names = (
        "DCGM_FI_DEV_GPU_TEMP_LIMIT",
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
        "DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
    )
    usual = {f.name for f in text_string_to_metric_families(render(rows(1)))}
    assert not usual.intersection(names)
    found = {f.name: f for f in text_string_to_metric_families(render(rows(2), health=True))}
    (row, _) = rows(2)
    (margin, _) = found["DCGM_FI_DEV_GPU_TEMP_LIMIT"].samples
    assert margin.value == round(row.figures.thermal_margin_c)
    assert set(names) <= found.keys()

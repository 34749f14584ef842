"""What a check makes of what it saw: level, words and remedy, source by source."""

from __future__ import annotations

import stat
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from headrace_agent.collectors.network.rights import IcmpRight
from headrace_agent.collectors.readings import (
    EngineFacts,
    EngineReading,
    EngineState,
    Gpu,
    HardwareReading,
    HardwareSource,
    Model,
    PathMethod,
    PathReading,
    SourceReading,
    Status,
)
from headrace_agent.commands.check.controllers import GREETING, judge_expiry, judge_greeting
from headrace_agent.commands.check.engines import judge_engine
from headrace_agent.commands.check.findings import Finding, Level, arrange, error, gravest, merge, ok, warn
from headrace_agent.commands.check.hardware import judge_hardware
from headrace_agent.commands.check.network import judge_paths, judge_right
from headrace_agent.commands.check.observe import Observation, SeenCell, quiet
from headrace_agent.commands.check.own import judge_config
from headrace_agent.commands.check.report import as_json, tabulate
from headrace_agent.commands.placeholders import CONTROLLER, SITE
from headrace_agent.settings import AgentSettings, CellSettings, HardwareSettings, NetworkSettings
from headrace_shared.signals import NAMES

CELL = CellSettings(id="c1", url="http://127.0.0.1:8000", gpus=(0,))
FACTS = EngineFacts("vllm", "0.32.0", (Model("m", 4096),))
GOOD_PAGE = SourceReading("engine", Status.OK, 9.0)
DCGM = HardwareSettings(dcgm_url="http://127.0.0.1:9400/metrics")
NO_DCGM = HardwareSettings()


def seen(
    state: EngineState = EngineState.SERVING,
    *,
    page: SourceReading = GOOD_PAGE,
    facts: EngineFacts = FACTS,
    signals: dict[str, float] | None = None,
    was_seen: bool = True,
    cause: str = "",
    process_watch: str = "",
    **troubles: str,
) -> SeenCell:
    engine = EngineReading(state, signals or {}, facts=facts, source=page)
    return SeenCell(CELL, engine, HardwareReading(), was_seen, cause, troubles, process_watch)


def levels(findings: Iterable[Finding]) -> set[Level]:
    return {each.level for each in findings}


def only(findings: Iterable[Finding], level: Level) -> Finding:
    found = [each for each in findings if each.level is level]
    assert len(found) == 1, found
    return found[0]


def test_a_good_engine_is_good() -> None:
    findings = list(judge_engine(seen(process_watch="watching 3 processes"), warm_up=False))
    assert levels(findings) == {Level.OK}
    assert any("vllm 0.32.0, serves m (4096 tokens)" in each.what for each in findings)


def test_a_password_in_the_engines_address_is_not_shown() -> None:
    login = replace(seen(), cell=CELL.model_copy(update={"url": "http://me:secret@10.0.1.7:8000"}))
    report = as_json(Observation(10.0, (login,)), list(judge_engine(login, warm_up=False)))
    assert report["cells"][0]["url"] == "http://10.0.1.7:8000"
    assert "secret" not in str(report)


def test_without_a_warm_up_it_is_not_claimed_that_a_completion_was_answered() -> None:
    without, with_ = (next(iter(judge_engine(seen(), warm_up=each))).what for each in (False, True))
    assert "no completion was asked" in without
    assert "a completion was answered" in with_


@pytest.mark.parametrize(
    ("cell", "level", "word", "remedy"),
    [
        (
            seen(EngineState.DOWN, cause="engine not listening: connection to 127.0.0.1:8000 refused"),
            Level.ERROR,
            "refused",
            "start the engine",
        ),
        (
            seen(EngineState.LOADING, cause="GET /health answered 503"),
            Level.WARN,
            "is not ready",
            "still loading",
        ),
        (
            seen(
                EngineState.LOADING, facts=EngineFacts(), cause="the connection was closed without an answer"
            ),
            Level.WARN,
            "is not ready",
            "write https://",
        ),
        (
            seen(EngineState.LOADING, cause="accepts connections and answers nothing: GET /health …"),
            Level.ERROR,
            "answers nothing",
            "the engine is stuck",
        ),
        (
            seen(EngineState.HUNG, cause="GET /health was not answered within 2 s"),
            Level.ERROR,
            "does not serve",
            "stuck or very slow",
        ),
        (seen(EngineState.SLEEPING, cause="put to sleep by its operator"), Level.WARN, "sleeps", "wake it"),
        (
            seen(EngineState.LOADING, was_seen=False, engine="GET /metrics answered 404"),
            Level.WARN,
            "its state is not known yet",
            "look longer",
        ),
        (
            seen(EngineState.LOADING, was_seen=False, engine="GET /metrics: certificate verify failed: …"),
            Level.ERROR,
            "gives no sign",
            "its certificate is not trusted",
        ),
    ],
)
def test_an_engine_that_does_not_serve(cell: SeenCell, level: Level, word: str, remedy: str) -> None:
    state = next(iter(judge_engine(cell, warm_up=False)))
    assert state.level is level
    assert word in state.what
    assert remedy in state.remedy


@pytest.mark.parametrize(
    ("cell", "level", "word", "remedy"),
    [
        (seen(models="GET /v1/models answered 401"), Level.ERROR, "models are not known", "api_key_file"),
        (seen(models="GET /v1/models answered 404"), Level.WARN, "models are not known", "no such page"),
        (
            seen(models="api_key_file /k cannot be read: Permission denied"),
            Level.ERROR,
            "/k",
            "make the file readable",
        ),
        (seen(facts=EngineFacts("vllm")), Level.WARN, "lists no model", "no pool can hold"),
        (
            seen(page=SourceReading("engine", Status.FAILED, None, "GET /metrics answered 404")),
            Level.ERROR,
            "metrics page: GET /metrics answered 404",
            "switch the engine's metrics on",
        ),
        (
            seen(page=SourceReading("engine", Status.OK, 9.0, "families missing: http_requests_total")),
            Level.WARN,
            "http_requests_total",
            "an option hides them",
        ),
        (
            seen(process_watch="cannot see the engine's processes: run as root; deaths are then seen later"),
            Level.WARN,
            "cannot see the engine's processes",
            "deaths are then seen later",
        ),
        (
            seen(process_watch="watching 64 processes; of more there is no handle"),
            Level.WARN,
            "watching 64 processes",
            "of more",
        ),
    ],
)
def test_an_engine_that_serves_and_lacks_something(
    cell: SeenCell, level: Level, word: str, remedy: str
) -> None:
    found = only(list(judge_engine(cell, warm_up=False))[1:], level)
    assert word in found.what
    assert remedy in found.remedy


def test_a_warm_up_that_failed_is_an_error_only_where_one_was_asked() -> None:
    cell = seen(EngineState.LOADING, cause="healthy; no completion answered yet", warm_up="answered 401")
    assert Level.ERROR not in levels(judge_engine(cell, warm_up=False))
    assert "api_key_file" in only(judge_engine(cell, warm_up=True), Level.ERROR).remedy


def hardware(source: HardwareSource, *sources: SourceReading) -> HardwareReading:
    signals = {} if source is HardwareSource.NONE else {"gpu_util": 0.5}
    return HardwareReading(source, signals, gpus=(Gpu("GPU-1", "H100"),), sources=sources)


def test_a_cell_without_gpus_is_told_to_name_them() -> None:
    found = only(judge_hardware("c1", (), HardwareReading(), DCGM), Level.WARN)
    assert "names none" in found.what
    assert "discover" in found.remedy


def test_a_good_exporter_is_good_and_says_what_it_does_not_give() -> None:
    reading = hardware(HardwareSource.DCGM, SourceReading("dcgm", Status.OK, 9.0))
    found = only(judge_hardware("c1", (0,), reading, DCGM), Level.OK)
    assert "without vram_util, compute_active, memory_bw_util: H100" in found.what


@pytest.mark.parametrize(
    ("detail", "status", "remedy"),
    [
        ("the figures stand still: GPU energy does not move", Status.STALE, "-c 500"),
        ("the exporter collects every 30 s; set its interval below 1 s", Status.OK, "-c 500"),
        ("http://h:9400/metrics answered HTTP 500", Status.FAILED, "look at its log"),
        (
            "http://h:9400/metrics: connection refused; is the exporter running?",
            Status.FAILED,
            "start the exporter",
        ),
        (
            "http://h:9400/metrics has no DCGM_FI_ metrics; is it a DCGM exporter's page?",
            Status.NO_DATA,
            "dcgm_url",
        ),
        ("GPU 7 has no figures", Status.NO_DATA, "mend the cell's gpus"),
        ("GPU 0 is split by MIG; name the instance, as in GPU-1:3", Status.NO_DATA, "UUID:INSTANCE"),
    ],
)
def test_what_is_wrong_with_an_exporter_has_a_remedy(detail: str, status: Status, remedy: str) -> None:
    source = SourceReading("dcgm", status, 9.0, detail)
    in_force = HardwareSource.DCGM if status is Status.OK else HardwareSource.NONE
    findings = list(judge_hardware("c1", (0,), hardware(in_force, source), DCGM))
    assert any(remedy in each.remedy for each in findings if each.about == "dcgm"), findings


def test_without_any_source_it_is_an_error_and_with_a_stand_in_a_warning() -> None:
    dead = SourceReading("dcgm", Status.FAILED, None, "connection refused")
    absent = SourceReading("nvml", Status.NO_DATA, None, "no NVML library on this host")
    none = list(judge_hardware("c1", (0,), hardware(HardwareSource.NONE, dead, absent), DCGM))
    assert none[0].level is Level.ERROR
    assert {each.about for each in none} == {"GPUs of c1", "dcgm", "nvml"}
    nvml = SourceReading("nvml", Status.OK, 9.0)
    stands_in = list(judge_hardware("c1", (0,), hardware(HardwareSource.NVML, dead, nvml), DCGM))
    assert stands_in[0].level is Level.WARN
    alone = list(judge_hardware("c1", (0,), hardware(HardwareSource.NVML, nvml), NO_DCGM))
    assert levels(alone) == {Level.OK}, "where no exporter is set, NVML stands in for none"


def test_a_stand_in_that_nobody_needs_is_not_complained_of() -> None:
    good = SourceReading("dcgm", Status.OK, 9.0)
    absent = SourceReading("nvml", Status.NO_DATA, None, "no NVML library on this host")
    assert levels(judge_hardware("c1", (0,), hardware(HardwareSource.DCGM, good, absent), DCGM)) == {Level.OK}


NO_RIGHT = IcmpRight("", "the agent has no CAP_NET_RAW", "give the agent CAP_NET_RAW")


@pytest.mark.parametrize(
    ("method", "right", "level", "word"),
    [
        ("auto", IcmpRight("raw"), Level.OK, "raw sockets"),
        ("auto", NO_RIGHT, Level.WARN, "TCP connects stand in"),
        ("icmp", NO_RIGHT, Level.ERROR, "ICMP is not allowed"),
        ("tcp", NO_RIGHT, Level.OK, "TCP connects"),
        ("off", IcmpRight("raw"), Level.WARN, "not measured"),
    ],
)
def test_the_right_to_ping(method: str, right: IcmpRight, level: Level, word: str) -> None:
    found = judge_right(NetworkSettings(method=method), right)  # type: ignore[arg-type]
    assert (found.level, word in found.what) == (level, True)
    assert level is Level.OK or found.remedy


def test_paths() -> None:
    good = PathReading("g1", 10.0, 1.0, 0.0, measured_at=9.0)
    lossy = PathReading("g2", 10.0, 1.0, 0.25, PathMethod.TCP_CONNECT, 9.0)
    dead = PathReading("g3", loss=1.0, detail="no reply within 1 s")
    findings = list(judge_paths([good, lossy, dead]))
    assert [each.level for each in findings] == [Level.OK, Level.WARN, Level.ERROR]
    assert "25 % lost" in findings[1].what
    assert "TCP" in findings[1].what
    assert "no reply within 1 s" in findings[2].what
    assert "--gateway" in next(iter(judge_paths([]))).what


@pytest.mark.parametrize(
    ("answer", "tls", "level", "word"),
    [
        (bytes((0, 0, 18, 4, 0, 0, 0, 0, 0)), False, Level.OK, "without TLS"),
        (bytes((0, 0, 18, 4, 0, 0, 0, 0, 0)), True, Level.OK, "over TLS"),
        (b"\x15\x03\x01\x00\x02\x02\x46", False, Level.ERROR, "speaks TLS"),
        (b"HTTP/1.1 400 B", False, Level.ERROR, "an HTTP server"),
        (b"", False, Level.ERROR, "ends the connection"),
        (b"", True, Level.ERROR, "trust this agent's certificate"),
        (b"SSH-2.0-O", False, Level.ERROR, "no gRPC server"),
        (bytes((0, 0, 18, 4)), False, Level.ERROR, "no gRPC server"),
    ],
)
def test_who_answers_a_greeting(answer: bytes, tls: bool, level: Level, word: str) -> None:
    found = judge_greeting("controller c", answer, tls)
    assert (found.level, word in found.what) == (level, True)
    assert level is Level.OK or found.remedy


def test_the_greeting_is_http_2s() -> None:
    assert GREETING.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert GREETING[-9:] == bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)), "an empty SETTINGS frame on stream 0"


@pytest.mark.parametrize(("days", "said"), [(400, False), (15, False), (13, True), (-1, True)])
def test_a_certificate_that_ends_soon(days: int, said: bool) -> None:
    assert bool(judge_expiry("controller c", 1e9 + days * 86400, 1e9)) is said


def settings(**changes: object) -> AgentSettings:
    plain = {
        "node": "n",
        "site": "s",
        "controllers": [{"address": "127.0.0.1:1"}],
        "cells": [{"id": "c1", "url": "http://127.0.0.1:8000"}],
    }
    return AgentSettings.model_validate(plain | changes)


def test_a_proposal_that_nobody_filled_in_is_an_error_where_it_is_a_config() -> None:
    left = settings(site=SITE, controllers=[{"address": str(CONTROLLER)}])
    words = " ".join(each.what for each in judge_config(left) if each.level is Level.ERROR)
    assert "site" in words
    assert "controllers[0].address" in words
    assert Level.ERROR not in levels(judge_config(left, proposed=True))
    assert Level.ERROR not in levels(judge_config(settings()))


def test_the_remedy_for_an_open_key_takes_it_from_the_others_alone(tmp_path: Path) -> None:
    """The unit's user reads it as one of the group."""
    key = tmp_path / "key"
    key.write_text("secret")
    key.chmod(0o644)
    cell = {"id": "c1", "url": "http://127.0.0.1:8000", "api_key_file": key}
    found = only(judge_config(settings(cells=[cell])), Level.WARN)
    subprocess.run(found.remedy.split(), check=True)
    assert stat.S_IMODE(key.stat().st_mode) == 0o640
    assert list(judge_config(settings(cells=[cell]))) == []


def test_a_look_burdens_nobody() -> None:
    quick = settings(
        engine={"scrape_interval_s": 0.1, "probe_interval_s": 0.02}, hardware={"dcgm_interval_s": 0.1}
    )
    asked = quiet(quick, warm_up=False)
    assert asked.engine.scrape_interval_s == 1.0
    assert asked.engine.probe_interval_s == 0.5
    assert asked.hardware.dcgm_interval_s == 0.5
    assert asked.engine.warm_up is False
    slow = settings(engine={"scrape_interval_s": 10})
    assert quiet(slow, warm_up=True).engine.scrape_interval_s == 10
    assert quiet(slow, warm_up=True).engine.warm_up is True


def test_findings_are_arranged_by_gravity_and_what_is_the_same_is_said_once() -> None:
    found = arrange([ok("a", "good"), warn("b", "w", "mend"), error("c", "e"), warn("d", "w", "mend")])
    assert [each.level for each in found] == [Level.ERROR, Level.WARN, Level.WARN, Level.OK]
    assert [each.about for each in merge(found)] == ["c", "b, d", "a"]
    assert gravest(found) is Level.ERROR
    assert gravest(found[1:]) is Level.WARN
    assert gravest([]) is Level.OK


def test_the_table_holds_each_signal_with_its_source_and_age() -> None:
    cell = SeenCell(
        CELL,
        EngineReading(EngineState.SERVING, {"queue_depth": 3.0}, facts=FACTS, source=GOOD_PAGE),
        hardware(HardwareSource.DCGM, SourceReading("dcgm", Status.OK, 9.5)),
    )
    paths = (
        PathReading("g1", 10.0, 1.0, 0.0, measured_at=8.0),
        PathReading("g2", 30.0, 0.5, 0.0, measured_at=7.0),
    )
    observation = Observation(10.0, (cell,), paths)
    table = tabulate(cell, observation)
    assert table.signals == {"queue_depth": 3.0, "gpu_util": 0.5, "rtt_ms": 30.0, "jitter_ms": 1.0}
    assert table.source["gpu_util"] == "dcgm"
    assert table.source["rtt_ms"] == "icmp to g2", "of several paths the worst counts"
    assert table.age_s == {"queue_depth": 1.0, "gpu_util": 0.5, "rtt_ms": 3.0, "jitter_ms": 2.0}
    data = as_json(observation, [warn("a", "b")])
    assert data["status"] == "warn"
    assert list(data["cells"][0]["signals"]) == list(NAMES)
    assert data["cells"][0]["signals"]["ttft_p95_s"] is None

"""The systemd units that the repository ships: what they promise, and that they call what exists."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from headrace_agent import cli as agent_cli
from headrace_controller import cli as controller_cli

ROOT = Path(__file__).resolve().parents[3]
SYSTEMD = ROOT / "deploy" / "systemd"
APPS: dict[str, typer.Typer] = {"headrace-agent": agent_cli.app, "headrace-controller": controller_cli.app}


def read_unit(path: Path) -> dict[str, dict[str, list[str]]]:
    """Section -> key -> values, in their order; a key may stand several times."""
    unit: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    section = ""
    for raw in path.read_text(encoding="utf-8").splitlines():
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            section = line.strip("[]")
            continue
        key, equals, value = line.partition("=")
        assert equals, f"{path.name}: {line!r} is no assignment"
        unit[section][key].append(value)
    return unit


def service(program: str) -> dict[str, list[str]]:
    return read_unit(SYSTEMD / f"{program}.service")["Service"]


@pytest.mark.parametrize("program", APPS)
def test_a_unit_starts_a_command_that_exists_with_options_that_it_has(program: str) -> None:
    (started,) = service(program)["ExecStart"]
    path, command, *options = started.split()
    assert path == f"/opt/headrace/bin/{program}"
    known = get_command(APPS[program])
    run = known.get_command(None, command)  # type: ignore[attr-defined, arg-type]
    assert run is not None
    names = {name for parameter in run.params for name in parameter.opts}
    assert {option for option in options if option.startswith("--")} <= names
    assert options == ["--config", f"/etc/headrace/{program.removeprefix('headrace-')}.yaml"]


@pytest.mark.parametrize("program", APPS)
def test_a_unit_reloads(program: str) -> None:
    assert service(program)["ExecReload"] == ["/bin/kill -HUP $MAINPID"]


@pytest.mark.parametrize("program", APPS)
def test_a_unit_comes_back_unless_its_settings_cannot_be_used(program: str) -> None:
    own = service(program)
    assert own["Restart"] == ["always"]
    assert own["RestartPreventExitStatus"] == ["2"]
    assert read_unit(SYSTEMD / f"{program}.service")["Unit"]["StartLimitIntervalSec"] == ["0"]
    assert own["User"] == ["headrace"]
    assert own["NoNewPrivileges"] == ["yes"]
    assert own["ProtectSystem"] == ["strict"]


def test_the_agent_speaks_to_systemd_as_its_unit_expects() -> None:
    own = service("headrace-agent")
    assert own["Type"] == ["notify"]
    assert int(own["WatchdogSec"][0]) >= 10, "a busy machine is late now and then"
    # It is done well before that: see EXIT_WITHIN_S.
    assert int(own["TimeoutStopSec"][0]) > agent_cli.EXIT_WITHIN_S + 5


def test_the_agent_has_the_least_rights_and_sees_what_it_needs() -> None:
    own = service("headrace-agent")
    assert own["CapabilityBoundingSet"] == own["AmbientCapabilities"] == ["CAP_NET_RAW"]
    assert "PrivateDevices" not in own, "it would hide the GPUs"
    assert own["ProtectProc"] == ["default"], "the process watch reads /proc of other users"
    assert any("nvidia" in each for each in own["DeviceAllow"])
    assert own["DevicePolicy"] == ["closed"]
    assert {"MemoryMax", "CPUQuota", "TasksMax"} <= own.keys()


def test_the_drop_in_adds_one_right_and_keeps_the_other() -> None:
    own = read_unit(SYSTEMD / "drop-ins" / "agent-process-watch.conf")["Service"]
    for key in ("CapabilityBoundingSet", "AmbientCapabilities"):
        assert own[key] == ["CAP_NET_RAW CAP_SYS_PTRACE"]
    assert "The price" in (SYSTEMD / "drop-ins" / "agent-process-watch.conf").read_text(encoding="utf-8")


def test_the_controller_keeps_its_fleet_where_it_may_write() -> None:
    own = service("headrace-controller")
    assert own["StateDirectory"] == ["headrace"]
    assert own["CapabilityBoundingSet"] == [""]

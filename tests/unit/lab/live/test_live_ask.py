"""What a live run is asked for, and what each arm tells the controller."""

from __future__ import annotations

import pytest

from headrace_controller.settings import ControllerSettings
from headrace_lab.demo.observe import Host
from headrace_lab.live.arms import GATEWAY_ADDRESS, controller_settings
from headrace_lab.live.ask import Ask, AskError, Options, look_up
from headrace_lab.live.faults import busiest_first, targets
from headrace_lab.live.layout import lay_out
from headrace_lab.live.programs import cell
from headrace_lab.live.report import notes
from headrace_lab.live.run import limits
from headrace_lab.live.wan import names, stale
from headrace_lab.scenarios import packaged


def ask(name: str = "failover", **changes: object) -> Ask:
    return look_up(Options(name, **changes), packaged())  # type: ignore[arg-type]


def test_what_is_not_said_comes_from_the_scenario_file() -> None:
    found = ask(kind="hang")
    assert found.kind == "hang"
    assert found.fault is not None
    assert found.fault.effect == "hang"
    assert (found.rps, found.seconds, found.load_name) == (10.0, 430.0, "baseline_mixed")
    assert list(found.arms) == ["rr", "rr_retries", "lr", "weights"]
    changed = ask(arms=("v2",), load="azure_conv", rps=3.0, seconds=9.0)
    assert (changed.rps, changed.seconds, changed.load_name, list(changed.arms)) == (
        *(3.0, 9.0, "azure_conv", ["v2"]),
    )


@pytest.mark.parametrize("kind", ["node", "site"])
def test_a_kind_with_few_targets_strikes_the_same_one_after_a_calm_only(kind: str) -> None:
    """Otherwise what is measured is the holding down of a flapping cell."""
    found = ask(kind=kind)
    assert found.faults is not None
    assert found.fault is not None
    memory_s = ControllerSettings.model_fields["lifecycle"].default.flap_memory_s
    assert 3 * found.faults.every_s - found.fault.repair_s > memory_s
    assert len(found.faults.times(found.seconds)) == found.faults.count >= 20
    assert ask(kind=kind, seconds=60.0).seconds == 60.0


def test_a_scenario_s_own_arms_are_those_of_the_mode() -> None:
    assert list(ask("jitter").arms) == ["rr", "v2", "v3", "weights"]
    simulated = look_up(Options("jitter"), packaged(), "sim")
    assert list(simulated.arms) == ["rr", "v2", "v3", "weights", "oracle"]


def test_a_variant_replaces_fleet_or_load() -> None:
    long = ask("capability", variant="all_long")
    assert (long.load_name, long.rps) == ("all_long", 2.5)
    assert ask("capability", variant="all_long", rps=3.0).rps == 3.0
    assert ask("capability", variant="refusing").rps == ask("capability").rps
    refusing = ask("capability", variant="refusing")
    assert any(plan.refuse_share > 0 for plan in refusing.fleet.plans)


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("failure", {}, "failover"),
        ("failover", {"kind": "flood"}, "kill, hang, node, site, loading"),
        ("burst", {"kind": "kill"}, "no kinds"),
        ("jitter", {"networks": ("moon",)}, "jitter_20ms"),
        ("failover", {"arms": ("oracle",)}, "oracle"),
        ("failover", {"arms": ("random",)}, "rr"),
        ("failover", {"load": "chat"}, "baseline_mixed"),
        ("capability", {"variant": "x"}, "all_long"),
        ("failover", {"networks": ("spread", "step")}, "one network"),
    ],
)
def test_a_wrong_option_is_answered_with_what_there_is(
    name: str, changes: dict[str, object], said: str
) -> None:
    with pytest.raises(AskError, match=said):
        ask(name, **changes)


@pytest.mark.parametrize(
    "name", [n for n, a in packaged().arms.items() if "live" in a.modes and "-" not in n]
)
def test_each_arm_has_what_the_table_of_arms_says(name: str) -> None:
    arm = packaged().arm(name)
    layout = lay_out(packaged().fleet("homogeneous"))
    data = controller_settings(layout, arm, packaged().gateway)
    settings = ControllerSettings.model_validate(data)
    baseline = {"rr": "rr", "rr_retries": "rr", "lr": "lr", "lr_retries": "lr"}.get(name)
    assert settings.baseline == baseline
    picks = name.startswith("headrace")
    ours = name == "weights" or picks
    assert settings.capability.classes == settings.pressure.early_warning.enabled == ours
    assert settings.picker.enabled == picks
    assert settings.envoy.baseline_retries == name.endswith("_retries")
    assert settings.envoy.retries == (0 if name in ("rr", "lr") else 2)
    assert settings.envoy.health_checks
    assert settings.envoy.health_check_interval_s == 1.0
    if name in ("v2", "v3"):
        assert (settings.pressure.scorer, settings.projection.name) == (name, "headroom")


def test_before_a_wan_agents_reach_the_controller_by_their_own_link() -> None:
    near, places = names(["east", "central", "west"], 7)
    assert len({near, *(place.namespace for place in places.values())}) == 4
    layout = lay_out(packaged().fleet("edge"), places=places)
    settings = controller_settings(layout, packaged().arm("v3"), packaged().gateway)
    checked = ControllerSettings.model_validate(settings)
    assert checked.gateways[0].host == GATEWAY_ADDRESS
    assert str(checked.listen.telemetry).startswith("0.0.0.0:")
    west = layout.fleet.cell("west-1")
    assert west.address == f"{places['west'].host}:{west.port}"
    spec = cell(layout, west, 0.5, 1)
    assert spec.command[:4] == ("ip", "netns", "exec", places["west"].namespace)
    assert spec.ready_url.startswith(f"http://{places['west'].host}:")


def test_only_namespaces_of_runs_that_are_gone_are_swept() -> None:
    """Those of others, and of a run beside this one, must stay."""
    near, places = names(["east"], 7)
    mine = [near, places["east"].namespace]
    found = [*mine, "hrlab8n", "hrlab8s12", "theirs", "hrlab9", "xhrlab8n", "hrlab8nx"]
    assert stale(found, lambda pid: pid == 7) == ["hrlab8n", "hrlab8s12"]
    assert stale(found, lambda pid: True) == []


def test_only_where_rerouting_is_measured_do_clients_try_again() -> None:
    assert limits(ask()).attempts == 40
    assert limits(ask()).first_token_s == 10.0
    assert limits(ask("burst")).attempts == 1


def test_a_run_too_short_for_its_claim_says_so() -> None:
    assert any("20" in note for note in notes(ask(kind="kill", seconds=60.0)))
    assert notes(ask(kind="kill")) == []
    assert any("accepts" in note for note in notes(ask(kind="node")))


def test_targets_are_engines_nodes_or_sites_in_the_seeds_order() -> None:
    layout = lay_out(packaged().fleet("homogeneous"))
    engines = targets(layout, packaged().fault("kill"), 1)
    assert sorted(t.cells[0] for t in engines) == sorted(cell.id for cell in layout.fleet.cells)
    assert engines == targets(layout, packaged().fault("kill"), 1)
    assert engines != targets(layout, packaged().fault("kill"), 2)
    nodes = targets(layout, packaged().fault("node"), 1)
    assert {len(t.cells) for t in nodes} == {3}
    assert all({f"agent {t.cells[0][:-2]}-node", f"cell {t.cells[0]}"} <= set(t.programs) for t in nodes)
    nine = lay_out(packaged().fleet("homogeneous"), node_per_cell=True)
    assert len(targets(nine, packaged().fault("node"), 1)) == 9
    assert len(targets(nine, packaged().fault("site"), 1)) == 3


def test_a_busy_target_comes_before_an_idle_one() -> None:
    layout = lay_out(packaged().fleet("homogeneous"))
    order = targets(layout, packaged().fault("kill"), 1)
    hosts = {t.cells[0]: Host(0, True, 1) for t in order}
    assert busiest_first(order, 3, hosts) == order[3]
    hosts[order[1].cells[0]] = Host(2, True, 1)
    assert busiest_first(order, 3, hosts) == order[1]
    assert busiest_first(order, 10, None) == order[1]

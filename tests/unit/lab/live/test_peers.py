"""Peers: how their environments are recognised and how they are started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace_lab.live.layout import lay_out
from headrace_lab.live.peers import PEERS, STAMP, PeerMissingError, ensure, is_built, router
from headrace_lab.scenarios import packaged
from tests.support.clock import FakeClock


def built(place: Path, name: str, **changes: str) -> Path:
    peer = PEERS[name]
    (place / peer.program[0]).parent.mkdir(parents=True)
    (place / peer.program[0]).touch()
    (place / STAMP).write_text(json.dumps({**peer.recipe, **changes}), encoding="utf-8")
    return place


def test_each_peer_of_the_scenario_file_is_known() -> None:
    arms = packaged().arms
    assert {arm.peer for arm in arms.values() if arm.peer} == set(PEERS)
    assert {name for name, arm in arms.items() if arm.peer and not arm.policy} == set(PEERS)


@pytest.mark.parametrize("name", sorted(PEERS))
def test_only_a_finished_environment_of_the_same_version_is_used(name: str, tmp_path: Path) -> None:
    assert not is_built(tmp_path / "none", PEERS[name])
    assert is_built(built(tmp_path / "good", name), PEERS[name])
    assert not is_built(built(tmp_path / "old", name, version="0.0.1"), PEERS[name])
    half = built(tmp_path / "half", name)
    (half / STAMP).unlink()
    assert not is_built(half, PEERS[name])


@pytest.mark.parametrize("name", sorted(PEERS))
def test_a_router_takes_the_gateways_place_before_all_cells(name: str, tmp_path: Path) -> None:
    fleet = lay_out(packaged().fleet("homogeneous")).fleet
    spec = router(name, tmp_path, fleet)
    assert all(cell.url in spec.command for cell in fleet.cells)
    assert str(fleet.ports.gateway) in spec.command
    assert fleet.ports.gateway in spec.ports
    assert not spec.ours
    assert "--policy" not in spec.command, "as it comes"
    chosen = router(name, tmp_path, fleet, "power_of_two").command
    assert chosen[chosen.index("--policy") + 1] == "power_of_two"


async def test_a_directory_of_others_is_never_touched(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("precious", encoding="utf-8")
    with pytest.raises(PeerMissingError, match="not empty"):
        await ensure("vllm-router", tmp_path, lambda _: None, FakeClock())
    assert (tmp_path / "theirs").read_text(encoding="utf-8") == "precious"

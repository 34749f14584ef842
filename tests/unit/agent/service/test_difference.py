"""What a new settings file changes: every field has a known consequence."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_agent.service.difference import ACCESS, FIXED, TOLD, Fate, FixedFieldError, compare
from headrace_agent.settings import AgentSettings, CellSettings

BASE: dict[str, Any] = {
    "node": "n",
    "site": "s",
    "controllers": [{"address": "10.0.0.1:18000"}, {"address": "10.0.0.2:18000"}],
    "cells": [
        {"id": "c1", "url": "http://10.1.0.1:8001", "gpus": [0]},
        {"id": "c2", "url": "http://10.1.0.1:8002"},
    ],
}
QUIET = {"added": (), "removed": (), "controllers_added": (), "controllers_removed": ()}


def settings(**changes: Any) -> AgentSettings:
    return AgentSettings.model_validate(BASE | changes)


def cell(**changes: Any) -> AgentSettings:
    """The base with another cell c1."""
    return settings(cells=[BASE["cells"][0] | changes, BASE["cells"][1]])


def test_the_same_file_changes_nothing() -> None:
    same = compare(settings(), settings())
    assert {name: getattr(same, name) for name in QUIET} == QUIET
    assert set(same.fates.values()) == {Fate.KEPT}
    assert (same.hardware, same.network, same.log, same.controllers_changed) == (False, False, False, ())


@pytest.mark.parametrize(
    ("changes", "fate"),
    [
        ({"labels": {"rack": "7"}}, Fate.KEPT),
        ({"advertise": "10.9.9.9:8001"}, Fate.KEPT),
        ({"gpus": [1]}, Fate.KEPT),
        ({"nodes": ["other"]}, Fate.KEPT),
        ({"api_key_file": "/etc/key"}, Fate.RETUNED),
        ({"url": "http://10.1.0.1:8009"}, Fate.REPLACED),
        ({"kind": "vllm"}, Fate.REPLACED),
        ({"url": "http://10.1.0.1:8009", "labels": {"rack": "7"}}, Fate.REPLACED),
    ],
)
def test_what_becomes_of_a_cell(changes: dict[str, Any], fate: Fate) -> None:
    change = compare(settings(), cell(**changes))
    assert change.fates == {"c1": fate, "c2": Fate.KEPT}
    assert {name: getattr(change, name) for name in QUIET} == QUIET


def test_the_engine_section_retunes_every_cell_and_replaces_none() -> None:
    change = compare(settings(), settings(engine={"scrape_interval_s": 1.0}))
    assert change.having(Fate.RETUNED) == ("c1", "c2")


def test_every_field_of_a_cell_that_is_not_named_here_means_another_engine() -> None:
    """A field that is forgotten here costs a collector, never a stale one."""
    others = set(CellSettings.model_fields) - TOLD - ACCESS
    assert {"id", "url", "kind"} <= others
    assert set(CellSettings.model_fields) >= TOLD | {"api_key_file"}


def test_cells_and_controllers_come_and_go() -> None:
    new = settings(
        controllers=[
            {"address": "10.0.0.2:18000", "tls": {"ca": "/ca.pem"}},
            {"address": "10.0.0.3:18000"},
        ],
        cells=[BASE["cells"][1], {"id": "c3", "url": "http://10.1.0.1:8003"}],
    )
    change = compare(settings(), new)
    assert (change.added, change.removed, change.fates) == (("c3",), ("c1",), {"c2": Fate.KEPT})
    assert change.controllers_added == ("10.0.0.3:18000",)
    assert change.controllers_removed == ("10.0.0.1:18000",)
    assert change.controllers_changed == ("10.0.0.2:18000",)


def test_paths_are_measured_anew_where_a_host_gets_its_first_cell() -> None:
    members = {"members": [{"cell": "far", "gpus": [0]}]}
    change = compare(settings(cells=[], **members), settings(**members))
    assert change.network
    assert not change.hardware


@pytest.mark.parametrize(
    ("section", "value"),
    [("hardware", {"nvml": "off"}), ("network", {"method": "tcp"}), ("log", {"level": "debug"})],
)
def test_a_section_that_differs_is_named(section: str, value: dict[str, str]) -> None:
    change = compare(settings(), settings(**{section: value}))
    named = [name for name in ("hardware", "network", "log") if getattr(change, name)]
    assert named == [section]
    assert set(change.fates.values()) == {Fate.KEPT}


def test_what_needs_a_restart_is_refused_by_name_with_the_remedy() -> None:
    """All at once: an operator must not find one after the other."""
    new = settings(node="other", site="elsewhere", metrics_listen="127.0.0.1:9464", goodbye_grace_s=1)
    with pytest.raises(FixedFieldError) as refused:
        compare(settings(), new)
    said = str(refused.value)
    for words in (
        "node: cannot change from 'n' to 'other'",
        "site: cannot change from 's' to 'elsewhere'",
        "metrics_listen: cannot change from nothing to '127.0.0.1:9464'",
        "restart the agent, or put the old value back",
    ):
        assert words in said
    assert set(FIXED) == {"node", "site", "metrics_listen"}


ids = st.lists(st.sampled_from("abcdef"), unique=True, min_size=1)


@given(before=ids, after=ids)
def test_every_cell_is_added_removed_or_has_a_fate(before: list[str], after: list[str]) -> None:
    def of(names: list[str]) -> AgentSettings:
        return settings(cells=[{"id": each, "url": f"http://10.1.0.1:{8000 + ord(each)}"} for each in names])

    change = compare(of(before), of(after))
    assert set(change.added) == set(after) - set(before)
    assert set(change.removed) == set(before) - set(after)
    assert set(change.fates) == set(before) & set(after)

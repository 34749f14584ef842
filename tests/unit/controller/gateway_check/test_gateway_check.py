"""The whole check: what is looked at, in which order it is told, and pages of every kind."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_controller.gateway_check import NotAnEnvoyError, check
from tests.unit.controller.gateway_check.pages import GOOD, Parts


@pytest.mark.parametrize("name", GOOD)
def test_good_configurations_are_good(name: str) -> None:
    report = check(GOOD[name])
    assert report.findings == ()
    assert report.clusters == {"full": ("pool/m", "pool/n"), "endpoints_only": ("llama",)}[name]


def test_an_envoy_that_asks_for_no_pool_is_told_so_and_a_cluster_may_be_named() -> None:
    page = copy.deepcopy(GOOD["endpoints_only"])
    Parts(page).pool["eds_cluster_config"]["service_name"] = "llama"
    (finding,) = check(page).findings
    assert (finding.level, finding.where) == ("error", "clusters")
    assert "headrace-controller, llama" in finding.says
    missing, wrong = check(page, ["llama", "lama"]).findings
    assert (missing.where, wrong.setting) == ("cluster lama", "eds_cluster_config.service_name")


def test_errors_come_first_and_nothing_is_said_twice() -> None:
    page = copy.deepcopy(GOOD["endpoints_only"])
    parts = Parts(page)
    parts.pool["connect_timeout"] = "5s"
    parts.api["grpc_services"] *= 2
    del parts.action["timeout"]
    found = check(page).findings
    assert [each.level for each in found] == ["error", "warning"]


@pytest.mark.parametrize(
    "page", [None, [], {}, {"configs": []}, {"configs": [{"@type": 3}]}, {"configs": "x"}]
)
def test_pages_of_another_kind_are_refused(page: Any) -> None:
    with pytest.raises(NotAnEnvoyError):
        check(page)


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_whatever_stands_in_a_page_is_survived(data: st.DataObject) -> None:
    """Anything may stand where an object or a number is expected."""
    page = copy.deepcopy(GOOD[data.draw(st.sampled_from(sorted(GOOD)))])
    for _ in range(data.draw(st.integers(1, 4))):
        holder: Any = page["configs"]
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            if isinstance(holder[key], (dict, list)) and data.draw(st.integers(0, 5)):
                holder = holder[key]
                continue
            holder[key] = data.draw(values)
            break
    try:
        check(page)
    except NotAnEnvoyError:
        return

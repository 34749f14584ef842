"""Pages that a real Envoy wrote, and the changes that tests make in them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace_controller.gateway_check import check
from headrace_controller.gateway_check.findings import Finding

DUMPS = Path(__file__).parents[3] / "data" / "envoy_dumps"
GOOD = {name: json.loads((DUMPS / f"{name}.json").read_text()) for name in ("full", "endpoints_only")}
PROTOCOL = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
LB = "type.googleapis.com/envoy.extensions.load_balancing_policies"

Page = Any
Change = Callable[["Parts"], None]


class Parts:
    """The objects of the page for endpoints only, to be changed in place."""

    def __init__(self, page: Page) -> None:
        by_type = {each["@type"].rpartition(".")[2]: each for each in page["configs"]}
        self.bootstrap = by_type["BootstrapConfigDump"]["bootstrap"]
        clusters = [each["cluster"] for each in by_type["ClustersConfigDump"]["static_clusters"]]
        dynamic = by_type["ClustersConfigDump"].get("dynamic_active_clusters", [])
        clusters += [each["cluster"] for each in dynamic]
        self.clusters = {each["name"]: each for each in clusters}
        self.pool = self.clusters["llama"]
        self.controller = self.clusters["headrace-controller"]
        self.listener = by_type["ListenersConfigDump"]["static_listeners"][0]["listener"]
        self.manager = self.listener["filter_chains"][0]["filters"][0]["typed_config"]
        self.host = self.manager["route_config"]["virtual_hosts"][0]
        self.route = self.host["routes"][0]
        self.action = self.route["route"]
        self.api = self.pool["eds_cluster_config"]["eds_config"]["api_config_source"]

    @property
    def common(self) -> Any:
        return self.pool["typed_extension_protocol_options"][PROTOCOL]["common_http_protocol_options"]


def balanced(kind: str, **config: Any) -> Any:
    """A load-balancing policy, as a dump has it."""
    typed = {"@type": f"{LB}.{kind}", **config}
    return {"policies": [{"typed_extension_config": {"name": "x", "typed_config": typed}}]}


def update(tree: str, **values: Any) -> Change:
    def change(parts: Parts) -> None:
        getattr(parts, tree).update(copy.deepcopy(values))

    return change


def drop(tree: str, *keys: str) -> Change:
    def change(parts: Parts) -> None:
        for key in keys:
            del getattr(parts, tree)[key]

    return change


def threshold(**values: Any) -> Change:
    def change(parts: Parts) -> None:
        (only,) = parts.pool["circuit_breakers"]["thresholds"]
        only.update(values)

    return change


def hedged(*matches: Any) -> Change:
    """A second attempt where the first is late, for the requests that match."""

    def change(parts: Parts) -> None:
        parts.action["hedge_policy"] = {"hedge_on_per_try_timeout": True}
        parts.action["retry_policy"]["per_try_timeout"] = "1s"
        parts.route["match"].setdefault("dynamic_metadata", []).extend(matches)

    return change


def common_lb(**values: Any) -> Change:
    return lambda parts: parts.pool["common_lb_config"].update(values)


def retry(**values: Any) -> Change:
    return lambda parts: parts.action["retry_policy"].update(values)


def check_of(**values: Any) -> Change:
    return lambda parts: parts.pool["health_checks"][0].update(values)


QUIET = {
    "enforcing_consecutive_5xx": 0,
    "enforcing_success_rate": 0,
    "enforcing_local_origin_success_rate": 0,
    "split_external_local_origin_errors": True,
}


def outliers(**values: Any) -> Change:
    return update("pool", outlier_detection=QUIET | values)


def findings_after(change: Change, *clusters: str) -> tuple[Finding, ...]:
    """What is found in the page for endpoints only once it is changed; `clusters` as check takes them."""
    page = copy.deepcopy(GOOD["endpoints_only"])
    change(Parts(page))
    return check(page, clusters).findings


def found_alone(level: str, setting: str, change: Change) -> None:
    """The change is found, and nothing else, with what it does and how to mend it."""
    (finding,) = findings_after(change, "llama")
    assert (finding.level, finding.setting) == (level, setting)
    assert finding.says
    assert finding.mend

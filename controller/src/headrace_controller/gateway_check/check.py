"""The whole check: pure, from a parsed page to a report."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from headrace_controller.gateway_check.clusters import check_cluster
from headrace_controller.gateway_check.dump import Dump, read_dump
from headrace_controller.gateway_check.findings import Finding, Tree, text
from headrace_controller.gateway_check.routes import check_site
from headrace_controller.gateway_check.sources import check_runtime, check_source, check_streams, is_ours


@dataclass(frozen=True, slots=True)
class Report:
    """What was looked at, and what was found; errors come first."""

    clusters: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> int:
        """How many findings are errors."""
        return sum(each.level == "error" for each in self.findings)


def check(page: Any, names: Collection[str] = ()) -> Report:
    """Check a parsed /config_dump: the clusters `names`, or all that ask for pools of Headrace.

    Raises NotAnEnvoyError for a page of another kind.
    """
    dump = read_dump(page)
    chosen = [each for name, each in dump.clusters.items() if (name in names if names else is_ours(each))]
    found = dict.fromkeys([*_missing(dump, names, chosen), *_all(dump, chosen)])
    ordered = sorted(found, key=lambda each: each.level != "error")
    return Report(tuple(sorted(text(each, "name") for each in chosen)), tuple(ordered))


def _missing(dump: Dump, names: Collection[str], chosen: list[Tree]) -> Iterator[Finding]:
    there = ", ".join(sorted(dump.clusters)) or "none"
    for name in sorted(set(names) - {text(each, "name") for each in chosen}):
        yield Finding(
            "error", f"cluster {name}", "name", f"is not there; there are: {there}", "correct --cluster"
        )
    if not chosen and not names:
        yield Finding(
            "error",
            "clusters",
            "eds_cluster_config.service_name",
            f"none asks for a pool of Headrace, so that no weight gets here; there are: {there}",
            "type: EDS with service_name: pool/MODEL, or name the cluster with --cluster",
        )


def _all(dump: Dump, chosen: list[Tree]) -> Iterator[Finding]:
    for cluster in chosen:
        yield from check_source(dump, cluster)
        yield from check_cluster(cluster)
    yield from check_streams(dump, chosen)
    for site in dump.sites:
        yield from check_site(site, {text(each, "name") for each in chosen})
    yield from check_runtime(dump)

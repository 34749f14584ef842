"""All sites at a glance."""

from __future__ import annotations

from deploy.grafana.boards.board import Row, dashboard, link
from deploy.grafana.boards.panels import (
    COUNT,
    GREEN,
    ON_OFF,
    ORANGE,
    RATE,
    RED,
    SECONDS,
    SHARE,
    STATES,
    YELLOW,
    Json,
    Look,
    Query,
    stat,
    table,
    time_series,
)

IN = 'region=~"$region"'
ERRORS = Look("percentunit", 0, limits=[(0.01, YELLOW), (0.05, RED)])
PRESSURE = Look("percentunit", 0, 1, limits=[(0.7, YELLOW), (0.9, RED)])


def build() -> Json:
    """The fleet dashboard."""
    return dashboard(
        "headrace-fleet",
        "Headrace / Fleet",
        "All sites: what serves, how hard it is pressed, and how requests fare.",
        [],
        [
            Row("", 4, _now()),
            Row("Requests", 8, _requests()),
            Row("Sites", 8, _sites()),
            Row("Cells", 8, _cells()),
        ],
    )


def _now() -> list[Json]:
    rate = f"sum(region_gateway:headrace_gateway_requests:rate1m{{{IN}}})"
    failing = f'sum(region_gateway_class:headrace_gateway_requests:rate1m{{{IN}, class="server_errors"}})'
    marked = f'count(max by (region, cell) (headrace_cell_fallback{{{IN}, kind!="nvml"}}) == 1)'
    alerts = f'count(ALERTS{{alertname=~"Headrace.+", alertstate="firing", {IN}}}) or vector(0)'
    return [
        stat(
            "READY", Query(f"sum(headrace_cell_state{{{IN}}} == bool 2)"), COUNT, "Cells that get requests."
        ),
        stat(
            "FAILED",
            Query(f"sum(headrace_cell_state{{{IN}}} == bool 4)"),
            Look("short", 0, decimals=0, limits=[(1, RED)]),
            "Cells whose endpoints were taken out.",
        ),
        stat(
            "Marked",
            Query(f"{marked} or vector(0)"),
            Look("short", 0, decimals=0, limits=[(1, ORANGE)]),
            "Cells without some of their figures: hardware, a member, or the agent's.",
        ),
        stat("Requests", Query(rate), RATE, "A second, at all gateways, but those that clients left."),
        stat(
            "Failing",
            Query(f"({failing} or vector(0)) / ({rate} > 0) or vector(0)"),
            ERRORS,
            "Of the requests: 5xx, resets and cut-off answers.",
        ),
        stat(
            "Self-preservation",
            Query(f"max(headrace_self_preservation{{{IN}}})"),
            ON_OFF,
            "Many cells fell silent at once: weights are held.",
        ),
        stat(
            "Shadow or freeze",
            Query(f"max(headrace_shadow{{{IN}}} or headrace_frozen{{{IN}}})"),
            Look(names={0: ("no", GREEN), 1: ("yes", ORANGE)}, limits=[(1, ORANGE)]),
            "An operator keeps weights from being pushed.",
        ),
        stat("Alerts", Query(alerts), Look("short", 0, decimals=0, limits=[(1, RED)]), "Firing now."),
    ]


def _requests() -> list[Json]:
    by_class = f'sum by (class) (region_gateway_class:headrace_gateway_requests:rate1m{{{IN}, class!="ok"}})'
    return [
        time_series(
            "Requests by gateway",
            [Query(f"region_gateway:headrace_gateway_requests:rate1m{{{IN}}}", "{{gateway}}")],
            RATE,
        ),
        time_series(
            "Requests by site",
            [Query(f"region_site:headrace_gateway_requests:rate1m{{{IN}}}", "{{site}}")],
            RATE,
            "Where the flow goes.",
            stacked=True,
        ),
        time_series(
            "Failing requests",
            [Query(f"region_gateway:headrace_gateway_errors:ratio_rate1m{{{IN}}}", "{{gateway}}")],
            ERRORS,
        ),
        time_series(
            "Not served well, by what became of them", [Query(by_class, "{{class}}")], RATE, stacked=True
        ),
    ]


def _sites() -> list[Json]:
    to_site = link("Site ${__value.text}", "headrace-site", site="${__value.raw}")
    columns = [
        ("cells", Query(f"sum by (site) (region_site:headrace_cells:count{{{IN}}})"), COUNT),
        ("READY", Query(f"sum by (site) (region_site:headrace_cells_ready:count{{{IN}}})"), COUNT),
        (
            "FAILED",
            Query(f"sum by (site) (region_site:headrace_cells_failed:count{{{IN}}})"),
            Look("short", 0, decimals=0, limits=[(1, RED)]),
        ),
        ("pressure", Query(f"avg by (site) (region_site:headrace_cell_pressure:avg{{{IN}}})"), PRESSURE),
        (
            "heard",
            Query(f"max by (site) (region_site:headrace_heartbeat_age_seconds:min{{{IN}}})"),
            Look("s", 0, limits=[(0.5, YELLOW), (10, RED)]),
        ),
        ("requests", Query(f"sum by (site) (region_site:headrace_gateway_requests:rate1m{{{IN}}})"), RATE),
    ]
    pressures = [Query(f"region_site:headrace_cell_pressure:avg{{{IN}}}", "{{site}}")]
    rtt = f'avg by (site) (headrace_cell_signal{{{IN}, signal="rtt_ms"}})'
    return [
        table("Sites", "site", columns, to_site, "A site's name leads to its dashboard."),
        time_series(
            "Pressure of READY cells", pressures, PRESSURE, "Mean over the site's cells and gateways."
        ),
        time_series("Round trip to the first gateway", [Query(rtt, "{{site}}")], Look("ms", 0)),
    ]


def _cells() -> list[Json]:
    states = [
        Query(f"sum(headrace_cell_state{{{IN}}} == bool {value})", name)
        for value, (name, _) in STATES.items()
    ]
    p95 = f'max by (site) (headrace_cell_signal{{{IN}, signal="ttft_p95_s"}})'
    marks = f"sum by (kind) (headrace_cell_fallback{{{IN}}})"
    warnings = f"count by (kind) (headrace_cell_early_warning{{{IN}}} == 1)"
    return [
        time_series("Cells by state", states, COUNT, stacked=True),
        time_series(
            "Worst P95 time to first token", [Query(p95, "{{site}}")], SECONDS, "As engines measure it."
        ),
        time_series(
            "Marks and early warnings",
            [Query(marks, "{{kind}}"), Query(warnings, "warning: {{kind}}")],
            COUNT,
        ),
        time_series(
            "Greatest share of KV cache in use",
            [Query(f'max by (site) (headrace_cell_signal{{{IN}, signal="kv_fill"}})', "{{site}}")],
            SHARE,
        ),
    ]

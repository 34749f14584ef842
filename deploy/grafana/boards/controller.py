"""The controllers, their gateways and their agents."""

from __future__ import annotations

from deploy.grafana.boards.board import Row, dashboard, variable
from deploy.grafana.boards.panels import (
    COUNT,
    GREEN,
    ORANGE,
    RATE,
    RED,
    YELLOW,
    Json,
    Look,
    Query,
    stat,
    time_series,
)

IN = 'region=~"$region", instance=~"$instance"'
MINE = f'job="headrace-controller", {IN}'
REGION = 'region=~"$region"'
A_SECOND = Look("cps", 0)
PERCENTILES = (0.5, 0.99)


def build() -> Json:
    """The controller dashboard."""
    return dashboard(
        "headrace-controller",
        "Headrace / Controller",
        "The controllers' own pace and health, what gateways take, what agents send.",
        [
            variable(
                "instance",
                'label_values(headrace_controller_info{region=~"$region"}, instance)',
                "Controller",
            )
        ],
        [
            Row("", 4, _now()),
            Row("Pace", 8, _pace()),
            Row("Gateways", 8, _gateways(), across=3),
            Row("Agents", 8, _agents(), across=3),
            Row("Picker", 8, _picker(), across=3),
            Row("Lives and warnings", 8, _lives()),
            Row("Process and disk", 8, _process(), across=3),
        ],
    )


def _quantiles(metric: str, by: str = "", name: str = "") -> list[Query]:
    labels = f"le, {by}" if by else "le"
    buckets = f"sum by ({labels}) (rate({metric}_bucket{{{IN}}}[$__rate_interval]))"
    return [
        Query(
            f"histogram_quantile({share}, {buckets})",
            f"P{share * 100:g} {name}".strip(),
        )
        for share in PERCENTILES
    ]


def _now() -> list[Json]:
    up = Look(names={0: ("DOWN", RED), 1: ("up", GREEN)}, limits=[(1, GREEN)])
    refused = Look("short", 0, decimals=0, limits=[(1, RED)])
    return [
        stat("Controllers", Query(f"min(up{{{MINE}}})"), up),
        stat("Version", Query(f"headrace_controller_info{{{IN}}}", "{{version}}"), Look(), text="name"),
        stat("Up for", Query(f"min(time() - process_start_time_seconds{{{MINE}}})"), Look("s", 0)),
        stat("Gateways away", Query(f"sum(headrace_gateway_connected{{{IN}}} == bool 0)"), refused),
        stat(
            "Refused in an hour",
            Query(f"sum(increase(headrace_xds_nacks_total{{{IN}}}[1h]))"),
            refused,
            "By Envoys.",
        ),
        stat(
            "Agents connected",
            Query(f"sum(headrace_agent_connected{{{REGION}}})"),
            COUNT,
            "As agents see it.",
        ),
        stat("Agents away", Query(f'sum(up{{job="headrace-agent", {REGION}}} == bool 0)'), refused),
        stat(
            "Withheld in an hour",
            Query(f"sum(increase(headrace_tick_errors_total{{{IN}}}[1h]))"),
            refused,
            "Publications that were inconsistent.",
        ),
    ]


def _pace() -> list[Json]:
    limits = Look("s", 0, limits=[(0.05, YELLOW), (0.1, RED)])
    return [
        time_series(
            "Control tick", _quantiles("headrace_tick_seconds"), limits, "Due every 50 ms by default."
        ),
        time_series("Projection and xDS build", _quantiles("headrace_route_update_seconds"), limits),
        time_series(
            "From push to acknowledgement",
            _quantiles("headrace_xds_ack_seconds", "type", "{{type}}"),
            Look("s", 0, limits=[(0.1, YELLOW), (1, RED)]),
        ),
    ]


def _gateways() -> list[Json]:
    pushes = f"sum by (gateway, type) (rate(headrace_xds_pushes_total{{{IN}}}[$__rate_interval]))"
    nacks = f"sum by (gateway, type) (increase(headrace_xds_nacks_total{{{IN}}}[$__rate_interval]))"
    records = f"sum by (fate) (rate(headrace_gateway_records_total{{{IN}}}[$__rate_interval]))"
    return [
        time_series("Pushes", [Query(pushes, "{{gateway}} {{type}}")], A_SECOND),
        time_series("Refusals", [Query(nacks, "{{gateway}} {{type}}")], Look("short", 0, limits=[(1, RED)])),
        time_series("Envoys connected", [Query(f"headrace_gateway_connected{{{IN}}}", "{{gateway}}")], COUNT),
        time_series(
            "Report streams",
            [Query(f"headrace_gateway_report_streams{{{IN}}}", "{{gateway}} {{kind}}")],
            COUNT,
            "By which Envoys tell what became of requests.",
        ),
        time_series("Records of requests", [Query(records, "{{fate}}")], RATE, "left_out: by sampling."),
        time_series(
            "Learned bytes a token",
            [Query(f"headrace_class_bytes_per_token{{{IN}}}", "{{model}} {{max_model_len}}")],
            Look("short", 0),
            "Boundaries of capability classes; nothing: still the start value.",
        ),
    ]


def _agents() -> list[Json]:
    beats = f"sum by (kind) (rate(headrace_heartbeats_total{{{IN}}}[$__rate_interval]))"
    rejected = f"sum by (reason) (increase(headrace_rejections_total{{{IN}}}[$__rate_interval]))"
    failures = f"sum by (source) (rate(headrace_agent_source_failures_total{{{REGION}}}[$__rate_interval]))"
    broken = f"sum by (part) (increase(headrace_agent_mishaps_total{{{REGION}}}[$__rate_interval]))"
    memory = f'process_resident_memory_bytes{{job="headrace-agent", {REGION}}}'
    return [
        time_series("Messages from agents", [Query(beats, "{{kind}}")], A_SECOND, stacked=True),
        time_series("Not taken, by reason", [Query(rejected, "{{reason}}")], COUNT),
        time_series(
            "Sources that gave nothing",
            [Query(failures, "{{source}}")],
            A_SECOND,
            "Tries a second, all agents.",
        ),
        time_series("Mishaps", [Query(broken, "{{part}}")], COUNT, "Unexpected errors in agents, contained."),
        time_series("Memory of agents", [Query(memory, "{{instance}}")], Look("bytes", 0)),
    ]


def _picker() -> list[Json]:
    picks = f"sum by (outcome) (rate(headrace_picks_total{{{IN}}}[$__rate_interval]))"
    served = f"sum by (by) (rate(headrace_picks_served_total{{{IN}}}[$__rate_interval]))"
    return [
        time_series("Picks by outcome", [Query(picks, "{{outcome}}")], RATE, stacked=True),
        time_series(
            "From a request to the named cell",
            _quantiles("headrace_pick_seconds"),
            Look("s", 0, limits=[(0.01, YELLOW), (0.025, RED)]),
            "An Envoy waits for it for 25 ms by default.",
        ),
        time_series("Answered by", [Query(served, "{{by}}")], RATE, "named: by the cell that was named."),
        time_series(
            "How far predictions are off",
            _quantiles("headrace_pick_error_ratio"),
            Look("percentunit", 0),
            "Of the predicted time to first token.",
        ),
        time_series("Waited for", [Query(f"headrace_picks_open{{{IN}}}", "{{instance}}")], COUNT),
    ]


def _lives() -> list[Json]:
    changes = f"sum by (from, to) (increase(headrace_transitions_total{{{IN}}}[$__rate_interval]))"
    began = f"sum by (kind) (increase(headrace_early_warnings_total{{{IN}}}[$__rate_interval]))"
    denied = f"sum by (reason) (increase(headrace_admin_refused_total{{{IN}}}[$__rate_interval]))"
    reloads = f"sum by (result) (increase(headrace_reloads_total{{{IN}}}[$__rate_interval]))"
    return [
        time_series("Changes of state", [Query(changes, "{{from}} to {{to}}")], COUNT),
        time_series("Early warnings that began", [Query(began, "{{kind}}")], COUNT),
        time_series("Operators' requests not let in", [Query(denied, "{{reason}}")], COUNT),
        time_series("Reloads", [Query(reloads, "{{result}}")], COUNT),
    ]


def _process() -> list[Json]:
    recorded = f"sum by (instance) (rate(headrace_recording_bytes_total{{{IN}}}[$__rate_interval]))"
    lost = f"sum by (reason) (increase(headrace_recording_lost_total{{{IN}}}[$__rate_interval]))"
    intents = f"sum(increase(headrace_intents_not_kept_total{{{IN}}}[$__rate_interval]))"
    share = Look("percentunit", 0, limits=[(0.7, YELLOW), (0.9, ORANGE)])
    return [
        time_series(
            "CPU",
            [Query(f"rate(process_cpu_seconds_total{{{MINE}}}[$__rate_interval])", "{{instance}}")],
            share,
            "Of one core; the control loop uses one.",
        ),
        time_series(
            "Memory", [Query(f"process_resident_memory_bytes{{{MINE}}}", "{{instance}}")], Look("bytes", 0)
        ),
        time_series("Descriptors", [Query(f"process_open_fds{{{MINE}}}", "{{instance}}")], COUNT),
        time_series("Recorded", [Query(recorded, "{{instance}}")], Look("Bps", 0)),
        time_series("Not kept", [Query(lost, "recording: {{reason}}"), Query(intents, "wishes")], COUNT),
    ]

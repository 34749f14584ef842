"""One cell: its life, its weight, its ten signals."""

from __future__ import annotations

from deploy.grafana.boards.board import Row, dashboard, link, variable
from deploy.grafana.boards.fleet import ERRORS, PRESSURE
from deploy.grafana.boards.panels import (
    COUNT,
    ON_OFF,
    RATE,
    SECONDS,
    SHARE,
    STATE,
    Json,
    Look,
    Query,
    stat,
    time_series,
    timeline,
)
from deploy.grafana.boards.site import AGE

IN = 'region=~"$region", cell="$cell"'
MS = Look("ms", 0)
SIGNALS: list[list[tuple[str, str, Look]]] = [
    [
        ("queue_depth", "Requests waiting", COUNT),
        ("ttft_p95_s", "P95 time to first token", SECONDS),
        ("error_rate", "Failing requests", ERRORS),
        ("kv_fill", "KV cache in use", SHARE),
    ],
    [
        ("gpu_util", "GPU busy", SHARE),
        ("vram_util", "VRAM in use", SHARE),
        ("compute_active", "Compute active", SHARE),
        ("memory_bw_util", "Memory bandwidth", SHARE),
    ],
    [("rtt_ms", "Round trip to the first gateway", MS), ("jitter_ms", "Jitter", MS)],
]


def build() -> Json:
    """The cell dashboard."""
    engine, hardware, network = ([_signal(*each) for each in group] for group in SIGNALS)
    return dashboard(
        "headrace-cell",
        "Headrace / Cell",
        "One cell. `headrace explain CELL` says how its weight comes about, to the last digit.",
        [variable("cell", 'label_values(headrace_cell_state{region=~"$region"}, cell)', "Cell", many=False)],
        [
            Row("", 4, _now()),
            Row("Life and weight", 8, _life()),
            Row("Requests", 8, _requests()),
            Row("Signals of the engine", 7, engine),
            Row("Signals of the GPUs", 7, hardware),
            Row("Signals of the network", 7, network),
            Row("Agent", 7, _agent()),
        ],
    )


def _signal(name: str, title: str, look: Look) -> Json:
    return time_series(title, [Query(f'headrace_cell_signal{{{IN}, signal="{name}"}}', name)], look)


def _now() -> list[Json]:
    to_site = link("Its site", "headrace-site", site="${__field.labels.site}")
    state = Look(names=STATE.names, links=[to_site])
    return [
        stat(
            "State",
            Query(f"max by (site) (headrace_cell_state{{{IN}}})", "{{site}}"),
            state,
            "A click leads to its site.",
        ),
        stat("Weight", Query(f"max(headrace_cell_weight{{{IN}}})"), COUNT, "The greatest of all gateways."),
        stat(
            "Pressure",
            Query(f"max(headrace_cell_pressure{{{IN}}})"),
            PRESSURE,
            "The greatest of all gateways.",
        ),
        stat("Requests", Query(f"sum(region_cell:headrace_gateway_requests:rate1m{{{IN}}})"), RATE),
        stat("Last heard", Query(f"max(headrace_heartbeat_age_seconds{{{IN}}})"), AGE),
        stat("Agent silent", Query(f'max(headrace_cell_fallback{{{IN}, kind="telemetry_lost"}})'), ON_OFF),
    ]


def _life() -> list[Json]:
    return [
        timeline("State", [Query(f"max by (site) (headrace_cell_state{{{IN}}})", "{{site}}")], STATE),
        time_series("Weight", [Query(f"headrace_cell_weight{{{IN}}}", "{{gateway}}")], COUNT),
        time_series("Pressure", [Query(f"headrace_cell_pressure{{{IN}}}", "{{gateway}}")], PRESSURE),
    ]


def _requests() -> list[Json]:
    by_class = f"sum by (class) (rate(headrace_gateway_requests_total{{{IN}}}[$__rate_interval]))"
    open_now = f"headrace_gateway_requests_in_progress{{{IN}}}"
    return [
        time_series("Requests by what became of them", [Query(by_class, "{{class}}")], RATE, stacked=True),
        time_series(
            "Failing requests, as gateways saw them",
            [Query(f"region_cell:headrace_gateway_errors:ratio_rate1m{{{IN}}}", "failing")],
            ERRORS,
        ),
        time_series("Requests in progress", [Query(open_now, "{{gateway}}")], COUNT),
    ]


def _agent() -> list[Json]:
    marks = f"headrace_cell_fallback{{{IN}}}"
    ages = f"max by (source) (headrace_agent_source_age_seconds{{{IN}}})"
    return [
        time_series(
            "Since the agent was heard",
            [Query(f"headrace_heartbeat_age_seconds{{{IN}}}", "{{instance}}")],
            AGE,
        ),
        timeline(
            "Marks", [Query(marks, "{{kind}}")], ON_OFF, "What figures it lacks, or what stands in for them."
        ),
        timeline(
            "Early warnings",
            [Query(f"headrace_cell_early_warning{{{IN}}}", "{{kind}}")],
            ON_OFF,
            "Nothing: none.",
        ),
        time_series("Age of the agent's figures, by source", [Query(ages, "{{source}}")], SECONDS),
    ]

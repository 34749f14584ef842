"""One site and its cells."""

from __future__ import annotations

from deploy.grafana.boards.board import Row, dashboard, link, variable
from deploy.grafana.boards.fleet import ERRORS, PRESSURE
from deploy.grafana.boards.panels import (
    COUNT,
    ON_OFF,
    RATE,
    RED,
    SECONDS,
    SHARE,
    STATE,
    YELLOW,
    Json,
    Look,
    Query,
    stat,
    table,
    time_series,
    timeline,
)

IN = 'region=~"$region", site="$site"'
AT = f'{IN}, gateway=~"$gateway"'
AGE = Look("s", 0, limits=[(0.3, YELLOW), (0.5, RED)])
VARIABLES = [
    variable("site", 'label_values(headrace_cell_state{region=~"$region"}, site)', "Site", many=False),
    variable(
        "gateway", 'label_values(headrace_cell_weight{region=~"$region", site="$site"}, gateway)', "Gateway"
    ),
]


def build() -> Json:
    """The site dashboard."""
    return dashboard(
        "headrace-site",
        "Headrace / Site",
        "One site: its cells side by side, and the path to it.",
        VARIABLES,
        [
            Row("", 4, _now()),
            Row("Cells", 9, [_cells(), _states()]),
            Row("Weights", 8, _weights()),
            Row("Engines", 8, _engines()),
            Row("Hardware", 8, _hardware()),
            Row("Path and agents", 8, _path()),
        ],
    )


def _signal(name: str) -> list[Query]:
    return [Query(f'headrace_cell_signal{{{IN}, signal="{name}"}}', "{{cell}}")]


def _now() -> list[Json]:
    failed = Look("short", 0, decimals=0, limits=[(1, RED)])
    return [
        stat("READY", Query(f"sum(headrace_cell_state{{{IN}}} == bool 2)"), COUNT),
        stat("FAILED", Query(f"sum(headrace_cell_state{{{IN}}} == bool 4)"), failed),
        stat("Requests", Query(f"sum(region_site:headrace_gateway_requests:rate1m{{{IN}}})"), RATE),
        stat("Pressure", Query(f"avg(region_site:headrace_cell_pressure:avg{{{IN}}})"), PRESSURE),
        stat(
            "Last heard",
            Query(f"max(region_site:headrace_heartbeat_age_seconds:min{{{IN}}})"),
            AGE,
            "Since any agent of the site was heard.",
        ),
        stat(
            "Agents silent",
            Query(f'max(headrace_cell_fallback{{{IN}, kind="telemetry_lost"}})'),
            ON_OFF,
            "Of a cell whose engine serves on.",
        ),
    ]


def _cells() -> Json:
    columns = [
        ("state", Query(f"max by (cell) (headrace_cell_state{{{IN}}})"), STATE),
        ("weight", Query(f"max by (cell) (headrace_cell_weight{{{AT}}})"), COUNT),
        ("pressure", Query(f"max by (cell) (headrace_cell_pressure{{{AT}}})"), PRESSURE),
        ("P95 TTFT", Query(f'max by (cell) (headrace_cell_signal{{{IN}, signal="ttft_p95_s"}})'), SECONDS),
        ("queue", Query(f'max by (cell) (headrace_cell_signal{{{IN}, signal="queue_depth"}})'), COUNT),
        ("heard", Query(f"max by (cell) (headrace_heartbeat_age_seconds{{{IN}}})"), AGE),
    ]
    to_cell = link("Cell ${__value.text}", "headrace-cell", cell="${__value.raw}")
    return table("Cells", "cell", columns, to_cell, "A cell's name leads to its dashboard.")


def _states() -> Json:
    return timeline("States", [Query(f"headrace_cell_state{{{IN}}}", "{{cell}}")], STATE)


def _weights() -> list[Json]:
    share = (
        f"sum by (cell) (headrace_cell_weight{{{AT}}})"
        f' / scalar(sum(headrace_cell_weight{{region=~"$region", gateway=~"$gateway"}}) > 0)'
    )
    return [
        time_series(
            "Weight",
            [Query(f"headrace_cell_weight{{{AT}}}", "{{cell}} at {{gateway}}")],
            COUNT,
            "What Envoy was told; 0 = not told of.",
        ),
        time_series(
            "Pressure", [Query(f"headrace_cell_pressure{{{AT}}}", "{{cell}} at {{gateway}}")], PRESSURE
        ),
        time_series(
            "Share of all weights",
            [Query(share, "{{cell}}")],
            SHARE,
            "Over the models of the region together.",
        ),
        time_series(
            "Requests",
            [
                Query(
                    'region_cell:headrace_gateway_requests:rate1m{region=~"$region"}'
                    f" and on (region, cell) headrace_cell_state{{{IN}}}",
                    "{{cell}}",
                )
            ],
            RATE,
            stacked=True,
        ),
    ]


def _engines() -> list[Json]:
    errors = (
        'region_cell:headrace_gateway_errors:ratio_rate1m{region=~"$region"}'
        f" and on (region, cell) headrace_cell_state{{{IN}}}"
    )
    return [
        time_series("P95 time to first token", _signal("ttft_p95_s"), SECONDS),
        time_series("Requests waiting", _signal("queue_depth"), COUNT),
        time_series("KV cache in use", _signal("kv_fill"), SHARE),
        time_series("Failing requests, as gateways saw them", [Query(errors, "{{cell}}")], ERRORS),
    ]


def _hardware() -> list[Json]:
    return [
        time_series(
            "Compute active", _signal("compute_active"), SHARE, "Tensor pipe, else SM, else any engine."
        ),
        time_series("Memory bandwidth", _signal("memory_bw_util"), SHARE),
        time_series("GPU busy", _signal("gpu_util"), SHARE, "Some kernel ran; says little of load."),
        time_series("VRAM in use", _signal("vram_util"), SHARE),
    ]


def _path() -> list[Json]:
    marks = Query(f"headrace_cell_fallback{{{IN}}} == 1", "{{cell}}: {{kind}}")
    return [
        time_series("Round trip to the first gateway", _signal("rtt_ms"), Look("ms", 0)),
        time_series("Jitter", _signal("jitter_ms"), Look("ms", 0)),
        time_series(
            "Since the agent was heard", [Query(f"headrace_heartbeat_age_seconds{{{IN}}}", "{{cell}}")], AGE
        ),
        time_series("Marks", [marks], COUNT, "What figures a cell lacks, or what stands in for them."),
    ]

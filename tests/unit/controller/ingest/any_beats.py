"""Telemetry beats of every kind: in order, out of it, and at the edges of both."""

from __future__ import annotations

import math
import sys
from typing import Any

from hypothesis import strategies as st

from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.signals import CELL_SIGNALS

WRONG = (math.nan, math.inf, -math.inf, -1.0, -1e-300, 1.0011, 7.0, -sys.float_info.max)
RIGHT = (0.0, -0.0, 0.25, 0.5, 1.0, 1.001, 1e-300)
DOUBLES = ("temperature_c", "thermal_margin_c", "power_w", "power_limit_w")
COUNTS = ("clock_event_reasons", "pcie_replays", "ecc_correctable", "ecc_uncorrectable", "remapped_rows")
NAMES = ("a", "b", "c", "stranger")

counts = st.sampled_from((0, 1, 7, 2**40, 2**64 - 1))
small = st.sampled_from((0, 1, 127, 128, 5_000, 2**32 - 1))


def _some(values: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Any of the fields, each absent now and then."""
    return st.fixed_dictionaries({}, optional=values)


def cell_beats(cell_id: str, figures: st.SearchStrategy[float]) -> st.SearchStrategy[pb.CellBeat]:
    """Beats of one cell, with these figures as its measured ones."""
    source = st.builds(
        lambda name, status, age: pb.SourceBeat(name=name, status=status, **age),
        st.sampled_from(("engine", "dcgm", "nvml", "other", "")),
        st.sampled_from((0, 1, 4, 9)),
        _some({"age_ms": small}),
    )
    xid = st.sampled_from((0, 48, 79, 1_000_000, 2**32 - 1))
    health = _some(
        dict.fromkeys(DOUBLES, figures)
        | dict.fromkeys(COUNTS, counts)
        | {"last_xid": xid, "gpu_lost": st.booleans()}
    )
    totals = _some(dict.fromkeys(("ok", "client_errors", "throttled", "server_errors"), counts))
    return st.builds(
        lambda fields: pb.CellBeat(cell_id=cell_id, **fields),
        _some(
            {
                "signals": st.builds(
                    lambda told: pb.Signals(**told), _some(dict.fromkeys(CELL_SIGNALS, figures))
                ),
                "sources": st.lists(source, max_size=4),
                "engine_state": st.sampled_from((0, 1, 2, 3, 5, 300, -1)),
                "serving_ms": counts,
                "in_flight": small,
                "requests": st.builds(lambda told: pb.RequestTotals(**told), totals),
                "hardware": st.builds(lambda told: pb.HardwareHealth(**told), health),
                "hardware_source": st.sampled_from((0, 1, 2, 3, 300, -1)),
            }
        ),
    )


def beats(figures: st.SearchStrategy[float]) -> st.SearchStrategy[pb.Telemetry]:
    """Beats of some cells, each once and in any order, with paths to some gateways."""
    path = st.builds(
        lambda gateway, told: pb.PathBeat(gateway=gateway, **told),
        st.sampled_from(("g", "h", "elsewhere")),
        _some({"rtt_ms": figures, "jitter_ms": figures, "loss": figures, "age_ms": small}),
    )
    ids = st.lists(st.sampled_from(NAMES), unique=True, max_size=4)
    cells = ids.flatmap(lambda names: st.tuples(*(cell_beats(name, figures) for name in names)))
    return st.builds(
        lambda said, paths: pb.Telemetry(cells=said, paths=paths), cells, st.lists(path, max_size=3)
    )


sound_beats = beats(st.sampled_from(RIGHT))
any_beats = beats(st.sampled_from((*RIGHT, *RIGHT, *RIGHT, *WRONG)))

"""What `top` knows of the cells: rows out of the controller's answers, sorted and filtered.

Pure: the same rows stand on the interactive screen and in plain lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headrace_controller.operator_cli.show import marks, other_states
from headrace_controller.operator_cli.terminal import clean

FIELDS: Final = ("site", "state", "node", "model")


@dataclass(frozen=True, slots=True)
class Row:
    """One cell. Fractions in [0, 1], seconds; None = not known. `weights` by gateway, sorted by its id;
    `share` is the cell's part of its pool's weight, the mean over the gateways."""

    id: str
    site: str
    node: str
    models: tuple[str, ...]
    state: str
    since_s: float
    cause: str
    pressure: float | None
    weights: tuple[int, ...]
    share: float | None
    ttft_s: float | None
    queue: float | None
    kv: float | None
    gpu: float | None
    heard_s: float | None
    in_flight: int | None
    marks: str

    @property
    def ready(self) -> bool:
        """Whether it may get requests."""
        return self.state == "READY"


@dataclass(frozen=True, slots=True)
class SiteLine:
    """One site: its cells by state."""

    site: str
    cells: int
    ready: int
    others: str
    cordoned: bool


@dataclass(frozen=True, slots=True)
class Look:
    """The region at one moment. `headline` says how it is; `alarms` are what needs a look."""

    headline: str
    alarms: tuple[str, ...]
    sites: tuple[SiteLine, ...]
    rows: tuple[Row, ...]


def look(status: Mapping[str, Any], cells: Sequence[Mapping[str, Any]]) -> Look:
    """The answers of /api/v1/status and /api/v1/cells as `top` shows them. Raises KeyError, TypeError or
    ValueError where they are of something else."""
    totals = _totals(cells)
    rows = tuple(_row(cell, totals) for cell in cells)
    ready = sum(row.ready for row in rows)
    headline = f"region {status['region']}: {status['warm_start']}; {ready} of {len(rows)} cells READY"
    sites = tuple(
        SiteLine(
            clean(each["site"]),
            int(each["cells"]),
            int(each["ready"]),
            other_states(each["states"]),
            bool(each["cordoned"]),
        )
        for each in status["sites"]
    )
    return Look(clean(headline), tuple(_alarms(status)), sites, rows)


def _alarms(status: Mapping[str, Any]) -> Iterable[str]:
    if status["self_preservation"]:
        yield "self-preservation: weights hold"
    for mode in ("shadow", "frozen"):
        if status.get(mode):
            yield {"shadow": "shadow: no weight is pushed", "frozen": "freeze: weights are held"}[mode]
    for gateway in status["gateways"]:
        if not gateway["connected"]:
            yield clean(f"gateway {gateway['id']} is not connected")
        elif gateway["last_nack"] and not gateway["in_force"]:
            yield clean(f"gateway {gateway['id']} refuses what it is sent: {gateway['last_nack']}")


def _pool(cell: Mapping[str, Any]) -> str:
    """The pool that a cell's share is of: its first model's."""
    models = cell.get("models") or ("",)
    return str(models[0])


def _totals(cells: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], int]:
    """The weights of each pool at each gateway, summed."""
    totals: dict[tuple[str, str], int] = {}
    for cell in cells:
        for gateway, weight in cell["weights"].items():
            key = _pool(cell), gateway
            totals[key] = totals.get(key, 0) + weight
    return totals


def _row(cell: Mapping[str, Any], totals: Mapping[tuple[str, str], int]) -> Row:
    signals = cell.get("signals") or {}
    weights = sorted(cell["weights"].items())
    parts = [weight / totals[_pool(cell), gateway] for gateway, weight in weights if weight]
    compute = signals.get("compute_active")
    return Row(
        id=clean(cell["id"]),
        site=clean(cell["site"]),
        node=clean(cell.get("node", "")),
        models=tuple(map(clean, cell.get("models", ()))),
        state=clean(cell["state"]),
        since_s=float(cell["state_since_s"]),
        cause=clean(cell["cause"]),
        pressure=_number(cell["pressure"]),
        weights=tuple(int(weight) for _, weight in weights),
        share=sum(parts) / len(weights) if parts else None,
        ttft_s=_number(signals.get("ttft_p95_s")),
        queue=_number(signals.get("queue_depth")),
        kv=_number(signals.get("kv_fill")),
        gpu=_number(compute if compute is not None else signals.get("gpu_util")),
        heard_s=_number(cell["heartbeat_age_s"]),
        in_flight=cell.get("in_flight"),
        marks=clean(marks(dict(cell))),
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


# Sorting.

Key = Callable[[Row], Any]


def _trouble(row: Row) -> tuple[bool, float, str]:
    """Not READY first, then the most pressure."""
    return row.ready, -(row.pressure or 0.0), row.id


KEYS: Final[Mapping[str, Key]] = {
    "site": lambda row: (row.site, _trouble(row)),
    "trouble": _trouble,
    "cell": lambda row: row.id,
    "state": lambda row: (row.state, row.id),
    "pressure": lambda row: _most(row.pressure),
    "weight": lambda row: _most(max(row.weights, default=None)),
    "share": lambda row: _most(row.share),
    "ttft": lambda row: _most(row.ttft_s),
    "queue": lambda row: _most(row.queue),
    "kv": lambda row: _most(row.kv),
    "gpu": lambda row: _most(row.gpu),
    "heard": lambda row: _most(row.heard_s),
}
"""What cells can be sorted by; figures most first, what is not known last."""


def _most(value: float | None) -> tuple[bool, float]:
    return value is None, -(value or 0.0)


def ordered(rows: Iterable[Row], key: str, backwards: bool = False) -> list[Row]:
    """The rows by a key of KEYS; `backwards` the other way round, what is not known last all the same."""
    chosen = KEYS[key]
    made = sorted(rows, key=lambda row: row.id)
    made.sort(key=chosen)
    if not backwards:
        return made
    known = [row for row in made if not _unknown(chosen(row))]
    return [*reversed(known), *(row for row in made if _unknown(chosen(row)))]


def _unknown(key: Any) -> bool:
    return isinstance(key, tuple) and len(key) == 2 and key[0] is True


# Filtering.


def matching(rows: Iterable[Row], wanted: str) -> list[Row]:
    """The rows that have every word of `wanted` in their id, site, node, models, state, marks or cause,
    in any case of letters. `site:x`, `state:x`, `node:x` and `model:x` look there alone; `!word` leaves
    out what has it."""
    words = wanted.lower().split()
    return [row for row in rows if all(_has(row, word) for word in words)]


def _has(row: Row, word: str) -> bool:
    if word.startswith("!"):
        return len(word) == 1 or not _has(row, word[1:])
    field, sign, value = word.partition(":")
    if sign and field in FIELDS:
        found = {"site": row.site, "state": row.state, "node": row.node, "model": " ".join(row.models)}[field]
        return value in found.lower()
    everything = (row.id, row.site, row.node, *row.models, row.state, row.marks, row.cause)
    return word in " ".join(everything).lower()

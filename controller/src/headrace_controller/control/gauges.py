"""The cells' gauges as Prometheus text, made from columns in slices.

A page of ten thousand cells has some two hundred thousand lines. They are written a slice at a time,
so that whoever sends them can let the event loop turn in between, and from copies of the columns, so
that a page is of one moment however long it takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace_controller.control.cell_rows import WeightTable
from headrace_controller.control.loop import ControlLoop
from headrace_controller.gateway.accounts import Account
from headrace_controller.gateway.records import OUTCOMES, Outcome
from headrace_controller.pressure.evidence import KINDS
from headrace_controller.xds.server import XdsServer
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.signals import NAMES

Floats = NDArray[np.float64]

_Label = tuple[str, str]
"""A cell's labels, before and after those of a series."""

SLICE: Final = 1000
"""So many lines are written without giving way: about a millisecond."""


@dataclass(frozen=True, slots=True)
class Series:
    """One gauge: `values` (n,) by row, NaN = no sample; `label` completes the cell's own labels."""

    values: Floats
    label: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """A metric's series over the cells."""

    name: str
    help: str
    series: Sequence[Series]

    @property
    def head(self) -> str:
        """Its HELP and TYPE lines."""
        return f"# HELP {self.name} {self.help}\n# TYPE {self.name} gauge\n"


class CellGauges:
    """Writes the gauges of all cells and gateways."""

    def __init__(self, loop: ControlLoop, weights: WeightTable, xds: XdsServer) -> None:
        self._loop = loop
        self._weights = weights
        self._xds = xds
        self._of = (-1, -1)
        self._rows: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._labels: list[_Label] = []

    def slices(self) -> Iterator[str]:
        """The page's text, in order. The columns are read before the first piece is given out."""
        self._take_labels()
        rows, labels = self._rows, self._labels
        families, members = self._families(), self._members()
        yield self._few()
        for family in families:
            yield family.head
            for series in family.series:
                yield from _lines(family.name, series, rows, labels)
        yield members
        yield from _reported(self._loop.reports.accounts())

    def _take_labels(self) -> None:
        """Each row's labels, made anew only when a cell came, went or moved."""
        fleet = self._loop.fleet
        version = (fleet.rows_version, fleet.addresses_version)
        if version != self._of:
            self._of, self._rows = version, fleet.rows()
            facts = [fleet.facts_of(row) for row in self._rows.tolist()]
            self._labels = [
                (f'{{cell="{escape(each.cell_id)}"', f',site="{escape(each.site)}"}}') for each in facts
            ]

    def _families(self) -> list[Family]:
        fleet, n, now = self._loop.fleet, self._loop.fleet.size, self._loop.now()
        heard = now - fleet.last_heard[:n]
        weights = self._weights.now().astype(np.float64)
        named = [(number, f',gateway="{escape(gateway)}"') for number, gateway in enumerate(fleet.gateways)]
        scored = self._loop.pressures
        pressures = [] if scored is None else [Series(scored.pressure[at], label) for at, label in named]
        return [
            Family("headrace_cell_pressure", "Pressure, 0 to 1, 1 = most.", pressures),
            Family(
                "headrace_cell_weight",
                "Published weight; 0 = not published.",
                [Series(weights[at], label) for at, label in named],
            ),
            Family(
                "headrace_cell_state",
                "1 LOADING, 2 READY, 3 DRAINING, 4 FAILED, 5 TERMINATED.",
                [Series(fleet.state[:n].astype(np.float64))],
            ),
            Family("headrace_cell_signal", "Raw signals, units as in the catalogue.", self._signals()),
            Family("headrace_cell_fallback", "1 while the fallback is in force.", self._fallbacks()),
            Family(
                "headrace_cell_early_warning",
                "1 while the hardware gives an early warning; no series while it gives none.",
                self._warnings(),
            ),
            Family(
                "headrace_heartbeat_age_seconds",
                "Since the cell's agent was heard.",
                [Series(np.where(np.isfinite(heard), heard, np.nan))],
            ),
        ]

    def _signals(self) -> list[Series]:
        fleet, n, scored = self._loop.fleet, self._loop.fleet.size, self._loop.pressures
        if scored is not None:
            raw = np.hstack((scored.raw_cell, scored.raw_path[0]))
        else:
            raw = np.column_stack((fleet.signals[:n], fleet.rtt_ms[:n, 0], fleet.jitter_ms[:n, 0]))
        return [Series(raw[:, at].copy(), f',signal="{name}"') for at, name in enumerate(NAMES)]

    def _fallbacks(self) -> list[Series]:
        fleet, n = self._loop.fleet, self._loop.fleet.size
        source, partial = fleet.hardware_source[:n], fleet.hardware_partial[:n]
        kinds = {
            "nvml": (source == pb.HARDWARE_SOURCE_NVML) & ~partial,
            "partial": partial,
            "dcgm_fallback": (source == pb.HARDWARE_SOURCE_NONE) & ~partial,
            "member_lost": fleet.member_lost[:n],
            "telemetry_lost": fleet.telemetry_lost[:n],
        }
        return [Series(on.astype(np.float64), f',kind="{kind}"') for kind, on in kinds.items()]

    def _warnings(self) -> list[Series]:
        """Only those in force have a line: few cells ever have one."""
        scored = self._loop.pressures
        if scored is None or scored.early is None:
            return []
        on = scored.early.alerts
        return [
            Series(np.where(on[:, at], 1.0, np.nan), f',kind="{kind}"')
            for at, kind in enumerate(KINDS)
            if on[:, at].any()
        ]

    def _members(self) -> str:
        """Few cells span several nodes: these are written at once."""
        name, fleet = "headrace_cell_member_up", self._loop.fleet
        lines = [Family(name, "1 while another node under the cell reports.", ()).head]
        for row, (cell, site) in zip(self._rows.tolist(), self._labels, strict=True):
            for member in fleet.crews.members(row):
                node = f',node="{escape(member.node)}"'
                lines.append(f"{name}{cell}{node}{site} {float(not member.lost)}\n")
        return "".join(lines)

    def _few(self) -> str:
        name = "headrace_gateway_connected"
        lines = [Family(name, "Envoys connected as this gateway.", ()).head]
        for gateway, status in self._xds.status().items():
            lines.append(f'{name}{{gateway="{escape(gateway)}"}} {float(status.streams)}\n')
        lines += self._refusals()
        name = "headrace_self_preservation"
        lines.append(Family(name, "1 while expiries are withheld.", ()).head)
        lines.append(f"{name} {float(self._loop.self_preservation)}\n")
        for name, said, on in (
            ("headrace_shadow", "1 while weights are computed and not pushed.", self._loop.intents.shadow),
            ("headrace_frozen", "1 while weights are held.", self._loop.intents.frozen),
        ):
            lines.append(Family(name, said, ()).head + f"{name} {float(on)}\n")
        return "".join(lines)

    def _refusals(self) -> list[str]:
        """What is published and refused: the counter of refusals stands still while one lasts."""
        name = "headrace_gateway_refuses"
        lines = [Family(name, "1 while an Envoy refuses what is published.", ()).head]
        for gateway, status in self._xds.status().items():
            for kind, each in status.types.items():
                label = f'gateway="{escape(gateway)}",type="{kind}"'
                lines.append(f"{name}{{{label}}} {float(each.nacked is not None)}\n")
        return lines


def _reported(all_accounts: Mapping[str, Mapping[str, Account]]) -> Iterator[str]:
    """What gateways report, by cell; most of what has not happened has no line."""
    rows = [
        (f'{{gateway="{escape(gateway)}",cell="{escape(cell)}"', cell, account)
        for gateway, accounts in all_accounts.items()
        for cell, account in accounts.items()
    ]
    name = "headrace_gateway_requests_total"
    yield f"# HELP {name} Requests as gateways saw them, by what became of them.\n# TYPE {name} counter\n"
    for start in range(0, len(rows), SLICE // 4):
        yield "".join(
            f'{name}{labels},class="{OUTCOMES[at]}"}} {account.counts[at]}\n'
            for labels, cell, account in rows[start : start + SLICE // 4]
            for at in _outcomes(cell, account)
        )
    name = "headrace_gateway_requests_in_progress"
    yield Family(name, "Requests open at the gateway's Envoys, by their load reports.", ()).head
    for start in range(0, len(rows), SLICE // 4):
        yield "".join(
            f"{name}{labels}}} {sum(account.in_progress.values())}\n"
            for labels, _, account in rows[start : start + SLICE // 4]
            if account.issued
        )


def _outcomes(cell: str, account: Account) -> list[int]:
    """Those with a line: what has happened, and what a rate needs the 0 of before it first happens."""
    happened = {at for at, count in enumerate(account.counts) if count}
    if not cell:
        return sorted(happened | {int(Outcome.UNROUTED)})
    return sorted(happened | {int(Outcome.OK), int(Outcome.SERVER_ERROR)}) if happened else []


def escape(value: str) -> str:
    """A label's value as the text format wants it."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _lines(name: str, series: Series, rows: NDArray[np.int64], labels: list[_Label]) -> Iterator[str]:
    """A line for each row that has a value; rows beyond the series' end have none."""
    known = rows[rows < len(series.values)]
    values, own = series.values[known].tolist(), series.label
    for start in range(0, len(values), SLICE):
        part = zip(labels[start : start + SLICE], values[start : start + SLICE], strict=False)
        yield "".join(
            [f"{name}{cell}{own}{site} {value}\n" for (cell, site), value in part if value == value]
        )

"""Keeps the picker's picture of the fleet: who may be named, and what engines say of themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np
from prometheus_client import CollectorRegistry

from headrace_controller.control.pick_metrics import PickMetrics
from headrace_controller.control.witness import Witness
from headrace_controller.gateway.identity import GatewayOf
from headrace_controller.inventory import Fleet, Pools
from headrace_controller.picker.candidates import Candidates, Flags, Ints, Lineup
from headrace_controller.picker.guards import Standing
from headrace_controller.picker.picker import MAX_AGE_S, Picker
from headrace_controller.picker.profiles import speed_of
from headrace_controller.picker.recent import PickView
from headrace_controller.picker.service import Hooks, PickerService
from headrace_controller.picker.stalls import COUNT_EACH_STEP
from headrace_controller.picker.view import Rows, greatest_lengths, line_up, paths, penalty, placed
from headrace_controller.pressure import Pressures
from headrace_controller.projection import NO_INTENTS, Intents, Projected
from headrace_controller.settings import ControllerSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.clock import Clock
from headrace_shared.signals import CELL_SIGNALS

_WAITING: Final = CELL_SIGNALS.index("queue_depth")


@dataclass(frozen=True, slots=True)
class PickerStatus:
    """The picker at a glance; `enabled` is the settings'. `said`: why it names nobody, "" = it does. Errors
    are how many times too long or short a typical prediction is, and a plain guess; None = not enough
    requests. `cache_found`: of what was expected in prefix caches, the share that engines found there."""

    enabled: bool = False
    on: bool = False
    naming: bool = False
    said: str = "picker.enabled is not set"
    open_requests: int = 0
    lost_requests: int = 0
    picks: Mapping[str, int] = field(default_factory=dict)
    prediction_error: float | None = None
    guess_error: float | None = None
    slow_share: float | None = None
    cache_found: float | None = None


@dataclass(frozen=True, slots=True)
class _Part:
    """One pool's lineup, and where its cells stand among the projected memberships."""

    model: str
    lineup: Lineup
    rows: Rows
    places: Ints


@dataclass(frozen=True, slots=True)
class _Of:
    """What lineups are made of. The projector gives the same arrays as long as nothing of them changes."""

    row: Ints
    pools: Pools
    addresses: int
    rows: int

    def is_same(self, other: _Of) -> bool:
        """True where lineups made of the one are those of the other."""
        same = self.row is other.row and self.pools is other.pools
        return same and (self.addresses, self.rows) == (other.addresses, other.rows)


OnStanding = Callable[[str, str], None]
"""Hears why the picker names no cells, "" = it does, and which of its guards says so, "" = none; once at
first, and at each change."""


class PickerFeed(Witness):
    """A witness that gives the picker its candidates at each tick, and engines' figures at each beat.
    `counts` are its picks by outcome, as they are counted elsewhere."""

    def __init__(
        self,
        picker: Picker,
        fleet: Fleet,
        clock: Clock,
        counts: Mapping[str, int] = MappingProxyType({}),
        on_standing: OnStanding = lambda said, kind: None,
    ) -> None:
        self.picker = picker
        self._on_standing = on_standing
        self._standing: tuple[str, str] | None = None
        self._scored_at = -np.inf
        self._counts = counts
        self._fleet = fleet
        self._clock = clock
        self._rows: dict[Lineup, Rows] = {}
        self._parts: list[_Part] = []
        self._of: _Of | None = None
        self._models: dict[str, str] = {}
        self._intents = NO_INTENTS
        picker.usable = self._usable

    def explain(self, request: str) -> PickView | None:
        """A recent pick; None where it is not kept."""
        return self.picker.recent.view(request, self._clock.now())

    def status(self) -> PickerStatus:
        """The picker at a glance."""
        now, book = self._clock.now(), self.picker.book
        standing = self.picker.known.guard.standing(now)
        said = self._said(standing) or self._stale(now)
        return PickerStatus(
            enabled=True,
            on=not self._intents.picker_off,
            naming=not said,
            said=said,
            open_requests=book.open_requests,
            lost_requests=book.lost,
            picks=dict(self._counts),
            prediction_error=_times(standing.error),
            guess_error=_times(standing.guess_error),
            slow_share=standing.slow_share,
            cache_found=self.picker.known.cache_check.share,
        )

    def names(self) -> bool:
        """Whether cells are named at this moment."""
        now = self._clock.now()
        return not (self._said(self.picker.known.guard.standing(now)) or self._stale(now))

    def _said(self, standing: Standing) -> str:
        if self._intents.picker_off:
            return "switched off by an operator"
        if self._intents.shadow:
            return "shadow: nothing of what is computed takes effect"
        return self._aside(standing)

    @staticmethod
    def _aside(standing: Standing) -> str:
        return "" if standing.on else f"stands aside: {standing.reason}"

    def _stale(self, now: float) -> str:
        # No event tells it: it comes and goes within a second where publications take long.
        if now - self._scored_at <= MAX_AGE_S:
            return ""
        return f"stands aside: no picture of the fleet is younger than {MAX_AGE_S:g} s"

    # control.witness.Witness

    def told(self, node: str, telemetry: pb.Telemetry, now: float) -> None:
        fleet = self._fleet
        for beat in telemetry.cells:
            row, model = fleet.get(beat.cell_id), self._models.get(beat.cell_id)
            if row is None or model is None or fleet.engine_stale[row]:
                continue
            generated = None
            if beat.work.HasField("generated_tokens") and fleet.facts_of(row).engine_kind in COUNT_EACH_STEP:
                generated = beat.work.generated_tokens
            self._told(row, model, now, generated)
            if beat.work.HasField("prompt_tokens"):
                waiting, read_at = float(fleet.signals[row, _WAITING]), self._read_at(row, now)
                prompt, cached = beat.work.prompt_tokens, beat.work.cached_tokens
                self.picker.computed(beat.cell_id, model, prompt, cached, waiting, read_at, now)

    def forgotten(self, cell_id: str, now: float) -> None:
        self._models.pop(cell_id, None)
        self.picker.forget(cell_id, now)

    def intended(self, intents: Intents, now: float) -> None:
        self._intents = intents
        self.picker.on = not (intents.picker_off or intents.shadow)

    def scored(self, pressures: Pressures, projected: Projected, now: float) -> None:
        fleet = self._fleet
        self._tell_standing(now)
        of = _Of(projected.row, projected.pools, fleet.addresses_version, fleet.rows_version)
        if self._of is None or not of.is_same(self._of):
            self._line_up(projected, now)
            self._of = of
        health, ramp, overrides = pressures.health(), projected.ramp, projected.overrides
        made = {}
        for part in self._parts:
            row, at = part.rows.row, part.places
            for number, gateway in enumerate(fleet.gateways):
                rtt_s, away = paths(fleet, row, number, now)
                factor = penalty(
                    pressures.pressure[number, row],
                    health[row],
                    ramp[at],
                    None if overrides is None else overrides[at],
                    projected.weights[number, at],
                    away,
                )
                made[gateway, part.model] = Candidates(part.lineup, now, rtt_s, factor)
        self.picker.candidates, self._scored_at = made, now

    def _tell_standing(self, now: float) -> None:
        """Say when the picker stands aside, and when it names cells again."""
        found = self.picker.known.guard.standing(now)
        said = self._said(found)
        # A rest that is hidden by an operator's wish is told when that has ended.
        standing = said, found.kind if said == self._aside(found) else ""
        if standing != self._standing:
            self._standing = standing
            self._on_standing(*standing)

    def _line_up(self, projected: Projected, now: float) -> None:
        fleet, pools = self._fleet, projected.pools
        greatest = greatest_lengths(fleet, pools).tolist()
        parts, first = [], dict[str, str]()
        for number, model in enumerate(pools.models):
            members = np.flatnonzero(projected.pool == number)
            cells = placed(fleet, projected.row[members].tolist())
            slots = [self._join(row, first, model, now) for _, row, _ in cells]
            lineup = line_up(fleet, model, cells, slots, greatest[number])
            rows = np.array([row for _, row, _ in cells], dtype=np.int64)
            places = members[[place for place, *_ in cells]] if cells else members[:0]
            parts.append(_Part(model, lineup, Rows(rows, fleet.generation[rows]), places))
        self._parts = parts
        self._models |= first
        self._rows = {part.lineup: part.rows for part in parts}
        self.picker.keep(frozenset(pools.models))

    def _join(self, row: int, first: dict[str, str], model: str, now: float) -> int:
        """The slot of a cell; `first` gets the model that it goes by: the one it had, else its first."""
        facts = self._fleet.facts_of(row)
        slot = self.picker.join(facts.cell_id, model, speed_of(gpu.name for gpu in facts.gpus), now)
        known = self._models.get(facts.cell_id)
        is_new = known is None and facts.cell_id not in first
        if facts.cell_id not in first or model == known:
            first[facts.cell_id] = model
        if is_new and not self._fleet.engine_stale[row]:
            # Its next beat may be a quarter of a second away, and its queue long.
            self._told(row, model, now)
        return slot

    def _told(self, row: int, model: str, now: float, generated: int | None = None) -> None:
        fleet = self._fleet
        in_flight, waiting = float(fleet.in_flight[row]), float(fleet.signals[row, _WAITING])
        cell_id, read_at = fleet.facts_of(row).cell_id, self._read_at(row, now)
        self.picker.told(cell_id, model, in_flight, waiting, read_at, now, generated)

    def _read_at(self, row: int, now: float) -> float:
        read_at = float(self._fleet.engine_read_at[row])
        return read_at if read_at == read_at else now

    def _usable(self, lineup: Lineup) -> Flags | None:
        rows = self._rows.get(lineup)
        return None if rows is None else rows.usable(self._fleet)


def _times(error: float | None) -> float | None:
    return None if error is None else float(np.exp(error))


class Picking:
    """The running fast loop: the picker, what feeds it, what counts it, and the service in front of it.

    With `gateway_of` a gateway's certificate must name it; `on_refused` hears why one was not served,
    `on_standing` why no cells are named.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        clock: Clock,
        fleet: Fleet,
        registry: CollectorRegistry,
        gateway_of: GatewayOf | None = None,
        on_refused: Callable[[str], None] = lambda reason: None,
        on_standing: OnStanding = lambda said, kind: None,
    ) -> None:
        # Several controllers that know the same must not make the same choices.
        chance = np.random.default_rng()
        hedge_after_s = settings.envoy.hedge_after_s if settings.envoy.retries else 0.0
        self.picker = Picker(settings.picker, settings.capability, chance, hedge_after_s)
        metrics = PickMetrics(registry, self.picker)

        def stands(said: str, kind: str) -> None:
            metrics.rests(kind)
            on_standing(said, kind)

        self.feed = PickerFeed(self.picker, fleet, clock, metrics.counts, stands)
        metrics.watch(self.feed.names)
        self.service = PickerService(
            self.picker,
            clock,
            settings.picker,
            [gateway.id for gateway in settings.gateways],
            Hooks(metrics.picked, metrics.served, on_refused),
            gateway_of,
        )

"""The fast loop: asked for a request, it names a cell; told what came of it, it learns.

Pure but for what it keeps: every time comes in as `now` (s, one clock), chance from the generator given.
A simulator and the gRPC service use it alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from headrace_controller.picker.book import NOWHERE, Book, Open
from headrace_controller.picker.candidates import UNKNOWN_LENGTH, Candidates, Flags, Lineup
from headrace_controller.picker.choice import Choice, Need, choose, fitting
from headrace_controller.picker.cost import RUNNING, Costs, costs
from headrace_controller.picker.ejections import OVERTAKEN, Ejections
from headrace_controller.picker.known import Followed, Known
from headrace_controller.picker.recent import Recent, Trace
from headrace_controller.picker.requests import Ask, Outcome, Pick, Served
from headrace_controller.picker.sizes import MOST_BYTES_PER_TOKEN
from headrace_controller.settings import CapabilitySettings, PickerSettings

MAX_AGE_S: Final = 1.0
"""A picture of the fleet that is older is not trusted."""
DECODE_S: Final = 0.03
"""Taken for one token of an answer, as long as engines do not say how many requests they have."""
OUTPUT_TOKENS: Final = 200
FIRST_FAILURE: Final = 500
OWN_ERROR: Final = 500


class Picker:
    """All pools at all gateways of one controller: they share one book.

    `candidates` (by gateway and model) are replaced from outside, and so is `usable`: which of a lineup's
    cells are READY at this very moment, None = all. Gateways ask a second cell for a stream that has not
    begun `hedge_after_s` after it was sent; 0 = they do not.
    """

    def __init__(
        self,
        settings: PickerSettings,
        capability: CapabilitySettings,
        chance: np.random.Generator,
        hedge_after_s: float = 0.0,
    ) -> None:
        self._settings = settings
        self._hedge_after_s = hedge_after_s or math.inf
        self._capability = capability
        self._chance = chance
        self._followed: dict[str, Followed] = {}
        self._ejections: dict[str, Ejections] = {}
        self.book = Book(settings.expiry_s)
        self.known = Known(settings, self.book)
        self.recent = Recent()
        self.on = True
        self.candidates: Mapping[tuple[str, str], Candidates] = {}
        self.usable: Callable[[Lineup], Flags | None] = lambda lineup: None

    # The fleet.

    def join(self, cell_id: str, model: str, speed: float, now: float) -> int:
        """The slot of a cell, a new one where it has none; `speed` is that of its GPUs, 1 = one H100."""
        slot = self.book.get(cell_id)
        if slot is None:
            slot = self.book.slot(cell_id, now)
            self.known.begin(slot, model, speed, now)
        return slot

    def forget(self, cell_id: str, now: float) -> None:
        """A cell is gone for good."""
        slot = self.book.forget(cell_id)
        if slot is not None:
            self.known.forget(slot, now)
            for each in self._ejections.values():
                each.forget(slot)

    def keep(self, models: frozenset[str]) -> None:
        """Only these pools are there; what is known of others is forgotten."""
        self.known.keep(models)

    def told(
        self,
        cell_id: str,
        model: str,
        in_flight: float,
        waiting: float,
        read_at: float,
        now: float,
        generated: int | None = None,
    ) -> None:
        """An engine's own figures as of `read_at`; NaN = not known. `generated`: tokens since its start, None
        = it does not count them. Nothing for an unknown cell."""
        slot = self.book.get(cell_id)
        if slot is None:
            return
        computing = 0.0
        if generated is not None:
            computing = self.known.computing(slot, read_at, generated, in_flight - waiting)
        met = self.known.sizes.met_tokens(model)
        self.book.told(slot, in_flight, waiting, read_at, met, now, computing)
        self.known.passed(slot, model, now)

    def computed(
        self, cell_id: str, model: str, prompt: int, cached: int, waiting: float, read_at: float, now: float
    ) -> None:
        """An engine's own totals since its start, as of `read_at`: prompt tokens, and those of them that it
        found in its prefix cache; `waiting` as in `told`."""
        slot = self.book.get(cell_id)
        if slot is not None:
            self.known.computed(slot, model, prompt, cached, waiting, read_at, now)

    # Requests.

    def pick(self, gateway: str, ask: Ask, now: float) -> Pick:
        """Name a cell for a request; a pick without cells leaves it to the gateway. Requests that are
        named a cell, or left, are followed: tell `answered` or `ended`."""
        if not self.on:
            return Pick(Outcome.OFF)
        if not self.known.guard.on(now):
            return Pick(Outcome.RESTING)
        candidates = self.candidates.get((gateway, ask.model))
        if candidates is None:
            return Pick(Outcome.NO_POOL)
        if now - candidates.at > MAX_AGE_S:
            return Pick(Outcome.STALE)
        self._settle(now)
        lineup = candidates.lineup
        tokens = ask.tokens or self.known.sizes.tokens(ask.model, ask.size, lineup.greatest)
        self.known.sizes.note(ask.model, tokens)
        trace = Trace(gateway, now, ask, Pick(Outcome.LEFT), tokens, candidates)
        if self._chance.random() >= self._settings.trickle:
            self._choose(trace, candidates, now)
        else:
            self._follow(trace, lineup, NOWHERE, 0.0)
        self.recent.add(trace)
        return trace.pick

    def answered(
        self,
        key: str,
        now: float,
        address: str = "",
        status: int = 200,
        prompt_tokens: int | None = None,
        began_at: float | None = None,
    ) -> Served | None:
        """The first of the answer to a request has come, from `address` ("" = the gateway itself
        answered), or all of one without a body; `prompt_tokens` where the answer says them. Its headers
        came at `began_at`, None = not told. None where it is not followed."""
        followed = self._followed.pop(key, None)
        if followed is None:
            return None
        ask, lineup = followed.ask, followed.lineup
        place = self._place(lineup, address)
        slot = NOWHERE if place is None else int(lineup.slots[place])
        good = place is not None and status < 400
        request = self.book.answer(key, now, streams=ask.streams and good, slot=slot)
        if prompt_tokens is not None and ask.size is not None and good:
            self.known.sizes.learn(ask.model, ask.size, prompt_tokens)
        as_named = bool(followed.pick.addresses) and address == followed.pick.addresses[0]
        cell = "" if place is None else lineup.ids[place]
        served = Served(cell, as_named, None, None, named=bool(followed.pick.cells))
        overtaken = (
            request is not None
            and good
            and not as_named
            and self._is_late(followed, request, now if began_at is None else began_at)
        )
        self._judge(followed, slot, address, as_named, status, now, overtaken)
        if request is not None and not (good and as_named):
            self.known.missed(followed, request)
        if overtaken and request is not None:
            self.known.late(followed, request, now)
        if request is not None and good and ask.streams:
            served = self.known.learn(followed, request, slot, cell, as_named, now)
        if good:
            self.known.remember(ask, cell, slot, now, followed.tokens)
        if (trace := self.recent.get(key)) is not None:
            trace.served = served
        return served

    def ended(self, key: str, now: float) -> None:
        """A request has ended without an answer: its client left, or nobody knows."""
        followed, request = self._followed.pop(key, None), self.book.end(key, now)
        if followed is not None and request is not None:
            self.known.missed(followed, request)

    def is_ejected(self, gateway: str, slot: int, now: float) -> bool:
        """Whether a gateway cannot use the cell for now."""
        found = self._ejections.get(gateway)
        return found is not None and found.out(slot, now)

    # Choosing.

    def _choose(self, trace: Trace, candidates: Candidates, now: float) -> None:
        ask, lineup = trace.ask, candidates.lineup
        cached = self.known.cached(ask, lineup, trace.tokens, now)
        weight = self._settings.held_up_weight
        found = costs(self.book.table, candidates, trace.tokens, now, cached, weight)
        usable = self._usable(trace.gateway, ask, lineup, now)
        choice = choose(
            found.cost,
            usable,
            self._settings.tolerance,
            float(self._chance.random()),
            self.known.preferred(ask, lineup, now, cached, found.cost),
            self._settings.balance,
            self._settings.fallbacks,
        )
        trace.costs, trace.usable, trace.cached = found, usable, cached
        if choice is None:
            trace.pick = Pick(Outcome.NO_CELL)
            return
        trace.pick = _pick_of(choice, lineup, found)
        self._follow(trace, lineup, choice.first, 0.0 if cached is None else float(cached[choice.first]))

    def _usable(self, gateway: str, ask: Ask, lineup: Lineup, now: float) -> Flags | None:
        usable = _both(self.usable(lineup), fitting(lineup, self._need(ask)))
        ejections = self._ejections.get(gateway)
        return usable if ejections is None else _both(usable, ejections.usable(lineup, now))

    def _need(self, ask: Ask) -> Need:
        """Where the gateway has chosen a class, it goes by what is learned of sizes there."""
        output = ask.output or 0
        if ask.tokens is not None:
            need = float(ask.tokens + output)
            return Need(need, need, ask.routed_length or 0)
        size = ask.size or 0
        surely = size / MOST_BYTES_PER_TOKEN + output if size else 0.0
        if ask.routed_length:
            return Need(ask.routed_length, surely, ask.routed_length)
        if ask.size is None:
            # As gateways do: what is of unknown length goes where the most fits.
            return Need(math.inf, surely)
        rule = self._capability
        return Need(size / rule.bytes_per_token + output + rule.reserve_tokens, surely)

    def _follow(self, trace: Trace, lineup: Lineup, at: int, cached: float) -> None:
        ask, now, found = trace.ask, trace.at, trace.costs
        output = min(ask.output or OUTPUT_TOKENS, 4 * OUTPUT_TOKENS)
        request = Open(NOWHERE, ask.model, trace.tokens, now, decode_s=output * DECODE_S)
        per_token = held = 0.0
        if at != NOWHERE and found is not None and trace.candidates is not None:
            request.slot = slot = int(lineup.slots[at])
            per_token = self.known.learner.rates(slot).s_per_token
            request.tokens = max(1, int(trace.tokens - cached))
            held = cached / self.known.prefixes.trust(slot)
            request.predicted_s = float(found.predicted[at])
            request.rtt_s = float(trace.candidates.rtt_s[at])
            request.work = float(found.work[at])
            request.running = float(self.book.table[slot, RUNNING])
            if not ask.streams:
                request.due = now + request.predicted_s
            if ask.blocks:
                # Those that come before its first token will find them there too.
                self.known.prefixes.note(slot, ask.blocks, now)
        self.book.send(ask.key, request)
        self._followed[ask.key] = Followed(
            trace.gateway, ask, trace.pick, lineup, cached, held, float(trace.tokens), per_token
        )

    # Learning.

    def _place(self, lineup: Lineup, address: str) -> int | None:
        """Where the cell that answered stands; None where it is gone meanwhile, or was never here."""
        place = lineup.place(address)
        if place is None or self.book.cell(int(lineup.slots[place])) != lineup.ids[place]:
            return None
        return place

    def _is_late(self, followed: Followed, request: Open, began_at: float) -> bool:
        """Whether another cell was likely asked because the named one had not begun."""
        return followed.ask.streams and began_at - request.sent_at >= self._hedge_after_s

    def _judge(
        self,
        followed: Followed,
        slot: int,
        address: str,
        as_named: bool,
        status: int,
        now: float,
        overtaken: bool,
    ) -> None:
        """Note whether the named cell could be used at this gateway."""
        if not followed.pick.cells or (not address and 0 < status < FIRST_FAILURE):
            # What the gateway itself turned away, such as a client without a key, came to no cell.
            return
        ejections = self._ejections.setdefault(followed.gateway, Ejections())
        named = self.book.get(followed.pick.cells[0])
        if named is None:
            return
        if not as_named:
            ejections.failed(named, now, OVERTAKEN if overtaken else 1.0)
        elif status == OWN_ERROR:
            ejections.erred(named, now)
        elif status >= FIRST_FAILURE:
            ejections.failed(named, now)
        else:
            ejections.worked(named)
        if not as_named and slot != NOWHERE and status < FIRST_FAILURE:
            ejections.worked(slot)

    def _settle(self, now: float) -> None:
        for key in self.book.settle(now):
            self._followed.pop(key, None)


def _both(one: Flags | None, other: Flags | None) -> Flags | None:
    """Marked in both; None = all are."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _pick_of(choice: Choice, lineup: Lineup, found: Costs) -> Pick:
    places = (choice.first, *choice.fallbacks)
    return Pick(
        Outcome.AFFINITY if choice.by_affinity else Outcome.NAMED,
        tuple(lineup.ids[at] for at in places),
        tuple(lineup.addresses[at] for at in places),
        float(found.predicted[choice.first]),
    )


__all__ = ["MAX_AGE_S", "UNKNOWN_LENGTH", "Picker"]

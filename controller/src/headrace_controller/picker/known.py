"""What the picker knows of cells and prompts beside what is under way: speeds, sizes, caches, sessions.

Answers teach it, and so do engines' own counts. Pure but for what it keeps, as the picker itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace_controller.picker.affinity import Prefixes, Sessions, fullest
from headrace_controller.picker.book import Book, Open
from headrace_controller.picker.cache_check import CacheCheck
from headrace_controller.picker.candidates import Floats, Lineup
from headrace_controller.picker.cost import SINCE
from headrace_controller.picker.guards import Guard
from headrace_controller.picker.rates import Learner
from headrace_controller.picker.requests import Ask, Pick, Served
from headrace_controller.picker.sizes import Sizes
from headrace_controller.picker.stalls import Stalls
from headrace_controller.picker.throughput import Throughput
from headrace_controller.settings import PickerSettings

CACHED_SHARE: Final = 0.2
"""Cells are not judged by requests of which more than this part of the work is expected to be cached."""


@dataclass(frozen=True, slots=True)
class Followed:
    """A request under way besides what the book holds of it. Of the `tokens` of its prompt the cell
    computed `held` before, and `cached` are expected in its cache."""

    gateway: str
    ask: Ask
    pick: Pick
    lineup: Lineup
    cached: float = 0.0
    held: float = 0.0
    tokens: float = 0.0
    s_per_token: float = 0.0


class Known:
    """All pools of one controller; cells go by their slots in the `book`, which it keeps the rates of."""

    def __init__(self, settings: PickerSettings, book: Book) -> None:
        self._block_bytes = settings.prefix_block_bytes
        self._book = book
        self._throughput = Throughput()
        self._stalls = Stalls()
        self.learner = Learner(settings.prefill_tokens_per_s)
        self.sizes = Sizes(settings.bytes_per_token)
        self.sessions = Sessions()
        self.prefixes = Prefixes()
        self.cache_check = CacheCheck()
        self.guard = Guard(settings.slow_pick_s)

    # The fleet.

    def begin(self, slot: int, model: str, speed: float, now: float) -> None:
        """A cell that nothing is known of; `speed` is that of its GPUs, 1 = one H100."""
        # It may have been here before, at another slot.
        self.prefixes.empty(slot, now)
        self._book.set_rates(slot, self.learner.begin(slot, model, speed, now))

    def forget(self, slot: int, now: float) -> None:
        """The slot is nobody's."""
        self.learner.forget(slot)
        self.prefixes.forget(slot, now)
        self.cache_check.forget(slot)
        self._throughput.forget(slot)
        self._stalls.forget(slot)

    def keep(self, models: frozenset[str]) -> None:
        """Only these pools are there; what is known of others is forgotten."""
        self.sizes.keep(models)
        self.guard.keep(models)
        self.learner.keep(models)

    # What engines say.

    def computing(self, slot: int, read_at: float, generated: int, running: float) -> float:
        """0 to 1: how surely a prompt of others is under computation, by the tokens `generated` since the
        engine's start beside it; `running` are the requests in its batch."""
        since, computing = self._stalls.read(slot, read_at, generated, running)
        # Else one of ours was computed meanwhile.
        return computing if self._book.table[slot, SINCE] < since else 0.0

    def passed(self, slot: int, model: str, now: float) -> None:
        """Time passed over what the cell has shown."""
        if (rates := self.learner.fade(slot, model, now)) is not None:
            self._book.set_rates(slot, rates)

    def computed(
        self, slot: int, model: str, prompt: int, cached: int, waiting: float, read_at: float, now: float
    ) -> None:
        """An engine's own totals since its start, as of `read_at`: prompt tokens, and those of them that it
        found in its prefix cache; `waiting` requests, NaN = not known."""
        stretch = self._throughput.read(slot, read_at, prompt, waiting > 0, cached)
        if stretch is not None and not self.learner.samples[slot]:
            self._book.set_rates(slot, self.learner.saw_queue(slot, model, *stretch))
        if self.cache_check.restarted(slot, prompt, cached):
            self.prefixes.empty(slot, now)
        found = self.cache_check.counted(slot, prompt, cached)
        if found is not None:
            self.prefixes.check(slot, found)

    # What answers say.

    def learn(
        self, followed: Followed, request: Open, slot: int, cell: str, as_named: bool, now: float
    ) -> Served:
        """A first token came from the cell at `slot`."""
        observed = now - request.sent_at
        if not as_named:
            # What a first try at another cell took is in it.
            return Served(cell, False, observed, None, named=bool(followed.pick.cells))
        saving = followed.cached * followed.s_per_token
        self.cache_check.answered(slot, request.tokens + followed.cached, followed.held)
        if saving > 0.0 and not self.cache_check.counts(slot):
            self.prefixes.learn(slot, (request.predicted_s + saving - observed) / saving)
        if followed.cached <= CACHED_SHARE * request.work:
            # Else a saving that did not come true would pass for slowness.
            away = max(observed - request.rtt_s, 0.0)
            self._book.set_rates(
                slot, self.learner.observe(slot, request.model, request.work, request.running, away)
            )
        error = self.guard.saw(request.model, request.predicted_s, observed, now)
        return Served(cell, True, observed, request.predicted_s, error)

    def late(self, followed: Followed, request: Open, now: float) -> None:
        """The cell that was named had not begun when another one did: its first token would have come later,
        so much is known of it."""
        slot = self._book.get(followed.pick.cells[0])
        elapsed = now - request.sent_at - request.rtt_s
        if slot is None or elapsed <= request.predicted_s or followed.cached > CACHED_SHARE * request.work:
            return
        self._book.set_rates(
            slot, self.learner.observe(slot, request.model, request.work, request.running, elapsed)
        )

    def missed(self, followed: Followed, request: Open) -> None:
        """The cell that was named gave no answer, so what its prompt begins with is not in its cache."""
        slot = self._book.get(followed.pick.cells[0]) if followed.pick.cells else None
        if slot is not None and followed.ask.blocks:
            self.prefixes.drop(slot, followed.ask.blocks, request.sent_at)

    def remember(self, ask: Ask, cell: str, slot: int, now: float, tokens: float) -> None:
        """A request's session and prompt were at a cell."""
        if ask.session:
            self.sessions.note(ask.model, ask.session, cell, now, tokens)
        if ask.blocks:
            self.prefixes.note(slot, ask.blocks, now)

    # What is expected.

    def cached(self, ask: Ask, lineup: Lineup, tokens: int, now: float) -> Floats | None:
        """(m,): the tokens of a prompt that each cell is expected to hold; None = none anywhere."""
        if ask.blocks:
            block_tokens = self._block_bytes / self.sizes.bytes_per_token(ask.model)
            each = min(block_tokens, tokens / len(ask.blocks))
            return self.prefixes.cached(lineup, ask.blocks, each, now)
        at = self._at_session(ask, lineup, now)
        if at is None:
            return None
        slot = int(lineup.slots[at])
        held, noted_at = self.sessions.held(ask.model, ask.session, tokens)
        if not held or not self.prefixes.is_held(slot, noted_at, now):
            return None
        cached = np.zeros(len(lineup))
        cached[at] = held * self.prefixes.trust(slot)
        return cached

    def preferred(
        self, ask: Ask, lineup: Lineup, now: float, cached: Floats | None, cost: Floats
    ) -> Sequence[int]:
        """Where the cells stand that a request belongs to, the one of its session first."""
        at = self._at_session(ask, lineup, now)
        return (*(() if at is None else (at,)), *(() if cached is None else fullest(cached, cost)))

    def _at_session(self, ask: Ask, lineup: Lineup, now: float) -> int | None:
        """Where the cell that the request's session was at stands."""
        cell = self.sessions.cell(ask.model, ask.session, now) if ask.session else ""
        slot = self._book.get(cell) if cell else None
        return None if slot is None else lineup.position.get(slot)

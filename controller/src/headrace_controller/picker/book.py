"""The book of what was sent where and has not been answered: each cell's pending work and load.

Invariants, which `check` tests: a cell's pending tokens are those of its counted requests, so they are
never negative and 0 when there is none; a request is counted at one cell at most; nothing stays open for
longer than `expiry_s`.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace_controller.picker.candidates import Floats
from headrace_controller.picker.cost import (
    COLUMNS,
    HEAD,
    OTHERS,
    OTHERS_AT,
    PENDING,
    RUNNING,
    S_FIXED,
    S_PER_RUNNING,
    S_PER_TOKEN,
    SINCE,
    WAITING,
)
from headrace_controller.picker.rates import Rates

NOWHERE: Final = -1
"""The slot of a request that was left to the gateway: where it goes is known when it is answered."""
IN_DOUBT_S: Final = 1.0
"""A request sent so shortly before an engine's figures were read may not have reached it then."""
SAME_READING_S: Final = 0.25
"""Readings that are closer may be one that was told twice: when it was taken is reckoned from when the beat
came, and beats take now longer and now less long."""
_FIRST_SLOTS: Final = 16
# Nobody is sent to a slot without a cell, but pools are computed whole.
_BLANK: Final = np.zeros(COLUMNS)
_BLANK[[S_PER_TOKEN, S_FIXED]] = 1.0


@dataclass(slots=True)
class Open:
    """A request under way. `tokens` are those to compute, `work` and `running` what it found at its
    cell; `due` is when its first token should have come where no answer says so (no stream)."""

    slot: int
    model: str
    tokens: int
    sent_at: float
    predicted_s: float = 0.0
    rtt_s: float = 0.0
    work: float = 0.0
    running: float = 0.0
    due: float | None = None
    decode_s: float = 10.0
    counted: bool = False


class Book:
    """Pure but for what it keeps; times are the controller's, s. Slots number the cells."""

    def __init__(self, expiry_s: float) -> None:
        self.table: Floats = np.tile(_BLANK, (_FIRST_SLOTS, 1))
        """(n, COLUMNS): see `cost`."""
        self._expiry_s = expiry_s
        self._slots: dict[str, int] = {}
        self._cells: dict[int, str] = {}
        self._queues: dict[int, OrderedDict[str, Open]] = {}
        self._decoding: dict[int, int] = {}
        self._free: list[int] = []
        self._used = 0
        self._open: OrderedDict[str, Open] = OrderedDict()
        self._due: list[tuple[float, str]] = []
        self._ends: list[tuple[float, int, str]] = []
        self._short: dict[int, tuple[float, int]] = {}
        """Slot → when an engine was read last that knew fewer requests than it should, and how many fewer."""
        self.lost = 0
        """Requests that were taken out because they ran out of time or engines do not know them."""

    # Cells.

    def slot(self, cell_id: str, now: float) -> int:
        """A slot for a cell that has none yet; set its rates next."""
        slot = heapq.heappop(self._free) if self._free else self._used
        if slot == self._used:
            self._used += 1
            if slot == len(self.table):
                self.table = np.concatenate((self.table, np.tile(_BLANK, (slot, 1))))
        self._slots[cell_id], self._cells[slot] = slot, cell_id
        self._queues[slot], self._decoding[slot] = OrderedDict(), 0
        self.table[slot] = _BLANK
        self.table[slot, [SINCE, OTHERS_AT]] = now
        return slot

    def get(self, cell_id: str) -> int | None:
        """The slot of a cell, None where it has none."""
        return self._slots.get(cell_id)

    def cell(self, slot: int) -> str:
        """The cell of a slot; "" where it has none."""
        return self._cells.get(slot, "")

    def cells(self) -> dict[str, int]:
        """Every cell's slot."""
        return dict(self._slots)

    def forget(self, cell_id: str) -> int | None:
        """A cell is gone; its slot, None where it has none. Its requests are nobody's now."""
        slot = self._slots.pop(cell_id, None)
        if slot is None:
            return None
        for each in [each for each in self._open.values() if each.slot == slot]:
            each.slot, each.counted = NOWHERE, False
        # A later cell's slot must not lose what this one was decoding.
        self._ends = [end for end in self._ends if end[2] != cell_id]
        heapq.heapify(self._ends)
        del self._cells[slot], self._queues[slot], self._decoding[slot]
        self._short.pop(slot, None)
        self.table[slot] = _BLANK
        heapq.heappush(self._free, slot)
        return slot

    def set_rates(self, slot: int, rates: Rates) -> None:
        """What was learned of a cell."""
        row = self.table[slot]
        row[S_PER_TOKEN], row[S_FIXED] = rates.s_per_token, rates.fixed_s
        row[S_PER_RUNNING] = rates.s_per_running

    # Requests.

    def send(self, key: str, request: Open) -> None:
        """A request goes to `request.slot`, or NOWHERE that is known. A key that is open already is the
        same request, sent anew."""
        self.end(key, request.sent_at)
        self._open[key] = request
        slot = request.slot
        if slot == NOWHERE:
            return
        queue, row = self._queues[slot], self.table[slot]
        if not queue:
            row[SINCE] = request.sent_at
        queue[key] = request
        request.counted = True
        row[PENDING] += request.tokens
        row[RUNNING] += 1
        row[WAITING] += 1
        row[HEAD] = next(iter(queue.values())).tokens
        if request.due is not None:
            # What ends before it is due stays here till then: no longer than it could have been open.
            heapq.heappush(self._due, (min(request.due, request.sent_at + self._expiry_s), key))

    def get_open(self, key: str) -> Open | None:
        """A request under way."""
        return self._open.get(key)

    def answer(self, key: str, now: float, streams: bool, slot: int | None = None) -> Open | None:
        """The first token, or the whole answer where nothing `streams`, has come, from the cell at `slot`
        where that is known and may differ from the one asked. None where the request is not open."""
        request = self._open.pop(key, None)
        if request is None:
            return None
        was = request.slot
        self._uncount(key, request, now)
        at = was if slot is None else slot
        if was != NOWHERE and (at != was or not streams):
            self._left(was)
        if streams and at in self._queues:
            if at != was:
                self.table[at, RUNNING] += 1
            self._decoding[at] += 1
            heapq.heappush(self._ends, (now + request.decode_s, at, self._cells[at]))
        return request

    def end(self, key: str, now: float) -> Open | None:
        """A request has ended without an answer; None where it is not open."""
        return self.answer(key, now, streams=False)

    def settle(self, now: float) -> list[str]:
        """Take out what time alone ends; the requests that ran out of time and are not open any more."""
        while self._due and self._due[0][0] <= now:
            _, key = heapq.heappop(self._due)
            request = self._open.get(key)
            if request is not None and request.due is not None and request.due <= now:
                self._uncount(key, request, now)
        while self._ends and self._ends[0][0] <= now:
            _, slot, _ = heapq.heappop(self._ends)
            self._decoding[slot] -= 1
            self._left(slot)
        lost = []
        while self._open:
            key, request = next(iter(self._open.items()))
            if request.sent_at + self._expiry_s > now:
                break
            self.end(key, now)
            lost.append(key)
        self.lost += len(lost)
        return lost

    # What engines say.

    def told(
        self,
        slot: int,
        in_flight: float,
        waiting: float,
        read_at: float,
        met_tokens: float,
        now: float,
        computing: float = 0.0,
    ) -> None:
        """Take in an engine's figures as of `read_at`: requests in it, and those of them that wait; NaN =
        not known. What it has beyond ours are others' requests. `met_tokens` is how long a prompt is that
        is met under way, `computing`, 0 to 1, how surely one is computed though none waits."""
        if in_flight != in_flight:
            return
        row, queue = self.table[slot], self._queues[slot]
        reached = [key for key, each in queue.items() if each.sent_at <= read_at]
        row[RUNNING] = in_flight + len(queue) - len(reached)
        ours = len(reached) + self._decoding[slot]
        others = max(0.0, in_flight - ours)
        # One of ours may be in the batch, as all of theirs may.
        unseen = waiting - max(0, len(reached) - 1) if waiting == waiting else 0.0
        unseen = min(max(unseen, 0.0), others)
        if not reached:
            # Who waits does so behind a prompt under computation.
            unseen += min(1.0 if unseen else computing, others - unseen)
        row[OTHERS] = unseen * met_tokens
        row[WAITING] = len(queue) + unseen
        row[OTHERS_AT] = read_at
        self._doubt(slot, in_flight, read_at, now)

    def _doubt(self, slot: int, in_flight: float, read_at: float, now: float) -> None:
        """Take out requests that an engine does not know, the oldest first, once two readings say so."""
        queue = self._queues[slot]
        old = [key for key, each in queue.items() if each.sent_at <= read_at - IN_DOUBT_S]
        surplus = len(old) - int(in_flight)
        if surplus <= 0:
            self._short.pop(slot, None)
            return
        last_at, before = self._short.get(slot, (-np.inf, 0))
        if read_at - last_at < SAME_READING_S:
            return
        self._short[slot] = read_at, surplus
        for key in old[: min(surplus, before)]:
            self._uncount(key, queue[key], now)
            self.lost += 1

    def _uncount(self, key: str, request: Open, now: float) -> None:
        """Its prompt is computed, or will not be."""
        if not request.counted:
            return
        request.counted = False
        queue, row = self._queues[request.slot], self.table[request.slot]
        first = next(iter(queue)) == key
        del queue[key]
        row[PENDING] -= request.tokens
        row[WAITING] = max(row[WAITING] - 1, len(queue))
        if first:
            row[SINCE] = now
            row[HEAD] = next(iter(queue.values())).tokens if queue else 0.0

    def _left(self, slot: int) -> None:
        row = self.table[slot]
        row[RUNNING] = max(row[RUNNING] - 1, len(self._queues[slot]))

    # For people and tests.

    @property
    def open_requests(self) -> int:
        """Requests whose first token is waited for."""
        return len(self._open)

    def check(self) -> None:
        """Raise AssertionError unless the invariants hold."""
        assert self.table[:, [PENDING, HEAD, OTHERS, RUNNING, WAITING]].min() >= 0.0, "below 0"
        for slot, queue in self._queues.items():
            row = self.table[slot]
            assert row[PENDING] == sum(each.tokens for each in queue.values()), "pending is not the sum"
            assert all(each.counted and each.slot == slot for each in queue.values()), "counted elsewhere"
            assert row[WAITING] >= len(queue), "fewer wait than are counted"
            assert row[HEAD] == (next(iter(queue.values())).tokens if queue else 0), "not the head"
        counted = {key for queue in self._queues.values() for key in queue}
        assert counted == {key for key, each in self._open.items() if each.counted}, "counted and not open"

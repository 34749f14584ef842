"""The controller's own pickers at the simulated gateway, request by request.

A picker knows what a real one does: a body's size in bytes, the output that is asked for, the session,
the prompt's blocks where the settings have it read bodies, beats, and what it sees pass. It hears of a
first token when that reaches the gateway, and of nothing after it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

import numpy as np

from headrace_controller.control.loop import ControlLoop
from headrace_controller.control.picking import PickerFeed
from headrace_controller.picker.picker import Picker
from headrace_controller.picker.requests import Ask, Pick
from headrace_controller.settings import ControllerSettings
from headrace_lab.sim.agents import GATEWAY
from headrace_lab.sim.calendar import Calendar
from headrace_lab.sim.cells import OK, UNAVAILABLE
from headrace_lab.sim.choosers import Chooser
from headrace_lab.sim.gateway import MODEL
from headrace_lab.sim.jobs import FAILED, Job

SIZE_SPREAD: Final = 0.2
"""Bytes that make a token differ from text to text: sizes tell tokens to within so much, either way."""


class SimPickers:
    """All pickers of one world, each with a book of its own; they share beats and nothing else.

    `attach` gives them the control loop that they live beside. Requests are split between them by
    chance, as clients spread over several gateways with a controller each.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        calendar: Calendar,
        addresses: Mapping[str, str],
        seed: int,
        count: int = 1,
        hedge_after_s: float = 0.0,
    ) -> None:
        self._calendar = calendar
        self._addresses = addresses
        self._reads_bodies = settings.picker.prefix_affinity
        self._split = random.Random(f"{seed}/pickers")
        self._seed = seed
        self.pickers = [
            Picker(settings.picker, settings.capability, np.random.default_rng((seed, number)), hedge_after_s)
            for number in range(count)
        ]
        self._whose: dict[str, Picker] = {}

    def attach(self, loop: ControlLoop) -> None:
        """Let the pickers see what the loop does."""
        for picker in self.pickers:
            loop.witnesses.append(PickerFeed(picker, loop.fleet, self._calendar.clock))

    def pick(self, job: Job, length: int, now: float) -> Pick:
        """Ask one of the pickers; `length` is that of the class which the gateway chose, 0 = no classes."""
        key = f"{job.arrival.id}"
        picker = self.pickers[self._split.randrange(len(self.pickers))] if len(self.pickers) > 1 else None
        self._whose[key] = picker = picker or self.pickers[0]
        arrival = job.arrival
        ask = Ask(
            key=key,
            model=MODEL,
            size=self._size(job),
            output=arrival.max_tokens,
            session="" if arrival.session < 0 else str(arrival.session),
            routed_length=length,
            blocks=arrival.prefix if self._reads_bodies else (),
        )
        return picker.pick(GATEWAY, ask, now)

    def _size(self, job: Job) -> int:
        # Of the request alone, so that each arm and each rate sees the same.
        off = random.Random(self._seed * 1_000_003 + job.arrival.id).uniform(-1.0, 1.0)
        return max(1, int(job.body_bytes * (1.0 + SIZE_SPREAD * off)))

    # Implements headrace_lab.sim.gateway.Follower.

    def first_token(self, job: Job) -> None:
        """A first token reaches the gateway at `job.first_token_at`."""
        told = str(job.arrival.id), job.cell, job.last_sent_at
        self._calendar.enter(job.first_token_at, self._answered, told)

    def _answered(self, now: float, told: tuple[str, str, float]) -> None:
        key, cell, sent_at = told
        if (picker := self._whose.pop(key, None)) is not None:
            # The headers go out before the first token.
            picker.answered(key, now, self._addresses[cell], began_at=sent_at)

    def closed(self, now: float, job: Job, status: int) -> None:
        """The gateway is done with a request; of one that had its first token the picker hears by that."""
        key = str(job.arrival.id)
        if job.first_token_at >= 0 or (picker := self._whose.pop(key, None)) is None:
            return
        if status == OK:
            picker.ended(key, now)
        else:
            here = status != FAILED and bool(job.cell)
            picker.answered(key, now, self._addresses[job.cell] if here else "", status or UNAVAILABLE)

    def left(self, now: float, job: Job) -> None:
        """The client of a request has gone."""
        key = str(job.arrival.id)
        if job.first_token_at < 0 and (picker := self._whose.pop(key, None)) is not None:
            picker.ended(key, now)


class Picked:
    """The chooser of one class: the picker's cell where the gateway holds it, else the weights.

    A retry takes the next of the cells that the pick named, as Envoy's `override_host` does. `length` is
    that of the class.
    """

    def __init__(self, pickers: SimPickers, fallback: Chooser) -> None:
        self.length = 0
        self._pickers = pickers
        self._fallback = fallback
        self._held: frozenset[str] = frozenset()

    def update(self, weights: Mapping[str, int], now: float) -> None:
        self._held = frozenset(weights)
        self._fallback.update(weights, now)

    def choose(self, job: Job, now: float) -> str | None:
        if job.attempt == 0:
            job.named = self._pickers.pick(job, self.length, now).cells
        if job.named:
            cell, job.named = job.named[0], job.named[1:]
            if cell in self._held:
                return cell
        return self._fallback.choose(job, now)

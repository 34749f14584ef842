"""Engines that are said to hang, and when so many are at once that taking them out would be worse.

An agent says that an engine hangs when it accepts and does not answer for a while. Of one cell, or
of one host, that is believed at once. Engines of several hosts that stop answering within seconds of
each other have something in common instead: a surge that keeps them from their health page, or a
file system, a name server or a network that they and their agents share. To take them all out would
turn slowness into an outage. So no more than `self_preservation_share` of the READY cells are failed
for it within one window, or while so many are said to hang; the rest keep their weights under the
alarm, and the gateways' own health checks judge them cell by cell. An engine that refuses, answers
that it is not healthy, or ends is no matter of this.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from headrace_controller.inventory import Fleet
from headrace_controller.lifecycle.silence import LEAST_NODES, LEAST_READY
from headrace_controller.lifecycle.states import CellState
from headrace_controller.settings import LifecycleSettings
from headrace_pb.v1 import telemetry_pb2 as pb


class HungWatch:
    """Remembers which cells were failed as hung within the window."""

    def __init__(self, settings: LifecycleSettings) -> None:
        self._settings = settings
        self._failed: deque[tuple[float, str]] = deque()

    def use(self, settings: LifecycleSettings) -> None:
        """Other shares and times are in force from now on."""
        self._settings = settings

    def note_failed(self, node: str, now: float) -> None:
        """A READY cell of `node` was failed because its engine hangs."""
        self._failed.append((now, node))

    def withholds(self, fleet: Fleet, now: float) -> bool:
        """Whether one more READY cell must not be failed for it; its engine's word is in the columns."""
        while self._failed and now - self._failed[0][0] > self._settings.self_preservation_window_s:
            self._failed.popleft()
        n = fleet.size
        ready = fleet.state[:n] == CellState.READY
        hung = np.flatnonzero(ready & (fleet.engine_state[:n] == pb.ENGINE_STATE_HUNG))
        count = int(ready.sum()) + len(self._failed)
        share = (len(hung) + len(self._failed)) / count if count else 0.0
        if count < LEAST_READY or share <= self._settings.self_preservation_share:
            return False
        nodes = {node for _, node in self._failed} | {fleet.facts_of(row).node for row in hung.tolist()}
        return len(nodes) >= LEAST_NODES

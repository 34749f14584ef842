"""Who gets a request: Envoy's balancers as its documentation describes them, and the limit of all.

A `Chooser` is the seam for whatever places requests one by one.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from headrace_lab.sim.jobs import Job

Active = Mapping[str, int]
"""Requests in progress at the gateway, by cell."""
RETRY_PICKS = 5
"""How often Envoy picks again for a retry that fell on a host already tried."""


class Chooser(Protocol):
    """Names the cell for a request."""

    def choose(self, job: Job, now: float) -> str | None:
        """The cell's id; None where there is nobody."""
        ...

    def update(self, weights: Mapping[str, int], now: float) -> None:
        """These endpoints, with these weights of at least 1, are in force from now on."""
        ...


class RoundRobin:
    """Envoy's round robin. With equal weights the hosts take turns; else the one with the earliest
    deadline is next (EDF), its deadline then moves on by 1 / weight. Each change of weights builds the
    schedule anew and begins somewhere in it."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._weights: dict[str, int] = {}
        self._hosts: list[str] = []
        self._turn = self._random.randrange(1 << 16)
        self._deadlines: list[tuple[float, int, str]] = []
        self._order = 0

    def update(self, weights: Mapping[str, int], now: float) -> None:
        if weights == self._weights:
            return
        self._weights, self._hosts = dict(weights), list(weights)
        self._deadlines = []
        if len(set(weights.values())) > 1:
            for host, weight in weights.items():
                self._push(1.0 / weight, host)
            for _ in range(self._random.randrange(8 * len(weights))):
                self._next()

    def choose(self, job: Job, now: float) -> str | None:
        return _untried(job, self._next) if self._hosts else None

    def _next(self) -> str:
        if not self._deadlines:
            self._turn += 1
            return self._hosts[self._turn % len(self._hosts)]
        deadline, _, host = heapq.heappop(self._deadlines)
        self._push(deadline + 1.0 / self._weights[host], host)
        return host

    def _push(self, deadline: float, host: str) -> None:
        # Of equal deadlines the one entered first is next.
        self._order += 1
        heapq.heappush(self._deadlines, (deadline, self._order, host))


class LeastRequest:
    """Envoy's least request. With equal weights the less busy of `choices` hosts drawn at random; else
    EDF as above, with weight / (active + 1) ** bias in the place of the weight, taken when a host's
    deadline is set."""

    def __init__(self, seed: int, active: Active, choices: int = 2, bias: float = 1.0) -> None:
        self._random = random.Random(seed)
        self._active = active
        self._choices = choices
        self._bias = bias
        self._weights: dict[str, int] = {}
        self._hosts: list[str] = []
        self._deadlines: list[tuple[float, int, str]] = []
        self._order = 0

    def update(self, weights: Mapping[str, int], now: float) -> None:
        if weights == self._weights:
            return
        self._weights, self._hosts = dict(weights), list(weights)
        self._deadlines = []
        if len(set(weights.values())) > 1:
            for host in weights:
                self._push(0.0, host)
            for _ in range(self._random.randrange(8 * len(weights))):
                self._earliest()

    def choose(self, job: Job, now: float) -> str | None:
        return _untried(job, self._next) if self._hosts else None

    def _next(self) -> str:
        if self._deadlines:
            return self._earliest()
        best = self._hosts[self._random.randrange(len(self._hosts))]
        for _ in range(self._choices - 1):
            other = self._hosts[self._random.randrange(len(self._hosts))]
            if self._active[other] < self._active[best]:
                best = other
        return best

    def _earliest(self) -> str:
        deadline, _, host = heapq.heappop(self._deadlines)
        self._push(deadline, host)
        return host

    def _push(self, since: float, host: str) -> None:
        weight = self._weights[host] / (self._active[host] + 1) ** self._bias
        self._order += 1
        heapq.heappush(self._deadlines, (since + 1.0 / weight, self._order, host))


class PrefixHash:
    """A pure prefix-hash router: prompts whose first `blocks` blocks are the same go to the same cell,
    whatever its load, and prompts without blocks by their number. One block is not enough, for in a trace
    all prompts may share it."""

    def __init__(self, blocks: int = 2) -> None:
        self._blocks = blocks
        self._hosts: list[str] = []

    def update(self, weights: Mapping[str, int], now: float) -> None:
        self._hosts = list(weights)

    def choose(self, job: Job, now: float) -> str | None:
        if not self._hosts:
            return None
        beginning = job.arrival.prefix[: self._blocks] or (job.arrival.id,)
        seed = " ".join(map(str, beginning)).encode()
        number = int.from_bytes(hashlib.blake2b(seed, digest_size=8).digest(), "big")
        return self._hosts[number % len(self._hosts)]


Predict = Callable[[str, Job, float], float | None]
"""(cell, request, now) -> seconds to its first token there; None where it would be refused."""


class Oracle:
    """Least predicted TTFT, with perfect knowledge of every cell: what no controller can have."""

    def __init__(self, cells: Sequence[str], predict: Predict) -> None:
        self._cells = tuple(cells)
        self._predict = predict

    def update(self, weights: Mapping[str, int], now: float) -> None:
        """Weights say nothing that it does not know; who is gone, it sees."""

    def choose(self, job: Job, now: float) -> str | None:
        best, least = None, float("inf")
        for cell in self._cells:
            if cell in job.tried:
                continue
            seconds = self._predict(cell, job, now)
            if seconds is not None and seconds < least:
                best, least = cell, seconds
        return best


def _untried(job: Job, draw: Callable[[], str]) -> str:
    """The next host that has not had this request; after some draws the next in any case, as Envoy does."""
    host = draw()
    for _ in range(RETRY_PICKS):
        if host not in job.tried:
            break
        host = draw()
    return host

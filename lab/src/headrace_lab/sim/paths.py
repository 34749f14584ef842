"""Paths between the gateway and the sites: delays of messages, and echoes as agents see them."""

from __future__ import annotations

import random

from headrace_agent.collectors.network.estimate import Estimate, PathEstimator
from headrace_lab.scenarios.networks import Network, PathPlan

RESEND_S = 0.2
"""TCP's least time until a lost segment is sent again; it doubles with each further loss."""
LONGEST_RESEND_S = 3.2


class SitePath:
    """The path to one site. `origin` is the start of the load on the virtual clock.

    Changes of the network's plan are taken up when something passes.
    """

    def __init__(self, network: Network, site: str, origin: float, seed: int) -> None:
        self._network = network
        self._site = site
        self._origin = origin
        self._changes = [each.at_s + origin for each in network.changes if each.site == site]
        self._random = random.Random(f"{seed}/{site}")
        self._estimator = PathEstimator()
        self._next = 0
        self.dark = False
        self._take(network.path(site, 0.0))

    def _take(self, plan: PathPlan) -> None:
        one_way = plan.one_way
        self._delay_s, self._width_s = one_way.delay_ms / 1e3, one_way.jitter_ms / 1e3
        self._loss, self._down = one_way.loss, one_way.down

    def _follow(self, now: float) -> None:
        while self._next < len(self._changes) and self._changes[self._next] <= now:
            self._take(self._network.path(self._site, self._changes[self._next] - self._origin))
            self._next += 1

    @property
    def mean_s(self) -> float:
        """The mean delay one way."""
        return self._delay_s

    @property
    def passes(self) -> bool:
        """Whether anything comes through."""
        return not (self.dark or self._down)

    def delay(self, now: float) -> float:
        """Seconds that a message sent at `now` takes one way, as TCP carries it: what is lost is sent
        again. Of a path that passes nothing it is the time until the next try."""
        self._follow(now)
        took, resend = 0.0, RESEND_S
        while self._loss and self._random.random() < self._loss and took < LONGEST_RESEND_S:
            took += resend
            resend = min(2 * resend, LONGEST_RESEND_S)
        if self._width_s:
            return took + self._delay_s + self._random.uniform(-self._width_s, self._width_s)
        return took + self._delay_s

    def echo(self, now: float) -> Estimate:
        """Send one echo there and back; the agent's figures of the path after it."""
        self._follow(now)
        lost = not self.passes or (self._loss and self._random.random() < 1 - (1 - self._loss) ** 2)
        if lost:
            self._estimator.lost()
        else:
            rtt_s = 2 * self._delay_s
            if self._width_s:
                width = self._width_s
                rtt_s += self._random.uniform(-width, width) + self._random.uniform(-width, width)
            self._estimator.reply(rtt_s * 1e3, now)
        return self._estimator.estimate()

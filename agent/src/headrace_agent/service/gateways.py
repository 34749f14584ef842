"""Which gateways to measure: what all controllers name, together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headrace_agent.collectors.network.collector import GatewayTarget
from headrace_pb.v1 import telemetry_pb2 as pb

MAX_GATEWAYS: Final = 256


class Gateways:
    """The union of every controller's gateways, by id.

    A controller that is away keeps its word: the paths go on being measured for when it is back.
    Where two name one id differently, the controller that stands first in the settings counts.
    """

    def __init__(self, controllers: Sequence[str]) -> None:
        self._named: dict[str, list[GatewayTarget]] = {controller: [] for controller in controllers}

    def update(self, controller: str, gateways: Sequence[pb.Gateway]) -> tuple[GatewayTarget, ...]:
        """Take one controller's list; returns the union. Unusable entries are left out, and so is the
        word of a controller that is followed no more."""
        if controller not in self._named:
            return self.union
        self._named[controller] = [
            GatewayTarget(gateway.id, gateway.host, gateway.port)
            for gateway in gateways
            if gateway.id and 0 < len(gateway.host) <= 253 and gateway.port <= 65535
        ]
        return self.union

    def follow(self, controllers: Sequence[str]) -> None:
        """Keep to these controllers, in this order; the gateways of any other are dropped."""
        self._named = {controller: self._named.get(controller, []) for controller in controllers}

    @property
    def union(self) -> tuple[GatewayTarget, ...]:
        """What all controllers name, sorted by id."""
        union: dict[str, GatewayTarget] = {}
        for targets in self._named.values():
            for target in targets:
                union.setdefault(target.id, target)
        return tuple(union[each] for each in sorted(union)[:MAX_GATEWAYS])

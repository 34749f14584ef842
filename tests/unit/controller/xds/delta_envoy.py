"""An Envoy that is played against a delta stream."""

from __future__ import annotations

from typing import Any

from headrace_controller.xds.delta import DeltaStream
from headrace_controller.xds.names import CDS, EDS, LDS, RDS
from headrace_controller.xds.snapshot import Snapshot
from tests.unit.controller.xds.builders import delta_request

A, B = "10.0.0.1:8000", "10.0.0.2:8000"
ROUTES = ("headrace",)


class Peer:
    """Plays an Envoy against a DeltaStream; `held` is what it has, by type and name."""

    def __init__(self, snapshot: Snapshot, *, endpoints_only: bool = False) -> None:
        self.stream = DeltaStream(endpoints_only=endpoints_only)
        self.snapshot, self.now = snapshot, 100.0
        self.held: dict[str, dict[str, Any]] = {url: {} for url in (CDS, EDS, LDS, RDS)}

    def ask(self, url: str, *names: str, **more: Any) -> Any:
        return self.stream.on_request(delta_request(url, names, **more), self.snapshot, self.now)

    def get(self) -> Any:
        return self.stream.next_response(self.snapshot, self.now)

    def ack(self, response: Any, *names: str, drop: tuple[str, ...] = ()) -> Any:
        held = self.held[response.type_url]
        held.update((each.name, each) for each in response.resources)
        for name in response.removed_resources:
            held.pop(name, None)
        return self.ask(response.type_url, *names, unsubscribe=drop, nonce=response.nonce)

    def connect(self) -> None:
        """Subscribe to everything as Envoy does, and take it."""
        self.ask(CDS)
        if (clusters := self.get()) is not None:
            self.ack(clusters)
        if pools := tuple(self.snapshot.types[EDS].resources):
            self.ask(EDS, *pools)
            self.ack(self.get())
        self.ask(LDS)
        self.ack(self.get())
        self.ask(RDS, *ROUTES)
        self.ack(self.get())
        assert self.get() is None


def names_in(response: Any) -> list[str]:
    """The names of what a response brings."""
    return sorted(each.name for each in response.resources)

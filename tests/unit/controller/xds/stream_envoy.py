"""An Envoy that is played against a state-of-the-world stream."""

from __future__ import annotations

from typing import Any

from headrace_controller.xds.names import CDS, EDS, LDS, RDS
from headrace_controller.xds.snapshot import Snapshot
from headrace_controller.xds.stream import Stream
from tests.unit.controller.xds.builders import request

A, B = "10.0.0.1:8000", "10.0.0.2:8000"
ROUTES = ("headrace",)


class Peer:
    """Plays an Envoy against a Stream, one response at a time."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.stream, self.snapshot, self.now = Stream(), snapshot, 100.0

    def ask(self, url: str, *names: str, nonce: str = "", version: str = "", error: str | None = None) -> Any:
        sent = request(url, names, nonce, version, error)
        return self.stream.on_request(sent, self.snapshot, self.now)

    def get(self) -> Any:
        return self.stream.next_response(self.snapshot, self.now)

    def ack(self, response: Any, *names: str) -> Any:
        return self.ask(response.type_url, *names, nonce=response.nonce, version=response.version_info)

    def connect(self) -> None:
        """Subscribe to everything as Envoy does, and take it."""
        self.ask(CDS)
        self.ack(self.get())
        pools = tuple(self.snapshot.types[EDS].resources)
        if pools:
            self.ask(EDS, *pools)
            self.ack(self.get(), *pools)
        self.ask(LDS)
        self.ack(self.get())
        self.ask(RDS, *ROUTES)
        self.ack(self.get(), *ROUTES)
        assert self.get() is None


def names_in(response: Any) -> list[str]:
    """The pools of an EDS response, by its bytes."""
    return [box.value.split(b"pool/")[1][:1].decode() for box in response.resources]

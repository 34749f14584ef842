"""`headrace events --follow`: what happened, and then what happens."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from headrace_controller.operator_cli.client import Client, Code, Gone, Refused, fail
from headrace_controller.operator_cli.show import event_line, print_json, print_parts
from headrace_controller.operator_cli.terminal import warn

STREAM_TIMEOUT_S = 45.0
"""Three heartbeats of the stream."""
RETRY_S = 2.0
MAX_RETRIES = 30


def follow_events(client: Client, limit: int, cell: str | None, as_json: bool) -> None:
    """Print the newest events (of one cell, or all) and go on; a controller that restarts is waited for."""
    found = client.get("/api/v1/events", limit=limit)

    def tell(event: dict[str, Any]) -> None:
        if cell in (None, event["cell"]):
            print_json(event, indent=None) if as_json else print_parts([event_line(event)])

    with suppress(KeyboardInterrupt), client.understood():
        for event in found["events"]:
            tell(event)
        for event in _follow(client, int(found["last_id"])):
            tell(event)


class Absence:
    """How long a controller has been away: said once, and borne for so many tries."""

    def __init__(self, client: Client) -> None:
        self._url = client.url
        self._tries = 0

    def back(self) -> None:
        """It answers."""
        if self._tries:
            warn("the controller is back")
        self._tries = 0

    def away(self, gone: Exception) -> None:
        """It does not; ends the program where it never comes back. Waits before the next try."""
        self._tries += 1
        if self._tries == 1:
            warn(f"the controller is away ({gone}); trying again")
        if self._tries > MAX_RETRIES:
            fail(f"{self._url} does not come back", Code.UNREACHABLE)
        time.sleep(RETRY_S)


def _follow(client: Client, seen: int) -> Iterator[dict[str, Any]]:
    """Events after `seen`, without end; ends the program when the controller stays away."""
    absence = Absence(client)
    while True:
        try:
            with client.open("/api/v1/events/stream", STREAM_TIMEOUT_S, after=seen) as stream:
                for kind, data in _frames(stream, absence.back):
                    if kind == "gap":
                        warn("some events before the next are not kept any more")
                        continue
                    event = json.loads(data)
                    seen = int(event["id"])
                    yield event
        except Gone as gone:
            absence.away(gone)
        except Refused as refused:
            fail(str(refused), refused.code)


def _frames(stream: Any, heard: Callable[[], None]) -> Iterator[tuple[str, str]]:
    """The events of a stream of server-sent events: kind and data. `heard` is called at every line."""
    kind, data = "", ""
    for raw in stream:
        heard()
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        name, _, value = line.partition(":")
        if name == "event":
            kind = value.strip()
        elif name == "data":
            data += value.removeprefix(" ")
        elif not line and data:
            yield kind, data
            kind, data = "", ""
    raise Gone("the stream ended")

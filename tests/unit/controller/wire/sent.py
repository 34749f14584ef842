"""What a bench has sent since it was last asked, put shortly."""

from __future__ import annotations

from headrace_controller.wire import frames
from tests.support.wire import Bench


def kinds(bench: Bench) -> list[tuple[int, int]]:
    """The kind and the stream of each frame."""
    return [(each.kind, each.stream) for each in bench.sent()]


def answers(bench: Bench) -> dict[int, bytes]:
    """The bytes of DATA by stream."""
    found: dict[int, bytes] = {}
    for each in bench.sent():
        if each.kind == frames.DATA:
            found[each.stream] = found.get(each.stream, b"") + each.payload
    return found

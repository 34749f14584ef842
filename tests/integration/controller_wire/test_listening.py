"""What connections to the controller's ports are like."""

from __future__ import annotations

from headrace_controller.wire.listening import listen
from headrace_shared.net import HostPort
from tests.support.nodelay import goes_at_once


async def test_small_answers_go_at_once() -> None:
    (listener,) = await listen(HostPort("127.0.0.1", 0))
    with listener:
        assert await goes_at_once(listener)

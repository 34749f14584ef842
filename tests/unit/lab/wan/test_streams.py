"""When bytes of a stream arrive."""

from __future__ import annotations

from itertools import pairwise

import pytest

from headrace_lab.wan.settings import Path
from headrace_lab.wan.streams import LONGEST_RESEND_S, RESEND_S, StreamDelay

JITTERY = Path(delay_ms=30, jitter_ms=20)


def test_bytes_arrive_after_the_delay_and_in_order() -> None:
    delay = StreamDelay("a")
    steady = [delay.due(Path(delay_ms=10), now / 10) for now in range(5)]
    assert steady == pytest.approx([0.01, 0.11, 0.21, 0.31, 0.41])
    drawn = [StreamDelay("b")] * 1
    arrived = [drawn[0].due(JITTERY, now / 1000) for now in range(300)]
    assert all(a is not None and b is not None and a <= b for a, b in pairwise(arrived))
    assert all((at or 0) - n / 1000 >= 0.01 for n, at in enumerate(arrived))


def test_jitter_is_as_wide_as_the_path_says() -> None:
    delay = StreamDelay("c")
    late = [(delay.due(JITTERY, float(now)) or 0) - now for now in range(500)]
    assert 0.010 <= min(late) < 0.015
    assert 0.045 < max(late) <= 0.050


def test_what_is_lost_is_sent_again_and_nothing_is_lost_for_good() -> None:
    delay = StreamDelay("d")
    late = [(delay.due(Path(delay_ms=1, loss=0.5), 100.0 * now) or 0) - 100 * now for now in range(400)]
    once = [each for each in late if abs(each - 0.001) < 1e-9]
    assert 140 < len(once) < 260
    assert any(abs(each - 0.001 - RESEND_S) < 1e-9 for each in late)
    assert max(late) <= 0.001 + 2 * LONGEST_RESEND_S + RESEND_S


def test_a_path_that_is_down_passes_nothing() -> None:
    delay = StreamDelay("e")
    assert delay.due(Path(delay_ms=5, down=True), 1.0) is None
    assert delay.due(Path(delay_ms=5), 2.0) == pytest.approx(2.005)


def test_a_seed_fixes_the_draws() -> None:
    one, same, other = (
        [StreamDelay(seed).due(JITTERY, float(now)) for now in range(3)] for seed in ("f", "f", "g")
    )
    assert one == same != other

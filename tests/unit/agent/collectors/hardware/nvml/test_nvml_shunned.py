"""A GPU whose call hung is left alone, each time for longer, and forgiven when it behaves."""

from __future__ import annotations

from headrace_agent.collectors.hardware.nvml.shunned import Shunned

WHY = "NVML hangs in nvmlDeviceGetName of GPU 3"


def test_a_gpu_is_left_alone_for_a_while_and_says_why() -> None:
    shunned = Shunned(10, 60)
    shunned.add(3, WHY, now=100)
    assert shunned.at(109.9) == [3]
    assert shunned.words(105) == [f"{WHY}; GPU 3 is left alone for 10 s"]
    assert shunned.at(110) == []
    assert shunned.words(110) == []


def test_each_time_it_is_twice_as_long_up_to_the_longest() -> None:
    shunned = Shunned(10, 35)
    now, lengths = 0.0, []
    for _ in range(4):
        shunned.add(3, WHY, now)
        began = now
        while shunned.at(now):
            now += 1
        lengths.append(now - began)
    assert lengths == [10, 20, 35, 35]


def test_one_that_has_answered_for_as_long_as_it_was_left_alone_starts_afresh() -> None:
    shunned = Shunned(10, 60)
    shunned.add(3, WHY, 0)
    shunned.forgive(19.9)
    shunned.add(3, WHY, 19.9)
    assert shunned.at(39.8) == [3], "not yet forgiven: twice as long"
    shunned.forgive(60)
    shunned.add(3, WHY, 60)
    assert shunned.at(70) == []

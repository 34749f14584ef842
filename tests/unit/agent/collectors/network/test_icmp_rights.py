"""Why ICMP is not allowed, and what to do."""

from __future__ import annotations

import pytest

from headrace_agent.collectors.network.rights import explain


@pytest.mark.parametrize(
    ("allowed", "why", "remedy"),
    [
        ((1, 0), "allows no group", 'ping_group_range="1000 1000"'),
        ((0, 20), "not in net.ipv4.ping_group_range (0 to 20)", 'ping_group_range="1000 1000"'),
        (None, "cannot be read", "CAP_NET_RAW"),
        ((0, 2147483647), "although net.ipv4.ping_group_range holds its group", "seccomp"),
        ((27, 27), "although net.ipv4.ping_group_range holds its group", "seccomp"),
    ],
)
def test_the_remedy_fits_what_is_in_the_way(allowed: tuple[int, int] | None, why: str, remedy: str) -> None:
    right = explain(allowed, {1000, 27}, 1000)
    assert right.way == ""
    assert why in right.why
    assert remedy in right.remedy

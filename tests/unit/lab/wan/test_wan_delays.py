"""When packets arrive, by path and direction; and what a path should then measure as."""

from __future__ import annotations

import ipaddress
import random
from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_lab.wan.delays import Delays, Direction, far_address
from headrace_lab.wan.settings import Path, WanSettings
from headrace_shared import config
from headrace_shared.config import ConfigError

NEAR4, FAR4, NEAR6, FAR6 = "10.1.0.1", "10.1.0.2", "fd01::1", "fd01::2"
THERE, BACK = Direction.THERE, Direction.BACK


def packet(source: str, target: str) -> bytes:
    """The addresses of an IP packet, in their places."""
    a, b = ipaddress.ip_address(source), ipaddress.ip_address(target)
    if a.version == 4:
        return b"\x45" + bytes(11) + a.packed + b.packed
    return b"\x60" + bytes(7) + a.packed + b.packed


OUT, HOME = packet(NEAR4, FAR4), packet(FAR4, NEAR4)


def delays(path: Path, default: Path | None = None) -> Delays:
    return Delays({FAR4: path}, default or Path(), seed=7)


@pytest.mark.parametrize(("near", "far"), [(NEAR4, FAR4), (NEAR6, FAR6)])
def test_the_far_end_is_known_in_both_directions(near: str, far: str) -> None:
    assert far_address(packet(near, far), THERE) == far
    assert far_address(packet(far, near), BACK) == far


@given(st.binary(max_size=64), st.sampled_from(Direction))
def test_what_is_no_packet_goes_nowhere_and_breaks_nothing(data: bytes, direction: Direction) -> None:
    address = far_address(data, direction)
    assert address is None or ipaddress.ip_address(address)


def test_each_path_has_its_own_delay_and_others_go_by_the_default() -> None:
    wan = delays(Path(delay_ms=20), default=Path(delay_ms=3))
    assert wan.due(OUT, THERE, 1.0) == pytest.approx(1.020)
    assert wan.due(HOME, BACK, 1.0) == pytest.approx(1.020)
    assert wan.due(packet(NEAR4, "10.1.0.9"), THERE, 1.0) == pytest.approx(1.003)


def test_a_path_that_is_down_passes_nothing_until_it_is_up() -> None:
    wan = delays(Path(down=True))
    assert wan.due(OUT, THERE, 1.0) is None
    wan.set_paths({FAR4: Path()}, Path())
    assert wan.due(OUT, THERE, 1.0) == 1.0


def test_in_order_no_packet_overtakes_another_of_its_direction() -> None:
    wan = delays(Path(delay_ms=50, jitter_ms=50))
    times = [wan.due(OUT, THERE, 1.0 + step / 1000) for step in range(200)]
    assert times == sorted(times, key=lambda due: due or 0.0)
    apart = delays(Path(delay_ms=50, jitter_ms=50, in_order=False))
    times = [apart.due(OUT, THERE, 1.0 + step / 1000) for step in range(200)]
    assert times != sorted(times, key=lambda due: due or 0.0)


def test_loss_is_the_share_that_was_set() -> None:
    wan = delays(Path(loss=0.2))
    lost = sum(wan.due(OUT, THERE, 1.0) is None for _ in range(20_000))
    assert lost / 20_000 == pytest.approx(0.2, abs=0.01)


@pytest.mark.parametrize(
    "path",
    [
        Path(delay_ms=30, jitter_ms=10, in_order=False),
        Path(delay_ms=40, jitter_ms=8, shape="normal", in_order=False),
    ],
)
def test_the_expected_figures_are_those_of_many_round_trips(path: Path) -> None:
    wan = delays(path)
    trips = [
        1000 * ((wan.due(OUT, THERE, 0.0) or 0.0) + (wan.due(HOME, BACK, 0.0) or 0.0)) for _ in range(40_000)
    ]
    assert fmean(trips) == pytest.approx(path.expected_rtt_ms, rel=0.01)
    assert fmean(abs(b - a) for a, b in pairwise(trips)) == pytest.approx(path.expected_jitter_ms, rel=0.02)


def test_the_expected_loss_is_that_of_both_directions() -> None:
    draws = random.Random(3)
    lost = sum(draws.random() < 0.1 or draws.random() < 0.1 for _ in range(50_000)) / 50_000
    assert Path(loss=0.1).expected_loss == pytest.approx(lost, abs=0.01)
    assert Path(down=True).expected_loss == 1.0


FILE = """
near: {namespace: a, addresses: [10.1.0.1/24]}
far: {namespace: b, addresses: [10.1.0.2/24, "fd01::2/64"]}
paths: {10.1.0.2: {delay_ms: 20, jitter_ms: 5}}
"""


def test_a_file_is_read() -> None:
    assert config.parse(FILE, WanSettings).paths[FAR4].expected_rtt_ms == 40


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("10.1.0.2: {", "10.1.0.3: {"), "add it to far.addresses"),
        (("jitter_ms: 5", "jitter_ms: 25"), "leaves no room for a uniform jitter_ms of 25"),
        (("jitter_ms: 5", "jitter_ms: 7, shape: normal"), "give it at least 21"),
        (("namespace: b", "namespace: a"), "give each end its own"),
        (("10.1.0.1/24", "gw"), "write an address with its prefix"),
        (("10.1.0.2: {", "gw: {"), "write an IPv4 or IPv6 address"),
    ],
)
def test_what_cannot_be_is_refused_with_a_remedy(change: tuple[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says.replace(".", r"\.")):
        config.parse(FILE.replace(*change), WanSettings)

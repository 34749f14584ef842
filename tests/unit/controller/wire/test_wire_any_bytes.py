"""Whatever a peer says, and however its bytes come: the connection ends at worst."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.wire import frames
from headrace_controller.wire.frames import ErrorCode, Setting
from tests.support.wire import HELLO, OPENING, Bench, data, headers

END = frames.END_STREAM

SPOKEN = [
    headers(1),
    headers(3),
    headers(5, OPENING[:2]),
    data(1, b"a", b"bc"),
    data(3, b"d" * 300),
    data(1, b"end", flags=END),
    data(7, b"x"),
    frames.frame(frames.DATA, frames.PADDED, 1, b"\x02" + b"\0\0\0\0\x01p" + b"\0\0"),
    frames.reset(3, ErrorCode.CANCEL),
    frames.credit(0, 1000),
    frames.credit(1, 1000),
    frames.frame(frames.PING, 0, 0, b"12345678"),
    frames.settings({Setting.INITIAL_WINDOW_SIZE: 5}),
    frames.settings({Setting.INITIAL_WINDOW_SIZE: 500}),
    frames.frame(0x55, 3, 9, b"unknown"),
]


def outcome(sent: bytes, cuts: list[int]) -> Any:
    bench = Bench()
    for start, end in pairwise([0, *cuts, len(sent)]):
        bench.say(sent[start:end])
    return bench.heard, bench.connection.outgoing.take(), bench.connection.finished, bench.connection.fault


@given(st.lists(st.sampled_from(SPOKEN), max_size=15), st.data())
def test_any_split_of_the_bytes_has_the_same_effect(spoken: list[bytes], data: st.DataObject) -> None:
    sent = HELLO + b"".join(spoken)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=12)))
    assert outcome(sent, cuts) == outcome(sent, [])


@given(st.lists(st.sampled_from([*SPOKEN, data(1, b""), data(3, b"e" * 9000)]), max_size=30))
def test_one_frame_in_a_read_has_the_same_effect(spoken: list[bytes]) -> None:
    """The usual read goes a way of its own."""
    sent = HELLO + b"".join(spoken)
    cuts, at = [len(HELLO)], len(HELLO)
    for each in spoken:
        at += len(each)
        cuts.append(at)
    assert outcome(sent, cuts) == outcome(sent, [])


@given(st.lists(st.one_of(st.sampled_from(SPOKEN), st.binary(max_size=40)), max_size=12))
def test_random_bytes_end_the_connection_at_worst(spoken: list[bytes]) -> None:
    bench = Bench()
    bench.say(HELLO, *spoken)
    assert bench.errors == []
    heard = bench.heard
    for stream in {stream for stream, _ in heard}:
        story = [what for each, what in heard if each == stream]
        assert "closed" not in story[:-1], "nothing is heard of a call that has ended"
    bench.connection.close()
    assert bench.connection.calls == 0
    assert bench.room.used == 0
    assert sum(what == "closed" for _, what in bench.heard) == len(bench.calls)


@given(
    st.lists(
        st.builds(
            frames.frame,
            st.integers(0, 11),
            st.sampled_from([0, 1, 4, 5, 8, 9, 0x20, 0x2D]),
            st.integers(0, 5),
            st.binary(max_size=30),
        ),
        max_size=12,
    )
)
def test_random_frames_end_the_connection_at_worst(spoken: list[bytes]) -> None:
    bench = Bench()
    bench.say(HELLO, headers(1), *spoken)
    assert bench.errors == []
    bench.connection.close()
    assert bench.room.used == 0

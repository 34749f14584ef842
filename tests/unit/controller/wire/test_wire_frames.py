"""Frames: however the bytes arrive, the same come out, and nothing else than a connection error."""

from __future__ import annotations

import contextlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.wire import frames
from headrace_controller.wire.frames import ConnectionFault, ErrorCode, Frame, FrameReader

one = st.builds(
    Frame,
    st.integers(0, 255),
    st.integers(0, 255),
    st.integers(0, frames.MAX_STREAM_ID),
    st.binary(max_size=200),
)


def read_all(reader: FrameReader) -> list[Frame]:
    found = []
    while (each := reader.next()) is not None:
        found.append(each)
    return found


@given(st.lists(one, max_size=8), st.data())
def test_any_split_gives_the_same_frames(wanted: list[Frame], data: st.DataObject) -> None:
    sent = frames.PREFACE + b"".join(frames.frame(*each) for each in wanted)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=12)))
    reader, found = FrameReader(), []
    for start, end in pairwise([0, *cuts, len(sent)]):
        reader.feed(sent[start:end])
        found += read_all(reader)
    assert found == wanted
    assert reader.waiting == 0


@given(st.lists(one, min_size=1, max_size=5), st.integers(1, 10_000))
def test_what_is_cut_off_gives_the_frames_before(wanted: list[Frame], cut: int) -> None:
    sent = frames.PREFACE + b"".join(frames.frame(*each) for each in wanted)
    reader = FrameReader()
    reader.feed(sent[: max(0, len(sent) - cut)])
    found = read_all(reader)
    assert found == wanted[: len(found)]
    assert len(found) < len(wanted)


@given(st.booleans(), st.lists(st.binary(max_size=64), max_size=20))
def test_random_bytes_raise_nothing_but_a_fault(greeted: bool, parts: list[bytes]) -> None:
    reader = FrameReader()
    reader.feed(frames.PREFACE if greeted else b"")
    with contextlib.suppress(ConnectionFault):
        for part in parts:
            reader.feed(part)
            read_all(reader)


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", b"PRI * HTTP/1"])
def test_another_protocol_is_told_at_its_first_wrong_byte(said: bytes) -> None:
    reader = FrameReader()
    reader.feed(said)
    with pytest.raises(ConnectionFault, match="preface"):
        reader.next()


def test_a_frame_that_is_too_large_is_refused_by_its_head_alone() -> None:
    reader = FrameReader()
    reader.feed(frames.PREFACE + frames.frame(frames.DATA, 0, 1, b"x" * 16_385)[:9])
    with pytest.raises(ConnectionFault) as caught:
        reader.next()
    assert caught.value.code is ErrorCode.FRAME_SIZE_ERROR


def test_the_reserved_bit_of_a_stream_is_ignored() -> None:
    reader = FrameReader()
    reader.feed(frames.PREFACE + frames.frame(frames.PING, 0, 0x8000_0003, b"12345678"))
    assert read_all(reader) == [Frame(frames.PING, 0, 3, b"12345678")]


@pytest.mark.parametrize(
    ("payload", "wanted"),
    [(b"\x00data", b"data"), (b"\x02data\x00\x00", b"data"), (b"\x03\x00\x00\x00", b"")],
)
def test_padding_is_taken_off(payload: bytes, wanted: bytes) -> None:
    assert frames.without_padding(Frame(frames.DATA, frames.PADDED, 1, payload)) == wanted


@pytest.mark.parametrize("payload", [b"", b"\x01", b"\x05data"])
def test_more_padding_than_frame_is_a_fault(payload: bytes) -> None:
    with pytest.raises(ConnectionFault) as caught:
        frames.without_padding(Frame(frames.DATA, frames.PADDED, 1, payload))
    assert caught.value.code is ErrorCode.PROTOCOL_ERROR


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"\x00\x04\x00\x00", ErrorCode.FRAME_SIZE_ERROR),
        (b"\x00\x02\x00\x00\x00\x02", ErrorCode.PROTOCOL_ERROR),
        (b"\x00\x04\x80\x00\x00\x00", ErrorCode.FLOW_CONTROL_ERROR),
        (b"\x00\x05\x00\x00\x00\x01", ErrorCode.PROTOCOL_ERROR),
    ],
    ids=["cut off", "push", "window", "frame"],
)
def test_settings_that_cannot_be_are_faults(payload: bytes, code: ErrorCode) -> None:
    with pytest.raises(ConnectionFault) as caught:
        frames.read_settings(payload)
    assert caught.value.code is code


def test_the_last_of_a_setting_counts_and_unknown_ones_are_harmless() -> None:
    payload = b"\x00\x04\x00\x00\x00\x01\x00\x99\x00\x00\x00\x01\x00\x04\x00\x00\x00\x07"
    assert frames.read_settings(payload) == {4: 7, 0x99: 1}

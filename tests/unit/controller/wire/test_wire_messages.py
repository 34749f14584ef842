"""gRPC messages: however they are spread over frames, whole ones come out, within bounds."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.wire.messages import CallFault, MessageReader, Room, Status, packed


def read_all(reader: MessageReader) -> list[bytes]:
    found = []
    while (each := reader.next()) is not None:
        found.append(each)
    return found


@given(st.lists(st.binary(max_size=100), max_size=8), st.data(), st.booleans())
def test_any_split_gives_the_same_messages(wanted: list[bytes], data: st.DataObject, lazy: bool) -> None:
    sent = b"".join(map(packed, wanted))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=10)))
    room = Room(1 << 16)
    reader, found = MessageReader(1000, room), []
    for start, end in pairwise([0, *cuts, len(sent)]):
        reader.feed(sent[start:end])
        if not lazy:
            found += read_all(reader)
    found += read_all(reader)
    assert found == wanted
    assert reader.waiting == 0
    assert room.used == 0


@given(st.lists(st.binary(max_size=64), max_size=20))
def test_random_bytes_raise_nothing_but_a_fault(parts: list[bytes]) -> None:
    room = Room(256)
    reader = MessageReader(1000, room)
    try:
        for part in parts:
            reader.feed(part)
            read_all(reader)
    except CallFault:
        reader.drop()
        assert room.used == 0
    assert 0 <= room.used <= 256


def test_a_message_that_is_too_large_is_refused_by_its_head_alone() -> None:
    reader = MessageReader(100, Room(1000))
    reader.feed(packed(b"x" * 100))
    assert reader.next() == b"x" * 100
    reader.feed(packed(b"x" * 101)[:5])
    with pytest.raises(CallFault, match=r"larger than max \(101 vs\. 100\)") as caught:
        reader.next()
    assert caught.value.status is Status.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    ("encoding", "status"), [("gzip", Status.UNIMPLEMENTED), ("identity", Status.INTERNAL)]
)
def test_compressed_messages_are_refused(encoding: str, status: Status) -> None:
    reader = MessageReader(100, Room(1000), encoding)
    reader.feed(b"\x01" + packed(b"x")[1:])
    with pytest.raises(CallFault) as caught:
        reader.next()
    assert caught.value.status is status


def test_all_readers_share_one_room_and_give_it_back() -> None:
    room = Room(150)
    first, second = MessageReader(1000, room), MessageReader(1000, room)
    part = packed(b"x" * 400)
    for reader in (first, second):
        reader.feed(part[:30])
        assert reader.next() is None
    first.feed(part[30:100])
    with pytest.raises(CallFault, match="too many large messages"):
        second.feed(part[30:100])
    first.drop()
    second.drop()
    assert room.used == 0


def test_the_first_part_of_a_message_takes_room_as_the_others_do() -> None:
    room = Room(100)
    first, second = MessageReader(1000, room), MessageReader(1000, room)
    first.feed(packed(b"x" * 400)[:80])
    assert first.next() is None
    assert room.used == 80
    second.feed(packed(b"x" * 400)[:80])
    with pytest.raises(CallFault, match="too many large messages"):
        second.next()


def test_nothing_of_a_message_that_was_read_is_kept() -> None:
    reader = MessageReader(1000, Room(2000))
    whole = packed(b"x" * 900)
    reader.feed(whole[:500])
    assert reader.next() is None
    reader.feed(whole[500:])
    assert reader.next() == b"x" * 900
    assert not reader._bytes

"""Header blocks that come again: what is remembered of them is what working them out would give."""

from __future__ import annotations

from collections.abc import Sequence

import hpack
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.wire import frames
from headrace_controller.wire.frames import Frame
from headrace_controller.wire.headers import HeaderBlocks
from headrace_controller.wire.limits import Limits
from headrace_controller.wire.outgoing import Outgoing
from headrace_controller.wire.remembered import MOST, Remembered
from tests.support.wire import split

Field = tuple[str, str]
fields = st.tuples(
    st.sampled_from([":path", "te", "x-a", "x-b"]),
    st.sampled_from(["", "1", "trailers", "v" * 60]),
    # Fields that are never put into a table are remembered as well.
    st.booleans(),
)
requests = st.lists(st.lists(fields, max_size=5), max_size=40)
resizes = st.lists(st.sampled_from([None, None, None, 0, 64, 200, 4096]), min_size=40, max_size=40)


@given(requests, resizes)
def test_blocks_are_read_as_without_a_memory(
    said: list[list[tuple[str, str, bool]]], sizes: Sequence[int | None]
) -> None:
    encoder, plain, blocks = hpack.Encoder(), hpack.Decoder(), HeaderBlocks(Limits())
    for number, (each, size) in enumerate(zip(said, sizes, strict=False)):
        if size is not None:
            encoder.header_table_size = size
        data = encoder.encode(each)
        found = blocks.begin(Frame(frames.HEADERS, frames.END_HEADERS, 2 * number + 1, data))
        assert found is not None
        assert found.fields == [(str(name), str(value)) for name, value in plain.decode(data)]


@given(st.lists(st.lists(st.tuples(st.sampled_from(["te", "x-a"]), st.text("ab", max_size=2)))), resizes)
def test_fields_are_written_as_without_a_memory(said: list[list[Field]], sizes: Sequence[int | None]) -> None:
    outgoing, decoder = Outgoing(lambda: None), hpack.Decoder()
    for number, (each, size) in enumerate(zip(said, sizes, strict=False)):
        if size is not None:
            outgoing.limit_table(size)
        outgoing.headers(2 * number + 1, each, last=False)
        (sent,) = split(outgoing.take())
        assert [(str(name), str(value)) for name, value in decoder.decode(sent.payload)] == each


def test_the_same_bytes_are_unpacked_once() -> None:
    encoder, blocks = hpack.Encoder(), HeaderBlocks(Limits())
    found = []
    for stream in (1, 3, 5):
        data = encoder.encode([("x-a", "1"), (":path", "/a")])
        found.append(blocks.begin(Frame(frames.HEADERS, frames.END_HEADERS, stream, data)))
    first, second, third = (each.fields for each in found if each is not None)
    assert first == second == third
    assert second is not first, "the first one has filled the table"
    assert third is second


def test_long_blocks_are_not_remembered() -> None:
    blocks = HeaderBlocks(Limits())
    for said in ([("x-a", "v" * 3000, True)], [("x-a", "v", True)] * 200):
        data = hpack.Encoder().encode(said)
        found = [
            blocks.begin(Frame(frames.HEADERS, frames.END_HEADERS, stream, data)) for stream in (1, 3, 5)
        ]
        _, second, third = (each.fields for each in found if each is not None)
        assert third == second
        assert third is not second


def test_a_table_that_is_limited_twice_is_announced_all_the_same() -> None:
    outgoing, decoder = Outgoing(lambda: None), hpack.Decoder()
    for _ in range(2):
        outgoing.limit_table(100)
    decoder.max_allowed_table_size = 100
    outgoing.headers(1, [("te", "x")], last=False)
    (sent,) = split(outgoing.take())
    assert decoder.decode(sent.payload) == [("te", "x")]
    assert decoder.header_table_size == 100


def test_little_is_remembered() -> None:
    memory = Remembered[int, int](hpack.Decoder().header_table)
    for key in range(10 * MOST):
        memory.begin()
        memory.keep(key, key)
        assert memory.get(key) == key
    assert sum(memory.get(key) is not None for key in range(10 * MOST)) <= MOST

"""Messages between the agent and its NVML process."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_agent.collectors.hardware.nvml import wire

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_a_message_comes_back_as_it_went(message: wire.Message) -> None:
    raw = wire.pack(message)
    size = wire.size_of(raw[: wire.HEADER.size])
    assert size == len(raw) - wire.HEADER.size
    assert wire.unpack(raw[wire.HEADER.size :]) == message


@given(st.binary(max_size=60))
def test_bytes_that_are_no_message_are_refused_and_nothing_else(raw: bytes) -> None:
    try:
        assert isinstance(wire.unpack(raw), dict)
    except wire.WireError:
        return


def test_a_message_that_would_fill_memory_is_refused() -> None:
    with pytest.raises(wire.WireError, match="4294967295 bytes"):
        wire.size_of(b"\xff" * 4)


def test_a_nest_without_end_is_refused() -> None:
    with pytest.raises(wire.WireError):
        wire.unpack(b'{"a":' + b"[" * 100_000)


def test_what_is_no_number_is_not_sent() -> None:
    with pytest.raises(ValueError):
        wire.pack({"power": math.nan})

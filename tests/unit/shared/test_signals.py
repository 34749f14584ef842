"""The catalogue is whole and agrees with the wire."""

from __future__ import annotations

import pytest

from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.signals import CELL_SIGNALS, NETWORK_SIGNALS, SIGNALS


def test_ten_signals_whose_weights_sum_to_one() -> None:
    assert len(SIGNALS) == 10
    assert sum(signal.weight for signal in SIGNALS) == pytest.approx(1.0)


def test_every_range_is_a_range() -> None:
    assert all(signal.low < signal.high for signal in SIGNALS)


def test_the_wire_carries_exactly_the_catalogue() -> None:
    assert tuple(field.name for field in pb.Signals.DESCRIPTOR.fields) == CELL_SIGNALS
    assert all(name in pb.PathBeat.DESCRIPTOR.fields_by_name for name in NETWORK_SIGNALS)


def test_absent_differs_from_zero_on_the_wire() -> None:
    read = pb.Signals.FromString(pb.Signals(queue_depth=0.0).SerializeToString())
    assert read.HasField("queue_depth")
    assert not read.HasField("kv_fill")

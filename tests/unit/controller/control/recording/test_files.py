"""The recording's files: a ring that stays within its bound, and files that end anywhere."""

from __future__ import annotations

import gzip
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.control.recording.entries import FRAME, Entry, Kind, Push, RecordingError
from headrace_controller.control.recording.files import Ring, find_files, read_file

OPEN = Entry(Kind.OPEN, 1.0, b"{}")


def gone(number: int) -> Entry:
    return Entry(Kind.GONE, float(number), f"c{number}".encode())


def test_entries_are_read_as_they_were_written(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "deep" / "recording", 1 << 20)
    ring.write(gone(0))  # before any OPEN: it goes nowhere
    written = [OPEN, gone(1), Entry(Kind.READY, 2.5, b"")]
    for entry in written:
        ring.write(entry)
    ring.close()
    (path,) = find_files(tmp_path / "deep")
    assert list(read_file(path)) == written
    assert path.stat().st_mode & 0o077 == 0, "for this user alone"


def test_what_was_flushed_can_be_read_while_the_file_is_written(tmp_path: Path) -> None:
    ring = Ring(tmp_path, 1 << 20)
    ring.write(OPEN)
    ring.write(gone(1))
    assert ring.flush() > 0
    assert ring.flush() >= 0
    assert list(read_file(find_files(tmp_path)[0])) == [OPEN, gone(1)]
    ring.close()


def test_the_ring_drops_the_oldest_and_stays_within_its_bound(tmp_path: Path) -> None:
    ring = Ring(tmp_path, 80_000)
    for number in range(30):
        ring.write(OPEN)
        ring.write(Entry(Kind.HELLO, 1.0, os.urandom(9_000)))
        ring.flush()
        ring.write(gone(number))
        ring.flush()
    ring.close()
    files = find_files(tmp_path)
    assert sum(path.stat().st_size for path in files) <= 80_000 + 1000
    assert 5 <= len(files) < 10
    assert list(read_file(files[-1]))[-1] == gone(29)


def test_a_file_that_has_its_size_says_so(tmp_path: Path) -> None:
    ring = Ring(tmp_path, 80_000)
    ring.write(OPEN)
    ring.flush()
    assert not ring.full
    ring.write(Entry(Kind.HELLO, 1.0, os.urandom(11_000)))
    ring.flush()
    assert ring.full
    ring.close()


def test_a_new_start_begins_a_file_of_its_own(tmp_path: Path) -> None:
    for _ in range(2):
        ring = Ring(tmp_path, 1 << 20)
        ring.write(OPEN)
        ring.close()
    assert len(find_files(tmp_path)) == 2


@given(st.integers(min_value=0, max_value=400))
def test_a_file_that_was_cut_anywhere_gives_what_is_whole(cut: int) -> None:
    """A controller that was killed leaves such a file."""
    entries = [OPEN, *(gone(number) for number in range(20))]
    whole = gzip.compress(b"".join(FRAME.pack(e.kind, e.at, len(e.payload)) + e.payload for e in entries))
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "cut.hrec"
        path.write_bytes(whole[: max(0, len(whole) - cut)])
        try:
            read = list(read_file(path))
        except RecordingError:
            assert len(whole) - cut < 10, "not even the head of a gzip file"
            return
    assert read == entries[: len(read)]


@pytest.mark.parametrize(
    "content",
    [b"plain text", gzip.compress(b"\xff" * 100), gzip.compress(FRAME.pack(2, 1.0, 1 << 31))],
    ids=["text", "no frames", "a frame too long"],
)
def test_what_is_no_recording_is_called_so(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.hrec"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match="no recording"):
        list(read_file(path))


def test_a_place_without_recordings_is_said(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="holds no recording"):
        find_files(tmp_path)
    with pytest.raises(RecordingError, match="is no file"):
        find_files(tmp_path / "none")


def test_a_push_is_read_as_it_was_packed() -> None:
    push = Push(
        np.array([3, 1], dtype=np.int32),
        np.array([0, 0], dtype=np.int32),
        np.array([[7, 100], [1, 2]], dtype=np.int32),
    )
    again = Push.unpack(push.pack())
    for name in ("row", "pool", "weights"):
        assert np.array_equal(getattr(again, name), getattr(push, name))
    for broken in (b"", push.pack()[:-1], push.pack() + b"x"):
        with pytest.raises(ValueError, match="push"):
            Push.unpack(broken)

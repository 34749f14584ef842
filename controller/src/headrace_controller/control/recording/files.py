"""A ring of files: written one at a time, the oldest dropped when they come to more than is allowed."""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, cast

from headrace_controller.control.recording.entries import FRAME, Entry, Kind, RecordingError, read_entries

DIRECTORY: Final = "recording"
SUFFIX: Final = ".hrec"
SHARE: Final = 8
"""One file is at most this part of the ring."""
_LEVEL: Final = 1


class Ring:
    """Writes entries to files in a directory; blocking. Raises OSError."""

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._file: gzip.GzipFile | None = None
        self._path: Path | None = None
        self._size = 0

    @property
    def full(self) -> bool:
        """True when the next file is due."""
        return self._size >= self._max_bytes // SHARE

    def write(self, entry: Entry) -> None:
        """Append an entry; OPEN begins a new file. Entries before the first OPEN go nowhere."""
        if entry.kind is Kind.OPEN:
            self._begin()
        if self._file is not None:
            self._file.write(FRAME.pack(entry.kind, entry.at, len(entry.payload)))
            self._file.write(entry.payload)

    def flush(self) -> int:
        """Let what is written be readable; how many bytes the file has grown by since the last time."""
        if self._file is None or self._path is None:
            return 0
        self._file.flush(zlib.Z_SYNC_FLUSH)
        before, self._size = self._size, self._path.stat().st_size
        self._drop_oldest()
        return max(0, self._size - before)

    def close(self) -> None:
        """End the file that is being written."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _begin(self) -> None:
        self.close()
        self._directory.mkdir(parents=True, exist_ok=True)
        known = [path for path in self._directory.iterdir() if path.name.endswith(SUFFIX)]
        number = max((int(path.stem) for path in known if path.stem.isdigit()), default=0) + 1
        self._path = self._directory / f"{number:08d}{SUFFIX}"
        self._size = 0
        self._path.touch(mode=0o600)  # requests and wishes are for this user alone
        self._file = gzip.GzipFile(self._path, "wb", compresslevel=_LEVEL)
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        paths = sorted(self._directory.glob(f"*{SUFFIX}"))
        sizes = {path: path.stat().st_size for path in paths}
        for path in paths:
            if sum(sizes.values()) <= self._max_bytes or path == self._path:
                return
            del sizes[path]
            path.unlink(missing_ok=True)


def find_files(path: Path) -> list[Path]:
    """The files of a recording: the one given, or all of a directory, oldest first. Raises
    RecordingError."""
    if path.is_dir():
        found = sorted(path.glob(f"*{SUFFIX}")) or sorted((path / DIRECTORY).glob(f"*{SUFFIX}"))
        if not found:
            raise RecordingError(f"{path} holds no recording (*{SUFFIX})")
        return found
    if not path.is_file():
        raise RecordingError(f"{path} is no file; recordings are in state_dir/{DIRECTORY}")
    return [path]


def read_file(path: Path) -> Iterator[Entry]:
    """The entries of one file, as far as it is whole. Raises RecordingError."""
    with contextlib.suppress(EOFError):
        try:
            with gzip.open(path, "rb") as file:
                yield from read_entries(cast(BinaryIO, file))
        except (OSError, zlib.error) as error:
            if isinstance(error, gzip.BadGzipFile) or not isinstance(error, OSError):
                raise RecordingError(f"{path} is no recording: {error}") from error
            raise RecordingError(f"{path}: {error.strerror or error}") from error

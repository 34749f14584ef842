"""What an interrupted matrix has done already: one line a piece, for a later run to go on from."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from headrace_lab.matrix.work import Below, Done, Piece, Row

PACKAGES = ("headrace_lab", "headrace_controller", "headrace_agent", "headrace_shared")


def code_digest() -> str:
    """Of all code and data that results follow from."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        _add(digest, files(package))
    return digest.hexdigest()[:16]


def _add(digest: Any, place: Traversable) -> None:
    for each in sorted(place.iterdir(), key=lambda entry: entry.name):
        if each.is_dir() and each.name != "__pycache__":
            _add(digest, each)
        elif each.name.endswith((".py", ".yaml", ".gz")):
            digest.update(each.name.encode())
            digest.update(each.read_bytes())


class Kept:
    """The file of finished pieces beside a matrix's results. `made_by` is the code's digest: pieces that
    other code made are not taken."""

    def __init__(self, path: Path, made_by: str) -> None:
        self._path = path
        self._made_by = made_by

    def find(self, piece: Piece) -> Done | None:
        """What was kept of a piece."""
        return self._read().get(_key(piece, self._made_by))

    def add(self, piece: Piece, done: Done) -> None:
        """Keep a finished piece. Raises OSError."""
        line = json.dumps({"key": _key(piece, self._made_by), "done": _plain(asdict(done))}, allow_nan=False)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def drop(self) -> None:
        """The matrix is whole: nothing needs to be kept."""
        self._path.unlink(missing_ok=True)

    def _read(self) -> dict[str, Done]:
        if not self._path.exists():
            return {}
        found = {}
        for line in self._path.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
                found[str(entry["key"])] = _done(entry["done"])
            except (ValueError, KeyError, TypeError):
                continue  # a line that was cut off when the run was
        return found


def _key(piece: Piece, made_by: str) -> str:
    what = (piece.fleet, piece.load, *piece.arms, *piece.tiers, piece.seed, piece.slo_seed, piece.quick)
    return "/".join([made_by, *map(str, what)])


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _done(entry: dict[str, Any]) -> Done:
    below = entry["below"]
    return Done(
        load=str(entry["load"]),
        repetition=int(entry["repetition"]),
        unloaded_s=float(entry["unloaded_s"]),
        rows=tuple(Row(**_with_nan(row)) for row in entry["rows"]),
        below=Below(**below) if below is not None else None,
        cpu_s=float(entry["cpu_s"]),
    )


def _with_nan(row: dict[str, Any]) -> dict[str, Any]:
    return {name: math.nan if value is None else value for name, value in row.items()}

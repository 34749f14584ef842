"""The last fleet on disk, so that a restarted controller moves no traffic.

One JSON file, written whole beside the old one and renamed over it. A file that cannot be read or
is of another version is reported and ignored: the controller then starts cold, never wrong.
"""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator

from headrace_controller.capability import BoundaryRecord
from headrace_shared import log
from headrace_shared.config import Settings

FILE_NAME = "fleet.json"
MAX_BYTES = 64 * 1024 * 1024


class KeptModel(Settings):
    """One model of a kept cell; `max_model_len` in tokens."""

    id: str
    max_model_len: int | None = None
    base_model: str = ""


class KeptErrors(Settings):
    """The evidence of a cell's errors, as pressure.ErrorRecord; `plain` None = never told."""

    failed: float = Field(ge=0)
    total: float = Field(ge=0)
    seen: float = Field(ge=0)
    plain: float | None = Field(None, ge=0, le=1)
    counted: bool = False


class KeptDrain(Settings):
    """A drain that somebody asked for; `remaining_s` to its deadline, seconds."""

    requested_by: str
    cause: str = ""
    target: str = ""
    remaining_s: float = Field(0.0, ge=0)
    finished: bool = False


class KeptCell(Settings):
    """What is needed to route to a cell before its agent is heard again.

    `weights[model][gateway]` are the weights last published; empty where the cell had none.
    `unloaded_ttft_s` is the least P95 TTFT that it has shown, `speed` a SpeedRecord of what it can do.
    `scores[gateway]` are its settled weighted means, `reach[gateway]` the logarithms of its reaches in force,
    `rtt_ms[gateway]` the last round trips known.
    """

    id: str
    node: str
    site: str
    host: str
    port: int = Field(ge=1, le=65535)
    engine_kind: str = ""
    health_path: str = ""
    tls: bool = False
    models: tuple[KeptModel, ...] = ()
    ready: bool = False
    weights: dict[str, dict[str, int]] = Field(default_factory=dict)
    scores: dict[str, float] = Field(default_factory=dict)
    unloaded_ttft_s: float | None = Field(None, gt=0)
    speed: tuple[float, float, float, float, float] | None = None
    reach: dict[str, float] = Field(default_factory=dict)
    errors: KeptErrors | None = None
    rtt_ms: dict[str, float] = Field(default_factory=dict)
    drain: KeptDrain | None = None


class KeptBoundary(Settings):
    """A learned boundary of a capability class, as capability.BoundaryRecord."""

    model: str
    max_model_len: int = Field(ge=1)
    bytes_per_token: float = Field(gt=0, le=1000, allow_inf_nan=False)


class KeptClass(Settings):
    """The weights last published of a capability class, where they are not those of its pool:
    `weights[cell][gateway]`."""

    model: str
    max_model_len: int = Field(ge=1)
    weights: dict[str, dict[str, int]] = Field(default_factory=dict)


class KeptFleet(Settings):
    """The file."""

    version: Literal[1] = 1
    region: str
    cells: tuple[KeptCell, ...] = ()
    boundaries: tuple[KeptBoundary, ...] = ()
    classes: tuple[KeptClass, ...] = ()

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        seen: set[str] = set()
        for cell in self.cells:
            if cell.id in seen:
                raise ValueError(f"cell {cell.id[:128]!r} stands there twice")
            seen.add(cell.id)
        return self

    @property
    def without_figures(self) -> tuple[object, ...]:
        """What is kept, less what moves all the time: two of them differ when something happened."""
        cells = tuple(
            (
                *(cell.id, cell.node, cell.site, cell.host, cell.port, cell.engine_kind, cell.models),
                *(cell.health_path, cell.tls, cell.ready, cell.weights),
                cell.drain and (cell.drain.requested_by, cell.drain.cause, cell.drain.finished),
            )
            for cell in self.cells
        )
        return (*cells, self.classes)

    @property
    def boundary_records(self) -> tuple[BoundaryRecord, ...]:
        """The boundaries as the learner takes them."""
        return tuple(
            BoundaryRecord(each.model, each.max_model_len, each.bytes_per_token) for each in self.boundaries
        )

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes that had a READY cell."""
        return frozenset(cell.node for cell in self.cells if cell.ready)


class KeptFleetStore:
    """Reads and writes the file in `state_dir`."""

    def __init__(self, state_dir: Path, region: str) -> None:
        self._path = state_dir / FILE_NAME
        self._region = region
        self._refused = ""
        self._log = log.get("kept_fleet")

    def load(self) -> KeptFleet | None:
        """The kept fleet, or None where there is none that can be used."""
        try:
            found = self._path.stat()
            if not stat.S_ISREG(found.st_mode):
                raise ValueError("no ordinary file")
            if found.st_size > MAX_BYTES:
                raise ValueError(f"larger than {MAX_BYTES} bytes")
            kept = KeptFleet.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            said = _first(error) if isinstance(error, ValidationError) else str(error)
            self._log.warning("kept fleet cannot be used; starting cold", path=str(self._path), error=said)
            return None
        if kept.region != self._region:
            self._log.warning(
                "kept fleet is of another region; starting cold", kept=kept.region, own=self._region
            )
            return None
        return kept

    def save(self, fleet: KeptFleet) -> bool:
        """Write the file; blocking. False when the disk refuses, with one log line until it does not."""
        scratch = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with scratch.open("w", encoding="utf-8") as file:
                json.dump(fleet.model_dump(mode="json"), file)
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(self._path)
        except (OSError, ValueError) as error:
            self._note(str(error))
            return False
        self._note("")
        return True

    def _note(self, refused: str) -> None:
        if refused and not self._refused:
            self._log.warning(
                "kept fleet cannot be written; a restart will start cold",
                path=str(self._path),
                error=refused,
                remedy="make state_dir a writable directory with free space",
            )
        elif self._refused and not refused:
            self._log.info("kept fleet is written again", path=str(self._path))
        self._refused = refused


def _first(error: ValidationError) -> str:
    """The first thing wrong with a file, and where."""
    detail = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in detail["loc"])
    return f"{place}: {detail['msg']}" if place else detail["msg"]


def load_within(store: KeptFleetStore, seconds: float) -> KeptFleet | None:
    """What `store` loads, or None (and one log line) when the disk has not answered by then; blocking."""
    loaded: list[KeptFleet | None] = []
    # A daemon: a disk that hangs must not hold up the end of the program.
    reader = threading.Thread(target=lambda: loaded.append(store.load()), name="load fleet", daemon=True)
    reader.start()
    reader.join(seconds)
    if reader.is_alive():
        log.get("kept_fleet").warning("the disk does not answer; starting cold", waited_s=seconds)
    return loaded[0] if loaded else None

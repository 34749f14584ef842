"""The last fleet on disk, so that a restarted controller moves no traffic.

One JSON file, written whole beside the old one and renamed over it. A file that cannot be read or
is of another version is reported and ignored: the controller then starts cold, never wrong.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from headrace_shared import log
from headrace_shared.config import Settings

FILE_NAME = "fleet.json"
MAX_BYTES = 64 * 1024 * 1024


class KeptModel(Settings):
    """One model of a kept cell; `max_model_len` in tokens."""

    id: str
    max_model_len: int | None = None
    base_model: str = ""


class KeptCell(Settings):
    """What is needed to route to a cell before its agent is heard again.

    `weights[model][gateway]` are the weights last published; empty where the cell had none.
    """

    id: str
    node: str
    site: str
    host: str
    port: int = Field(ge=1, le=65535)
    engine_kind: str = ""
    models: tuple[KeptModel, ...] = ()
    ready: bool = False
    weights: dict[str, dict[str, int]] = Field(default_factory=dict)


class KeptFleet(Settings):
    """The file."""

    version: Literal[1] = 1
    region: str
    cells: tuple[KeptCell, ...] = ()

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes that had a READY cell."""
        return frozenset(cell.node for cell in self.cells if cell.ready)


class KeptFleetStore:
    """Reads and writes the file in `state_dir`."""

    def __init__(self, state_dir: Path, region: str) -> None:
        self._path = state_dir / FILE_NAME
        self._region = region
        self._log = log.get("kept_fleet")

    def load(self) -> KeptFleet | None:
        """The kept fleet, or None where there is none that can be used."""
        try:
            if self._path.stat().st_size > MAX_BYTES:
                raise ValueError(f"larger than {MAX_BYTES} bytes")
            kept = KeptFleet.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, ValidationError) as error:
            self._log.warning(
                "kept fleet cannot be used; starting cold",
                path=str(self._path),
                error=str(error).splitlines()[0],
            )
            return None
        if kept.region != self._region:
            self._log.warning(
                "kept fleet is of another region; starting cold", kept=kept.region, own=self._region
            )
            return None
        return kept

    def save(self, fleet: KeptFleet) -> bool:
        """Write the file; blocking. False (and one log line) when the disk refuses."""
        scratch = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with scratch.open("w", encoding="utf-8") as file:
                json.dump(fleet.model_dump(mode="json"), file)
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(self._path)
        except OSError as error:
            self._log.warning("kept fleet cannot be written", path=str(self._path), error=str(error))
            return False
        return True

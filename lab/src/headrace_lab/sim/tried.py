"""Controller settings that a simulation tries in place of the defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from headrace_lab.live.ask import AskError
from headrace_lab.scenarios.settings import Arm
from headrace_lab.sim.arms import controller_settings


def read_settings(path: Path) -> dict[str, Any]:
    """A part of a controller's settings file, YAML or JSON. Raises AskError."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise AskError(f"--settings {path}: {error}") from error
    if not isinstance(found, dict):
        raise AskError(
            f"--settings {path}: give fields of a controller's settings, as pressure: or projection:"
        )
    return found


def check_settings(arms: Iterable[Arm], changes: Mapping[str, Any]) -> None:
    """Raises AskError, which names the field, where an arm's controller would not take them."""
    for arm in arms:
        try:
            controller_settings(arm, changes)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise AskError(f"--settings: {field}: {first['msg']}") from error

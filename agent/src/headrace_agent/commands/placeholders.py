"""The words that a proposed config holds where only its operator knows the value. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headrace_agent.settings import AgentSettings
from headrace_shared.config import ConfigError, Problem
from headrace_shared.net import HostPort

SITE: Final = "FILL-IN-THE-SITE"
# A name of this domain never resolves.
CONTROLLER: Final = HostPort("fill-in-the-controller.invalid", 18000)
LEFT: Final = "still holds the word that `discover` put there"
REMEDY: Final = "fill it in"


def unfilled(settings: AgentSettings) -> Iterator[str]:
    """The fields that nobody has filled in yet."""
    if settings.site == SITE:
        yield "site"
    for place, controller in enumerate(settings.controllers):
        if controller.address.host == CONTROLLER.host:
            yield f"controllers[{place}].address"


def require_filled(path: Path, settings: AgentSettings) -> None:
    """Raises ConfigError where the file at `path` still has fields to fill in."""
    problems = [Problem(0, field, f"{LEFT}; {REMEDY}") for field in unfilled(settings)]
    if problems:
        raise ConfigError(path, problems)

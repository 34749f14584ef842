"""What a new settings file changes in an agent that runs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from headrace_agent.settings import AgentSettings, CellSettings, ControllerSettings

FIXED: Final = {
    "node": "it is who this agent is to every controller",
    "site": "it is who this agent is to every controller",
    "metrics_listen": "the port is bound once, at the start",
}
"""Fields that only a restart changes, and why."""

TOLD: Final = frozenset({"advertise", "gpus", "labels", "nodes"})
"""Fields of a cell that the agent only passes on: its engine's collector is not touched."""

ACCESS: Final = frozenset({"api_key_file", "tls"})
"""Fields of a cell that say how its engine is spoken to: the engine and its history stay the same."""


class FixedFieldError(Exception):
    """A change that only a restart can make; the text names every field and the remedy."""


class Fate(Enum):
    """What becomes of the collector of a cell that stays."""

    KEPT = "kept"
    RETUNED = "retuned"
    """It goes on with all that it knows, under new settings."""
    REPLACED = "replaced"
    """The cell has another engine, or another kind of one: nothing known of the old one counts."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What is to be done; cells by id, controllers by address, each in the order of its file.

    `fates` holds the cells that stand in both files. `hardware`, `network` and `log` are True
    where that section differs.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    fates: dict[str, Fate]
    controllers_added: tuple[str, ...]
    controllers_removed: tuple[str, ...]
    controllers_changed: tuple[str, ...]
    hardware: bool
    network: bool
    log: bool

    def having(self, fate: Fate) -> tuple[str, ...]:
        """The cells with one fate."""
        return tuple(cell_id for cell_id, own in self.fates.items() if own is fate)


def compare(old: AgentSettings, new: AgentSettings) -> Difference:
    """What lies between two files. Raises FixedFieldError where only a restart can follow."""
    _require_restartless(old, new)
    before, after = _cells(old), _cells(new)
    known, named = _controllers(old), _controllers(new)
    engines = old.engine != new.engine
    return Difference(
        added=tuple(cell_id for cell_id in after if cell_id not in before),
        removed=tuple(cell_id for cell_id in before if cell_id not in after),
        fates={
            cell_id: _fate(before[cell_id], cell, engines)
            for cell_id, cell in after.items()
            if cell_id in before
        },
        controllers_added=tuple(name for name in named if name not in known),
        controllers_removed=tuple(name for name in known if name not in named),
        controllers_changed=tuple(name for name in named if name in known and known[name] != named[name]),
        hardware=old.hardware != new.hardware,
        # Without a cell no path is measured.
        network=(old.network, bool(before)) != (new.network, bool(after)),
        log=old.log != new.log,
    )


def _require_restartless(old: AgentSettings, new: AgentSettings) -> None:
    changed = [field for field in FIXED if getattr(old, field) != getattr(new, field)]
    if changed:
        lines = [
            f"  {field}: cannot change from {_shown(getattr(old, field))} to {_shown(getattr(new, field))} "
            f"while the agent runs ({FIXED[field]}); restart the agent, or put the old value back"
            for field in changed
        ]
        raise FixedFieldError("\n".join(["nothing was changed:", *lines]))


def _fate(old: CellSettings, new: CellSettings, engines: bool) -> Fate:
    changed = {field for field in CellSettings.model_fields if getattr(old, field) != getattr(new, field)}
    if changed - TOLD - ACCESS:
        return Fate.REPLACED
    return Fate.RETUNED if engines or changed & ACCESS else Fate.KEPT


def _cells(settings: AgentSettings) -> dict[str, CellSettings]:
    return {cell.id: cell for cell in settings.cells}


def _controllers(settings: AgentSettings) -> dict[str, ControllerSettings]:
    return {str(each.address): each for each in settings.controllers}


def _shown(value: object) -> str:
    return "nothing" if value is None else repr(str(value))

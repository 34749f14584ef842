"""What is kept of operators' wishes: one record a wish, and one for each act that was tried."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from headrace_shared.config import Settings


class Kind(StrEnum):
    """The kinds of wishes; the words are in the store and in the API."""

    SHADOW = "shadow"
    FREEZE = "freeze"
    OVERRIDE = "override"
    CORDON = "cordon"
    PIN = "pin"
    DRAIN = "drain"
    PICKER_OFF = "picker off"


class Wish(Settings):
    """A wish in force. `subject` is a cell, a site or a model, "" for the whole region; `at` is wall
    time in seconds. The rest belongs to a kind: `weight` to an override, `sites` to a pin, what
    follows to a drain; `deadline_at` is wall time."""

    kind: Kind
    subject: str = ""
    cause: str = ""
    by: str = ""
    at: float = 0.0
    weight: Annotated[int, Field(ge=1)] | None = None
    sites: tuple[str, ...] = ()
    requested_by: str = ""
    target: str = ""
    deadline_at: float = 0.0
    finished: bool = False

    @property
    def key(self) -> tuple[Kind, str]:
        """What it is about: a later wish with the same key takes its place."""
        return self.kind, self.subject


@dataclass(frozen=True, slots=True)
class Act:
    """Something that was asked of the controller, done or refused; `at` is wall time, `status` the HTTP
    status that it got."""

    at: float
    who: str
    role: str
    source: str
    action: str
    subject: str
    detail: str
    status: int


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asks, and from where: a token's name, or "local" on a controller without tokens."""

    name: str
    role: str = "operator"
    source: str = ""

"""`admin`: who may use the operators' API."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from headrace_shared.config import Name, Settings


class TokenSettings(Settings):
    """One token of the operators' API. `file` holds it alone on its first line, 16 characters at least;
    `name` stands for it in the account of what was done. A viewer may look, an operator may also act."""

    name: Name
    role: Literal["viewer", "operator"]
    file: Path


class AdminSettings(Settings):
    """Who may use the operators' API. Without tokens only this machine may, and may do everything.

    `open_metrics` leaves /metrics to anybody; /healthz and /readyz always are. `account_acts` is how
    many acts are kept in state_dir.
    """

    tokens: tuple[TokenSettings, ...] = Field((), max_length=64)
    open_metrics: bool = False
    account_acts: int = Field(10_000, ge=100, le=1_000_000)

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        names = [token.name for token in self.tokens]
        twice = sorted({each for each in names if names.count(each) > 1})
        if twice:
            raise ValueError(f"tokens: two tokens have the same name {twice[0]!r}; give each its own")
        return self

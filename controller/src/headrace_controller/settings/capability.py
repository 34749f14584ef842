"""`capability`: prompts that not every cell can take."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from headrace_shared.config import Settings


class CapabilitySettings(Settings):
    """Cells of one pool that take prompts of different lengths, in tokens (`max_model_len`).

    With `classes` a request that is likely not to fit goes only to cells which it fits: by the size of its
    body, at `bytes_per_token`, and the output that it asks for. That figure is where each class starts;
    with `learn` it moves between `least_` and `most_bytes_per_token` by what cells refuse, as gateways
    report. `reserve_tokens` of each length are left for templates. `max_classes`: closer lengths are
    taken together.
    """

    classes: bool = True
    max_classes: int = Field(4, ge=2, le=8)
    bytes_per_token: float = Field(1.5, ge=0.1, le=100)
    learn: bool = True
    least_bytes_per_token: float = Field(1.0, ge=0.1, le=100)
    most_bytes_per_token: float = Field(8.0, ge=0.1, le=100)
    reserve_tokens: int = Field(64, ge=0, le=65536)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.least_bytes_per_token <= self.bytes_per_token <= self.most_bytes_per_token:
            raise ValueError(
                f"bytes_per_token is {self.bytes_per_token:g}; it must lie between least_bytes_per_token "
                f"({self.least_bytes_per_token:g}) and most_bytes_per_token ({self.most_bytes_per_token:g})"
            )
        return self

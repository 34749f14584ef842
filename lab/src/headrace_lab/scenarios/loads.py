"""Load classes and traces, as the scenario file gives them."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from headrace_shared.config import Name, Settings


class Length(Settings):
    """Tokens: normal with this mean and deviation, drawn anew where it falls outside the bounds."""

    mean: float = Field(gt=0, le=1_000_000)
    deviation: float = Field(0.0, ge=0, le=1_000_000)
    least: int = Field(16, ge=1, le=1_000_000)
    most: int = Field(1_000_000, ge=1, le=10_000_000)

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if not self.least <= self.mean <= self.most:
            raise ValueError(f"mean {self.mean:g} lies outside least {self.least} and most {self.most}")
        return self


class Long(Settings):
    """A share of long requests mixed in; their prompts are uniform between two bounds, in tokens."""

    share: float = Field(ge=0, le=1)
    least: int = Field(ge=1, le=1_000_000)
    most: int = Field(ge=1, le=1_000_000)


class Shape(Settings):
    """One of the shapes that a session changes between."""

    prompt: Length
    output: Length


class Sessions(Settings):
    """Sessions of several requests.

    `turns` requests each, `think_s` seconds between them on average; a session's requests keep
    their order. `grow_to` is the length of the last turn's prompt in tokens, each prompt being
    the one before with its answer and more (0 = turns do not build on each other). `shapes`
    are taken in turn by the requests of a session that changes shape.
    """

    turns: int = Field(ge=1, le=1000)
    think_s: float = Field(ge=0, le=3600)
    grow_to: int = Field(0, ge=0, le=1_000_000)
    shapes: tuple[Shape, ...] = Field((), max_length=16)


class Spikes(Settings):
    """`size` requests at one moment, every `every_s` seconds, the first at `first_s`."""

    size: int = Field(ge=1, le=10_000)
    every_s: float = Field(gt=0, le=86_400)
    first_s: float = Field(ge=0, le=86_400)


class LoadClass(Settings):
    """A class of synthetic requests. `prefix_block` is the tokens of a prefix block."""

    kind: Literal["class"] = "class"
    note: str = ""
    prompt: Length
    output: Length
    long: Long | None = None
    sessions: Sessions | None = None
    spikes: Spikes | None = None
    prefix_block: int = Field(512, ge=16, le=65_536)


class TraceLoad(Settings):
    """A public trace; `file` is its name among the packaged files. Its requests come as they came, times
    rescaled, or, with `arrivals` poisson, in their order at times of a Poisson process."""

    kind: Literal["trace"]
    note: str = ""
    file: Name
    format: Literal["azure", "mooncake"]
    arrivals: Literal["own", "poisson"] = "own"
    prefix_block: int = Field(512, ge=16, le=65_536)

"""The settings page: what it says of a model must be what the model does."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from headrace_agent.settings import AgentSettings
from headrace_controller.settings import ControllerSettings
from headrace_shared.config import Settings
from headrace_shared.net import HostPort, HostPortField
from headrace_shared.reference import render, sections, type_words


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Inner(Settings):
    """A part; `size` is in bytes."""

    size: int = Field(4, ge=1, lt=10)
    name: str | None = None


class Whole(Settings):
    """The whole file."""

    part: Inner = Inner()
    again: Inner | None = None
    parts: tuple[Inner, ...] = Field(min_length=1, max_length=3)
    by_name: dict[str, Inner] = Field(default_factory=dict)
    mode: Literal["auto", "off"] = "auto"
    share: float | None = Field(None, gt=0, le=1)
    listen: HostPortField = HostPort("127.0.0.1", 80)


def test_every_key_stands_in_its_section_with_type_default_and_bounds() -> None:
    page = render(Whole, "Settings", "What it is.")
    assert page.startswith("# Settings\n\nWhat it is.\n\nThe whole file.\n")
    assert "| `parts` | list of section | required | 1 to 3 entries |" in page
    assert "| `mode` | `auto` or `off` | `auto` |  |" in page
    assert "| `share` | number |  | > 0, ≤ 1 |" in page
    assert "| `listen` | `host:port` | `127.0.0.1:80` |  |" in page
    assert "| `size` | whole number | `4` | ≥ 1, < 10 |" in page


def test_a_section_that_stands_twice_is_shown_once() -> None:
    page = render(Whole, "Settings", "")
    assert page.count("`size` is in bytes") == 1
    assert "## `parts[]`\n\nAs `part`.\n" in page
    assert [each.place for each in sections(Whole)] == ["", "part", "again", "parts[]", "by_name.NAME"]


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Path | None, "path"),
        (bool, "true or false"),
        (int | str, "whole number or text"),
        (Annotated[str, Field(max_length=3)], "text"),
        (tuple[int, ...], "list of whole number"),
        (dict[str, float], "map from text to number"),
        (Colour, "`red` or `blue`"),
        (HostPort, "`host:port`"),
    ],
)
def test_types_are_told_in_words(annotation: object, words: str) -> None:
    assert type_words(annotation) == words


@pytest.mark.parametrize("model", [AgentSettings, ControllerSettings])
def test_the_programs_own_settings_are_all_there(model: type[Settings]) -> None:
    page = render(model, "Settings", "")
    for section in sections(model):
        assert section.model.__doc__, f"{section.model.__name__} has no words"
        for name in section.model.model_fields:
            assert f"| `{name}` |" in page
    assert "Undefined" not in page
    assert "<class" not in page

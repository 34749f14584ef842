"""The shapes of cells in the settings file: each that can be run is taken, each mistake is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace_agent.settings import AgentSettings
from headrace_shared import config
from headrace_shared.config import ConfigError

HEAD = "node: host-1\nsite: berlin\ncontrollers: [{address: '10.0.0.5:18000'}]\n"
LOCAL = HEAD.replace("10.0.0.5", "127.0.0.1")
CELL = "cells:\n  - {id: c1, url: 'http://127.0.0.1:8000', advertise: '10.0.1.7:8000', gpus: [0, 1]}\n"
MEMBER = "members:\n  - {cell: far-1, gpus: [0, 1]}\n"
PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def load(text: str) -> AgentSettings:
    return config.parse(text, AgentSettings)


def problem(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(text)
    (found,) = caught.value.problems
    return f"{found.field}: {found.message}"


def test_a_host_that_only_lends_gpus_needs_no_cell_of_its_own() -> None:
    loaded = load(HEAD + MEMBER)
    assert (loaded.cells, loaded.members[0].cell, loaded.members[0].gpus) == ((), "far-1", (0, 1))


def test_a_host_may_have_cells_and_lend_gpus() -> None:
    loaded = load(HEAD + CELL + MEMBER)
    assert [cell.id for cell in loaded.cells] == ["c1"]
    assert [member.cell for member in loaded.members] == ["far-1"]


@pytest.mark.parametrize("text", [HEAD, HEAD + "cells: []\n", HEAD + "cells: []\nmembers: []\n"])
def test_a_file_that_speaks_for_nothing_says_what_to_add(text: str) -> None:
    said = problem(text)
    assert "add an entry to cells" in said
    assert "or to members" in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD + CELL + MEMBER.replace("far-1", "c1"), ("'c1' is a cell of this file", "in its gpus")),
        (HEAD + MEMBER + MEMBER.splitlines()[1] + "\n", ("'far-1' stands twice", "in one entry")),
        (HEAD + MEMBER.replace("[0, 1]", "[]"), ("members[0].gpus", "at least 1 item")),
        (HEAD + MEMBER.replace(", gpus: [0, 1]", ""), ("members[0].gpus", "required")),
        (HEAD + MEMBER.replace("[0, 1]", "[0, GPU-a, 0]"), ("GPU 0 stands twice", "name each once")),
        (HEAD + MEMBER.replace("far-1", "'two words'"), ("members[0].cell",)),
        (HEAD + CELL.replace("[0, 1]", "[1, 1]"), ("cells[0].gpus", "GPU 1 stands twice")),
        (
            HEAD + CELL.replace("gpus: [0, 1]", "nodes: [host-1]"),
            ("names this host", "name the other hosts only"),
        ),
        (HEAD + CELL.replace("gpus: [0, 1]", "nodes: [b, b]"), ("a node stands twice", "name each once")),
        (HEAD + CELL.replace("gpus: [0, 1]", "nodes: ['b c']"), ("cells[0].nodes[0]",)),
        (HEAD + CELL.replace("[0, 1]", str(list(range(65)))), ("cells[0].gpus", "at most 64")),
    ],
)
def test_a_mistake_names_its_field_and_the_remedy(text: str, words: tuple[str, ...]) -> None:
    said = problem(text)
    for word in words:
        assert word in said


def test_a_loopback_address_is_warned_of_where_the_controller_is_elsewhere() -> None:
    """To a gateway on another host 127.0.0.1 is its own machine."""
    own = CELL.replace(", advertise: '10.0.1.7:8000'", "")
    (warning,) = load(HEAD + own).warnings()
    assert "cells: c1: gateways on other hosts cannot reach 127.0.0.1:8000" in warning
    assert "10.0.0.5:18000 refuses it; set advertise" in warning
    assert load(HEAD + CELL).warnings() == ()
    assert load(LOCAL + own).warnings() == (), "a controller of this machine may have gateways on it"
    for name in ("[::1]:8000", "localhost:8000"):
        assert (
            len(load(HEAD + CELL.replace("127.0.0.1:8000', advertise: '10.0.1.7:8000", name)).warnings()) == 1
        )


def examples() -> dict[str, str]:
    """The files that the page shows for each shape, by heading."""
    section = PAGE.read_text().split("\n## Shapes of cells\n")[1].split("\n## ")[0]
    found = {}
    for part in re.split(r"^### ", section, flags=re.MULTILINE)[1:]:
        heading = part.splitlines()[0]
        for number, block in enumerate(
            re.findall(r"^```yaml\n(.*?)^```", part, flags=re.MULTILINE | re.DOTALL)
        ):
            found[f"{heading} {number}" if number else heading] = block
    return found


@pytest.mark.parametrize("heading", sorted(examples()))
def test_each_example_of_the_page_is_a_good_file(heading: str) -> None:
    block = examples()[heading]
    text = block if "controllers:" in block else HEAD.replace("host-1", "host-9") + block
    load(text)


def test_the_page_shows_every_shape() -> None:
    said = " ".join(examples()).lower()
    for shape in ("one gpu", "tensor parallel", "several engines", "mig", "container", "two nodes"):
        assert shape in said

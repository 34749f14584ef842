"""The operators' page on the agent's reload names every key that there is."""

from __future__ import annotations

import re
from pathlib import Path

from headrace_agent.service.difference import ACCESS, FIXED, TOLD
from headrace_agent.settings import AgentSettings, CellSettings

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "agent-service.md").read_text(encoding="utf-8")


def rows() -> dict[frozenset[str], str]:
    """The keys of each row of the table under "Reload", and what happens."""
    table = PAGE.split("\n## Reload\n", 1)[1].split("\n## ", 1)[0]
    lines = re.findall(r"^\| (`[^|]+`) \| (.*) \|$", table, re.MULTILINE)
    return {frozenset(re.findall(r"`([^`]+)`", keys)): text for keys, text in lines}


def keys_of(words: str) -> frozenset[str]:
    """The keys of the one row whose text begins so."""
    (keys,) = [keys for keys, text in rows().items() if text.startswith(words)]
    return keys


def test_every_key_stands_in_the_table_once() -> None:
    named = [key for keys in rows() for key in keys]
    expected = {*AgentSettings.model_fields, *(f"cells[].{field}" for field in CellSettings.model_fields)}
    assert sorted(named) == sorted(expected)


def test_the_table_says_what_the_agent_does() -> None:
    assert keys_of("refused") == set(FIXED)
    assert keys_of("the same engine") == {f"cells[].{field}" for field in ACCESS}
    assert keys_of("told to the controllers at once") == {f"cells[].{field}" for field in TOLD}
    others = set(CellSettings.model_fields) - ACCESS - TOLD - {"id"}
    assert keys_of("another engine") == {f"cells[].{field}" for field in others}


def test_the_files_that_the_page_names_exist() -> None:
    named = set(re.findall(r"deploy/[\w./-]+\w", PAGE))
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_config_is_in_its_place_before_it_is_checked_as_the_unit_reads_it() -> None:
    """Root may read what the unit's user may not."""
    block = PAGE.split("\n## systemd\n", 1)[1].split("```\n")[1].splitlines()
    (checked,) = [line for line in block if "headrace-agent check" in line]
    unit = (ROOT / "deploy" / "systemd" / "headrace-agent.service").read_text(encoding="utf-8")
    (user,) = re.findall(r"^User=(\w+)$", unit, re.MULTILINE)
    assert checked.startswith(f"runuser -u {user} -- ")
    placed = [line for line in block if re.match(r"install .*-g headrace agent\.yaml /etc/headrace/", line)]
    assert placed
    assert block.index(placed[0]) < block.index(checked)
    about_check = (ROOT / "docs" / "agent.md").read_text(encoding="utf-8")
    assert checked in about_check, "both pages say the same"

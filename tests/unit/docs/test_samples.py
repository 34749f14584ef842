"""What the pages tell people to type works where they type it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FILES = re.compile(r"\b(?:ca|cert|key): *([^\s,{}]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_nothing_of_ours_is_installed_by_name(page: Path) -> None:
    """No registry has it under that name."""
    installed = re.findall(r"pip install ([^\n#&`]+)", page.read_text(encoding="utf-8"))
    assert [each for line in installed for each in line.split() if each.startswith("headrace")] == []


@pytest.mark.parametrize("page", ["configuration.md", "security.md"])
def test_tls_files_are_absolute(page: str) -> None:
    """The units set no working directory."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    samples = "".join(re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.S))
    files = FILES.findall(re.sub(r"#.*", "", samples))
    assert files
    assert [each for each in files if not each.startswith("/etc/headrace/tls/")] == []

"""One browser for all tests of this folder."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.e2e.page.browser import ROOT, chromium, running_browser
from tests.e2e.page.fake_region import FakeRegion, Served

AXE = "axe-core@4.14.1"
NPM_S = 120


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def browser() -> AsyncIterator[Browser]:
    path = chromium()
    if path is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    async with running_browser(path) as started:
        yield started


@pytest.fixture(scope="package")
def hundred() -> Iterator[Served]:
    """A region of 100 cells whose figures move."""
    with Served(lambda: FakeRegion(100)) as served:
        yield served


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core, from the npm registry; kept in out/ for the next run."""
    kept = ROOT / "out" / f"{AXE}.min.js"
    if not kept.exists():
        if shutil.which("npm") is None:
            pytest.skip(f"npm is not installed, and {AXE} comes by it: apt-get install npm")
        place = tmp_path_factory.mktemp("axe")
        subprocess.run(["npm", "pack", "--silent", AXE], cwd=place, check=True, timeout=NPM_S)
        (archive,) = place.glob("axe-core-*.tgz")
        shutil.unpack_archive(archive, place, filter="data")
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(place, "package", "axe.min.js"), kept)
    return kept.read_text()

"""Tokens and roles on the page: it asks for a token, keeps it in the tab, and shows a viewer no drain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.e2e.page.browser import Visit, visiting
from tests.e2e.page.fake_region import FakeRegion, Served

pytestmark = [pytest.mark.extra, pytest.mark.asyncio(loop_scope="package")]

VIEWER, OPERATOR = "v" * 24, "o" * 24


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A small region whose API wants tokens."""
    place: Path = tmp_path_factory.mktemp("tokens")
    (place / "viewer").write_text(VIEWER)
    (place / "operator").write_text(OPERATOR)
    more = f"""\
admin:
  tokens:
    - {{name: grafana, role: viewer, file: {place}/viewer}}
    - {{name: anna, role: operator, file: {place}/operator}}
"""
    with Served(lambda: FakeRegion(4, more)) as served:
        yield served


async def enter(visit: Visit, token: str) -> None:
    """Give the page a token."""
    await visit.page.locator("input#token").fill(token)
    await visit.page.keyboard.press("Enter")


async def test_the_page_asks_for_a_token_until_one_is_known(browser: Browser, guarded: Served) -> None:
    async with visiting(browser, guarded.url) as visit:
        await visit.page.goto(f"{guarded.url}/#/cells")
        dialog = visit.page.get_by_role("dialog")
        await dialog.wait_for()
        assert "admin.tokens" in await dialog.inner_text()
        await visit.page.wait_for_selector('#live[data-state="denied"]')
        await visit.shot("token-1280-light")
        await enter(visit, "x" * 24)
        await visit.page.wait_for_selector("dialog:has-text('this token is not known')")
        assert "secret" not in visit.page.url
        await enter(visit, OPERATOR)
        await visit.live()
        kept = await visit.page.evaluate("[sessionStorage.length, localStorage.length, document.cookie]")
        assert kept == [1, 0, ""], "in the tab alone"
        await visit.page.reload()
        await visit.live()


async def test_a_viewer_looks_and_sees_no_drain(browser: Browser, guarded: Served) -> None:
    async with visiting(browser, guarded.url) as visit:
        await visit.page.goto(f"{guarded.url}/#/cell/berlin-001")
        await visit.page.get_by_role("dialog").wait_for()
        await enter(visit, VIEWER)
        await visit.live()
        await visit.page.wait_for_selector("table.account tbody tr")
        assert await visit.page.get_by_role("button", name="Drain").count() == 0
        await visit.page.wait_for_selector(".acts:has-text('You look as grafana (viewer)')")
        assert await visit.page.get_by_role("button", name="Drain").count() == 0


async def test_an_operator_drains_and_the_account_names_who(browser: Browser, guarded: Served) -> None:
    async with visiting(browser, guarded.url) as visit:
        await visit.page.goto(f"{guarded.url}/#/cell/berlin-001")
        await visit.page.get_by_role("dialog").wait_for()
        await enter(visit, OPERATOR)
        await visit.page.get_by_role("button", name="Drain").click()
        await visit.page.get_by_role("textbox", name="Why").fill("new fan")
        await visit.page.get_by_role("button", name="Drain berlin-001").click()
        await visit.page.wait_for_selector(
            ".title-line .state:is([data-state=DRAINING], [data-state=TERMINATED])"
        )
        await visit.page.goto(f"{guarded.url}/#/events")
        await visit.page.wait_for_selector(
            ".events li[data-kind=operator]:has-text('berlin-001'):has-text('anna')"
        )

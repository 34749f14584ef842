"""The page over a region of 100 cells: widths, themes, keyboard, accessibility, bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.async_api import Browser

from tests.e2e.page.browser import NARROW, WIDE, Scheme, Visit, visiting
from tests.e2e.page.fake_region import Served

pytestmark = [pytest.mark.extra, pytest.mark.asyncio(loop_scope="package")]

FALLING = """
() => {
  const weights = [...document.querySelectorAll("tbody td.c-weight")].map((each) => +each.textContent);
  return weights.length > 10 && weights.every((each, at) => !at || each <= weights[at - 1]);
}
"""
WATCHED_MS = 1500
MOST_SHIFT = 0.1
"""A layout shift score that counts as good; the whole window moving by half its height is 0.5."""
SHIFTS = """
() => {
  window.shifts = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      window.shifts.push([entry.value, entry.sources.map((each) => each.node?.nodeName).join()]);
    }
  }).observe({ type: "layout-shift", buffered: true });
}
"""
SIDEWAYS = """
() => [...document.querySelectorAll(".plain-scroll")]
  .filter((each) => each.scrollWidth > each.clientWidth + 1)
  .map((each) => `${each.getAttribute("aria-label")}: ${each.scrollWidth} of ${each.clientWidth}`)
"""
"""Tables within the page that must be pushed aside to be read."""
VIEWS = {
    "overview": "#/",
    "cells": "#/cells",
    "cell": "#/cell/berlin-003",
    "events": "#/events",
    "pools": "#/pools",
}
MOST_BYTES = 200_000
SETTLE_MS = 600
"""Until the first frames after `live` are drawn, which a check of the whole picture needs."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["1280", "390"])
async def test_every_view_fits_its_window(
    browser: Browser, hundred: Served, size: tuple[int, int], scheme: Scheme
) -> None:
    async with visiting(browser, hundred.url, size, scheme) as visit:
        for name, address in VIEWS.items():
            await visit.go(address)
            await visit.page.wait_for_selector("main h1", state="attached")
            await visit.page.wait_for_timeout(SETTLE_MS)
            await visit.shot(f"{name}-{size[0]}-{scheme}")
            document, window = await visit.width()
            assert document <= window, f"{name} is {document} px wide in a window of {window}"
            assert await visit.page.locator(".howto").first.is_visible()
            assert await visit.page.evaluate(SIDEWAYS) == [], f"{name}: a figure is cut off"


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["1280", "390"])
async def test_nothing_jumps_while_figures_come(
    browser: Browser, hundred: Served, size: tuple[int, int]
) -> None:
    for name, address in VIEWS.items():
        async with visiting(browser, hundred.url, size) as visit:
            await visit.go(address)
            await visit.page.evaluate(SHIFTS)
            await visit.page.wait_for_timeout(WATCHED_MS)
            shifts: list[Any] = await visit.page.evaluate("window.shifts")
            assert sum(value for value, _ in shifts) <= MOST_SHIFT, f"{name}: {shifts}"


async def test_the_theme_follows_the_system_and_can_be_chosen(browser: Browser, hundred: Served) -> None:
    async def dark(visit: Visit) -> bool:
        colour = await visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, colour.removeprefix("rgb(").removesuffix(")").split(","))) < 3 * 80

    async with visiting(browser, hundred.url, scheme="dark") as visit:
        await visit.go()
        assert await dark(visit)
        button = visit.page.get_by_role("button", name="Theme")
        await button.click()
        await button.click()
        assert await button.inner_text() == "Theme: light"
        assert not await dark(visit)
        await visit.page.reload()
        await visit.live()
        assert not await dark(visit), "the choice outlives a reload"


async def test_the_way_by_keyboard_to_a_cell_and_back(browser: Browser, hundred: Served) -> None:
    async with visiting(browser, hundred.url) as visit:
        page = visit.page
        await visit.go("#/")
        await page.keyboard.press("/")
        await visit.until("document.activeElement?.id === 'search'")
        await page.keyboard.type("warsaw-00")
        await visit.until("document.querySelector('.found')?.textContent.startsWith('9 of 100')")
        for _ in range(30):
            await page.keyboard.press("Tab")
            if await page.evaluate("Boolean(document.activeElement?.closest('table.cells tbody'))"):
                break
        first = await focused_cell(visit)
        await page.keyboard.press("ArrowDown")
        second = await focused_cell(visit)
        assert first.startswith("warsaw-00")
        assert second.startswith("warsaw-00")
        assert first != second
        outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", "the focus can be seen"
        await page.keyboard.press("End")
        assert await focused_cell(visit) not in (first, second)
        await visit.shot("keyboard-1280-light")
        last = await focused_cell(visit)
        await page.keyboard.press("Enter")
        await page.wait_for_selector(f"h1:text-is('{last}')")
        await page.go_back()
        await page.wait_for_selector("table.cells")
        assert await page.locator("#search").input_value() == "warsaw-00"


async def focused_cell(visit: Visit) -> str:
    """The text of what has the focus."""
    return str(await visit.page.evaluate("document.activeElement.textContent"))


async def test_sort_filter_and_search_stand_in_the_address(browser: Browser, hundred: Served) -> None:
    async with visiting(browser, hundred.url) as visit:
        page = visit.page
        await visit.go("#/cells?site=paris&sort=id")
        await visit.until("document.querySelector('.found')?.textContent === '25 of 100 cells'")
        assert await page.locator("table.cells tbody .id").first.inner_text() == "paris-001"
        head = page.get_by_role("columnheader", name="Weight")
        await head.get_by_role("button").click()
        await page.mouse.move(5, 5)
        assert await head.get_attribute("aria-sort") == "descending"
        assert "sort=-weight" in page.url
        await visit.until(FALLING)
        await page.get_by_role("button", name="FAILED").click()
        assert "state=FAILED" in page.url
        assert await page.locator(".empty:visible").inner_text() == (
            "No cell matches. Take a filter away, or clear the search with Escape."
        )


async def test_the_order_holds_still_under_the_pointer(browser: Browser, hundred: Served) -> None:
    names = "[...document.querySelectorAll('tbody .id')].map((each) => each.textContent)"
    figures = "[...document.querySelectorAll('tbody .c-pressure')].map((each) => each.textContent).join()"
    async with visiting(browser, hundred.url) as visit:
        await visit.go("#/cells?sort=-pressure")
        await visit.page.locator("tbody tr:has(a)").nth(3).hover()
        await visit.page.wait_for_selector(".held:text-is('Held now.')")
        before, shown = await visit.page.evaluate(f"[{names}, {figures}]")
        await visit.until(f"(shown) => {figures} !== shown", shown)
        await visit.page.wait_for_timeout(WATCHED_MS)
        assert await visit.page.evaluate(names) == before
        await visit.page.mouse.move(3, 3)
        await visit.page.wait_for_selector(".held:text-is('')", state="attached")


async def test_the_account_adds_up_to_the_pressure_and_the_weight(browser: Browser, hundred: Served) -> None:
    async with visiting(browser, hundred.url) as visit:
        await visit.go("#/cell/paris-002")
        await visit.page.wait_for_selector("table.account tbody tr:nth-child(10)")
        adds = await visit.page.evaluate(
            """[...document.querySelectorAll("table.account tbody tr")].map(
                (row) => +row.children[5].textContent)"""
        )
        mean = await visit.page.evaluate("+document.querySelector('table.account tfoot .num').textContent")
        assert len(adds) == 10
        assert sum(adds) == pytest.approx(mean, abs=1e-5)
        steps = dict(
            await visit.page.evaluate(
                """[...document.querySelectorAll(".steps > div")].map(
                    (step) => [step.children[0].textContent, step.children[2].textContent])"""
            )
        )
        assert 0 < float(steps["Pressure"]) < 1
        assert any(name.startswith("Weight in ") and int(value) >= 1 for name, value in steps.items())
        assert await visit.page.locator(".timeline").count() == 12


async def serious(visit: Visit, axe: str, *rules: str) -> list[Any]:
    """What axe-core calls serious or critical on the page as it is; all rules, or these alone."""
    await visit.page.evaluate(axe)
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = rules
    found = await visit.page.evaluate("(options) => axe.run(options)", options)
    bad = [each for each in found["violations"] if each["impact"] in ("serious", "critical")]
    return [(each["id"], [node["html"][:120] for node in each["nodes"][:3]]) for each in bad]


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["1280", "390"])
async def test_axe_finds_nothing_serious(
    browser: Browser, hundred: Served, axe: str, size: tuple[int, int]
) -> None:
    async with visiting(browser, hundred.url, size) as visit:
        for name, address in VIEWS.items():
            await visit.go(address)
            await visit.page.wait_for_timeout(SETTLE_MS)
            said = await serious(visit, axe)
            assert not said, f"{name}: {json.dumps(said, indent=1)}"


async def test_axe_finds_enough_contrast_in_the_dark(browser: Browser, hundred: Served, axe: str) -> None:
    async with visiting(browser, hundred.url, scheme="dark") as visit:
        for name, address in VIEWS.items():
            await visit.go(address)
            await visit.page.wait_for_timeout(SETTLE_MS)
            said = await serious(visit, axe, "color-contrast")
            assert not said, f"{name}: {json.dumps(said, indent=1)}"


async def test_the_page_is_small_and_asks_nobody_else(browser: Browser, hundred: Served) -> None:
    """Everything over the wire until the first frame of the region is drawn, headers aside."""
    async with visiting(browser, hundred.url) as visit:
        session = await visit.page.context.new_cdp_session(visit.page)
        received = 0

        def count(event: dict[str, Any]) -> None:
            nonlocal received
            received += event["encodedDataLength"]

        session.on("Network.dataReceived", count)
        await session.send("Network.enable")
        await visit.go()
        print(f"{received} bytes until live")
        assert 10_000 < received <= MOST_BYTES


async def test_the_table_draws_the_rows_in_sight_only(browser: Browser, hundred: Served) -> None:
    async with visiting(browser, hundred.url) as visit:
        await visit.go("#/cells?sort=id")
        table = visit.page.locator("table.cells")
        await visit.until("document.querySelectorAll('table.cells tbody tr').length > 10")
        assert await table.get_attribute("aria-rowcount") == "101"
        assert await table.locator("tbody tr").count() < 60
        await visit.page.evaluate("document.querySelector('.table-scroll').scrollTop = 1e6")
        await visit.page.wait_for_selector("tbody a:text-is('warsaw-025')")
        assert await table.locator("tbody tr").count() < 60
        assert await table.locator("a:text-is('amsterdam-001')").count() == 0

"""A real Chromium, driven by Playwright; Debian's, which nobody downloads during a test."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from playwright.async_api import Browser, Page, async_playwright

ROOT = Path(__file__).resolve().parents[3]
SHOTS = ROOT / "out" / "page"
"""Screenshots, for people to look at after a run; git does not keep them."""
WIDE = (1280, 860)
NARROW = (390, 844)
PATIENCE_MS = 20_000
"""For what takes a moment on an idle machine."""
POLL_S = 0.05
BINARIES = ("chromium", "chromium-browser", "google-chrome")

Scheme = Literal["light", "dark"]


def chromium() -> str | None:
    """The path of an installed Chromium; None where there is none."""
    return next((path for each in BINARIES if (path := shutil.which(each))), None)


@asynccontextmanager
async def running_browser(path: str) -> AsyncIterator[Browser]:
    """A headless browser without a window; as root it runs without its own sandbox, which refuses root."""
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield browser
        finally:
            await browser.close()


class Visit:
    """One page in a profile of its own. `troubles` are errors that it has met: scripts that failed, what its
    policy forbade, requests to elsewhere."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.troubles: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        page.on("console", self._said)
        page.on("request", self._asked)

    def _said(self, message: Any) -> None:
        # A controller that is away is said to be away by the page itself.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.troubles.append(f"console: {message.text}")

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(self.url):
            self.troubles.append(f"request to elsewhere: {request.url}")

    async def go(self, address: str = "#/") -> None:
        """Open an address of the page and wait until it is live."""
        await self.page.goto(f"{self.url}/{address}")
        await self.live()

    async def live(self) -> None:
        """Wait until the page says that it is live."""
        await self.page.wait_for_selector('#live[data-state="live"]')

    async def until(self, expression: str, given: Any = None) -> Any:
        """Wait until an expression or a function of `given` is true; its value. The page's policy forbids
        Playwright's own way to wait, which evaluates a string within the page."""
        async with asyncio.timeout(PATIENCE_MS / 1000):
            while not (found := await self.page.evaluate(expression, given)):  # noqa: ASYNC110 (the browser's doing)
                await asyncio.sleep(POLL_S)
        return found

    async def width(self) -> tuple[int, int]:
        """How wide the document and the window are, px."""
        found = await self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        return found[0], found[1]

    async def shot(self, name: str, whole: bool = False) -> None:
        """Keep a screenshot."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=SHOTS / f"{name}.png", full_page=whole)


@asynccontextmanager
async def visiting(
    browser: Browser, url: str, size: tuple[int, int] = WIDE, scheme: Scheme = "light"
) -> AsyncIterator[Visit]:
    """A page that has seen nothing before. At the end it must have met no trouble."""
    context = await browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, reduced_motion="reduce"
    )
    try:
        visit = Visit(await context.new_page(), url)
        yield visit
        assert visit.troubles == [], visit.troubles
    finally:
        await context.close()

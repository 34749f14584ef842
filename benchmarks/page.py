"""What the operators' page costs a browser: bytes, first paint, frames; and when it marks a failure.

A real Chromium against the real control loop, feed and page; agents and engines are simulated in the same
process as the controller.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.async_api import Browser, Page
from tests.e2e.page.browser import chromium, running_browser, visiting

from benchmarks.result import json_path, report

SEED = 1
CELLS = {"small": 100, "large": 1000}
WATCH_S = 20
KILLS = 5
START_S = 60
FRAME_MS = 1000 / 30
TASKS = frozenset({"RunTask", "ThreadControllerImpl::RunTask"})
VIEWS = {"cells": "#/cells?sort=-pressure", "overview": "#/", "cell": "#/cell/paris-007"}

PAINT = """
() => Object.fromEntries(performance.getEntriesByType("paint").map((each) => [each.name, each.startTime]))
"""
MARK = """
() => new Promise((resolve) => {
  const failed = () => document.querySelector('.tiles li[data-state="FAILED"] .figure').textContent;
  const before = failed();
  const seen = new MutationObserver(() => {
    if (failed() !== before) {
      seen.disconnect();
      requestAnimationFrame(() => resolve(performance.timeOrigin + performance.now()));
    }
  });
  seen.observe(document.querySelector(".tiles"), { childList: true, characterData: true, subtree: true });
})
"""


@contextmanager
def served(cells: int) -> Iterator[tuple[str, Any]]:
    """A region of so many cells in a process of its own: its address, and its standard input."""
    command = [sys.executable, "-m", "tests.e2e.page.fake_region", "--cells", str(cells)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
    finally:
        process.kill()
        process.wait(START_S)


async def first_visit(browser: Browser, url: str) -> dict[str, float]:
    """Bytes over the wire, and when the first paint and the first figures came, ms."""
    async with visiting(browser, url) as visit:
        session = await visit.page.context.new_cdp_session(visit.page)
        received = []
        session.on("Network.dataReceived", lambda event: received.append(event["encodedDataLength"]))
        await session.send("Network.enable")
        await visit.go()
        live = await visit.page.evaluate("performance.now()")
        paint = await visit.page.evaluate(PAINT)
        return {
            "bytes": float(sum(received)),
            "first_paint_ms": paint["first-contentful-paint"],
            "live_ms": live,
        }


async def watched(browser: Browser, page: Page, seconds: float) -> dict[str, float]:
    """What the page's main thread did over so many seconds: its tasks by its own CPU time, ms, which other
    programs on the machine do not stretch, and by the clock, which they do."""
    await browser.start_tracing(page=page, categories=["toplevel", "__metadata", "devtools.timeline"])
    await asyncio.sleep(seconds)
    events = json.loads(await browser.stop_tracing())["traceEvents"]
    mains = {
        (each["pid"], each["tid"])
        for each in events
        if each["name"] == "thread_name" and each["args"]["name"] == "CrRendererMain"
    }
    tasks = [
        (each.get("tdur", 0) / 1000, each["dur"] / 1000)
        for each in events
        if (each["pid"], each["tid"]) in mains and each["name"] in TASKS and each["ph"] == "X"
    ]
    cpu = [each for each, _ in tasks]
    return {
        "longest_task_cpu_ms": max(cpu),
        "tasks_over_33_ms_cpu": float(sum(each > FRAME_MS for each in cpu)),
        "tasks_over_33_ms_wall": float(sum(each > FRAME_MS for _, each in tasks)),
        "cpu_ms_a_second": sum(cpu) / seconds,
    }


async def marks(browser: Browser, url: str, process: Any) -> list[float]:
    """From an agent's word that its engine is gone to the frame that shows it, ms, once a kill."""
    took = []
    async with visiting(browser, url) as visit:
        await visit.go()
        for number in range(1, KILLS + 1):
            await asyncio.sleep(0.37 * number)
            marked = asyncio.create_task(visit.page.evaluate(MARK), name="mark")
            await asyncio.sleep(0.2)
            process.stdin.write(f"kill paris-{number:03d}\n")
            process.stdin.flush()
            at = float((await asyncio.to_thread(process.stdout.readline)).split()[1])
            took.append(await marked - at)
    return took


async def measure() -> dict[str, float]:
    """All figures."""
    path = chromium()
    if path is None:
        raise SystemExit("no Chromium here: apt-get install chromium")
    figures: dict[str, float] = {}
    async with running_browser(path) as browser:
        with served(CELLS["small"]) as (url, process):
            figures |= await first_visit(browser, url)
            took = await marks(browser, url, process)
            figures |= {"mark_ms_median": sorted(took)[len(took) // 2], "mark_ms_most": max(took)}
        with served(CELLS["large"]) as (url, _):
            for name, address in VIEWS.items():
                async with visiting(browser, url) as visit:
                    await visit.go(address)
                    await asyncio.sleep(2)
                    found = await watched(browser, visit.page, WATCH_S)
                    figures |= {f"{name}_1000_{key}": value for key, value in found.items()}
    return figures


def main() -> None:
    """Measure, print, and write what was asked for."""
    path = json_path(__doc__ or "")
    report("page", SEED, asyncio.run(measure()), path)


if __name__ == "__main__":
    main()

"""Every command of docs/cli.md runs, in the order of the page, and says what the page shows."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.integration.operator_cli.live_region import living

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"
LIMIT_S = 60.0
GOES_ON = "until Ctrl-C"


@dataclass
class Shown:
    """A command of the page, what it is said to print, and the exit code."""

    command: str
    code: int
    goes_on: bool
    lines: list[str] = field(default_factory=list)


def shown() -> Iterator[Shown]:
    for block in re.findall(r"^```console\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S):
        found: Shown | None = None
        for line in block.splitlines():
            if line.startswith("$ "):
                if found is not None:
                    yield found
                command, _, comment = line[2:].partition("  # ")
                code = int(comment.removeprefix("exit ")) if comment.startswith("exit ") else 0
                found = Shown(command, code, comment == GOES_ON)
            elif found is not None:
                found.lines.append(line)
        if found is not None:
            yield found


def shape(line: str) -> list[str]:
    """The words of a line; figures, which differ from run to run, are one word."""
    return re.sub(r"\d[\d.:T+-]*(ms|s|%)?", "N", line).split()


async def said(each: Shown, url: str) -> tuple[int, list[str]]:
    """The exit code of a command, and what it printed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")}
    process = await asyncio.create_subprocess_exec(
        *("bash", "-o", "pipefail", "-c", f"exec {each.command}" if each.goes_on else each.command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=kept | {"PATH": path, "HEADRACE_URL": url},
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(LIMIT_S):
            lines = [await process.stdout.readline()] if each.goes_on else []
            if each.goes_on:
                process.send_signal(signal.SIGINT)
            lines += (await process.stdout.read()).splitlines()
            code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return code, [line.decode().rstrip() for line in lines]


@pytest.fixture
def commands() -> list[Shown]:
    return list(shown())


def test_the_page_shows_every_command_that_a_controller_answers(commands: list[Shown]) -> None:
    from headrace_controller.operator_cli.program import app

    names = {(each.name or each.callback.__name__) for each in app.registered_commands if each.callback}
    assert names - {"replay"} <= {each.command.split()[1] for each in commands}


async def test_every_command_runs_and_says_what_is_shown(commands: list[Shown], tmp_path: Path) -> None:
    async with living(tmp_path) as url:
        for each in commands:
            code, lines = await said(each, url)
            # A pipe's `head` ends its writer by SIGPIPE, which is no failure.
            wanted = {each.code, 141} if "| head" in each.command else {each.code}
            assert code in wanted, f"{each.command}: {code}: {lines}"
            assert lines, each.command
            assert shape(lines[0]) == shape(each.lines[0]), each.command
            for line in each.lines:
                first = shape(line)[:1]
                assert line == "..." or any(shape(got)[:1] == first for got in lines), (
                    each.command,
                    line,
                    lines,
                )

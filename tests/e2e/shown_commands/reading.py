"""The commands that the documentation shows.

In a page's code blocks: a block in no language, or in `sh` or `console`, holds commands, one a line; where
some of its lines begin with `$ ` those alone are, and the others are what they print. A block that holds
something else says so (`text`, `yaml`, `mermaid`).

In its text: code that begins with a program of ours, or with one that people are told to run beside it. A
mere name (`headrace drain`) is no command; `is_mention` tells.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from headrace_agent.cli import app as agent
from headrace_controller.cli import app as controller
from headrace_controller.operator_cli.program import app as operator
from headrace_lab.cli import app as lab

ROOT = Path(__file__).parents[3]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
COMMAND_BLOCKS = frozenset({"", "sh", "console"})
OURS: dict[str, Any] = {
    "headrace": operator,
    "headrace-agent": agent,
    "headrace-controller": controller,
    "headrace-lab": lab,
}
OTHERS = (
    "curl",
    "make",
    "promtool",
    "kubectl",
    "docker",
    "systemctl",
    "journalctl",
    "sysctl",
    "openssl",
    "chgrp",
    "df",
)
WRONG_USAGE: Any = typer.BadParameter.__base__
BLOCK = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.M | re.S)
CODE = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")


@dataclass(frozen=True, slots=True)
class Shown:
    """A command as it stands in a page; `inline` in its text and not in a block."""

    page: str
    command: str
    inline: bool = False

    def __str__(self) -> str:
        return f"{self.page}: {self.command}"


def shown(pages: Iterable[Path] = PAGES) -> Iterator[Shown]:
    """The commands of the pages' blocks, page by page, then those within the text; each once."""
    texts = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in pages}
    known: set[str] = set()
    for name, text in texts.items():
        for command in in_blocks(text):
            if command not in known:
                known.add(command)
                yield Shown(name, command)
    for name, text in texts.items():
        for command in in_text(text):
            if command not in known and not is_mention(command):
                known.add(command)
                yield Shown(name, command, True)


def in_blocks(text: str) -> Iterator[str]:
    """The commands of a page's blocks; what `&&` joins is several."""
    for language, block in BLOCK.findall(text):
        if language not in COMMAND_BLOCKS:
            continue
        lines = [line.strip() for line in re.sub(r"\\\n\s*", "", block).splitlines()]
        marked = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        for line in marked or lines:
            yield from (each for part in line.split(" && ") if (each := without_comment(part)))


def in_text(text: str) -> Iterator[str]:
    """The code within a page's text that begins with a program; what a table escapes is as it is typed."""
    for code in CODE.findall(BLOCK.sub("", text)):
        words = code.replace("\\|", "|").split()
        if len(words) > 1 and words[0] in (*OURS, *OTHERS):
            yield " ".join(words)


def without_comment(line: str) -> str:
    """A line up to where a comment begins."""
    return re.sub(r"(^|\s+)#( .*|$)", "", line).strip()


def is_mention(code: str) -> bool:
    """True where code names a command of ours and leaves out what it needs."""
    program, *rest = shlex.split(code)
    if program not in OURS:
        return False
    command: Any = typer.main.get_command(OURS[program])
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        if rest[0] not in command.commands:
            return False
        command, rest = command.commands[rest[0]], rest[1:]
    if hasattr(command, "commands"):
        return "--help" not in rest
    try:
        command.make_context(program, list(rest), resilient_parsing=False)
    except WRONG_USAGE as error:
        return type(error).__name__ == "MissingParameter"
    except SystemExit:
        return False
    return False

"""Every command that a page shows must be one that its program takes, options and all."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from headrace_agent.cli import app as agent
from headrace_controller.cli import app as controller
from headrace_controller.operator_cli.program import app as operator
from headrace_lab.cli import app as lab

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = {
    "headrace": operator,
    "headrace-agent": agent,
    "headrace-controller": controller,
    "headrace-lab": lab,
}
# What stands for a value in examples, and what a shell adds.
ENDS = {"|", ">", ">>", "&&", ";", "#", "2>", "<", "||", "&", "…", "..."}


def shown(text: str) -> Iterator[str]:
    """The commands of a page: lines of its code blocks, and code within its text."""
    for block in re.findall(r"^```[a-z]*\n(.*?)^```", text, re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            yield from re.split(r"&& |; |\| ", line.strip().removeprefix("$ "))
    plain = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    yield from re.findall(r"`(headrace[^`\n]*)`", plain)


def words(line: str) -> list[str]:
    """A command line up to where the shell, a comment or an ellipsis begins."""
    try:
        parts = shlex.split(line, comments=True)
    except ValueError:
        return []
    end = next((at for at, each in enumerate(parts) if each in ENDS), len(parts))
    return parts[:end]


def commands() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for line in shown(page.read_text(encoding="utf-8")):
            parts = words(line)
            # A name alone, or with a placeholder for its commands, is no command.
            if len(parts) > 1 and parts[0] in PROGRAMS and not parts[1].isupper():
                yield str(page.relative_to(ROOT)), shlex.join(parts)


COMMANDS = sorted(set(commands()))


def test_there_are_commands_to_check() -> None:
    assert {command.split()[0] for _, command in COMMANDS} == set(PROGRAMS)


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_the_program_takes_what_is_shown(page: str, command: str) -> None:
    program, *arguments = shlex.split(command)
    unknown = trouble(tree(program), arguments)
    assert not unknown, f"{page} shows `{command}`: {unknown}"


@cache
def tree(program: str) -> Any:
    """A program's commands and options."""
    return typer.main.get_command(PROGRAMS[program])


def trouble(command: Any, arguments: list[str]) -> str:
    """What is wrong with the names in a command line; values are not looked at."""
    while hasattr(command, "commands"):
        rest = [each for each in arguments if not each.startswith("-")]
        if not rest:
            return option_trouble(command, arguments)
        if rest[0] not in command.commands:
            return f"there is no command {rest[0]!r}"
        arguments = arguments[arguments.index(rest[0]) + 1 :]
        command = command.commands[rest[0]]
    return option_trouble(command, arguments)


def option_trouble(command: Any, arguments: list[str]) -> str:
    known = {"--help"} | {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    given = [each.split("=")[0] for each in arguments if re.match(r"--?[a-zA-Z]", each)]
    return "".join(f"there is no option {each!r}" for each in given if each not in known)

"""Plants one violation of each layer rule in a copy of the sources, and checks that it is caught.

A rule that nobody has seen fail may not be a rule. Run by `make lint-proof`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONTROLLER = "controller/src/headrace_controller"
AGENT = "agent/src/headrace_agent"


@dataclass(frozen=True)
class Plant:
    """A line added to the end of a file, and the words by which a tool names the violation."""

    rule: str
    file: str
    line: str
    tool: str
    says: str


PLANTS = (
    Plant(
        "agent imports controller",
        f"{AGENT}/cli.py",
        "import headrace_controller",
        "imports",
        "above shared BROKEN",
    ),
    Plant(
        "shared imports agent",
        "shared/src/headrace_shared/net.py",
        "import headrace_agent",
        "imports",
        "above shared BROKEN",
    ),
    Plant(
        "controller imports the lab",
        f"{CONTROLLER}/cli.py",
        "import headrace_lab",
        "imports",
        "above shared BROKEN",
    ),
    Plant(
        "a later agent stage imported",
        f"{AGENT}/collectors/readings.py",
        "import headrace_agent.heartbeat.build",
        "imports",
        "Agent: a stage imports only earlier stages BROKEN",
    ),
    Plant(
        "a collector knows another",
        f"{AGENT}/collectors/network/collector.py",
        "import headrace_agent.collectors.app.pages.page",
        "imports",
        "collectors do not know each other BROKEN",
    ),
    Plant(
        "a later controller stage imported",
        f"{CONTROLLER}/inventory/fleet.py",
        "import headrace_controller.pressure.model",
        "imports",
        "Controller: a stage imports only earlier stages BROKEN",
    ),
    Plant(
        "the picker's core is impure",
        f"{CONTROLLER}/picker/picker.py",
        "import asyncio",
        "imports",
        "the picker is pure but for its service BROKEN",
    ),
    Plant(
        "a room outside the layers", f"{CONTROLLER}/helpers.py", "X = 1", "imports", "not listed as layers"
    ),
    *(
        Plant(
            f"{stage} is impure: {module}",
            f"{CONTROLLER}/{stage}/__init__.py",
            f"import {module}",
            "imports",
            "are pure BROKEN",
        )
        for stage, module in (
            ("lifecycle", "asyncio"),
            ("pressure", "random"),
            ("projection", "time"),
            ("pressure", "grpc"),
        )
    ),
    Plant(
        "a folder's name as a module",
        f"{AGENT}/cli.py",
        "import shared",
        "imports",
        "as a module name BROKEN",
    ),
    Plant(
        "a clock read outside clock.py",
        f"{AGENT}/cli.py",
        "import time\nNOW = time.monotonic()",
        "ruff",
        "TID251",
    ),
    Plant(
        "an untyped function", f"{AGENT}/cli.py", "def untyped(x):\n    return x", "mypy", "no-untyped-def"
    ),
)


def main() -> int:
    """Plant each in turn; 0 when every one was caught."""
    missed = [plant.rule for plant in PLANTS if not caught(plant)]
    for rule in missed:
        print(f"NOT caught: {rule}")
    print(f"{len(PLANTS) - len(missed)} of {len(PLANTS)} planted violations caught")
    return 1 if missed else 0


def caught(plant: Plant) -> bool:
    """Whether the tool fails on the planted copy, for the right reason."""
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        for name in ("agent", "controller", "shared", "lab"):
            shutil.copytree(ROOT / name / "src", home / name / "src")
        shutil.copy(ROOT / "pyproject.toml", home)
        with (home / plant.file).open("a", encoding="utf-8") as file:
            file.write(f"\n\n{plant.line}\n")
        done = subprocess.run(
            command(plant, home), cwd=home, capture_output=True, text=True, timeout=300, check=False
        )
        said = " ".join((done.stdout + done.stderr).split())
        found = done.returncode != 0 and plant.says in said
        print(f"{'caught' if found else 'missed'}: {plant.rule}", flush=True)
        if not found:
            print(said[-600:])
        return found


def command(plant: Plant, home: Path) -> list[str]:
    """The tool's command line; the copy's sources come before the installed ones."""
    if plant.tool == "ruff":
        return [sys.executable, "-m", "ruff", "check", plant.file]
    if plant.tool == "mypy":
        return [sys.executable, "-m", "mypy", "--cache-dir", str(ROOT / ".mypy_cache"), plant.file]
    sources = [str(home / name / "src") for name in ("agent", "controller", "shared", "lab")]
    start = (
        f"import sys; sys.path[:0] = {sources!r}; "
        "from importlinter.cli import lint_imports_command as run; run()"
    )
    return [sys.executable, "-c", start, "--no-cache"]


if __name__ == "__main__":
    sys.exit(main())

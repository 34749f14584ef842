"""Builds the four wheels, and installs and imports each alone with only what it asks for."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DISTRIBUTIONS = {
    "shared": ("headrace_shared.config", "headrace_pb.v1.telemetry_pb2_grpc"),
    "agent": ("headrace_agent.cli", "headrace_agent.service"),
    "controller": (
        "headrace_controller.cli",
        "headrace_controller.operator_cli.program",
        "headrace_controller.operator_cli.top.app",
    ),
    "lab": ("headrace_lab.cli",),
}
PAGE = "from headrace_controller.admin.web.pages import Pages; assert 'main.js' in Pages.packaged()"
PACKAGED = {"controller": PAGE}
"""Checks that a wheel holds what is no module."""


def main() -> int:
    """Build, then check each wheel in an environment of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        wheels = Path(scratch, "wheels")
        for name in DISTRIBUTIONS:
            run(sys.executable, "-m", "build", "-q", "--wheel", "--outdir", str(wheels), str(ROOT / name))
        for name, modules in DISTRIBUTIONS.items():
            check(name, modules, wheels, Path(scratch, name))
            print(f"headrace-{name}: installs and imports alone")
    return 0


def check(name: str, modules: tuple[str, ...], wheels: Path, home: Path) -> None:
    """Install one wheel into a fresh environment and import its modules there."""
    venv.create(home, with_pip=True)
    python = str(home / "bin" / "python")
    pip = (python, "-m", "pip", "install", "-q", "--disable-pip-version-check")
    run(*pip, "-c", str(ROOT / "constraints.txt"), "--find-links", str(wheels), f"headrace-{name}")
    for module in modules:
        run(python, "-c", f"import {module}", cwd=home)
    run(python, "-c", PACKAGED.get(name, ""), cwd=home)


def run(*command: str, cwd: Path | None = None) -> None:
    """Run a command; a failure ends this program with the command's output in sight."""
    subprocess.run(command, check=True, timeout=300, cwd=cwd)


if __name__ == "__main__":
    sys.exit(main())

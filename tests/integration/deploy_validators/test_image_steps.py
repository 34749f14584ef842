"""The steps that build an image, run without Docker: what the build stage installs is there and starts.

What stays unproven: the base image, users and rights, and that the second stage finds what it copies.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCKER = ROOT / "deploy" / "docker"
HOME = "/opt/headrace"
LIMIT_S = 500
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")

pytestmark = [pytest.mark.extra, pytest.mark.timeout(600)]


def steps(name: str) -> tuple[list[list[str]], list[str], list[str]]:
    """An image's build stage: what it copies, and what it runs; and the entry point of the other stage."""
    text = re.sub(r"\\\n\s*", " ", (DOCKER / f"{name}.Dockerfile").read_text(encoding="utf-8"))
    build, final = text.split("\nFROM ")[-2:]
    copied = [line.split()[1:] for line in build.splitlines() if line.startswith("COPY ")]
    run = [line.removeprefix("RUN ") for line in build.splitlines() if line.startswith("RUN ")]
    (entry,) = [line for line in final.splitlines() if line.startswith("ENTRYPOINT ")]
    return copied, run, json.loads(entry.removeprefix("ENTRYPOINT "))


@pytest.mark.parametrize("name", ["agent", "controller"])
def test_all_images_are_built_alike(name: str) -> None:
    """One that holds less has the same steps with fewer packages, so that to run the lab's is enough."""
    copied, run, _ = steps(name)
    everything, the_labs, _ = steps("lab")
    assert [part for part in everything if part in copied] == copied
    packages = " ".join(f"./{part}" for part, _ in everything[1:])
    own = " ".join(f"./{part}" for part, _ in copied[1:])
    assert run == [each.replace(packages, own) for each in the_labs]


def test_the_build_stage_installs_a_program_that_starts(tmp_path: Path) -> None:
    name = "lab"
    source, home = tmp_path / "src", tmp_path / "headrace"
    source.mkdir()
    copied, run, entry = steps(name)
    for part, _ in copied:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, source / part, ignore=LEFT_OUT)
        else:
            shutil.copy(ROOT / part, source / part)
    for command in run:
        here = command.replace(HOME, str(home)).replace("/src/", f"{source}/")
        here = re.sub(r"^python ", f"{sys.executable} ", here)
        done = subprocess.run(
            ["sh", "-euc", here], cwd=source, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
    assert not list(home.rglob("*.pyi"))
    assert not (home / "bin" / "pip").exists()
    shutil.rmtree(source)
    said = subprocess.run(
        [str(home / "bin" / entry[0]), "--help"],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    assert "run" in said.stdout or "cell" in said.stdout

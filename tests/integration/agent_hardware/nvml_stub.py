"""The stub library, built once, and the file that tells it what to do."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

SOURCE = Path(__file__).with_name("nvml_stub.c")


@cache
def built(*flags: str) -> Path:
    """The folder of a library built with `flags`."""
    folder = Path(mkdtemp(prefix="nvml-stub-"))
    target = str(folder / "libnvidia-ml.so.1")
    command = ["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-O1", *flags, "-o", target, str(SOURCE)]
    subprocess.run(command, check=True, timeout=60)
    return folder


class Stub:
    """What the library does, in every process that loads it from now on."""

    def __init__(self, folder: Path, library: Path, patch: pytest.MonkeyPatch) -> None:
        self._path = folder / "state"
        self._lines: dict[str, str] = {}
        self._events = 0
        self._write()
        patch.setenv("STUB_STATE", str(self._path))
        patch.setenv("LD_LIBRARY_PATH", str(library))

    def set(self, **values: object) -> None:
        """Set lines of its state."""
        self._lines |= {key: str(value) for key, value in values.items()}
        self._write()

    def fail(self, function: str, how: object, gpu: int | None = None) -> None:
        """Let a function return a code, "hang" or "crash"; for one GPU only, where one is named."""
        self._lines[function if gpu is None else f"{function}@{gpu}"] = str(how)
        self._write()

    def mend(self) -> None:
        """Take back every failure."""
        self._lines = {key: value for key, value in self._lines.items() if not key.startswith("nvml")}
        self._write()

    def fire(self, xid: int, gpu: int = 0, instance: int = -1) -> None:
        """Let an XID happen."""
        self._events += 1
        self.set(xid=f"{self._events}:{gpu}:{xid}:{instance}")

    def metric(self, number: int, code: int) -> None:
        """Let a GPM metric have no figure."""
        self._lines[f"metric.{number}"] = str(code)
        self._write()

    @property
    def samples(self) -> int:
        """How many GPM samples are allocated."""
        return int(self._path.with_name("state.samples").read_text())

    def _write(self) -> None:
        """At one stroke: the library reads at any time."""
        text = "".join(f"{key}={value}\n" for key, value in self._lines.items())
        fresh = self._path.with_name("state.new")
        fresh.write_text(text)
        os.replace(fresh, self._path)

"""Two network namespaces with an emulated WAN between them. Needs root, `ip` and /dev/net/tun."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace_lab.wan.tun import namespace
from tests.support.program import Running, process_of

PORT = 8080
FAR_SERVER = f"""
import socket, threading
def serve(family, host):
    listener = socket.create_server((host, {PORT}), family=family, backlog=64)
    if host == "::":
        print("listening", flush=True)
    while True:
        listener.accept()[0].close()
threading.Thread(target=serve, args=(socket.AF_INET, "0.0.0.0"), daemon=True).start()
serve(socket.AF_INET6, "::")
"""


@dataclass
class Wan:
    """`near` and `far` are namespaces; every far address listens on PORT."""

    near: str
    far: str
    file: Path
    emulator: Running
    settings: dict[str, Any]

    def command(self, *words: str) -> list[str]:
        """A command that runs in the near namespace."""
        return ["ip", "netns", "exec", self.near, *words]

    async def set(self, paths: Mapping[str, Mapping[str, Any]]) -> None:
        """Change the paths of a running emulator."""
        self.settings["paths"] = {address: dict(path) for address, path in paths.items()}
        self.file.write_text(json.dumps(self.settings))  # JSON is YAML
        before = len(self.emulator.lines)
        self.emulator.process.send_signal(signal.SIGHUP)
        await self.emulator.logged(event="paths set")
        self.emulator.lines[before:] = []


@asynccontextmanager
async def emulated(paths: Mapping[str, Mapping[str, Any]], folder: Path) -> AsyncIterator[Wan]:
    """A WAN whose far end has the addresses of `paths`."""
    near, far = f"hr{os.getpid()}n", f"hr{os.getpid()}f"
    addresses = [f"{each}/{64 if ':' in each else 24}" for each in paths]
    settings: dict[str, Any] = {
        "near": {"namespace": near, "addresses": ["10.213.7.1/24", "fd13::1/64"]},
        "far": {"namespace": far, "addresses": addresses},
        "paths": {address: dict(path) for address, path in paths.items()},
    }
    file = folder / "wan.yaml"
    file.write_text(json.dumps(settings))
    async with AsyncExitStack() as stack:
        for name in (near, far):
            stack.enter_context(namespace(name))
        emulator = await stack.enter_async_context(
            process_of(sys.executable, "-m", "headrace_lab.wan", str(file))
        )
        await emulator.logged(event="forwarding")
        await stack.enter_async_context(
            process_of("ip", "netns", "exec", far, sys.executable, "-c", FAR_SERVER)
        )
        yield Wan(near, far, file, emulator, settings)
        code, _ = await emulator.terminate()
        assert code == 0
        print(json.dumps(emulator.lines[-1]))

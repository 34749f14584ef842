"""Engines as processes that can be killed: a server, and a core as its child, as vLLM is built.

`python -m tests.support.mortal_engine` forks an engine for each line on its input, which is quicker
than to start an interpreter each time, and writes the pids of its server and its core. A server
answers 503 from the moment its core has ended; a core does not notice that its server has.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from tests.support.ports import free_port

CORE_TITLE = "VLLM::EngineCore"
PAGE = """\
process_start_time_seconds {started_at}
vllm:num_requests_running{{engine="0",model_name="m"}} 0
vllm:num_requests_waiting{{engine="0",model_name="m"}} 0
vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} 0
# TYPE vllm:request_success_total counter
# TYPE vllm:time_to_first_token_seconds histogram
# TYPE http_requests_total counter
"""
PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Pids:
    """An engine that runs, in a session of its own."""

    server: int
    core: int


class Engines:
    """Starts engines on one port, one after the other."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process = process
        self.port = port
        self._started: list[Pids] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(
        self, *, inherits: bool = False, helpers: int = 0, healthy: bool = True, notices_s: float = 0.0
    ) -> Pids:
        """Start one, which listens when this returns.

        A core that `inherits` has the listening socket open too, as one has that is forked; `helpers`
        are children that end after a moment; one that is not `healthy` answers 503; it `notices_s` late
        that its core has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        wish = {"port": self.port, "inherits": inherits, "helpers": helpers}
        wish |= {"healthy": healthy, "notices_s": notices_s}
        self._process.stdin.write(json.dumps(wish).encode() + b"\n")
        async with asyncio.timeout(PATIENCE_S):
            line = await self._process.stdout.readline()
        pids = Pids(*json.loads(line))
        self._started.append(pids)
        return pids

    def bury(self, pids: Pids) -> None:
        """Kill whatever is left of one."""
        self._started.remove(pids)
        with suppress(ProcessLookupError):
            os.killpg(pids.server, signal.SIGKILL)

    async def close(self) -> None:
        """Kill whatever is left of all."""
        for pids in list(self._started):
            self.bury(pids)
        assert self._process.stdin is not None
        self._process.stdin.close()
        async with asyncio.timeout(PATIENCE_S):
            await self._process.wait()


@asynccontextmanager
async def mortal_engines() -> AsyncIterator[Engines]:
    """Engines for the length of a block, on a free port; none outlives it."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.mortal_engine"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    engines = Engines(process, port)
    try:
        yield engines
    finally:
        await engines.close()


def main() -> None:
    """Fork an engine for each line."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for line in sys.stdin:
        wish = json.loads(line)
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            sys.stdin.close()
            serve(**wish)
            os._exit(0)


def serve(port: int, inherits: bool, helpers: int, healthy: bool, notices_s: float) -> None:
    """One engine's server, until it is killed."""
    listening = listen(port)
    core = os.fork()
    if core == 0:
        if inherits:
            signal.pause()
        sleep = shutil.which("sleep")
        assert sleep is not None
        os.execv(sleep, [CORE_TITLE, "3600"])
    for _ in range(helpers):
        if os.fork() == 0:
            os.execv(shutil.which("sleep") or "sleep", ["helper", "2"])
    asyncio.run(Server(core, healthy, notices_s).run(listening))


def listen(port: int) -> socket.socket:
    """Bind the port; an orphan of the last engine may be a moment in letting it go."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listening.bind(("127.0.0.1", port))
    listening.listen(64)
    return listening


class Server:
    """Answers as vLLM's server does, as far as the agent asks; SIGUSR1 makes it listen no longer."""

    def __init__(self, core: int, healthy: bool, notices_s: float) -> None:
        self._core = core
        self._healthy = healthy
        self._notices_s = notices_s
        self._page = PAGE.format(started_at=os.stat(f"/proc/{os.getpid()}").st_ctime).encode()

    async def run(self, listening: socket.socket) -> None:
        """Serve until killed."""
        descriptor = os.pidfd_open(self._core)
        asyncio.get_running_loop().add_reader(descriptor, self._core_ended, descriptor)
        server = await asyncio.start_server(self._talk, sock=listening)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, server.close)
        print(json.dumps([os.getpid(), self._core]), flush=True)
        await asyncio.Event().wait()

    def _core_ended(self, descriptor: int) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(descriptor)
        loop.call_later(self._notices_s, self._notice)

    def _notice(self) -> None:
        self._healthy = False

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                for line in head.lower().split(b"\r\n"):
                    if line.startswith(b"content-length:"):
                        await reader.readexactly(int(line.partition(b":")[2]))
                status, body = self._answer(head.split()[1].decode())
                writer.write(b"HTTP/1.1 %d OK\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)
        writer.close()

    def _answer(self, path: str) -> tuple[int, bytes]:
        if path == "/health":
            return (200 if self._healthy else 503), b""
        if path == "/metrics":
            return 200, self._page
        if path == "/v1/models":
            return 200, b'{"data": [{"id": "m", "max_model_len": 4096}]}'
        if path == "/version":
            return 200, b'{"version": "0.32.0"}'
        return (200, b"{}") if path == "/v1/completions" and self._healthy else (503, b"{}")


if __name__ == "__main__":
    main()

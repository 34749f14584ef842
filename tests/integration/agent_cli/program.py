"""The `headrace-agent` program, run to its end, and HTTP servers for it to look at."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web
from typer.testing import CliRunner

from headrace_agent.cli import app

PROGRAM = [sys.executable, "-c", "from headrace_agent.cli import main; main()"]
# A program that hangs takes for ever; a busy machine takes a few seconds to start it.
LIMIT_S = 60


@dataclass(frozen=True)
class Ended:
    """How the program ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The JSON on stdout."""
        return json.loads(self.out)


async def run(*arguments: str | Path, stdin: bytes = b"", **environ: str) -> Ended:
    """Run `headrace-agent` with these arguments; no traceback is ever an answer."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        *map(str, arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | environ,
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            out, err = await process.communicate(stdin)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert b"Traceback" not in err, err.decode()
    return Ended(process.returncode or 0, out.decode(), err.decode())


async def invoke(*arguments: str | Path, stdin: bytes = b"") -> Ended:
    """The same within this process, which is quicker: for commands that set up no log."""

    def call() -> Ended:
        result = CliRunner().invoke(app, [*map(str, arguments)], input=stdin)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return Ended(result.exit_code, result.stdout, result.stderr)

    with ThreadPoolExecutor(1, "program") as pool:
        return await asyncio.get_running_loop().run_in_executor(pool, call)


Route = tuple[int, bytes | object]


@asynccontextmanager
async def http_server(routes: Mapping[str, Route], asked: list[str] | None = None) -> AsyncIterator[int]:
    """Answers GETs by path: bytes as they are, anything else as JSON; the rest is 404. Gives its port."""

    async def answer(request: web.Request) -> web.Response:
        if asked is not None:
            asked.append(f"{request.method} {request.path}")
        status, body = routes.get(request.path, (404, b""))
        if isinstance(body, bytes):
            return web.Response(status=status, body=body)
        return web.json_response(body, status=status)

    server = web.Application()
    server.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(server, access_log=None, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def silent_server() -> AsyncIterator[int]:
    """Accepts connections and says nothing on them."""
    writers: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        for writer in writers:
            writer.close()
        server.close()
        await server.wait_closed()

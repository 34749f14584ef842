"""One source of an agent's figures, as a process: `fake_source.py engine|gpus SEED` prints its port.

It answers what an agent asks, cheaply, over HTTP/1.1 on the loopback, and ends when its standard
input does.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Final

from benchmarks.busy_pages import MODEL, EnginePage, GpuPage

GPUS: Final = 8
# vLLM's server ends a connection that was idle for so long.
KEEP_ALIVE_S: Final = 5.0
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"

Answers = Mapping[str, Callable[[], tuple[str, bytes]]]


class Server(asyncio.Protocol):
    """One connection."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._received = b""
        self._idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._idle is not None:
            self._idle.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, rest = self._received.partition(b"\r\n\r\n")
            length = next(
                (
                    int(line[15:])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length:")
                ),
                0,
            )
            if len(rest) < length:
                return
            self._received = rest[length:]
            self._transport.write(self._answer(head.split(b" ", 2)[1].decode()))
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(KEEP_ALIVE_S, self._transport.close)

    def _answer(self, path: str) -> bytes:
        kind, body = self._answers[path]() if path in self._answers else ("text/plain", b"")
        status = "200 OK" if path in self._answers else "404 Not Found"
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body


def engine(seed: int) -> Answers:
    """What a vLLM engine answers."""
    page = EnginePage(seed)
    models = {
        "object": "list",
        "data": [{"id": MODEL, "object": "model", "root": MODEL, "max_model_len": 131072}],
    }
    completion = {"choices": [{"index": 0, "text": " a", "finish_reason": "length"}]}
    return {
        "/health": lambda: ("text/plain", b""),
        "/metrics": lambda: (_TEXT, page.render()),
        "/version": lambda: ("application/json", b'{"version":"0.32.0"}'),
        "/v1/models": lambda: ("application/json", json.dumps(models).encode()),
        "/v1/completions": lambda: ("application/json", json.dumps(completion).encode()),
    }


def gpus(seed: int) -> Answers:
    """What a DCGM exporter answers."""
    page = GpuPage(seed, GPUS)
    return {"/metrics": lambda: (_TEXT, page.render())}


async def serve(answers: Answers) -> None:
    """Serve until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Server(answers), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    ended = asyncio.Event()
    loop.add_reader(0, lambda: ended.set() if not os.read(0, 1024) else None)
    await ended.wait()
    server.close()


def main() -> None:
    """Be the source that the command line names."""
    kind, seed = sys.argv[1], int(sys.argv[2])
    asyncio.run(serve({"engine": engine, "gpus": gpus}[kind](seed)))


if __name__ == "__main__":
    main()

"""Everything an agent reads, as one process in which nothing stays as it is.

`python -m benchmarks.changing_sources ENGINES SEED` prints the ports as JSON and runs until its
standard input ends. Engines serve pages on which counters move and series come and go, answer some
requests badly, and die and start anew; the exporter's GPUs report XIDs; gateways accept TCP.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from benchmarks.busy_pages import GpuPage
from benchmarks.fake_source import Server

GATEWAYS: Final = 3
LIFE_S: Final = (4.0, 12.0)
DEATH_S: Final = (0.2, 1.0)
LOADING_S: Final = 0.3
BAD_SHARE: Final = 0.02
BOUNDS: Final = ("0.01", "0.1", "0.5", "1.0", "2.5", "5.0", "10.0", "+Inf")

Answer = tuple[int, str, bytes]


class Connection(Server):
    """One connection to a program that can end all of its connections at once."""

    def __init__(self, program: Program) -> None:
        super().__init__({})
        self._program = program

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._program.open.add(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._program.open.discard(self._transport)

    def _answer(self, path: str) -> bytes:
        status, kind, body = self._program.answer(path)
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body


class Program:
    """Serves `answer(path)` on a port of its own, from one life to the next."""

    def __init__(self, answer: Callable[[str], Answer]) -> None:
        self.answer = answer
        self.open: set[asyncio.Transport] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen; on the same port as in the life before."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def die(self) -> None:
        """Close the port and every connection, as a process does that is killed."""
        if self._server is not None:
            self._server.close()
        for transport in list(self.open):
            transport.abort()


class Engine:
    """A vLLM that lives a few seconds at a time."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._pages = 0
        self._started = 1.7e9
        self._ready_at = 0.0
        self._served: dict[str, int] = {}
        self._buckets = [0] * len(BOUNDS)
        self.program = Program(self.answer)

    async def live(self) -> None:
        """Live, die, and start anew with counters at 0, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            self._served, self._buckets = {}, [0] * len(BOUNDS)
            self._started += 60.0
            self._ready_at = loop.time() + LOADING_S
            await asyncio.sleep(self._rng.uniform(*LIFE_S))
            self.program.die()
            await asyncio.sleep(self._rng.uniform(*DEATH_S))
            await self.program.start()

    def answer(self, path: str) -> Answer:
        ready = asyncio.get_running_loop().time() >= self._ready_at
        if path == "/health":
            return (200 if ready else 503, "text/plain", b"")
        if path == "/metrics":
            return self._spoil(self.page())
        if path == "/version":
            return (200, "application/json", b'{"version":"0.32.0"}')
        if path == "/v1/models":
            adapters = [f"adapter-{self._rng.randrange(10**6)}" for _ in range(self._rng.randrange(4))]
            entries = [{"id": name, "max_model_len": 4096} for name in ("base", *adapters)]
            return (200, "application/json", json.dumps({"data": entries}).encode())
        if path == "/v1/completions":
            return (200, "application/json", b'{"choices":[{"text":" a","finish_reason":"length"}]}')
        return (404, "text/plain", b"")

    def page(self) -> str:
        """The next page: a rank that comes and goes, label values that never come again."""
        self._pages += 1
        self._serve()
        rng = self._rng
        ranks = range(1 + (self._pages // 100) % 2)
        lines = []
        for name, most in (
            ("num_requests_running", 64),
            ("num_requests_waiting", 32),
            ("kv_cache_usage_perc", 1),
        ):
            lines.append(f"# TYPE vllm:{name} gauge")
            lines += [
                f'vllm:{name}{{engine="{rank}",model_name="m"}} {rng.random() * most:.4f}' for rank in ranks
            ]
        lines += [
            "# TYPE vllm:lora_requests_info gauge",
            f'vllm:lora_requests_info{{running_lora_adapters="a{self._pages}",max_lora="4"}} {self._pages}.0',
            "# TYPE http_requests_total counter",
        ]
        lines += [
            f'http_requests_total{{handler="/v1/completions",method="POST",status="{status}"}} {count}.0'
            for status, count in self._served.items()
        ]
        lines.append("# TYPE vllm:request_success_total counter")
        lines.append(
            f'vllm:request_success_total{{engine="0",finished_reason="stop",model_name="m"}} '
            f"{self._served.get('2xx', 0)}.0"
        )
        lines.append("# TYPE vllm:time_to_first_token_seconds histogram")
        for rank in ranks:
            labels = f'engine="{rank}",model_name="m"'
            lines += [
                f'vllm:time_to_first_token_seconds_bucket{{{labels},le="{bound}"}} {count}.0'
                for bound, count in zip(BOUNDS, self._buckets, strict=True)
            ]
            lines.append(f"vllm:time_to_first_token_seconds_count{{{labels}}} {self._buckets[-1]}.0")
            lines.append(f"vllm:time_to_first_token_seconds_sum{{{labels}}} {self._buckets[-1] * 0.3}")
        lines.append(f"process_start_time_seconds {self._started}")
        return "\n".join(lines) + "\n"

    def _serve(self) -> None:
        for _ in range(self._rng.randrange(5)):
            status = self._rng.choices(("2xx", "4xx", "5xx"), (95, 4, 1))[0]
            self._served[status] = self._served.get(status, 0) + 1
            slot = self._rng.randrange(len(BOUNDS))
            for place in range(slot, len(BOUNDS)):
                self._buckets[place] += 1

    def _spoil(self, page: str) -> Answer:
        good, text = page.encode(), "text/plain; version=0.0.4"
        if self._rng.random() >= BAD_SHARE:
            return (200, text, good)
        number = self._rng.randrange(10**9)
        return self._rng.choice(
            [
                (500, "text/plain", f"error {number}".encode()),
                (200, text, b""),
                (200, text, good[: len(good) // 2]),
                (200, "text/html", b"<html>%d</html>" % number),
                (200, text, b"\xff\xfe" + good),
                (200, text, b"vllm:broken{x=%d 1\n" % number + good),
            ]
        )


class Gpus:
    """An exporter whose GPUs report an XID now and then."""

    def __init__(self, rng: random.Random, count: int) -> None:
        self._rng = rng
        self._page = GpuPage(rng.randrange(10**6), count)
        self.program = Program(self.answer)

    def answer(self, path: str) -> Answer:
        if self._rng.random() < BAD_SHARE:
            return (500, "text/plain", b"no")
        page = self._page.render()
        if self._rng.random() < 0.05:
            page = page.replace(b"XID_ERRORS{", b'XID_ERRORS{noise="%d",' % self._rng.randrange(10**9))
        return (200, "text/plain; version=0.0.4", page)


async def gateway() -> int:
    """A port that accepts TCP and closes again; its number."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    return int(server.sockets[0].getsockname()[1])


async def serve(engines: int, seed: int) -> None:
    """Be all sources until standard input ends."""
    rng = random.Random(seed)
    programs = [Engine(random.Random(rng.random())) for _ in range(engines)]
    gpus = Gpus(rng, engines)
    for program in (*(each.program for each in programs), gpus.program):
        await program.start()
    ports = {
        "engines": [each.program.port for each in programs],
        "gpus": gpus.program.port,
        "gateways": [await gateway() for _ in range(GATEWAYS)],
    }
    print(json.dumps(ports), flush=True)
    lives = [asyncio.create_task(each.live(), name="engine") for each in programs]
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, lambda: ended.set() if not os.read(0, 1024) else None)
    await ended.wait()
    for life in lives:
        life.cancel()
        with suppress(asyncio.CancelledError):
            await life


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))

"""Three real engines: one small, two large."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import aiohttp
import psutil
from prometheus_client.parser import text_string_to_metric_families

from headrace_lab.demo.fleet import Cell, Fleet, Site, middle
from headrace_lab.load.prompts import prompt
from headrace_lab.real.environment import Environment
from headrace_lab.stack.ports import free_ports
from headrace_lab.stack.program import Spec, StackError
from headrace_lab.stack.stack import Stack
from headrace_shared.clock import Clock

MODEL = "tiny"
SMALL = "small-1"
SMALL_LEN, LARGE_LEN = 1024, 4096
LIMITS = {"north": (SMALL, SMALL_LEN), "west": ("large-1", LARGE_LEN), "south": ("large-2", LARGE_LEN)}
READY_S = 300.0
STAGGER_S = 20.0
SAY_EVERY_S = 10.0
MEMORY_BYTES = 6 * 1024**3


def real() -> Fleet:
    """Three sites, one engine at each; no GPU, so no exporter."""
    ports = iter(free_ports(2 * len(LIMITS)))
    sites = tuple(
        Site(name, (Cell(cell, next(ports), max_model_len=limit),), next(ports))
        for name, (cell, limit) in LIMITS.items()
    )
    return Fleet(MODEL, sites, middle())


def engine(cell: Cell, environment: Environment) -> Spec:
    """A vLLM server of the tiny model, on one core."""
    command = (
        *(str(environment.bin / "vllm"), "serve", str(environment.model)),
        *("--load-format", "dummy", "--dtype", "float32", "--enforce-eager"),
        *("--served-model-name", MODEL, "--max-model-len", str(cell.max_model_len)),
        *("--host", "127.0.0.1", "--port", str(cell.port)),
    )
    env = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # by default each engine would pin itself to the same core
        "VLLM_CACHE_ROOT": str(environment.root / "cache"),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "PATH": f"{environment.bin}:{os.environ.get('PATH', os.defpath)}",
    }
    return Spec(
        f"engine {cell.id}",
        command,
        (cell.port,),
        f"{cell.url}/health",
        READY_S,
        env,
        ours=False,
        grace_s=15.0,
    )


async def bring_up(
    fleet: Fleet, environment: Environment, stack: Stack, said: Callable[[str], None], clock: Clock
) -> None:
    """Start the engines one after another and wait until all answer. Raises StackError.

    Each gets 20 s alone, which is about what importing takes; the rest overlaps.
    """
    free = psutil.virtual_memory().available
    if free < MEMORY_BYTES:
        raise StackError(
            f"{free / 1e9:.1f} GB of memory are free; three engines need {MEMORY_BYTES / 1e9:.1f} GB"
        )
    started = clock.now()
    specs = [engine(cell, environment) for cell in fleet.cells]
    telling = asyncio.create_task(_tell(said, clock, started), name="tell of the engines")
    try:
        for number, spec in enumerate(specs):
            said(f"starting {spec.name} (max_model_len {fleet.cells[number].max_model_len})")
            await stack.start([spec])
            if number < len(specs) - 1:
                await _first_of(stack, spec, STAGGER_S)
        await stack.wait_ready()
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
    said(f"all {len(specs)} engines are ready after {clock.now() - started:.0f} s")


async def _first_of(stack: Stack, spec: Spec, seconds: float) -> None:
    """Wait until the program answers, or for so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await stack.wait_ready([spec.name])
    except TimeoutError:
        return


async def _tell(said: Callable[[str], None], clock: Clock, started: float) -> None:
    while True:
        await asyncio.sleep(SAY_EVERY_S)
        said(f"engines are loading: {clock.now() - started:.0f} s so far")


async def check_sizes(fleet: Fleet, long_tokens: tuple[int, int], max_tokens: int) -> tuple[int, int]:
    """Ask a large engine's own tokenizer how long the long prompts are. Raises StackError.

    Returns the least and the most tokens. All must be too long for the small engine and fit the
    large ones with their answers.
    """
    large = next(cell for cell in fleet.cells if cell.max_model_len == LARGE_LEN)
    counts = []
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20.0)) as session:
        for words in long_tokens:
            body = {"model": MODEL, "prompt": prompt(words, seed=words)}
            async with session.post(f"{large.url}/tokenize", json=body) as response:
                counts.append(int((await response.json())["count"]))
    if min(counts) <= SMALL_LEN or max(counts) + max_tokens > LARGE_LEN:
        raise StackError(
            f"the long prompts have {counts} tokens; they must lie between {SMALL_LEN} and {LARGE_LEN}"
        )
    return counts[0], counts[1]


async def counted_by_engine(cell: Cell, status: str) -> float | None:
    """The engine's own count of answers with that status class ("4xx"); None where it has none."""
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10.0)) as session,
        session.get(f"{cell.url}/metrics") as response,
    ):
        page = await response.text()
    found = [
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "http_requests_total" and sample.labels.get("status") == status
    ]
    return sum(found) if found else None

"""Looks at this host: sockets, processes, engines, GPUs. Bounded in time, and in what it asks of whom."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from headrace_agent.collectors.app.processes.belonging import find
from headrace_agent.commands.discover import gpus, local
from headrace_agent.commands.discover.assign import assign
from headrace_agent.commands.discover.candidates import choose
from headrace_agent.commands.discover.engines import recognise
from headrace_agent.commands.discover.found import Answers, Candidate, Engine, GpuSeen, Host
from headrace_agent.commands.discover.local import Local
from headrace_agent.commands.discover.propose import node_name
from headrace_agent.commands.discover.recognise import PORT_S, ask
from headrace_agent.commands.errors import CommandError
from headrace_shared.clock import Clock

AT_ONCE: Final = 4
ANSWER_S: Final = 1.0
LOCAL_S: Final = 10.0
ASKING_S: Final = 20.0

T = TypeVar("T")


async def survey(only: Collection[int], clock: Clock) -> Host:
    """What is on this host; `only`: ask these ports and no others. Raises CommandError."""
    here = await in_thread("processes", local.look, LOCAL_S)
    nvml = asyncio.create_task(in_thread("nvml", gpus.from_nvml, gpus.NVML_S + 2), name="nvml")
    candidates = choose(here.listing, here.command_line, here.ephemeral, only)
    asked = await _ask_all(candidates, clock)
    engines, dcgm_url, notes = recognise(asked)
    seen, why = await nvml
    if not seen and dcgm_url:
        seen = await in_thread("exporter", lambda: gpus.from_exporter(dcgm_url, clock), gpus.EXPORTER_S + 2)
    if not seen:
        notes.append(f"no GPU is known here: {why or 'NVML sees none'}")
    return _host(engines, seen, dcgm_url, notes, here)


async def in_thread(name: str, work: Callable[[], T], timeout_s: float) -> T:
    """Run `work` in a daemon thread: it may hang, and must not hold up the program's end.

    Raises CommandError where it takes longer than `timeout_s`.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(deliver: Callable[[], None]) -> None:
        if not done.done():
            deliver()

    def run() -> None:
        try:
            deliver = partial(done.set_result, work())
        except Exception as error:  # noqa: BLE001 - raised again where it was asked for
            deliver = partial(done.set_exception, error)
        with suppress(RuntimeError):  # the loop has closed: nobody waits any more
            loop.call_soon_threadsafe(settle, deliver)

    threading.Thread(target=run, name=name, daemon=True).start()
    try:
        async with asyncio.timeout(timeout_s):
            return await done
    except TimeoutError as error:
        raise CommandError(f"{name}: no answer within {timeout_s:g} s; this host hangs somewhere") from error


async def _ask_all(candidates: Sequence[Candidate], clock: Clock) -> list[tuple[Candidate, Answers]]:
    """Ask a few ports at a time; those that ASKING_S seconds do not suffice for are left out."""
    slots = asyncio.Semaphore(AT_ONCE)
    asked: dict[int, Answers] = {}

    async def one(candidate: Candidate) -> None:
        async with slots:
            try:
                async with asyncio.timeout(PORT_S):
                    asked[candidate.port] = await ask(candidate, ANSWER_S, clock)
            except TimeoutError:
                asked[candidate.port] = Answers()

    tasks = [asyncio.create_task(one(each), name=f"ask port {each.port}") for each in candidates]
    try:
        if tasks:
            await asyncio.wait(tasks, timeout=ASKING_S)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [(each, asked[each.port]) for each in candidates if each.port in asked]


def _host(
    engines: Sequence[Engine], seen: tuple[GpuSeen, ...], dcgm_url: str, notes: Sequence[str], here: Local
) -> Host:
    own = [replace(engine, pids=_processes(engine, here)) for engine in engines]
    return Host(
        node=node_name(local.host_name()),
        address=local.own_address(),
        engines=assign(own, seen, here.environ),
        gpus=seen,
        dcgm_url=dcgm_url,
        notes=tuple(notes),
    )


def _processes(engine: Engine, here: Local) -> frozenset[int]:
    at = engine.candidate
    belonging = find(here.listing, at.host, at.port, here.command_line, os.getpid())
    return frozenset(process.pid for process in belonging.members)

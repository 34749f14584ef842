"""A set of programs with one life: started layer by layer, watched, stopped in reverse order."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp

from headrace_lab.stack import guard, leftovers
from headrace_lab.stack.program import Exit, Program, Spec, StackError, launch
from headrace_shared.clock import Clock, SystemClock
from headrace_shared.tasks import Supervisor

T = TypeVar("T")
POLL_S = 0.05
HURRIED_GRACE_S = 0.8
HURRIED_SETTLE_S = 0.1
GUARD_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class StopReport:
    """How the programs ended and what was left: processes by name and id, and ports."""

    exits: tuple[Exit, ...] = ()
    processes: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()

    @property
    def leftovers(self) -> int:
        """Processes and ports that outlived the stop."""
        return len(self.processes) + len(self.ports)

    def slowest(self, names: Iterable[str]) -> float:
        """The longest time in seconds from SIGTERM to the end among `names`; 0 if none was asked."""
        wanted = set(names)
        return max(
            (e.sigterm_s for e in self.exits if e.name in wanted and e.sigterm_s is not None), default=0.0
        )


@dataclass(slots=True)
class _State:
    layers: list[list[Program]] = field(default_factory=list)
    report: StopReport | None = None


class Stack:
    """Programs in layers; leaving the context stops whatever still runs."""

    def __init__(self, run_dir: Path, clock: Clock | None = None) -> None:
        self.run_dir = run_dir
        self._clock = clock or SystemClock()
        self._state = _State()
        self._tasks = Supervisor()
        self._guard: asyncio.subprocess.Process | None = None
        self._failure: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._failure = asyncio.get_running_loop().create_future()
        self._guard = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(guard.__file__)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.stop(hurried=kind is not None and issubclass(kind, asyncio.CancelledError))
        finally:
            await self._tasks.__aexit__(kind, error, trace)
            if self._failure is not None and self._failure.done():
                self._failure.exception()  # read it, or asyncio reports it as never retrieved
            await self._end_guard()

    @property
    def programs(self) -> list[Program]:
        """All programs, in the order they were started."""
        return [program for layer in self._state.layers for program in layer]

    def program(self, name: str) -> Program:
        """The program of that name. Raises KeyError."""
        return next(p for p in self.programs if p.spec.name == name)

    async def start(self, specs: Iterable[Spec]) -> None:
        """Start one layer: programs that do not wait for each other. See `wait_ready`."""
        layer: list[Program] = []
        self._state.layers.append(layer)
        for spec in specs:
            program = await launch(spec, self.run_dir, self._clock)
            layer.append(program)
            await self._tell_guard(f"+{program.pid}\n")
            self._tasks.spawn(f"watch {spec.name}", self._watch(program))

    async def wait_ready(self, names: Iterable[str] | None = None) -> None:
        """Wait until each program (default: all) answers 200. Raises StackError."""
        wanted = None if names is None else set(names)
        waiting = [p for p in self.programs if p.spec.ready_url and (wanted is None or p.spec.name in wanted)]
        timeout = aiohttp.ClientTimeout(total=2.0)
        async with aiohttp.ClientSession(timeout=timeout) as session, asyncio.TaskGroup() as group:
            for program in waiting:
                group.create_task(self._ready(program, session), name=f"ready {program.spec.name}")

    async def _ready(self, program: Program, session: aiohttp.ClientSession) -> None:
        spec = program.spec
        said = "it does not answer"
        deadline = self._clock.now() + spec.ready_s
        while self._clock.now() < deadline:
            if not program.alive:
                raise self._ended_early(program)
            try:
                async with session.get(spec.ready_url) as response:
                    if response.status == 200:
                        return
                    said = f"it answers HTTP {response.status}"
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                said = f"it does not answer ({type(error).__name__})"
            await asyncio.sleep(POLL_S)
        raise StackError(
            f"{spec.name} was not ready after {spec.ready_s:.0f} s: {spec.ready_url}: {said}. "
            f"The end of {program.log}:\n{program.last_lines()}"
        )

    async def guarded(self, work: Coroutine[Any, Any, T], name: str) -> T:
        """Run `work`; if a program ends meanwhile that should not, cancel it and raise StackError."""
        assert self._failure is not None, "use the stack as a context"
        task = asyncio.create_task(work, name=name)
        either: list[asyncio.Future[Any]] = [task, self._failure]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self._failure.result()
            return await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def stop(self, *, hurried: bool = False) -> StopReport:
        """Stop all, last layer first (`hurried`: all at once, less patience), and look for leftovers."""
        if self._state.report is not None:
            return self._state.report
        family = leftovers.descendants(p.pid for p in self.programs if p.alive)
        layers = [self.programs] if hurried else list(reversed(self._state.layers))
        exits: list[Exit] = []
        for layer in layers:
            grace = HURRIED_GRACE_S if hurried else None
            exits += await asyncio.gather(*(program.stop(grace) for program in layer))
        groups = [program.pid for program in self.programs]
        patience = HURRIED_SETTLE_S if hurried else leftovers.SETTLE_S
        left = await leftovers.settle(family, groups, self._clock, patience)
        ports = leftovers.listening(port for p in self.programs for port in p.spec.ports)
        named = leftovers.end(left)
        for program in self.programs:
            await self._tell_guard(f"-{program.pid}\n")
        self._state.report = StopReport(tuple(exits), tuple(named), tuple(ports))
        return self._state.report

    async def _watch(self, program: Program) -> None:
        await program.ended()
        if not program.stopping and not program.planned and self._failure and not self._failure.done():
            self._failure.set_exception(self._ended_early(program))

    def _ended_early(self, program: Program) -> StackError:
        return StackError(
            f"{program.spec.name} ended by itself with status {program.code}. "
            f"The end of {program.log}:\n{program.last_lines()}"
        )

    async def _tell_guard(self, line: str) -> None:
        if self._guard is None or self._guard.stdin is None:
            return
        try:
            self._guard.stdin.write(line.encode())
            await self._guard.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise StackError("the guard process ended; somebody killed it") from error

    async def _end_guard(self) -> None:
        if self._guard is None or self._guard.stdin is None:
            return
        self._guard.stdin.close()
        async with asyncio.timeout(GUARD_WAIT_S):
            await self._guard.wait()

"""Steps that every live run shares: wait for the fleet, read the last figures, keep the logs."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from headrace_lab.demo.display import say
from headrace_lab.demo.fleet import Fleet
from headrace_lab.demo.observe import TROUBLES, Host, Observer, Sample
from headrace_lab.stack.program import StackError
from headrace_shared.clock import Clock

SERVE_S = 60.0
STEP_S = 0.1


async def serving(fleet: Fleet, observer: Observer, clock: Clock, within_s: float = SERVE_S) -> None:
    """Wait until every cell is READY with a weight and Envoy holds all of them. Raises StackError."""
    deadline = clock.now() + within_s
    missing = "the controller's API has not answered"
    while clock.now() < deadline:
        try:
            missing = not_serving(fleet, await observer.sample(), await observer.hosts())
        except TROUBLES as error:
            missing = f"{type(error).__name__}: {error}"
        if not missing:
            return
        await asyncio.sleep(STEP_S)
    raise StackError(f"the fleet does not serve after {within_s:g} s: {missing}")


def not_serving(fleet: Fleet, sample: Sample, hosts: dict[str, Host]) -> str:
    """Why the fleet does not serve as a whole yet; "" when it does."""
    for cell in fleet.cells:
        view = sample.cells.get(cell.id)
        if view is None:
            return f"the controller does not know cell {cell.id}"
        if view.state != "READY":
            return f"cell {cell.id} is {view.state} ({view.cause or 'no cause given'})"
    if not sample.published:
        return "the controller has not published yet"
    absent = [cell.id for cell in fleet.cells if cell.address not in hosts]
    return f"Envoy does not hold {', '.join(absent)}" if absent else ""


async def last_counter(observer: Observer, name: str) -> float | None:
    """A counter of the controller at the end of a run; None where it cannot be read."""
    try:
        return await observer.counter(name)
    except TROUBLES:
        return None


@dataclass(slots=True)
class RunDirectory:
    """Where settings and logs of a run are; `keep` = leave it there afterwards."""

    path: Path
    keep: bool = False


@contextlib.contextmanager
def run_directory(console: Console, chosen: Path | None, prefix: str) -> Iterator[RunDirectory]:
    """A directory for settings and logs: the chosen one, else a temporary one.

    The temporary one stays, and its place is said, when `keep` was set or an error came.
    """
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
        yield RunDirectory(chosen.resolve(), keep=True)
        return
    directory = RunDirectory(Path(tempfile.mkdtemp(prefix=prefix)))
    try:
        yield directory
    except Exception:
        directory.keep = True
        raise
    finally:
        if directory.keep:
            say(console, f"settings and logs of the programs are kept in {directory.path}")
        else:
            shutil.rmtree(directory.path, ignore_errors=True)

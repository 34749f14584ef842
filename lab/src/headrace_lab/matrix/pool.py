"""Pieces on several processes: the longest first, later repetitions from what the first one found."""

from __future__ import annotations

import math
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace

from headrace_lab.matrix.kept import Kept
from headrace_lab.matrix.work import Done, Piece, work
from headrace_lab.stack.tether import tie

PROCESSES = 2
LONGEST_S = 4 * 3600.0
Told = Callable[[Piece, Done, int], None]


def informed(piece: Piece, first: Done) -> Piece:
    """A piece that begins where another repetition of its load ended."""
    rates = {(row.arm, row.tier): row.sustainable_rps for row in first.rows}
    near = {key: rate for key, rate in rates.items() if math.isfinite(rate)}
    return replace(piece, near=near, unloaded_s=first.unloaded_s)


class Plan:
    """Which piece is next. A load's later repetitions wait for its first one, so that what they find does
    not depend on who was faster."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._open = list(pieces)
        self._begun: set[str] = set()
        self._first: dict[str, Done] = {}

    def next(self) -> Piece | None:
        """The first piece, in the order given, that can be begun; None where there is none now."""
        for number, piece in enumerate(self._open):
            first = self._first.get(piece.load)
            if first is not None:
                return informed(self._open.pop(number), first)
            if piece.load not in self._begun:
                self._begun.add(piece.load)
                return self._open.pop(number)
        return None

    def note(self, done: Done) -> None:
        """A piece is done."""
        self._first.setdefault(done.load, done)


def run(pieces: Sequence[Piece], kept: Kept, told: Told, processes: int = PROCESSES) -> list[Done]:
    """Work on all pieces but those that are kept; `told` hears of each with the number done so far.

    Raises whatever a piece raises, TimeoutError after LONGEST_S without one.
    """
    plan, results = Plan(pieces), []
    # A fresh interpreter for each worker: forking one that has threads is not safe.
    context = multiprocessing.get_context("spawn")
    # Workers that outlived this process would compute for nobody, and then wait for ever.
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=tie, initargs=(os.getpid(),))
    under_way: dict[Future[Done], Piece] = {}

    def take(piece: Piece, done: Done) -> None:
        results.append(done)
        plan.note(done)
        told(piece, done, len(results))

    try:
        while True:
            while len(under_way) < processes and (piece := plan.next()) is not None:
                if (old := kept.find(piece)) is not None:
                    take(piece, old)
                else:
                    under_way[pool.submit(work, piece)] = piece
            if not under_way:
                return results
            finished, _ = wait(under_way, timeout=LONGEST_S, return_when=FIRST_COMPLETED)
            if not finished:
                raise TimeoutError(f"no piece was done within {LONGEST_S:.0f} s")
            for future in finished:
                piece = under_way.pop(future)
                done = future.result()
                kept.add(piece, done)
                take(piece, done)
    finally:
        if under_way:  # interrupted, or a piece failed: what goes on is for nothing
            for worker in multiprocessing.active_children():
                worker.terminate()
        pool.shutdown(wait=True, cancel_futures=True)

"""The order of a matrix's pieces, and what an interrupted one leaves for the next."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from headrace_lab.matrix import kept as kept_module
from headrace_lab.matrix.kept import Kept, code_digest
from headrace_lab.matrix.pool import Plan, run
from headrace_lab.matrix.work import Below, Done, Piece, Row

ARMS = ("rr", "weights")


def piece(load: str, repetition: int) -> Piece:
    return Piece("perturbed", load, ARMS, ("middle",), repetition, 1 + 1000 * repetition, 1)


def done(load: str, repetition: int, rr: float = 10.0, weights: float = math.nan) -> Done:
    rows = tuple(
        Row("perturbed", load, arm, "middle", repetition, 1, 900.0, rps, rps, 5)
        for arm, rps in (("rr", rr), ("weights", weights))
    )
    below = Below(load, repetition, 7.0, {"rr": [1.0, None], "weights": [2.0, 3.0]})
    return Done(load, repetition, 0.4, rows, below, 12.5)


PIECES = [piece("long", 0), piece("long", 1), piece("short", 0), piece("short", 1)]


def test_first_repetitions_begin_at_once_and_later_ones_begin_where_they_ended() -> None:
    plan = Plan(PIECES)
    begun = [plan.next(), plan.next(), plan.next()]
    assert begun == [piece("long", 0), piece("short", 0), None]
    plan.note(done("short", 0))
    later = plan.next()
    assert later == replace(piece("short", 1), near={("rr", "middle"): 10.0}, unloaded_s=0.4)
    assert plan.next() is None, "the other load's first repetition is not over"


def test_what_is_kept_comes_back_as_it_was(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "partial.ndjson", "code")
    kept.add(piece("long", 0), done("long", 0))
    found = kept.find(piece("long", 0))
    assert found is not None
    assert found.below == done("long", 0).below
    assert (found.rows[0], found.unloaded_s, found.cpu_s) == (done("long", 0).rows[0], 0.4, 12.5)
    assert math.isnan(found.rows[1].sustainable_rps)
    assert kept.find(piece("long", 1)) is None
    assert kept.find(replace(piece("long", 0), quick=True)) is None, "it was counted otherwise"
    assert Kept(tmp_path / "partial.ndjson", "other code").find(piece("long", 0)) is None


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "partial.ndjson"
    kept = Kept(path, "code")
    kept.add(piece("long", 0), done("long", 0))
    kept.add(piece("long", 1), done("long", 1))
    path.write_text(path.read_text(encoding="utf-8")[:-40], encoding="utf-8")
    assert kept.find(piece("long", 0)) is not None
    assert kept.find(piece("long", 1)) is None


def test_a_resumed_matrix_works_on_nothing_that_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path / "partial.ndjson", "code")
    for each in PIECES:
        kept.add(each, done(each.load, each.repetition))

    class NoPool:
        def __init__(self, *_: object, **__: object) -> None: ...

        def submit(self, *_: object) -> None:
            raise AssertionError("a kept piece was worked on again")

        def shutdown(self, **_: object) -> None: ...

    monkeypatch.setattr("headrace_lab.matrix.pool.ProcessPoolExecutor", NoPool)
    told: list[int] = []
    results = run(PIECES, kept, lambda _piece, _done, count: told.append(count))
    assert {(each.load, each.repetition) for each in results} == {(p.load, p.repetition) for p in PIECES}
    assert told == [1, 2, 3, 4]
    kept.drop()
    assert kept.find(PIECES[0]) is None


def test_other_code_has_another_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = code_digest()
    assert first == code_digest()
    (tmp_path / "more.py").write_text("x = 1\n", encoding="utf-8")
    monkeypatch.setattr(kept_module, "files", lambda _package: tmp_path)
    assert code_digest() != first

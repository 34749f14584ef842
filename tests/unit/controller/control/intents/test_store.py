"""Wishes on disk: what is written is read again, and no file keeps a controller from starting."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace_controller.control.intents.records import Act, Kind, Wish
from headrace_controller.control.intents.store import FILE_NAME, SqliteStore, StoreError

OVERRIDE = Wish(kind=Kind.OVERRIDE, subject="c1", cause="canary", by="anna", at=5.0, weight=7)
PIN = Wish(kind=Kind.PIN, subject="org/m", sites=("a", "b"))
DRAIN = Wish(kind=Kind.DRAIN, subject="c2", requested_by="operator", deadline_at=99.0, finished=True)


def act(number: int) -> Act:
    return Act(float(number), "anna", "operator", "127.0.0.1", "drain", f"c{number}", "{}", 202)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(tmp_path, "r", max_acts=3)
    yield made
    made.close()


def again(store: SqliteStore, tmp_path: Path) -> tuple[Wish, ...] | None:
    """What another controller finds."""
    store.close()
    other = SqliteStore(tmp_path, "r", max_acts=3)
    try:
        return other.load()
    finally:
        other.close()


def aside(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in tmp_path.iterdir() if "unusable" in path.name)


def test_a_new_store_says_that_it_never_held_anything_and_then_that_it_is_empty(
    store: SqliteStore, tmp_path: Path
) -> None:
    """Nothing ever kept is not the same as nothing wished: older files have the word then."""
    assert store.load() is None
    assert again(store, tmp_path) == ()


def test_wishes_are_read_as_they_were_written(store: SqliteStore, tmp_path: Path) -> None:
    store.load()
    store.write([OVERRIDE, PIN, DRAIN], [])
    assert set(again(store, tmp_path) or ()) == {OVERRIDE, PIN, DRAIN}
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o077 == 0, "for this user alone"


def test_a_later_wish_takes_the_place_of_one_with_its_key_and_a_key_takes_it_back(
    store: SqliteStore, tmp_path: Path
) -> None:
    store.load()
    store.write([OVERRIDE, PIN], [])
    store.write([OVERRIDE.model_copy(update={"weight": 9}), PIN.key], [])
    (left,) = again(store, tmp_path) or ()
    assert left.weight == 9


def test_only_the_newest_acts_are_kept_and_they_come_newest_first(store: SqliteStore) -> None:
    store.write([], [act(number) for number in range(5)])
    assert [each.subject for _, each in store.acts(10, None)] == ["c4", "c3", "c2"]
    (newest, _), *_ = store.acts(1, None)
    assert [each.subject for _, each in store.acts(1, newest)] == ["c3"]


@pytest.mark.parametrize("damage", ["text", "cut", "schema", "table", "record"])
def test_a_damaged_file_is_moved_aside_and_a_new_one_begun(tmp_path: Path, damage: str) -> None:
    store = SqliteStore(tmp_path, "r", max_acts=3)
    store.load()
    store.write([OVERRIDE], [])
    store.close()
    path = tmp_path / FILE_NAME
    if damage == "text":
        path.write_bytes(b"this is no database" * 100)
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:3000])
    else:
        with sqlite3.connect(path) as connection:
            connection.execute(
                {
                    "schema": "PRAGMA user_version = 99",
                    "table": "DROP TABLE wishes",
                    "record": """UPDATE wishes SET record = '{"kind": "magic"}'""",
                }[damage]
            )
        connection.close()
    store = SqliteStore(tmp_path, "r", max_acts=3)
    assert store.load() is None
    assert f"{FILE_NAME}.unusable-1" in aside(tmp_path)
    store.write([PIN], [])
    assert again(store, tmp_path) == (PIN,)


def test_a_store_of_another_region_is_not_believed(store: SqliteStore, tmp_path: Path) -> None:
    store.load()
    store.write([OVERRIDE], [])
    store.close()
    other = SqliteStore(tmp_path, "elsewhere", max_acts=3)
    assert other.load() is None
    other.close()
    assert aside(tmp_path)


def test_a_second_file_that_is_moved_aside_takes_no_others_place(tmp_path: Path) -> None:
    for _ in range(2):
        (tmp_path / FILE_NAME).write_bytes(b"x" * 5000)
        store = SqliteStore(tmp_path, "r", max_acts=3)
        store.load()
        store.close()
    assert {f"{FILE_NAME}.unusable-1", f"{FILE_NAME}.unusable-2"} <= set(aside(tmp_path))


def test_a_place_that_cannot_be_written_is_said_and_nothing_is_moved(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    store = SqliteStore(blocked, "r", max_acts=3)
    with pytest.raises(StoreError, match="make state_dir a writable directory"):
        store.load()
    with pytest.raises(StoreError):
        store.write([OVERRIDE], [])
    with pytest.raises(StoreError):
        store.acts(1, None)
    assert blocked.read_text() == ""


def test_all_of_a_change_is_kept_or_nothing(store: SqliteStore, tmp_path: Path) -> None:
    store.load()
    broken = act(1).__class__(1.0, None, "", "", "", "", "", 0)  # type: ignore[arg-type]
    with pytest.raises(StoreError):
        store.write([OVERRIDE], [broken])
    assert again(store, tmp_path) == ()

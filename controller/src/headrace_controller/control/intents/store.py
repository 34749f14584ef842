"""Wishes and acts on disk: the interface, and SQLite behind it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Final, Protocol

from pydantic import ValidationError

from headrace_controller.control.intents.records import Act, Kind, Wish
from headrace_shared import log

FILE_NAME: Final = "operators.db"
SCHEMA_VERSION: Final = 1
BUSY_S: Final = 2.0
_SUFFIXES: Final = ("", "-wal", "-shm")
_SCHEMA: Final = (
    "CREATE TABLE wishes (kind TEXT NOT NULL, subject TEXT NOT NULL, record TEXT NOT NULL,"
    " PRIMARY KEY (kind, subject))",
    "CREATE TABLE acts (id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, who TEXT NOT NULL,"
    " role TEXT NOT NULL, source TEXT NOT NULL, action TEXT NOT NULL, subject TEXT NOT NULL,"
    " detail TEXT NOT NULL, status INTEGER NOT NULL)",
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)

Change = Wish | tuple[Kind, str]
"""A wish that is in force now, or the key of one that is not any more."""


class StoreError(Exception):
    """The store cannot be read or written; the message says why and what to do."""


class IntentStore(Protocol):
    """Keeps wishes and acts. All calls block, and come from one thread at a time."""

    def load(self) -> tuple[Wish, ...] | None:
        """The wishes in force; None where nothing was ever kept. Raises StoreError."""
        ...

    def write(self, changes: Sequence[Change], acts: Sequence[Act]) -> None:
        """Take all of it or nothing. Raises StoreError."""
        ...

    def acts(self, limit: int, before: int | None) -> list[tuple[int, Act]]:
        """The newest acts with numbers below `before`, newest first. Raises StoreError."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...


class SqliteStore:
    """A file in `state_dir`, with a write-ahead log; the newest `max_acts` acts are kept.

    A file that cannot be used (damaged, of a later version, of another region) is moved aside and
    a new one begun: a controller starts without wishes rather than not at all, and says so.
    """

    def __init__(self, state_dir: Path, region: str, max_acts: int) -> None:
        self._path = state_dir / FILE_NAME
        self._region = region
        self._max_acts = max_acts
        self._connection: sqlite3.Connection | None = None
        self._log = log.get("intents")

    def load(self) -> tuple[Wish, ...] | None:
        try:
            return self._load()
        except (sqlite3.DatabaseError, ValidationError, ValueError) as error:
            if isinstance(error, sqlite3.OperationalError) and not _is_damage(error):
                raise self._trouble(error) from error
            self._move_aside(error)
        try:
            return self._load()
        except (sqlite3.Error, ValueError) as error:
            raise self._trouble(error) from error

    def write(self, changes: Sequence[Change], acts: Sequence[Act]) -> None:
        try:
            with self._open() as connection:
                for change in changes:
                    _apply(connection, change)
                if acts:
                    connection.executemany(
                        "INSERT INTO acts (at, who, role, source, action, subject, detail, status)"
                        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                        [astuple(act) for act in acts],
                    )
                    connection.execute(
                        "DELETE FROM acts WHERE id <= (SELECT max(id) FROM acts) - ?", (self._max_acts,)
                    )
        except (sqlite3.Error, OSError, ValueError) as error:
            self.close()
            raise self._trouble(error) from error

    def acts(self, limit: int, before: int | None) -> list[tuple[int, Act]]:
        try:
            rows = self._open().execute(
                "SELECT id, at, who, role, source, action, subject, detail, status FROM acts"
                " WHERE id < ? ORDER BY id DESC LIMIT ?",
                (2**62 if before is None else before, limit),
            )
            return [(row[0], Act(*row[1:])) for row in rows.fetchall()]
        except (sqlite3.Error, OSError, ValueError) as error:
            self.close()
            raise self._trouble(error) from error

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _load(self) -> tuple[Wish, ...] | None:
        connection = self._open()
        rows = connection.execute("SELECT record FROM wishes ORDER BY kind, subject").fetchall()
        wishes = tuple(Wish.model_validate_json(record) for (record,) in rows)
        began = connection.execute("SELECT value FROM facts WHERE name = 'began'").fetchone()
        if began is not None:
            return wishes
        with connection:
            connection.execute("INSERT INTO facts VALUES ('began', '1')")
        return None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._path.touch(mode=0o600)  # who did what is for this user alone
            except OSError as error:
                raise sqlite3.OperationalError(str(error)) from error
            connection = sqlite3.connect(self._path, timeout=BUSY_S, check_same_thread=False)
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        # A wish that was acknowledged must outlive a power cut.
        connection.execute("PRAGMA synchronous = FULL")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == 0:
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                for statement in _SCHEMA:
                    connection.execute(statement)
                connection.execute("INSERT INTO facts VALUES ('region', ?)", (self._region,))
        elif version != SCHEMA_VERSION:
            raise ValueError(f"its schema is version {version}; this controller reads {SCHEMA_VERSION}")
        row = connection.execute("SELECT value FROM facts WHERE name = 'region'").fetchone()
        if row is None or row[0] != self._region:
            raise ValueError(
                f"it is of region {row[0] if row else '?'}, and this controller's is {self._region}"
            )

    def _move_aside(self, error: Exception) -> None:
        self.close()
        number = 1
        while (aside := self._path.with_name(f"{FILE_NAME}.unusable-{number}")).exists():
            number += 1
        for suffix in _SUFFIXES:
            old = self._path.with_name(FILE_NAME + suffix)
            with contextlib.suppress(OSError):
                old.replace(aside.with_name(aside.name + suffix))
        self._log.error(
            "operators' wishes cannot be read; starting without them",
            error=str(error).splitlines()[0],
            moved_to=str(aside),
            remedy="ask again for overrides, cordons, shadow and freeze that are still wanted",
        )

    def _trouble(self, error: Exception) -> StoreError:
        return StoreError(f"{self._path}: {error}; make state_dir a writable directory with free space")


def _apply(connection: sqlite3.Connection, change: Change) -> None:
    if isinstance(change, Wish):
        connection.execute(
            "INSERT OR REPLACE INTO wishes VALUES (?, ?, ?)",
            (change.kind.value, change.subject, change.model_dump_json()),
        )
    else:
        kind, subject = change
        connection.execute("DELETE FROM wishes WHERE kind = ? AND subject = ?", (kind.value, subject))


def _is_damage(error: sqlite3.OperationalError) -> bool:
    """Whether it is the file that is wrong, and not the disk or its rights."""
    return "no such table" in str(error) or "no such column" in str(error)

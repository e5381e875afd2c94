"""Where entries lie: the contract of a store, and the SQLite one.

A store appends rows inside one exclusive transaction and never changes one. It knows nothing of
budgets; that is :mod:`privote.ledger.book`.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from ..errors import LedgerError


@dataclass(frozen=True)
class Row:
    """One entry as it is stored; ``sealed`` lies in a table of its own."""

    number: int
    at: str
    body: str
    digest: str
    sealed: str | None = None


class Store(Protocol):
    """What a backend must do; one contract suite tests them all."""

    def transaction(self) -> AbstractContextManager[None]:
        """Hold the only write lock until the block ends; commit, or undo everything."""

    def append(self, row: Row) -> None:
        """Add a row; only inside a transaction."""

    def rows(self, after: int = 0, upto: int | None = None) -> list[Row]:
        """Return the rows after a number, up to another, in order, sealed parts included."""

    def head(self) -> tuple[int, str] | None:
        """Return number and digest of the last row; None if there is none."""

    def problems(self) -> list[str]:
        """Return what is wrong with the database: its own check, and what does not belong in it."""

    def backup(self, path: Path) -> None:
        """Write a consistent copy while the ledger is in use."""

    def close(self) -> None:
        """Let go of the database."""


#: Of what entries say, too: a ledger of another format is refused, never continued.
SCHEMA = 2

_TABLES = {
    "entries": "CREATE TABLE entries (number INTEGER PRIMARY KEY CHECK (number > 0), "
    "at TEXT NOT NULL, body TEXT NOT NULL, digest TEXT NOT NULL)",
    "sealed": "CREATE TABLE sealed (number INTEGER PRIMARY KEY REFERENCES entries (number), "
    "body TEXT NOT NULL)",
    "entries_stay": "CREATE TRIGGER entries_stay BEFORE UPDATE ON entries "
    "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END",
    "entries_remain": "CREATE TRIGGER entries_remain BEFORE DELETE ON entries "
    "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END",
}


def check_schema(found: int) -> None:
    """Refuse a ledger of another format than this version writes."""
    if found > SCHEMA:
        raise LedgerError(
            f"the ledger has schema {found}, this privote knows {SCHEMA}: use a newer privote"
        )
    if 0 < found < SCHEMA:
        raise LedgerError(
            "the ledger is of an earlier format, whose budgets did not fix the Rényi order that "
            "charges are counted at: keep it as a record, and begin a new one with budgets that "
            "leave out what the old one has spent"
        )


def row_of(values: Sequence[Any]) -> Row:
    """Return an entry as it was stored; refuse one that cannot have been written by a ledger."""
    number, at, body, digest, sealed = values
    if type(number) is not int or not all(isinstance(text, str) for text in (at, body, digest)):
        raise LedgerError(f"entry {number!r:.20} holds something else than text")
    if not isinstance(sealed, str | None):
        raise LedgerError(f"the sealed part of entry {number} holds something else than text")
    return Row(number, at, body, digest, sealed)


class SQLiteStore:
    """A ledger in one file: write-ahead log, every commit on disk before it returns."""

    _copied: tempfile.TemporaryDirectory[str] | None

    def __init__(self, path: Path, *, create: bool = True, patience: float = 60.0) -> None:
        self._copied = None
        if not create and not path.exists():
            raise LedgerError(f"ledger {str(path)!r} does not exist")
        try:
            if str(path) != ":memory:":
                # The sealed table is in there: for its owner only, like the key.
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            # The ledger's own lock lets one thread in at a time.
            self._connection = sqlite3.connect(
                path, timeout=patience, isolation_level=None, check_same_thread=False
            )
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(f"ledger {str(path)!r} cannot be opened: {error}") from None
        try:
            self._check(path, create)
            self._keep_log(patience)
            self._connection.execute("PRAGMA synchronous=FULL")
            self._connection.execute("PRAGMA foreign_keys=ON")
            self._make()
        except sqlite3.Error as error:
            self._connection.close()
            raise LedgerError(f"ledger {str(path)!r} cannot be opened: {error}") from None
        except LedgerError:
            self._connection.close()
            raise

    @classmethod
    def reader(cls, path: Path) -> SQLiteStore:
        """Open a ledger that is only read: it takes no lock, and may lie on read-only media."""
        store = cls.__new__(cls)
        store._copied = None
        try:
            store._connect_reader(path)
            store._check(path, create=False)
        except sqlite3.OperationalError:
            # Where nothing can be written, SQLite cannot look at a write-ahead log: then copy both.
            store._copied = tempfile.TemporaryDirectory(prefix="privote-")
            try:
                copy = Path(store._copied.name) / "ledger.db"
                for end in ("", "-wal"):
                    if Path(f"{path}{end}").exists():
                        shutil.copyfile(f"{path}{end}", f"{copy}{end}")
                store._connection = sqlite3.connect(
                    copy, isolation_level=None, check_same_thread=False
                )
                store._check(path, create=False)
            except (sqlite3.Error, OSError, LedgerError) as error:
                store._copied.cleanup()
                raise LedgerError(f"ledger {str(path)!r} cannot be read: {error}") from None
        except sqlite3.Error as error:
            raise LedgerError(f"ledger {str(path)!r} cannot be read: {error}") from None
        return store

    def _connect_reader(self, path: Path) -> None:
        self._connection = sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?mode=ro",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
        )

    def _keep_log(self, patience: float) -> None:
        """Switch to a write-ahead log; SQLite itself does not wait for others who do the same."""
        end = time.monotonic() + patience
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    def _check(self, path: Path, create: bool) -> None:
        """Refuse another application's database, and one from the future, before any change."""
        self._connection.execute("BEGIN")  # both from one moment: another process may be making it
        found = self._version()
        listed = self._connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
        tables = {name for (name,) in listed.fetchall()}
        self._connection.execute("COMMIT")
        if not create and not tables:
            raise LedgerError(f"ledger {str(path)!r} does not exist: the file is empty")
        if (found == 0 and tables) or (found > 0 and not {"entries", "sealed"} <= tables):
            raise LedgerError(f"{str(path)!r} is a database, but not a ledger")
        check_schema(found)

    def _make(self) -> None:
        """Make the tables of a new ledger."""
        if self._version() == 0:
            with self.transaction():
                if self._version() == 0:  # under the lock: another process may have been first
                    for statement in _TABLES.values():
                        self._connection.execute(statement)
                    self._connection.execute(f"PRAGMA user_version={SCHEMA}")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Take the write lock at once, so that what is read inside stays true until the commit."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._undo()
            raise LedgerError(f"the ledger cannot be written: {error}") from None
        except BaseException:
            self._undo()
            raise

    def _undo(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def append(self, row: Row) -> None:
        """Add a row; only inside a transaction."""
        if not self._connection.in_transaction:
            raise LedgerError("append outside a transaction")
        self._connection.execute(
            "INSERT INTO entries VALUES (?, ?, ?, ?)", (row.number, row.at, row.body, row.digest)
        )
        if row.sealed is not None:
            self._connection.execute("INSERT INTO sealed VALUES (?, ?)", (row.number, row.sealed))

    def rows(self, after: int = 0, upto: int | None = None) -> list[Row]:
        """Return the rows after a number, up to another, in order, sealed parts included."""
        try:
            found = self._connection.execute(
                "SELECT e.number, e.at, e.body, e.digest, s.body FROM entries e "
                "LEFT JOIN sealed s USING (number) WHERE e.number > ? AND e.number <= ? "
                "ORDER BY e.number",
                (after, 2**63 - 1 if upto is None else upto),
            ).fetchall()
        except sqlite3.Error as error:
            raise LedgerError(f"the ledger cannot be read: {error}") from None
        return [row_of(values) for values in found]

    def head(self) -> tuple[int, str] | None:
        """Return number and digest of the last row; None if there is none."""
        try:
            found = self._connection.execute(
                "SELECT number, digest FROM entries ORDER BY number DESC LIMIT 1"
            ).fetchone()
        except sqlite3.Error as error:
            raise LedgerError(f"the ledger cannot be read: {error}") from None
        return None if found is None else (int(found[0]), str(found[1]))

    def problems(self) -> list[str]:
        """Return what SQLite's own check finds, what does not belong, and lost sealed rows."""
        try:
            found = [str(r[0]) for r in self._connection.execute("PRAGMA integrity_check")]
            orphans = self._connection.execute(
                "SELECT number FROM sealed WHERE number NOT IN (SELECT number FROM entries)"
            ).fetchall()
            there = dict(self._connection.execute("SELECT name, sql FROM sqlite_master").fetchall())
        except sqlite3.Error as error:
            return [str(error)]
        # A trigger of somebody else's can drop what is written.
        strange = [f"{name!r} does not belong in a ledger" for name in there if name not in _TABLES]
        changed = [
            f"{name!r} is {'not as it was made' if name in there else 'gone'}"
            for name, made in _TABLES.items()
            if there.get(name) != made
        ]
        return [
            *(text for text in found if text != "ok"),
            *strange,
            *changed,
            *(f"sealed row {number} belongs to no entry" for (number,) in orphans),
        ]

    def backup(self, path: Path) -> None:
        """Write a consistent copy while the ledger is in use."""
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))  # sealed parts too
            target = sqlite3.connect(path)
            try:
                self._connection.backup(target)
            finally:
                target.close()
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(f"backup {str(path)!r} cannot be written: {error}") from None

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()
        if self._copied is not None:
            self._copied.cleanup()

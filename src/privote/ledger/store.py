"""Where entries lie: the contract of a store, and the SQLite one.

A store appends rows inside one exclusive transaction and never changes one. It knows nothing of
budgets; that is :mod:`privote.ledger.book`.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

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

    def rows(self, after: int = 0) -> list[Row]:
        """Return the rows after a number, in order, sealed parts included."""

    def head(self) -> tuple[int, str] | None:
        """Return number and digest of the last row; None if there is none."""

    def problems(self) -> list[str]:
        """Return what the database itself finds wrong with the file."""

    def backup(self, path: Path) -> None:
        """Write a consistent copy while the ledger is in use."""

    def close(self) -> None:
        """Let go of the database."""


# One tuple of statements per schema version; a ledger is brought forward one version at a time.
_VERSIONS = (
    (
        "CREATE TABLE entries (number INTEGER PRIMARY KEY CHECK (number > 0), "
        "at TEXT NOT NULL, body TEXT NOT NULL, digest TEXT NOT NULL)",
        "CREATE TABLE sealed (number INTEGER PRIMARY KEY REFERENCES entries (number), "
        "body TEXT NOT NULL)",
        "CREATE TRIGGER entries_stay BEFORE UPDATE ON entries "
        "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END",
        "CREATE TRIGGER entries_remain BEFORE DELETE ON entries "
        "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END",
    ),
)
SCHEMA = len(_VERSIONS)


class SQLiteStore:
    """A ledger in one file: write-ahead log, every commit on disk before it returns."""

    def __init__(self, path: Path, *, create: bool = True, patience: float = 30.0) -> None:
        if not create and not path.exists():
            raise LedgerError(f"ledger {str(path)!r} does not exist")
        try:
            if str(path) != ":memory:":
                # The sealed table is in there: for its owner only, like the key.
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._connection = sqlite3.connect(path, timeout=patience, isolation_level=None)
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(f"ledger {str(path)!r} cannot be opened: {error}") from None
        try:
            self._check(path, create)
            self._keep_log(patience)
            self._connection.execute("PRAGMA synchronous=FULL")
            self._connection.execute("PRAGMA foreign_keys=ON")
            self._migrate()
        except sqlite3.Error as error:
            self._connection.close()
            raise LedgerError(f"ledger {str(path)!r} cannot be opened: {error}") from None
        except LedgerError:
            self._connection.close()
            raise

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
        if found > SCHEMA:
            raise LedgerError(
                f"the ledger has schema {found}, this privote knows {SCHEMA}: use a newer privote"
            )

    def _migrate(self) -> None:
        """Bring an older file to the present schema."""
        if self._version() < SCHEMA:
            with self.transaction():
                # Read again under the lock: another process may have been first.
                for statements in _VERSIONS[self._version() :]:
                    for statement in statements:
                        self._connection.execute(statement)
                self._connection.execute(f"PRAGMA user_version={SCHEMA}")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Take the write lock at once, so that what is read inside stays true until the commit."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise LedgerError(f"the ledger cannot be written: {error}") from None
        try:
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

    def rows(self, after: int = 0) -> list[Row]:
        """Return the rows after a number, in order, sealed parts included."""
        try:
            found = self._connection.execute(
                "SELECT e.number, e.at, e.body, e.digest, s.body FROM entries e "
                "LEFT JOIN sealed s USING (number) WHERE e.number > ? ORDER BY e.number",
                (after,),
            ).fetchall()
        except sqlite3.Error as error:
            raise LedgerError(f"the ledger cannot be read: {error}") from None
        return [Row(*values) for values in found]

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
        """Return what SQLite's own check finds, and sealed rows without an entry."""
        try:
            found = [str(r[0]) for r in self._connection.execute("PRAGMA integrity_check")]
            orphans = self._connection.execute(
                "SELECT number FROM sealed WHERE number NOT IN (SELECT number FROM entries)"
            ).fetchall()
        except sqlite3.Error as error:
            return [str(error)]
        return [text for text in found if text != "ok"] + [
            f"sealed row {number} belongs to no entry" for (number,) in orphans
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

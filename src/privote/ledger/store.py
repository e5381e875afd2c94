"""Where entries lie: the contract of a store, and the SQLite one.

A store appends rows inside one exclusive transaction and never changes one. It knows nothing of
budgets; that is :mod:`privote.ledger.book`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..errors import LedgerError
from .sqlite import Format, SQLiteFile

START = "0" * 64
Head = tuple[int, str]  # number and digest of the last entry


@dataclass(frozen=True)
class Row:
    """One entry as it is stored; ``sealed`` lies in a table of its own."""

    number: int
    at: str
    body: str
    digest: str
    sealed: str | None = None


class LostError(LedgerError):
    """The line to the database broke."""


class UnsettledError(LostError):
    """It broke during a commit: whether that happened is known only after another look."""


class CommittedError(LedgerError):
    """An entry was committed, or may have been, and what has to follow failed."""


class Store(Protocol):
    """What a backend must do; one contract suite tests them all."""

    @property
    def shared(self) -> bool:
        """Whether others write to it who may keep an anchor of their own."""

    def reconnect(self) -> None:
        """Get hold of the database again after a :class:`LostError`."""

    def transaction(self) -> AbstractContextManager[None]:
        """Hold the only write lock until the block ends; commit, or undo everything."""

    def append(self, row: Row) -> None:
        """Add a row; only inside a transaction."""

    def rows(self, after: int = 0, upto: int | None = None) -> list[Row]:
        """Return the rows after a number, up to another, in order, sealed parts included."""

    def head(self) -> Head:
        """Return number and digest of the last row; 0 and START if there is none."""

    def problems(self) -> list[str]:
        """Return what is wrong with the database: its own check, and what does not belong in it."""

    def close(self) -> None:
        """Let go of the database."""


FORMAT = Format(
    name="ledger",
    number=2,  # of what entries say, too
    tables={
        "entries": "CREATE TABLE entries (number INTEGER PRIMARY KEY CHECK (number > 0), "
        "at TEXT NOT NULL, body TEXT NOT NULL, digest TEXT NOT NULL)",
        "sealed": "CREATE TABLE sealed (number INTEGER PRIMARY KEY REFERENCES entries (number), "
        "body TEXT NOT NULL)",
    },
    triggers={
        "entries_stay": "CREATE TRIGGER entries_stay BEFORE UPDATE ON entries "
        "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END",
        "entries_remain": "CREATE TRIGGER entries_remain BEFORE DELETE ON entries "
        "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END",
    },
    writer="SELECT json_extract(body, '$.version') FROM entries "
    "WHERE json_extract(body, '$.version') IS NOT NULL ORDER BY number DESC",
    earlier="its budgets did not fix the Rényi order that charges are counted at: keep it as a "
    "record, and begin a new one with budgets that leave out what the old one has spent",
)


def row_of(values: Sequence[Any]) -> Row:
    """Return an entry as it was stored; refuse one that cannot have been written by a ledger."""
    number, at, body, digest, sealed = values
    if [type(number), type(at), type(body), type(digest)] != [int, str, str, str]:
        raise LedgerError(f"entry {number!r:.20} holds something else than text")
    if not isinstance(sealed, str | None):
        raise LedgerError(f"the sealed part of entry {number} holds something else than text")
    return Row(number, at, body, digest, sealed)


class SQLiteStore(SQLiteFile):
    """A ledger in one file, for its owner only: the sealed parts are in there, too."""

    shared = False

    def __init__(
        self, path: Path, *, create: bool = True, readonly: bool = False, patience: float = 60.0
    ) -> None:
        super().__init__(path, FORMAT, create=create, readonly=readonly, patience=patience)

    def reconnect(self) -> None:
        """Nothing to do: a file's commit is never in doubt."""

    def append(self, row: Row) -> None:
        """Add a row; only inside a transaction."""
        if not self._connection.in_transaction:
            raise LedgerError("append outside a transaction")
        self.run(
            "INSERT INTO entries VALUES (?, ?, ?, ?)", row.number, row.at, row.body, row.digest
        )
        if row.sealed is not None:
            self.run("INSERT INTO sealed VALUES (?, ?)", row.number, row.sealed)

    def rows(self, after: int = 0, upto: int | None = None) -> list[Row]:
        """Return the rows after a number, up to another, in order, sealed parts included."""
        found = self.run(
            "SELECT e.number, e.at, e.body, e.digest, s.body FROM entries e "
            "LEFT JOIN sealed s USING (number) WHERE e.number > ? AND e.number <= ? "
            "ORDER BY e.number",
            *(after, 2**63 - 1 if upto is None else upto),
        )
        return [row_of(values) for values in found]

    def head(self) -> Head:
        """Return number and digest of the last row; 0 and START if there is none."""
        found = self.run("SELECT number, digest FROM entries ORDER BY number DESC LIMIT 1")
        return (int(found[0][0]), str(found[0][1])) if found else (0, START)

    def problems(self) -> list[str]:
        """Return what SQLite's own check finds, what does not belong, and lost sealed rows."""
        try:
            found = [str(text) for (text,) in self.run("PRAGMA integrity_check")]
            there = dict(self.run("SELECT name, sql FROM sqlite_master"))
            orphans = self.run(
                "SELECT number FROM sealed WHERE number NOT IN (SELECT number FROM entries)"
            )
        except LedgerError as error:
            return [str(error)]
        belongs = {**FORMAT.tables, **FORMAT.triggers}
        # A trigger of somebody else's can drop what is written.
        strange = [name for name in there if name not in belongs]
        changed = [name for name, made in belongs.items() if there.get(name) != made]
        return [
            *(text for text in found if text != "ok"),
            *(f"{name!r} does not belong in a ledger" for name in strange),
            *(
                f"{name!r} is {'not as it was made' if name in there else 'gone'}"
                for name in changed
            ),
            *(f"sealed row {number} belongs to no entry" for (number,) in orphans),
        ]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> SQLiteStore:
        """Return a copy in memory."""
        copy = cls(Path(":memory:"))
        with copy.transaction():
            for row in rows:
                copy.append(row)
        return copy

    def packed(self) -> bytes:
        """Return a copy in memory as the bytes of its file."""
        content: bytes = self._connection.serialize()
        return content

    @classmethod
    def unpacked(cls, data: bytes) -> SQLiteStore:
        """Return what :meth:`packed` was called on; refuse what is no ledger."""
        copy = cls(Path(":memory:"))
        try:
            copy._connection.deserialize(data)
            copy._check(create=False)
        except sqlite3.Error as error:
            copy.close()
            raise copy._failed("read", error) from None
        except BaseException:
            copy.close()
            raise
        return copy

"""Where entries lie: what a store does, and the one in a SQLite file.

A store appends rows inside one exclusive transaction and never changes one. It knows nothing of
budgets; that is :mod:`privote.ledger`. A commit is on disk when it returns; another kind of file,
or another format, is refused before anything is changed.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import stat
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from ..errors import LedgerError, StorageError
from ..files import DATABASES, check_written

START = "0" * 64
FORMAT = 4  # of tables, and of what entries say
TABLES = {
    "entries": "CREATE TABLE entries (number INTEGER PRIMARY KEY CHECK (number > 0), "
    "at TEXT NOT NULL, body TEXT NOT NULL, digest TEXT NOT NULL)",
    "sealed": "CREATE TABLE sealed (number INTEGER PRIMARY KEY REFERENCES entries (number), "
    "body TEXT NOT NULL)",
}
TRIGGERS = {
    "entries_stay": "CREATE TRIGGER entries_stay BEFORE UPDATE ON entries "
    "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END",
    "entries_remain": "CREATE TRIGGER entries_remain BEFORE DELETE ON entries "
    "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END",
}
_EARLIER = (
    "ledgers written before 0.3.0 are not read, because their runs did not say what each may cost. "
    "Keep it as a record, and start a new one whose budgets exclude what the old one has spent"
)
_PATIENCE = 60.0  # seconds to wait for other processes that write
_TRANSIENT = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY}
Head = tuple[int, str]  # number and digest of the last entry


@dataclass(frozen=True)
class Row:
    """One entry as it is stored; ``sealed`` lies in a table of its own."""

    number: int
    at: str
    body: str
    digest: str
    sealed: str | None = None


class LostError(StorageError):
    """The line to the database broke."""


class UnsettledError(LostError):
    """It broke during a commit: whether that happened is known only after another look."""


class CommittedError(LedgerError):
    """An entry was committed, or may have been, and what has to follow failed."""


def refuse_format(found: int, last_version: Callable[[], Any]) -> None:
    """Refuse entries of another format; ``last_version`` asks who wrote them."""
    try:
        version = last_version()
    except Exception:  # its tables are of another format, too
        version = None
    hint = "use a newer privote" if found > FORMAT else _EARLIER
    facts = {"format": found, "version": version}
    check_written("the ledger", facts, FORMAT, LedgerError, hint)


class Store(ABC):
    """Two append-only tables, whatever the database: entries, and what is sealed with them.

    ``shared`` says whether others write to it who may keep an anchor of their own.
    """

    shared: ClassVar[bool]

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """Hold the only write lock until the block ends; commit durably, or undo everything."""

    @abstractmethod
    def run(self, statement: str, *values: Any) -> list[Any]:
        """Run one statement, and return all its rows."""

    @abstractmethod
    def reconnect(self) -> None:
        """Connect to the database again after a :class:`LostError`."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the database."""

    @abstractmethod
    def problems(self) -> list[str]:
        """Return what is wrong with the tables: the database's own check, and what is not ours."""

    def append(self, row: Row) -> None:
        """Add a row, inside a transaction."""
        values = (row.number, row.at, row.body, row.digest)
        self.run("INSERT INTO entries VALUES (?, ?, ?, ?)", *values)
        if row.sealed is not None:
            self.run("INSERT INTO sealed VALUES (?, ?)", row.number, row.sealed)

    def rows(self, after: int = 0, upto: int | None = None) -> list[Row]:
        """Return the rows after a number, up to another, in order, sealed parts included.

        Raises
        ------
        LedgerError
            If one cannot have been written by a ledger.
        """
        stored = self.run(
            "SELECT e.number, e.at, e.body, e.digest, s.body FROM entries e LEFT JOIN sealed s "
            "USING (number) WHERE e.number > ? AND e.number <= ? ORDER BY e.number",
            *(after, 2**63 - 1 if upto is None else upto),
        )
        for number, *texts, sealed in stored:
            if not all(isinstance(text, str) for text in (*texts, sealed or "")):
                raise LedgerError(f"entry {number!r:.20} holds something else than text")
        return [Row(*values) for values in stored]

    def head(self) -> Head:
        """Return number and digest of the last row; 0 and START if there is none."""
        last = self.run("SELECT number, digest FROM entries ORDER BY number DESC LIMIT 1")
        return (int(last[0][0]), str(last[0][1])) if last else (0, START)

    def copy_to(self, copy: sqlite3.Connection) -> None:
        """Copy all entries to an empty database of SQLite's."""
        for statement in (*TABLES.values(), *TRIGGERS.values(), f"PRAGMA user_version={FORMAT}"):
            copy.execute(statement)
        rows = self.rows()
        entries = [(row.number, row.at, row.body, row.digest) for row in rows]
        copy.executemany("INSERT INTO entries VALUES (?, ?, ?, ?)", entries)
        sealed = [(row.number, row.sealed) for row in rows if row.sealed is not None]
        copy.executemany("INSERT INTO sealed VALUES (?, ?)", sealed)
        copy.commit()

    def orphans(self) -> list[str]:
        """Return what is wrong with sealed rows that lost their entry."""
        query = "SELECT number FROM sealed WHERE number NOT IN (SELECT number FROM entries)"
        return [f"sealed row {number} belongs to no entry" for (number,) in self.run(query)]


# -- SQLite ----------------------------------------------------------------------------------------


class SQLiteStore(Store):
    """A ledger in one file, for its owner only: the sealed parts are in there, too.

    All that a process has of one file share this object, whose connection closes with its last
    user: closing any other descriptor of the file would drop the process's POSIX locks. So nothing
    else opens the path (:data:`privote.files.DATABASES`). Threads take turns.
    """

    shared = False
    _opening = threading.Lock()

    def __init__(self, path: Path, status: os.stat_result | None) -> None:
        self.path, self._status = path, status
        self._process, self._lock = os.getpid(), threading.RLock()
        self._connection: sqlite3.Connection | None = None

    @classmethod
    def open(cls, path: Path, *, create: bool = True, readonly: bool = False) -> SQLiteStore:
        """Return the store of a file; with ``create``, make one that is absent.

        With ``readonly`` nothing is changed: the file may lie on read-only media.
        """
        place = Path(os.path.realpath(path))
        try:
            with cls._opening:
                if create and not readonly:
                    with suppress(FileExistsError):
                        os.close(os.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
                status = os.stat(place)
                key = status.st_dev, status.st_ino
                store: SQLiteStore = DATABASES.get(key) or cls(path, status)
                DATABASES[key] = store
            with store._lock:
                store._check_in_place()
                if store._connection is None:
                    # A journal that is rolled back, and no write-ahead log: the file is whole by
                    # itself, also on read-only media. After a crash whoever may write rolls it
                    # back, also to read.
                    mode = "rw" if os.access(place, os.W_OK) else "ro"
                    how: dict[str, Any] = {"isolation_level": None, "check_same_thread": False}
                    uri = f"file:{quote(str(place))}?mode={mode}"
                    connection = sqlite3.connect(uri, uri=True, timeout=_PATIENCE, **how)
                    connection.executescript("PRAGMA synchronous=EXTRA; PRAGMA foreign_keys=ON")
                    store._connection = connection
                store._check_format(create=create and not readonly)
        except (OSError, sqlite3.Error) as error:
            raise _failed(path, "opened", error) from None
        return store

    @classmethod
    def loaded(cls, path: Path) -> SQLiteStore:
        """Return a copy of a file in memory, to read: SQLite opens nothing, and locks nothing."""
        store = cls(path, None)
        store._connection = sqlite3.connect(":memory:", isolation_level=None)
        # SQLite takes no bytes for a lack of memory.
        store._connection.deserialize(path.read_bytes() or b"empty")
        store._check_format(create=False)
        return store

    def _check_format(self, *, create: bool) -> None:
        """Refuse what is no ledger of this format; with ``create``, make one of nothing."""
        ask = "SELECT user_version, name FROM pragma_user_version LEFT JOIN sqlite_master"
        if create and self.run(ask) == [(0, None)]:
            with self.transaction():
                if self.run(ask) == [(0, None)]:  # another process may have been first
                    for statement in (*TABLES.values(), *TRIGGERS.values()):
                        self.run(statement)
                    self.run(f"PRAGMA user_version={FORMAT}")
        present = self.run(ask)
        number, names = int(present[0][0]), {name for _, name in present}
        if names == {None}:
            raise LedgerError(f"ledger {str(self.path)!r} does not exist: the file is empty")
        if number == 0 or "entries" not in names:
            raise LedgerError(f"{str(self.path)!r} is a database, but not a ledger")
        if number != FORMAT:
            version = "SELECT json_extract(body, '$.version') FROM entries ORDER BY number DESC"
            refuse_format(number, lambda: self.run(version)[0][0])

    def close(self) -> None:
        """Nothing to do: the connection closes with its last user."""

    def __del__(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def reconnect(self) -> None:
        """Nothing to do: a file's commit is never in doubt."""

    @property
    def _live(self) -> sqlite3.Connection:
        """The connection, for the process that opened it only."""
        if self._process != os.getpid():
            raise LedgerError(
                f"ledger {str(self.path)!r} was open when this process was forked: open it in a "
                "new process"
            )
        assert self._connection is not None
        return self._connection

    def _check_in_place(self) -> None:
        """Raise unless the path still names the file that was opened, under one name.

        What is written to one that was moved away or replaced is seen by nobody else, ever; and a
        journal has the name by which the file was opened.
        """
        assert self._status is not None
        if not stat.S_ISREG(self._status.st_mode):
            raise LedgerError(f"ledger {str(self.path)!r} must be a regular file")
        links, same = 1, False
        with suppress(OSError):
            now = os.stat(self.path)
            links, same = now.st_nlink, os.path.samestat(self._status, now)
        if links > 1:
            raise LedgerError(
                f"ledger {str(self.path)!r} has {links} hard links, so entries could be missing "
                "under one of the names: remove the other links, or copy the file"
            )
        if not same:
            raise LedgerError(
                f"ledger {str(self.path)!r} was moved or replaced while it was open: nothing was "
                "written; open it again"
            )

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the only write lock until the block ends; commit durably, or undo everything.

        The lock is taken at once, so what is read inside stays true until the commit.
        """
        with self._lock:
            connection = self._live
            if connection.in_transaction:
                raise LedgerError(f"ledger {str(self.path)!r} is being written by this thread")
            try:
                connection.execute("BEGIN IMMEDIATE")
                self._check_in_place()
                yield
                connection.execute("COMMIT")
                self._check_in_place()
            except sqlite3.Error as error:
                raise _failed(self.path, "written", error) from None
            finally:
                with suppress(sqlite3.ProgrammingError):  # closed meanwhile: nothing to undo
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")

    def run(self, statement: str, *values: Any) -> list[Any]:
        """Run one statement, and return all its rows."""
        with self._lock:
            connection = self._live
            try:
                return connection.execute(statement, values).fetchall()
            except (sqlite3.Error, UnicodeError) as error:
                raise _failed(self.path, "read or written", error) from None

    def problems(self) -> list[str]:
        """Return what SQLite's own check finds, what is not as it was made, and lost sealed rows.

        Somebody else's trigger can drop what is written.
        """
        made = {**TABLES, **TRIGGERS}
        present = dict(self.run("SELECT name, sql FROM sqlite_master"))
        present.pop("backup", None)
        changed = [name for name in made if present.get(name, made[name]) != made[name]]
        checked = [str(text) for (text,) in self.run("PRAGMA integrity_check")]
        return [
            *(text for text in checked if text != "ok"),
            *(f"{name!r} does not belong in a ledger" for name in present.keys() - made.keys()),
            *(f"{name!r} is not as it was made" for name in changed),
            *(f"{name!r} is gone" for name in made.keys() - present.keys()),
            *self.orphans(),
        ]


def _failed(path: Path, what: str, error: Exception) -> LedgerError:
    """Return what to raise: a full disk, or others who write for too long, break no ledger."""
    text = f"ledger {str(path)!r} cannot be {what}: {error}"
    code = vars(error).get("sqlite_errorcode", 0) & 0xFF  # without what SQLite adds to it
    return StorageError(text) if code in _TRANSIENT else LedgerError(text)


def _disown() -> None:
    """Have a forked child neither use nor close what its parent opened, even when it ends.

    Nor does it open such a file again: SQLite would take the parent's locks for the child's own.
    """
    SQLiteStore._opening = threading.Lock()
    for store in DATABASES.values():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(store))  # it stays for ever
        store._lock = threading.RLock()  # another thread may have it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)

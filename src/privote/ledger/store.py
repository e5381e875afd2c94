"""Where entries lie: the contract of a store, and the SQLite one.

A store appends rows inside one exclusive transaction and never changes one. It knows nothing of
budgets; that is :mod:`privote.ledger`.

SQLite files that must survive, a ledger or the journals of a coalition, are opened, checked, locked
and written in one way. A commit is on disk when it returns; another kind of file, or another
format, is refused before anything is changed; and a file that was put in the place of an open one
takes nothing.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sqlite3
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from .._version import check_written
from ..errors import LedgerError, StorageError
from ..files import DATABASES

START = "0" * 64
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


class Store(Protocol):
    """What a backend must do; one contract suite tests them all."""

    @property
    def shared(self) -> bool:
        """Whether others write to it who may keep an anchor of their own."""

    def transaction(self) -> AbstractContextManager[None]:
        """Hold the only write lock until the block ends; commit durably, or undo everything."""

    def append(self, row: Row) -> None:
        """Add a row; only inside a transaction."""

    def rows(self, after: int = 0, upto: int | None = None) -> list[Row]:
        """Return the rows after a number, up to another, in order, sealed parts included."""

    def head(self) -> Head:
        """Return number and digest of the last row; 0 and START if there is none."""

    def problems(self) -> list[str]:
        """Return what is wrong with the database: its own check, and what does not belong in it."""

    def reconnect(self) -> None:
        """Connect to the database again after a :class:`LostError`."""

    def close(self) -> None:
        """Close the connection."""


class MemoryStore:
    """Rows that last as long as this object: where no ledger is given, and to look at a backup."""

    shared = False

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._rows, self._lock, self._inside = list(rows), threading.RLock(), False

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the lock until the block ends; undo everything if it fails."""
        with self._lock:
            if self._inside:
                raise LedgerError("the ledger is being written by this thread")
            before = len(self._rows)
            try:
                self._inside = True
                yield
            except BaseException:
                del self._rows[before:]
                raise
            finally:
                self._inside = False

    def append(self, row: Row) -> None:
        """Add a row; only inside a transaction."""
        if not self._inside or row.number <= self.head()[0]:
            raise LedgerError(f"entry {row.number} is outside a transaction, or there already")
        self._rows.append(row)

    def rows(self, after: int = 0, upto: int | None = None) -> list[Row]:
        """Return the rows after a number, up to another, in order."""
        with self._lock:
            return [
                r for r in self._rows if after < r.number and (upto is None or r.number <= upto)
            ]

    def head(self) -> Head:
        """Return number and digest of the last row; 0 and START if there is none."""
        with self._lock:
            return (self._rows[-1].number, self._rows[-1].digest) if self._rows else (0, START)

    def problems(self) -> list[str]:
        """Nothing can be wrong with a list."""
        return []

    def reconnect(self) -> None:
        """Nothing to do: a commit to memory is never in doubt."""

    close = reconnect


class Tables(Protocol):
    """The two tables of a ledger in SQL, whatever the database: entries, and what is sealed."""

    @property
    def _inside(self) -> bool:
        """Whether its transaction is open."""

    def _run(self, statement: str, *values: Any) -> Any:
        """Run a statement in the transaction."""

    def _read(self, statement: str, *values: Any) -> list[Any]:
        """Return all rows of a query."""

    def append(self, row: Row) -> None:
        """Add a row; only inside a transaction."""
        if not self._inside:
            raise LedgerError("append outside a transaction")
        values = (row.number, row.at, row.body, row.digest)
        self._run("INSERT INTO entries VALUES (?, ?, ?, ?)", *values)
        if row.sealed is not None:
            self._run("INSERT INTO sealed VALUES (?, ?)", row.number, row.sealed)

    def rows(self, after: int = 0, upto: int | None = None) -> list[Row]:
        """Return the rows after a number, up to another, in order, sealed parts included."""
        stored = self._read(
            "SELECT e.number, e.at, e.body, e.digest, s.body FROM entries e LEFT JOIN sealed s "
            "USING (number) WHERE e.number > ? AND e.number <= ? ORDER BY e.number",
            *(after, 2**63 - 1 if upto is None else upto),
        )
        return [_row(values) for values in stored]

    def head(self) -> Head:
        """Return number and digest of the last row; 0 and START if there is none."""
        last = self._read("SELECT number, digest FROM entries ORDER BY number DESC LIMIT 1")
        return (int(last[0][0]), str(last[0][1])) if last else (0, START)

    def _orphans(self) -> list[str]:
        """Return what is wrong with sealed rows that lost their entry."""
        query = "SELECT number FROM sealed WHERE number NOT IN (SELECT number FROM entries)"
        return [f"sealed row {number} belongs to no entry" for (number,) in self._read(query)]


def _row(values: Sequence[Any]) -> Row:
    """Return an entry as it was stored; refuse one that cannot have been written by a ledger."""
    number, at, body, digest, sealed = values
    if [type(number), type(at), type(body), type(digest)] != [int, str, str, str]:
        raise LedgerError(f"entry {number!r:.20} holds something else than text")
    if not isinstance(sealed, str | None):
        raise LedgerError(f"the sealed part of entry {number} holds something else than text")
    return Row(number, at, body, digest, sealed)


# -- SQLite files ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Format:
    """What the files of one kind hold.

    Attributes
    ----------
    name
        What such a file is called, as in "a ledger".
    number
        Kept in the file. One of another number is refused, never continued.
    tables
        The statement that makes each table, by name.
    triggers
        The same for triggers.
    writer
        The query that says which version of privote wrote to such a file last.
    earlier
        What to say of a file of an earlier format.
    """

    name: str
    number: int
    tables: Mapping[str, str]
    triggers: Mapping[str, str] = field(default_factory=dict)
    writer: str = ""
    earlier: str

    def refuse(self, found: int, ask: Callable[[str], Any]) -> None:
        """Refuse a file with another number than this version writes.

        ``ask`` runs a query on it and returns the first row, or None.
        """
        try:
            version = (ask(self.writer) or [None])[0]
        except Exception:  # its tables are of another format, too
            version = None
        hint = "use a newer privote" if found > self.number else self.earlier
        facts = {"format": found, "version": version}
        check_written(f"the {self.name}", facts, self.number, LedgerError, hint)


class _Database:
    """A file, and this process's one connection to it, for one thread at a time.

    POSIX locks belong to a process and a file: closing any other descriptor of it would drop them,
    and another process could remove the log that this one goes on writing to. So the path is opened
    by nothing else (:data:`privote.files.DATABASES`). The connection closes with its last user.
    """

    opening = threading.Lock()

    def __init__(self, path: str = "", status: os.stat_result | None = None) -> None:
        self.path, self.status = path, status  # SQLite's log is named after the path
        self.process, self.lock = os.getpid(), threading.RLock()
        self.connection: sqlite3.Connection | None = None
        self.writes, self.writer = False, 0  # whose transaction is or was the last

    @classmethod
    def at(cls, path: Path, create: bool) -> _Database:
        """Return the one of a path; with ``create``, make a file that is absent, for its owner."""
        place = os.path.realpath(path)
        with cls.opening:
            with suppress(FileExistsError):
                if create:
                    os.close(os.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            status = os.stat(place)
            key = status.st_dev, status.st_ino
            database: _Database = DATABASES.get(key) or cls(place, status)
            DATABASES[key] = database
            return database

    def connect(self, address: str, *, writes: bool, **options: Any) -> sqlite3.Connection:
        """Connect, perhaps in the place of a connection that only reads."""
        options |= {"isolation_level": None, "check_same_thread": False}
        connection: sqlite3.Connection = sqlite3.connect(address, **options)
        self.close()
        self.connection, self.writes = connection, writes
        return connection

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    __del__ = close


def _disown() -> None:
    """Have a forked child neither use nor close what its parent opened, even when it ends.

    Nor does it open such a file again: SQLite would take the parent's locks for the child's own.
    """
    _Database.opening = threading.Lock()
    for database in DATABASES.values():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(database))  # it stays for ever
        database.lock, database.writes = threading.RLock(), True  # another thread may have it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)


class SQLiteFile:
    """One open file, with a write-ahead log.

    Threads may share it if they take turns: that is up to whoever holds it. All that a process has
    of one file share a connection, so they wait for each other's transactions.

    Parameters
    ----------
    path
        Where it lies; ``:memory:`` for one that lasts as long as this object.
    form
        What it must hold.
    create
        Make it if it is not there, readable by its owner only.
    readonly
        Change nothing and take no lock; it may then lie on read-only media.
    patience
        How many seconds to wait for other processes that write.
    content
        The bytes of such a file: then nothing is opened, and ``path`` is only its name.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        form: Format,
        *,
        create: bool = True,
        readonly: bool = False,
        patience: float = 60.0,
        content: bytes | None = None,
    ) -> None:
        self._path, self._form, self._readonly = Path(path), form, readonly
        self._database = _Database(":memory:")
        try:
            if content is not None:
                self._database.connect(":memory:", writes=True).deserialize(content)
            elif str(path) != ":memory:":
                self._database = _Database.at(self._path, create and not readonly)
                self._check_in_place()
            with self._database.lock:
                if readonly:
                    self._open_reader()
                else:
                    self._open(create, patience)
        except BaseException as error:
            self.close()
            if isinstance(error, sqlite3.Error | OSError | UnicodeError):
                raise self._failed("opened", error) from None
            raise

    def _wrong(self, rule: str) -> LedgerError:
        return LedgerError(f"{self._form.name} {str(self._path)!r} {rule}")

    def _failed(self, what: str, error: Exception) -> LedgerError:
        """Return what to raise: a full disk, or others who write for too long, break no ledger."""
        wrong = self._wrong(f"cannot be {what}: {error}")
        code = vars(error).get("sqlite_errorcode", 0) & 0xFF  # without what SQLite adds to it
        return StorageError(wrong.rule) if code in _TRANSIENT else wrong

    # -- opening -----------------------------------------------------------------------------------

    def _open(self, create: bool, patience: float) -> None:
        if not self._database.writes:
            self._database.connect(self._database.path, writes=True, timeout=patience)
        connection, number = self._connection, self._check(create)
        # SQLite itself does not wait for others who switch to a write-ahead log, too.
        end = time.monotonic() + patience
        while True:
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                break
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
                time.sleep(0.01)
        connection.executescript("PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON")
        if number == 0:
            with self.transaction():
                # Under the lock: another process may have been first.
                if connection.execute("PRAGMA user_version").fetchone() == (0,):
                    for statement in (*self._form.tables.values(), *self._form.triggers.values()):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA user_version={self._form.number}")

    def _open_reader(self) -> None:
        database = self._database
        if database.connection is None:
            try:
                uri = f"file:{quote(database.path)}?mode=ro"
                database.connect(uri, writes=False, uri=True).execute("PRAGMA user_version")
            except sqlite3.OperationalError:
                # Where nothing can be written, SQLite cannot look at a write-ahead log: then copy
                # both, while this process has no connection that would lose its locks.
                database.close()
                self._database = _Database()
                memory = self._database.connect(":memory:", writes=False)
                with tempfile.TemporaryDirectory(prefix="privote-") as folder:
                    for end in ("", "-wal"):
                        with suppress(FileNotFoundError):
                            shutil.copyfile(f"{database.path}{end}", f"{folder}/copy.db{end}")
                    with closing(sqlite3.connect(f"{folder}/copy.db")) as source:
                        source.backup(memory)
        self._check(create=False)

    @property
    def _connection(self) -> sqlite3.Connection:
        database = self._database
        if database.process != os.getpid():
            raise self._wrong("was open when this process was forked: open it in a new process")
        if database.connection is None:
            raise self._wrong("is closed")
        return database.connection

    @contextmanager
    def _turn(self) -> Iterator[sqlite3.Connection]:
        """Lend the connection to one thread at a time; inside a transaction to its writer only.

        A transaction that was begun meanwhile, and not committed, is undone.
        """
        with self._database.lock:
            connection = self._connection
            inside = connection.in_transaction
            if inside and self._database.writer != id(self):
                raise self._wrong("is being written by this thread")
            try:
                yield connection
            finally:
                with suppress(sqlite3.ProgrammingError):  # closed meanwhile: nothing to undo
                    if connection.in_transaction and not inside:
                        connection.execute("ROLLBACK")

    def _check(self, create: bool) -> int:
        """Refuse what is not ours before any change; return the number of its format."""
        with self._turn() as connection:
            run = connection.execute
            run("BEGIN")  # all from one moment: another process may be making it
            number = int(run("PRAGMA user_version").fetchone()[0])  # 0 is none yet
            listed = run("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            tables = {table for (table,) in listed if not table.startswith("sqlite_")}
            if not create and not tables:
                raise self._wrong("does not exist: the file is empty")
            if tables != (self._form.tables.keys() if number else set()):
                raise LedgerError(f"{str(self._path)!r} is a database, but not a {self._form.name}")
            if number not in (0, self._form.number):
                self._form.refuse(number, lambda query: run(query).fetchone())
            return number

    def close(self) -> None:
        """Let go of the file."""
        self._database = _Database()

    # -- reading and writing -----------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the only write lock until the block ends; commit durably, or undo everything.

        The lock is taken at once, so what is read inside stays true until the commit.
        """
        if self._readonly:
            raise self._wrong("is open for reading only")
        try:
            with self._turn() as connection:
                self._database.writer = id(self)
                connection.execute("BEGIN IMMEDIATE")
                self._check_in_place()
                yield
                connection.execute("COMMIT")
                self._check_in_place()
        except sqlite3.Error as error:
            raise self._failed("written", error) from None

    def _check_in_place(self) -> None:
        """Raise unless the file at the path is still the one that was opened, under one name.

        What is written to one that was moved away or replaced is seen by nobody else, ever. Nor is
        what is written under another name, until a checkpoint: SQLite's log has the name it was
        opened by.
        """
        status = self._database.status
        if status is None:
            return
        names, same = 1, False
        with suppress(OSError):
            now = [os.stat(path) for path in (self._path, self._database.path)]
            names, same = now[0].st_nlink, all(os.path.samestat(status, s) for s in now)
        if not stat.S_ISREG(status.st_mode):
            raise self._wrong("must be a regular file, not a pipe, a device or a folder")
        if names > 1:
            raise self._wrong(
                f"has {names} hard links, so entries could be missing under one of the names: "
                "remove the other links, or copy the file"
            )
        if not same:
            raise self._wrong(
                "was moved or replaced while it was open: nothing was written; open it again"
            )

    def run(self, statement: str, *values: Any) -> list[Any]:
        """Run one statement, and return all its rows."""
        try:
            with self._turn() as connection:
                return list(connection.execute(statement, values))
        except (sqlite3.Error, UnicodeError) as error:
            raise self._failed("read or written", error) from None

    def content(self) -> bytes:
        """Return the bytes of one in memory, as a file would hold them."""
        content: bytes = self._connection.serialize()
        return content

    def foreign(self) -> list[str]:
        """Return what SQLite's own check finds, and what is not as this format made it."""
        made = {**self._form.tables, **self._form.triggers}
        present = dict(self.run("SELECT name, sql FROM sqlite_master"))
        checked = [str(text) for (text,) in self.run("PRAGMA integrity_check")]
        return [
            *(text for text in checked if text != "ok"),
            # Somebody else's trigger can drop what is written.
            *(f"{n!r} does not belong in a {self._form.name}" for n in present if n not in made),
            *(
                f"{n!r} is not as it was made"
                for n in present
                if made.get(n) not in (None, present[n])
            ),
            *(f"{n!r} is gone" for n in made if n not in present),
        ]


# -- the ledger in SQLite --------------------------------------------------------------------------

FORMAT = Format(
    name="ledger",
    number=4,  # of what entries say, too
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
    earlier="ledgers written before 0.3.0 are not read, because their runs did not say what each "
    "may cost. Keep it as a record, and start a new one whose budgets exclude what the old one "
    "has spent",
)


class SQLiteStore(SQLiteFile, Tables):
    """A ledger in one file, for its owner only: the sealed parts are in there, too."""

    shared = False

    def __init__(self, path: str | os.PathLike[str], form: Format = FORMAT, **options: Any) -> None:
        super().__init__(path, form, **options)

    def reconnect(self) -> None:
        """Nothing to do: a file's commit is never in doubt."""

    @property
    def _inside(self) -> bool:
        return self._connection.in_transaction and self._database.writer == id(self)

    _run = _read = SQLiteFile.run

    def problems(self) -> list[str]:
        """Return what SQLite's own check finds, what does not belong, and lost sealed rows."""
        try:
            return self.foreign() + self._orphans()
        except LedgerError as error:
            return [str(error)]

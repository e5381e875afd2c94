"""SQLite files that must survive: a ledger, the journals of a coalition.

One way to open, check, lock and write them. A commit is on disk when it returns; another kind of
file, or another format, is refused before anything is changed; and a file that was put in the place
of an open one takes nothing.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .._version import check_written
from ..errors import LedgerError


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

    def check(self, found: int, ask: Callable[[str], Any]) -> None:
        """Refuse a file with another number than this version writes; 0 is none yet.

        ``ask`` runs a query on it and returns the first row, or None.
        """
        if found not in (0, self.number):
            try:
                version = (ask(self.writer) or [None])[0]
            except Exception:  # its tables are of another format, too
                version = None
            hint = "use a newer privote" if found > self.number else self.earlier
            facts = {"format": found, "version": version}
            check_written(f"the {self.name}", facts, self.number, LedgerError, hint)


class SQLiteFile:
    """One open file, with a write-ahead log.

    Threads may share it if they take turns: that is up to whoever holds it.

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
        How many seconds to wait for others who write.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        form: Format,
        *,
        create: bool = True,
        readonly: bool = False,
        patience: float = 60.0,
    ) -> None:
        self._path, self._form = Path(path), form
        self._opened: os.stat_result | None = None  # the file that was opened, to know it again
        self._held = ExitStack()
        try:
            if readonly:
                self._open_reader()
            else:
                self._open(create, patience)
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise self._failed("opened", error) from None
        except BaseException:
            self.close()
            raise

    def _failed(self, what: str, error: Exception) -> LedgerError:
        return LedgerError(f"{self._form.name} {str(self._path)!r} cannot be {what}: {error}")

    # -- opening -----------------------------------------------------------------------------------

    def _open(self, create: bool, patience: float) -> None:
        if not create and not self._path.exists():
            raise LedgerError(f"{self._form.name} {str(self._path)!r} does not exist")
        if str(self._path) != ":memory:":
            at_once = getattr(os, "O_NONBLOCK", 0)  # a named pipe would wait for ever
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | at_once, 0o600)
            self._opened = os.fstat(file)
            os.close(file)
            self._check_in_place()
        self._connect(str(self._path), timeout=patience)
        connection, found = self._connection, self._check(create)
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
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        if found == 0:
            with self.transaction():
                # Under the lock: another process may have been first.
                if connection.execute("PRAGMA user_version").fetchone() == (0,):
                    for statement in (*self._form.tables.values(), *self._form.triggers.values()):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA user_version={self._form.number}")

    def _open_reader(self) -> None:
        self._opened = os.stat(self._path)
        self._check_in_place()
        try:
            self._connect(f"file:{quote(str(self._path.absolute()))}?mode=ro", uri=True)
            self._check(create=False)
        except sqlite3.OperationalError:
            # Where nothing can be written, SQLite cannot look at a write-ahead log: then copy both.
            folder = self._held.enter_context(tempfile.TemporaryDirectory(prefix="privote-"))
            copy = Path(folder) / "copy.db"
            for end in ("", "-wal"):
                if Path(f"{self._path}{end}").exists():
                    shutil.copyfile(f"{self._path}{end}", f"{copy}{end}")
            self._connect(str(copy))
            self._check(create=False)

    def _connect(self, address: str, **options: Any) -> None:
        self._connection = sqlite3.connect(
            address, isolation_level=None, check_same_thread=False, **options
        )
        self._held.callback(self._connection.close)

    def _check(self, create: bool) -> int:
        """Refuse what is not ours before any change; return the number of its format."""
        run = self._connection.execute
        run("BEGIN")  # both from one moment: another process may be making it
        found = int(run("PRAGMA user_version").fetchone()[0])
        listed = run("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        run("COMMIT")
        there, path, name = {table for (table,) in listed}, str(self._path), self._form.name
        if not create and not there:
            raise LedgerError(f"{name} {path!r} does not exist: the file is empty")
        if (found == 0 and there) or (found > 0 and not self._form.tables.keys() <= there):
            raise LedgerError(f"{path!r} is a database, but not a {name}")
        self._form.check(found, lambda query: run(query).fetchone())
        return found

    def close(self) -> None:
        """Let go of the file."""
        self._held.close()

    # -- reading and writing -----------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the only write lock until the block ends; commit durably, or undo everything.

        The lock is taken at once, so what is read inside stays true until the commit.
        """
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._check_in_place()
            yield
            self._connection.execute("COMMIT")
            self._check_in_place()
        except BaseException as error:
            with suppress(sqlite3.ProgrammingError):  # closed meanwhile: nothing to undo
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise self._failed("written", error) from None
            raise

    def _check_in_place(self) -> None:
        """Raise unless the file at the path is still the one that was opened, under one name.

        What is written to one that was moved away or replaced is seen by nobody else, ever. Nor is
        what is written under another name, until a checkpoint: SQLite's log has the name it was
        opened by.
        """
        if self._opened is None:
            return
        names, same = 1, False
        with suppress(OSError):
            now = os.stat(self._path)
            names, same = now.st_nlink, os.path.samestat(self._opened, now)
        if not stat.S_ISREG(self._opened.st_mode):
            raise LedgerError(
                f"{self._form.name} {str(self._path)!r} must be a regular file, and is a pipe, a "
                "device or a folder"
            )
        if names > 1:
            raise LedgerError(
                f"{self._form.name} {str(self._path)!r} has {names} names (hard links), and what "
                "is written under one is missing under the other: remove the others, or copy it"
            )
        if not same:
            raise LedgerError(
                f"{self._form.name} {str(self._path)!r} was moved or replaced while it was open: "
                "nothing is written to it; open it again"
            )

    def run(self, statement: str, *values: Any) -> list[Any]:
        """Run one statement, and return all its rows."""
        try:
            return list(self._connection.execute(statement, values))
        except sqlite3.Error as error:
            what = "read" if statement.startswith("SELECT") else "written"
            raise self._failed(what, error) from None

"""One contract for every store: a list, SQLite, and PostgreSQL where its binaries are found."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.attacks.conftest import accepted, in_a_child
from tests.refusals import refused

from privote.errors import InputError, LedgerError
from privote.ledger.backup import read_backup
from privote.ledger.postgres import PostgresStore
from privote.ledger.store import START, Format, MemoryStore, Row, SQLiteFile, SQLiteStore, Store

Opener = Callable[[], Store]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Return what opens one store again and again; of PostgreSQL also with odd defaults."""
    if request.param == "memory":
        store = MemoryStore()
        return lambda: store
    if request.param == "sqlite":
        return lambda: SQLiteStore(tmp_path / "store.db", patience=5.0)
    address = request.getfixturevalue("database")
    for default in request.param.split(": ")[1:]:
        name = address.rpartition("/")[2]
        request.getfixturevalue("server").execute(f"ALTER DATABASE {name} SET {default}")
    return lambda: PostgresStore(address)


def row(number: int, sealed: str | None = None) -> Row:
    return Row(number, f"at {number}", f'{{"n":{number}}}', f"digest {number}", sealed)


def test_rows_come_back_in_order_with_what_is_sealed(opener: Opener) -> None:
    store = opener()
    assert store.head() == (0, START)
    with store.transaction():
        for number in range(1, 6):
            store.append(row(number, "sealed" if number % 2 else None))
    assert store.rows() == [row(n, "sealed" if n % 2 else None) for n in range(1, 6)]
    assert [r.number for r in store.rows(after=3)] == [4, 5]
    assert store.head() == (5, "digest 5")
    assert store.problems() == []
    store.close()
    assert len(opener().rows()) == 5


def test_a_row_is_appended_once_and_by_a_transaction_that_succeeds(opener: Opener) -> None:
    store = opener()

    def break_off() -> None:
        with store.transaction():
            store.append(row(1))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        break_off()
    with refused(None, LedgerError):
        store.append(row(1))
    assert store.rows() == []
    with store.transaction():
        store.append(row(1))
    with pytest.raises(LedgerError), store.transaction():
        store.append(row(1))  # a number is given once
    assert store.rows() == [row(1)]


ISOLATION = "postgres: default_transaction_isolation = "


@pytest.mark.parametrize(
    "opener",
    [
        "memory",
        "sqlite",
        "postgres",
        ISOLATION + "'repeatable read': synchronous_commit = off",
        ISOLATION + "'serializable': synchronous_commit = local",
        ISOLATION + "'serializable': synchronous_commit = remote_apply",
    ],
    indirect=True,
)
def test_one_writer_at_a_time_whatever_the_defaults(
    opener: Opener, request: pytest.FixtureRequest
) -> None:
    first, second = opener(), opener()

    def other() -> tuple[int, str]:
        with second.transaction():
            return second.head()

    with ThreadPoolExecutor() as pool:
        with first.transaction():
            seen = pool.submit(other)
            with pytest.raises(TimeoutError):
                seen.result(0.5)
            first.append(row(1))
            if isinstance(first, PostgresStore):
                (commit,) = first._run("SHOW synchronous_commit").fetchone()
                assert commit == ("remote_apply" if "apply" in request.node.name else "on")
        assert seen.result(10) == (1, row(1).digest)  # it waited, and saw what was committed
    first.close()
    second.close()


# -- a file of SQLite ------------------------------------------------------------------------------

FORM = Format(
    name="list",
    number=2,
    tables={"things": "CREATE TABLE things (name TEXT PRIMARY KEY)"},
    earlier="which had no names",
)


def add(file: SQLiteFile, name: str) -> None:
    with file.transaction():
        file.run("INSERT INTO things VALUES (?)", name)


def test_what_is_written_is_there_for_the_next_one(path: Path) -> None:
    file = SQLiteFile(path, FORM)
    add(file, "a")
    assert path.stat().st_mode & 0o077 == 0
    assert file.run("PRAGMA synchronous") == [(2,)], "a commit is on disk when it returns"
    assert SQLiteFile(path, FORM).run("SELECT name FROM things") == [("a",)]
    assert SQLiteFile(path, FORM, readonly=True).run("SELECT name FROM things") == [("a",)]
    file.close()
    for use in (lambda: add(file, "a"), lambda: file.run("SELECT name FROM things")):
        with refused(None, LedgerError):
            use()


@pytest.mark.parametrize("readonly", [True, False])
def test_what_is_not_ours_is_refused_and_left_as_it_is(path: Path, readonly: bool) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE others (name TEXT)")
    before = path.read_bytes()
    with refused(None, LedgerError):
        SQLiteFile(path, FORM, readonly=readonly)
    assert path.read_bytes() == before
    path.write_text("not a database, but long enough to look like one" * 30)
    with pytest.raises(LedgerError, match=r"list '.*' cannot be opened"):
        SQLiteFile(path, FORM, readonly=readonly)


@pytest.mark.parametrize("readonly", [True, False])
def test_an_earlier_format_is_refused_with_what_it_lacks(path: Path, readonly: bool) -> None:
    SQLiteFile(path, FORM).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version=1")
    with pytest.raises(LedgerError, match=r"has format 1, .*: which had no names"):
        SQLiteFile(path, FORM, readonly=readonly)


@pytest.mark.parametrize("how", ["removed", "replaced", "replaced meanwhile"])
def test_a_file_that_was_swapped_takes_nothing(path: Path, how: str) -> None:
    file = SQLiteFile(path, FORM)
    SQLiteFile(path.with_name("other.db"), FORM).close()

    def swap() -> None:
        if how == "removed":
            path.unlink()
        else:
            os.replace(path.with_name("other.db"), path)

    if how == "replaced meanwhile":
        with refused(None, LedgerError), file.transaction():
            swap()
    else:
        swap()
    for _ in range(2):
        with refused(None, LedgerError):
            add(file, "a")
    assert file.run("SELECT name FROM things") == []


# -- POSIX locks belong to a process ---------------------------------------------------------------

ANOTHER = (  # a process that runs a statement and closes: the last one to do so removes the log
    "import contextlib, sqlite3, sys\n"
    "with contextlib.closing(sqlite3.connect(sys.argv[1])) as connection, connection:\n"
    "    print([name for (name,) in connection.execute(sys.argv[2])])"
)


def in_another_process(path: Path, statement: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", ANOTHER, str(path), statement],
        capture_output=True,
        check=True,
        text=True,
        timeout=30,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("how", ["a writer", "a reader", "another format", "as a file"])
def test_a_second_look_at_an_open_file_keeps_its_locks(path: Path, how: str) -> None:
    """Without them another process removes the log that this one goes on writing to."""
    file = SQLiteFile(path, FORM)
    add(file, "first")
    if how == "as a file":
        with refused("backup", InputError):
            read_backup(path)
    elif how == "another format":
        with refused(None, LedgerError):
            SQLiteStore(path)
    else:
        SQLiteFile(path, FORM, readonly=how == "a reader").close()
    in_another_process(path, "INSERT INTO things VALUES ('theirs')")
    add(file, "ours")
    found = in_another_process(path, "SELECT name FROM things ORDER BY rowid")
    assert found == "['first', 'theirs', 'ours']"


def test_whoever_writes_is_read_by_others_of_the_process_when_it_is_done(path: Path) -> None:
    SQLiteFile(path, FORM).close()
    reader, writer = SQLiteFile(path, FORM, readonly=True), SQLiteFile(path, FORM)
    with refused(None, LedgerError):
        add(reader, "a")
    with writer.transaction():
        writer.run("INSERT INTO things VALUES ('a')")
        for use in (
            lambda: reader.run("SELECT name FROM things"),
            lambda: add(SQLiteFile(path, FORM), "b"),
        ):
            with refused(None, LedgerError):
                use()
    writer.close()
    assert reader.run("SELECT name FROM things") == [("a",)]
    with SQLiteFile(path, FORM).transaction():
        pass
    reader.close()
    assert not path.with_name("ledger.db-wal").exists()  # the last one closed the file


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_leaves_an_open_file_alone(path: Path) -> None:
    """SQLite would take the parent's locks for its own, and the parent's close remove its log."""
    file = SQLiteFile(path, FORM)
    add(file, "first")

    def child() -> int:
        found = [
            accepted(LedgerError, add, file, "a"),
            accepted(LedgerError, SQLiteFile, path, FORM),
        ]
        file.close()
        return sum(found)

    assert in_a_child(child) == 0
    in_another_process(path, "INSERT INTO things VALUES ('theirs')")
    add(file, "ours")
    assert in_another_process(path, "SELECT count(*) FROM things") == "[3]"

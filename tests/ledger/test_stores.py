"""One contract for every store: SQLite, and PostgreSQL where its binaries are found."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.refusals import refused

from privote.errors import LedgerError
from privote.ledger.store import START, Format, Row, SQLiteFile, SQLiteStore, Store

Opener = Callable[[], Store]


@pytest.fixture(params=["sqlite", "postgres"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    if request.param == "sqlite":
        return lambda: SQLiteStore(tmp_path / "store.db", patience=5.0)
    from privote.ledger.postgres import PostgresStore

    address = request.getfixturevalue("database")
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


def test_failed_transaction_leaves_nothing(opener: Opener) -> None:
    store = opener()

    def break_off() -> None:
        with store.transaction():
            store.append(row(1))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        break_off()
    assert store.rows() == []
    with store.transaction():
        store.append(row(1))
    with pytest.raises(LedgerError), store.transaction():
        store.append(row(1))  # a number is given once
    assert store.rows() == [row(1)]


def test_append_needs_a_transaction(opener: Opener) -> None:
    store = opener()
    with refused(None, LedgerError):
        store.append(row(1))


def test_one_writer_at_a_time(opener: Opener) -> None:
    first, seen = opener(), []
    inside, done = threading.Event(), threading.Event()

    def other() -> None:
        second = opener()
        inside.wait(10)
        with second.transaction():
            seen.append(len(second.rows()))
        second.close()
        done.set()

    runner = threading.Thread(target=other)
    runner.start()
    with first.transaction():
        inside.set()
        assert not done.wait(0.3)
        first.append(row(1))
    assert done.wait(10)
    runner.join()
    assert seen == [1]  # it waited, and saw what was committed


def test_backup_holds_everything(opener: Opener, tmp_path: Path) -> None:
    store = opener()
    with store.transaction():
        store.append(row(1, "sealed"))
    packed = SQLiteStore.of(store.rows()).packed()
    assert SQLiteStore.unpacked(packed).rows() == store.rows()
    (tmp_path / "copy.db").write_bytes(packed)
    assert SQLiteStore(tmp_path / "copy.db").rows() == store.rows()


@pytest.mark.parametrize(
    ("default", "commit"),
    [("repeatable read", "off"), ("serializable", "local"), ("serializable", "remote_apply")],
)
def test_a_databases_defaults_do_not_matter(database: str, default: str, commit: str) -> None:
    import psycopg

    from privote.ledger.postgres import PostgresStore

    name = database.rsplit("/", 1)[-1]
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{default}'")
        connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = {commit}")
    first, second = PostgresStore(database), PostgresStore(database)
    seen, waiting = [], threading.Event()

    def other() -> None:
        waiting.set()
        with second.transaction():
            seen.append(second.head())
            seen.append(second._run("SHOW synchronous_commit").fetchone()[0])

    runner = threading.Thread(target=other)
    with first.transaction():
        runner.start()
        waiting.wait(10)
        runner.join(0.5)  # it waits for the lock, and must not have looked before
        first.append(row(1))
    runner.join(10)
    first.close()
    second.close()
    assert seen == [(1, row(1).digest), "remote_apply" if commit == "remote_apply" else "on"]


# -- a file of SQLite ------------------------------------------------------------------------------

FORM = Format(
    name="list",
    number=2,
    tables={"things": "CREATE TABLE things (name TEXT PRIMARY KEY)"},
    earlier="which had no names",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "list.db"


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


def test_a_file_that_was_closed_says_so(path: Path) -> None:
    file = SQLiteFile(path, FORM)
    file.close()
    with refused(None, LedgerError):
        add(file, "a")
    with refused(None, LedgerError):
        file.run("SELECT name FROM things")


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


@pytest.mark.parametrize(
    ("number", "said"), [(1, "has format 1, .*: which had no names"), (3, "newer privote")]
)
def test_another_format_is_refused_in_one_sentence(path: Path, number: int, said: str) -> None:
    SQLiteFile(path, FORM).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version={number}")
    for readonly in (True, False):
        with pytest.raises(LedgerError, match=said):
            SQLiteFile(path, FORM, readonly=readonly)


@pytest.mark.parametrize("how", ["removed", "replaced", "replaced meanwhile"])
def test_a_file_that_was_swapped_takes_nothing(path: Path, how: str) -> None:
    file = SQLiteFile(path, FORM)
    other = SQLiteFile(path.with_name("other.db"), FORM)
    other.close()

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

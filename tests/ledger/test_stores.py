"""One contract for every store: SQLite, and PostgreSQL where its binaries are found."""

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
from privote.ledger.store import START, Row, SQLiteStore, Store

Opener = Callable[[], Store]
ISOLATION = "postgres: default_transaction_isolation = "


@pytest.fixture(params=["sqlite", "postgres"])
def opener(request: pytest.FixtureRequest, path: Path) -> Opener:
    """Return what opens one store again and again; of PostgreSQL also with odd defaults."""
    if request.param == "sqlite":
        return lambda: SQLiteStore.open(path)
    address = request.getfixturevalue("database")
    for default in request.param.split(": ")[1:]:
        name = address.rpartition("/")[2]
        request.getfixturevalue("server").execute(f"ALTER DATABASE {name} SET {default}")
    return lambda: PostgresStore(address)


def row(number: int, sealed: str | None = None) -> Row:
    return Row(number, f"at {number}", f'{{"n":{number}}}', f"digest {number}", sealed)


def add(store: Store, number: int, error: Exception | None = None) -> None:
    with store.transaction():
        store.append(row(number))
        if error is not None:
            raise error


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
    with pytest.raises(RuntimeError):
        add(store, 1, RuntimeError())
    assert store.rows() == []
    add(store, 1)
    with refused(None, LedgerError):
        add(store, 1)  # a number is given once
    assert store.rows() == [row(1)]


@pytest.mark.parametrize(
    "opener",
    [
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
                ((commit,),) = first.run("SHOW synchronous_commit")
                assert commit == ("remote_apply" if "apply" in request.node.name else "on")
        assert seen.result(10) == (1, row(1).digest)  # it waited, and saw what was committed
    first.close()
    second.close()


# -- a file of SQLite ------------------------------------------------------------------------------


@pytest.mark.parametrize("readonly", [True, False])
def test_what_is_not_ours_is_refused_and_left_as_it_is(path: Path, readonly: bool) -> None:
    add(SQLiteStore.open(path), 1)
    assert path.stat().st_mode & 0o077 == 0
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version=1")
    with pytest.raises(LedgerError, match=r"has format 1, .* before 0.3.0"):
        SQLiteStore.open(path, readonly=readonly)
    other = path.with_name("other.db")
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE others (name TEXT)")
    before = other.read_bytes()
    with refused(None, LedgerError):
        SQLiteStore.open(other, readonly=readonly)
    assert other.read_bytes() == before
    other.write_text("not a database, but long enough to look like one" * 30)
    with refused(None, LedgerError):
        SQLiteStore.open(other, readonly=readonly)


@pytest.mark.parametrize("how", ["removed", "replaced", "replaced meanwhile"])
def test_a_file_that_was_swapped_takes_nothing(path: Path, how: str) -> None:
    store, other = SQLiteStore.open(path), path.with_name("other.db")
    SQLiteStore.open(other)

    def swap() -> None:
        path.unlink() if how == "removed" else os.replace(other, path)

    if how == "replaced meanwhile":
        with refused(None, LedgerError), store.transaction():
            swap()
    else:
        swap()
    for _ in range(2):
        with refused(None, LedgerError):
            add(store, 1)
    assert store.rows() == []


# -- ACCOUNTING 20, condition 8: one connection for a file and process, whose locks it keeps -------

ANOTHER = (  # another process that writes, and closes
    "import contextlib, sqlite3, sys\n"
    "with contextlib.closing(sqlite3.connect(sys.argv[1], timeout=0)) as connection, connection:\n"
    "    connection.execute('INSERT INTO entries VALUES (?, 1, 2, 3)', (int(sys.argv[2]),))"
)


def another_writes(path: Path, number: int) -> bool:
    """Return whether another process gets the lock, and adds an entry."""
    command = [sys.executable, "-c", ANOTHER, str(path), str(number)]
    return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0


@pytest.mark.parametrize("how", ["a writer", "a reader", "as a file"])
def test_condition_8_a_second_look_at_an_open_file_keeps_its_locks(path: Path, how: str) -> None:
    store = SQLiteStore.open(path)
    add(store, 1)
    with store.transaction():
        if how == "as a file":
            with refused("backup", InputError):
                read_backup(path)
        else:
            again = SQLiteStore.open(path, readonly=how == "a reader")
            assert again is store
            del again
        assert not another_writes(path, 2)
    assert another_writes(path, 2)
    add(store, 3)
    assert [row.number for row in store.rows()] == [1, 2, 3]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_condition_8_a_forked_process_leaves_an_open_file_alone(path: Path) -> None:
    store = SQLiteStore.open(path)
    add(store, 1)

    def child() -> int:
        jobs = (lambda: add(store, 2), store.rows, lambda: SQLiteStore.open(path))
        return sum(accepted(LedgerError, job) for job in jobs)

    with store.transaction():
        assert in_a_child(child) == 0
        assert not another_writes(path, 2)
    assert another_writes(path, 2)
    assert len(store.rows()) == 2

"""One contract for every store: SQLite, and PostgreSQL where its binaries are found."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv
from privote.errors import LedgerError
from privote.ledger.store import START, Row, SQLiteStore, Store

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


def test_a_whole_ledger_in_postgresql(database: str, tmp_path: Path) -> None:
    votes = np.random.default_rng(0).random((30, 10, 3)) < 0.2
    every = {"mechanism": pv.BinaryVoting(sigma=4.0), "epsilon": 8.0, "delta": 1e-5}
    every |= {"guarantee": "allowance"}
    for _ in range(2):
        ledger = pv.Ledger.open(database, beside=tmp_path / "site")
        release = pv.label(votes, ledger=ledger, **every)
        assert ledger.verify().ok
        ledger.close()
    np.testing.assert_array_equal(
        release.sealed.spent,
        pv.label(np.concatenate([votes] * 2), **every).sealed.spent,
    )
    with refused("beside"):
        pv.Ledger.open(database)


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

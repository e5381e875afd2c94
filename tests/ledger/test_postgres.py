"""Several guardians, one budget: real servers, killed clients, broken lines, a failover."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.ledger.conftest import Server, enter, entries, free_port, own_files, started
from tests.refusals import refused

import privote as pv
from privote.ledger import Location
from privote.ledger.postgres import PostgresStore
from privote.ledger.store import CommittedError, LostError, Row

SPAWN = multiprocessing.get_context("spawn")


def test_an_anchor_of_ones_own_finds_ones_own_charges_gone(place: Location) -> None:
    import psycopg

    enter(place)
    second = own_files(place, "second")
    for _ in range(2):  # the one that stood still accepts what the other added
        enter(second)
    assert entries(place) == 3
    with psycopg.connect(place.address) as connection:
        connection.execute("ALTER TABLE entries DISABLE TRIGGER entries_stay")
        connection.execute("DELETE FROM sealed WHERE number = (SELECT max(number) FROM entries)")
        connection.execute("DELETE FROM entries WHERE number = (SELECT max(number) FROM entries)")
        connection.execute("ALTER TABLE entries ENABLE TRIGGER entries_stay")
    with pytest.raises(pv.LedgerError, match="rolled back"):
        pv.Ledger.open(second)


# -- a killed client -------------------------------------------------------------------------------


def _die_inside(place: Location, moment: str) -> None:
    ledger = pv.Ledger.open(place)
    store: Any = ledger._store
    run = store._execute

    def watched(statement: str, *values: Any) -> Any:
        if moment == "before COMMIT" and statement == "COMMIT" and store.head()[0] > 1:
            os.kill(os.getpid(), signal.SIGKILL)
        done = run(statement, *values)
        if moment == "after INSERT" and statement.startswith("INSERT INTO entries"):
            os.kill(os.getpid(), signal.SIGKILL)
        if moment == "after COMMIT" and statement == "COMMIT" and store.head()[0] > 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    store._execute = watched
    enter(ledger)


@pytest.mark.parametrize("moment", ["after INSERT", "before COMMIT", "after COMMIT"])
def test_a_client_killed_in_a_charge_frees_the_lock_and_hides_nothing(
    place: Location, moment: str
) -> None:
    enter(place)
    child = SPAWN.Process(target=_die_inside, args=(place, moment))
    child.start()
    child.join(120)
    assert child.exitcode == -signal.SIGKILL
    began = time.monotonic()
    enter(place)
    assert time.monotonic() - began < 30  # it did not wait for the dead until patience ended
    assert entries(place) == (3 if moment == "after COMMIT" else 2)


def test_who_waits_too_long_for_the_lock_is_told(database: str) -> None:
    holder, waiter = PostgresStore(database), PostgresStore(database, patience=1)
    with (
        holder.transaction(),
        refused(None, pv.errors.StorageError),
        waiter.transaction(),
    ):
        pass
    with waiter.transaction():
        waiter.append(Row(1, "at", "{}", "digest"))
    for store in (holder, waiter):
        store.close()


# -- a broken line ---------------------------------------------------------------------------------


def hang_up(server: Server, store: Any) -> None:
    """Let the server end the session, as a line that broke would."""
    session = f"FROM pg_stat_activity WHERE pid = {store._connection.info.backend_pid}"
    server.execute(f"SELECT pg_terminate_backend(pid) {session}")
    server.wait_for(f"SELECT count(*) {session}", 0)


@pytest.mark.parametrize(
    ("lost", "reachable", "error", "entered"),
    [
        ("before", True, None, 2),  # between two charges: a new line is made
        ("answer", True, None, 2),  # read back: it is there
        ("question", True, LostError, 1),
        # It was charged, and nobody can look: budget is wasted, never privacy.
        ("answer", False, CommittedError, 2),
    ],
)
def test_a_charge_whose_line_breaks(
    server: Server, place: Location, lost: str, reachable: bool, error: Any, entered: int
) -> None:
    ledger = pv.Ledger.open(place)
    enter(ledger)
    store: Any = ledger._store
    run, patience, address = store._execute, store._patience, store._address
    statements: list[str] = []

    def cut(statement: str, *values: Any) -> Any:
        statements.append(statement)
        if statement != "COMMIT" or not any("INSERT INTO entries" in each for each in statements):
            return run(statement, *values)
        store._execute = run
        if lost == "answer":
            run("COMMIT")
        hang_up(server, store)
        if not reachable:
            store._patience, store._address = 1, {**address, "port": free_port()}
        return run("COMMIT")

    if lost == "before":
        hang_up(server, store)
    else:
        store._execute = cut
    if error is None:
        enter(ledger)
    else:
        with refused(None, error):
            enter(ledger)
    assert entries(place) == entered
    store._patience, store._address = patience, address
    enter(ledger)  # the same ledger goes on, on a new line
    assert entries(place) == entered + 1


# -- servers that forget, and servers that take over -----------------------------------------------


def test_a_server_that_does_not_write_to_disk_is_refused(
    server: Server, place: Location, tmp_path: Path
) -> None:
    server.set("fsync", "off")
    try:
        with pytest.raises(pv.LedgerError, match="fsync off"):
            pv.Ledger.open(place)
        assert list(tmp_path.iterdir()) == []
    finally:
        server.set("fsync", "on")


@pytest.mark.parametrize("said", ["host", "hostaddr", "environment", "service"])
def test_several_servers_of_which_none_waits_for_another_are_refused(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    hosts, ports = "127.0.0.1,127.0.0.1", f"{free_port()},{server.port}"
    address = "postgresql://privote@/postgres?"
    if said == "environment":
        monkeypatch.setenv("PGHOST", hosts)
        monkeypatch.setenv("PGPORT", ports)
    elif said == "service":
        known = tmp_path / "services"
        known.write_text(f"[ledger]\nhost={hosts}\nport={ports}\n")
        monkeypatch.setenv("PGSERVICEFILE", str(known))
        address += "service=ledger"
    else:
        address += f"{said}={hosts}&port={ports}"
    beside = tmp_path / "own" / "site"
    beside.parent.mkdir()
    with pytest.raises(pv.LedgerError, match="does not wait for a standby"):
        pv.Ledger.open(address, beside=beside)
    assert list(beside.parent.iterdir()) == []


@pytest.fixture
def pair() -> Iterator[tuple[Server, Server]]:
    """A server and a standby that has every charge before the commit returns."""
    with started() as primary, started(primary) as standby:
        primary.wait_for("SELECT count(*) FROM pg_stat_replication", 1)
        primary.set("synchronous_standby_names", "*")
        primary.wait_for("SELECT max(sync_state) FROM pg_stat_replication", "sync")
        yield primary, standby


def any_of(tmp_path: Path, *ports: int) -> Location:
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return Location.of(f"postgresql://privote@{hosts}/postgres", tmp_path / "site")


def test_charges_survive_a_failover(pair: tuple[Server, Server], tmp_path: Path) -> None:
    primary, standby = pair
    alone = any_of(tmp_path, standby.port)
    # Nobody is at the first address, and the second takes no writes.
    ledger = pv.Ledger.open(any_of(tmp_path, free_port(), standby.port, primary.port))
    enter(ledger)
    assert entries(alone) == 1  # a standby will do to look
    primary.stop()
    standby.execute("SELECT pg_promote()")
    standby.set("synchronous_standby_names", "")
    # The same guardian finds the new server, and refuses it as long as it has no standby itself.
    with pytest.raises(pv.LedgerError, match="does not wait for a standby"):
        enter(ledger)
    enter(alone)
    assert entries(alone) == 2


@pytest.mark.parametrize(
    ("least", "ends"),
    [
        ("notice", ["pg_cancel_backend"]),
        # A role may have been told not to hear of warnings: this one must be heard.
        ("error", ["pg_cancel_backend"]),
        # The entry is there once the line is back, and the standby has not heard of it.
        ("notice", ["pg_terminate_backend", "pg_cancel_backend"]),
    ],
)
def test_a_wait_for_the_standby_that_somebody_ended_releases_nothing(
    pair: tuple[Server, Server], tmp_path: Path, least: str, ends: list[str]
) -> None:
    primary, standby = pair
    primary.execute(f"ALTER ROLE privote SET client_min_messages = {least}")
    ledger = pv.Ledger.open(any_of(tmp_path, primary.port, standby.port))
    enter(ledger)
    standby.stop()
    session, waiting = 0, "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    charge = ThreadPoolExecutor().submit(enter, ledger)
    for end in ends:
        primary.wait_for(f"SELECT count(*) {waiting} AND pid <> {session}", 1)
        assert not charge.done()  # it waits; and again on the next line
        session = primary.execute(f"SELECT pid {waiting}")[0]
        primary.execute(f"SELECT {end}({session})")
    with pytest.raises(pv.LedgerError, match=r"canceling wait .* Nothing is released"):
        charge.result(60)

"""Several guardians, one budget: real servers, killed clients, broken lines, a failover."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import REPOSITORY
from tests.ledger.conftest import Server, free_port

import privote as pv
from privote.ledger.postgres import PostgresStore
from privote.ledger.store import Row

VOTES = np.random.default_rng(0).random((1, 50, 3)) < 0.2
EVERY: dict[str, Any] = {"mechanism": pv.BinaryVoting(sigma=12.0), "epsilon": 3.0, "delta": 1e-5}
EVERY |= {"guarantee": "worst-case", "queries": 1, "dataset": "ward"}
SPAWN = multiprocessing.get_context("spawn")


def charged(address: str, beside: Path) -> int:
    """Return how many queries the ledger has charged, and check that it is whole."""
    with closing(pv.Ledger.open(address, beside=beside, readonly=True)) as ledger:
        found = ledger.verify()
        assert found.ok, found.problems
        entries = [entry for entry in ledger.published() if entry["kind"] == "charge"]
        return sum(entry["queries"] for entry in entries)


def own_files(beside: Path, name: str) -> Path:
    """Return a copy of a site's key and anchor, as another machine would have it."""
    for end in (".key", ".head"):
        shutil.copy(beside.with_name(beside.name + end), beside.with_name(name + end))
    return beside.with_name(name)


# -- several guardians -----------------------------------------------------------------------------


def _spend(address: str, beside: Path, start: Any, answered: Any) -> None:
    """Answer single queries until the budget refuses."""
    with closing(pv.Ledger.open(address, beside=beside)) as ledger:
        start.wait(60)
        count = 0
        with suppress(pv.BudgetError):
            while True:
                pv.label(VOTES, ledger=ledger, **EVERY)
                count += 1
    answered.put(count)


@pytest.mark.parametrize("anchors", ["one", "own"])
@pytest.mark.filterwarnings("ignore::privote.errors.PrivoteWarning")
def test_guardians_in_two_processes_never_overspend_together(
    database: str, tmp_path: Path, anchors: str
) -> None:
    beside = tmp_path / "site"
    pv.Ledger.open(database, beside=beside).close()
    sites = [beside, beside if anchors == "one" else own_files(beside, "other")]
    start, answered = SPAWN.Barrier(2), SPAWN.Queue()
    running = [SPAWN.Process(target=_spend, args=(database, s, start, answered)) for s in sites]
    for process in running:
        process.start()
    counts = [answered.get(timeout=120) for _ in running]
    for process in running:
        process.join(60)
    alone = pv.label(
        np.repeat(VOTES, 400, axis=0),
        ledger=pv.Ledger.open(tmp_path / "alone.db"),
        **{**EVERY, "queries": None},
    )
    assert min(counts) > 0  # both took part
    assert sum(counts) == charged(database, beside) == alone.answered


def test_an_anchor_of_ones_own_finds_ones_own_charges_gone(database: str, tmp_path: Path) -> None:
    import psycopg

    first = tmp_path / "first"
    pv.label(VOTES, ledger=pv.Ledger.open(database, beside=first), **EVERY)
    second = own_files(first, "second")
    for _ in range(2):  # the one that stood still accepts what the other added
        pv.label(VOTES, ledger=pv.Ledger.open(database, beside=second), **EVERY)
    assert charged(database, first) == 3
    with psycopg.connect(database) as connection:
        connection.execute("ALTER TABLE entries DISABLE TRIGGER entries_stay")
        connection.execute("DELETE FROM sealed WHERE number = (SELECT max(number) FROM entries)")
        connection.execute("DELETE FROM entries WHERE number = (SELECT max(number) FROM entries)")
        connection.execute("ALTER TABLE entries ENABLE TRIGGER entries_stay")
    with pytest.raises(pv.LedgerError, match="rolled back"):
        pv.Ledger.open(database, beside=second)


# -- a killed client -------------------------------------------------------------------------------


def _die_inside(address: str, beside: Path, moment: str) -> None:
    ledger = pv.Ledger.open(address, beside=beside)
    store: Any = ledger._store
    run = store._run

    def watched(statement: str, *values: Any) -> Any:
        if moment == "before COMMIT" and statement == "COMMIT" and store.head()[0] > 1:
            os.kill(os.getpid(), signal.SIGKILL)
        done = run(statement, *values)
        if moment == "after INSERT" and statement.startswith("INSERT INTO entries"):
            os.kill(os.getpid(), signal.SIGKILL)
        if moment == "after COMMIT" and statement == "COMMIT" and store.head()[0] > 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    store._run = watched
    pv.label(VOTES, ledger=ledger, **EVERY)


@pytest.mark.parametrize("moment", ["after INSERT", "before COMMIT", "after COMMIT"])
def test_a_client_killed_in_a_charge_frees_the_lock_and_hides_nothing(
    database: str, tmp_path: Path, moment: str
) -> None:
    beside = tmp_path / "site"
    pv.label(VOTES, ledger=pv.Ledger.open(database, beside=beside), **EVERY)
    child = SPAWN.Process(target=_die_inside, args=(database, beside, moment))
    child.start()
    child.join(120)
    assert child.exitcode == -signal.SIGKILL
    began = time.monotonic()
    pv.label(VOTES, ledger=pv.Ledger.open(database, beside=beside), **EVERY)
    assert time.monotonic() - began < 30  # it did not wait for the dead until patience ended
    assert charged(database, beside) == (3 if moment == "after COMMIT" else 2)


def test_who_waits_too_long_for_the_lock_is_told(database: str) -> None:
    holder, waiter = PostgresStore(database), PostgresStore(database, patience=1)
    with (
        holder.transaction(),
        pytest.raises(pv.LedgerError, match="lock timeout"),
        waiter.transaction(),
    ):
        pass
    with waiter.transaction():
        waiter.append(Row(1, "at", "{}", "digest"))
    for store in (holder, waiter):
        store.close()


# -- a broken line ---------------------------------------------------------------------------------


class Proxy:
    """A line to a server that can be cut: the next charge's COMMIT is swallowed, or its answer."""

    def __init__(self, target: int) -> None:
        self._target, self.cut, self.closed_to_new = target, "", False
        self._charging = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def lose(self, what: str) -> None:
        """Cut the line at the next charge: its "question" or its "answer" gets lost."""
        self.cut, self._charging = what, False

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if self.closed_to_new:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self._target))
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(
                        target=self._carry, args=(source, sink, near, far), daemon=True
                    ).start()

    def _carry(
        self, source: socket.socket, sink: socket.socket, near: socket.socket, far: socket.socket
    ) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self._charging |= b"INSERT INTO entries" in data
                cut = "question" if source is near else "answer"
                if self._charging and self.cut == cut and b"COMMIT" in data:
                    self.cut = ""
                    break
                sink.sendall(data)
        for end in (near, far):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        self._listener.close()


@contextmanager
def proxied(server: Server, database: str) -> Iterator[tuple[Proxy, str]]:
    with closing(Proxy(server.port)) as proxy:
        yield proxy, database.replace(f":{server.port}", f":{proxy.port}")


@pytest.mark.parametrize(
    ("lost", "reachable", "said", "entered"),
    [
        ("answer", True, None, 2),  # read back: it is there
        ("question", True, "nothing is charged", 1),
        # It was charged, and nobody can look: budget is wasted, never privacy.
        ("answer", False, "If that entry is in the ledger", 2),
    ],
)
def test_a_charge_whose_line_breaks(
    server: Server,
    database: str,
    tmp_path: Path,
    lost: str,
    reachable: bool,
    said: str | None,
    entered: int,
) -> None:
    beside = tmp_path / "site"
    with proxied(server, database) as (proxy, address):
        ledger = pv.Ledger.open(address, beside=beside)
        pv.label(VOTES, ledger=ledger, **EVERY)
        store: Any = ledger._store
        store._patience = store._patience if reachable else 1
        proxy.lose(lost)
        proxy.closed_to_new = not reachable
        if said is None:
            assert pv.label(VOTES, ledger=ledger, **EVERY).answered == 1
        else:
            with pytest.raises(pv.LedgerError, match=said):
                pv.label(VOTES, ledger=ledger, **EVERY)
        assert proxy.cut == ""
        proxy.closed_to_new = False
        assert charged(database, beside) == entered
        pv.label(VOTES, ledger=ledger, **EVERY)  # the same ledger goes on, on a new line
    assert charged(database, beside) == entered + 1


def test_a_line_that_broke_between_charges_is_made_anew(
    server: Server, database: str, tmp_path: Path
) -> None:
    beside = tmp_path / "site"
    ledger = pv.Ledger.open(database, beside=beside)
    pv.label(VOTES, ledger=ledger, **EVERY)
    name = database.rsplit("/", 1)[-1]
    server.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname='{name}'")
    pv.label(VOTES, ledger=ledger, **EVERY)
    assert charged(database, beside) == 2


# -- servers that forget, and servers that take over -----------------------------------------------


def test_a_server_that_does_not_write_to_disk_is_refused(
    server: Server, database: str, tmp_path: Path
) -> None:
    server.execute("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
    try:
        server.wait_for("SELECT current_setting('fsync')", "off")
        with pytest.raises(pv.LedgerError, match="fsync off"):
            pv.Ledger.open(database, beside=tmp_path / "site")
        assert list(tmp_path.iterdir()) == []
    finally:
        server.execute("ALTER SYSTEM RESET fsync", "SELECT pg_reload_conf()")
        server.wait_for("SELECT current_setting('fsync')", "on")


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
    pytest.importorskip("psycopg", reason="the extra [postgres] is not installed")
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        primary = Server(Path(one))
        try:
            standby = Server(Path(two), primary)
            try:
                primary.wait_for("SELECT count(*) FROM pg_stat_replication", 1)
                primary.execute(
                    "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"
                )
                primary.wait_for("SELECT max(sync_state) FROM pg_stat_replication", "sync")
                yield primary, standby
            finally:
                standby.stop()
        finally:
            primary.stop()


def any_of(*ports: int) -> str:
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"postgresql://privote@{hosts}/postgres"


def test_charges_survive_a_failover(pair: tuple[Server, Server], tmp_path: Path) -> None:
    primary, standby = pair
    beside = tmp_path / "site"  # nobody is at the first address, and the second takes no writes
    address = any_of(free_port(), standby.port, primary.port)
    ledger = pv.Ledger.open(address, beside=beside)
    pv.label(VOTES, ledger=ledger, **EVERY)
    assert charged(f"{standby.address}/postgres", beside) == 1  # a standby will do to look
    primary.stop()
    standby.execute(
        "SELECT pg_promote()",
        "ALTER SYSTEM SET synchronous_standby_names = ''",
        "SELECT pg_reload_conf()",
    )
    standby.wait_for("SELECT current_setting('synchronous_standby_names')", "")
    # The same guardian finds the new server, and refuses it as long as it has no standby itself.
    with pytest.raises(pv.LedgerError, match="does not wait for a standby"):
        pv.label(VOTES, ledger=ledger, **EVERY)
    alone = f"{standby.address}/postgres"
    pv.label(VOTES, ledger=pv.Ledger.open(alone, beside=beside), **EVERY)
    assert charged(alone, beside) == 2


def _waits_in_vain(
    pair: tuple[Server, Server], ledger: pv.Ledger, ended: str, *, until: str = ""
) -> str:
    """Charge while the standby is down, let somebody end the wait; return what is said of it."""
    primary, standby = pair
    standby.stop()
    said: list[str] = []

    def try_it() -> None:
        try:
            pv.label(VOTES, ledger=ledger, **EVERY)
            said.append("released")
        except pv.LedgerError as error:
            said.append(str(error))

    waiting = threading.Thread(target=try_it)
    waiting.start()
    asked = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    primary.wait_for(f"SELECT count(*) {asked}", 1)
    assert not said  # it waits
    first = primary.execute(f"SELECT pid {asked}")[0]
    primary.execute(f"SELECT {ended}(pid) {asked}")
    if until:
        primary.wait_for(f"SELECT count(*) {asked} AND pid <> {first}", 1)
        assert not said  # it waits again, for the same standby
        primary.execute(f"SELECT {until}(pid) {asked}")
    waiting.join(60)
    return said[0]


@pytest.mark.parametrize("least", ["notice", "error"])
def test_a_wait_for_the_standby_that_somebody_ended_releases_nothing(
    pair: tuple[Server, Server], tmp_path: Path, least: str
) -> None:
    # A role may have been told not to hear of warnings: this one must be heard.
    pair[0].execute(f"ALTER ROLE privote SET client_min_messages = {least}")
    ledger = pv.Ledger.open(any_of(*(each.port for each in pair)), beside=tmp_path / "site")
    pv.label(VOTES, ledger=ledger, **EVERY)
    said = _waits_in_vain(pair, ledger, "pg_cancel_backend")
    assert "canceling wait for synchronous replication" in said
    assert "Nothing is released" in said


def test_a_charge_found_after_a_broken_wait_waits_for_the_standby_too(
    pair: tuple[Server, Server], tmp_path: Path
) -> None:
    ledger = pv.Ledger.open(any_of(*(each.port for each in pair)), beside=tmp_path / "site")
    pv.label(VOTES, ledger=ledger, **EVERY)
    # The entry is there once the line is back, and the standby has not heard of it.
    said = _waits_in_vain(pair, ledger, "pg_terminate_backend", until="pg_cancel_backend")
    assert "canceling wait for synchronous replication" in said
    assert "Nothing is released" in said


# -- the compose file ------------------------------------------------------------------------------


def test_the_compose_file_starts_a_server_as_the_page_asks(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with the extra [dask]")
    compose = yaml.safe_load((REPOSITORY / "deploy" / "compose.yaml").read_text())
    server, guardian = compose["services"]["ledger"], compose["services"]["guardian"]
    named = {volume.split(":")[0] for one in (server, guardian) for volume in one["volumes"]}
    assert named - {"./votes"} == compose["volumes"].keys()
    for one in (server, guardian):
        assert one["secrets"] == list(compose["secrets"])
    program, *options = server["command"]
    assert program == "postgres"
    assert options[::2] == ["-c"] * (len(options) // 2)
    page = (REPOSITORY / "docs" / "operate.md").read_text()
    asked = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", page, re.MULTILINE))
    assert len(asked) == 3
    assert dict(option.split("=") for option in options[1::2]) == asked
    pytest.importorskip("psycopg", reason="the extra [postgres] is not installed")
    with tempfile.TemporaryDirectory() as folder:
        running = Server(Path(folder), options=tuple(options))
        try:
            where = f"{running.address}/postgres"
            pv.label(VOTES, ledger=pv.Ledger.open(where, beside=tmp_path / "site"), **EVERY)
            assert charged(where, tmp_path / "site") == 1
        finally:
            running.stop()

"""Private PostgreSQL servers, from the programs of the machine or of the wheel `pgserver`."""

from __future__ import annotations

import glob
import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privote as pv
from privote.ledger import Location

VOTES = np.random.default_rng(0).random((20, 10, 3)) < 0.2


def label(ledger: Any, votes: np.ndarray = VOTES, **changes: Any) -> pv.Release:
    """Charge one query in the worst case, within a budget of 10: three entries, or two."""
    asked: dict[str, Any] = {"mechanism": pv.BinaryVoting(sigma=5.0), "epsilon": 8.0, "delta": 1e-5}
    asked |= {"guarantee": "worst-case", "queries": 1, "dataset": "d", "ledger": ledger}
    asked |= {} if ledger is None else {"budget": 10.0}
    return pv.label(votes, **{**asked, **changes})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where a ledger may be made."""
    return tmp_path / "ledger.db"


def charged(ledger: Any) -> int:
    """Return how many queries the ledger has charged, and check that it is whole."""
    with closing(pv.Ledger.open(ledger, readonly=True)) as opened:
        found = opened.verify()
        assert found.ok, found.problems
        entries = [entry for entry in opened.published() if entry["kind"] == "charge"]
        return sum(entry["terms"]["queries"] for entry in entries)


def enter(place: Any, times: int = 1) -> None:
    """Add entries to a ledger, or at a place: each is the budget of a new data set."""
    with pv.Ledger.at(place) as ledger:
        for _ in range(times):
            name = f"data {os.urandom(6).hex()}"
            ledger.set_budget(pv.Budget(epsilon=8.0, delta=1e-5), dataset=name)


def entries(place: Any) -> int:
    """Return how many entries a ledger has, and check that it is whole."""
    with closing(pv.Ledger.open(place, readonly=True)) as ledger:
        found = ledger.verify()
        assert found.ok, found.problems
        return found.entries


def binary(name: str) -> str:
    """Find a PostgreSQL program; Debian keeps them off the path, `make setup` brings its own."""
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))
    wheel = importlib.util.find_spec("pgserver")
    for folder in (wheel.submodule_search_locations or []) if wheel else []:
        found = found or glob.glob(f"{folder}/pginstall/bin/{name}")
    path = found[-1] if found else shutil.which(name)
    if path is None:
        pytest.skip(f"no PostgreSQL program {name!r} on this machine")
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """One PostgreSQL on loopback, made in a new folder or from a copy of another's."""

    def __init__(self, folder: Path, source: Server | None, options: tuple[str, ...]) -> None:
        self.folder, self.port, self._options = folder, free_port(), options
        # The server refuses to run as root: then become nobody, in a folder that nobody owns.
        nobody = 65534 if os.getuid() == 0 else None
        self._identity: Any = {} if nobody is None else {"user": nobody, "group": nobody}
        if nobody is not None:
            os.chown(folder, nobody, nobody)
        copy = [binary("pg_basebackup"), "-D", f"{folder}/data", "-R", "-X", "stream", "-d"]
        make = [binary("initdb"), "-D", f"{folder}/data", "-U", "privote", "-A", "trust", "-N"]
        self.run(*(make if source is None else [*copy, f"{source.address}/postgres"]))
        self.start()

    @property
    def address(self) -> str:
        return f"postgresql://privote@127.0.0.1:{self.port}"

    def run(self, *command: str) -> None:
        done = subprocess.run(
            command, capture_output=True, cwd=self.folder, check=False, **self._identity
        )
        assert done.returncode == 0, done.stderr.decode()[-500:]

    def start(self) -> None:
        options = ["-h", "127.0.0.1", "-p", str(self.port), "-k", str(self.folder), *self._options]
        self._control("start", "-l", f"{self.folder}/log", "-o", " ".join(options))

    def _control(self, *command: str) -> None:
        self.run(binary("pg_ctl"), "-D", f"{self.folder}/data", "-w", *command)

    def execute(self, *statements: str, database: str = "postgres") -> Any:
        """Run statements one by one; return the first row of the last."""
        import psycopg

        with psycopg.connect(f"{self.address}/{database}", autocommit=True) as connection:
            for statement in statements:
                done = connection.execute(statement)
            return done.fetchone() if done.description else None

    def wait_for(self, question: str, answer: object = True) -> None:
        """Wait, not forever, until a query gives this answer."""
        end = time.monotonic() + 60
        while (found := self.execute(question)[0]) != answer:
            assert time.monotonic() < end, (question, found)
            time.sleep(0.05)

    def set(self, name: str, value: str) -> None:
        """Change a setting, and wait until it holds."""
        self.execute(f"ALTER SYSTEM SET {name} = '{value}'", "SELECT pg_reload_conf()")
        self.wait_for(f"SELECT current_setting('{name}')", value)

    def stop(self) -> None:
        """End it at once, as a power cut would: nothing is finished, nothing is said."""
        if (self.folder / "data" / "postmaster.pid").exists():
            self._control("stop", "-m", "immediate")


@contextmanager
def started(source: Server | None = None, options: tuple[str, ...] = ()) -> Iterator[Server]:
    """Start a private PostgreSQL on loopback; skip, saying so, where there is none."""
    pytest.importorskip("psycopg", reason="the extra [postgres] is not installed")
    with tempfile.TemporaryDirectory() as folder:
        running = Server(Path(folder), source, options)
        try:
            yield running
        finally:
            running.stop()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with started() as running:
        yield running


@pytest.fixture
def database(server: Server) -> str:
    name = f"test_{os.urandom(6).hex()}"
    server.execute(f"CREATE DATABASE {name}")
    return f"{server.address}/{name}"


@pytest.fixture
def place(database: str, tmp_path: Path) -> Location:
    """Return where a ledger in PostgreSQL may be made, with key and anchor beside ``site``."""
    return Location.of(database, tmp_path / "site")


def own_files(place: Location, name: str) -> Location:
    """Return the place with a copy of key and anchor, as another machine would have it."""
    other = Location.of(place.address or "", place.file.with_name(name))
    shutil.copy(place.key, other.key)
    shutil.copy(place.head, other.head)
    return other

"""A private PostgreSQL server, where its programs are found."""

from __future__ import annotations

import glob
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator

import pytest


def binary(name: str) -> str | None:
    """Find a PostgreSQL server program; Debian keeps them off the path."""
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))
    return found[-1] if found else shutil.which(name)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """Start a private PostgreSQL on loopback; skip, saying so, where there is none."""
    pytest.importorskip("sqlalchemy", reason="the extra [postgres] is not installed")
    pytest.importorskip("psycopg", reason="the extra [postgres] is not installed")
    initdb, postgres = binary("initdb"), binary("postgres")
    if not (initdb and postgres):
        pytest.skip("no PostgreSQL server programs (initdb, postgres) on this machine")
    # The server refuses to run as root: then become nobody, in a folder that nobody owns.
    nobody = 65534 if os.getuid() == 0 else None
    identity = {} if nobody is None else {"user": nobody, "group": nobody}
    with tempfile.TemporaryDirectory() as folder:
        if nobody is not None:
            os.chown(folder, nobody, nobody)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        made = subprocess.run(
            [initdb, "-D", f"{folder}/data", "-U", "privote", "-A", "trust", "-N"],
            capture_output=True,
            cwd=folder,
            check=False,
            **identity,
        )
        if made.returncode:
            pytest.skip(f"initdb does not run here: {made.stderr.decode()[-200:]}")
        where = ["-D", f"{folder}/data", "-h", "127.0.0.1", "-p", str(port), "-k", folder]
        running = subprocess.Popen(
            [postgres, "-F", *where],  # -F: this one need not survive a power cut
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=folder,
            **identity,
        )
        assert running.stderr is not None
        for line in running.stderr:
            if b"ready to accept connections" in line:
                break
        # Whoever writes to a pipe that nobody reads stops one day.
        threading.Thread(target=running.stderr.read, daemon=True).start()
        try:
            yield f"postgresql://privote@127.0.0.1:{port}"
        finally:
            running.send_signal(signal.SIGQUIT)  # at once: nothing in it is kept
            running.wait(timeout=30)


@pytest.fixture
def database(server: str) -> str:
    import sqlalchemy

    name = f"test_{os.urandom(6).hex()}"
    engine = sqlalchemy.create_engine(
        f"{server}/postgres".replace("postgresql:", "postgresql+psycopg:"),
        isolation_level="AUTOCOMMIT",
    )
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return f"{server}/{name}"

"""Whole coalitions over gRPC: the same labels as in one process, and what happens when sites fail.

The slow tests run real processes with the secure engine (a short one is ``simulate``'s, in
tests/cli); the others run every program in a thread of this process, with the clear engine, from
the same files.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

from tests.capc.sites import InThread

from privote import BinaryVoting
from privote.capc import site as service
from privote.capc.certs import revoke
from privote.capc.coalition import Rehearsal, Simulation, lay_out, made
from privote.capc.models import SiteModel
from privote.capc.site import Site
from privote.capc.terms import Terms

SEED = 11
LABELS = ("a", "b", "c")


def small_terms(**changes: Any) -> Terms:
    given: dict[str, Any] = {
        "name": "test",
        "labels": LABELS,
        "features": 4,
        "bound": 1.0,
        "bits": 12,
        "mechanism": BinaryVoting(sigma=2.0),
        "guarantee": "worst-case",
        "epsilon": 100.0,
        "delta": 1e-5,
        "guardian": "guardian",
        "parties": {"north": None, "south": None, "west": None},
        "queriers": ("east", "north"),
        "minimum": 2,
        "most_queries": 50,
        "timeout": 20.0,
    }
    return Terms(**{**given, **changes})


def small_models(terms: Terms) -> dict[str, SiteModel]:
    rng = np.random.default_rng(5)
    return {
        party: SiteModel(
            layers=((rng.normal(size=(4, 3)), rng.normal(size=3)),),
            labels=terms.labels,
            thresholds=np.full(3, 0.5),
        )
        for party in terms.parties
    }


ROWS = np.random.default_rng(6).uniform(-1, 1, (7, 4))


class Town:
    """A coalition whose programs run in threads."""

    def __init__(self, folder: Path, terms: Terms, **more: Any) -> None:
        self.terms, self.folder = terms, folder
        more = {"engine": "clear", "insecure": True, "seed": SEED, **more}
        self.files = lay_out(folder, terms, small_models(terms), **more)
        self.running: dict[str, InThread] = {}

    def start(self, *names: str) -> None:
        for name in names:
            make = service.guardian if name == self.terms.guardian else service.answering
            self.running[name] = InThread(partial(make, Site.read(self.files[name])))

    def stop(self, *names: str) -> None:
        for name in names or tuple(self.running):
            self.running.pop(name).stop()

    def ask(self, name: str = "east", rows: Any = ROWS, **more: Any) -> InThread:
        site = Site.read(self.files[name])
        return InThread(lambda log: service.querying(site, rows, log, **more))

    def answers(self, name: str = "east", rows: Any = ROWS, **more: Any) -> Any:
        asking = self.ask(name, rows, **more)
        asking.join()
        return asking.result


@contextmanager
def town(folder: Path, *absent: str, terms: Terms | None = None, **more: Any) -> Iterator[Town]:
    made_town = Town(folder, terms or small_terms(), **more)
    with ExitStack() as stack:
        stack.callback(made_town.stop)
        made_town.start("guardian", *(p for p in made_town.terms.parties if p not in absent))
        yield made_town


def same_as_simulated(folder: Path, parties: int, queries: int, guarantee: str) -> None:
    """Compare real processes, engine and TLS with one process in clear text."""
    terms = Terms(
        name="scenes",
        labels=tuple(f"digit {d}" for d in range(10)),
        features=256,
        bound=1.0,
        bits=16,
        mechanism=BinaryVoting(sigma=2.0),
        guarantee=guarantee,
        epsilon=20.0 if guarantee == "allowance" else 1e4,
        delta=1e-5,
        guardian="guardian",
        parties={f"site-{n}": None for n in range(parties)},
        queriers=("querier",),
        minimum=2,
        most_queries=queries,
        timeout=300.0,
    )
    scenes = made(terms, parties, queries, 150, 0)
    expected = Simulation(terms, scenes.models, seed=SEED).ask("querier", scenes.X)
    sites = lay_out(folder, terms, scenes.models, insecure=True, seed=SEED)
    rows = folder / "rows.npz"
    np.savez(rows, X=scenes.X)
    with Rehearsal(sites, terms) as rehearsal:
        done = rehearsal.query("querier", rows, folder / "answers", "--json")
        assert done.returncode == 0, done.stderr
        logs = done.stderr + "".join(rehearsal.log(name) for name in rehearsal.processes)
    said = json.loads(done.stdout)
    with np.load(folder / "answers" / "labels.npz") as file:
        labels = file["labels"]
    np.testing.assert_array_equal(labels, expected.labels)
    assert len(set(np.unique(labels).tolist())) > 1
    assert said["parties"] == list(terms.parties)
    assert said["engine"] == "spu-cheetah"
    assert not said["secure"]  # a seed was used
    assert "SIMULATED" in (folder / "answers" / "statement.txt").read_text()
    assert logs.count("SIMULATED") == parties + 2
    assert "has stopped" in rehearsal.log("guardian")


needs_engine = pytest.mark.skipif(find_spec("spu") is None, reason="the secure engine is absent")


@needs_engine
@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["worst-case", "allowance"])
def test_five_parties_and_two_hundred_queries(tmp_path: Path, guarantee: str) -> None:
    same_as_simulated(tmp_path, 5, 200, guarantee)


@pytest.mark.parametrize("guarantee", ["worst-case", "allowance"])
def test_the_network_gives_the_labels_of_the_simulation(tmp_path: Path, guarantee: str) -> None:
    terms = small_terms(guarantee=guarantee)
    expected = Simulation(terms, small_models(terms), seed=SEED).ask("east", ROWS)
    with town(tmp_path, terms=terms) as there:
        answers = there.answers()
    np.testing.assert_array_equal(answers.labels, expected.labels)
    assert answers.parties == ("north", "south", "west")
    assert answers.engine == "clear"
    assert answers.simulated


def test_a_site_that_dies_in_its_session_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with town(tmp_path) as there:
        # Its engine never answers: the stream ends under the querying party.
        west = there.running["west"].driver
        monkeypatch.setattr(west.sessions, "_compute", lambda work, link: link.fail("dying"))
        answers = there.answers()
    assert answers.parties == ("north", "south")
    assert "west" in answers.left_out


def test_a_site_that_is_not_trusted_is_left_out(tmp_path: Path) -> None:
    with town(tmp_path) as there:
        revoke(tmp_path / "east" / "trust", "west")
        asking = there.ask()
        asking.join()
    assert asking.result.parties == ("north", "south")
    assert asking.logged("no certificate of 'west' is pinned")


def test_logs_hold_nothing_secret(tmp_path: Path) -> None:
    with town(tmp_path) as there:
        asking = there.ask()
        asking.join()
        roles = [running.role for running in there.running.values()]
        text = "\n".join([*asking.log, *(x for r in there.running.values() for x in r.log)])
        assert len(roles) == 4
    labels = asking.result.labels
    assert str(labels.tolist()) not in text
    rows = asking.role.rows
    assert not any(
        str(abs(value)) in text for value in rows.reshape(-1).tolist() if abs(value) > 999
    )
    assert "masks" in text  # said that they came, not what they are


def test_nothing_readable_is_on_the_wire(tmp_path: Path) -> None:
    """Even the clear engine's bytes are inside TLS: model and masks are not in what is sent."""
    with town(tmp_path) as there:
        port = int(str(Site.read(there.files["north"]).listen).rpartition(":")[2])
        with tapped(port) as (tap, seen):
            file = there.files["east"]
            file.write_text(file.read_text().replace(f"127.0.0.1:{port}", f"127.0.0.1:{tap}"))
            answers = there.answers()
            assert "north" in answers.parties
        wire = bytes(seen)
        assert len(wire) > 1000
        model = there.running["north"].role._model["weights"]
        assert model.size
        assert not any(value.tobytes() in wire for value in model.reshape(-1) if abs(value) > 2**16)
        assert answers.batch.encode() not in wire
        assert b"answering" not in wire
        assert b"privote.Capc" not in wire


@contextmanager
def tapped(port: int) -> Iterator[tuple[int, bytearray]]:
    """Listen between a caller and a port, and keep what goes through."""
    seen = bytearray()
    listener = socket.create_server(("127.0.0.1", 0))
    ends: list[socket.socket] = [listener]

    def copy(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                seen.extend(data)
                target.sendall(data)
        except OSError:
            pass
        target.close()

    def accept() -> None:
        try:
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", port))
                ends.extend((near, far))
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=copy, args=pair, daemon=True).start()
        except OSError:
            pass

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1], seen
    finally:
        for end in ends:
            end.close()

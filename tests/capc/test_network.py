"""Whole coalitions over gRPC: the same labels as in one process, and what happens when sites fail.

Every program runs in a thread of this process, from its site's files, and computes in clear; with
real processes and the secure engine: tests/cli/test_capc.py.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

from tests.capc.coalitions import random_models, terms_of
from tests.capc.sessions import ClearEngine
from tests.capc.sites import InThread

from privote.capc import site as service
from privote.capc.certs import pin
from privote.capc.coalition import Simulation, lay_out
from privote.capc.driver import Driver
from privote.capc.messages import ANSWERING, GUARDIAN, QUERYING
from privote.capc.site import Site
from privote.capc.terms import Terms
from privote.entropy import Entropy

SEED = 11
ROWS = np.random.default_rng(6).uniform(-1, 1, (7, 4))


def small_terms(**changes: Any) -> Terms:
    given: dict[str, Any] = {
        "bound": 1.0,
        "bits": 12,
        "epsilon": 100.0,
        "guardian": "guardian",
        "parties": ("north", "south", "west"),
        "queriers": ("east", "north"),
        "most_queries": 50,
        "timeout": 20.0,
    }
    return replace(terms_of(labels=3), **{**given, **changes})


class Town:
    """A coalition whose programs run in threads, compute in clear and draw from seeds."""

    def __init__(self, folder: Path, terms: Terms) -> None:
        self.terms = terms
        self.files = lay_out(folder, terms, random_models(terms))
        self.running: dict[str, InThread] = {}

    def _made(self, name: str, role: str, rows: Any = None) -> InThread:
        site = Site.read(self.files[name], role)

        def made(log: Any) -> Driver:
            if role == QUERYING:
                driver = service.querying(site, rows, log)
            else:
                driver = {GUARDIAN: service.guardian, ANSWERING: service.answering}[role](site, log)
            driver.role.entropy = Entropy(SEED + self.terms.sites.index(name))
            return driver

        return InThread(made)

    def __enter__(self) -> Self:
        for name in (self.terms.guardian, *self.terms.parties):
            role = GUARDIAN if name == self.terms.guardian else ANSWERING
            self.running[name] = self._made(name, role)
        return self

    def __exit__(self, *_: object) -> None:
        for program in self.running.values():
            program.stop()

    def ask(self) -> InThread:
        asking = self._made("east", QUERYING, ROWS)
        asking.join()
        return asking


@pytest.fixture(autouse=True)
def in_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "SecureEngine", ClearEngine)


@pytest.mark.parametrize("noise", ["guardian", "sites"])
@pytest.mark.parametrize("guarantee", ["worst-case", "allowance"])
def test_the_network_gives_the_labels_of_the_simulation(
    tmp_path: Path, guarantee: str, noise: str
) -> None:
    terms = small_terms(guarantee=guarantee, noise=noise)
    expected = Simulation(terms, random_models(terms), seed=SEED).ask("east", ROWS)
    with Town(tmp_path, terms) as there:
        answers = there.ask().result
    np.testing.assert_array_equal(answers.labels, expected.labels)
    assert answers.parties == ("north", "south", "west")
    assert (answers.engine, answers.simulated) == ("clear", True)


def test_a_site_that_dies_or_is_not_trusted_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Town(tmp_path, small_terms()) as there:
        (tmp_path / "east" / "trust" / "west.pem").unlink()
        asking = there.ask()
        assert asking.result.parties == ("north", "south")
        assert asking.logged("no certificate of 'west' is pinned")
        # Its engine never answers: the stream ends under the querying party.
        north = there.running["north"].driver
        monkeypatch.setattr(north.sessions, "_compute", lambda work, link: link.fail("dying"))
        pin(tmp_path / "east" / "trust", tmp_path / "west" / "west.pem")
        answers = there.ask().result
    assert answers.parties == ("south", "west")
    assert "north" in answers.left_out


def test_logs_hold_nothing_secret(tmp_path: Path) -> None:
    with Town(tmp_path, small_terms()) as there:
        asking = there.ask()
    log = "\n".join([*asking.log, *(x for r in there.running.values() for x in r.log)])
    assert str(asking.result.labels.tolist()) not in log
    rows = asking.role.rows.reshape(-1).tolist()
    assert not any(str(abs(value)) in log for value in rows if abs(value) > 999)
    assert "masks" in log  # said that they came, not what they are

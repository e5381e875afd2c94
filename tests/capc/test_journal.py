"""Journals survive a crash at any step, and let nobody go on from what is not there any more."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.capc.coalitions import identity, simulation, terms_of
from tests.refusals import refused

import privote as pv
from privote.capc.journal import DECIDED, GRANTED, STORED, GuardianJournal, QuerierJournal
from privote.errors import LedgerError, PeerError

A, B, R, S = "a" * 64, "b" * 64, "0" * 32, "1" * 32
TERMS = terms_of(guarantee="allowance", epsilon=40.0)
PAD = np.array([[1, -1], [2**63 - 1, 0]], np.int64)


class Disk:
    """A journal that is opened anew for every step, as after a crash in between."""

    def __init__(self, kind: Callable[..., Any], *args: Any) -> None:
        self._kind, self._args = kind, args

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            with closing(self._kind(*self._args)) as journal:
                return getattr(journal, name)(*args)

        return call


@pytest.fixture
def guardian(tmp_path: Path) -> Any:
    return Disk(GuardianJournal, tmp_path / "pg", TERMS, "pg")


def test_a_decision_counts_when_it_is_committed(guardian: Any) -> None:
    guardian.reserve(A, "q", 2)
    assert guardian.decide(A, R, {"p": -7}, PAD) == 1
    assert guardian.halves("q") == (0, {})
    for _ in range(2):  # asked again, it is the same
        guardian.commit(A)
        assert guardian.halves("q") == (1, {"p": 2**64 - 7})
        batch, pad = guardian.decision("q", R)
        assert batch == A
        np.testing.assert_array_equal(pad, PAD)
        assert guardian.decision("other", R) is None
    with refused(None, PeerError):
        guardian.decide(A, S, {}, PAD)  # never again


def test_of_two_decisions_on_the_same_counts_one_is_committed(guardian: Any) -> None:
    for batch, run in ((A, R), (B, S)):
        guardian.reserve(batch, "q", 2)
        assert guardian.decide(batch, run, {"p": 1}, PAD) == 1
    guardian.commit(B)
    assert guardian.decision("q", R) is None
    assert guardian.decide(A, R, {"p": 2}, PAD) == 2
    for querier, queries in (("other", 2), ("q", 3)):
        with refused(None, PeerError):
            guardian.reserve(A, querier, queries)


def test_labels_and_halves_are_stored_together(tmp_path: Path) -> None:
    journal: Any = Disk(QuerierJournal, tmp_path / "q", TERMS, "q")
    rows = np.eye(2, 4, dtype=np.int64)
    batch = journal.digest(rows, TERMS)
    assert batch == journal.digest(rows.copy(), TERMS)
    assert batch != journal.digest(rows[::-1], TERMS)
    assert batch != QuerierJournal(None, TERMS, "q").digest(rows, TERMS), "it is keyed"
    journal.enter(batch, GRANTED)
    journal.decided(batch, (R, 1), {"p": 5}, {"some": "facts"}, PAD)
    assert (journal.phase(batch), journal.halves()) == (DECIDED, (0, {}))
    ((found, run, share),) = journal.unsettled()
    assert (found, run) == (batch, R)
    np.testing.assert_array_equal(share, PAD)
    labels = np.array([[1, 0], [-1, 1]], np.int8)
    journal.store(batch, labels)
    assert (journal.phase(batch), journal.halves()) == (STORED, (1, {"p": 5}))
    facts, kept = journal.stored(batch)
    assert facts == {"some": "facts"}
    np.testing.assert_array_equal(kept, labels)


def test_a_journal_belongs_to_one_promise_site_and_process(tmp_path: Path, guardian: Any) -> None:
    guardian.reserve(A, "q", 2)
    for terms, owner in ((terms_of(), "pg"), (TERMS, "another")):
        with refused("journal"):
            GuardianJournal(tmp_path / "pg", terms, owner)
    with refused("journal"):
        QuerierJournal(tmp_path / "pg", TERMS, "pg")
    journal = GuardianJournal(tmp_path / "pg", TERMS, "pg")
    with refused("output"):
        GuardianJournal(tmp_path / "pg", TERMS, "pg")
    journal.close()
    facts = tmp_path / "pg" / "journal.json"
    for text in ("{", json.dumps({**json.loads(facts.read_text()), "format": 4})):
        facts.write_text(text)
        with refused(None, LedgerError):
            guardian.reserve(A, "q", 2)


def test_a_deleted_journal_does_not_give_the_allowance_again() -> None:
    """Both sides lost their counts; the ledger knows that the allowance was charged."""
    run = simulation(TERMS, np.ones((2, 3, 2)))
    run.ask("q0", identity(2, 4))
    run._journals.clear()
    run.start("pg")
    with refused(None, LedgerError):
        run.ask("q0", identity(2, 4))


@pytest.mark.parametrize("guarantee", ["allowance", "worst-case"])
def test_a_journal_put_back_releases_nothing_twice(guarantee: str, tmp_path: Path) -> None:
    """Either side's: the other one has come further."""
    terms = terms_of(guarantee=guarantee)
    for site, kind in (("pg", GuardianJournal), ("q0", QuerierJournal)):
        run = simulation(terms, np.ones((2, 3, 2)))
        run._journals[site] = kind(tmp_path / site, terms, site)
        run.start("pg")
        run.kill("p2")
        run.kill("p1")
        with refused(None, pv.PrivoteError):
            run.ask("q0", identity(2, 4))  # too few: nothing is charged
        run.start("p1")
        copy = shutil.copytree(tmp_path / site, tmp_path / f"copy-{site}")
        run.ask("q0", identity(2, 4))
        run._journals[site] = kind(copy, terms, site)
        run.start("pg")
        if guarantee == "allowance" or site == "q0":
            with pytest.raises(pv.PrivoteError):
                run.ask("q0", identity(2, 4, int(site == "pg")))
        assert sum(entry["kind"] == "commit" for entry in run.ledger.published()) == 1

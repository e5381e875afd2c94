"""Journals survive a crash at any step, and let nobody go on from what is not there any more."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tests.capc.coalitions import identity, simulation, terms_of
from tests.refusals import refused

import privote as pv
from privote.capc.charges import COMMITTED, RESERVED, UNKNOWN
from privote.capc.journal import DECIDED, GRANTED, STORED, GuardianJournal, QuerierJournal
from privote.errors import InputError, LedgerError, PeerError

A, B, R, S = "a" * 64, "b" * 64, "0" * 32, "1" * 32
TERMS = terms_of(guarantee="allowance", epsilon=40.0)
PAD = np.array([[1, -1], [2**63 - 1, 0]], np.int64)


def guardians(folder: Path) -> GuardianJournal:
    return GuardianJournal(folder / "pg.journal", TERMS, "pg")


def test_a_decision_counts_when_it_is_committed(tmp_path: Path) -> None:
    guardians(tmp_path).reserve(A, "q", 2, {"p": 9, "r": 9})
    assert guardians(tmp_path).decide(A, R, {"p": -7}, PAD) == 1
    assert guardians(tmp_path).half("q") == {"p": 9, "r": 9}
    assert guardians(tmp_path).state(A) == RESERVED
    for _ in range(2):  # asked again, it is the same
        guardians(tmp_path).commit("q", R)
        journal = guardians(tmp_path)
        assert (journal.state(A), journal.state(B)) == (COMMITTED, UNKNOWN)
        assert journal.half("q") == {"p": 2**64 - 7, "r": 9}
        journal.check_version("q", 1)
        np.testing.assert_array_equal(journal.decision("q", R), PAD)
        assert journal.decision("other", R) is None
    with refused(None, PeerError):
        guardians(tmp_path).decide(A, S, {}, PAD)  # never again


def test_a_decision_that_was_not_committed_is_forgotten_by_the_next(tmp_path: Path) -> None:
    journal = guardians(tmp_path)
    journal.reserve(A, "q", 2, {"p": 9})
    journal.reserve(B, "q", 2, {"p": 9})
    journal.decide(A, R, {"p": 1}, PAD)
    assert journal.decide(B, S, {"p": 2}, PAD) == 1
    assert journal.decision("q", R) is None
    journal.commit("q", R)
    assert (journal.state(A), journal.half("q")) == (RESERVED, {"p": 9})
    for querier, queries in (("other", 2), ("q", 3)):
        with refused(None, PeerError):
            journal.reserve(A, querier, queries, {})


def test_labels_and_halves_are_stored_together(tmp_path: Path) -> None:
    def journal() -> QuerierJournal:
        return QuerierJournal(tmp_path / "q.db", TERMS, "q")

    rows = identity(2, 4)
    batch = journal().digest(rows, TERMS)
    assert batch == journal().digest(rows.copy(), TERMS)
    assert batch != journal().digest(rows[::-1], TERMS)
    assert batch != QuerierJournal(":memory:", TERMS, "q").digest(rows, TERMS), "it is keyed"
    journal().enter(batch, GRANTED)
    journal().decided(batch, R, 1, {"p": 5}, {"some": "facts"}, PAD)
    assert (journal().phase(batch), journal().version(), journal().half()) == (DECIDED, 0, {})
    ((found, run, share),) = journal().unsettled()
    assert (found, run) == (batch, R)
    np.testing.assert_array_equal(share, PAD)
    labels = np.array([[1, 0], [-1, 1]], np.int8)
    journal().store(batch, labels)
    assert (journal().phase(batch), journal().version(), journal().half()) == (STORED, 1, {"p": 5})
    facts, kept = journal().stored(batch)
    assert facts == {"some": "facts"}
    np.testing.assert_array_equal(kept, labels)
    with refused("batch"):
        journal().stored(A)


def test_a_journal_belongs_to_one_promise_and_site(tmp_path: Path) -> None:
    guardians(tmp_path).close()
    for terms, owner in ((terms_of(), "pg"), (TERMS, "another")):
        with refused(None, InputError):
            GuardianJournal(tmp_path / "pg.journal", terms, owner)
    with refused(None, InputError):
        QuerierJournal(tmp_path / "pg.journal", TERMS, "pg")
    with closing(sqlite3.connect(tmp_path / "pg.journal")) as file, file:
        file.execute("UPDATE facts SET value = '3' WHERE name = 'format'")
    with refused(None, LedgerError):
        guardians(tmp_path)
    (tmp_path / "text").write_text("not a database, but long enough to look like one" * 30)
    with refused(None, LedgerError):
        GuardianJournal(tmp_path / "text", TERMS, "pg")


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
        shutil.copy(tmp_path / site, tmp_path / "copy")
        run.ask("q0", identity(2, 4))
        shutil.copy(tmp_path / "copy", tmp_path / site)
        run._journals[site] = kind(tmp_path / site, terms, site)
        run.start("pg")
        if site == "q0" or guarantee == "allowance":
            with pytest.raises(pv.PrivoteError):
                run.ask("q0", identity(2, 4) * (3 if site == "pg" else 1))

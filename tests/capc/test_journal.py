"""Journals survive a crash at any step, and let nobody go on from what is not there any more."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.capc.coalitions import Observed, identity, simulation, terms_of
from tests.refusals import refused

import privote as pv
from privote.capc.charges import Charges, Prices
from privote.capc.journal import ABANDONED, CHARGED, DONE, GuardianJournal, Open, QuerierJournal
from privote.capc.messages import GUARDIAN
from privote.capc.terms import Terms
from privote.errors import InputError, LedgerError, PeerError

A, B, C = "a" * 32, "b" * 32, "c" * 32


class Disk:
    """Journals that are opened anew for every step, as after a crash in between."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            journal = GuardianJournal(self.folder / "pg.journal", "promise", "pg")
            try:
                return getattr(journal, name)(*args, **more)
            finally:
                journal.close()

        return call


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_a_decision_is_entered_once(disk: Disk) -> None:
    disk.open(A, "q", "n1", 5)
    disk.posterior(A, {}, {})
    for again in (A, B):
        with refused(None, PeerError):
            disk.posterior(again, {}, {})
    with pytest.raises(PeerError, match="has version 1, not 2"):
        disk.done(A, 2)
    disk.done(A, 1)
    with refused(None, PeerError):
        disk.done(A, 1)


def test_a_stored_outcome_is_adopted_after_a_crash(disk: Disk) -> None:
    disk.open(A, "q", "n1", 5)
    disk.posterior(A, {"p": 7}, {"p": 10})
    disk.settle("q", 1)
    assert disk.phase(A) == DONE
    assert (disk.version("q"), disk.half("q")) == (1, {"p": 7})
    disk.settle("q", 1)  # nothing more to settle
    assert disk.half("q") == {"p": 7}


def test_a_lost_outcome_costs_all_it_could_have(disk: Disk) -> None:
    disk.open(A, "q", "n1", 5)
    disk.posterior(A, {"p": 7, "r": 1}, {"p": 10, "r": 10})
    disk.done(A, 1)
    disk.open(B, "q", "n2", 5)
    disk.posterior(B, {"p": 99}, {"p": 10})
    disk.settle("q", 1)
    assert disk.phase(B) == ABANDONED
    # The querying party's half is still the one of version 1; who took no part lost nothing.
    assert (disk.version("q"), disk.half("q")) == (1, {"p": 7 - 10 + 2**64, "r": 1})
    disk.open(C, "q", "n3", 5)
    assert disk.posterior(C, {"p": 5}, {"p": 10}) == 3, "a version is given once"
    with pytest.raises(PeerError, match="version 2"):
        disk.settle("q", 2)  # the outcome that was written off comes too late
    disk.settle("q", 3)
    assert disk.half("q") == {"p": 5, "r": 1}


def test_a_version_that_nobody_gave_is_refused(disk: Disk) -> None:
    with refused(None, PeerError):
        disk.settle("q", 4)
    disk.settle("q", 4, counted=False)  # nothing is counted, so nothing can be lost
    assert disk.version("q") == 0


def test_one_batch_at_a_time(disk: Disk) -> None:
    disk.open(A, "q", "n1", 5)
    disk.open(B, "q", "n2", 6)
    assert disk.phase(A) == ABANDONED
    assert disk.open_batch("q") == Open(B, 6, CHARGED)
    disk.open(C, "other", "n2", 1)
    assert disk.phase(B) == CHARGED
    disk.posterior(B, {}, {})
    with refused(None, PeerError):
        disk.open("d" * 32, "q", "n4", 6)


def test_a_failure_inside_a_step_undoes_it(disk: Disk) -> None:
    disk.open(A, "q", "n1", 5)
    with refused(None, LedgerError):
        disk.open(B, "q", "n1", 5)  # the same nonce
    assert disk.phase(A) == CHARGED, "what was abandoned for it is not"
    assert disk.phase(B) is None


def opened(folder: Path, **more: str) -> QuerierJournal:
    facts = {"promise": "promise", "owner": "q"} | more
    return QuerierJournal(folder / "q.journal", **facts)


def test_an_outcome_is_stored_once_and_only_for_the_batch_being_asked(tmp_path: Path) -> None:
    labels = np.zeros((2, 3), np.int8)
    journal, late = opened(tmp_path), opened(tmp_path)
    journal.begin(A, 2)
    journal.begin(B, 2)  # the first was given up
    for batch, version in ((A, 1), (B, 0)):
        with refused(None, PeerError):
            late.store(batch, version, labels, {"p": 1}, {})
    journal.store(B, 2, labels, {"p": 1}, {})
    with refused(None, PeerError):
        late.store(B, 3, labels, {"p": 2}, {})
    assert journal.half() == {"p": 1}
    with refused("batch"):
        journal.labels(A)


def test_a_journal_belongs_to_one_promise_and_site(tmp_path: Path) -> None:
    opened(tmp_path).close()
    for more in ({"promise": "another"}, {"owner": "another"}):
        with pytest.raises(InputError, match=f"another {next(iter(more))}"):
            opened(tmp_path, **more)
    with pytest.raises(LedgerError, match="is a database, but not a guardian's journal"):
        GuardianJournal(tmp_path / "q.journal", "promise", "q")
    (tmp_path / "text").write_text("not a database, but long enough to look like one" * 30)
    with refused(None, LedgerError):
        GuardianJournal(tmp_path / "text", "promise", "q")


Q = 3
PG = ("pg", GUARDIAN)


@pytest.fixture
def terms() -> Terms:
    return terms_of(pv.BinaryVoting(sigma=4.0), guarantee="allowance", epsilon=40.0, features=Q)


def ask(run: Observed) -> Any:
    return run.ask("q0", identity(Q, Q))


def test_a_deleted_journal_does_not_give_the_allowance_again(terms: Terms) -> None:
    """Both sides lost their counts; the ledger knows that the allowance was charged."""
    run = simulation(terms, np.ones((Q, 3, 2)))
    ask(run)
    run.kill(PG)
    run._journals.clear()
    run.start(PG)
    with refused(None, LedgerError):
        ask(run)
    (complaint,) = run.complaints[PG]
    assert "another journal" in str(complaint)


def test_an_allowance_other_than_the_charged_one_is_refused(
    terms: Terms, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = pv.Ledger.in_memory()
    charges = Charges(terms, ledger)
    charges.take("q0", 1, "a" * 32)
    real = Prices.allowance
    monkeypatch.setattr(Prices, "allowance", lambda *given: real(*given) + 1)
    with refused(None, LedgerError):
        charges.take("q0", 1, "b" * 32)


@pytest.mark.parametrize("guarantee", ["allowance", "worst-case"])
def test_a_guardians_journal_put_back_decides_nothing_twice(
    guarantee: str, terms: Terms, tmp_path: Path
) -> None:
    """The decision got out and was lost; the journal put back says it was only charged."""
    run = simulation(replace(terms, guarantee=guarantee), np.ones((Q, 3, 2)))

    def put(file: Path) -> None:
        run.kill(PG)
        run._journals["pg"] = GuardianJournal(file, run.terms.promise(), "pg")
        run.start(PG)

    real = GuardianJournal.posterior

    def copied(self: GuardianJournal, *given: Any) -> int:
        self._run("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copy(self.path, tmp_path / "copy")
        return real(self, *given)

    def lost(*_: Any) -> None:
        raise PeerError("it dies with the labels in its memory")

    put(tmp_path / "pg.journal")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GuardianJournal, "posterior", copied)
        patch.setattr(QuerierJournal, "store", lost)
        with refused(None, PeerError):
            ask(run)
    put(tmp_path / "copy")
    with pytest.raises(PeerError, match="was offered before"):
        ask(run)
    assert run.journal("q0").batches() == []


def test_a_charge_is_resumed_once_by_two_guardians(tmp_path: Path) -> None:
    """Both found the batch open; while one slept, the other resumed and decided it."""
    one, two = (GuardianJournal(tmp_path / "pg.journal", "promise", "pg") for _ in range(2))
    one.open("a" * 32, "q", "n1", 5)
    assert one.open_batch("q") == two.open_batch("q")
    one.open("b" * 32, "q", "n2", 5, resumed="a" * 32)
    one.posterior("b" * 32, {}, {})
    one.done("b" * 32, 1)
    with refused(None, PeerError):
        two.open("c" * 32, "q", "n3", 5, resumed="a" * 32)
    assert two.phase("c" * 32) is None


def test_a_batch_that_was_being_decided_is_not_pending() -> None:
    journal = QuerierJournal(":memory:", "promise", "q")
    journal.begin("a" * 32, 5)
    assert journal.pending() == ("a" * 32, 5)
    journal.posterior("a" * 32, 1)
    assert journal.pending() is None
    with refused(None, PeerError):
        journal.posterior("b" * 32, 2)
    journal.begin("b" * 32, 5)
    with pytest.raises(PeerError, match=r"version 1 .*was offered before"):
        journal.posterior("b" * 32, 1)

"""Journals that were deleted, copied or put back: an allowance is never counted from its start."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.capc.coalitions import Observed, identity, models_for, terms_of

import privote as pv
from privote.capc.charges import Charges, Prices
from privote.capc.journal import GuardianJournal, QuerierJournal
from privote.capc.messages import GUARDIAN, QUERYING
from privote.capc.roles import Computed
from privote.capc.terms import Terms
from privote.errors import LedgerError, PeerError

Q = 3


@pytest.fixture
def terms() -> Terms:
    return terms_of(pv.BinaryVoting(sigma=4.0), guarantee="allowance", epsilon=40.0, features=Q)


def run_on(
    terms: Terms, folder: Path, ledger: pv.Ledger, kind: type[Observed] = Observed
) -> Observed:
    ballots = np.ones((Q, 3, 2), np.int64)
    return kind(terms, models_for(terms, ballots), seed=1, folder=folder, ledger=ledger)


def ask(run: Observed) -> Any:
    return run.ask("q0", identity(Q, Q))


def close(run: Observed) -> None:
    for journal in run._journals.values():
        journal.close()


def remove(folder: Path, *names: str) -> None:
    for name in names:
        for file in folder.glob(f"{name}.journal*"):
            file.unlink()


class LosesDecisions(Observed):
    """The querying party dies with the labels in its memory, before it stores them."""

    def _give(self, seat: Any, event: Any) -> None:
        if (
            seat[1] == QUERYING
            and isinstance(event, Computed)
            and event.session.endswith("decision")
        ):
            self.kill(seat)
            return
        super()._give(seat, event)


def test_a_deleted_journal_does_not_give_the_allowance_again(terms: Terms, tmp_path: Path) -> None:
    """Both sides lost their counts; the ledger knows that the allowance was charged."""
    ledger = pv.Ledger.in_memory()
    run = run_on(terms, tmp_path, ledger)
    ask(run)
    close(run)
    remove(tmp_path, "pg", "q0")
    again = run_on(terms, tmp_path, ledger)
    with pytest.raises(LedgerError):
        ask(again)
    (complaint,) = again.complaints["pg", GUARDIAN]
    assert "another journal" in str(complaint)


def test_a_deleted_journal_without_counts_is_begun_anew(terms: Terms, tmp_path: Path) -> None:
    """In the worst case the ledger alone says what was spent: each batch is charged for itself."""
    terms, ledger = replace(terms, guarantee="worst-case", epsilon=1000.0), pv.Ledger.in_memory()
    run = run_on(terms, tmp_path, ledger)
    ask(run)
    close(run)
    remove(tmp_path, "pg")
    again = run_on(terms, tmp_path, ledger)
    assert not ask(again).resumed
    assert len(again.journal("q0").batches()) == 2
    assert sum(entry["kind"] == "charge" for entry in ledger.published()) == 2 * 3


def test_two_journals_do_not_share_one_charge(terms: Terms) -> None:
    ledger = pv.Ledger.in_memory()
    journals = [GuardianJournal(":memory:", terms.promise(), "pg") for _ in range(2)]
    first, second = (Charges(terms, ledger, journal=each.identity) for each in journals)
    first.take("q0", 1, "a" * 32)
    first.take("q0", 1, "b" * 32)
    with pytest.raises(LedgerError, match="another journal"):
        second.take("q0", 1, "c" * 32)


def test_an_allowance_other_than_the_charged_one_is_refused(
    terms: Terms, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = pv.Ledger.in_memory()
    charges = Charges(terms, ledger)
    charges.take("q0", 1, "a" * 32)
    real = Prices.allowance
    monkeypatch.setattr(Prices, "allowance", lambda *given: real(*given) + 1)
    with pytest.raises(LedgerError, match="surprises were charged"):
        charges.take("q0", 1, "b" * 32)


def test_the_allowance_is_the_guardians_word(
    terms: Terms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A querying party that reckons otherwise cannot make more of it than was charged."""
    run = run_on(terms, tmp_path, pv.Ledger.in_memory())
    charged = Prices(terms).allowances("q0")
    monkeypatch.setattr(Prices, "allowance", lambda *_: 10**6)
    monkeypatch.setattr(Charges, "take", lambda *_: None)
    monkeypatch.setattr(Prices, "allowances", lambda *_: charged)
    ask(run)
    ours, theirs = run.journal("q0").half(), run.journal("pg").half("q0")
    for party, allowance in charged.items():
        assert (ours[party] + theirs[party]) % 2**64 == allowance - Q * 2


@pytest.mark.parametrize("guarantee", ["allowance", "worst-case"])
def test_a_guardians_journal_put_back_decides_nothing_twice(
    guarantee: str, terms: Terms, tmp_path: Path
) -> None:
    """The decision got out and was lost; the journal put back says it was only charged."""
    terms = replace(terms, guarantee=guarantee)
    ledger = pv.Ledger.in_memory()
    run = run_on(terms, tmp_path, ledger, LosesDecisions)
    old = tmp_path / "old"
    old.mkdir()
    real = GuardianJournal.deciding

    def copied(self: GuardianJournal, *given: Any) -> int:
        self._run("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copy(tmp_path / "pg.journal", old / "pg.journal")
        return real(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GuardianJournal, "deciding", copied)
        with pytest.raises(PeerError):
            ask(run)
    close(run)
    remove(tmp_path, "pg")
    shutil.copy(old / "pg.journal", tmp_path / "pg.journal")
    again = run_on(terms, tmp_path, ledger)
    with pytest.raises(PeerError, match="was offered before"):
        ask(again)
    assert again.journal("q0").batches() == []


def test_a_charge_is_resumed_once_by_two_guardians(tmp_path: Path) -> None:
    """Both found the batch open; while one slept, the other resumed and decided it."""
    one, two = (GuardianJournal(tmp_path / "pg.journal", "promise", "pg") for _ in range(2))
    one.open("a" * 32, "q", "n1", 5)
    assert one.open_batch("q") == two.open_batch("q")
    one.open("b" * 32, "q", "n2", 5, resumed="a" * 32)
    one.deciding("b" * 32, {}, {})
    one.done("b" * 32, 1)
    with pytest.raises(PeerError, match="not open any more"):
        two.open("c" * 32, "q", "n3", 5, resumed="a" * 32)
    assert two.phase("c" * 32) is None


def test_a_batch_that_was_being_decided_is_not_pending() -> None:
    journal = QuerierJournal(":memory:", "promise", "q")
    journal.begin("a" * 32, 5)
    assert journal.pending() == ("a" * 32, 5)
    journal.deciding("a" * 32, 1)
    assert journal.pending() is None
    with pytest.raises(PeerError, match="not the one being asked"):
        journal.deciding("b" * 32, 2)
    journal.begin("b" * 32, 5)
    with pytest.raises(PeerError, match=r"version 1 .*was offered before"):
        journal.deciding("b" * 32, 1)

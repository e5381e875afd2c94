"""What a coalition's budgets allow is decided on public numbers, charged once, never overspent."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.capc.coalitions import charges_of, terms_of
from tests.refusals import refused

import privote as pv
from privote.capc.charges import Prices
from privote.capc.journal import GuardianJournal

TAU = pv.TauVoting(sigma=4.0, tau=1.3, grid=64)


def charged(ledger: pv.Ledger) -> list[dict[str, Any]]:
    return [entry for entry in ledger.published() if entry["kind"] == "charge"]


def test_every_batch_costs_everybody_but_who_asks_its_worst_case() -> None:
    some = charges_of(terms_of(queriers=("q0", "p0")))
    mechanism = some.terms.mechanism
    for querier, queries, parties in (("q0", 7, ["p0", "p1", "p2"]), ("p0", 1, ["p1", "p2"])):
        before = len(charged(some.ledger))
        some.reserve(querier, queries, f"{querier:a>64}")
        entries = charged(some.ledger)[before:]
        assert [entry["dataset"] for entry in entries] == parties
        for entry in entries:
            scope = some.ledger.state.scopes[entry["dataset"]]
            at = np.searchsorted(pv.DEFAULT_ORDERS, scope.budget.filter.order)
            wanted = queries * mechanism.worst_case_rdp(len(parties), 2)
            assert entry["cost"] == wanted[at]
            assert (entry["consumer"], entry["terms"]["queries"]) == (querier, queries)
        assert some.state(f"{querier:a>64}") == "reserved"
    assert some.ledger.verify().ok


def test_nothing_is_charged_if_one_budget_does_not_allow_it() -> None:
    ledger = pv.Ledger.in_memory()
    one = charges_of(terms_of(parties=4, queriers=("q0", "p0"), epsilon=30.0), ledger)
    with suppress(pv.BudgetError):
        for turn in range(1000):
            one.reserve("p0", 3, f"{turn:064x}")  # all but p0 pay
    before = ledger.published()
    with pytest.raises(pv.BudgetError):
        one.reserve("q0", 3, "a" * 64)
    assert ledger.published() == before
    assert one.state("a" * 64) == "unknown"


def test_a_batch_is_charged_and_committed_once() -> None:
    some = charges_of(terms_of(queriers=("q0", "q1")))
    for _ in range(2):
        some.reserve("q0", 5, "a" * 64)
    assert len(charged(some.ledger)) == 3
    with refused(None, pv.errors.PeerError):
        some.reserve("q1", 5, "a" * 64)
    for _ in range(2):
        some.commit("a" * 64, "digest")
        assert some.state("a" * 64) == "committed"
    assert [entry["kind"] for entry in some.ledger.published()].count("commit") == 1
    some.reserve("q0", 5, "b" * 64)
    (open_run,) = [n for n, run in some.ledger.state.runs.items() if run.status == "open"]
    some.ledger.abandon(open_run)
    with refused(None, pv.BudgetError):
        some.state("b" * 64)
    before = some.ledger.published()
    assert not some.commit("b" * 64, "digest")  # so that the guardian keeps its share
    assert not some.commit("c" * 64, "digest")
    assert some.commit("a" * 64, "digest")
    assert some.ledger.published() == before


@pytest.mark.parametrize("mechanism", [pv.BinaryVoting(sigma=3.0), TAU], ids=["binary", "tau"])
@pytest.mark.parametrize("queriers", [("q0",), ("q0", "q1", "p0"), ("p0", "p1")])
def test_an_allowance_is_split_and_stays_within_the_budget(
    mechanism: pv.Mechanism, queriers: tuple[str, ...]
) -> None:
    terms = terms_of(mechanism, queriers=queriers, guarantee="allowance", epsilon=25.0, labels=3)
    prices, orders = Prices(terms), pv.DEFAULT_ORDERS
    for party in terms.parties:
        askers = [q for q in queriers if q != party]
        each = sum(mechanism.contribution_rdp(len(terms.voters(q)), 3) for q in askers)

        def total(more: int, party: str = party, each: Any = each) -> float:
            return float(pv.epsilon(2 * (prices.allowance(party) + more) * each, orders, 1e-5))

        assert total(0) <= 25.0
        # One more for everybody does not fit; sizes of electorates differ by one at most.
        assert total(1) > 25.0 * (1 - 1e-9) or len({len(terms.voters(q)) for q in askers}) > 1


def test_an_allowance_is_charged_once_for_life(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "guarantee": "allowance",
        "epsilon": 25.0,
        "queriers": ("q0", "q1", "q2"),
    }
    for turn, querier in enumerate(("q0", "q1", "q0", "q2", "q2")):
        ledger = pv.Ledger.open(tmp_path / "ledger.db")
        terms = terms_of(**settings)
        journal = GuardianJournal(tmp_path / "journal", terms, "pg")
        charges_of(terms, ledger, journal).reserve(querier, 100, f"{turn:064x}")
        journal.close()
        ledger.close()
    ledger = pv.Ledger.open(tmp_path / "ledger.db")
    entries = charged(ledger)
    assert len(entries) == 9
    assert {(e["dataset"], e["consumer"]) for e in entries} == {
        (p, q) for p in ("p0", "p1", "p2") for q in ("q0", "q1", "q2")
    }
    for row in ledger.standing():
        assert 0 < row["used"] <= row["epsilon"]
    # Other terms of the promise are another allowance, and there is no room for it.
    with refused(None, pv.BudgetError):
        charges_of(terms_of(**{**settings, "labels": 3}), ledger).reserve("q0", 1, "b" * 64)
    # Terms that the promise does not rest on may change.
    changed = terms_of(**settings, timeout=99.0, most_queries=7)
    charges_of(changed, ledger, journal).reserve("q0", 1, "b" * 64)
    assert charged(ledger) == entries


def test_nobody_else_goes_on_with_a_coalitions_account() -> None:
    some = charges_of(terms_of(guarantee="allowance", epsilon=25.0))
    some.reserve("q0", 1, "a" * 64)
    before = some.ledger.published()
    with pytest.raises(pv.BudgetError):
        pv.label(
            np.ones((2, 1, 2), bool),
            mechanism=some.terms.mechanism,
            epsilon=25.0,
            delta=1e-5,
            ledger=some.ledger,
            dataset="p0",
        )
    assert some.ledger.published() == before


def test_an_allowance_is_counted_in_one_journal_and_stays_as_it_was_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terms = terms_of(guarantee="allowance", epsilon=25.0)
    some = charges_of(terms)
    some.reserve("q0", 1, "a" * 64)
    with refused(None, pv.LedgerError):
        charges_of(terms, some.ledger).reserve("q0", 1, "b" * 64)
    real = Prices.allowance
    monkeypatch.setattr(Prices, "allowance", lambda *of: real(*of) + 1)
    with refused(None, pv.LedgerError):
        some.reserve("q0", 1, "b" * 64)

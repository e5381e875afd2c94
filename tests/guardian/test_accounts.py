"""Accounts: bare curves, several data sets at once, and whose allowance is whose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv
from privote.guardian import Accounts

ORDERS = pv.DEFAULT_ORDERS
SURPRISE = 0.001 * ORDERS
BUDGET = pv.Budget(epsilon=8.0, delta=1e-5).shared()


@pytest.fixture
def ledger() -> pv.Ledger:
    return pv.Ledger.in_memory()


def accounts(ledger: pv.Ledger, **changes: Any) -> Accounts:
    settings: dict[str, Any] = {"ledger": ledger, "budget": BUDGET}
    settings |= {"dataset": "d", "stamp": {"guarantee": "worst-case"}}
    return Accounts(**{**settings, **changes})


def test_a_bare_curve_can_be_charged(ledger: pv.Ledger) -> None:
    own = accounts(ledger)
    own.charge(0.3 * ORDERS, {"what": "counts of a poll"})
    entry = ledger.published()[-1]
    assert entry["what"] == "counts of a poll"
    assert entry["rdp"] == (0.3 * ORDERS).tolist()
    used = ledger.standing()[0]["used"]
    assert used == pytest.approx(pv.epsilon([0.3 * 4], [4.0], 1e-5))
    before = ledger.published()
    with pytest.raises(pv.BudgetError, match=r"data set 'd' \(epsilon=8 at delta=1e-05\)"):
        own.charge(3 * ORDERS)
    assert ledger.published() == before


def test_several_data_sets_are_charged_together_or_not_at_all(ledger: pv.Ledger) -> None:
    large, small = accounts(ledger), accounts(ledger, dataset="e")
    small.charge(1.0 * ORDERS)
    before = ledger.published()

    def both() -> None:
        with ledger.writing() as totals:
            large.charge(0.5 * ORDERS, totals=totals)
            small.charge(0.5 * ORDERS, totals=totals)

    with pytest.raises(pv.BudgetError, match="budget of data set 'e'"):
        both()
    assert ledger.published() == before
    large.charge(0.5 * ORDERS)


def test_nobody_goes_on_with_an_account_of_another_making(ledger: pv.Ledger) -> None:
    own, one = accounts(ledger), {"voters": 1, "labels": 2}
    with ledger.writing() as totals:
        own.authorise(totals)
        own.open_as(totals, "a coalition's", SURPRISE, np.array([4]), one)
    assert own.open(lambda: SURPRISE, np.array([4]), one).account != "a coalition's"
    charges = [entry for entry in ledger.published() if entry["kind"] == "charge"]
    assert len(charges) == 2


def test_nothing_to_say_is_no_allowance(ledger: pv.Ledger) -> None:
    with refused(None, pv.BudgetError):
        accounts(ledger).open(lambda: SURPRISE, np.array([0, 0]), {"voters": 2, "labels": 2})
    with refused(None, pv.BudgetError):
        accounts(ledger).open(lambda: 100 * ORDERS, None, {"voters": 2, "labels": 2})
    assert ledger.published() == []

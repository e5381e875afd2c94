"""Accounts: bare curves, several data sets at once, and whose allowance is whose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv
from privote.guardian import Accounts

ORDERS = pv.DEFAULT_ORDERS
CONTRIBUTION = 0.001 * ORDERS
BUDGET = pv.Budget(epsilon=8.0, delta=1e-5).shared()


@pytest.fixture
def ledger() -> pv.Ledger:
    return pv.Ledger.in_memory()


def accounts(ledger: pv.Ledger, **changes: Any) -> Accounts:
    settings: dict[str, Any] = {"ledger": ledger, "budget": BUDGET}
    settings |= {"dataset": "d", "stamp": {"guarantee": "worst-case"}}
    return Accounts(**{**settings, **changes})


def test_a_bare_curve_can_be_charged(ledger: pv.Ledger) -> None:
    small = pv.Budget(epsilon=4.0, delta=1e-5)
    ledger.set_budget(BUDGET, dataset="d")
    own = accounts(ledger, budget=small)
    own.charge(0.3 * ORDERS, {"what": "counts of a poll"})
    entry = ledger.published()[-1]
    assert entry["what"] == "counts of a poll"
    assert entry["asked"] == [4.0, 1e-5]
    assert entry["rdp"] == (0.3 * ORDERS).tolist()
    before = ledger.published()
    with refused(None, pv.BudgetError):
        own.charge(3 * ORDERS)
    assert ledger.published() == before
    own.charge(0.3 * ORDERS)
    used = ledger.standing()[0]["used"]
    assert used == pytest.approx(pv.epsilon([0.6 * 4], [4.0], 1e-5))


def test_nobody_goes_on_with_an_account_of_another_making(ledger: pv.Ledger) -> None:
    own, one = accounts(ledger), {"voters": 1, "labels": 2}
    half = accounts(ledger, budget=pv.Budget(epsilon=4.0, delta=1e-5))
    with ledger.writing() as totals:
        own.authorise(totals)
        own.open_as(totals, "a coalition's", CONTRIBUTION, np.array([4]), one)
    assert half.open(lambda: CONTRIBUTION, np.array([4]), one).account != "a coalition's"
    charges = [entry for entry in ledger.published() if entry["kind"] == "charge"]
    assert len(charges) == 2


def test_nothing_to_say_is_no_allowance(ledger: pv.Ledger) -> None:
    with refused(None, pv.BudgetError):
        accounts(ledger).open(lambda: CONTRIBUTION, np.array([0, 0]), {"voters": 2, "labels": 2})
    with refused(None, pv.BudgetError):
        accounts(ledger).open(lambda: 100 * ORDERS, None, {"voters": 2, "labels": 2})
    assert ledger.published() == []

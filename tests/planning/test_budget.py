from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refused

import privote as pv
from privote import planning
from privote.accounting.allowance import largest_count

DELTA = 1e-5


def binary(sigma: float) -> pv.Mechanism:
    return pv.BinaryVoting(sigma=sigma)


def test_queries_are_what_a_release_answers() -> None:
    # ACCOUNTING section 4: tmc2007's size (50 voters, 22 labels) at epsilon 20, worst case.
    expected = {7.0: 18, 9.0: 31, 12.0: 55, 20.0: 153}
    for sigma, queries in expected.items():
        assert planning.queries_for(binary(sigma), 50, 22, 20.0, DELTA) == queries


def test_allowance_is_what_an_electorate_gives() -> None:
    for mechanism in (binary(7.0), pv.PowersetVoting(sigma=7.0)):
        electorate = pv.Electorate(
            mechanism=mechanism, voters=20, labels=3, epsilon=8.0, delta=DELTA
        )
        assert planning.allowance_for(mechanism, 20, 3, 8.0, DELTA) == electorate.allowance


def test_nothing_fits_a_tiny_budget() -> None:
    assert planning.queries_for(binary(1.0), 20, 3, 0.01, DELTA) == 0
    assert planning.allowance_for(binary(1.0), 20, 3, 0.01, DELTA) == 0


@given(
    sigma=st.floats(0.5, 200),
    more=st.floats(1.0, 3.0),
    voters=st.integers(1, 80),
    labels=st.integers(1, 30),
    epsilon=st.floats(0.1, 30),
)
def test_more_noise_or_budget_never_buys_less(
    sigma: float, more: float, voters: int, labels: int, epsilon: float
) -> None:
    for count in (planning.queries_for, planning.allowance_for):
        here = count(binary(sigma), voters, labels, epsilon, DELTA)
        assert count(binary(sigma * more), voters, labels, epsilon, DELTA) >= here
        assert count(binary(sigma), voters, labels, epsilon * more, DELTA) >= here


def test_queries_until_out() -> None:
    assert planning.queries_until_out(binary(7.0), 10, 46, 2.0) == 23
    assert planning.queries_until_out(pv.PowersetVoting(sigma=7.0), 10, 46, 0.5) == 92


@pytest.mark.parametrize(
    ("mechanism", "surprises"),
    [(binary(7.0), 11), (pv.TauVoting(sigma=7.0, tau=1.0), 2), (binary(7.0), 0)],
)
def test_impossible_surprises(mechanism: pv.Mechanism, surprises: float) -> None:
    with refused("surprises_per_query"):
        planning.queries_until_out(mechanism, 10, 46, surprises)


@pytest.mark.parametrize(
    "mechanism",
    [
        binary(7.0),
        pv.TauVoting(sigma=9.0, tau=1.8),
        pv.PowersetVoting(sigma=4.0),
        pv.PluralityVoting(sigma=8.0),
        pv.BinaryVoting(sigma=7.0, gate=pv.Gate(threshold=40, sigma=9)),
    ],
)
def test_a_unanimous_label_is_missed_as_often_as_said(mechanism: pv.Mechanism) -> None:
    votes = np.zeros((4000, 20, 3), bool)
    votes[:, :, 0] = True
    missed = 1 - (mechanism.release(votes, seed=0)[:, 0] == 1).mean()
    if mechanism.name == "powerset":
        released = mechanism.release(votes, seed=0)
        missed = 1 - (released == [1, 0, 0]).all(axis=1).mean()
    stated = planning.unanimous_miss(mechanism, 20, 3)
    assert abs(missed - stated) < 4 * np.sqrt(stated * (1 - stated) / 4000) + 1e-9


def test_counts_agree_with_the_accountant() -> None:
    mechanism = pv.TauVoting(sigma=9.0, tau=1.8)
    curve = mechanism.worst_case_rdp(30, 5)
    assert planning.queries_for(mechanism, 30, 5, 4.0, DELTA) == largest_count(
        curve, pv.DEFAULT_ORDERS, 4.0, DELTA
    )


@pytest.mark.parametrize(
    "mechanism",
    [binary(7.0), pv.BinaryVoting(link=pv.OptimalLink(cost=0.05, order=4.0))],
    ids=str,
)
def test_a_shared_budget_is_counted_as_a_ledger_counts_it(
    mechanism: pv.Mechanism, tmp_path: Path
) -> None:
    size = {"voters": 20, "labels": 3, "epsilon": 8.0, "delta": DELTA}
    votes = np.zeros((500, 20, 3), bool)
    run = {"mechanism": mechanism, "epsilon": 8.0, "delta": DELTA, "seed": 0}
    worst = pv.label(votes, guarantee="worst-case", ledger=tmp_path / "worst.db", **run)
    allowed = pv.label(votes, guarantee="allowance", ledger=tmp_path / "allowance.db", **run)
    assert planning.queries_for(mechanism, **size, rule="shared") == worst.answered
    assert planning.allowance_for(mechanism, **size, rule="shared") == allowed.allowance
    with refused("rule"):
        planning.queries_for(mechanism, **size, rule="fair")

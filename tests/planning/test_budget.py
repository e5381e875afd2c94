"""What a budget buys, and the noise that a wish needs: as real releases have it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refused

import privote as pv
from privote import planning

DELTA = 1e-5
GATE = pv.Gate(threshold=15, sigma=30)


def binary(sigma: float) -> pv.Mechanism:
    return pv.BinaryVoting(sigma=sigma)


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


def test_a_ledger_lets_a_run_have_what_is_planned(tmp_path: Path) -> None:
    mechanism = binary(7.0)
    size = {"voters": 20, "labels": 3, "epsilon": 8.0, "delta": DELTA}
    votes = np.zeros((500, 20, 3), bool)
    run = {"mechanism": mechanism, "epsilon": 8.0, "delta": DELTA, "seed": 0}
    worst = pv.label(votes, guarantee="worst-case", ledger=tmp_path / "worst.db", **run)
    allowed = pv.label(votes, guarantee="allowance", ledger=tmp_path / "allowance.db", **run)
    assert planning.queries_for(mechanism, **size) == worst.answered
    assert planning.allowance_for(mechanism, **size) == allowed.guarantee.allowance


# -- sigma -----------------------------------------------------------------------------------------


@given(
    wanted=st.integers(1, 5000),
    epsilon=st.floats(0.05, 50),
    delta=st.sampled_from([1e-9, 1e-5, 1e-2]),
)
def test_sigma_is_enough_and_a_little_less_is_not(
    wanted: int, epsilon: float, delta: float
) -> None:
    sigma = planning.sigma_for(binary, 50, 10, epsilon, delta, wanted)
    assert planning.queries_for(binary(sigma), 50, 10, epsilon, delta) >= wanted
    assert planning.queries_for(binary(0.998 * sigma), 50, 10, epsilon, delta) < wanted


@pytest.mark.parametrize(
    "make",
    [
        lambda s: pv.TauVoting(sigma=s, tau=1.8),
        lambda s: pv.PowersetVoting(sigma=s),
        lambda s: pv.BinaryVoting(sigma=s, gate=GATE),
    ],
)
def test_sigma_for_every_mechanism(make: object) -> None:
    assert callable(make)
    size = 20, 4, 8.0, DELTA
    sigma = planning.sigma_for(make, *size, 40)
    few, enough = (planning.queries_for(make(part * sigma), *size) for part in (0.998, 1.0))
    assert few < 40 <= enough


def test_what_cannot_be_bought_is_refused() -> None:
    for wanted in (0, True):
        with refused("wanted"):
            planning.sigma_for(binary, 50, 10, 8.0, DELTA, wanted)
    with refused(None, pv.BudgetError):
        planning.sigma_for(binary, 50, 10, 1e-7, 1e-12, 100)

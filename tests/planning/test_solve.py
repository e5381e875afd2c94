from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

import privote as pv
from privote import planning
from privote.planning.solve import FewOrders

DELTA = 1e-5


def binary(sigma: float) -> pv.Mechanism:
    return pv.BinaryVoting(sigma=sigma)


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
        lambda s: pv.BinaryVoting(sigma=s, gate=pv.Gate(threshold=15, sigma=30)),
    ],
)
def test_sigma_for_every_mechanism(make: object) -> None:
    assert callable(make)
    sigma = planning.sigma_for(make, 20, 4, 8.0, DELTA, 40)
    assert fit(make(sigma), 20, 4) >= 40
    assert fit(make(0.998 * sigma), 20, 4) < 40


@pytest.mark.parametrize("surprises", [0.3, 1.0, 2.4])
def test_sigma_under_the_allowance(surprises: float) -> None:
    options = {"guarantee": "allowance", "surprises_per_query": surprises}
    sigma = planning.sigma_for(binary, 50, 10, 8.0, DELTA, 100, **options)  # type: ignore[arg-type]

    def lasts(sigma: float) -> int:
        allowance = planning.allowance_for(binary(sigma), 50, 10, 8.0, DELTA)
        return planning.queries_until_out(binary(sigma), 10, allowance, surprises)

    assert lasts(sigma) >= 100
    assert lasts(0.98 * sigma) < 100


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wanted": 0}, "wanted must be an integer of at least 1, got 0"),
        ({"wanted": True}, "wanted must be an integer"),
        ({"guarantee": "hope"}, "guarantee must be worst-case or allowance, got 'hope'"),
        ({"guarantee": "allowance"}, "surprises_per_query goes with"),
        ({"surprises_per_query": 1.0}, "surprises_per_query goes with"),
        ({"epsilon": 0.0}, "epsilon must be finite and positive"),
        ({"delta": 1.0}, "delta must lie strictly"),
    ],
)
def test_bad_arguments(change: dict[str, object], message: str) -> None:
    good = {"voters": 50, "labels": 10, "epsilon": 8.0, "delta": DELTA, "wanted": 5}
    with pytest.raises(pv.InputError, match=message):
        planning.sigma_for(binary, **{**good, **change})  # type: ignore[arg-type]


def test_a_budget_beyond_reach_is_refused() -> None:
    with pytest.raises(pv.BudgetError, match="no sigma"):
        planning.sigma_for(binary, 50, 10, 1e-7, 1e-12, 100)


def fit(mechanism: pv.Mechanism, voters: int, labels: int) -> int:
    """Return `queries_for`, from as few orders as it takes."""
    few = FewOrders(8.0, DELTA)
    return few.largest(lambda orders: mechanism.worst_case_rdp(voters, labels, orders))


def tau(value: float, sigma: float = 9.0, norm: int = 2) -> pv.TauVoting:
    return pv.TauVoting(sigma=sigma, tau=value, norm=norm)


@cache
def solved(wanted: int, norm: int = 2) -> float:
    return planning.tau_for(lambda t: tau(t, norm=norm), 50, 4, 8.0, DELTA, wanted)


@pytest.mark.parametrize(("wanted", "norm"), [(60, 2), (60, 1)])
def test_tau_fits_and_a_little_more_does_not(wanted: int, norm: int) -> None:
    found = solved(wanted, norm=norm)
    assert 0.5 < found < 4 ** (1 / norm)
    assert fit(tau(found, norm=norm), 50, 4) >= wanted
    assert fit(tau(1.002 * found, norm=norm), 50, 4) < wanted


def test_more_queries_need_a_smaller_tau() -> None:
    assert 2.0 == solved(10) > solved(60)


def test_tau_under_the_allowance() -> None:
    options = {"guarantee": "allowance", "surprises_per_query": 0.5}
    found = planning.tau_for(tau, 50, 2, 8.0, DELTA, 80, **options)  # type: ignore[arg-type]

    assert 0.5 < found < 2**0.5
    # 80 queries at half a ballot each: 40 ballots, each paid for twice.
    assert fit(tau(found), 50, 2) >= 2 * 40
    assert fit(tau(1.002 * found), 50, 2) < 2 * 40


@pytest.mark.parametrize(("norm", "whole"), [(2, 2.0), (1, 4.0)])
def test_tau_is_the_whole_norm_if_nothing_needs_clipping(norm: int, whole: float) -> None:
    assert planning.tau_for(lambda t: tau(t, 30.0, norm), 50, 4, 8.0, DELTA, 5) == whole


def test_a_tau_at_which_no_label_can_win_is_refused() -> None:
    with pytest.raises(pv.BudgetError, match=r"no tau from 0\.5 is small enough"):
        planning.tau_for(tau, 50, 8, 1.0, DELTA, 5000)


def test_tau_is_solved_for_tau_voting_only() -> None:
    with pytest.raises(pv.InputError, match="make must return a mechanism with a tau"):
        planning.tau_for(binary, 50, 8, 8.0, DELTA, 5)  # type: ignore[arg-type]

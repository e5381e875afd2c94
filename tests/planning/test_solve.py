from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refused

import privote as pv
from privote import planning
from privote.planning import FewOrders

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
    ("change", "argument"),
    [
        ({"wanted": 0}, "wanted"),
        ({"wanted": True}, "wanted"),
        ({"guarantee": "hope"}, "guarantee"),
        ({"guarantee": "allowance"}, "surprises_per_query"),
        ({"surprises_per_query": 1.0}, "surprises_per_query"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
    ],
)
def test_bad_arguments(change: dict[str, object], argument: str) -> None:
    good = {"voters": 50, "labels": 10, "epsilon": 8.0, "delta": DELTA, "wanted": 5}
    with refused(argument):
        planning.sigma_for(binary, **{**good, **change})  # type: ignore[arg-type]


def test_a_budget_beyond_reach_is_refused() -> None:
    with refused(None, pv.BudgetError):
        planning.sigma_for(binary, 50, 10, 1e-7, 1e-12, 100)


def fit(mechanism: pv.Mechanism, voters: int, labels: int) -> int:
    """Return `queries_for`, from as few orders as it takes."""
    few = FewOrders(8.0, DELTA)
    return few.largest(lambda orders: mechanism.worst_case_rdp(voters, labels, orders))

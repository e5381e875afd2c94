"""How neighbours are asked follows public numbers: they last, and more budget buys more."""

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv
from privote.learning.neighbours.labelling import AIM, can_balance, plan_neighbours
from privote.planning import allowance_for

DELTA = 1e-5


def pace(plan, voters, labels):
    """Votes an average record casts, if every label gets AIM times the bar."""
    bar = plan.mechanism.sigma / np.sqrt(2) * 1.6448536  # a false alarm of 0.05
    return labels * AIM * bar / voters


@pytest.mark.parametrize("epsilon", [2.0, 8.0])
def test_an_allowance_lasts_for_twice_what_an_average_record_casts(epsilon):
    voters, labels, rows = 20_000, 22, 4000
    plan = plan_neighbours(voters, labels, rows, epsilon, DELTA)
    there = allowance_for(plan.mechanism, voters, labels, epsilon, DELTA)
    needed = plan.answers * pace(plan, voters, labels)
    assert there / needed == pytest.approx(2.0, rel=0.05)
    assert plan.queries == rows
    assert plan.first == 400


def test_a_larger_budget_buys_more_passes_narrower_circles_and_less_noise():
    small, large = (plan_neighbours(20_000, 22, 4000, epsilon, DELTA) for epsilon in (2.0, 8.0))
    assert large.passes > small.passes
    assert large.share < small.share
    assert large.mechanism.sigma < small.mechanism.sigma


def test_too_many_rows_for_so_few_voters_are_not_all_asked():
    plan = plan_neighbours(2500, 20, 20_000, 2.0, DELTA)
    assert plan.passes == 1
    assert plan.share == pytest.approx(0.1, rel=0.02)
    assert 20 <= plan.queries < 20_000
    there = allowance_for(plan.mechanism, 2500, 20, 2.0, DELTA)
    assert plan.queries * pace(plan, 2500, 20) <= there
    asked = plan_neighbours(2500, 20, 20_000, 2.0, DELTA, queries=500)
    assert asked.queries == 500
    assert asked.passes >= 1


def test_a_mechanism_that_is_given_stays_and_decides_on_passes():
    few, many = (
        plan_neighbours(
            20_000, 22, 4000, 8.0, DELTA, mechanism=pv.BinaryVoting(sigma=sigma, false_alarm=0.1)
        )
        for sigma in (5.0, 25.0)
    )
    assert (few.mechanism.sigma, many.mechanism.sigma) == (5.0, 25.0)
    assert many.passes > few.passes
    assert many.passes <= 8


def test_the_smallest_electorates_have_a_plan():
    plan = plan_neighbours(30, 1, 5, 1.0, DELTA)
    assert allowance_for(plan.mechanism, 30, 1, 1.0, DELTA) >= 1
    assert 1 <= plan.first <= plan.queries <= 5
    assert 0 < plan.share <= 1


def test_rounded_shares_are_a_factor_of_two_apart_and_never_empty():
    plan = plan_neighbours(20_000, 22, 4000, 8.0, DELTA)
    shares = np.geomspace(1e-6, 0.25, 50)
    found = plan.rounded(shares, 4000)
    assert 4 / 4000 <= found.min() < 6 / 4000
    steps = np.log2(found / plan.share)
    assert np.allclose(steps, np.round(steps))
    wide = shares > found.min()
    assert (np.abs(np.log2(found[wide] / shares[wide])) <= 0.5 + 1e-9).all()


@pytest.mark.parametrize(
    ("mechanism", "guarantee", "wanted"),
    [
        (None, "allowance", True),
        (None, "worst-case", False),
        (pv.BinaryVoting(sigma=5.0, false_alarm=0.1), "allowance", True),
        (pv.BinaryVoting(sigma=5.0, quota=0.01), "allowance", True),
        (pv.BinaryVoting(sigma=5.0), "allowance", False),
        (pv.BinaryVoting(sigma=5.0, quota=0.6), "allowance", False),
        (pv.BinaryVoting(link=pv.OptimalLink(cost=0.1, order=4.0)), "allowance", False),
        (pv.TauVoting(sigma=5.0, tau=1.0), "allowance", False),
    ],
)
def test_who_can_be_asked_in_passes(mechanism, guarantee, wanted):
    assert can_balance(mechanism, guarantee, 1000) is wanted


def test_queries_beyond_the_pool_are_refused():
    with refused("queries"):
        plan_neighbours(1000, 3, 50, 8.0, DELTA, queries=51)

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import privote as pv
from privote import calibrate
from privote.accounting import ptr
from privote.accounting.renyi import check_orders
from privote.ballots import Ballots
from privote.calibrate.answers import Answers, _last, answers
from privote.calibrate.orders import FewOrders
from privote.calibrate.sample import Sample
from privote.guardian.consensus import Levels

DELTA = 1e-5


def votes_of(queries: int, voters: int = 20, labels: int = 3, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    truth = rng.random((queries, 1, labels)) < 0.3
    return truth ^ (rng.random((queries, voters, labels)) < 0.1)


def counter(guarantee: str, votes: Any, mechanism: pv.Mechanism, epsilon: float) -> Answers:
    ballots = Ballots.of(votes)
    guess = np.zeros((ballots.queries, ballots.labels), bool)
    sample = Sample(ballots=ballots, guess=guess if guarantee == "allowance" else None)
    return answers(guarantee, sample, mechanism, epsilon, DELTA)


@pytest.mark.parametrize(
    "mechanism",
    [pv.BinaryVoting(sigma=5.0), pv.TauVoting(sigma=5.0, tau=1.2)],
    ids=str,
)
def test_under_an_allowance_nobody_has_run_out_until_then(mechanism: pv.Mechanism) -> None:
    votes = votes_of(60)
    queries, allowance = counter("allowance", votes, mechanism, 8.0).count(mechanism)
    assert 0 < queries < 60
    for more, everybody in ((0, True), (1, False)):
        some = votes[: queries + more]
        release = pv.label(some, mechanism=mechanism, epsilon=8.0, delta=DELTA, seed=0)
        assert release.allowance == allowance
        wished = some.sum() if mechanism.surprise_unit == "vote" else some.any(axis=2).sum()
        assert (release.sealed.spent.sum() == wished) == everybody


def test_a_baseline_that_agrees_costs_nothing() -> None:
    votes = votes_of(60)
    mechanism = pv.BinaryVoting(sigma=5.0)
    guess = votes.mean(axis=1) > 0.5
    sample = Sample(ballots=Ballots.of(votes), guess=guess)
    busiest = (votes != guess[:, None]).sum(axis=2).cumsum(axis=0).max(axis=1)
    assert (sample.busiest(mechanism) == busiest).all()
    blind = counter("allowance", votes, mechanism, 8.0).count(mechanism)
    assert answers("allowance", sample, mechanism, 8.0, DELTA).count(mechanism) > blind


def test_no_surprise_at_all_answers_nothing() -> None:
    quiet = np.zeros((9, 20, 3), bool)
    mechanism = pv.BinaryVoting(sigma=0.5)
    assert counter("allowance", quiet, mechanism, 0.01).count(mechanism) == (0, 0)


def test_in_the_worst_case_as_many_as_a_release_answers() -> None:
    votes = votes_of(60)
    mechanism = pv.BinaryVoting(sigma=7.0)
    queries, allowance = counter("worst-case", votes, mechanism, 8.0).count(mechanism)
    release = pv.label(
        votes, mechanism=mechanism, epsilon=8.0, delta=DELTA, guarantee="worst-case", seed=0
    )
    assert (queries, allowance) == (release.answered, None)
    assert 0 < queries < 60
    assert counter("worst-case", votes[:5], mechanism, 8.0).count(mechanism).queries == 5


@pytest.mark.parametrize(
    ("mechanism", "epsilon"),
    [
        (pv.BinaryVoting(sigma=5.0), 8.0),
        (pv.TauVoting(sigma=5.0, tau=1.2), 8.0),
        (pv.PowersetVoting(sigma=3.0), 2.0),
    ],
    ids=str,
)
def test_at_exact_prices_the_next_one_does_not_fit(mechanism: pv.Mechanism, epsilon: float) -> None:
    votes = votes_of(200)
    counted = counter("data-dependent", votes, mechanism, epsilon)
    queries, _ = counted.count(mechanism, thorough=True)
    assert 0 < queries < 200
    each = mechanism.rdp(votes[: queries + 1])
    fits = pv.epsilon(each[:-1].sum(axis=0), None, DELTA)
    assert fits <= epsilon < pv.epsilon(each.sum(axis=0), None, DELTA)
    assert 0.95 * queries <= counted.count(mechanism).queries <= queries


def test_after_a_test_these_votes_pass_and_more_do_not() -> None:
    votes = votes_of(300)
    mechanism = pv.BinaryVoting(sigma=5.0)
    queries, _ = counter("ptr", votes, mechanism, 8.0).count(mechanism, thorough=True)
    assert 0 < queries < 300

    def slack(count: int) -> tuple[int, int]:
        levels = Levels.of(mechanism, Ballots.of(votes))
        assert levels is not None
        levels.add(mechanism.tally(next(Ballots.of(votes[:count]).blocks())))
        orders = check_orders(None)
        plan = ptr.propose(levels.costs(orders), orders, count * 3, 8.0, DELTA)
        costs = levels.costs(np.array([plan.order]))[0]
        return ptr.distance(costs, levels.histogram, plan.threshold), plan.depth

    here, asked = slack(queries)
    assert here >= asked
    further, asked = slack(queries + 1)
    assert further < asked


def test_a_test_is_for_binary_voting() -> None:
    with pytest.raises(pv.UnavailableError, match="binary voting only, not for powerset"):
        counter("ptr", votes_of(5), pv.PowersetVoting(sigma=1.0), 8.0)


def test_more_noise_never_answers_fewer_where_that_is_assumed() -> None:
    votes = votes_of(80)
    for guarantee in ("allowance", "worst-case"):
        for make in (
            lambda s: pv.BinaryVoting(sigma=s),
            lambda s: pv.BinaryVoting(link=pv.OptimalLink(cost=2 / s**2, order=3.0)),
            lambda s: pv.TauVoting(sigma=s, tau=1.2),
        ):
            counted = counter(guarantee, votes, make(1.0), 8.0)
            assert counted.rises_with_noise
            found = [counted.count(make(s)).queries for s in (2.0, 5.0, 9.0, 20.0)]
            assert found == sorted(found)


@pytest.mark.parametrize(
    ("mechanism", "epsilon"),
    [
        (pv.PowersetVoting(sigma=2.0), 25.0),
        (pv.TauVoting(sigma=30.0, tau=1.0), 0.7),
        (pv.TauVoting(sigma=3.0, tau=1.5, norm=1), 25.0),
    ],
    ids=str,
)
def test_few_orders_say_what_all_of_them_say(mechanism: pv.Mechanism, epsilon: float) -> None:
    few = FewOrders(epsilon, DELTA)
    curve = mechanism.worst_case_rdp(30, 3)
    asked = []

    def price(orders: Any) -> Any:
        asked.extend(orders)
        return curve[np.searchsorted(check_orders(None), orders)]

    assert few.largest(price) == calibrate.queries_for(mechanism, 30, 3, epsilon, DELTA)
    assert len(asked) < 20
    assert few.epsilon(price, 7) == pytest.approx(pv.epsilon(7 * curve, None, DELTA))


@given(
    last=st.integers(0, 60),
    most=st.integers(1, 60),
    guess=st.one_of(st.none(), st.integers(-3, 70)),
)
def test_bisection_finds_the_last(last: int, most: int, guess: int | None) -> None:
    tried = []

    def fits(count: int) -> bool:
        tried.append(count)
        return count <= last

    assert _last(fits, most, guess) == min(last, most)
    assert all(1 <= count <= most for count in tried)
    assert len(set(tried)) == len(tried) <= 14


def test_a_good_guess_saves_work() -> None:
    tried = []

    def fits(count: int) -> bool:
        tried.append(count)
        return count <= 1003

    assert _last(fits, 4000, 1000) == 1003
    assert len(tried) <= 6

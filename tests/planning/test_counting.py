"""Counts of queries that fit: those of real releases, of brute force, of tables in print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.refusals import refused

import privote as pv
from privote import planning
from privote.accounting.renyi import check_orders
from privote.planning import FewOrders
from privote.planning.tuning import busiest_voter
from privote.votes.cube import Ballots, SparseBallots

DELTA = 1e-5
GATE = pv.Gate(threshold=12, sigma=4)
MECHANISMS: dict[str, pv.Mechanism] = {
    "binary": pv.BinaryVoting(sigma=5.0),
    "bar": pv.BinaryVoting(sigma=5.0, quota=0.3),
    "gated": pv.BinaryVoting(sigma=5.0, gate=GATE),
    "link": pv.BinaryVoting(link=pv.OptimalLink(cost=0.12, order=5.0)),
    "tau": pv.TauVoting(sigma=5.0, tau=1.2),
    "tau l1": pv.TauVoting(sigma=5.0, tau=1.5, norm=1),
    "powerset": pv.PowersetVoting(sigma=3.0),
    "plurality": pv.PluralityVoting(sigma=3.0),
}


def votes_of(queries: int, voters: int = 15, labels: int = 3, seed: int = 3) -> Any:
    rng = np.random.default_rng(seed)
    truth = rng.random((queries, 1, labels)) < 0.3
    return truth ^ (rng.random((queries, voters, labels)) < 0.12)


def votes_for(mechanism: pv.Mechanism, queries: int) -> Any:
    if mechanism.name != "plurality":
        return votes_of(queries)
    rng = np.random.default_rng(1)
    return np.eye(3, dtype=bool)[rng.choice(3, (queries, 15), p=[0.8, 0.1, 0.1])]


def count(mechanism: pv.Mechanism, votes: Any, epsilon: float, name: str, **how: Any) -> Any:
    return planning.queries_that_fit(mechanism, votes, epsilon, DELTA, **how)[name]


# -- what a plan says is what a release does -------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.05, 4.0], ids=["V = 0", "some"])
@pytest.mark.parametrize("name", MECHANISMS)
def test_an_allowance_lasts_as_long_as_planned(name: str, epsilon: float) -> None:
    mechanism = MECHANISMS[name]
    votes = votes_for(mechanism, 60)
    run = {"mechanism": mechanism, "epsilon": epsilon, "delta": DELTA, "seed": 1}
    run |= {"guarantee": "allowance"}
    planned = count(mechanism, votes, epsilon, "allowance")
    allowance = planning.allowance_for(mechanism, 15, 3, epsilon, DELTA)
    if epsilon < 1:
        assert (planned, allowance) == (0, 0)
        with refused(None, pv.BudgetError):
            pv.label(votes, **run)
        quiet = np.zeros((5, 15, 3), bool)  # nobody says anything, and still it is refused
        assert count(mechanism, quiet, epsilon, "allowance") == 0
        return
    assert 0 < planned < len(votes)
    for queries, somebody_is_out in ((planned, False), (planned + 1, True)):
        release = pv.label(votes[:queries], **run)
        assert release.allowance == allowance
        assert bool(release.sealed.refused.any()) is somebody_is_out


@pytest.mark.parametrize("epsilon", [0.05, 4.0], ids=["nothing", "some"])
@pytest.mark.parametrize("name", MECHANISMS)
def test_worst_case_answers_as_planned(name: str, epsilon: float) -> None:
    mechanism = MECHANISMS[name]
    votes = votes_for(mechanism, 90)
    run: dict[str, Any] = {"mechanism": mechanism, "epsilon": epsilon, "delta": DELTA, "seed": 1}
    planned = count(mechanism, votes, epsilon, "worst-case")
    assert planned == min(planning.queries_for(mechanism, 15, 3, epsilon, DELTA), 90)
    if planned:
        assert pv.label(votes, guarantee="worst-case", **run).answered == planned < 90
        assert count(mechanism, votes[:2], epsilon, "worst-case") == 2
    else:
        assert epsilon < 1
        with pytest.raises(pv.BudgetError, match="allows 0"):
            pv.label(votes, guarantee="worst-case", **run)


@pytest.mark.parametrize("bound", ["exact", "published"])
@pytest.mark.parametrize("name", MECHANISMS)
def test_sealed_prices_are_those_of_the_release(name: str, bound: str) -> None:
    mechanism = MECHANISMS[name]
    votes, epsilon = votes_for(mechanism, 60), 4.0 if bound == "exact" else 5.0
    planned = count(
        mechanism, votes, epsilon, "data-dependent" if bound == "exact" else "published"
    )
    if (name, bound) == ("link", "published"):
        assert planned is None
        return
    assert 0 < planned <= 60
    for queries, fits in ((planned, True), (planned + 1, False))[: 1 + (planned < 60)]:
        if bound != "exact":
            curve = mechanism.total_rdp(votes[:queries], bound="pate2018")
            assert (pv.epsilon(curve, pv.DEFAULT_ORDERS, DELTA) <= epsilon) == fits
            continue
        given: dict[str, Any] = {"guarantee": "data-dependent", "seed": 1}
        budget = pv.Budget(epsilon=epsilon, delta=DELTA)
        guardian = pv.Guardian(mechanism, budget, pv.Ledger.in_memory(), **given)
        assert (guardian.release(votes, queries=queries).sealed.epsilon <= epsilon) is fits


# -- brute force -----------------------------------------------------------------------------------


def longest(fits: list[bool]) -> int:
    """Return how many of the first fit; once one does not, no later one does."""
    assert fits == sorted(fits, reverse=True)
    return sum(fits)


@pytest.mark.parametrize("name", ["binary", "gated", "tau", "powerset"])
def test_counts_are_the_longest_prefixes_that_fit(name: str) -> None:
    mechanism, orders, votes = MECHANISMS[name], pv.DEFAULT_ORDERS, votes_of(20)
    got = planning.queries_that_fit(mechanism, votes, 2.0, DELTA)

    def fit(curve: Any) -> bool:
        return bool(np.max(pv.epsilon(curve, orders, DELTA)) <= 2.0)

    steps = range(1, len(votes) + 1)
    worst = mechanism.worst_case_rdp(15, 3, orders)
    assert got["worst-case"] == longest([fit(n * worst) for n in steps])
    for key, bound in (("data-dependent", "exact"), ("published", "pate2018")):
        each = np.cumsum(mechanism.rdp(votes, orders, bound), axis=0)
        assert got[key] == longest([fit(curve) for curve in each])
    worst_case, exact = got["worst-case"], got["data-dependent"]
    assert worst_case is not None
    assert exact is not None
    assert 0 < worst_case <= exact < 20


def test_missing_votes_are_counted_as_the_mechanism_counts_them() -> None:
    votes = votes_of(60)
    gaps = votes.astype(np.int8)
    gaps[::3, 2] = -1
    mechanism, orders = MECHANISMS["binary"], pv.DEFAULT_ORDERS
    got = planning.queries_that_fit(mechanism, gaps, 4.0, DELTA)
    each = pv.epsilon(np.cumsum(mechanism.rdp(gaps, orders), axis=0), orders, DELTA)
    assert got["data-dependent"] == int((np.asarray(each) <= 4.0).sum())
    planned = got["allowance"]
    assert planned is not None
    assert planned >= count(mechanism, votes, 4.0, "allowance")
    run = {"guarantee": "allowance", "seed": 0}
    release = pv.label(gaps[:planned], mechanism=mechanism, epsilon=4.0, delta=DELTA, **run)
    assert not release.sealed.refused.any()


def test_a_baseline_that_agrees_costs_nothing() -> None:
    votes = votes_of(60)
    mechanism, guess = pv.BinaryVoting(sigma=5.0), votes.mean(axis=1) > 0.5
    busiest = busiest_voter(mechanism, Ballots.of(votes), guess)
    departs = (votes != guess[:, None]).sum(axis=2)
    assert (busiest == departs.cumsum(axis=0).max(axis=1)).all()
    blind = count(mechanism, votes, 4.0, "allowance")
    assert count(mechanism, votes, 4.0, "allowance", baseline=guess) > blind


@pytest.mark.parametrize("name", ["binary", "tau", "powerset"])
def test_sparse_ballots_count_as_dense_ones(name: str) -> None:
    votes, mechanism = votes_of(30, voters=6), MECHANISMS[name]
    query, voter = np.nonzero(np.ones(votes.shape[:2]))
    sparse = SparseBallots(query, voter, votes[query, voter], queries=30, voters=6)
    if name == "powerset":  # the empty set is a ballot of its own, and a surprise
        assert count(mechanism, sparse, 4.0, "allowance") <= count(
            mechanism, votes, 4.0, "allowance"
        )
        return
    dense, few = (planning.queries_that_fit(mechanism, v, 4.0, DELTA) for v in (votes, sparse))
    assert dense == few


def test_blocks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    votes, mechanism = votes_of(60), MECHANISMS["binary"]
    whole = planning.queries_that_fit(mechanism, votes, 4.0, DELTA)
    monkeypatch.setattr("privote.votes.cube._BLOCK_CELLS", 1)
    assert len(list(Ballots.of(votes).blocks())) > 1
    assert planning.queries_that_fit(mechanism, votes, 4.0, DELTA) == whole


def test_more_noise_never_answers_fewer_whatever_the_votes() -> None:
    votes = votes_of(80)
    for name in ("allowance", "worst-case"):
        for kind in ("binary", "link", "tau"):
            noises = [MECHANISMS[kind].with_noise(s) for s in (2.0, 5.0, 9.0, 20.0)]
            found = [count(mechanism, votes, 8.0, name) for mechanism in noises]
            assert found == sorted(found)


# Table of docs/accounting.md: tmc2007, delta 1e-5, epsilon 20.
@pytest.mark.parametrize(
    ("sigma", "expected"),
    [(7.0, (18, 123, 462)), (12.0, (55, 366, 526)), (20.0, (153, 988, 384))],
)
def test_counts_on_real_votes(
    tmc_votes: npt.NDArray[np.bool_], sigma: float, expected: Sequence[int]
) -> None:
    names = ("worst-case", "allowance", "data-dependent")
    mechanism = pv.BinaryVoting(sigma=sigma)
    found = planning.queries_that_fit(mechanism, tmc_votes, 20.0, 1e-5)
    assert tuple(found[name] for name in names) == expected


def test_what_cannot_be_counted_is_refused() -> None:
    with pytest.raises(pv.InputError, match="plurality takes at most one positive"):
        count(MECHANISMS["plurality"], votes_of(5), 4.0, "allowance")
    with refused("baseline"):
        count(MECHANISMS["binary"], votes_of(5), 4.0, "allowance", baseline=np.zeros((2, 3)))


# -- how it is found -------------------------------------------------------------------------------


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

    assert few.largest(price) == planning.queries_for(mechanism, 30, 3, epsilon, DELTA)
    assert len(asked) < 20
    assert few.epsilon(price, 7) == pytest.approx(pv.epsilon(7 * curve, None, DELTA))

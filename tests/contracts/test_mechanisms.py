"""What every mechanism promises, whatever it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from tests.contracts.cases import MECHANISMS, ORDERS, random_votes
from tests.refusals import refused

import privote as pv
from privote.audit.exact import book_of

every_mechanism = pytest.mark.parametrize("name", MECHANISMS)
some_missing = pytest.mark.parametrize("missing", [False, True], ids=["all vote", "some missing"])
seeds = st.integers(0, 2**32 - 1)
# Each property meets every mechanism, so fewer examples of each do.
few_examples = settings(max_examples=max(5, settings.default.max_examples // 4))


def election(
    name: str,
    seed: int,
    *,
    queries: int = 3,
    voters: int = 6,
    labels: int = 3,
    missing: bool = False,
) -> tuple[pv.Mechanism, npt.NDArray[Any]]:
    mech = MECHANISMS[name]
    rng = np.random.default_rng(seed)
    share = float(rng.choice([0.1, 0.5, 0.9]))
    votes = random_votes(mech, (queries, voters, labels), rng, missing=missing, share=share)
    return mech, votes


# -- what is drawn is what is promised ------------------------------------------------------------


@some_missing
@every_mechanism
def test_releases_follow_the_textbook(name: str, missing: bool) -> None:
    mech, votes = election(name, 3, queries=1, voters=5, labels=2, missing=missing)
    book = book_of(mech, 5, 2, missing=True)
    cast = np.array([[np.flatnonzero((book.ballots == b).all(axis=1))[0] for b in votes[0]]])
    expected = np.exp(book.log_probs(book.census(cast))[0])
    draws = 20_000
    released = mech.release(np.tile(votes, (draws, 1, 1)), seed=11)
    assert released.dtype == (np.int64 if book.whole_line else np.int8)
    drawn = book.listed(released)
    hits = np.array([(drawn == outcome).all(axis=1).sum() for outcome in book.outcomes])
    assert hits.sum() == draws, "something was released that cannot be"
    # Rare outcomes together, so that the chi-square approximation holds.
    rare = expected * draws < 5
    observed = np.append(hits[~rare], hits[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum()) * draws
    if wanted[-1] < 1e-3:
        assert observed[-1] == 0
        observed, wanted = observed[:-1], wanted[:-1]
    if len(observed) > 1:
        assert chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue > 1e-4


@every_mechanism
def test_a_seed_repeats_a_release_and_no_seed_does_not(name: str) -> None:
    mech, votes = election(name, 5, queries=40)
    votes = np.tile(votes, (10, 1, 1))
    assert np.array_equal(mech.release(votes, seed=4), mech.release(votes, seed=4))
    if "tiny" not in name:  # there the outcome is all but certain
        assert not np.array_equal(mech.release(votes), mech.release(votes))


# -- symmetry -------------------------------------------------------------------------------------


@every_mechanism
@few_examples
@given(seed=seeds)
def test_the_order_of_voters_never_matters(name: str, seed: int) -> None:
    mech, votes = election(name, seed, missing=bool(seed % 2))
    order = np.random.default_rng(seed).permutation(votes.shape[1])
    shuffled = votes[:, order]
    assert np.array_equal(mech.rdp(votes, ORDERS), mech.rdp(shuffled, ORDERS))
    bills, again = mech.rdp_by_voter(votes, ORDERS), mech.rdp_by_voter(shuffled, ORDERS)
    np.testing.assert_allclose(again, bills[order], rtol=1e-12, atol=1e-15)
    assert np.array_equal(mech.release(votes, seed=1), mech.release(shuffled, seed=1))


# -- sums and bounds ------------------------------------------------------------------------------


@some_missing
@every_mechanism
@few_examples
@given(seed=seeds)
def test_costs_add_over_queries_and_batches(name: str, missing: bool, seed: int) -> None:
    mech, votes = election(name, seed, queries=4, missing=missing)
    rdp = mech.rdp(votes, ORDERS)
    assert rdp.shape == (4, len(ORDERS))
    parts = np.concatenate([mech.rdp(votes[:1], ORDERS), mech.rdp(votes[1:], ORDERS)])
    np.testing.assert_allclose(parts, rdp, rtol=1e-12)
    np.testing.assert_allclose(mech.total_rdp(votes, ORDERS), rdp.sum(axis=0), rtol=1e-12)
    both = mech.rdp_by_voter(votes[:1], ORDERS) + mech.rdp_by_voter(votes[1:], ORDERS)
    np.testing.assert_allclose(both, mech.rdp_by_voter(votes, ORDERS), rtol=1e-12)


@some_missing
@every_mechanism
@few_examples
@given(seed=seeds)
def test_each_bound_covers_the_one_below(name: str, missing: bool, seed: int) -> None:
    mech, votes = election(name, seed, missing=missing)
    queries, voters, labels = votes.shape
    bills, rdp = mech.rdp_by_voter(votes, ORDERS), mech.rdp(votes, ORDERS)
    assert bills.shape == (voters, 2, len(ORDERS))
    worst = mech.worst_case_rdp(voters, labels, ORDERS)
    slack = 1 + 1e-12
    assert (bills >= 0).all()
    assert (bills.max(axis=(0, 1)) <= rdp.sum(axis=0) * slack).all()
    assert (rdp <= worst * slack).all()
    # Even one query's dearest voter is within that query's cost.
    for query in range(queries):
        one = mech.rdp_by_voter(votes[query : query + 1], ORDERS).max(axis=(0, 1))
        assert (one <= rdp[query] * slack).all()


# -- the same votes, however they come ------------------------------------------------------------


@every_mechanism
def test_sparse_ballots_cost_what_dense_ones_do(name: str) -> None:
    mech, votes = election(name, 21, queries=5, voters=9)
    rng = np.random.default_rng(0)
    speaks = rng.random(votes.shape[:2]) < 0.4
    query, voter = np.nonzero(speaks)
    sparse = pv.SparseBallots(query, voter, votes[speaks], queries=5, voters=9)
    # Who is silent said no to every label of Binary and Tau, and voted for no class otherwise.
    silent = -1 if mech.name in ("powerset", "plurality") else 0
    dense = np.where(speaks[:, :, None], votes, silent).astype(np.int8)
    if silent == 0 and mech.gate is None:
        dense = dense.astype(bool)
    tight = dense if mech.name != "tau" else dense.astype(bool)
    np.testing.assert_allclose(mech.rdp(sparse, ORDERS), mech.rdp(tight, ORDERS), rtol=1e-12)
    bills = mech.rdp_by_voter(tight, ORDERS)
    np.testing.assert_allclose(
        mech.rdp_by_voter(sparse, ORDERS), bills, rtol=1e-9, atol=1e-14 * bills.max()
    )
    assert (mech.rdp_by_voter(sparse, ORDERS) >= 0).all()
    assert np.array_equal(mech.release(sparse, seed=2), mech.release(dense, seed=2))


@every_mechanism
def test_votes_as_numbers_and_as_bools_are_the_same_election(name: str) -> None:
    mech, votes = election(name, 30)
    for same in (votes.astype(np.uint8), np.asfortranarray(votes), votes.tolist()):
        assert np.array_equal(mech.release(votes, seed=1), mech.release(same, seed=1))
    assert np.array_equal(mech.rdp(votes, ORDERS), mech.rdp(votes.astype(np.uint8), ORDERS))
    # Signed numbers could hold a missing vote, so they have more neighbours, never fewer.
    signed = mech.rdp(votes.astype(np.int8), ORDERS)
    assert (signed >= mech.rdp(votes, ORDERS) * (1 - 1e-12)).all()


@every_mechanism
def test_what_could_be_missing_is_not_read_off_the_votes(name: str) -> None:
    # The neighbour who falls silent must be covered even where everybody spoke.
    mech, votes = election(name, 31, queries=1)
    here = votes.astype(np.int8)
    other = here.copy()
    other[0, 0] = -1
    pair = np.concatenate([here, other])
    np.testing.assert_allclose(mech.rdp(here, ORDERS)[0], mech.rdp(pair, ORDERS)[0], rtol=1e-12)
    np.testing.assert_allclose(mech.rdp(other, ORDERS)[0], mech.rdp(pair, ORDERS)[1], rtol=1e-12)


# -- refusals -------------------------------------------------------------------------------------


@every_mechanism
@pytest.mark.parametrize("bound", ["gaussian", "Exact", "", "pate2019"])
def test_an_unknown_bound_is_refused(name: str, bound: str) -> None:
    mech, votes = election(name, 1)
    for call in (mech.rdp, mech.total_rdp):
        with refused("bound"):
            call(votes, ORDERS, bound=bound)
    if bound != "gaussian":  # most know it
        with refused():
            mech.worst_case_rdp(5, 2, ORDERS, bound=bound)


@every_mechanism
@pytest.mark.parametrize("orders", [[1.0], [0.5, 2], [np.inf], [np.nan], [], [[2.0]]])
def test_orders_must_be_above_one(name: str, orders: Any) -> None:
    mech, votes = election(name, 1)
    for call in (lambda: mech.rdp(votes, orders), lambda: mech.worst_case_rdp(5, 2, orders)):
        with refused("orders"):
            call()

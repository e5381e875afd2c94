"""Contributions: which ballots count, what they spend, and which are refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from privote.votes.contributions import bound_contributions
from privote.votes.cube import DenseBlock, SparseBallots, SparseBlock

lefts = hnp.arrays(np.int64, (3,), elements=st.integers(0, 6))
units = pytest.mark.parametrize("unit", ["vote", "ballot"])


def sparse_block(votes: np.ndarray) -> SparseBlock:
    query, voter = np.nonzero(votes.any(axis=2))
    queries, voters, _ = votes.shape
    ballots = SparseBallots(query, voter, votes[query, voter], queries=queries, voters=voters)
    return next(ballots.blocks())


@units
@given(votes=hnp.arrays(np.bool_, (8, 3, 2)), left=lefts, cut=st.integers(1, 7))
def test_sparse_as_dense_and_in_two_batches_as_in_one(
    unit: str, votes: np.ndarray, left: np.ndarray, cut: int
) -> None:
    def counted(block: Any, left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        zero = np.zeros((block.queries, 2), bool)
        here, *costs = bound_contributions(block, zero, left, unit=unit, missing_counts_as_no=True)
        return here.margins(missing_is_no=True), np.array(costs)

    margins, costs = counted(DenseBlock(votes, missing=False), left)
    for make in (partial(DenseBlock, missing=False), sparse_block):
        first, some = counted(make(votes[:cut]), left)
        rest = np.where(some[1] > 0, 0, left - some[0])
        second, more = counted(make(votes[cut:]), rest)
        assert np.concatenate([first, second]).tolist() == margins.tolist()
        assert (some + more).tolist() == costs.tolist()


def by_definition(
    votes: np.ndarray, baseline: np.ndarray, left: np.ndarray, unit: str
) -> tuple[np.ndarray, list[int], list[int]]:
    """Return what counts, what each voter spends and what is refused, ballot by ballot."""
    counted, spent, refused = np.zeros(votes.shape, bool), [0] * 3, [0] * 3
    for voter in range(votes.shape[1]):
        total = 0
        for query, guess in enumerate(baseline):
            ballot = votes[query, voter]
            absent = ballot == -1 if unit == "vote" else np.full(3, (ballot == -1).all())
            ballot = np.where(absent, guess, ballot == 1)
            size = int((ballot != guess).sum() if unit == "vote" else (ballot != guess).any())
            total += size
            fits = total <= left[voter]
            counted[query, voter] = ballot if fits else guess
            spent[voter] += size * fits
            refused[voter] += size > 0 and not fits
    return counted, spent, refused


@units
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("last", [False, True], ids=["labels last", "queries last"])
@given(
    votes=hnp.arrays(np.int8, (9, 3, 3), elements=st.integers(-1, 1)),
    baseline=hnp.arrays(np.bool_, (9, 3)),
    left=hnp.arrays(np.int64, (3,), elements=st.integers(0, 20)),
)
def test_ballots_are_refused_as_the_definition_says(
    unit: str,
    missing: bool,
    last: bool,
    votes: np.ndarray,
    baseline: np.ndarray,
    left: np.ndarray,
) -> None:
    votes = votes if missing else votes == 1
    if last:
        votes = np.ascontiguousarray(votes.transpose(1, 2, 0)).transpose(2, 0, 1)
    block = DenseBlock(votes, missing=missing, start=4)
    got, *costs = bound_contributions(block, baseline, left, unit=unit, missing_counts_as_no=True)
    assert isinstance(got, DenseBlock)
    assert (got.start, got.missing) == (4, False)
    counted, *expected = by_definition(votes, baseline, left, unit)
    assert got.votes.tolist() == counted.tolist()
    assert [cost.tolist() for cost in costs] == expected

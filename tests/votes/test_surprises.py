"""Surprises: which ballots count, what they spend, and which are refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from privote.votes.bits import Bits
from privote.votes.cube import DenseBlock, PackedBlock, SparseBallots, SparseBlock
from privote.votes.surprises import effective, effective_votes, left_over

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
        here, *costs = effective(block, zero, left, unit=unit, silence_is_zeros=True)
        return here.margins(missing_is_no=True), np.array(costs)

    margins, costs = counted(DenseBlock(votes, missing=False), left)
    for make in (partial(DenseBlock, missing=False), sparse_block):
        first, some = counted(make(votes[:cut]), left)
        second, more = counted(make(votes[cut:]), left_over(left, *some))
        assert np.concatenate([first, second]).tolist() == margins.tolist()
        assert (some + more).tolist() == costs.tolist()


@units
@pytest.mark.parametrize("kind", ["small", "large", "packed"])
@given(
    votes=hnp.arrays(np.int8, (9, 3, 3), elements=st.integers(-1, 1)),
    baseline=hnp.arrays(np.bool_, (9, 3)),
    left=hnp.arrays(np.int64, (3,), elements=st.integers(0, 20)),
)
def test_ballots_are_refused_as_the_definition_says(
    unit: str, kind: str, votes: np.ndarray, baseline: np.ndarray, left: np.ndarray
) -> None:
    if kind == "packed":
        votes = votes == 1
    makes = {"small": partial(DenseBlock, missing=True), "large": partial(Large, missing=True)}
    makes["packed"] = lambda votes: PackedBlock(Bits.of_votes(votes), start=4)
    block: DenseBlock = makes[kind](votes)
    counted, spent, refused = effective_votes(votes, baseline, left, unit)
    got, *costs = effective(block, baseline, left, unit=unit, silence_is_zeros=True)
    assert isinstance(got, DenseBlock)
    assert (got.start, got.missing) == (block.start, False)
    for mine, theirs in zip((got.votes, *costs), (counted, spent, refused), strict=True):
        assert mine.tolist() == theirs.tolist()
    plain = DenseBlock(counted, missing=False)
    for missing_is_no in (True, False):
        mine, theirs = (each.margins(missing_is_no=missing_is_no) for each in (got, plain))
        assert mine.tolist() == theirs.tolist()
    if kind != "small":
        weights = np.array([0.0, 1.0, 0.7, 0.3])
        assert isinstance(got, PackedBlock)
        assert got.weighted(weights).tolist() == plain.weighted(weights).tolist()
    # A ballot counts in full or is refused as a whole, and refused is whoever wanted more.
    plenty, wanted, _ = effective_votes(votes, baseline, np.full(3, 99), unit)
    in_full = (counted == plenty).all(axis=2)
    assert (in_full | (counted == baseline[:, None]).all(axis=2)).all()
    assert refused.tolist() == (~in_full).sum(axis=0).tolist()
    assert (spent <= np.minimum(left, wanted)).all()
    assert ((refused > 0) == (spent < wanted)).all()
    assert (refused[wanted <= left] == 0).all()


class Large(DenseBlock):
    """A small block that counts as a large one."""

    large = True

"""Surprises: which ballots count, what they spend, and which are refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from privote.votes.bits import Bits
from privote.votes.cube import DenseBlock, PackedBlock, SparseBallots
from privote.votes.surprises import effective, effective_votes, left_over

lefts = hnp.arrays(np.int64, (3,), elements=st.integers(0, 6))
units = pytest.mark.parametrize("unit", ["vote", "ballot"])


@units
@given(
    votes=hnp.arrays(np.int8, (5, 3, 2), elements=st.integers(-1, 1)),
    baseline=hnp.arrays(np.bool_, (5, 2)),
    left=lefts,
)
def test_a_ballot_counts_in_full_or_is_refused_as_a_whole(
    unit: str, votes: np.ndarray, baseline: np.ndarray, left: np.ndarray
) -> None:
    block, spent, refused = effective(
        DenseBlock(votes, missing=True), baseline, left, unit=unit, silence_is_zeros=True
    )
    assert isinstance(block, DenseBlock)
    plenty, wanted, _ = effective_votes(votes, baseline, np.full(3, 99), unit)
    guess = np.broadcast_to(baseline[:, None], plenty.shape)
    here, whole = block.votes, np.zeros(3, int)
    for query in range(5):
        for voter in range(3):
            counted = (here[query, voter] == plenty[query, voter]).all()
            as_baseline = (here[query, voter] == guess[query, voter]).all()
            assert counted or as_baseline
            whole[voter] += not counted
    assert refused.tolist() == whole.tolist()
    assert (spent <= np.minimum(left, wanted)).all()
    assert ((refused > 0) == (spent < wanted)).all()  # refused is whoever wanted more
    assert (refused[wanted <= left] == 0).all()


@units
@given(votes=hnp.arrays(np.bool_, (6, 3, 2)), left=lefts)
def test_sparse_and_dense_refuse_alike(unit: str, votes: np.ndarray, left: np.ndarray) -> None:
    query, voter = np.nonzero(votes.any(axis=2))
    sparse = SparseBallots(query, voter, votes[query, voter], queries=6, voters=3)
    zero = np.zeros((6, 2), bool)
    one, two = (
        effective(block, zero, left, unit=unit, silence_is_zeros=True)
        for block in (DenseBlock(votes, missing=False), next(sparse.blocks()))
    )
    for a, b in zip(one[1:], two[1:], strict=True):
        assert a.tolist() == b.tolist()
    np.testing.assert_array_equal(
        one[0].margins(missing_is_no=True), two[0].margins(missing_is_no=True)
    )


@units
@given(
    votes=hnp.arrays(np.bool_, (8, 3, 2)), left=lefts, cut=st.integers(0, 8), sparse=st.booleans()
)
def test_in_two_batches_as_in_one(
    unit: str, votes: np.ndarray, left: np.ndarray, cut: int, sparse: bool
) -> None:
    def counted(part: np.ndarray, left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if sparse and len(part):
            query, voter = np.nonzero(part.any(axis=2))
            block = next(
                SparseBallots(
                    query, voter, part[query, voter], queries=len(part), voters=3
                ).blocks()
            )
        else:
            block = DenseBlock(part, missing=False)
        zero = np.zeros((len(part), 2), bool)
        here, *spent = effective(block, zero, left, unit=unit, silence_is_zeros=True)
        return here.margins(missing_is_no=True), left_over(left, *spent)

    first, rest = counted(votes[:cut], left)
    second, after = counted(votes[cut:], rest)
    whole, end = counted(votes, left)
    np.testing.assert_array_equal(np.concatenate([first, second]), whole)
    np.testing.assert_array_equal(after, end)


@units
@given(
    votes=hnp.arrays(np.int8, (9, 3, 3), elements=st.integers(-1, 1)),
    baseline=hnp.arrays(np.bool_, (9, 3)),
    left=hnp.arrays(np.int64, (3,), elements=st.integers(0, 20)),
    missing=st.booleans(),
)
def test_packed_votes_are_refused_as_the_definition_says(
    unit: str, votes: np.ndarray, baseline: np.ndarray, left: np.ndarray, missing: bool
) -> None:
    votes = votes if missing else votes == 1
    block: DenseBlock = Large(votes, missing)
    if not missing:
        block = PackedBlock(Bits.of_votes(votes), start=4)
    wanted = effective_votes(votes, baseline, left, unit)
    got, *costs = effective(block, baseline, left, unit=unit, silence_is_zeros=True)
    assert isinstance(got, PackedBlock)
    assert (got.start, got.missing) == (block.start, False)
    for mine, theirs in zip((got.votes, *costs), wanted, strict=True):
        assert mine.tolist() == theirs.tolist()
    plain = DenseBlock(wanted[0], missing=False)
    for missing_is_no in (True, False):
        mine, theirs = (each.margins(missing_is_no=missing_is_no) for each in (got, plain))
        assert mine.tolist() == theirs.tolist()
    weights = np.array([0.0, 1.0, 0.7, 0.3])
    assert got.weighted(weights).tolist() == plain.weighted(weights).tolist()


class Large(DenseBlock):
    """A small block that counts as a large one."""

    large = True

"""Surprises: which ballots count when every voter may depart from the baseline only so often.

A vote or ballot that departs from the public baseline is a surprise. The rule looks at one voter's
own ballots and at public numbers only, which is what the allowance theorem needs
(:mod:`privote.accounting.allowance`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from .blocks import MISSING, Block, Counts, DenseBlock, SparseBlock, Votes


def effective(
    block: Block,
    baseline: npt.NDArray[np.bool_],
    left: Counts,
    *,
    unit: str,
    silence_is_zeros: bool,
) -> tuple[Block, Counts]:
    """Return the block that counts, and what each voter spends on it."""
    if isinstance(block, SparseBlock):
        return _effective_sparse(block, left, unit, silence_is_zeros)
    assert isinstance(block, DenseBlock)
    votes, spent = effective_votes(block.votes, baseline, left, unit)
    return DenseBlock(votes, missing=False, start=block.start), spent


def effective_votes(
    votes: Votes, baseline: npt.NDArray[np.bool_], left: Counts, unit: str
) -> tuple[npt.NDArray[np.bool_], Counts]:
    """Return the votes that count, and what each voter spent on them.

    Who is missing counts as the baseline: vote by vote where votes are the unit; where ballots
    are, a ballot missing as a whole (a single missing vote is a no, or a ballot might be half the
    baseline and break the mechanism's own rule). A ballot with more surprises than its voter has
    left counts as the baseline as a whole; a later, smaller one may fit again.

    Parameters
    ----------
    votes, baseline, left
        (queries, voters, labels), (queries, labels), (voters,)
    unit
        ``"vote"``: each vote that departs from the baseline is a surprise; ``"ballot"``: each
        ballot that departs from it anywhere is one.
    """
    guess = np.asarray(baseline, np.bool_)[:, None, :]
    if votes.dtype == np.bool_:
        yes = votes
    else:
        absent = votes == MISSING
        if unit == "ballot":
            absent = absent.all(axis=2, keepdims=True)
        yes = np.where(absent, guess, votes == 1)
    departs = yes != guess
    count = departs.sum(axis=2) if unit == "vote" else departs.any(axis=2).astype(np.int64)
    keep = _affordable(count, left)
    spent = np.where(keep, count, 0).sum(axis=0)
    if keep.all():
        return np.asarray(yes), spent
    return np.where(keep[:, :, None], yes, guess), spent


def _affordable(count: Counts, left: Counts) -> npt.NDArray[np.bool_]:
    """Return which ballots fit, taken in order: (queries, voters)."""
    keep = np.ones(count.shape, np.bool_)
    for voter in np.flatnonzero(count.sum(axis=0) > left):
        keep[:, voter] = list(_in_turn(count[:, voter], int(left[voter])))
    return keep


def _in_turn(costs: npt.NDArray[Any], left: int) -> Iterator[bool]:
    for cost in costs.tolist():
        fits = cost <= left
        left -= cost if fits else 0
        yield fits


def _effective_sparse(
    block: SparseBlock, left: Counts, unit: str, silence_is_zeros: bool
) -> tuple[SparseBlock, Counts]:
    """Return the ballots that count; a silent voter is its own (zero) baseline."""
    size = block.votes.sum(axis=1)
    if unit == "vote":
        count = size
    else:
        # Saying "none of them" differs from saying nothing only where the empty set is a class.
        count = (size > 0).astype(np.int64) if silence_is_zeros else np.ones_like(size)
    keep = np.ones(len(count), np.bool_)
    spent = np.bincount(block.voter, weights=count, minlength=block.voters).astype(np.int64)
    order = np.argsort(block.voter, kind="stable")  # within a voter, queries stay in order
    starts = np.searchsorted(block.voter[order], np.arange(block.voters + 1))
    for voter in np.flatnonzero(spent > left):
        rows = order[starts[voter] : starts[voter + 1]]
        keep[rows] = list(_in_turn(count[rows], int(left[voter])))
        spent[voter] = int(count[rows][keep[rows]].sum())
    return (
        SparseBlock(
            block.query[keep], block.voter[keep], block.votes[keep], block.queries, block.voters
        ),
        spent,
    )

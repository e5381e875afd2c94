"""Surprises: which ballots count when every voter may depart from the baseline only so often.

A vote or ballot that departs from the public baseline is a surprise. The rule looks at one voter's
own ballots and at public numbers only, which is what the allowance theorem needs
(:mod:`privote.accounting.allowance`).
"""

from __future__ import annotations

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
) -> tuple[Block, Counts, Counts]:
    """Return the block that counts, what each voter spends, and how many ballots were refused.

    A ballot is refused, and counts as the baseline, if its surprises are more than is left.
    """
    if isinstance(block, SparseBlock):
        return _effective_sparse(block, left, unit, silence_is_zeros)
    assert isinstance(block, DenseBlock)
    votes, spent, refused = _counted(block.votes, baseline, left, unit)
    return DenseBlock(votes, missing=False, start=block.start), spent, refused


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
    return _counted(votes, baseline, left, unit)[:2]


def _counted(
    votes: Votes, baseline: npt.NDArray[np.bool_], left: Counts, unit: str
) -> tuple[npt.NDArray[np.bool_], Counts, Counts]:
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
        return np.asarray(yes), spent, np.zeros_like(spent)
    return np.where(keep[:, :, None], yes, guess), spent, (~keep).sum(axis=0)


def _affordable(count: Counts, left: Counts) -> npt.NDArray[np.bool_]:
    """Return which ballots fit, taken in order: (queries, voters)."""
    keep = np.ones(count.shape, np.bool_)
    for voter in np.flatnonzero(count.sum(axis=0) > left):
        keep[:, voter] = _in_turn(count[:, voter], int(left[voter]))
    return keep


def _in_turn(costs: npt.NDArray[Any], left: int) -> npt.NDArray[np.bool_]:
    """Return which of one voter's ballots fit, taken in order; who does not fit is passed over.

    All up to the first that does not fit are taken at once; from there on nothing that costs as
    much can fit, so there are no more passes than different costs.
    """
    keep = np.zeros(len(costs), np.bool_)
    waiting = np.flatnonzero(costs <= left)
    while waiting.size:
        total = np.cumsum(costs[waiting])
        fit = int(np.searchsorted(total, left, side="right"))
        keep[waiting[:fit]] = True
        left -= int(total[fit - 1]) if fit else 0
        waiting = waiting[fit:]
        waiting = waiting[costs[waiting] <= left]
    return keep


def _all_in_turn(voter: Counts, costs: Counts, left: Counts) -> npt.NDArray[np.bool_]:
    """Return which ballots fit, each voter's taken in order: :func:`_in_turn`, all voters at once.

    Parameters
    ----------
    voter, costs
        (ballots,) sorted by voter, and within a voter by query.
    left
        (voters,)
    """
    at = np.flatnonzero(np.diff(voter, prepend=-1))  # each voter's next ballot
    ends = np.append(at[1:], len(voter))
    purse = left[voter[at]]
    fits = np.zeros(len(voter), np.bool_)
    while at.size:
        paid = costs[at] <= purse
        fits[at] = paid
        purse = purse - np.where(paid, costs[at], 0)
        at = at + 1
        more = at < ends
        at, ends, purse = at[more], ends[more], purse[more]
    return fits


def _effective_sparse(
    block: SparseBlock, left: Counts, unit: str, silence_is_zeros: bool
) -> tuple[SparseBlock, Counts, Counts]:
    """Return the ballots that count; a silent voter is its own (zero) baseline."""
    size = block.votes.sum(axis=1)
    if unit == "vote":
        count = size
    else:
        # Saying "none of them" differs from saying nothing only where the empty set is a class.
        count = (size > 0).astype(np.int64) if silence_is_zeros else np.ones_like(size)
    keep = np.ones(len(count), np.bool_)
    spent = np.bincount(block.voter, weights=count, minlength=block.voters).astype(np.int64)
    tight = spent > left
    if tight.any():
        rows = np.flatnonzero(tight[block.voter])
        rows = rows[np.argsort(block.voter[rows], kind="stable")]  # a voter's queries stay in order
        keep[rows] = _all_in_turn(block.voter[rows], count[rows], left)
        spent = np.bincount(block.voter[keep], weights=count[keep], minlength=block.voters).astype(
            np.int64
        )
    return (
        SparseBlock(
            block.query[keep], block.voter[keep], block.votes[keep], block.queries, block.voters
        ),
        spent,
        np.bincount(block.voter[~keep], minlength=block.voters),
    )

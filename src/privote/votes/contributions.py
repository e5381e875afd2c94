"""Contributions: which ballots count when every voter may depart from the baseline only so often.

A vote or ballot that departs from the public baseline is a contribution. The rule looks at one
voter's own ballots and at public numbers only, which is what the allowance theorem needs
(:mod:`privote.accounting.allowance`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .cube import MISSING, PIECE, Block, Bools, Counts, DenseBlock, SparseBlock, Votes, count


def bound_contributions(
    block: Block,
    baseline: npt.NDArray[np.bool_],
    left: Counts,
    *,
    unit: str,
    missing_counts_as_no: bool,
    resolution: int = 1,
) -> tuple[Block, Counts, Counts]:
    """Return the block that counts, what each voter spends, and how many ballots were clipped.

    A voter's contributions are added up in order. From the first ballot with which the sum exceeds
    what is left, its ballots are clipped for good: they count as the baseline, the smaller ones
    too.

    With a ``resolution`` above 1, a vote is an integer from 0 to it, and contributes the square of
    its distance from the baseline: what is left, and what is spent, is in these units.
    """
    if isinstance(block, SparseBlock):
        return _bound_sparse(block, left, unit, missing_counts_as_no)
    if resolution > 1:
        return _bound_steps(block, baseline, left, resolution)
    votes, spent, clipped = bound_votes(block.votes, baseline, left, unit)
    return DenseBlock(votes, missing=False, start=block.start), spent, clipped


def bound_votes(
    votes: Votes, baseline: Bools, left: Counts, unit: str
) -> tuple[Bools, Counts, Counts]:
    """Return the votes that count, what each voter spent on them, and how many were clipped.

    Who is missing counts as the baseline: vote by vote where votes are the unit; where ballots
    are, a ballot missing as a whole (a single missing vote is a no, or a ballot might be half the
    baseline and break the mechanism's own rule). A ballot with which its voter's contributions
    exceed what is left counts as the baseline as a whole, and so do all later ones.

    Parameters
    ----------
    votes, baseline, left
        (queries, voters, labels), (queries, labels), (voters,)
    unit
        ``"vote"``: each vote that departs from the baseline is a contribution; ``"ballot"``: each
        ballot that departs from it anywhere is one.
    """
    queries, voters, labels = votes.shape
    last = votes.strides[0] == votes.itemsize  # of the same order in memory as the votes
    guess = np.asarray(baseline, np.bool_, order="F" if last else "C")[:, None, :]
    guided = bool(guess.any())
    step = max(1, PIECE // (queries * labels))
    groups = [slice(start, start + step) for start in range(0, voters, step)]

    def departing(group: slice) -> Bools:
        yes: Any = votes[:, group]
        if votes.dtype != np.bool_:
            absent = yes == MISSING
            if unit == "ballot":
                absent = absent.all(axis=2, keepdims=True)
            yes = np.where(absent, guess, yes == 1)
        return np.asarray(yes ^ guess if guided else yes, np.bool_)

    size = np.empty((voters, queries), np.min_scalar_type(labels)).T
    for group in groups:
        departs = departing(group)
        size[:, group] = count(departs, axis=2) if unit == "vote" else departs.any(axis=2)
    spent, clipped = size.sum(axis=0, dtype=np.int64), np.zeros(voters, np.int64)
    if votes.dtype == np.bool_ and (spent <= left).all():
        return np.asarray(votes, np.bool_), spent, clipped
    counted = np.empty_like(votes, np.bool_)
    for group in groups:
        contributions = size[:, group]
        keep = np.cumsum(contributions, axis=0, dtype=np.int64) <= left[group]
        np.bitwise_and(departing(group), keep[:, :, None], out=counted[:, group])
        spent[group] = (contributions * keep).sum(axis=0, dtype=np.int64)
        clipped[group] = (~keep & (contributions > 0)).sum(axis=0)
    if guided:
        counted ^= guess
    return counted, spent, clipped


def _bound_steps(
    block: DenseBlock, baseline: Bools, left: Counts, resolution: int
) -> tuple[Block, Counts, Counts]:
    """Return what :func:`bound_votes` does, of probabilities; a missing one is the baseline.

    With baselines of 0 and 1 two votes a, b differ by (a - b)^2 <= (a - g)^2 + (b - g)^2.
    """
    whole = np.asarray(baseline, np.bool_)[:, None, :] * np.int8(resolution)
    votes = np.where(block.votes == MISSING, whole, block.votes).astype(np.int8)
    size = ((votes.astype(np.int64) - whole) ** 2).sum(axis=2)
    keep = np.cumsum(size, axis=0) <= left
    counted = np.where(keep[:, :, None], votes, whole)
    clipped = (~keep & (size > 0)).sum(axis=0)
    return DenseBlock(counted, False, block.start), (size * keep).sum(axis=0), clipped


def _bound_sparse(
    block: SparseBlock, left: Counts, unit: str, missing_counts_as_no: bool
) -> tuple[SparseBlock, Counts, Counts]:
    """Return the ballots that count; a silent voter is its own (zero) baseline."""
    voter, voters, size = block.voter, block.voters, block.votes.sum(axis=1)
    if unit == "ballot":
        # Saying "none of them" differs from saying nothing only where the empty set is a class.
        size = (size > 0).astype(np.int64) if missing_counts_as_no else np.ones_like(size)
    spent = _added(voter, size, voters)
    if (spent <= left).all():
        return block, spent, np.zeros(voters, np.int64)
    order = np.argsort(voter, kind="stable")  # a voter's queries stay in order
    total, before = np.cumsum(size[order]), np.cumsum(spent) - spent
    keep = np.empty(len(size), np.bool_)
    keep[order] = total - before[voter[order]] <= left[voter[order]]
    keep |= size == 0
    counted = replace(block, query=block.query[keep], voter=voter[keep], votes=block.votes[keep])
    return counted, _added(voter, size * keep, voters), _added(voter, ~keep, voters)


def _added(voter: Counts, sizes: npt.NDArray[Any], voters: int) -> Counts:
    return np.bincount(voter, weights=sizes, minlength=voters).astype(np.int64)

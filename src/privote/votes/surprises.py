"""Surprises: which ballots count when every voter may depart from the baseline only so often.

A vote or ballot that departs from the public baseline is a surprise. The rule looks at one voter's
own ballots and at public numbers only, which is what the allowance theorem needs
(:mod:`privote.accounting.allowance`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .bits import Bits
from .cube import MISSING, Block, Counts, DenseBlock, PackedBlock, SparseBlock, Votes


def effective(
    block: Block,
    baseline: npt.NDArray[np.bool_],
    left: Counts,
    *,
    unit: str,
    silence_is_zeros: bool,
    steps: int = 1,
) -> tuple[Block, Counts, Counts]:
    """Return the block that counts, what each voter spends, and how many ballots were refused.

    A voter's surprises are added up in order. From the first ballot with which the sum exceeds what
    is left, its ballots are refused for good: they count as the baseline, the smaller ones too.

    A vote in ``steps`` departs by the square of its distance from the baseline, in steps: what is
    left, and what is spent, is in squared steps.
    """
    if isinstance(block, SparseBlock):
        return _effective_sparse(block, left, unit, silence_is_zeros)
    if steps > 1:
        return _effective_steps(block, np.asarray(baseline, np.bool_), left, steps)
    if block.large:
        return _effective_bits(block, np.asarray(baseline, np.bool_), left, unit)
    votes, spent, refused = effective_votes(block.votes, baseline, left, unit)
    return DenseBlock(votes, missing=False, start=block.start), spent, refused


def left_over(allowance: Counts, spent: Counts, refused: Counts) -> Counts:
    """Return what is left of each allowance (voters,): nothing, once a ballot was refused."""
    return np.where(refused > 0, 0, allowance - spent)


def effective_votes(
    votes: Votes, baseline: npt.NDArray[np.bool_], left: Counts, unit: str
) -> tuple[npt.NDArray[np.bool_], Counts, Counts]:
    """Return the votes that count, what each voter spent on them, and how many were refused.

    Who is missing counts as the baseline: vote by vote where votes are the unit; where ballots
    are, a ballot missing as a whole (a single missing vote is a no, or a ballot might be half the
    baseline and break the mechanism's own rule). A ballot with which its voter's surprises exceed
    what is left counts as the baseline as a whole, and so do all later ones.

    Parameters
    ----------
    votes, baseline, left
        (queries, voters, labels), (queries, labels), (voters,)
    unit
        ``"vote"``: each vote that departs from the baseline is a surprise; ``"ballot"``: each
        ballot that departs from it anywhere is one.
    """
    guess = np.asarray(baseline, np.bool_)[:, None, :]
    yes = _present(votes, guess, unit)
    departs = yes != guess
    count = departs.sum(axis=2) if unit == "vote" else departs.any(axis=2).astype(np.int64)
    total = count.sum(axis=0)
    if (total <= left).all():
        return np.asarray(yes), total, np.zeros_like(total)
    keep = np.cumsum(count, axis=0) <= left
    spent = np.where(keep, count, 0).sum(axis=0)
    return np.where(keep[:, :, None], yes, guess), spent, (~keep & (count > 0)).sum(axis=0)


def _present(votes: Votes, guess: npt.NDArray[np.bool_], unit: str) -> npt.NDArray[np.bool_]:
    """Return the votes, the baseline in the place of those who are missing."""
    if votes.dtype == np.bool_:
        return np.asarray(votes, np.bool_)
    absent = votes == MISSING
    if unit == "ballot":
        absent = absent.all(axis=2, keepdims=True)
    return np.where(absent, guess, votes == 1)


def _effective_steps(
    block: DenseBlock, baseline: npt.NDArray[np.bool_], left: Counts, steps: int
) -> tuple[Block, Counts, Counts]:
    """Return what :func:`effective_votes` does, of votes in steps; a missing one is the baseline.

    With baselines of 0 and 1 two votes a, b differ by (a - b)^2 <= (a - g)^2 + (b - g)^2.
    """
    guess = np.where(baseline, steps, 0)[:, None, :]
    votes = np.where(block.votes == MISSING, guess, block.votes).astype(np.int8)
    count = ((votes.astype(np.int64) - guess) ** 2).sum(axis=2)
    keep = np.cumsum(count, axis=0) <= left
    counted = np.where(keep[:, :, None], votes, guess).astype(np.int8)
    refused = (~keep & (count > 0)).sum(axis=0)
    return DenseBlock(counted, False, block.start), np.where(keep, count, 0).sum(axis=0), refused


def _effective_bits(
    block: DenseBlock, baseline: npt.NDArray[np.bool_], left: Counts, unit: str
) -> tuple[Block, Counts, Counts]:
    """Return what :func:`effective_votes` does, without a look at each ballot.

    A voter whose surprises fit as a whole, or of whom nothing is left, is done with a sum. Only one
    who runs out here, which happens once in its life, has its ballots added up in order.
    """
    present = (
        Bits.of_votes(_present(block.votes, baseline[:, None, :], unit))
        if block.missing
        else block.bits()
    )
    departs = present.against(baseline)
    by_vote = unit == "vote"
    total = departs.totals() if by_vote else departs.speaking()
    fits = total <= left
    spent, refused = np.where(fits, total, 0), np.zeros_like(total)
    if fits.all():
        return PackedBlock(present, block.start), spent, refused
    refused[~fits] = (departs.speaking() if by_vote else total)[~fits]
    ends: dict[int, int] = {}
    for voter in np.flatnonzero(~fits & (left > 0)).tolist():
        size = departs.sizes_of(voter)
        summed = np.cumsum(size if by_vote else size > 0)
        ends[voter] = end = int(np.searchsorted(summed, left[voter], side="right"))
        spent[voter] = summed[end - 1] if end else 0
        refused[voter] = np.count_nonzero(size[end:])
    some = fits | (left > 0)
    kept = (departs if some.all() else departs.only(some)).until(ends).against(baseline)
    return PackedBlock(kept, block.start), spent, refused


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
        voter = block.voter[rows]
        total = np.cumsum(count[rows])
        first = np.flatnonzero(np.diff(voter, prepend=-1))
        before = np.repeat((total - count[rows])[first], np.diff(first, append=len(rows)))
        keep[rows] = (total - before <= left[voter]) | (count[rows] == 0)
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

"""How good labels of a named mechanism are, from public numbers alone; and each cell's chances.

How likely a cell is to be released as 0, 1 or ABSTAIN, and what its voters want without noise, is
asked of a mechanism's tally. A mechanism from outside that decides labels together is simulated; it
can register an exact answer.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from ..entropy import Entropy
from ..errors import UnavailableError
from ..mechanisms import Mechanism, PluralityVoting, TallyVoting, VoteMechanism
from ..mechanisms.base import check_electorate
from ..mechanisms.cells import CellMechanism, CellTally
from ..mechanisms.classes import ClassMechanism, ClassTally
from ..mechanisms.tally import Tally
from ..votes.cube import Block, Bools, Floats, SparseBlock

#: The share of yes among all votes where nobody says otherwise.
YES = 0.1
WORRY = 0.05  # of labels that every voter wants, or nobody: above, the forecast warns

_BUSIEST = 1.56  # times the mean: how often the busiest voter says yes
_SURE = 0.95
_LISTED = 1 << 28  # votes of a query that may be listed
_DRAWS = 200  # of a simulated mechanism: a mean is right to 0.04


def forecast(
    mechanism: Mechanism,
    voters: int,
    labels: int,
    *,
    near: npt.ArrayLike | None = None,
    allowance: int | None = None,
    asked: int = 0,
) -> dict[str, Any]:
    """Return how good a release will be, or was, as plain values. May be published.

    Parameters
    ----------
    mechanism, voters, labels
        How a tally becomes labels, and the sizes.
    near
        Of voters who are near some queries only: the share of them that speaks on a query, one for
        all labels or (labels,). "Every voter" is then every one of those.
    allowance, asked
        Contributions a voter may cast in its life, and for how many queries they are to last; None
        where nobody can run out, or that cannot be told.

    Returns
    -------
    ``missed``: the chance that a label every voter wants is not released. ``false_alarm``: that one
    nobody wants is. ``share_needed``: of the voters, whose yes gives a 1 with 95 percent; None if
    not even all of them. ``near``: about how many voters speak on a query; None where all do.
    ``lasts``: for how many queries the allowance lasts the busiest voter, if a share :data:`YES` of
    all votes is a yes; or None. ``warnings``: what to worry about, in short sentences.
    """
    check_electorate(voters, labels)
    single = mechanism.contribution_unit == "vote"  # each label has an election of its own
    width = 1 if single else labels
    if voters * width > _LISTED:
        raise UnavailableError("voters", f"must have at most {_LISTED} votes a query", voters)
    share_near = 1.0 if near is None else float(np.median(np.asarray(near)))
    speaking = min(max(1, round(share_near * voters)), voters)

    def chance(wanted: int) -> float:
        cast = wanted if mechanism.missing_counts_as_no else voters  # an empty ballot may be a vote
        ballots = np.zeros((cast, width), np.bool_)
        ballots[:wanted, 0] = True
        block = SparseBlock(np.zeros(cast, np.int64), np.arange(cast), ballots, 1, int(voters), 0)
        return float(cell_probabilities(mechanism, mechanism.tally(block))[0, 0, 1])

    low, high = chance(0), chance(speaking)
    needed, lasts = None, None
    if high >= _SURE:
        needed = bisect_left(range(speaking), True, key=lambda count: chance(count) >= _SURE)
    if allowance is not None:
        largest = labels if single else 1  # contributions on a query
        mean = YES * labels if single else 1 - (1 - YES) ** labels
        lasts = math.floor(max(allowance / (_BUSIEST * mean), allowance / largest) * (1 + 1e-12))
    warnings = []
    if 1 - high > WORRY:
        whoever = "every voter" if near is None else "every voter near a query"
        warnings.append(
            f"There is too much noise for so few voters: {100 * (1 - high):.0f} % of the labels "
            f"that {whoever} wants are missed, and more of those on which voters disagree."
        )
    if low > WORRY * (1 + 1e-6):  # a bar for this very chance is rounded
        warnings.append(
            f"{100 * low:.0f} % of the labels that nobody wants are released as 1. If few labels "
            "are wanted, many of the ones are false."
        )
    if lasts is not None and lasts < asked:
        warnings.append(
            f"If {100 * YES:.0f} % of all votes are yes, the allowance lasts for {lasts:,} of "
            f"{asked:,} queries. Later labels fall back to the baseline (0 by default)."
        )
    return {
        "missed": 1 - high,
        "false_alarm": low,
        "share_needed": None if needed is None else needed / speaking,
        "near": None if near is None else speaking,
        "lasts": lasts,
        "warnings": warnings,
    }


@singledispatch
def cell_probabilities(mechanism: Mechanism, tally: object) -> Floats:
    """Return the probability of 0, 1 and ABSTAIN in each cell: (queries, labels, 3)."""
    draws = [mechanism.draw(tally, Entropy(seed)) for seed in range(_DRAWS)]
    return np.stack([np.mean([d == outcome for d in draws], axis=0) for outcome in (0, 1, -1)], -1)


@cell_probabilities.register
def _(mechanism: CellMechanism, tally: CellTally) -> Floats:
    margins, place = np.unique(tally.margins, return_inverse=True)
    table = np.zeros((len(margins), 3))
    probabilities = np.exp(mechanism.log_probs(margins, tally.voters))
    table[:, : probabilities.shape[1]] = probabilities
    return np.asarray(table[place.reshape(tally.margins.shape)])


@cell_probabilities.register
def _(mechanism: TallyVoting, tally: Tally) -> Floats:
    # Of the plain majority of the noisy tallies.
    one = mechanism.noise.above(tally.voters * mechanism.steps / 2 - tally.steps)
    return np.stack([1 - one, one, np.zeros_like(one)], axis=-1)


@cell_probabilities.register
def _(mechanism: ClassMechanism, tally: ClassTally) -> Floats:
    wins = np.exp(mechanism.win_log_probs(tally))
    labels = tally.ballots.shape[1]
    one = np.zeros((len(wins), labels))
    taken = np.zeros((len(wins), labels), np.int64)  # classes with votes that hold the label
    for place in range(tally.profiles.shape[1]):
        voted = tally.profiles[:, place] > 0
        ballots = tally.ballots[tally.winners[voted, place]]
        one[voted] += wins[voted, place, None] * ballots
        taken[voted] += ballots
    seen = (tally.profiles > 0).sum(axis=1)[:, None]
    # Of the classes without a vote, the share that holds the label. There may be 2^5000: the
    # division is of exact integers, once for each pair of counts.
    classes, holding = mechanism.classes(labels), _holding(mechanism, labels)
    wide = int(taken.max(initial=0)) + 1
    pairs, at = np.unique(seen * wide + taken, return_inverse=True)
    shares = [(holding - pair % wide) / max(classes - pair // wide, 1) for pair in pairs.tolist()]
    one += wins[:, -1:] * np.asarray(shares)[at.reshape(taken.shape)]
    abstain, answer = np.split(mechanism.gate_probs(tally), 2, 1)
    zero = np.maximum(0.0, 1 - one)
    return np.stack([zero * answer, one * answer, np.broadcast_to(abstain, one.shape)], axis=-1)


def _holding(mechanism: ClassMechanism, labels: int) -> int:
    """Return how many classes hold one given label, exactly."""
    if mechanism.max_positives is None:
        return 1 << (labels - 1)
    top = min(labels, mechanism.max_positives)
    return sum(math.comb(labels - 1, size - 1) for size in range(1, top + 1))


@singledispatch
def noise_free(mechanism: Mechanism, block: Block) -> Bools:
    """Return what the voters want (queries, labels): labels with more yes than no."""
    return np.asarray(block.margins(missing_is_no=False) > 0)


@noise_free.register
def _(mechanism: VoteMechanism, block: Block) -> Bools:
    tally = mechanism.tally(block)
    vote = mechanism.vote_log_probs(tally.margins, tally.voters)
    return np.asarray(vote[..., 1] > vote[..., 0])


@noise_free.register
def _(mechanism: TallyVoting, block: Block) -> Bools:
    if mechanism.resolution == 1:
        return np.asarray(block.margins(missing_is_no=False) > 0)
    return np.asarray(2 * mechanism.tally(block).steps > block.voters * mechanism.steps)


@noise_free.register
def _(mechanism: PluralityVoting, block: Block) -> Bools:
    tally = mechanism.tally(block)
    leader = np.zeros((block.queries, block.labels), np.bool_)
    voted = tally.profiles[:, 0] > 0
    leader[voted] = tally.ballots[tally.winners[voted, 0]]
    return leader

"""How likely a cell is to be released as 0, 1 or ABSTAIN, and what its voters want without noise.

Both are asked of a mechanism's tally. A mechanism from outside that decides labels together is
simulated; it can register an exact answer.
"""

from __future__ import annotations

import math
from functools import singledispatch

import numpy as np

from ..entropy import Entropy
from ..mechanisms import Mechanism, PluralityVoting, TallyVoting, VoteMechanism
from ..mechanisms.cells import CellMechanism, CellTally
from ..mechanisms.classes import ClassMechanism, ClassTally
from ..mechanisms.tally import Tally
from ..votes.cube import Block, Bools, Floats

_DRAWS = 200  # of a simulated mechanism: a mean is right to 0.04


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

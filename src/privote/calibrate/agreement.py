"""How good the labels are: exact, from outcome probabilities, never from a drawn release.

A cell's outcome depends on its margin alone (Binary, Tau), so the votes shrink to a histogram that
serves every sigma, link and gate. For Powerset and Plurality the winner's distribution of each
query is summed to the probability of a 1 in each cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..accounting.renyi import Floats
from ..blocks import Counts
from ..errors import InputError
from ..mechanisms import Mechanism, PowersetVoting
from ..mechanisms.cells import CellMechanism
from ..mechanisms.classes import ClassMechanism, ClassTally
from .sample import Bools, Sample

MEASURES = ("agreement", "agreement_on_yes", "balanced")


@dataclass(frozen=True)
class Agreement:
    """Expected numbers of cells, by what they should be: (no, yes).

    Attributes
    ----------
    right, answered, cells
        (2,) released as they should be; released at all, which a gate may prevent; all.
    """

    right: Floats
    answered: Floats
    cells: Floats

    def measured(self, measure: str) -> tuple[float, float]:
        """Return the utility, of what is answered, and the share that is answered.

        ``"agreement"`` is over all cells, ``"agreement_on_yes"`` over those that should be 1,
        ``"balanced"`` the mean of both kinds: where one cell in twenty is a yes, a release of zeros
        has agreement 0.95 and balanced 0.5.
        """
        if measure == "agreement":
            answered = float(self.answered.sum())
            return _ratio(float(self.right.sum()), answered), answered / float(self.cells.sum())
        sides = (1,) if measure == "agreement_on_yes" else (0, 1)
        utility = [_ratio(float(self.right[i]), float(self.answered[i])) for i in sides]
        share = [float(self.answered[i] / self.cells[i]) for i in sides]
        return sum(utility) / len(sides), sum(share) / len(sides)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def check_measure(measure: str, want: Bools) -> None:
    """Refuse a measure that is unknown, or has no cells to look at."""
    if measure not in MEASURES:
        raise InputError(f"measure must be one of {', '.join(MEASURES)}, got {measure!r}")
    if measure != "agreement" and not want.any():
        raise InputError(
            f"measure {measure!r} needs cells that should be 1, and there are none; use 'agreement'"
        )
    if measure == "balanced" and want.all():
        raise InputError("measure 'balanced' needs cells that should be 0, and there are none")


Scorer = Callable[[Mechanism], Agreement]


def scorer(
    sample: Sample, counting: Mechanism, want: Bools, *, allowance: int | None = None
) -> Scorer:
    """Tally once; return what prices the agreement of every mechanism that counts alike.

    Parameters
    ----------
    counting
        A mechanism that counts ballots so; its noise and its gate do not matter.
    want
        (queries, labels) what should be released.
    allowance
        How many surprises each voter has: then who has run out counts as the baseline. Without end
        by default.
    """
    if isinstance(counting, CellMechanism):
        return _CellScorer(sample, counting, want, allowance)
    assert isinstance(counting, ClassMechanism)
    return _ClassScorer(sample, counting, want, allowance)


class _CellScorer:
    """How many cells stand at each margin, by what they should be."""

    def __init__(
        self, sample: Sample, counting: CellMechanism, want: Bools, allowance: int | None
    ) -> None:
        levels: list[Any] = []
        cells: list[Counts] = []
        for rows, block in sample.blocks(counting, allowance):
            seen, place = np.unique(counting.tally(block).margins, return_inverse=True)
            both = (place.reshape(-1) * 2 + want[rows].reshape(-1)).astype(np.intp)
            levels.append(seen)
            cells.append(np.bincount(both, minlength=2 * len(seen)).reshape(-1, 2))
        self._voters = sample.ballots.voters
        self._levels, place = np.unique(np.concatenate(levels), return_inverse=True)
        self._cells = np.zeros((len(self._levels), 2))
        np.add.at(self._cells, place.reshape(-1), np.concatenate(cells))

    def __call__(self, mechanism: Mechanism) -> Agreement:
        assert isinstance(mechanism, CellMechanism)
        chances = np.exp(mechanism.log_probs(self._levels, self._voters))[:, :2]
        return Agreement(
            (self._cells * chances).sum(axis=0),
            self._cells.T @ chances.sum(axis=1),
            self._cells.sum(axis=0),
        )


class _ClassScorer:
    """The classes that got votes on each query, and what each cell should be."""

    def __init__(
        self, sample: Sample, counting: ClassMechanism, want: Bools, allowance: int | None
    ) -> None:
        self._parts: list[tuple[ClassTally, Bools]] = []
        for rows, block in sample.blocks(counting, allowance):
            tally = counting.tally(block)
            # Who voted for what is the largest part, and not needed here.
            slim = replace(tally, voter_class=np.zeros((0, 3), np.int64))
            self._parts.append((slim, want[rows]))

    def __call__(self, mechanism: Mechanism) -> Agreement:
        assert isinstance(mechanism, ClassMechanism)
        right, answered, cells = np.zeros(2), np.zeros(2), np.zeros(2)
        for tally, want in self._parts:
            passed = np.ones(len(want))
            if mechanism.gate is not None:
                passed = np.exp(mechanism.gate.log_probs(tally.profiles[:, 0])[:, 1])
            one = chance_of_one(mechanism, tally)
            for side, chance in ((0, 1 - one), (1, one)):
                mine = want == bool(side)
                right[side] += float((passed[:, None] * chance)[mine].sum())
                answered[side] += float(passed @ mine.sum(axis=1))
                cells[side] += mine.sum()
        return Agreement(right, answered, cells)


def chance_of_one(mechanism: ClassMechanism, tally: ClassTally) -> Floats:
    """Return the probability of a 1 in each cell of an answered query: (queries, labels)."""
    wins = np.exp(mechanism.win_log_probs(tally))
    labels = tally.ballots.shape[1]
    one = np.zeros((len(wins), labels))
    taken = np.zeros((len(wins), labels), np.int64)  # classes with votes that hold the label
    for place in range(tally.profiles.shape[1]):
        voted = tally.profiles[:, place] > 0
        cast = tally.ballots[tally.winners[voted, place]]
        one[voted] += wins[voted, place, None] * cast
        taken[voted] += cast
    seen = (tally.profiles > 0).sum(axis=1)
    return np.asarray(one + wins[:, -1:] * _share_of_unvoted(mechanism, labels, taken, seen))


def _share_of_unvoted(
    mechanism: ClassMechanism, labels: int, taken: Counts, seen: Counts
) -> Floats:
    """Return how many of the classes without a vote hold each label: (queries, labels) shares.

    Classes may be 2^5000: the division is of exact integers, once for each pair of counts.
    """
    everywhere, holding = mechanism.classes(labels), _holding(mechanism, labels)
    wide = int(taken.max(initial=0)) + 1
    pairs, place = np.unique(seen[:, None] * wide + taken, return_inverse=True)
    shares = [
        (holding - pair % wide) / (everywhere - pair // wide) if everywhere > pair // wide else 0.0
        for pair in pairs.tolist()
    ]
    return np.asarray(np.asarray(shares)[place.reshape(taken.shape)])


def _holding(mechanism: ClassMechanism, labels: int) -> int:
    """Return how many classes hold one given label, exactly."""
    if not isinstance(mechanism, PowersetVoting):
        return 1
    if mechanism.max_positives is None:
        return 1 << (labels - 1)
    top = min(labels, mechanism.max_positives)
    return sum(math.comb(labels - 1, size - 1) for size in range(1, top + 1))

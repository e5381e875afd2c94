"""How good released labels are: one measure, exact, from the probabilities of outcomes.

The measure is **wrong**: the mean, over the cells (query, label) that are answered, of the
probability that what is released differs from what is wanted. What is wanted is the truth where it
is given, and else what the voters want without noise. Its two parts say which way: *missed* is over
the cells that should be 1, *false alarm* over those that should be 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..accounting.renyi import Floats
from ..errors import InputError
from ..mechanisms import Mechanism
from ..votes.cube import BallotSource, Block

Truth = npt.NDArray[np.int8]


@dataclass(frozen=True, kw_only=True)
class Quality:
    """What to expect of released labels.

    Attributes
    ----------
    wrong, missed, false_alarm
        Shares of the answered cells that are released otherwise than wanted: of all, of those that
        should be 1, of those that should be 0. NaN where there are none.
    answered
        The share of all cells that is answered; 1 without a gate.
    """

    wrong: float
    missed: float
    false_alarm: float
    answered: float = 1.0

    def facts(self) -> dict[str, float]:
        """Return the numbers by name."""
        return asdict(self)


def quality(
    mechanism: Mechanism,
    ballots: BallotSource,
    wanted: Truth,
    blocks: Iterable[Block] | None = None,
) -> Quality:
    """Return how good labels for these votes are to be expected, over all of their queries.

    Parameters
    ----------
    wanted
        (queries, labels) of 1, 0 and -1 (unknown, left out).
    blocks
        What is counted instead of the ballots, e.g. after voters have run out.
    """
    sums, start = np.zeros((2, 3)), 0
    for block in ballots.blocks() if blocks is None else blocks:
        chances = mechanism.cell_probabilities(mechanism.tally(block))
        rows = wanted[start : start + block.queries]
        start += block.queries
        sums += [chances[rows == side].sum(axis=0) for side in (0, 1)]
    return _quality(sums)


def quality_of(answers: npt.NDArray[Any], wanted: Truth) -> Quality:
    """Return how good given labels are, 1, 0 and -1: (queries, labels)."""
    outcomes = np.stack([answers == outcome for outcome in (0, 1, -1)], axis=-1).astype(np.float64)
    return _quality(np.array([outcomes[wanted == side].sum(axis=0) for side in (0, 1)]))


def _quality(sums: Floats) -> Quality:
    """Return shares of sums (what should be, what is released: 0, 1, ABSTAIN)."""
    answered = sums[:, :2].sum(axis=1)
    false_alarms, misses = float(sums[0, 1]), float(sums[1, 0])
    return Quality(
        wrong=_share(false_alarms + misses, float(answered.sum())),
        missed=_share(misses, float(answered[1])),
        false_alarm=_share(false_alarms, float(answered[0])),
        answered=_share(float(answered.sum()), float(sums.sum())),
    )


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else math.nan


def noise_free(mechanism: Mechanism, ballots: BallotSource) -> Truth:
    """Return what the voters want without noise, as this mechanism asks them: (queries, labels)."""
    parts = [mechanism.noise_free(block) for block in ballots.blocks()]
    return np.concatenate(parts).astype(np.int8)


def check_truth(truth: npt.ArrayLike, queries: int, labels: int) -> Truth:
    """Return true labels as (queries, labels) int8 of 1, 0 and -1 (unknown)."""
    array = np.asarray(truth)
    if array.shape != (queries, labels):
        raise InputError(
            "truth",
            f"must have the shape (queries, labels), ({queries}, {labels}) as the votes, got "
            f"{array.shape}",
        )
    if array.dtype.kind not in "biuf" or not np.isin(array, (-1, 0, 1)).all():
        raise InputError("truth", "must hold 1, 0 and -1 (unknown) only")
    return array.astype(np.int8)

"""A forecast: how good labels of a named mechanism are, from public numbers alone."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .mechanisms import Mechanism
from .votes.cube import SparseBlock

#: The share of yes among all votes where nobody says otherwise.
YES = 0.1
WORRY = 0.05  # of labels that every voter wants, or nobody: above, the forecast warns

_BUSIEST = 1.56  # times the mean: how often the busiest voter says yes
_SURE = 0.95


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
        Surprises a voter may cast in its life, and for how many queries they are to last; None
        where nobody can run out, or that cannot be told.

    Returns
    -------
    ``missed``: the chance that a label every voter wants is not released. ``false_alarm``: that one
    nobody wants is. ``share_needed``: of the voters, whose yes gives a 1 with 95 percent; None if
    not even all of them. ``near``: about how many voters speak on a query; None where all do.
    ``lasts``: for how many queries the allowance lasts the busiest voter, if a share :data:`YES` of
    all votes is a yes; or None. ``warnings``: what to worry about, in short sentences.
    """
    share_near = 1.0 if near is None else float(np.median(np.asarray(near)))
    speaking = min(max(1, round(share_near * voters)), voters)
    size = mechanism, voters, labels
    low, high = (chance_of_one(*size, count) for count in (0, speaking))
    needed, lasts = None, None
    if high >= _SURE:
        counts = range(speaking)
        needed = bisect_left(counts, True, key=lambda count: chance_of_one(*size, count) >= _SURE)
    if allowance is not None:
        by_vote = mechanism.surprise_unit == "vote"
        most = labels if by_vote else 1  # surprises on a query
        mean = YES * labels if by_vote else 1 - (1 - YES) ** labels
        lasts = math.floor(max(allowance / (_BUSIEST * mean), allowance / most) * (1 + 1e-12))
    told: dict[str, Any] = {
        "missed": 1 - high,
        "false_alarm": low,
        "share_needed": None if needed is None else needed / speaking,
        "near": None if near is None else speaking,
        "lasts": lasts,
    }
    said = []
    if 1 - high > WORRY:
        said.append(
            f"There is too much noise for so few voters: {100 * (1 - high):.0f} % of the labels "
            f"that {_whoever(told)} wants are missed, and more of those on which voters disagree."
        )
    if low > WORRY * (1 + 1e-6):  # a bar for this very chance is rounded
        said.append(
            f"{100 * low:.0f} % of the labels that nobody wants are released as 1. If few labels "
            "are wanted, many of the ones are false."
        )
    if lasts is not None and lasts < asked:
        said.append(
            f"If {100 * YES:.0f} % of all votes are yes, the allowance lasts for {lasts:,} of "
            f"{asked:,} queries. Later labels fall back to the baseline (0 by default)."
        )
    return {**told, "warnings": said}


def chance_of_one(mechanism: Mechanism, voters: int, labels: int, count: int) -> float:
    """Return how often a label is released that so many voters want, and nobody any other."""
    speaking = count if mechanism.silence_is_zeros else voters  # where an empty ballot is a vote
    single = mechanism.surprise_unit == "vote"  # each label has an election of its own
    votes = np.zeros((speaking, 1 if single else labels), np.bool_)
    votes[:count, 0] = True
    block = SparseBlock(np.zeros(speaking, np.int64), np.arange(speaking), votes, 1, voters)
    return float(mechanism.cell_probabilities(mechanism.tally(block))[0, 0, 1])


def expected(told: Mapping[str, Any]) -> str:
    """Return a forecast in words, without its warnings."""
    text = (
        f"A label that {_whoever(told)} wants is missed with probability {told['missed']:.2g}. A "
        f"label that nobody wants is released with probability {told['false_alarm']:.2g}."
    )
    if told["share_needed"] is None:
        return text
    near = told["near"]
    of = "the voters" if near is None else f"the voters near it (about {near:,})"
    share = f"{100 * told['share_needed']:.0f} % of {of}"
    return f"{text} A label that {share} want is released with 95 % probability."


def _whoever(told: Mapping[str, Any]) -> str:
    return "every voter" if told["near"] is None else "every voter near a query"

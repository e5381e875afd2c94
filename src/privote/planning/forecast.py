"""A forecast: how good labels of a named mechanism are, from public numbers alone."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UnavailableError
from ..mechanisms import Mechanism
from ..mechanisms.base import check_electorate
from ..votes.cube import Bools, Counts, Floats
from .chances import cell_probabilities

#: The share of yes among all votes where nobody says otherwise.
YES = 0.1
WORRY = 0.05  # of labels that every voter wants, or nobody: above, the forecast warns

_BUSIEST = 1.56  # times the mean: how often the busiest voter says yes
_SURE = 0.95
_LISTED = 1 << 28  # votes that may be listed, where whole ballots are counted


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
    if not single and labels > _LISTED:
        raise UnavailableError("labels", f"must be at most {_LISTED} for a forecast", labels)
    share_near = 1.0 if near is None else float(np.median(np.asarray(near)))
    speaking = min(max(1, round(share_near * voters)), voters)

    def chance(wanted: int) -> float:
        cast = wanted if mechanism.missing_counts_as_no else voters  # an empty ballot may be a vote
        block: Any = _Agreement(int(voters), 1 if single else int(labels), wanted, cast)
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


@dataclass(frozen=True)
class _Agreement:
    """A block of one query on which so many voters want the first label, and nobody any other.

    Its sums need no list of the voters, of whom there may be more than memory holds.
    """

    voters: int
    labels: int
    wanted: int
    speaking: int
    queries: int = 1
    start: int = 0
    missing: bool = True

    def _yes(self) -> Counts:
        return np.asarray(self.wanted * (np.arange(self.labels)[None] == 0), np.int64)

    def margins(self, *, missing_is_no: bool) -> Counts:
        """Return 2 yes - voters: (1, labels)."""
        del missing_is_no
        return 2 * self._yes() - self.voters

    def weighted(self, weights: Floats) -> Floats:
        """Return the tally where a ballot for one label counts weights[1]: (1, labels)."""
        return np.asarray(weights[1] * self._yes(), np.float64)

    def speakers(self) -> tuple[Counts, Counts, Bools]:
        """Return (query, voter, yes-ballot) of every ballot cast."""
        if self.speaking * self.labels > _LISTED:
            rule = f"must have at most {_LISTED} votes in all for a forecast of whole ballots"
            raise UnavailableError("voters", rule, self.voters)
        ballots = np.zeros((self.speaking, self.labels), np.bool_)
        ballots[: self.wanted, 0] = True
        return np.zeros(self.speaking, np.int64), np.arange(self.speaking), ballots

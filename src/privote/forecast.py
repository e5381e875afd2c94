"""A forecast: how good labels of a named mechanism are, from public numbers and released labels.

What is out may be looked at as often as one likes. Nothing here knows what is sealed, such as who
ran out; released labels say about when voters should have.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .mechanisms import Mechanism
from .votes.cube import SparseBlock

#: What no forecast can tell, because it is sealed.
UNSEEN = (
    "It cannot see voters who used up their allowance with yeses that nobody shared: their silence "
    "would make more labels be missed."
)
#: How the sentence begins that warns of voters who run out.
LASTS = "The allowance should last for"
WORRY = 0.05  # of labels that every voter wants, or nobody: above, the forecast warns

_BUSIEST = 1.56  # times the mean: how often the busiest voter departs from the baseline
_SURE = 0.95
_ROWS = 1 << 16  # that are counted at a time
_LIKELY = 0.9  # agreement at which released labels are read: more would be read as fewer yeses
_TELLING = 0.1  # wanted labels must be released so much more often to be told from the others


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What to expect of a release that is about to be made, or was made. May be published.

    Where voters are records and only those near a query speak on it, "every voter" is every one of
    those.

    Attributes
    ----------
    missed
        The chance that a label every voter wants is not released.
    false_alarm
        The chance that a label nobody wants is released.
    share_needed
        The share of the voters whose yes gives a 1 with 95 percent; None if not even all of them.
    near
        About how many voters speak on a query; None where all of them do.
    yes
        The share of yes among all votes that ``lasts`` is for; None where it is not known.
    yes_from
        Where that comes from: "stated" or "released"; None where it is not known.
    allowance
        Surprises a voter may cast in its life; None where there is no such thing.
    answered
        Queries answered from the allowance by now.
    lasts
        Queries in all for which the allowance should last, for the busiest voter too; None where
        nobody can run out, or ``yes`` is not known.
    warnings
        What to worry about, in short sentences.
    """

    missed: float
    false_alarm: float
    share_needed: float | None
    near: int | None = None
    yes: float | None = None
    yes_from: str | None = None
    allowance: int | None = None
    answered: int = 0
    lasts: int | None = None
    warnings: tuple[str, ...] = ()

    @property
    def whoever(self) -> str:
        """Whom a label that must not be missed is wanted by, in words."""
        return "every voter" if self.near is None else "every voter near a query"

    @property
    def yeses(self) -> str:
        """How often voters are taken to say yes, in words; for where ``yes`` is known."""
        share = self.yes or 0.0
        percent = f"{100 * share:.2g}" if share < 0.995 else "100"
        return f"{percent}% of all votes a yes"

    @property
    def lasting(self) -> str:
        """For how many queries the allowance should last, in words; for where that is known."""
        if not self.lasts:
            return "less than one query"
        return "1 query" if self.lasts == 1 else f"{self.lasts:,} queries"

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values, for JSON."""
        return {**asdict(self), "warnings": list(self.warnings)}

    @classmethod
    def of_facts(cls, facts: dict[str, Any]) -> Forecast:
        """Return the forecast that :meth:`facts` is about."""
        return cls(**{**facts, "warnings": tuple(facts["warnings"])})

    def lines(self) -> tuple[str, ...]:
        """Return it in words, a sentence each, the warnings last."""
        said = [
            f"A label that {self.whoever} wants is missed with probability {self.missed:.2g}, one "
            f"that nobody wants is released with probability {self.false_alarm:.2g}."
        ]
        if self.share_needed is not None:
            of = "the voters" if self.near is None else f"the about {self.near:,} voters near it"
            said.append(
                f"A label is released with 95 percent if {self.share_needed:.0%} of {of} want it."
            )
        if self.lasts is not None:
            said.append(
                f"At {self.yeses} ({self.yes_from}) the allowance should last for {self.lasting}. "
                f"{UNSEEN}"
            )
        return (*said, *self.warnings)


def forecast(
    mechanism: Mechanism,
    voters: int,
    labels: int,
    *,
    allowance: int | None = None,
    yes: float | None = None,
    released: npt.NDArray[np.int8] | None = None,
    baseline: npt.NDArray[Any] | None = None,
    before: int = 0,
    departed: int | None = None,
    asked: int | None = None,
    near: npt.ArrayLike | None = None,
) -> Forecast:
    """Say how good a release will be, or was.

    Parameters
    ----------
    mechanism, voters, labels
        How a tally becomes labels, and the sizes.
    allowance
        Surprises a voter may cast in its life, if that is the promise.
    yes
        The share of yes among all votes, as a guess. Without one it is read from what is released.
    released, baseline
        (queries, labels) of 1, 0 and ABSTAIN: what was released, and the public guess for it; zeros
        by default.
    before, departed
        How many queries were answered from the allowance before these, and how many labels were
        released for them that depart from the baseline; None: taken to be like these.
    asked
        How many queries are to be answered in all; those that were, by default.
    near
        Of voters who are near some queries only: the share of them that speaks on a query, one for
        all labels or (labels,). For how long their allowance lasts is not told.
    """
    share_near = 1.0 if near is None else float(np.median(np.asarray(near)))
    speaking = min(max(1, round(share_near * voters)), voters)
    low, high = (chance_of_one(mechanism, voters, labels, count) for count in (0, speaking))
    needed = None
    if high >= _SURE:
        needed = bisect_left(
            range(speaking),
            True,
            key=lambda count: chance_of_one(mechanism, voters, labels, count) >= _SURE,
        )
    answered = before + (0 if released is None else len(released))
    share, source, lasts = yes, None if yes is None else "stated", None
    if allowance is not None and near is None:
        if share is not None:
            lasts = _lasting(mechanism, labels, allowance, share)
        elif released is not None:
            likely = chance_of_one(mechanism, voters, labels, math.ceil(_LIKELY * voters))
            rows, left, past = len(released), float(allowance), 0
            if departed is not None:  # about as often as a mean voter did, but for the noise
                used = max(0.0, departed - low * labels * before) / max(likely - low, _TELLING)
                each = labels if mechanism.surprise_unit == "vote" else 1
                left, past = allowance - min(_BUSIEST * used, each * before), before
            # Rows after the end would say that voters depart less often than they do.
            while rows and (now := _departing(released[:rows], baseline, low, likely)) is not None:
                if share is not None and now <= share:
                    break
                share, source = now, "released"
                lasts = past + _lasting(mechanism, labels, left, share)
                rows = min(rows - 1, max(1, lasts - before))
    told = Forecast(
        missed=1 - high,
        false_alarm=low,
        share_needed=None if needed is None else needed / speaking,
        near=None if near is None else speaking,
        yes=share,
        yes_from=source,
        allowance=allowance,
        answered=answered,
        lasts=lasts,
    )
    return replace(told, warnings=_warnings(told, answered if asked is None else asked))


def chance_of_one(mechanism: Mechanism, voters: int, labels: int, count: int) -> float:
    """Return how often a label is released that so many voters want, and nobody any other."""
    speaking = count if mechanism.silence_is_zeros else voters  # where an empty ballot is a vote
    single = mechanism.surprise_unit == "vote"  # each label has an election of its own
    votes = np.zeros((speaking, 1 if single else labels), np.bool_)
    votes[:count, 0] = True
    block = SparseBlock(np.zeros(speaking, np.int64), np.arange(speaking), votes, 1, voters)
    return float(mechanism.cell_probabilities(mechanism.tally(block))[0, 0, 1])


def _departing(
    released: npt.NDArray[np.int8], baseline: npt.NDArray[Any] | None, low: float, high: float
) -> float | None:
    """Return the share of votes that depart from the baseline; None if labels do not tell it.

    Wanted labels, a share w, are released as 1 with chance ``high``, others with chance ``low``, so
    that the released share is w high + (1 - w) low.
    """
    counts = np.zeros((2, 2), np.int64)  # where the baseline is 0 and 1: answered, ones
    for start in range(0, len(released), _ROWS):
        part = released[start : start + _ROWS]
        guess = np.False_ if baseline is None else baseline[start : start + len(part)] > 0
        for side in (0, 1):
            cells = part[np.broadcast_to(guess == side, part.shape)]
            counts[side] += np.count_nonzero(cells >= 0), np.count_nonzero(cells == 1)
    answered, ones = counts.T
    if high - low < _TELLING or not answered.any():
        return None
    wanted = np.clip((ones / np.maximum(answered, 1) - low) / (high - low), 0, 1)
    departs = answered[0] * wanted[0] + answered[1] * (1 - wanted[1])
    return min(max(float(departs / answered.sum()), 1e-9), 1 - 1e-9)


def _lasting(mechanism: Mechanism, labels: int, allowance: float, share: float) -> int:
    """Return for how many queries an allowance lasts the busiest voter, if such a share departs."""
    by_vote = mechanism.surprise_unit == "vote"
    most = labels if by_vote else 1  # surprises on a query
    mean = share * labels if by_vote else 1 - (1 - share) ** labels
    lasts = max(allowance / (_BUSIEST * mean), allowance / most) * (1 + 1e-12)
    return max(0, math.floor(lasts))


def _warnings(told: Forecast, wanted: int) -> tuple[str, ...]:
    said = []
    if told.missed > WORRY:
        said.append(
            f"There is much noise for so few voters: {told.missed:.0%} of the labels that "
            f"{told.whoever} wants are missed, and more of those on which voters differ."
        )
    if told.false_alarm > WORRY * (1 + 1e-6):  # a bar for this very chance is rounded
        said.append(
            f"{told.false_alarm:.0%} of the labels that nobody wants are released as 1: where few "
            "labels are wanted, many of the ones are false."
        )
    if told.lasts is not None and told.lasts < wanted:
        many, since = f"{told.lasts:,}", "from then on"
        if not told.lasts:
            many, since = "less than one", "in the first"
        said.append(
            f"{LASTS} {many} of {wanted:,} queries: {since} "
            "voters run out, and labels fall to the baseline: 0, unless you gave another."
        )
    return tuple(said)

"""How good a release will be, or was, and how much further an allowance should last.

From public numbers and from released labels: what is already out may be looked at as often as one
likes. Nothing here knows what is sealed, such as who ran out.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..blocks import SparseBlock
from ..errors import InputError
from ..forecast import Forecast
from ..ledger import Budget
from ..mechanisms import Mechanism
from ..release import Release
from .budget import allowance_for, queries_for, unanimous_miss
from .outlook import BUSIEST, Outlook

_SURE = 0.95
WORRY = 0.05  # of labels that every voter wants: above, the forecast warns
_DEVIATIONS = 1.0  # by which the share of released ones may be too small by chance
_FEW = 0.2  # of the voters
_TELLING = 0.1  # wanted labels must be released so much more often to be told from the others
_STATED = 200  # released labels that a stated share counts as
LIKELY = 0.9  # agreement at which released labels are read: more would be read as fewer yeses

Labels = npt.NDArray[np.int8]


def forecast(
    mechanism: Mechanism,
    voters: int,
    labels: int,
    *,
    allowance: int | None = None,
    yes: float | None = None,
    released: npt.ArrayLike | None = None,
    baseline: npt.ArrayLike | None = None,
    asked: int | None = None,
    busiest: float = BUSIEST,
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
    released
        (queries, labels) of 1, 0 and ABSTAIN: all that was released from this allowance so far.
    baseline
        (queries, labels) public guess for those; zeros by default.
    asked
        How many queries are to be answered in all; those that were, by default.
    busiest
        How often the busiest voter departs from the baseline, over the mean.
    """
    known = None if released is None else _check_released(released, labels)
    missed = unanimous_miss(mechanism, voters, labels)
    alarm = chance_of_one(mechanism, voters, labels, 0)
    answered = 0 if known is None else len(known)
    share, source = yes, None if yes is None else "stated"
    if share is None and known is not None:
        share = _released_share(mechanism, voters, known, _check_baseline(baseline, known), None)
        source = None if share is None else "released"
    lasts = None
    if allowance is not None and share is not None:
        lasts = lasts_for(mechanism, voters, labels, allowance, share, busiest)
    wanted = answered if asked is None else asked
    return Forecast(
        missed=missed,
        false_alarm=alarm,
        share_needed=_share_needed(mechanism, voters, labels),
        yes=share,
        yes_from=source,
        allowance=allowance,
        answered=answered,
        lasts=lasts,
        warnings=tuple(_warnings(missed, alarm, lasts, wanted)),
    )


def with_forecast(
    release: Release,
    mechanism: Mechanism,
    *,
    yes: float | None = None,
    baseline: npt.ArrayLike | None = None,
    asked: int | None = None,
) -> Release:
    """Return a release with what is to be expected of it; parameters as in `forecast`."""
    if not release.answered:  # a test that failed
        return release
    found = forecast(
        mechanism,
        release.voters,
        release.labels.shape[1],
        allowance=None if release.allowance is None else int(np.min(release.allowance)),
        yes=yes,
        released=release.labels,
        baseline=baseline,
        asked=release.so_far if asked is None else asked,
    )
    return replace(release, forecast=found)


def better_guarantee(
    mechanism: Mechanism,
    voters: int,
    labels: int,
    budget: Budget,
    queries: int,
    *,
    yes: float,
    goes_on: bool = False,
) -> str:
    """Return "allowance" or "worst-case": under which a mechanism answers more queries well.

    By public numbers only. Where both are enough for all queries, labels are equally good; then the
    worst case, since nobody can run out and only what is answered is charged. If it ``goes_on``, as
    with a ledger, what is enough for more queries.
    """
    given = voters, labels, budget.epsilon, budget.delta
    worst = queries_for(mechanism, *given, rule=budget.rule)
    allowance = allowance_for(mechanism, *given, rule=budget.rule)
    lasts = lasts_for(mechanism, voters, labels, allowance, yes, BUSIEST) if allowance else 0
    if not worst and allowance:
        return "allowance"  # what it lasts for is a guess; what fits in the worst case is not
    enough = min(worst, lasts) >= queries and not goes_on
    return "worst-case" if enough or worst >= lasts else "allowance"


def queries_left(
    mechanism: Mechanism,
    voters: int,
    allowance: int,
    released: npt.ArrayLike,
    *,
    baseline: npt.ArrayLike | None = None,
    yes: float | None = None,
    busiest: float = BUSIEST,
) -> int | None:
    """Return for how many further queries an allowance should last, by what was released from it.

    To release in batches and stop in time: released labels cost nothing to look at. How often
    voters depart from the baseline is estimated from how often released labels do, corrected for
    the noise, which is known, and with a margin: for chance, for labels missed because voters
    disagree, and for the busiest voter.

    Parameters
    ----------
    mechanism, voters, allowance
        As in `forecast`.
    released
        (queries, labels): all that was released from this allowance so far, at least one query.
    baseline
        (queries, labels) public guess for those; zeros by default.
    yes
        The share of votes that depart from the baseline, as a guess: it counts as much as 200
        released labels do, so that a first, small batch does not decide alone.
    busiest
        How often the busiest voter departs from the baseline, over the mean.

    Returns
    -------
    A number of queries; None where there is too much noise for released labels to tell.
    """
    known = np.asarray(released)
    known = _check_released(known, known.shape[-1] if known.ndim else 0)
    share = _released_share(mechanism, voters, known, _check_baseline(baseline, known), yes)
    if share is None:
        return None
    lasts = lasts_for(mechanism, voters, known.shape[1], allowance, share, busiest)
    return max(0, lasts - len(known))


def _released_share(
    mechanism: Mechanism,
    voters: int,
    released: Labels,
    baseline: npt.NDArray[np.bool_],
    stated: float | None,
) -> float | None:
    """Return the share of votes that depart from the baseline, as released labels tell, or more.

    Wanted labels, a share w, are released as 1 with chance p, others with chance q, so that the
    released share is w p + (1 - w) q. To be on the safe side, q is that of labels that nobody
    wants, and p that of labels that 0.9 of the voters want.
    """
    labels = released.shape[1]
    q = chance_of_one(mechanism, voters, labels, 0)
    p = chance_of_one(mechanism, voters, labels, math.ceil(LIKELY * voters))
    known = released >= 0
    if p - q < _TELLING or not known.any() or few_suffice(mechanism, voters, labels):
        return None
    departs, variance = 0.0, 0.0
    for side in (False, True):
        here = known & (baseline == side)
        seen = np.count_nonzero(here)
        if not seen:
            continue
        ones = np.count_nonzero(here & (released == 1)) / seen
        wanted = min(max((ones - q) / (p - q), 0.0), 1.0)
        departs += seen * (1 - wanted if side else wanted)
        variance += seen * max(ones * (1 - ones), 1 / seen) / (p - q) ** 2
    cells = float(known.sum())
    if stated is not None:
        departs, cells = departs + _STATED * stated, cells + _STATED
    share = (departs + _DEVIATIONS * math.sqrt(variance)) / cells
    return min(max(share, 1e-9), 1.0 - 1e-9)


def few_suffice(mechanism: Mechanism, voters: int, labels: int) -> bool:
    """Return whether a fifth of the voters is enough for a 1, so that a 1 tells little of them.

    As with a bar for records, of which only those near a query speak.
    """
    return chance_of_one(mechanism, voters, labels, int(_FEW * voters)) >= 0.5


def lasts_for(
    mechanism: Mechanism, voters: int, labels: int, allowance: int, share: float, busiest: float
) -> int:
    """Return for how many queries an allowance lasts if such a share of votes departs."""
    if mechanism.surprise_unit == "ballot":  # a ballot is one surprise, however much it departs
        ballots = 1 - (1 - share) ** labels
        labels, share = 1, min(max(ballots, 1e-9), 1 - 1e-9)
    outlook = Outlook(voters=voters, labels=labels, yes=share, busiest=busiest)
    return outlook.lasts(allowance)


def chance_of_one(mechanism: Mechanism, voters: int, labels: int, count: int) -> float:
    """Return how often a label is released that so many voters want, and nobody any other."""
    speaking = count if mechanism.silence_is_zeros else voters  # where an empty ballot is a vote
    single = mechanism.surprise_unit == "vote"  # each label has an election of its own
    votes = np.zeros((speaking, 1 if single else labels), np.bool_)
    votes[:count, 0] = True
    block = SparseBlock(np.zeros(speaking, np.int64), np.arange(speaking), votes, 1, voters)
    return float(mechanism.cell_probabilities(mechanism.tally(block))[0, 0, 1])


def _share_needed(mechanism: Mechanism, voters: int, labels: int) -> float | None:
    if chance_of_one(mechanism, voters, labels, voters) < _SURE:
        return None
    low, high = -1, voters
    while high - low > 1:
        middle = (low + high) // 2
        enough = chance_of_one(mechanism, voters, labels, middle) >= _SURE
        low, high = (low, middle) if enough else (middle, high)
    return high / voters


def _warnings(missed: float, alarm: float, lasts: int | None, wanted: int) -> list[str]:
    said = []
    if missed > WORRY:
        said.append(
            f"There is much noise for so few voters: {missed:.0%} of the labels that every voter "
            "wants are missed, and more of those on which voters differ."
        )
    if alarm > WORRY:
        said.append(
            f"{alarm:.0%} of the labels that nobody wants are released as 1: where few labels are "
            "wanted, many of the ones are false."
        )
    if lasts is not None and lasts < wanted:
        said.append(
            f"The allowance should last for {lasts:,} of {wanted:,} queries: from then on voters "
            "run out, and labels drift to the baseline."
        )
    return said


def _check_released(released: npt.ArrayLike, labels: int) -> Labels:
    array = np.asarray(released)
    if array.ndim != 2 or array.shape[1] != labels or not array.size:
        raise InputError(
            "released",
            f"must have the shape (queries, labels), and some of both; got {array.shape}",
        )
    if array.dtype.kind not in "biu" or array.min() < -1 or array.max() > 1:
        raise InputError("released", "must hold 1, 0 and -1 (held back) only")
    return array.astype(np.int8)


def _check_baseline(baseline: Any, released: Labels) -> npt.NDArray[np.bool_]:
    if baseline is None:
        return np.zeros(released.shape, np.bool_)
    array = np.asarray(baseline)
    if array.shape != released.shape:
        raise InputError(
            "baseline",
            f"must have the shape of what was released, {released.shape}, got {array.shape}",
        )
    return array.astype(np.bool_)

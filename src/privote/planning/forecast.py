"""How good a release will be, or was, and how much further an allowance should last.

From public numbers and from released labels alone (:mod:`privote.planning.crowd`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..forecast import LASTS, Forecast
from ..ledger.totals import Earlier
from ..mechanisms import Mechanism
from ..release import Release
from .budget import unanimous_miss
from .crowd import YES, Bools, Crowd, Labels
from .outlook import BUSIEST

WORRY = 0.05  # of labels that every voter wants: above, the forecast warns


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
    earlier: Earlier | None = None,
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
    released
        (queries, labels) of 1, 0 and ABSTAIN: what was released from this allowance with this kind
        of baseline.
    baseline
        (queries, labels) public guess for those; zeros by default.
    asked
        How many queries are to be answered in all; those that were, by default.
    busiest
        How often the busiest voter departs from the baseline, over the mean.
    earlier
        What was released from this allowance before, perhaps with another baseline. Of queries
        whose labels it does not tell, voters are taken to have departed as often as now.
    near
        Of voters who are near some queries only, and silent on others: the share of them that
        speaks on a query, one for all labels or (labels,).
    """
    known = None if released is None else _check_released(released, labels)
    past = Earlier() if earlier is None else earlier
    everybody = Crowd(mechanism, voters, labels, busiest)
    crowd, missed = replace(everybody, near=near), unanimous_miss(mechanism, voters, labels)
    if near is not None:  # some labels may be asked of more voters than others
        missed = 1 - float(np.mean([crowd.chance(int(n)) for n in crowd.speaking]))
    answered = past.queries + (0 if known is None else len(known))
    share, source = yes, None if yes is None else "stated"
    if share is None and known is not None:
        before = everybody.share_before(past)
        guess = _check_baseline(baseline, known)
        share = crowd.share(known, guess, before)
        source = None if share is None else "released"
    lasts = None
    if allowance is not None and share is not None:
        rest = allowance - everybody.used(past)
        lasts = past.told + everybody.lasts(rest, share)
        # Rows after that are of voters who ran out, and would say that they say yes less often.
        while source == "released" and known is not None and near is None:
            rows = max(1, lasts - past.queries)
            if rows >= len(known):
                break
            known, guess = known[:rows], guess[:rows]
            fewer = crowd.share(known, guess, before)
            if fewer is None or fewer <= share:
                break
            share = fewer
            lasts = past.told + everybody.lasts(rest, share)
    found = Forecast(
        missed=missed,
        false_alarm=crowd.chance(0),
        share_needed=crowd.share_needed(),
        near=None if near is None else int(np.median(crowd.speaking)),
        yes=share,
        yes_from=source,
        allowance=allowance,
        answered=answered,
        lasts=lasts,
    )
    return replace(found, warnings=tuple(_warnings(found, answered if asked is None else asked)))


def with_forecast(
    release: Release,
    mechanism: Mechanism,
    *,
    asked: int | None = None,
    earlier: Earlier | None = None,
    **given: Any,
) -> Release:
    """Return a release with what is to be expected of it; parameters as in `forecast`."""
    if not release.answered:  # a test that failed
        return release
    so_far = release.answered if release.so_far is None else release.so_far
    found = forecast(
        mechanism,
        release.voters,
        release.labels.shape[1],
        allowance=_least(release.allowance),
        released=release.labels,
        asked=so_far if asked is None else asked,
        earlier=Earlier(queries=so_far - release.answered) if earlier is None else earlier,
        **given,
    )
    return replace(release, forecast=found)


def _least(allowance: int | tuple[int, ...] | None) -> int | None:
    """Return the least allowance of those who have a say at all."""
    each = allowance if isinstance(allowance, tuple) else (allowance or 0,)
    return min((own for own in each if own > 0), default=None)


#: Shares of the voters that want a label, for which a page says how often it is released.
AGREEMENTS = (1.0, 0.9, 0.8, 0.7, 0.6)


def by_agreement(
    mechanism: Mechanism, voters: int, labels: int, found: Forecast
) -> list[dict[str, float]]:
    """Return how often labels are missed and false alarms given, by how far voters agree.

    As in :mod:`privote.planning.outlook`: where fewer agree on what is wanted, the yeses of the
    others are strays on labels that are not wanted.
    """
    crowd = Crowd(mechanism, voters, labels)
    speaking = voters if found.near is None else found.near
    yes = YES if found.yes is None or found.near is not None else found.yes
    rows = []
    for level in AGREEMENTS:
        # Where nearly all votes are a yes, others are said yes to as often as what is wanted.
        strays = min(level, (1 - level) * yes / max(1 - yes, 1e-9))
        wanted, other = (crowd.chance(round(share * speaking)) for share in (level, strays))
        rows.append({"agreement": level, "missed": 1 - wanted, "false_alarm": other})
    return rows


def yes_share(release: Release, mechanism: Mechanism) -> npt.NDArray[np.float64]:
    """Return how often voters said yes to each label, from released labels alone: (labels,).

    With noise a share ``low`` of ones is released where nobody wants a label, and ``high`` where
    everybody does; in between it is about a straight line.
    """
    answered = release.labels >= 0
    ones = (release.labels == 1).sum(axis=0) / np.maximum(answered.sum(axis=0), 1)
    if mechanism.surprise_unit != "vote":
        return np.asarray(ones)
    crowd = Crowd(mechanism, release.voters, 1)
    low, high = (crowd.chance(count) for count in (0, release.voters))
    return np.asarray(np.clip((ones - low) / max(high - low, 1e-9), 0.0, 1.0))


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
    mechanism, voters, allowance, baseline, busiest
        As in `forecast`.
    released
        (queries, labels): all that was released from this allowance so far, at least one query.
    yes
        The share of votes that depart from the baseline, as a guess: it counts as much as 200
        released labels do, so that a first, small batch does not decide alone.

    Returns
    -------
    A number of queries; None where there is too much noise for released labels to tell.
    """
    known = np.asarray(released)
    known = _check_released(known, known.shape[-1] if known.ndim else 0)
    crowd = Crowd(mechanism, voters, known.shape[1], busiest)
    return crowd.left(allowance, known, _check_baseline(baseline, known), yes)


def _warnings(found: Forecast, wanted: int) -> list[str]:
    said = []
    if found.missed > WORRY:
        said.append(
            f"There is much noise for so few voters: {found.missed:.0%} of the labels that "
            f"{found.whoever} wants are missed, and more of those on which voters differ."
        )
    if found.false_alarm > WORRY * (1 + 1e-6):  # a bar for this very chance is rounded
        said.append(
            f"{found.false_alarm:.0%} of the labels that nobody wants are released as 1: where few "
            "labels are wanted, many of the ones are false."
        )
    if found.lasts is not None and found.lasts < wanted:
        many, since = f"{found.lasts:,}", "from then on"
        if not found.lasts:
            many, since = "less than one", "in the first"
        said.append(
            f"{LASTS} {many} of {wanted:,} queries: {since} "
            "voters run out, and labels fall to the baseline: 0, unless you gave another."
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
    return array.astype(np.int8, copy=False)


def _check_baseline(baseline: Any, released: Labels) -> Bools:
    if baseline is None:
        return np.broadcast_to(np.False_, released.shape)
    array = np.asarray(baseline)
    if array.shape != released.shape:
        raise InputError(
            "baseline",
            f"must have the shape of what was released, {released.shape}, got {array.shape}",
        )
    return array.astype(np.bool_, copy=False)

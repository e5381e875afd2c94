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
from scipy.special import ndtri

from ..errors import InputError
from ..forecast import LASTS, Forecast
from ..ledger.totals import Earlier
from ..mechanisms import Mechanism
from ..release import Release
from .budget import chance_of_one, unanimous_miss
from .outlook import BUSIEST, Outlook

#: The share of yes among all votes where nobody states one: that of `advise`.
YES = 0.1

_SURE = 0.95
WORRY = 0.05  # of labels that every voter wants: above, the forecast warns
_DEVIATIONS = 1.0  # by which the share of released ones may be too small by chance
_FEW = 0.2  # of the voters
_TELLING = 0.1  # wanted labels must be released so much more often to be told from the others
_STATED = 200  # released labels that a stated share counts as
_CELLS = 1 << 22  # labels that are counted at a time
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
    crowd = _Crowd(mechanism, voters, labels, near)
    answered = past.queries + (0 if known is None else len(known))
    share, source = yes, None if yes is None else "stated"
    if share is None and known is not None:
        before = _share_before(mechanism, voters, labels, past, None)
        guess = _check_baseline(baseline, known)
        share = crowd.share(known, guess, before)
        source = None if share is None else "released"
    lasts = None
    if allowance is not None and share is not None:
        rest = allowance - used(mechanism, voters, labels, past, busiest=busiest)
        lasts = past.told + lasts_for(mechanism, voters, labels, rest, share, busiest)
        # Rows after that are of voters who ran out, and would say that they say yes less often.
        while source == "released" and known is not None and crowd.everybody:
            rows = max(1, lasts - past.queries)
            if rows >= len(known):
                break
            known, guess = known[:rows], guess[:rows]
            fewer = crowd.share(known, guess, before)
            if fewer is None or fewer <= share:
                break
            share = fewer
            lasts = past.told + lasts_for(mechanism, voters, labels, rest, share, busiest)
    found = Forecast(
        missed=crowd.missed,
        false_alarm=crowd.chance(0),
        share_needed=crowd.share_needed(),
        near=None if near is None else crowd.size,
        yes=share,
        yes_from=source,
        allowance=allowance,
        answered=answered,
        lasts=lasts,
    )
    return replace(found, warnings=tuple(_warnings(found, answered if asked is None else asked)))


class _Crowd:
    """The voters who speak on a query: all of them, or those near it."""

    def __init__(self, mechanism: Mechanism, voters: int, labels: int, near: Any) -> None:
        self.mechanism, self.voters, self.labels = mechanism, voters, labels
        self.size, self.everybody = voters, near is None
        self.missed = unanimous_miss(mechanism, voters, labels)
        if near is not None:  # some labels may be asked of more voters than others
            counts = np.rint(np.broadcast_to(near, labels) * voters).clip(1, voters)
            chance = {n: self.chance(int(n)) for n in np.unique(counts)}
            self.size = int(np.median(counts))
            self.missed = 1 - float(np.mean([chance[n] for n in counts]))

    def chance(self, count: int) -> float:
        return chance_of_one(self.mechanism, self.voters, self.labels, count)

    def share(
        self, known: Labels, baseline: npt.NDArray[np.bool_], before: float | None
    ) -> float | None:
        """Return the share of votes that depart from the baseline, by what was released."""
        bar = None if self.everybody else self.mechanism.noisy_bar(self.voters)
        if bar is None:
            return _released_share(self.mechanism, self.voters, known, baseline, before)
        # Of few voters near a query, how often their votes pass the bar tells how many they are.
        told = (known >= 0).sum(axis=0) + 1.0
        often = ((known == 1).sum(axis=0) + 0.5) / told
        votes = np.maximum(bar[0] + bar[1] * ndtri(often), 0.0)
        return min(max(float(votes.mean()) / self.voters, 1e-9), 1.0 - 1e-9)

    def share_needed(self) -> float | None:
        """Return the share of these voters with whom a label is released with 95 percent."""
        low, high = -1, self.size
        if self.chance(high) < _SURE:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            enough = self.chance(middle) >= _SURE
            low, high = (low, middle) if enough else (middle, high)
        return high / self.size


def with_forecast(
    release: Release,
    mechanism: Mechanism,
    *,
    yes: float | None = None,
    baseline: npt.ArrayLike | None = None,
    asked: int | None = None,
    busiest: float = BUSIEST,
    earlier: Earlier | None = None,
    near: npt.ArrayLike | None = None,
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
        yes=yes,
        released=release.labels,
        baseline=baseline,
        asked=so_far if asked is None else asked,
        busiest=busiest,
        earlier=Earlier(queries=so_far - release.answered) if earlier is None else earlier,
        near=near,
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
    crowd = voters if found.near is None else found.near
    yes = YES if found.yes is None or found.near is not None else found.yes
    rows = []
    for level in AGREEMENTS:
        # Where nearly all votes are a yes, others are said yes to as often as what is wanted.
        strays = min(level, (1 - level) * yes / max(1 - yes, 1e-9))
        wanted, other = (
            chance_of_one(mechanism, voters, labels, round(share * crowd))
            for share in (level, strays)
        )
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
    low, high = (chance_of_one(mechanism, release.voters, 1, n) for n in (0, release.voters))
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
    share = _released_share(mechanism, voters, known, _check_baseline(baseline, known), yes)
    if share is None:
        return None
    lasts = lasts_for(mechanism, voters, known.shape[1], allowance, share, busiest)
    return max(0, lasts - len(known))


def _counted(
    released: Labels, baseline: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return how many labels were released, and how many as 1, where the baseline is 0 and 1."""
    answered, ones = np.zeros(2, np.int64), np.zeros(2, np.int64)
    step = max(1, _CELLS // max(1, released.shape[1]))
    for start in range(0, len(released), step):
        part, guess = released[start : start + step], baseline[start : start + step]
        for found, which in ((answered, part >= 0), (ones, part == 1)):
            above = np.count_nonzero(which & guess)
            found += np.count_nonzero(which) - above, above
    return answered, ones


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
    answered, ones_of = _counted(released, baseline)
    if p - q < _TELLING or not answered.any() or few_suffice(mechanism, voters, labels):
        return None
    departs, variance = 0.0, 0.0
    for side, seen in enumerate(answered.tolist()):
        if not seen:
            continue
        ones = ones_of[side] / seen
        wanted = min(max((ones - q) / (p - q), 0.0), 1.0)
        departs += seen * (1 - wanted if side else wanted)
        variance += seen * max(ones * (1 - ones), 1 / seen) / (p - q) ** 2
    cells = float(answered.sum())
    if stated is not None:
        departs, cells = departs + _STATED * stated, cells + _STATED
    share = (departs + _DEVIATIONS * math.sqrt(variance)) / cells
    return min(max(share, 1e-9), 1.0 - 1e-9)


def used(
    mechanism: Mechanism,
    voters: int,
    labels: int,
    earlier: Earlier,
    *,
    yes: float | None = None,
    busiest: float = BUSIEST,
) -> int:
    """Return how many surprises the busiest voter should have cast, by what was released before."""
    share = _share_before(mechanism, voters, labels, earlier, yes) or yes or YES
    outlook = _outlook(mechanism, voters, labels, share, busiest)
    return outlook.surprises(earlier.told) if earlier.told else 0


def _share_before(
    mechanism: Mechanism, voters: int, labels: int, earlier: Earlier, stated: float | None
) -> float | None:
    """Return the share of votes that departed from the baseline, by what was released before."""
    table = table_of(earlier, labels)
    return _released_share(mechanism, voters, table, np.zeros(table.shape, np.bool_), stated)


def table_of(earlier: Earlier, labels: int) -> Labels:
    """Return labels that depart from zeros as often as those that were released before did."""
    cells = np.zeros(earlier.told * labels, np.int8)
    cells[: earlier.departed] = 1
    return cells.reshape(earlier.told, labels)


def few_suffice(mechanism: Mechanism, voters: int, labels: int) -> bool:
    """Return whether a fifth of the voters is enough for a 1, so that a 1 tells little of them.

    As with a bar for records, of which only those near a query speak.
    """
    return chance_of_one(mechanism, voters, labels, int(_FEW * voters)) >= 0.5


def lasts_for(
    mechanism: Mechanism, voters: int, labels: int, allowance: int, share: float, busiest: float
) -> int:
    """Return for how many queries an allowance lasts if such a share of votes departs."""
    return _outlook(mechanism, voters, labels, share, busiest).lasts(allowance)


def _outlook(
    mechanism: Mechanism, voters: int, labels: int, share: float, busiest: float
) -> Outlook:
    """Return an electorate whose yes-votes are its surprises."""
    if mechanism.surprise_unit == "ballot":  # a ballot is one surprise, however much it departs
        ballots = 1 - (1 - share) ** labels
        labels, share = 1, min(max(ballots, 1e-9), 1 - 1e-9)
    return Outlook(voters=voters, labels=labels, yes=share, busiest=busiest)


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

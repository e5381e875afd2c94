"""How good a release will be, or was, and how much further an allowance should last.

From public numbers and from released labels alone: what is already out may be looked at as often as
one likes. Nothing here knows what is sealed, such as who ran out.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from ..accounting.allowance import MOST
from ..errors import InputError
from ..forecast import LASTS, Forecast
from ..ledger.totals import Earlier
from ..mechanisms import Mechanism
from ..release import Release
from ..votes.cube import SparseBlock
from .budget import unanimous_miss
from .tallies import YES

BUSIEST = 1.56  # times the mean: how often the busiest voter departs from the baseline
WORRY = 0.05  # of labels that every voter wants: above, the forecast warns

_SURE = 0.95
_DEVIATIONS = 1.0  # by which the share of released ones may be too small by chance
_FEW = 0.2  # of the voters: where they are enough for a 1, a 1 tells little of the others
_TELLING = 0.1  # wanted labels must be released so much more often to be told from the others
_STATED = 200  # released labels that a stated share counts as
_CELLS = 1 << 22  # labels that are counted at a time
_LIKELY = 0.9  # agreement at which released labels are read: more would be read as fewer yeses

Labels = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]


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
        guess, before = _check_baseline(baseline, known), everybody.share_before(past)
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


# -- what released labels tell ---------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Crowd:
    """Voters, and the mechanism that they are asked with.

    Parameters
    ----------
    mechanism, voters, labels
        How a tally becomes labels, and the sizes.
    busiest
        How often the busiest voter departs from the baseline, over the mean.
    near
        Of voters who are near some queries only, and silent on others: the share of them that
        speaks on a query, one for all labels or (labels,).
    """

    mechanism: Mechanism
    voters: int
    labels: int
    busiest: float = BUSIEST
    near: npt.ArrayLike | None = None

    def chance(self, count: int) -> float:
        """Return how often a label is released that so many voters want, and nobody any other."""
        given = self.mechanism, self.voters, self.labels, count
        try:
            return _chance_of_one(*given)
        except TypeError:  # a mechanism of one's own that has no hash
            return _chance_of_one.__wrapped__(*given)

    @property
    def ends(self) -> tuple[float, float]:
        """How often labels are released that nobody wants, and that 0.9 of the voters want."""
        return self.chance(0), self.chance(math.ceil(_LIKELY * self.voters))

    @property
    def speaking(self) -> npt.NDArray[np.float64]:
        """How many voters speak on each label of a query: (labels,)."""
        share = np.broadcast_to(1.0 if self.near is None else self.near, self.labels)
        return np.asarray(np.rint(share * self.voters).clip(1, self.voters))

    def share_needed(self) -> float | None:
        """Return the share of who speaks with whom a label is released with 95 percent."""
        size = int(np.median(self.speaking))
        if self.chance(size) < _SURE:
            return None
        return bisect_left(range(size), True, key=lambda n: self.chance(n) >= _SURE) / size

    def share(self, released: Labels, baseline: Bools, stated: float | None) -> float | None:
        """Return the share of votes that depart from the baseline, as labels tell, or more.

        Wanted labels, a share w, are released as 1 with chance p, others with chance q, so that the
        released share is w p + (1 - w) q. To be on the safe side, q is that of labels that nobody
        wants, and p that of labels that 0.9 of the voters want.
        """
        bar = None if self.near is None else self.mechanism.noisy_bar(self.voters)
        if bar is not None:
            # Of few voters near a query, how often their votes pass the bar tells how many they
            # are.
            told = (released >= 0).sum(axis=0) + 1.0
            often = ((released == 1).sum(axis=0) + 0.5) / told
            votes = np.maximum(bar[0] + bar[1] * ndtri(often), 0.0)
            return _inside(float(votes.mean()) / self.voters)
        q, p = self.ends
        answered, ones_of = _counted(released, baseline)
        few = self.chance(int(_FEW * self.voters)) >= 0.5
        if p - q < _TELLING or not answered.any() or few:
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
        return _inside((departs + _DEVIATIONS * math.sqrt(variance)) / cells)

    def before(self, earlier: Earlier) -> Labels:
        """Return labels that depart from zeros as often as those that were released before did."""
        cells = np.zeros(earlier.told * self.labels, np.int8)
        cells[: earlier.departed] = 1
        return cells.reshape(earlier.told, self.labels)

    def share_before(self, earlier: Earlier, stated: float | None = None) -> float | None:
        """Return the share of votes that departed before, by what was released then."""
        table = self.before(earlier)
        return self.share(table, np.zeros(table.shape, np.bool_), stated)

    def used(self, earlier: Earlier, yes: float | None = None) -> int:
        """Return how many surprises the busiest voter should have cast before, by what came out."""
        share = self.share_before(earlier, yes) or yes or YES
        mean, most = self._surprises(share)
        chance = mean * earlier.told + 2 * math.sqrt(mean * earlier.told * (1 - share))
        return math.ceil(min(max(self.busiest * mean * earlier.told, chance), most * earlier.told))

    def lasts(self, allowance: int, share: float) -> int:
        """Return for how many queries an allowance lasts if such a share of votes departs."""
        mean, most = self._surprises(share)
        # The positive root of mean + 2 sqrt(mean (1 - share)) = allowance: some voter has more.
        root = math.sqrt(1 - share)
        chance = (math.sqrt(max(root**2 + allowance, 0.0)) - root) ** 2 / mean
        lasts = max(min(allowance / (self.busiest * mean), chance), allowance / most)
        return math.floor(min(lasts * (1 + 1e-12), MOST))

    def left(
        self, allowance: int, released: Labels, baseline: Bools, stated: float | None
    ) -> int | None:
        """Return for how many further queries it lasts; None if released labels do not tell."""
        share = self.share(released, baseline, stated)
        return None if share is None else max(0, self.lasts(allowance, share) - len(released))

    def _surprises(self, share: float) -> tuple[float, int]:
        """Return how many surprises a voter casts on a query, and the most there can be."""
        if self.mechanism.surprise_unit == "ballot":  # one, however much it departs
            return _inside(1 - (1 - share) ** self.labels), 1
        return share * self.labels, self.labels


@lru_cache(maxsize=4096)  # every batch of an electorate asks for the same numbers again
def _chance_of_one(mechanism: Mechanism, voters: int, labels: int, count: int) -> float:
    speaking = count if mechanism.silence_is_zeros else voters  # where an empty ballot is a vote
    single = mechanism.surprise_unit == "vote"  # each label has an election of its own
    votes = np.zeros((speaking, 1 if single else labels), np.bool_)
    votes[:count, 0] = True
    block = SparseBlock(np.zeros(speaking, np.int64), np.arange(speaking), votes, 1, voters)
    return float(mechanism.cell_probabilities(mechanism.tally(block))[0, 0, 1])


def _inside(share: float) -> float:
    """Return a share strictly between 0 and 1."""
    return min(max(share, 1e-9), 1.0 - 1e-9)


def _counted(
    released: Labels, baseline: Bools
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

"""What released labels tell of the voters: how often they depart from the baseline, by estimate.

And so for how many queries an allowance lasts. From public numbers and from released labels: what
is already out may be looked at as often as one likes. Nothing here knows what is sealed, such as
who ran out.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from ..blocks import SparseBlock
from ..ledger.totals import Earlier
from ..mechanisms import Mechanism
from .outlook import BUSIEST, Outlook

#: The share of yes among all votes where nobody states one: that of `advise`.
YES = 0.1

_SURE = 0.95
_DEVIATIONS = 1.0  # by which the share of released ones may be too small by chance
_FEW = 0.2  # of the voters
_TELLING = 0.1  # wanted labels must be released so much more often to be told from the others
_STATED = 200  # released labels that a stated share counts as
_CELLS = 1 << 22  # labels that are counted at a time
_LIKELY = 0.9  # agreement at which released labels are read: more would be read as fewer yeses

Labels = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]


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

    @property
    def few_suffice(self) -> bool:
        """Whether a fifth of the voters is enough for a 1, so that a 1 tells little of them.

        As with a bar for records, of which only those near a query speak.
        """
        return self.chance(int(_FEW * self.voters)) >= 0.5

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
        if p - q < _TELLING or not answered.any() or self.few_suffice:
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
        return self._outlook(share).surprises(earlier.told) if earlier.told else 0

    def lasts(self, allowance: int, share: float) -> int:
        """Return for how many queries an allowance lasts if such a share of votes departs."""
        return self._outlook(share).lasts(allowance)

    def left(
        self, allowance: int, released: Labels, baseline: Bools, stated: float | None
    ) -> int | None:
        """Return for how many further queries it lasts; None if released labels do not tell."""
        share = self.share(released, baseline, stated)
        return None if share is None else max(0, self.lasts(allowance, share) - len(released))

    def _outlook(self, share: float) -> Outlook:
        """Return an electorate whose yes-votes are its surprises."""
        labels = self.labels
        if self.mechanism.surprise_unit == "ballot":  # a ballot is one, however much it departs
            labels, share = 1, _inside(1 - (1 - share) ** labels)
        return Outlook(voters=self.voters, labels=labels, yes=share, busiest=self.busiest)


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

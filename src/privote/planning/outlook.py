"""What to expect of an electorate that nobody has heard yet, from a few public numbers.

The model, in plain words. A share ``yes`` of all votes is a yes. As many of the cells (query,
label) are *wanted*. Of the voters, a share ``agreement`` says yes to a wanted label; the other
yes-votes fall on labels that are not wanted, evenly, so that there a share
(1 - agreement) yes / (1 - yes) of the voters says yes. Voters decide each on their own. Some say
yes more often than others: the busiest ``busiest`` times as often as the mean.

With ``agreement=1`` all voters always say the same. At ``agreement=yes`` a vote says nothing about
what is wanted.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, roots_hermitenorm, xlog1py, xlogy

from ..accounting.renyi import Floats
from ..errors import InputError, finite, positive, whole
from ..mechanisms import Mechanism
from ..mechanisms.base import check_electorate
from ..mechanisms.cells import CellTally

#: The share of the voters that says yes to a wanted label, unless told.
AGREEMENT = 0.8
#: How often the busiest voter says yes, over the mean: about what the busiest of 60 has whose
#: shares of yes vary by a quarter of the mean. Teachers of equal parts differ less (tmc2007: 1.08),
#: but an allowance that ends too early costs more than one that is left over.
BUSIEST = 1.56

_DEVIATIONS = 2.0  # by which voters that are alike differ by chance
_QUERIES = 1 << 40  # an allowance lasts for no more
_EVERY_COUNT = 10_000  # voters up to which each count has its own chance


@dataclass(frozen=True, kw_only=True)
class Chances:
    """What to expect where a share ``agreement`` of the voters says yes to a wanted label.

    Attributes
    ----------
    agreement
        The share.
    missed
        How often a wanted label is not released.
    false_alarm
        How often a label that is not wanted is.
    """

    agreement: float
    missed: float
    false_alarm: float


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """An electorate as public numbers describe it.

    Parameters
    ----------
    voters, labels
        Its size.
    yes
        The share of yes among all votes.
    agreement
        The share of the voters that says yes to a wanted label, above ``yes``. By default 0.8, or
        halfway from ``yes`` to 1 where that is more.
    most_ones
        The most labels that a ballot may say yes to, where the rules of the vote limit it.
    busiest
        How often the busiest voter says yes, over the mean.
    """

    voters: int
    labels: int
    yes: float
    agreement: float | None = None
    most_ones: int | None = None
    busiest: float = BUSIEST

    def __post_init__(self) -> None:
        check_electorate(self.voters, self.labels)
        if not finite("yes", self.yes) < 1:
            raise InputError("yes", "must lie strictly between 0 and 1", self.yes)
        object.__setattr__(self, "yes", positive("yes", self.yes))
        level = max(AGREEMENT, (1 + self.yes) / 2) if self.agreement is None else self.agreement
        if not self.yes < finite("agreement", level) <= 1:
            raise InputError(
                "agreement",
                f"must lie above `yes` ({self.yes:g}), where voters do not agree at all, and be at "
                "most 1",
                level,
            )
        object.__setattr__(self, "agreement", float(level))
        if finite("busiest", self.busiest) < 1:
            raise InputError("busiest", "must be at least 1", self.busiest)
        object.__setattr__(self, "busiest", float(self.busiest))
        if self.most_ones is not None:
            whole("most_ones", self.most_ones)
            if self.labels * self.yes > self.most_ones:
                raise InputError(
                    "yes",
                    f"must be at most {self.most_ones / self.labels:.3g}, as a ballot has at most "
                    f"`most_ones={self.most_ones}` of {self.labels} labels",
                    self.yes,
                )

    @property
    def level(self) -> float:
        """The agreement, settled."""
        assert self.agreement is not None
        return self.agreement

    @property
    def longest(self) -> int:
        """The most labels that a ballot can say yes to."""
        return min(self.labels, self.labels if self.most_ones is None else self.most_ones)

    @property
    def per_query(self) -> float:
        """Yes-votes of a ballot, on average."""
        return self.labels * self.yes

    def strays(self, agreement: float | None = None) -> float:
        """Return the share of the voters that says yes to a label that is not wanted."""
        level = self.level if agreement is None else agreement
        return (1 - level) * self.yes / (1 - self.yes)

    def surprises(self, queries: int) -> int:
        """Return how many yes-votes the busiest voter casts on so many queries, with a margin."""
        mean = queries * self.labels * self.yes
        busy = queries * min(self.busiest * self.labels * self.yes, self.longest)
        chance = mean + _DEVIATIONS * math.sqrt(mean * (1 - self.yes))
        return min(math.ceil(max(busy, chance) * (1 - 1e-12)), queries * self.longest)

    def lasts(self, allowance: int) -> int:
        """Return for how many queries an allowance lasts, for the busiest voter too."""
        return bisect_right(range(1, _QUERIES), allowance, key=self.surprises)

    def lasting(self, allowance: Floats) -> Floats:
        """Return about the same for many allowances at once, as real numbers."""
        busy = min(self.busiest * self.per_query, self.longest)
        # The positive root of mean + 2 sqrt(mean (1 - yes)) = allowance.
        half = _DEVIATIONS * math.sqrt(1 - self.yes) / 2
        chance = (np.sqrt(half**2 + allowance) - half) ** 2 / self.per_query
        return np.asarray(
            np.maximum(np.minimum(allowance / busy, chance), allowance / self.longest)
        )

    def chances(self, mechanism: Mechanism, agreement: float | None = None) -> Chances:
        """Return how often a wanted label is missed, and how often an unwanted one is released.

        While no voter has run out. For mechanisms that release each label on its own count.
        """
        level = self.level if agreement is None else agreement
        return Chances(
            agreement=level,
            missed=1 - self.released(mechanism, level),
            false_alarm=self.released(mechanism, self.strays(level)),
        )

    def released(self, mechanism: Mechanism, share: float) -> float:
        """Return how often a label is released if each voter says yes with this chance."""
        counts, weights = _counts(self.voters, share)
        tally = CellTally(2 * counts[:, None] - self.voters, self.voters, False)
        return float(weights @ mechanism.cell_probabilities(tally)[:, 0, 1])


def _counts(voters: int, share: float) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return counts of yes-votes and their chances if each voter says yes with this chance."""
    if voters <= _EVERY_COUNT:
        counts = np.arange(voters + 1)
        ways = gammaln(voters + 1) - gammaln(counts + 1) - gammaln(voters - counts + 1)
        weights = np.exp(ways + xlogy(counts, share) + xlog1py(voters - counts, -share))
    else:
        nodes, weights = roots_hermitenorm(40)
        spread = math.sqrt(voters * share * (1 - share))
        counts = np.clip(np.rint(voters * share + spread * nodes), 0, voters).astype(np.int64)
    return counts, weights / weights.sum()

"""When to stop: how many queries to answer next from an allowance, by what was released so far.

Voters who have used up their allowance count as the baseline, and then labels drift there without a
word. Who has is sealed. But released labels may be looked at for nothing (post-processing), and
they tell two things: how often voters depart from the baseline, and so how long the allowance
should last; and, beyond that, whether labels have begun to depart less often than before. Both
are read here, with public numbers, and nothing else is: :meth:`Pace.more` takes no vote. `label`
asks for one run, PATE for each of its rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from ..accounting.allowance import MOST
from ..forecast import SPENT
from ..ledger.totals import Earlier
from ..mechanisms import Mechanism
from .forecast import BUSIEST, Bools, Crowd, Labels
from .tallies import YES

_STEP = 32  # beyond the forecast, a batch is such a part of what was answered
_ALARM = 3.0  # of the log of how much likelier it is that half of the departures are gone
_DUE = 2.0  # the same, where a mean voter should be out by now
_IN_TIME = 3.0  # an alarm must come within such a part of what the forecast covers
_EARLY = 0.8  # of the queries after which a mean voter should be out: few are, by then
_CAP = 1.5  # times the queries after which a mean voter should be out: no alarm is waited for


@dataclass(kw_only=True)
class Pace:
    """Paces one run: sizes of batches, and the end.

    Parameters
    ----------
    mechanism, labels
        How a tally becomes labels, and how many a ballot has.
    yes
        The share of votes that depart from the baseline, as a guess; None without one.
    busiest
        How often the busiest voter departs from it, over the mean.
    through
        Answer all that is asked, and only say what is to be expected.
    rounds
        In how many rounds the allowance is to be used up, this one included: before the last, what
        it may use is that part of what is left.
    anew
        Whether the baseline is another than before. Then what earlier runs released tells how much
        they used up, and not how fast it goes now.

    Attributes
    ----------
    out
        Whether released labels say that voters have run out.
    why
        Why it stopped, in a sentence; None while it has not.
    """

    mechanism: Mechanism
    labels: int
    yes: float | None = None
    busiest: float = BUSIEST
    through: bool = False
    rounds: int = 1
    anew: bool = False
    out: bool = False
    why: str | None = None
    _anchor: int | None = field(default=None, repr=False)

    def start(self, voters: int, allowance: int, earlier: Earlier) -> None:
        """Take in what is known before the first batch; all of it is public."""
        self.out, self._crowd = (
            earlier.out,
            Crowd(self.mechanism, voters, self.labels, self.busiest),
        )
        if self.anew:
            allowance -= self._crowd.used(earlier, self.yes)
            earlier = Earlier(queries=earlier.queries - earlier.told)
        self._allowance = allowance // self.rounds
        self._earlier, self._past = earlier, self._crowd.before(earlier)

    def more(self, released: Labels, baseline: Bools) -> int:
        """Return how many queries to answer next; 0 is the end of the run.

        Parameters
        ----------
        released, baseline
            (queries, labels): all that this run released so far, and the public guess for it.
        """
        done = self._earlier.queries + len(released)
        if self.through:
            if done and (self.out or self._left(released, baseline) <= 0):
                self._stopped(f"{SPENT}, as far as can be told")
            return MOST
        if self.out or self._allowance < 1:
            return self._stopped("released labels say that voters have used up their allowance")
        if self._anchor is None:
            left = self._left(released, baseline)
            if left > 0:
                return left if not len(released) else math.ceil(left / 2)
            if self.rounds > 1:
                return self._stopped("the next round has another baseline")
            self._anchor = len(released)
        if not self._told_in_time((released >= 0) & (released != baseline)):
            if self.out:
                return self._stopped("released labels say that voters begin to run out")
            return self._stopped("by what was released, voters are about to run out")
        return max(1, done // _STEP)

    def _stopped(self, why: str) -> int:
        done = self._earlier.queries
        before = f"; {done:,} queries were answered from it in earlier runs" if done else ""
        self.why = f"{why}{before}"
        return 0

    def _left(self, released: Labels, baseline: Bools) -> int:
        """Return how many more queries the allowance should last for; the first batch whole."""
        known = np.concatenate([self._past, released])
        unknown = self._earlier.queries - self._earlier.told
        if not len(known):
            by_vote = self.mechanism.surprise_unit == "vote"
            # Nobody can run out on so few; then released labels say how fast it goes.
            safe = 0 if unknown else max(1, self._allowance // (self.labels if by_vote else 1))
            return max(safe, (0 if self.yes is None and safe else self._stated() - unknown) // 2)
        guess = np.concatenate([np.zeros(self._past.shape, np.bool_), baseline])
        left = self._crowd.left(self._allowance, known, guess, self.yes)
        return (self._stated() - len(known) if left is None else left) - unknown

    def _stated(self) -> int:
        return self._crowd.lasts(self._allowance, YES if self.yes is None else self.yes)

    def _told_in_time(self, departs: Bools) -> bool:
        """Return whether all is well, and it would show soon enough if it were not.

        A cumulative sum (Page 1954) of log-likelihood ratios: half of the departures gone against
        all still there, counted from the end of what the forecast covers.
        """
        counts, past = departs.sum(axis=1), self._earlier
        floor = self.labels * self._crowd.chance(0)
        done, here = past.queries + len(counts), self._anchor or 0
        if not past.told + len(counts):
            return False
        # A few queries may depart much by chance: as long as voters are far from their end, all
        # that was released tells what is usual.
        usual = (past.departed + int(counts.sum())) / (past.told + len(counts)) - floor
        here = max(here, min(len(counts), int(_EARLY * self._mean_voter(usual)) - past.queries))
        many = past.told + here
        if not many:
            return False
        mean = (past.departed + int(counts[:here].sum())) / many
        fall = (mean - floor) / 2
        spread = max(mean * (1 - mean / self.labels), 1e-9)
        if here > 1:
            spread = max(spread, float(counts[:here].var()))
        if fall <= 0 or 2 * _ALARM * spread / fall**2 > many / _IN_TIME:
            return False
        ratio = fall / spread * (mean - fall / 2 - counts[here:])
        total = np.concatenate([[0.0], np.cumsum(ratio)])
        expected = self._mean_voter(2 * fall)
        bars = np.where(np.arange(done - len(ratio), done + 1) < expected, _ALARM, _DUE)
        self.out = bool((total - np.minimum.accumulate(total) > bars).any())
        return not self.out and done < _CAP * expected

    def _mean_voter(self, departures: float) -> int:
        """Return for how many queries a mean voter's allowance lasts, by released departures."""
        low, high = self._crowd.ends
        share = min(max(departures / self.labels / max(high - low, 1e-9), 1e-9), 1 - 1e-9)
        return replace(self._crowd, busiest=1.0).lasts(self._allowance, share)

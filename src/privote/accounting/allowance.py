"""Allowances: how much a budget buys, and how an allowance is learnt for a part of the budget.

The theorem: a voter may cast at most V contributions in its life, and a ballot that needs more than
is left counts as the public baseline. On every history the changed voter's two effective ballots
then differ in at most V + V places, each costing at most g, the others nothing. The sum of per-step
costs is bounded on every history, which is a Rényi filter (Feldman and Zrnic 2021), so the whole
adaptive run costs at most 2 V g, however many queries are asked.

Learning: V decides the noise (its deviation grows with the root of V), and one number about the
voters, paid for, is cheaper than a guess. y_i is how many contributions voter i would cast on all
queries that are asked, or planned. The score of an allowance V is

    u(V) = min(#{i: y_i <= V}, #{i: y_i > V / r} + floor(b n)),

high only where nearly all voters fit *and* V is not much larger than they need. Replacing a voter
moves u by at most 1, so the exponential mechanism Pr[V] ~ exp(epsilon0 u(V) / 2) has a log-ratio of
range epsilon0 between neighbours (Durfee and Rogers 2019), and costs at most order epsilon0^2 / 8
(Cesar and Rogers 2021). The noise may follow V because every branch then costs the same: two
ballots' effective votes differ in at most min(2V, cells) cells, so with s = sqrt(min(2V, cells))/mu
the tallies are mu-GDP whatever V is.

That holds for several batches, too, where what is asked next follows from released tallies (Smith
and Thakurta 2022, arXiv 2210.17520). Proof: the log-ratio of a batch is that of Gaussians whose
means differ by d_t, fixed by the history before it; so the sum is a Brownian motion with drift,
stopped when sum d_t^2 / s^2 is used up. Going on with differing means until that is mu^2 on every
history can only tell more, and then the sum is that of one Gaussian with this mu (Dambis, Dubins
and Schwarz).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr

from ..errors import InputError, finite, positive, whole
from .filters import pinned_order
from .renyi import Floats, check_delta, largest_curve

Counts = npt.NDArray[np.int64]

MOST = 10**12  # a cost of zero buys no more than this
FACTOR = 2  # the true ballots' contributions and the replaced ones'
ENOUGH = 14.0  # voters x epsilon0: below, the draw is too often far off
_PLENTY = 60.0  # voters x epsilon0: above, a better draw is worth less than less noise
_PART, _MOST = 1 / 10, 1 / 3  # of the budget at its order: what learning takes, and may take
_NARROW = 25.0  # voters x epsilon0 from which a narrow window is found
_FIXED = 8  # where nothing is learnt, V is this part of the cells
_MOST_CELLS = 10**24
_PIECES = 4096  # of the range over which the worst choice is looked for
_ROUNDING, _CANCELLED = 1e-9, 1e-13  # what rounding may take off a sum of tails; over a small mu


@dataclass(frozen=True, kw_only=True)
class Learning:
    """What is public about an allowance that is learnt: sizes, and what the learning may cost.

    Parameters
    ----------
    voters, queries, labels
        Registered voters, and how many queries on how many labels are planned in all. No more than
        that many queries may be answered.
    epsilon0
        The range of the exponential mechanism's log-ratio; 0 if the allowance is not learnt.
    """

    voters: int
    queries: int
    labels: int
    epsilon0: float

    def __post_init__(self) -> None:
        for name in ("voters", "queries", "labels"):
            whole(name, getattr(self, name))
        if self.cells > _MOST_CELLS:
            raise InputError("queries", f"must leave at most {_MOST_CELLS:g} cells", self.queries)
        if finite("epsilon0", self.epsilon0) < 0:
            raise InputError("epsilon0", "must not be negative", self.epsilon0)

    @property
    def cells(self) -> int:
        """How many votes a voter casts in all."""
        return self.queries * self.labels

    @property
    def learns(self) -> bool:
        """Whether there are voters enough to learn the allowance from them."""
        return self.voters * self.epsilon0 >= ENOUGH

    @property
    def window(self) -> tuple[Fraction, int, float]:
        """The ratio r, the bonus floor(b n), and the ratio of the grid."""
        if self.voters * self.epsilon0 >= _NARROW:
            return Fraction(5, 4), 3 * self.voters // 10, 1.08
        return Fraction(3, 2), 3 * self.voters // 20, 1.15

    @cached_property
    def grid(self) -> tuple[int, ...]:
        """The allowances to choose from, rising; with the last one nobody is ever cut."""
        top = -(-self.cells // 2)
        if not self.learns:
            return (-(-self.cells // _FIXED),)
        low = max(1.0, top / 500)
        points = 2 + int(math.log(top / low) / math.log(self.window[2]))
        steps = np.geomspace(low, top, points)
        return tuple(sorted({*(min(math.ceil(step), top) for step in steps.tolist()), top}))

    def covering(self, need: float) -> int:
        """Return the least allowance of the grid that covers a need; the largest covers any."""
        return next((point for point in self.grid if point >= need), self.grid[-1])

    def scores(self, contributions: Counts, scale: Fraction = Fraction(1)) -> Counts:
        """Return the score of each allowance of the grid: (grid,) integers.

        Parameters
        ----------
        contributions
            (voters,) How many contributions each voter would cast: private.
        scale
            What one of them counts: more than 1 where more queries are planned than asked, less
            where they are counted in finer units.
        """
        ratio, bonus, _ = self.window
        ranked = np.sort(np.asarray(contributions, np.int64))
        if len(ranked) != self.voters or (self.voters and ranked[0] < 0):
            raise InputError("contributions", f"must be {self.voters} non-negative counts")
        largest, (first, last) = np.iinfo(np.int64).max, (self.grid[0], self.grid[-1])
        bars = [min(math.floor(v / scale), largest) for v in self.grid]
        lower = [min(math.floor(v / ratio / scale), largest) for v in self.grid]
        fit = np.searchsorted(ranked, bars, side="right")
        need = self.voters - np.searchsorted(ranked, lower, side="right")
        # A count is clipped to the grid: below its first point, or above its last, it stands there.
        fit[np.equal(self.grid, last)] = self.voters
        need[[first * ratio > v for v in self.grid]] = self.voters
        return np.asarray(np.minimum(fit, need + bonus), np.int64)

    def log_probs(self, contributions: Counts, scale: Fraction = Fraction(1)) -> Floats:
        """Return the log-probability of each allowance of the grid: (grid,)."""
        weights = self.epsilon0 / 2 * self.scores(contributions, scale)
        return np.asarray(weights - np.logaddexp.reduce(weights))

    def limit(self, allowance: int) -> int:
        """Return a voter's contributions: all there are where 2 V covers the cells."""
        return allowance if 2 * allowance < self.cells else self.cells

    def sigma(self, allowance: int, mu: float) -> float:
        """Return the noise on a tally, in votes, that makes all planned tallies mu-GDP."""
        root = math.sqrt(min(2 * allowance, self.cells)) / positive("mu", mu)
        return root * (1 + 1e-12)  # never less for rounding


def settled(budget: float, delta: float) -> tuple[float, float]:
    """Return the order where a full budget settles, and the slope rho of the line that fills it."""
    order = pinned_order(budget, check_delta(delta))
    return order, float(largest_curve(budget, np.array([order]), delta)[0]) / order


def learning_epsilon(rho: float, voters: int) -> float:
    """Return epsilon0 for the learning; 0 where so few voters had better not be asked.

    A tenth of the budget rho, or less where so many voters tell more than enough. Where a tenth is
    too little for so few, as much as is enough, up to a third: then the noise grows by at most
    1.16, and a fixed allowance would be off by more. The cost at an order is order epsilon0^2 / 8.
    """
    epsilon0 = min(math.sqrt(8 * _PART * rho), _PLENTY / voters)
    epsilon0 = max(epsilon0, ENOUGH / voters * (1 + 1e-12))
    return epsilon0 if epsilon0**2 / 8 <= _MOST * rho else 0.0


def line(epsilon0: float, mu: float) -> float:
    """Return rho: learning with epsilon0 and then mu-GDP cost at most rho times the order.

    A choice of range epsilon0 costs order epsilon0^2 / 8, and mu-GDP order mu^2 / 2.
    """
    return epsilon0**2 / 8 + mu**2 / 2


def mu_at_order(left: float, order: float) -> float:
    """Return the mu of tallies that cost no more than this at a pinned order: order mu^2 / 2."""
    return math.sqrt(2 * max(left, 0.0) / order)


def gaussian_delta(mu: float, epsilon: npt.ArrayLike) -> Floats:
    """Return delta of mu-GDP at any epsilon, also a negative one (Dong et al. 2022, Corollary 1).

    Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu).
    """
    epsilons = np.asarray(epsilon, np.float64)
    high, low = log_ndtr(mu / 2 - epsilons / mu), epsilons + log_ndtr(-mu / 2 - epsilons / mu)
    return np.asarray(np.exp(high) * -np.expm1(np.minimum(low - high, 0.0)))


def _halved(beyond: Callable[[float], bool], halvings: int) -> tuple[float, float]:
    """Return a narrow interval, from the last number seen not to lie beyond to one that does."""
    low, high = 0.0, 1.0
    while not beyond(high):
        low, high = high, 2 * high
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (low, middle) if beyond(middle) else (middle, high)
    return low, high


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of mu-GDP at this delta, from above."""
    return _halved(lambda epsilon: learnt_delta(epsilon, 0.0, mu) <= delta, 50)[1]


def learnt_delta(epsilon: float, epsilon0: float, mu: float) -> float:
    """Return delta of a choice of range epsilon0, then mu-GDP on every branch: from above.

    A branch of loss l and probability P adds P delta_mu(epsilon - l). With x = e^l, that is Q times
    x delta_mu(epsilon - ln x), convex in x; the losses lie in an interval of length epsilon0, and
    the branches' probabilities add up to one in both worlds. So losses at its two ends, t and
    t - epsilon0, are the worst, with Pr[t] = (e^epsilon0 - e^t) / (e^epsilon0 - 1). Over t in
    [0, epsilon0] each factor rises or falls, so pieces of the range are bounded by their ends.
    """
    above = 1 + max(_ROUNDING, _CANCELLED / mu)  # two tails that are nearly the same
    if epsilon0 == 0:
        return float(gaussian_delta(mu, epsilon)) * above
    t = np.linspace(0.0, epsilon0, _PIECES + 1)
    upper = -np.expm1(t - epsilon0) / -math.expm1(-epsilon0)  # Pr[t], falling
    left = upper[:-1] * gaussian_delta(mu, epsilon - t[1:])
    right = (1 - upper[1:]) * gaussian_delta(mu, epsilon - t[1:] + epsilon0)
    return float((left + right).max()) * above


@lru_cache(maxsize=256)
def mu_of_budget(budget: float, delta: float, epsilon0: float) -> float:
    """Return the largest mu that a whole budget leaves after learning with epsilon0; 0 if none.

    For a budget without any other charge; the end of the interval that fits.
    """
    delta = check_delta(delta)
    return _halved(lambda mu: learnt_delta(budget, epsilon0, mu) > delta, 60)[0]

"""Mechanisms of a poll: one question to people, k options, winners (and counts) released.

Each is a noise on the tally of a poll with a price that holds on any ballots, known from public
numbers. What is decided from noisy counts (seats, a budget spent from the top) costs nothing more.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import roots_legendre

from ..accounting.counts import (
    DiscreteGaussian,
    bounded_range_rdp,
)
from ..accounting.renyi import Floats
from ..entropy import Entropy
from ..errors import UnavailableError
from ..links import GaussianLink
from .base import Bools
from .binary import BinaryVoting
from .outcomes import PollOutcome, PollSize, PollTally, Quota, Seats, Whole
from .tau import TauVoting

_GRID = 1000  # steps of a whole vote where ballots are clipped: counts stay integers
_NODES: tuple[Floats, Floats] = roots_legendre(400)


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """What a mechanism released: the winners (options,), and counts where it releases those."""

    winners: Bools
    counts: Whole | None = None


class PollMechanism(ABC):
    """A price that holds on any ballots, and a draw that follows it."""

    name: ClassVar[str]

    @abstractmethod
    def rdp(self, size: PollSize, orders: Floats) -> Floats:
        """Return what the release costs at most when one ballot is replaced: (orders,)."""

    @abstractmethod
    def draw(self, tally: PollTally, outcome: PollOutcome, entropy: Entropy) -> Drawn:
        """Draw the release. Unbilled: whoever calls has charged."""

    @abstractmethod
    def scaled(self, noise: float) -> PollMechanism:
        """Return the same mechanism with so many times the noise."""

    @abstractmethod
    def chance(
        self, counts: Sequence[float] | Floats, times: Whole, voters: int, outcome: PollOutcome
    ) -> float:
        """Return how often exactly the winners by these counts are released.

        Counts come with how often each occurs, the largest first. For counts of the ballots the
        answer is sealed; planning asks with made-up ones.
        """

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return the public parameters as plain values."""


@dataclass(frozen=True, kw_only=True)
class NoisyCounts(PollMechanism):
    """Every count gets discrete Gaussian noise; winners follow from the noisy counts.

    Parameters
    ----------
    sigma
        Standard deviation of the noise on one count, in votes: *not* PATE's sigma, which is
        sqrt(2) times that.
    tau
        Clip ballots to this l2 norm before they are counted: then counts are those of clipped
        ballots, good for a ranking and not for shares.
    """

    name: ClassVar[str] = "counts"

    sigma: float
    tau: float | None = None

    def rdp(self, size: PollSize, orders: Floats) -> Floats:
        """Return order x squared shift / (2 sigma^2)."""
        plain = orders * size.squared_shift / (2 * self.sigma**2)
        if self.tau is None:
            return plain
        _only_approvals(size, "tau")
        clipped = orders * clipped_shift(self.tau, size.options, _GRID) / (2 * self.sigma**2)
        return np.minimum(plain, clipped)

    @property
    def noise(self) -> DiscreteGaussian:
        """The noise on one count."""
        return DiscreteGaussian(self.sigma)

    def draw(self, tally: PollTally, outcome: PollOutcome, entropy: Entropy) -> Drawn:
        """Draw noisy counts, and decide by them alone."""
        order = np.array(_shuffled(tally.options, entropy), np.int64)
        if self.tau is not None:
            clip = TauVoting(sigma=1.0, tau=self.tau, grid=_GRID)
            steps = tally.weighted(clip.grid_weights(tally.options))
            steps = steps + entropy.discrete_gaussian(_GRID * self.sigma, tally.options)
            return Drawn(winners=outcome.winners(steps / _GRID, tally.voters, order))
        noisy = tally.counts + entropy.discrete_gaussian(self.sigma, tally.options)
        return Drawn(winners=outcome.winners(noisy, tally.voters, order), counts=noisy)

    def scaled(self, noise: float) -> NoisyCounts:
        """Return the same with so many times the noise."""
        return replace(self, sigma=noise * self.sigma)

    def chance(
        self, counts: Sequence[float] | Floats, times: Whole, voters: int, outcome: PollOutcome
    ) -> float:
        """Return the chance from the noise's own sums. A tie counts as a miss."""
        at = np.asarray(counts, np.float64)
        if isinstance(outcome, Quota):
            bar = math.floor(outcome.share * voters)
            # Where a made-up count is no integer, the next one towards the bar.
            above = self.noise.above(bar - np.floor(at))
            right = np.where(at > bar, above, self.noise.at_most(bar - np.ceil(at)))
            return float(np.prod(right**times))
        seats = _number(outcome)
        win, lose = _split(at, times, seats)
        step = max(1, int(self.sigma / 200))
        reach = self.noise.reach
        places = np.arange(math.floor(lose[0].min()) - reach, math.ceil(at.max()) + reach, step)
        with np.errstate(divide="ignore", under="ignore"):
            best = np.exp(_log_sum(self.noise.at_most, places, lose))
            beaten = np.exp(_log_sum(self.noise.above, places, win))
        return float((np.diff(best, prepend=0.0) * beaten).sum())

    def facts(self) -> dict[str, Any]:
        """Return the public parameters."""
        clip = {} if self.tau is None else {"tau": self.tau}
        name = self.name if self.tau is None else "tau"
        return {"mechanism": name, "noise": "discrete Gaussian", "sigma": self.sigma, **clip}


@dataclass(frozen=True, kw_only=True)
class NoisyBits(PollMechanism):
    """One bit an option: Binary voting with the bar at the quota, or Tau's on clipped ballots.

    Parameters
    ----------
    sigma
        PATE's sigma_GNMax: Pr[1] = Phi(sqrt(2) (count - bar) / sigma).
    tau
        Clip ballots to this l2 norm: all counts shrink, and the bar stays.
    """

    name: ClassVar[str] = "binary"

    sigma: float
    quota: float
    tau: float | None = None

    def rdp(self, size: PollSize, orders: Floats) -> Floats:
        """Return the exact worst case of one query, over the options two ballots differ on.

        Clipped, the Gaussian bound: an exact search over pairs of weights takes a minute.
        """
        _only_approvals(size, "quota")
        if self.tau is not None:
            return orders * clipped_shift(self.tau, size.options) / self.sigma**2
        binary = BinaryVoting(sigma=self.sigma, quota=self.quota)
        return binary.worst_case_rdp(size.voters, size.changes, orders)

    def draw(self, tally: PollTally, outcome: PollOutcome, entropy: Entropy) -> Drawn:
        """Draw one bit an option."""
        counts: npt.NDArray[Any] = tally.counts
        if self.tau is not None:
            clip = TauVoting(sigma=self.sigma, tau=self.tau)
            counts = tally.weighted(clip.weights(tally.options))
        log_probs = self._log_probs(counts, tally.voters)
        return Drawn(winners=entropy.bernoulli(log_probs[:, 1], log_probs[:, 0]))

    def _log_probs(self, counts: npt.NDArray[Any], voters: int) -> Floats:
        link = GaussianLink(sigma=self.sigma, quota=self.quota)
        return link.log_probs(2 * np.asarray(counts) - voters, voters)

    def scaled(self, noise: float) -> NoisyBits:
        """Return the same with so many times the noise."""
        return replace(self, sigma=noise * self.sigma)

    def chance(
        self, counts: Sequence[float] | Floats, times: Whole, voters: int, outcome: PollOutcome
    ) -> float:
        """Return the product over options, each on its side of the bar."""
        at = np.asarray(counts, np.float64)
        log_probs = self._log_probs(at, voters)
        right = np.where(outcome.winners(at, voters), log_probs[:, 1], log_probs[:, 0])
        return math.exp(float((times * right).sum()))

    def facts(self) -> dict[str, Any]:
        """Return the public parameters."""
        clip = {} if self.tau is None else {"tau": self.tau}
        name = self.name if self.tau is None else "tau"
        return {"mechanism": name, "noise": "Gaussian", "sigma": self.sigma, **clip}


@dataclass(frozen=True, kw_only=True)
class Peeling(PollMechanism):
    """Winners one after the other, each by an exponential mechanism on the options left (top-m).

    An option with count c is drawn with probability proportional to exp(rate c). One ballot moves
    a count by at most ``each``, one up and another down, so the log-ratio of an outcome has a range
    of 2 rate each; rounds add up. Where more options win than lose, the losers are drawn instead.
    """

    name: ClassVar[str] = "top-m"

    rate: float
    seats: int

    def rdp(self, size: PollSize, orders: Floats) -> Floats:
        """Return the rounds' prices, added up."""
        rounds = min(self.seats, size.options - self.seats)
        return rounds * bounded_range_rdp(2 * self.rate * size.each, orders)

    def draw(self, tally: PollTally, outcome: PollOutcome, entropy: Entropy) -> Drawn:
        """Draw the rounds."""
        options = tally.options
        lose = options - self.seats < self.seats
        scores = self.rate * tally.counts.astype(np.float64) * (-1 if lose else 1)
        drawn = np.zeros(options, bool)
        for _ in range(min(self.seats, options - self.seats)):
            left = np.where(drawn, -np.inf, scores)
            left = left - left.max()
            drawn[entropy.categorical(left[None] - np.log(np.exp(left).sum()))] = True
        return Drawn(winners=~drawn if lose else drawn)

    def scaled(self, noise: float) -> Peeling:
        """Return the same with so many times the noise."""
        return replace(self, rate=self.rate / noise)

    def chance(
        self, counts: Sequence[float] | Floats, times: Whole, voters: int, outcome: PollOutcome
    ) -> float:
        """Return the chance, by one integral: the rounds are the largest of Gumbel noises."""
        at = self.rate * np.asarray(counts, np.float64)
        win, lose = _split(at, times, self.seats)
        if times.sum() - self.seats < self.seats:
            win, lose = (-lose[0], lose[1]), (-win[0], win[1])
        # The largest of the losers' Gumbels is one, too, at the logarithm of their sum.
        top = lose[0].max()
        centre = top + math.log(float((lose[1] * np.exp(lose[0] - top)).sum()))
        # Over u in (0, 1): that Gumbel's quantiles, and how likely all winners lie above.
        u = (_NODES[0] + 1) / 2
        ahead = win[0] - centre
        missed = np.power(u, np.exp(np.minimum(ahead[:, None], 700.0)))
        right = np.exp((win[1][:, None] * np.log1p(-np.minimum(missed, 1 - 1e-16))).sum(axis=0))
        return float((_NODES[1] / 2 * right).sum())

    def facts(self) -> dict[str, Any]:
        """Return the public parameters."""
        return {"mechanism": self.name, "noise": "exponential mechanism", "rate": self.rate}


@lru_cache(maxsize=64)
def clipped_shift(tau: float, options: int, grid: int | None = None) -> float:
    """Return the largest squared length between two ballots clipped to norm ``tau``."""
    clip = TauVoting(sigma=1.0, tau=tau, grid=grid)
    return float(clip.worst_case_rdp(1, options, (2.0,), bound="gaussian")[0]) / 2


def _only_approvals(size: PollSize, argument: str) -> None:
    if size.each > 1:
        raise UnavailableError(argument, "goes with approvals, and this poll has points")


def _shuffled(options: int, entropy: Entropy) -> list[int]:
    order = list(range(options))
    for place in range(options - 1, 0, -1):
        other = entropy.below(place + 1)
        order[place], order[other] = order[other], order[place]
    return order


def _number(outcome: PollOutcome) -> int:
    if not isinstance(outcome, Seats):
        raise UnavailableError("outcome", "must be a quota or seats for a chance in closed form")
    return outcome.number


Level = tuple[Floats, Whole]


def _split(at: Floats, times: Whole, seats: int) -> tuple[Level, Level]:
    """Return the levels of the winners and of the losers, largest first."""
    ends = np.cumsum(times)
    winning = np.clip(seats - (ends - times), 0, times)
    keep, rest = winning > 0, times - winning > 0
    return (at[keep], winning[keep]), (at[rest], (times - winning)[rest])


def _log_sum(tail: Any, places: npt.NDArray[Any], level: Level) -> Floats:
    """Return the logarithm of the product of the tails at all counts of a level."""
    total = np.zeros(len(places))
    for count, times in zip(level[0].tolist(), level[1].tolist(), strict=True):
        total += times * np.log(tail(np.floor(places - count)))
    return total

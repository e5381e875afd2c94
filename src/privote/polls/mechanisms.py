"""Mechanisms of a poll: questions to people, k options in all, winners (and counts) released.

Each has a price that holds on any ballots, known from public numbers: for all questions together,
which are drawn one after the other, since a replaced ballot may differ on all of them. Counts are
those of :class:`.TallyVoting` on one query: its noise and its draw. What is decided from them
(seats, a budget spent from the top) costs nothing more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import roots_legendre

from ..accounting.allowance import gaussian_epsilon
from ..accounting.counts import RoundedGaussian, bounded_range_rdp, squared_shift
from ..accounting.renyi import DEFAULT_ORDERS, Floats, epsilon
from ..entropy import Entropy
from ..errors import InputError, UnavailableError, positive, whole
from ..mechanisms import BinaryVoting
from ..mechanisms.base import Bools
from ..votes.cube import MOST

# -- the poll, and who wins by counts

Whole = npt.NDArray[np.int64]
_HALF = 0.5  # the quota where no rule is given


@dataclass(frozen=True, kw_only=True)
class PollSize:
    """The public numbers of a poll.

    Attributes
    ----------
    voters, options
        How many; the number of voters is public.
    most
        How many approvals a ballot may have on a question, or points in all, by the poll's rule;
        without a rule as many as there are options (times ``each``). Never what the largest has.
    each
        How many points a ballot may give an option; 1 for approvals.
    questions
        How many of the options each question has; default: there is one.
    """

    voters: int
    options: int
    most: int
    each: int = 1
    questions: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "questions", self.questions or (self.options,))
        for name in ("voters", "options", "each"):
            object.__setattr__(self, name, whole(name, getattr(self, name), most=MOST))
        object.__setattr__(self, "most", min(whole("most", self.most), self.each * self.options))

    @property
    def squared_shift(self) -> int:
        """How far one replaced ballot moves the counts: the squared length, over all questions."""
        return sum(squared_shift(options, self.most, self.each) for options in self.questions)

    @property
    def places(self) -> list[npt.NDArray[np.intp]]:
        """Where each question's options stand among all of them."""
        return np.split(np.arange(self.options), np.cumsum(self.questions)[:-1])

    @property
    def changes(self) -> int:
        """On how many options two ballots can differ, over all questions."""
        return sum(min(2 * self.most, options) for options in self.questions)

    @property
    def unit(self) -> str:
        """What a ballot gives an option."""
        return "votes" if self.each == 1 else "points"


@dataclass(frozen=True, kw_only=True)
class Quota:
    """Every option wins that more than this share of the voters approve."""

    share: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", positive("quota", self.share))
        if not self.share < 1:
            raise InputError("quota", "must lie strictly between 0 and 1", self.share)

    def check(self, size: PollSize) -> None:
        """Refuse points: a share of the voters is about approvals."""
        if size.each > 1:
            rule = "needs approvals, and this poll has points: give `each=1`"
            raise UnavailableError("quota", rule)

    def bar(self, voters: int) -> Fraction:
        """Return the count to exceed, exactly: the share is the decimal that was typed."""
        return Fraction(repr(self.share)) * voters

    def winners(self, counts: npt.NDArray[Any], voters: int, order: Whole | None = None) -> Bools:
        """Return which options lie above the bar: (options,)."""
        bar = self.bar(voters)
        whole = np.issubdtype(counts.dtype, np.integer)
        return np.asarray(counts > (math.floor(bar) if whole else float(bar)))

    def describe(self) -> str:
        """Return the rule in words."""
        return f"every option that more than {self.share:.6g} of the voters approve"


@dataclass(frozen=True, kw_only=True)
class Seats:
    """So many options win: those with the largest counts."""

    number: int

    def surely(self, option: int, ahead: list[int]) -> bool:
        """Return whether a seat is left for an option after all of those ahead."""
        return len(ahead) < self.number

    def check(self, size: PollSize) -> None:
        """Refuse a number of seats that leaves nothing to decide."""
        whole("seats", self.number, most=max(min(size.questions) - 1, 1))

    def winners(self, counts: npt.NDArray[Any], voters: int, order: Whole | None = None) -> Bools:
        """Return which options are among the largest: (options,); see :func:`ranking`."""
        won = np.zeros(len(counts), bool)
        won[ranking(counts, order)[: self.number]] = True
        return won

    def describe(self) -> str:
        """Return the rule in words."""
        return f"the {self.number} most approved" if self.number > 1 else "the most approved"


@dataclass(frozen=True, kw_only=True)
class Greedy:
    """Options win from the largest count down, each whose cost what is left of the money covers."""

    costs: tuple[Fraction, ...]
    money: Fraction

    def surely(self, option: int, ahead: list[int]) -> bool:
        """Return whether the money covers an option after all of those ahead."""
        return self.costs[option] + sum(self.costs[other] for other in ahead) <= self.money

    def check(self, size: PollSize) -> None:
        """Refuse costs that are not one for each option."""
        if len(self.costs) != size.options:
            raise InputError("costs", f"must be {size.options}, one per option", len(self.costs))

    def winners(self, counts: npt.NDArray[Any], voters: int, order: Whole | None = None) -> Bools:
        """Return which options are paid for: (options,); see :func:`ranking`."""
        won, left = np.zeros(len(counts), bool), self.money
        for option in ranking(counts, order).tolist():
            if self.costs[option] <= left:
                won[option] = True
                left -= self.costs[option]
        return won

    def describe(self) -> str:
        """Return the rule in words."""
        return f"in order of approvals, up to {float(self.money):,.12g} of money (greedy)"


PollOutcome = Quota | Seats | Greedy


def outcome_of(
    seats: int | None,
    quota: float | None,
    costs: tuple[Fraction, ...] | None = None,
    money: Fraction | None = None,
) -> PollOutcome:
    """Return who wins: by seats, by a quota, by the options' costs, else by a quota of one half."""
    if seats is not None and quota is not None:
        raise InputError("seats", "cannot be combined with `quota`: both decide who wins", seats)
    if seats is not None:
        return Seats(number=seats)
    if quota is None and costs is not None and money is not None:
        return Greedy(costs=costs, money=money)
    return Quota(share=_HALF if quota is None else quota)


def ranking(counts: npt.NDArray[Any], order: Whole | None = None) -> npt.NDArray[np.intp]:
    """Return the options from the largest count down.

    Ties go by ``order`` (options,), a permutation; without one by place.
    """
    ties = np.arange(len(counts)) if order is None else order
    return np.asarray(np.lexsort((ties, -np.asarray(counts))))


# -- mechanisms

_NODES: tuple[Floats, Floats] = roots_legendre(400)


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """What a mechanism released: the winners (options,), and counts where it releases those."""

    winners: Bools
    counts: Whole | None = None


@dataclass(frozen=True, kw_only=True)
class NoisyCounts:
    """Every count gets the noise of a tally; winners follow from the noisy counts.

    Parameters
    ----------
    sigma
        As :class:`.TallyVoting` has it.
    """

    name: ClassVar[str] = "counts"

    sigma: float

    @property
    def noise(self) -> RoundedGaussian:
        """The noise on one count."""
        return RoundedGaussian(self.sigma)

    def rdp(self, size: PollSize, orders: Floats) -> Floats:
        """Return what the release costs at most when one ballot is replaced: (orders,).

        Order x squared shift / (2 sigma^2).
        """
        return self.noise.gaussian_rdp(size.squared_shift, orders)

    def draw(self, counts: Whole, voters: int, outcome: PollOutcome, entropy: Entropy) -> Drawn:
        """Draw one question's noisy counts, and decide by them alone. Unbilled: the caller charged.

        Ties go by a permutation that is drawn before.
        """
        order = np.arange(len(counts))
        for last in range(len(counts) - 1, 0, -1):
            other = entropy.below(last + 1)
            order[[last, other]] = order[[other, last]]
        noisy = counts + entropy.rounded_gaussian(self.sigma, len(counts))
        return Drawn(winners=outcome.winners(noisy, voters, order), counts=noisy)

    def scaled(self, noise: float) -> NoisyCounts:
        """Return the same with so many times the noise."""
        return replace(self, sigma=noise * self.sigma)

    def chance(self, counts: Floats, times: Whole, voters: int, outcome: PollOutcome) -> float:
        """Return how often exactly one question's winners by these counts are released.

        Counts come with how often each occurs, the largest first. For counts of the ballots the
        answer is sealed; planning asks with made-up ones. From the noise's own sums; a tie counts
        as a miss.
        """
        noise = self.noise
        if isinstance(outcome, Quota):
            bar = math.floor(outcome.bar(voters))
            # Where a made-up count is no integer, the next one towards the bar.
            above = noise.above(bar - np.floor(counts))
            right = np.where(counts > bar, above, noise.at_most(bar - np.ceil(counts)))
            return float(np.prod(right**times))
        if not isinstance(outcome, Seats):
            rule = "must be a quota or seats for a chance in closed form"
            raise UnavailableError("outcome", rule)
        win, lose = _split(counts, times, outcome.number)
        step = max(1, int(noise.sigma / 200))
        first, last = math.floor(lose[0].min()), math.ceil(counts.max())
        places = np.arange(first - noise.reach, last + noise.reach, step)
        with np.errstate(divide="ignore", under="ignore"):
            best = np.exp(_log_sum(noise.at_most, places, lose))
            beaten = np.exp(_log_sum(noise.above, places, win))
        return float((np.diff(best, prepend=0.0) * beaten).sum())

    def facts(self) -> dict[str, Any]:
        """Return the public parameters."""
        return {"mechanism": self.name, "noise": "rounded Gaussian", "sigma": self.sigma}


@dataclass(frozen=True, kw_only=True)
class NoisyBits:
    """One bit an option: Binary voting with the bar at the quota.

    Parameters
    ----------
    sigma
        PATE's sigma_GNMax: Pr[1] = Phi(sqrt(2) (count - bar) / sigma).
    """

    name: ClassVar[str] = "binary"

    sigma: float
    quota: float

    @property
    def voting(self) -> BinaryVoting:
        """The same as a mechanism of votes, where each option is a label."""
        return BinaryVoting(sigma=self.sigma, quota=self.quota)

    def rdp(self, size: PollSize, orders: Floats) -> Floats:
        """Return the exact worst case of one query, over the options two ballots differ on.

        Options are drawn independently, so those of all questions are labels of one query.
        """
        return self.voting.worst_case_rdp(size.voters, size.changes, orders)

    def draw(self, counts: Whole, voters: int, outcome: PollOutcome, entropy: Entropy) -> Drawn:
        """Draw one bit an option."""
        log_probs = self.voting.vote_log_probs(2 * counts - voters, voters)
        return Drawn(winners=entropy.bernoulli(log_probs[:, 1], log_probs[:, 0]))

    def scaled(self, noise: float) -> NoisyBits:
        """Return the same with so many times the noise."""
        return replace(self, sigma=noise * self.sigma)

    def chance(self, counts: Floats, times: Whole, voters: int, outcome: PollOutcome) -> float:
        """Return the product over options, each on its side of the bar."""
        log_probs = self.voting.vote_log_probs(2 * counts - voters, voters)
        right = np.where(outcome.winners(counts, voters), log_probs[:, 1], log_probs[:, 0])
        return math.exp(float((times * right).sum()))

    def facts(self) -> dict[str, Any]:
        """Return the public parameters."""
        return {"mechanism": self.name, "noise": "Gaussian", "sigma": self.sigma}


@dataclass(frozen=True, kw_only=True)
class Peeling:
    """Winners one after the other, each by an exponential mechanism on the options left (top-m).

    An option with count c is drawn with probability proportional to exp(rate c). One ballot moves
    a count by at most ``each``, one up and another down, so the log-ratio of an outcome has a range
    of 2 rate each; rounds add up. Where more options win than lose, the losers are drawn instead.
    """

    name: ClassVar[str] = "top-m"

    rate: float
    seats: int

    def rdp(self, size: PollSize, orders: Floats) -> Floats:
        """Return the rounds' prices, added up over all questions."""
        rounds = sum(min(self.seats, options - self.seats) for options in size.questions)
        return rounds * bounded_range_rdp(2 * self.rate * size.each, orders)

    def draw(self, counts: Whole, voters: int, outcome: PollOutcome, entropy: Entropy) -> Drawn:
        """Draw the rounds."""
        losers = len(counts) - self.seats
        scores = self.rate * counts.astype(np.float64) * (-1 if losers < self.seats else 1)
        drawn = np.zeros(len(counts), bool)
        for _ in range(min(self.seats, losers)):
            left = np.where(drawn, -np.inf, scores)
            left = left - left.max()
            drawn[entropy.categorical(left[None] - np.log(np.exp(left).sum()))] = True
        return Drawn(winners=~drawn if losers < self.seats else drawn)

    def scaled(self, noise: float) -> Peeling:
        """Return the same with so many times the noise."""
        return replace(self, rate=self.rate / noise)

    def chance(self, counts: Floats, times: Whole, voters: int, outcome: PollOutcome) -> float:
        """Return the chance, by one integral: the rounds are the largest of Gumbel noises."""
        win, lose = _split(self.rate * counts, times, self.seats)
        if times.sum() - self.seats < self.seats:
            win, lose = (-lose[0], lose[1]), (-win[0], win[1])
        # The largest of the losers' Gumbels is one, too, at the logarithm of their sum.
        top = lose[0].max()
        centre = top + math.log(float((lose[1] * np.exp(lose[0] - top)).sum()))
        # Over u in (0, 1): that Gumbel's quantiles, and how likely all winners lie above.
        u = (_NODES[0] + 1) / 2
        missed = np.power(u, np.exp(np.minimum((win[0] - centre)[:, None], 700.0)))
        right = np.exp((win[1][:, None] * np.log1p(-np.minimum(missed, 1 - 1e-16))).sum(axis=0))
        return float((_NODES[1] / 2 * right).sum())

    def facts(self) -> dict[str, Any]:
        """Return the public parameters."""
        return {"mechanism": self.name, "noise": "exponential mechanism", "rate": self.rate}


#: Has a price that holds on any ballots, a draw that follows it, and a chance for made-up ballots.
PollMechanism = NoisyCounts | NoisyBits | Peeling


def epsilon_of(mechanism: PollMechanism, size: PollSize, delta: float) -> float:
    """Return what a release costs on its own.

    By the Gaussian's own curve, which one ballot moves by the shift over sigma, or by all orders.
    """
    if isinstance(mechanism, NoisyCounts):
        return gaussian_epsilon(math.sqrt(size.squared_shift) / mechanism.sigma, delta)
    curve = mechanism.rdp(size, DEFAULT_ORDERS)
    return float(np.max(epsilon(curve, DEFAULT_ORDERS, delta)))


Level = tuple[Floats, Whole]


def _split(counts: Floats, times: Whole, seats: int) -> tuple[Level, Level]:
    """Return the levels of the winners and of the losers, largest first."""
    ends = np.cumsum(times)
    winning = np.clip(seats - (ends - times), 0, times)
    keep, rest = winning > 0, times - winning > 0
    return (counts[keep], winning[keep]), (counts[rest], (times - winning)[rest])


def _log_sum(tail: Any, places: npt.NDArray[Any], level: Level) -> Floats:
    """Return the logarithm of the product of the tails at all counts of a level."""
    total = np.zeros(len(places))
    for count, times in zip(level[0].tolist(), level[1].tolist(), strict=True):
        total += times * np.log(tail(np.floor(places - count)))
    return total

"""How hidden ballots are counted, and the noise of a decision: the guardian's or the sites'.

The guardian's: integers that make a comparison on margins the mechanism's draw.

A label is decided as ``margin + N >= 0`` on integers. N is drawn so that Pr[N >= -m] is the
mechanism's own Pr[1 | m] for *every* integer m: the inverse of the link, not a rounded continuous
noise. A tie is then the link's fair coin, and the release is a draw of the mechanism itself, so
that its accounting applies word for word. The gate's N2 is the same on the absolute margin.

N covers the whole line, also where no tally can lie. Should a margin be wrong by a known s (a mask
that is off by one), the release is the link at m + s: the same link with another bar. A changed
vote moves Gaussian noise as far as before, so it costs at most order / sigma^2 wherever the bar
stands. Noise within the legal margins only would make labels beyond them certain, and so one wrong
input fatal.

The sites': each answering site draws an equal share and splits it into two uniform 64-bit halves,
one for the guardian and one for the querying site; they meet inside the decision only
(:mod:`privote.capc.programs`), so that nobody knows the sum. The shares of the vote and of the gate
lie side by side: (queries, parts x labels).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache, singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from ..accounting.gaussian import GaussianLink
from ..accounting.renyi import Floats, Orders, check_orders, divergence
from ..entropy import Entropy
from ..errors import InputError, UnavailableError
from ..mechanisms import BinaryVoting, Gate, Mechanism, TauVoting
from .programs import IntArray

LogProbs = Callable[[IntArray], Floats]  # margins -> log Pr[no], log Pr[yes] on the last axis

_NEVER = -760.0  # e^-745 is the smallest double: below, an outcome is never drawn
_FARTHEST = 1 << 61  # margins and noise add up within an int64
# Noise of so many units to a sigma: a tie, which counts as yes, has a probability below 0.005. With
# a sigma below 1/2 there are fewer units and likelier ties: yes wins them, which is priced.
_UNITS = 64
_MOST_STEPS = 128
_MOST_UNITS = 10_000.0  # keeps the tables of prices small
_LONGEST_TABLE = 1 << 20
_LARGEST_GRID = 1 << 40  # sums of ballots stay within 64 bits
_SLACK = 1e-6  # relative: above the error of a search, far below anything that matters


@dataclass(frozen=True, kw_only=True)
class Counted:
    """How a coalition counts the ballots of one mechanism.

    Attributes
    ----------
    by_ballot
        Whether a contribution is a whole ballot (tau) rather than a vote (binary).
    vote
        The noise on a label's margin, in votes: twice what its yeses count, less the voters.
    unit
        What a full yes counts, and so the most by which a ballot moves what yeses count.
    weights
        What a yes counts by the number of yeses of its ballot, (labels + 1,); None: always 1.
    neutral
        Whether a missing vote counts for neither side; else it is a no.
    shared
        The noise of the sites; None if it is the guardian's.
    """

    by_ballot: bool
    vote: GaussianLink
    unit: int = 1
    weights: tuple[int, ...] | None = None
    neutral: bool = False
    shared: SharedNoise | None = None

    @property
    def steps(self) -> int:
        """Units of noise to one of the margin."""
        return 1 if self.shared is None else self.shared.steps

    @property
    def parts(self) -> int:
        """How many shares of noise a site draws for a label: none, the vote's, also the gate's."""
        return 0 if self.shared is None else len(self.shared.sigmas)


@singledispatch
def counted(mechanism: Mechanism, labels: int) -> Counted:
    """Return how a coalition counts ballots on so many labels; most mechanisms cannot be."""
    raise UnavailableError("mechanism", "must be binary or tau in a coalition", mechanism)


@counted.register
def _(mechanism: BinaryVoting, labels: int) -> Counted:
    return Counted(by_ballot=False, vote=mechanism.link, neutral=mechanism.counts_missing(True))


@counted.register
def _(mechanism: TauVoting, labels: int) -> Counted:
    if mechanism.grid is None or mechanism.grid > _LARGEST_GRID:
        raise InputError("grid", "must be at most 2^40 in a coalition", mechanism.grid)
    weights = tuple(int(weight) for weight in mechanism.grid_weights(labels))
    vote = GaussianLink(sigma=mechanism.sigma)
    return Counted(by_ballot=True, vote=vote, unit=mechanism.grid, weights=weights)


@singledispatch
def with_grid(mechanism: Mechanism, grid: int) -> Mechanism:
    """Return the mechanism with weights in 1/grid of a vote, if it has weights and no grid yet."""
    return mechanism


@with_grid.register
def _(mechanism: TauVoting, grid: int) -> Mechanism:
    return mechanism if mechanism.grid is not None else replace(mechanism, grid=grid)


def vote_noise(
    link: GaussianLink, voters: int, shape: tuple[int, ...], entropy: Entropy, grid: int = 1
) -> IntArray:
    """Draw N of this shape: Pr[m + N >= 0] = Pr[1 | m] for every integer m.

    Parameters
    ----------
    voters
        Registered voters, as the mechanism counts them.
    grid
        What one vote counts: margins are in units of 1/grid votes.
    """

    def log_probs(margins: IntArray) -> Floats:
        return link.log_probs(margins / grid, voters)

    return -smallest(log_probs, shape, entropy)


def gate_noise(
    gate: Gate, voters: int, shape: tuple[int, ...], entropy: Entropy, grid: int = 1
) -> IntArray:
    """Draw N2 of this shape: Pr[|m| + N2 >= 0] = Pr[answered | m], margins as for the vote."""
    return -smallest(lambda sizes: gate.log_probs((voters + sizes / grid) / 2), shape, entropy)


def smallest(log_probs: LogProbs, shape: tuple[int, ...], entropy: Entropy) -> IntArray:
    """Draw integers T of this shape with Pr[T <= m] = Pr[yes | m] for every integer m.

    T <= m where a uniform U lies below p(m); T is the smallest such m. First the half U lies in, by
    a coin; then its position in that half, from 0 in the lower and from 1 in the upper one, with
    the full relative precision of p there or of 1 - p here.
    """
    cells = int(np.prod(shape))
    coin = np.frombuffer(entropy.bytes(cells), np.uint8).reshape(shape) & 1 == 1
    reach = _reach(log_probs)
    return _search(log_probs, -reach, reach, coin, entropy.uniform(cells).reshape(shape))


def _reach(log_probs: LogProbs) -> int:
    """Return a margin beyond which nothing changes: one outcome is never drawn, or p is level."""
    reach = 64
    while reach < _FARTHEST:
        here, there = (log_probs(np.array([-end, end])) for end in (reach, 2 * reach))
        if max(here[0, 1], here[1, 0]) < _NEVER or np.array_equal(here, there):
            break
        reach *= 2
    return reach


def _search(
    log_probs: LogProbs, low: int, high: int, coin: npt.NDArray[np.bool_], position: Floats
) -> IntArray:
    """Return T for each coin (lower half or upper) and position in that half, by bisection."""

    def reached(margins: IntArray) -> npt.NDArray[np.bool_]:
        pairs = np.exp(log_probs(margins))
        # Pr[position < x] is x for every float x in [0, 1], and 1 beyond.
        return np.where(coin, position < 2 * pairs[..., 1], position >= 2 * pairs[..., 0])

    first = np.full(coin.shape, low, np.int64)
    last = np.full(coin.shape, high + 1, np.int64)
    while (open_ := first < last).any():
        middle = first + (last - first) // 2
        hit = reached(middle)
        last = np.where(open_ & hit, middle, last)
        first = np.where(open_ & ~hit, middle + 1, first)
    return np.asarray(last)


@dataclass(frozen=True, kw_only=True)
class SharedNoise:
    """A vote with noise from the sites: what is drawn, what it costs, what remains of it.

    A share is the difference of two Poisson numbers, so any n - 1 of n shares add up to a Skellam
    number, whose integers cover the whole line. A tie is a yes: that is in the probabilities, and
    so in the price.

    Parameters
    ----------
    vote, gate
        The mechanism's: Gaussian noise (PATE's: both counts of a label get their own
        N(0, sigma^2)), on which every vote counts 1. With n sites any n - 1 shares carry this
        noise, on the margin a variance of 2 sigma^2; the gate's, one N(0, sigma_T^2) on the larger
        count, is 4 sigma_T^2 on the margin.
    known
        Shares that drop out for whoever looks. 1 is what is stated and charged: an answering site
        knows its own.
    """

    vote: GaussianLink
    gate: Gate | None = None
    known: int = 1

    @classmethod
    def of(cls, mechanism: Mechanism, labels: int) -> SharedNoise:
        """Return the shared noise of a mechanism, if it can have one."""
        ballots = counted(mechanism, labels)
        if ballots.weights is not None:
            raise UnavailableError("mechanism", "must be binary for noise = 'sites'", mechanism)
        noise = cls(vote=ballots.vote, gate=mechanism.gate)
        for sigma in noise.sigmas:
            if sigma * noise.steps > _MOST_UNITS:
                most = _MOST_UNITS / noise.steps  # of a gate 0.7 of it
                rule = f"must have a sigma of at most {most:g} for noise = 'sites'"
                raise InputError("mechanism", rule, mechanism)
        return noise

    @property
    def steps(self) -> int:
        """Units of noise to one of the margin."""
        return max(1, min(_MOST_STEPS, math.ceil(_UNITS / self.vote.sigma)))

    @property
    def sigmas(self) -> tuple[float, ...]:
        """Of the noise on the margin, over the root of 2: the vote's and, with a gate, its own."""
        gate = () if self.gate is None else (math.sqrt(2) * self.gate.sigma,)
        return self.vote.sigma, *gate

    def shares(self, voters: int) -> tuple[float, ...]:
        """Return the mean of the two Poissons whose difference is one voter's share, by part."""
        return tuple((sigma * self.steps) ** 2 / max(voters - 1, 1) for sigma in self.sigmas)

    def unknown(self, voters: int) -> tuple[float, ...]:
        """Return the means that all shares which did not drop out add up to, by part."""
        return tuple(max(0, voters - self.known) * share for share in self.shares(voters))

    def bars(self, voters: int) -> tuple[int, ...]:
        """Return what the noisy margin, and with a gate its absolute value, must reach: steps."""
        bar = self.vote.bar(voters)
        gate = () if self.gate is None else (self.gate.threshold,)
        return tuple(round(self.steps * (2 * votes - voters)) for votes in (bar, *gate))

    # -- drawn -------------------------------------------------------------------------------------

    def draw(self, voters: int, queries: int, labels: int, entropy: Entropy) -> IntArray:
        """Draw one site's share: (queries, parts x labels)."""
        parts = []
        for mean in self.shares(voters):
            parts.append(smallest(lambda at, m=mean: skellam(m, at), (queries, labels), entropy))  # type: ignore[misc]
        return np.concatenate(parts, axis=1)

    def gathered(self, shares: Iterable[IntArray]) -> dict[str, IntArray]:
        """Return the sum of shares, or of halves: "vote" and, with a gate, "gate"."""
        parts = np.split(np.sum([*shares], axis=0), len(self.sigmas), axis=1)
        return dict(zip(("vote", "gate"), parts, strict=False))

    # -- priced ------------------------------------------------------------------------------------

    def worst_case_rdp(self, voters: int, labels: int, orders: Orders | None = None) -> Floats:
        """Return what one query costs at most: (orders,)."""
        return np.asarray(labels * self.contribution_rdp(voters, labels, orders))

    def contribution_rdp(self, voters: int, labels: int, orders: Orders | None = None) -> Floats:
        """Return what one contributing vote costs at most: (orders,).

        Shares that somebody knows move the bar, so it is the worst over every bar there can be; by
        quasi-convexity that also covers whoever knows fewer. A changed vote moves the margin by 2,
        a vote that goes missing by 1, which costs less. Vote and gate have noise of their own, and
        the outcome is made of the two: their costs add up.
        """
        del labels
        orders = check_orders(orders)
        means, shift = self.unknown(voters), 2 * self.steps
        costs = [_dearest(mean, shift, tuple(orders)) for mean in means]
        return np.asarray(np.sum(costs, axis=0))

    def sigma(self, voters: int) -> float:
        """Return the sigma that remains without the shares that are known."""
        return self.vote.sigma * math.sqrt(max(0, voters - self.known) / max(1, voters - 1))

    def without(self, known: int) -> SharedNoise:
        """Return the same noise for whoever knows so many shares."""
        return replace(self, known=known)


@lru_cache(maxsize=64)
def _dearest(mean: float, shift: int, orders: tuple[float, ...]) -> Floats:
    if not mean:
        return np.full(len(orders), np.inf)  # no noise is left
    array = np.array(orders)
    spread = math.sqrt(2 * mean)
    reach = int(min(_LONGEST_TABLE, max(orders) * shift + 60 * spread + 100))
    worst = line_supremum(skellam_table(mean, reach), shift, spread, array)
    worst.setflags(write=False)
    return worst


# -- a difference of two Poissons ------------------------------------------------------------------


def skellam(mean: float, at: npt.NDArray[np.integer[Any]]) -> Floats:
    """Return log Pr[S < -at], log Pr[S >= -at] of a difference of two Poissons: (..., 2)."""
    reach = int(40 * math.sqrt(2 * mean)) + 400  # there both are beyond e^-760
    return np.asarray(_short_table(mean, reach)[np.clip(at, -reach, reach) + reach])


def line_supremum(table: Floats, shift: int, spread: float, orders: Floats) -> Floats:
    """Return the largest two-sided cost of a shift anywhere on a line of integers.

    For noise that is symmetric and never ends: wherever a bar stands, and whatever known number is
    added, the two outcomes are one place of the table and another ``shift`` further on.

    Parameters
    ----------
    table
        (2 truncation + 1, 2) log-probabilities of both outcomes at -truncation..truncation.
    spread
        The noise's standard deviation. The costliest place for an order lies within about
        order x shift of the middle; an order for which it lies beyond the table costs infinity.

    Returns
    -------
    (orders,)
    """
    middle, stride = len(table) // 2 - shift // 2 - 1, max(1, int(spread / 8))
    worst = np.empty(len(orders))
    for column, order in enumerate(orders):
        end = min(middle + int(order * shift + 50 * spread) + 50, len(table) - shift)

        def cost(first: int, last: int, step: int, order: float = order) -> Floats:
            here, there = table[first:last:step], table[first + shift : last + shift : step]
            single = np.array([order])
            both = divergence(here, there, single), divergence(there, here, single)
            return np.maximum(*both)[:, 0]

        # One hump on either side of the middle, and both are the same: far from it by strides.
        top = middle + stride * int(cost(middle, end, stride).argmax())
        first, last = max(middle, top - stride), min(end, top + stride + 1)
        around = cost(first, last, 1)
        at_the_end = first + int(around.argmax()) == end - 1
        worst[column] = np.inf if at_the_end else around.max() * (1 + _SLACK)
    return worst


def skellam_table(mean: float, reach: int) -> Floats:
    """Return :func:`skellam` at -reach..reach: (2 reach + 1, 2).

    Pr[S = k] is proportional to the modified Bessel function I_k(2 mean). Its ratios I_(k+1) / I_k
    follow, stably, from the last one backwards: 1 / (2 k / x + r_k) is r_(k-1). The last one is
    within a small fraction of x / (k + 1 + sqrt((k + 1)^2 + x^2)), and what is wrong about it is
    gone a few hundred places before.
    """
    x, last = 2 * mean, reach + 400
    ratio = end = x / (last + 1 + math.hypot(last + 1, x))
    ratios = np.empty(last)
    for k in range(last, 0, -1):
        ratio = 1 / (2 * k / x + ratio)
        ratios[k - 1] = ratio
    log_pmf = np.concatenate([[0.0], np.cumsum(np.log(ratios))])
    log_pmf[-1] -= math.log1p(-end)  # all that lies beyond
    above = np.logaddexp.accumulate(log_pmf[::-1])[::-1]  # log Pr[S >= k], up to a factor
    above = (above - np.logaddexp(above[0], above[1]))[: reach + 2]
    # Pr[S >= -at] is a tail for at < 0, and from 0 on, by symmetry, 1 - Pr[S >= at + 1].
    far, near = above[reach:0:-1], above[1:]
    one = np.concatenate([far, np.log1p(-np.exp(near))])
    zero = np.concatenate([np.log1p(-np.exp(far)), near])
    table: Floats = np.stack([zero, one], axis=1)
    table.setflags(write=False)
    return table


@lru_cache(maxsize=32)
def _short_table(mean: float, reach: int) -> Floats:
    # What draws look up again and again; tables for prices are long, and read once.
    return skellam_table(mean, reach)

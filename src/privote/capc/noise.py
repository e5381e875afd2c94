"""The noise of a decision, drawn by the guardian alone or by the sites in shares.

The guardian's: integers that make a comparison on margins the mechanism's draw.

A label is decided as ``margin + N >= 0`` on integers. N is drawn so that Pr[N >= -m] is the
mechanism's own Pr[1 | m] for *every* integer m: the inverse of the link, not a rounded continuous
noise. A tie is then the link's fair coin, and the release is a draw of the mechanism itself, so
that its accounting applies word for word. The gate's N2 is the same on the absolute margin.

N covers the whole line, also where no tally can lie. Should a margin be wrong by a known s (a mask
that is off by one), the release is the link at m + s: the same link with another bar. A changed
vote moves Gaussian noise as far as before, so it costs at most order / sigma^2 wherever the bar
stands, and an optimal link at its own order at most its ``cost``. Noise within the legal margins
only would make labels beyond them certain, and so one wrong input fatal.

The sites': each answering site draws an equal share and splits it into two uniform 64-bit halves,
one for the guardian and one for the querying site; they meet inside the decision only
(:mod:`privote.capc.programs`), so that nobody knows the sum. The shares of the vote and of the gate
lie side by side: (queries, parts x labels).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ..accounting.renyi import Floats, Orders, check_orders
from ..accounting.worst_case import line_supremum
from ..entropy import Entropy
from ..errors import InputError, UnavailableError
from ..links import GaussianLink, Link, SkellamLink, skellam, skellam_table
from ..mechanisms import Gate, Mechanism
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


def vote_noise(
    link: Link, voters: int, shape: tuple[int, ...], entropy: Entropy, grid: int = 1
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
        # Whole votes stay integers: an optimal link is defined on those only.
        return link.log_probs(margins if grid == 1 else margins / grid, voters)

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

    #: The Rényi order it was made for: none in particular.
    own_order: ClassVar[float | None] = None

    @classmethod
    def of(cls, mechanism: Mechanism, labels: int) -> SharedNoise:
        """Return the shared noise of a mechanism, if it can have one."""
        counted = mechanism.counted(labels)
        if counted.shares is None or counted.weights is not None:
            raise UnavailableError(
                "noise = 'sites' needs Gaussian noise and unweighted votes, as in binary voting "
                "with a sigma: optimal links and weighted ballots cannot be split into shares; "
                f"use 'guardian' for {mechanism}"
            )
        noise = cls(vote=counted.shares, gate=mechanism.gate)
        for link in noise.links:
            if link.sigma * link.steps > _MOST_UNITS:
                raise InputError(
                    f"mechanism: sigma must be at most {_MOST_UNITS / noise.steps:g} with "
                    f"noise = 'sites' (of a gate {1 / math.sqrt(2):.2f} of that), got {mechanism}"
                )
        return noise

    @property
    def steps(self) -> int:
        """Units of noise to one of the margin."""
        return max(1, min(_MOST_STEPS, math.ceil(_UNITS / self.vote.sigma)))

    @property
    def links(self) -> tuple[SkellamLink, ...]:
        """The link of the vote and, with a gate, that of the absolute margin."""
        vote, gate = self.vote, self.gate
        bar = {"quota": vote.quota, "false_alarm": vote.false_alarm}
        first = SkellamLink(sigma=vote.sigma, steps=self.steps, known=self.known, **bar)
        if gate is None:
            return (first,)
        second = SkellamLink(sigma=math.sqrt(2) * gate.sigma, steps=self.steps, known=self.known)
        return first, second

    def bars(self, voters: int) -> tuple[int, ...]:
        """Return what the noisy margin, and with a gate its absolute value, must reach: steps."""
        vote = self.links[0].bar(voters)
        if self.gate is None:
            return (vote,)
        return vote, round(self.steps * (2 * self.gate.threshold - voters))

    # -- drawn -------------------------------------------------------------------------------------

    def draw(self, voters: int, queries: int, labels: int, entropy: Entropy) -> IntArray:
        """Draw one site's share: (queries, parts x labels)."""
        parts = []
        for link in self.links:
            mean = link.share(voters)
            parts.append(smallest(lambda at, m=mean: skellam(m, at), (queries, labels), entropy))  # type: ignore[misc]
        return np.concatenate(parts, axis=1)

    def gathered(self, shares: Iterable[IntArray]) -> dict[str, IntArray]:
        """Return the sum of shares, or of halves: "vote" and, with a gate, "gate"."""
        parts = np.split(np.sum([*shares], axis=0), len(self.links), axis=1)
        return dict(zip(("vote", "gate"), parts, strict=False))

    # -- priced ------------------------------------------------------------------------------------

    def worst_case_rdp(self, voters: int, labels: int, orders: Orders | None = None) -> Floats:
        """Return what one query costs at most: (orders,)."""
        return np.asarray(labels * self.surprise_rdp(voters, labels, orders))

    def surprise_rdp(self, voters: int, labels: int, orders: Orders | None = None) -> Floats:
        """Return what one surprising vote costs at most: (orders,).

        Shares that somebody knows move the bar, so it is the worst over every bar there can be; by
        quasi-convexity that also covers whoever knows fewer. A changed vote moves the margin by 2,
        a vote that goes missing by 1, which costs less. Vote and gate have noise of their own, and
        the outcome is made of the two: their costs add up.
        """
        del labels
        orders = check_orders(orders)
        costs = [_dearest(link, voters, tuple(orders)) for link in self.links]
        return np.asarray(np.sum(costs, axis=0))

    def sigma(self, voters: int) -> float:
        """Return the sigma that remains without the shares that are known."""
        return self.vote.sigma * math.sqrt(max(0, voters - self.known) / max(1, voters - 1))

    def without(self, known: int) -> SharedNoise:
        """Return the same noise for whoever knows so many shares."""
        return replace(self, known=known)


@lru_cache(maxsize=64)
def _dearest(link: SkellamLink, voters: int, orders: tuple[float, ...]) -> Floats:
    if link.known >= voters:
        return np.full(len(orders), np.inf)  # no noise is left
    array = np.array(orders)
    mean, shift = link.unknown(voters), 2 * link.steps
    spread = math.sqrt(2 * mean)
    reach = int(min(_LONGEST_TABLE, max(orders) * shift + 60 * spread + 100))
    worst = line_supremum(skellam_table(mean, reach), shift, spread, array)
    worst.setflags(write=False)
    return worst

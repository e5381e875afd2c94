"""Noise that the answering sites draw in equal shares, so that nobody knows the sum.

Each site draws a share and splits it into two uniform 64-bit halves, one for the guardian and one
for the querying site; they meet inside the decision only (:mod:`privote.capc.programs`). The shares
of the vote and of the gate lie side by side: (queries, parts x labels).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ..accounting.renyi import Floats, Orders, check_orders
from ..accounting.worst_case import line_supremum
from ..entropy import Entropy
from ..errors import InputError, UnavailableError
from ..links import SkellamLink, skellam, skellam_table
from ..mechanisms import BinaryVoting, Mechanism
from .noise import IntArray, smallest

# Noise of so many units to a sigma: a tie, which counts as yes, has a probability below 0.005. With
# a sigma below 1/2 there are fewer units and likelier ties: yes wins them, which is priced.
_UNITS = 64
_MOST_STEPS = 128
_MOST_UNITS = 10_000.0  # keeps the tables of prices small
_LONGEST_TABLE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class SharedNoise:
    """Binary voting with noise from the sites: what is drawn, what it costs, what remains of it.

    Parameters
    ----------
    mechanism
        Binary voting with a sigma (PATE's: both counts of a label get their own N(0, sigma^2)).
        With n sites any n - 1 shares carry this noise, on the margin a variance of 2 sigma^2; the
        gate's, one N(0, sigma_T^2) on the larger count, is 4 sigma_T^2 on the margin.
    known
        Shares that drop out for whoever looks. 1 is what is stated and charged: an answering site
        knows its own.
    """

    mechanism: BinaryVoting
    known: int = 1

    @classmethod
    def of(cls, mechanism: Mechanism) -> SharedNoise:
        """Return the shared noise of a mechanism, if it can have one."""
        if not isinstance(mechanism, BinaryVoting) or mechanism.sigma is None:
            raise UnavailableError(
                "noise = 'sites' must go with binary voting and a sigma: an optimal link and tau "
                f"voting have no shares that add up; use 'guardian' for {mechanism}"
            )
        noise = cls(mechanism=mechanism)
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
        assert self.mechanism.sigma is not None
        return max(1, min(_MOST_STEPS, math.ceil(_UNITS / self.mechanism.sigma)))

    @property
    def links(self) -> tuple[SkellamLink, ...]:
        """The link of the vote and, with a gate, that of the absolute margin."""
        mechanism, gate = self.mechanism, self.mechanism.gate
        assert mechanism.sigma is not None
        vote = SkellamLink(
            sigma=mechanism.sigma,
            steps=self.steps,
            quota=mechanism.quota,
            false_alarm=mechanism.false_alarm,
            known=self.known,
        )
        if gate is None:
            return (vote,)
        second = SkellamLink(sigma=math.sqrt(2) * gate.sigma, steps=self.steps, known=self.known)
        return vote, second

    def bars(self, voters: int) -> tuple[int, ...]:
        """Return what the noisy margin, and with a gate its absolute value, must reach: steps."""
        gate = self.mechanism.gate
        vote = self.links[0].bar(voters)
        return (
            (vote,) if gate is None else (vote, round(self.steps * (2 * gate.threshold - voters)))
        )

    # -- drawn -------------------------------------------------------------------------------------

    def draw(self, voters: int, queries: int, labels: int, entropy: Entropy) -> IntArray:
        """Draw one site's share: (queries, parts x labels)."""
        parts = []
        for link in self.links:
            mean = link.share(voters)
            parts.append(smallest(lambda at, m=mean: skellam(m, at), (queries, labels), entropy))  # type: ignore[misc]
        return np.concatenate(parts, axis=1)

    def gathered(self, shares: Iterable[IntArray]) -> list[IntArray]:
        """Return the sum of shares, or of halves, by part: the vote's and perhaps the gate's."""
        return np.split(np.sum([*shares], axis=0), len(self.links), axis=1)

    def log_probs(self, margins: IntArray, voters: int) -> Floats:
        """Return the log-probabilities of 0, 1 and, with a gate, ABSTAIN: (..., 2 or 3)."""
        vote = self.links[0].log_probs(margins, voters)
        if self.mechanism.gate is None:
            return vote
        link, bar = self.links[1], self.bars(voters)[1]
        gate = skellam(link.unknown(voters), self.steps * np.abs(margins) - bar)
        return np.concatenate([vote + gate[..., 1:], gate[..., :1]], axis=-1)

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

    @property
    def own_order(self) -> float | None:
        """The Rényi order it was made for: none in particular."""
        return self.mechanism.own_order

    def sigma(self, voters: int) -> float:
        """Return the sigma that remains without the shares that are known."""
        assert self.mechanism.sigma is not None
        return self.mechanism.sigma * math.sqrt(max(0, voters - self.known) / max(1, voters - 1))

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

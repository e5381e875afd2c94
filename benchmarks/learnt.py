"""Learnt allowances by enumeration: the choice of V, the noise that follows it, cutting, batches.

One voter is replaced. All others answer the same history alike in both worlds, so of them only the
numbers matter that the learning looks at. Every allowance of the grid is a branch. On a branch the
tallies differ by what the replaced voter's two effective ballots differ in, and with Gaussian noise
that is one number, the distance d in units of the noise: a sum over branches is the whole
divergence, in closed form. After a batch the next ballots of both worlds, and the numbers of a
second learning, follow on which side of a bar the released tallies fall, in the direction that
tells the worlds apart best. Released tallies are rounded, which only makes worlds more alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from privote.accounting.allowance import (
    ENOUGH,
    Learning,
    gaussian_delta,
    learning_epsilon,
    mu_at_order,
    mu_of_budget,
    settled,
)
from privote.accounting.renyi import Floats
from privote.errors import InputError, whole
from privote.votes.contributions import bound_votes

Worlds = tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]

PLANS = ("whole budget", "one batch", "two batches", "learnt twice")
#: Not so: for the audit to catch.
WRONG = ("whole budget, learning left out", "learnt twice, in contributions")


@dataclass(frozen=True)
class LearntReport:
    """What an audit of learnt allowances saw.

    Attributes
    ----------
    pairs, branches
        How many pairs of electorates, and how many branches they have together.
    ratio
        The largest enumerated / stated: delta for a whole budget, else the cost at its order.
    """

    plan: str
    pairs: int
    branches: int
    ratio: float
    broken: tuple[int, ...]

    @property
    def ok(self) -> bool:
        """True if no pair exceeds what is stated."""
        return not self.broken

    def summary(self) -> str:
        """Return the findings in a line."""
        return (
            f"{'ok' if self.ok else 'BROKEN'}: allowance learnt, {self.plan}: {self.pairs} pairs, "
            f"{self.branches} branches, largest enumerated/stated {self.ratio:.9f}"
            + (f"; exceeded with seeds {self.broken[:5]}" if self.broken else "")
        )


def learnt(plan: str, pairs: int = 100, *, seed: int = 0) -> LearntReport:
    """Try to break the guarantee of an allowance that is learnt.

    Parameters
    ----------
    plan
        ``"whole budget"``: one batch, delta by the formula for a budget without other charges.
        At the pinned order: ``"one batch"``, ``"two batches"`` of one allowance, ``"learnt twice"``
        with the allowance in units of cost. :data:`WRONG` has two more that must be caught.
    pairs, seed
        Pair i is made from ``seed + i``.
    """
    if plan not in (*PLANS, *WRONG):
        raise InputError("plan", f"must be one of {', '.join((*PLANS, *WRONG))}", plan)
    whole("pairs", pairs)
    whole("seed", seed, 0)
    broken, largest, branches = [], 0.0, 0
    for each in range(seed, seed + pairs):
        pair = _Pair(plan, np.random.default_rng(each))
        ratio = pair.ratio()
        largest, branches = max(largest, ratio), branches + pair.branches
        if not ratio <= 1 + 1e-9:
            broken.append(each)
    return LearntReport(plan, pairs, branches, largest, tuple(broken))


class _Pair:
    """A budget, an electorate, and two strategies of one voter."""

    def __init__(self, plan: str, rng: np.random.Generator) -> None:
        self.plan, self.rng = plan, rng
        self.branches = 0
        self.budget, self.delta = float(rng.choice([1.0, 2.0, 8.0, 30.0, 120.0])), 1e-5
        self.order, rho = settled(self.budget, self.delta)
        self.stated = self.order * rho
        # From as few voters as are ever asked to many.
        few = ENOUGH / math.sqrt(8 * rho / 3)
        self.voters = math.ceil(few * float(rng.choice([1.0, 1.4, 2.0, 5.0])))
        self.epsilon0 = learning_epsilon(rho, self.voters)
        self.labels = int(rng.integers(1, 3))
        self.batch = int(rng.integers(1, 7))
        self.planned = self.batch * (2 if plan == "two batches" else 1)
        if plan == "one batch" and rng.random() < 0.5:
            self.planned += self.batch  # planned, and never asked
        # Others near each other, near the replaced voter, or anywhere.
        self.middle, self.spread = rng.integers(self.planned * self.labels + 1), rng.random()
        self.twice = plan.startswith("learnt twice")

    def ratio(self) -> float:
        """Return what is enumerated over what is stated, in the worse direction."""
        if self.plan.startswith("whole budget"):
            return max(self._delta(False), self._delta(True)) / self.delta
        parts = 2 if self.twice else 1
        left = self.stated - parts * self.order * self.epsilon0**2 / 8
        self.mu = mu_at_order(left, self.order)
        moments = self._learn((0, 0), (0.0, 0.0), 0)
        return float(np.log(moments).max()) / (self.order - 1) / self.stated

    # -- the public side ---------------------------------------------------------------------------

    def _ballots(self) -> Worlds:
        """Return the replaced voter's ballots on one batch in both worlds: (queries, labels)."""
        shape = (self.batch, self.labels)
        style = self.rng.integers(4)
        one, two = (self.rng.random(shape) < self.rng.choice([0, 0.2, 0.5, 1]) for _ in range(2))
        if style == 0:  # nothing in common: the worst case
            two = ~one
        if style == 1:
            one, two = np.ones(shape, bool), np.zeros(shape, bool)
        return (two, one) if self.rng.random() < 0.5 else (one, two)

    def _branches(self, learning: Learning, ballots: Worlds) -> list[tuple[int, Floats]]:
        """Return each allowance, and its log-probability in both worlds."""
        scale = Fraction(learning.queries, self.batch)
        top = int(learning.cells / scale)
        others = self.rng.normal(self.middle, self.spread * top + 0.01, self.voters - 1)
        others = np.rint(np.clip(others, 0, top)).astype(np.int64)
        logs = []
        for own in ballots:
            counts = np.append(others, own.sum())
            logs.append(learning.log_probs(counts, scale))
        self.branches += len(learning.grid)
        return list(zip(learning.grid, np.transpose(logs), strict=True))

    @staticmethod
    def _cut(ballots: Worlds, left: tuple[int, int]) -> tuple[float, tuple[int, int]]:
        """Return the squared distance of what counts, and what both worlds spend."""
        counted, spent = [], []
        for own, rest in zip(ballots, left, strict=True):
            zero = np.zeros((len(own), own.shape[1]), np.bool_)
            votes, used, refused = bound_votes(own[:, None, :], zero, np.array([rest]), "vote")
            counted.append(votes)
            # Who was refused once has nothing left.
            spent.append(rest if refused[0] else int(used[0]))
        return float((counted[0] != counted[1]).sum()), (spent[0], spent[1])

    # -- a whole budget: delta ---------------------------------------------------------------------

    def _delta(self, turned: bool) -> float:
        state = self.rng.bit_generator.state
        learning = self._learning(self.planned)
        paid = 0.0 if self.plan.endswith("left out") else self.epsilon0
        mu = mu_of_budget(self.budget, self.delta, paid)
        ballots = self._ballots()
        total = 0.0
        for allowance, (one, two) in self._branches(learning, ballots):
            p, q = (two, one) if turned else (one, two)
            limit = learning.limit(allowance)
            apart, _ = self._cut(ballots, (limit, limit))
            distance = math.sqrt(apart) / learning.sigma(allowance, mu)
            loss = p - q
            if distance > 0:
                total += math.exp(p) * float(gaussian_delta(distance, self.budget - loss))
            else:
                total += math.exp(p) * max(0.0, -math.expm1(self.budget - loss))
        self.rng.bit_generator.state = state  # the other direction is of the same pair
        return total

    def _learning(self, queries: int) -> Learning:
        return Learning(
            voters=self.voters, queries=queries, labels=self.labels, epsilon0=self.epsilon0
        )

    # -- at the pinned order -----------------------------------------------------------------------

    def _learn(self, spent: tuple[int, int], cost: tuple[float, float], stage: int) -> Floats:
        """Return the moments E_q[(p/q)^order] of all from here on, in both directions: (2,)."""
        learning = self._learning(self.batch if self.twice else self.planned)
        ballots = self._ballots()
        total = np.zeros(2)
        order = self.order
        for allowance, (one, two) in self._branches(learning, ballots):
            both = np.exp([order * one + (1 - order) * two, order * two + (1 - order) * one])
            if self.twice:  # in units of cost nobody is exempt: the other batch counts, too
                sigma = math.sqrt(2 * allowance) / self.mu * (1 + 1e-12)
                limits = self._affordable(allowance, sigma, cost, spent)
            else:
                sigma = learning.sigma(allowance, self.mu)
                limits = (learning.limit(allowance),) * 2
            total += both * self._batch(ballots, sigma, limits, cost, stage)
        return total

    def _affordable(
        self, allowance: int, sigma: float, cost: tuple[float, float], spent: tuple[int, int]
    ) -> tuple[int, int]:
        """Return how many contributions both worlds may cast at this noise."""
        if self.plan.endswith("in contributions"):
            return max(0, allowance - spent[0]), max(0, allowance - spent[1])
        # A contribution costs 1 / sigma^2 of mu^2, and two worlds' contributions add up.
        left = [(self.mu**2 / 2 - used) * sigma**2 for used in cost]
        return math.floor(max(0.0, left[0]) + 1e-9), math.floor(max(0.0, left[1]) + 1e-9)

    def _batch(
        self,
        ballots: Worlds,
        sigma: float,
        left: tuple[int, int],
        cost: tuple[float, float],
        stage: int,
    ) -> Floats:
        """Return the moments of a batch and of all after it: (2,)."""
        order = self.order
        apart, used = self._cut(ballots, left)
        d = math.sqrt(apart) / sigma
        whole_line = math.exp(order * (order - 1) * d * d / 2)
        if stage == 1 or self.plan == "one batch":
            return np.full(2, whole_line)
        bar = d * float(self.rng.choice([0.5, order, 1 - order])) + self.rng.normal()
        # p is N(d, 1), q is N(0, 1); p^a q^(1-a) is N(a d, 1) times a constant.
        above = ndtr(np.array([order * d, (1 - order) * d]) - bar)
        total = np.zeros(2)
        for share in (above, 1 - above):
            if self.twice:
                paid = (cost[0] + used[0] / sigma**2, cost[1] + used[1] / sigma**2)
                rest = self._learn(used, paid, 1)
            else:
                over = (left[0] - used[0], left[1] - used[1])
                rest = self._batch(self._ballots(), sigma, over, cost, 1)
            total += whole_line * share * rest
        return total

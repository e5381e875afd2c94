"""How many of these votes' queries fit a budget, bound by bound. For the owner's eyes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from privote.accounting.gaussian import largest_count, shift_of
from privote.accounting.pld import DISCRETIZATION, epsilon_by_voter_max
from privote.accounting.renyi import Floats, check_orders
from privote.accounting.renyi import epsilon as to_epsilon
from privote.ballots import BallotSource
from privote.blocks import DenseBlock
from privote.calibrate import allowance_for, queries_for
from privote.errors import UnavailableError
from privote.guardian.voter_bills import voter_moves
from privote.mechanisms import Mechanism
from privote.surprises import effective_votes

from .progress import Tick

_STEP = 25  # queries priced at a time: nothing is priced far beyond what fits


def surprises_wanted(
    ballots: BallotSource, mechanism: Mechanism, baseline: npt.ArrayLike | None = None
) -> npt.NDArray[np.int64]:
    """Return how many surprises each voter would cast if its allowance had no end: (voters,)."""
    plenty = np.full(ballots.voters, np.iinfo(np.int64).max)
    total = np.zeros(ballots.voters, np.int64)
    start = 0
    for block in ballots.blocks():
        assert isinstance(block, DenseBlock)  # a file is dense
        rows = slice(start, start + block.queries)
        guess = np.zeros((block.queries, block.labels), np.bool_)
        if baseline is not None:
            guess = np.asarray(baseline)[rows].astype(np.bool_)
        total += effective_votes(block.votes, guess, plenty, mechanism.surprise_unit)[1]
        start = rows.stop
    return total


@dataclass(frozen=True, kw_only=True)
class Fitting:
    """Votes and the budget they have to fit.

    Attributes
    ----------
    votes
        (queries, voters, labels), bool, or int8 with -1 where a vote is missing.
    epsilon, delta
        The budget.
    """

    votes: npt.NDArray[Any]
    epsilon: float
    delta: float

    def worst_case(self, mechanism: Mechanism) -> int:
        """Return how many queries fit whatever the votes; at most as many as there are."""
        _, voters, labels = self.votes.shape
        fit = queries_for(mechanism, voters, labels, self.epsilon, self.delta)
        return min(fit, len(self.votes))

    def gaussian(self, mechanism: Mechanism) -> int | None:
        """Return the same by the Gaussian bound and its exact epsilon; None where it has none."""
        _, voters, labels = self.votes.shape
        orders = check_orders(None)
        try:
            curve = mechanism.worst_case_rdp(voters, labels, orders, bound="gaussian")
        except UnavailableError:  # an optimal link has no Gaussian noise behind it
            return None
        fit = largest_count(shift_of(curve, orders), self.epsilon, self.delta)
        return min(fit, len(self.votes))

    def allowance(self, mechanism: Mechanism) -> int:
        """Return how many queries all voters can afford before the first one runs out."""
        _, voters, labels = self.votes.shape
        allowance = allowance_for(mechanism, voters, labels, self.epsilon, self.delta)
        yes = self.votes == 1
        count = yes.sum(axis=2) if mechanism.surprise_unit == "vote" else yes.any(axis=2)
        short = (np.cumsum(count, axis=0) > allowance).any(axis=1)
        return int(short.argmax()) if short.any() else len(self.votes)

    def per_query(self, mechanism: Mechanism, bound: str, tick: Tick) -> int:
        """Return how many queries fit if each is priced on its own and the costs are added."""
        orders = check_orders(None)
        total = np.zeros(len(orders))
        for start in range(0, len(self.votes), _STEP):
            tick(start)
            block = self.votes[start : start + _STEP]
            sums = total + np.cumsum(mechanism.rdp(block, orders, bound), axis=0)
            fits = np.asarray(to_epsilon(sums, orders, self.delta)) <= self.epsilon
            if not fits.all():
                return start + int(fits.argmin())
            total = sums[-1]
        return len(self.votes)

    def by_voter(self, mechanism: Mechanism, tick: Tick, known: int = 0) -> int:
        """Return how many queries fit if each voter's own bill must: exact for the batch.

        ``known`` is how many fit by exact costs per query: nobody's bill is above their sum, so if
        all do there is nothing to add up.
        """
        if known >= len(self.votes):
            return len(self.votes)
        orders = check_orders(None)
        total = np.zeros((self.votes.shape[1], 2, len(orders)))
        start = 0
        while start < len(self.votes):
            tick(start)
            stop = min(start + _STEP, len(self.votes))
            block = total + mechanism.rdp_by_voter(self.votes[start:stop], orders)
            if not self._all_fit(block, orders):
                break
            total, start = block, stop
        while start < len(self.votes):  # the last few one by one
            total = total + mechanism.rdp_by_voter(self.votes[start : start + 1], orders)
            if not self._all_fit(total, orders):
                return start
            start += 1
        return start

    def by_voter_pld(self, mechanism: Mechanism, known: int, tick: Tick) -> int | None:
        """Return the same by the privacy-loss distribution; None where there is only the curve.

        ``known`` is how many fit by the curve: no fewer do by the better of both.
        """
        if voter_moves(mechanism, self.votes[:1]) is None:
            return None
        low, high, step = known, len(self.votes) + 1, max(1, known // 16)
        while high - low > 1:
            tick(low)
            # Upwards in growing steps, then halving what is left: few tries lie far above.
            middle = min(low + step, high - 1) if high > len(self.votes) else (low + high) // 2
            if self._losses_fit(mechanism, self.votes[:middle]):
                low, step = middle, 2 * step
            else:
                high = middle
        return low

    def _losses_fit(self, mechanism: Mechanism, votes: npt.NDArray[Any]) -> bool:
        orders, found = check_orders(None), voter_moves(mechanism, votes)
        if found is None:
            return False
        each = to_epsilon(mechanism.rdp_by_voter(votes, orders), orders, self.delta)
        return any(
            # A coarse grid overstates, so it can say yes at once but not no.
            epsilon_by_voter_max(*found, each, self.delta, grid) <= self.epsilon
            for grid in (10 * DISCRETIZATION, DISCRETIZATION)
        )

    def _all_fit(self, bills: Floats, orders: Floats) -> bool:
        # The pointwise maximum is above every bill: if it fits, all do, at the price of one.
        if float(np.max(to_epsilon(bills.max(axis=(0, 1)), orders, self.delta))) <= self.epsilon:
            return True
        return bool(np.max(to_epsilon(bills, orders, self.delta)) <= self.epsilon)

    def agreement(self, mechanism: Mechanism, seed: int) -> tuple[float, float]:
        """Return how much of a simulated release agrees with the noise-free majority.

        Over all cells, and over those where the majority says yes (NaN if there is none).
        """
        majority = (self.votes == 1).sum(axis=1) > (self.votes == 0).sum(axis=1)
        same = mechanism.release(self.votes, seed=seed) == majority
        return float(same.mean()), float(same[majority].mean()) if majority.any() else float("nan")

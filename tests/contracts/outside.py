"""Mechanisms from outside: the example's, and one of whole ballots on nothing but the base."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import privote as pv
from privote.accounting.renyi import check_orders, divergence

Floats = npt.NDArray[np.float64]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _example(name: str) -> Any:
    """Return an example as a module."""
    spec = spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LaplaceQuota = _example("own_mechanism").LaplaceQuota


@dataclass(frozen=True, kw_only=True)
class RandomBallot(pv.Mechanism):
    """Release the ballot of a voter drawn by lot, or any row at all; a missing vote is a no.

    Pr[row] = share * (how many cast it) / voters + (1 - share) / 2^labels.
    """

    share: float

    def tally(self, block: Any) -> Any:
        """Count who cast each row: (queries, 2^labels), in the order of itertools.product."""
        query, _, cast = block.speakers()
        counts = np.zeros((block.queries, 1 << block.labels), np.int64)
        np.add.at(counts, (query, self._row(cast)), 1)
        counts[:, 0] += block.voters - counts.sum(axis=1)  # who said nothing
        return counts

    @staticmethod
    def _row(cast: Any) -> Any:
        return cast @ (1 << np.arange(cast.shape[1])[::-1])

    def _probs(self, counts: Any, voters: int, rows: int) -> Any:
        return self.share * counts / voters + (1 - self.share) / rows

    def draw(self, tally: Any, entropy: Any) -> Any:
        """Draw a row: (queries, labels)."""
        rows = tally.shape[1]
        place = entropy.categorical(np.log(self._probs(tally, tally[0].sum(), rows)))
        every = list(product((0, 1), repeat=rows.bit_length() - 1))
        return np.array(every, np.int8)[place]

    def outcome_probabilities(self, votes: Any) -> Floats:
        """Return the probability of each row: (queries, rows)."""
        tallies = [self.tally(block) for block in pv.Ballots.of(votes).blocks()]
        return np.concatenate([self._probs(t, t[0].sum(), t.shape[1]) for t in tallies])

    def _prices(self, voters: int, rows: int, orders: Any) -> Floats:
        """Return what a ballot's move costs by who cast both rows: (voters + 1,) twice, 2, orders.

        Three outcomes: the row it leaves, the row it joins, any other.
        """
        left, joined = np.mgrid[: voters + 1, : voters + 1]
        rest = self.share * (voters - left - joined) / voters
        rest = np.maximum(rest + (1 - self.share) * (rows - 2) / rows, 0)
        pairs = []
        for step in (0, 1):
            one, two = (self._probs(c, voters, rows) for c in (left - step, joined + step))
            pairs.append(np.log(np.maximum([one, two, rest], 1e-300)))
        here, there = (np.moveaxis(pair, 0, -1) for pair in pairs)
        both = divergence(here, there, orders), divergence(there, here, orders)
        prices = np.stack(both, axis=2)
        prices[(left == 0) | (left + joined > voters)] = 0  # no such move
        return prices

    def _worst(self, tally: Any, orders: Any) -> Floats:
        """Return the worst move of a ballot from each row: (queries, rows, 2, orders)."""
        rows = tally.shape[1]
        prices = self._prices(int(tally[0].sum()), rows, orders)
        every = prices[tally[:, :, None], tally[:, None, :]]
        every[:, np.arange(rows), np.arange(rows)] = 0
        return np.asarray(every.max(axis=2))

    def cost(self, tally: Any, orders: Any, bound: str) -> Floats:
        """Price each query: (queries, orders)."""
        return np.asarray(self._worst(tally, orders).max(axis=(1, 2)))

    def cost_by_voter(self, block: Any, orders: Any) -> Floats:
        """Price the block for each voter: (voters, 2, orders)."""
        worst = self._worst(self.tally(block), orders)
        row = np.zeros((block.queries, block.voters), np.int64)
        query, voter, cast = block.speakers()
        row[query, voter] = self._row(cast)
        return np.asarray(worst[np.arange(block.queries)[:, None], row].sum(axis=0))

    def worst_case_rdp(
        self, voters: int, labels: int, orders: Any = None, bound: str = "exact"
    ) -> Floats:
        """Return the costliest move of one ballot, whatever was cast: (orders,)."""
        if bound != "exact":
            raise pv.InputError("bound", "must be one of exact", bound)
        prices = self._prices(voters, 1 << labels, check_orders(orders))
        return np.asarray(prices.max(axis=(0, 1, 2)))

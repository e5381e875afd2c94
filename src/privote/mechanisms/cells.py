"""What Binary and Tau share: every (query, label) cell is released on its own margin.

A cell's outcome distribution, gate included, is a function of its margin m (yes minus no) and of
the number of registered voters n: answered with Phi((max(c, n - c) - T) / sigma_T), c = (n + m)/2,
then 0 or 1 by the link.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..accounting.pate2018 import theorem6
from ..accounting.renyi import Floats
from ..entropy import Entropy
from ..links import Link
from .base import ABSTAIN, Labels, Mechanism

# Beyond, the tallies around a gate lie too far from zero for a search among floats, and a worst
# case is the bound that holds for any number of voters.
SEARCHED_VOTERS = 1 << 30


@dataclass(frozen=True)
class CellTally:
    """Margins (queries, labels), integer for Binary and real for Tau, and who was registered."""

    margins: npt.NDArray[Any]
    voters: int
    missing: bool


@dataclass(frozen=True, kw_only=True)
class CellMechanism(Mechanism):
    """A mechanism that releases each label on its own margin."""

    @property
    @abstractmethod
    def _link(self) -> Link: ...

    def gate_log_probs(self, margins: npt.NDArray[Any], voters: int) -> Floats:
        """Return log Pr[abstain], log Pr[answer]: (..., 2). Only with a gate."""
        assert self.gate is not None
        return self.gate.log_probs((voters + np.abs(margins)) / 2)

    def log_probs(self, margins: npt.NDArray[Any], voters: int) -> Floats:
        """Return the log-probabilities of 0, 1 and, with a gate, ABSTAIN: (..., 2 or 3)."""
        vote = self._link.log_probs(margins, voters)
        if self.gate is None:
            return vote
        gate = self.gate_log_probs(margins, voters)
        return np.concatenate([vote + gate[..., 1:], gate[..., :1]], axis=-1)

    def outcome_probabilities(self, votes: Any) -> Floats:
        """Return the probability of 0, 1 (and ABSTAIN) in each cell: (queries, labels, 2 or 3)."""
        tallies = [self.tally(block) for block in self._accept(votes).blocks()]
        return np.concatenate([np.exp(self.log_probs(t.margins, t.voters)) for t in tallies])

    def cell_probabilities(self, tally: CellTally) -> Floats:
        """Return the probability of 0, 1 and ABSTAIN in each cell: (queries, labels, 3)."""
        levels, index = self._levels(tally)
        table = np.exp(self.log_probs(levels, tally.voters))
        if self.gate is None:
            table = np.concatenate([table, np.zeros((len(table), 1))], axis=1)
        return np.asarray(table[index])

    def draw(self, tally: CellTally, entropy: Entropy) -> Labels:
        """Draw 0, 1 or ABSTAIN for every cell (queries, labels)."""
        levels, index = self._levels(tally)
        vote = self._link.log_probs(levels, tally.voters)
        drawn = entropy.bernoulli(vote[:, 1], vote[:, 0], index).astype(np.int8)
        if self.gate is not None:
            gate = self.gate_log_probs(levels, tally.voters)
            drawn[~entropy.bernoulli(gate[:, 1], gate[:, 0], index)] = ABSTAIN
        return drawn

    def _levels(self, tally: CellTally) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
        """Return the distinct margins and each cell's place among them."""
        flat, index = np.unique(tally.margins, return_inverse=True)
        return flat, index.reshape(tally.margins.shape)

    def _theorem6(
        self, margins: npt.NDArray[Any], voters: int, sigma: float, orders: Floats
    ) -> Floats:
        """Return PATE 2018's bound for each margin, the gate's own check added: (..., orders)."""
        cost = theorem6(self._link.log_probs(margins, voters).min(axis=-1), sigma, orders)
        if self.gate is not None:
            # One noise on one count: as Theorem 6 for a GNMax with sqrt(2) more noise.
            log_q = self.gate_log_probs(margins, voters).min(axis=-1)
            cost = cost + theorem6(log_q, 2**0.5 * self.gate.sigma, orders)
        return cost

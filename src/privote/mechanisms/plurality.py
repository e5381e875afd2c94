"""Plurality voting: the single-winner GNMax of PATE 2018 that the others extend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..entropy import Entropy
from .classes import ClassMechanism

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class PluralityVoting(ClassMechanism):
    """Release the one label with the largest noisy count.

    Ballots have at most one positive; a ballot without one counts for no label. The release has one
    1 per row, or only ABSTAIN where the gate withheld the query.

    Examples
    --------
    >>> import numpy as np, privote as pv
    >>> votes = np.zeros((3, 50, 4), bool)
    >>> votes[:, :, 1] = True
    >>> pv.PluralityVoting(sigma=1.0).release(votes).tolist()
    [[0, 1, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0]]
    """

    name: ClassVar[str] = "plurality"

    @property
    def max_positives(self) -> int | None:
        """One: a ballot names a winner, or nobody."""
        return 1

    def classes(self, labels: int) -> int:
        """Return the number of labels."""
        return labels

    @property
    def _refusal(self) -> tuple[str, ...]:
        return (
            "plurality takes at most one positive per ballot, and a ballot has more (which one "
            "is sealed)",
        )

    def _draw_unvoted(
        self, voted: npt.NDArray[np.bool_], labels: int, entropy: Entropy
    ) -> npt.NDArray[np.bool_]:
        free = np.flatnonzero(~voted.any(axis=0)) if len(voted) else np.arange(labels)
        drawn = np.zeros(labels, np.bool_)
        drawn[free[entropy.below(len(free))]] = True
        return drawn

    def outcome_probabilities(self, votes: Any) -> Floats:
        """Return the probability of each label winning (and, with a gate, ABSTAIN) per query.

        (queries, labels), or (queries, labels + 1) with a gate.
        """
        parts = []
        for block in self._accept(votes).blocks():
            tally = self.tally(block)
            wins = np.exp(self.win_log_probs(tally))
            query, rank = np.nonzero(tally.profiles)
            label = tally.ballots[tally.winners[query, rank]].argmax(axis=1)
            chance = np.zeros((block.queries, block.labels))
            chance[query, label] = 1  # voted; the others are alike
            share = (1 - chance) / np.maximum(1, block.labels - chance.sum(axis=1, keepdims=True))
            chance[query, label] = wins[query, rank]
            abstain, answer = np.split(self.gate_probs(tally), 2, 1)
            columns = [(chance + wins[:, -1:] * share) * answer, abstain]
            parts.append(np.concatenate(columns[: 1 if self.gate is None else 2], axis=1))
        return np.concatenate(parts)

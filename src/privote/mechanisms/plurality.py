"""Plurality voting: the single-winner GNMax of PATE 2018 that the others extend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..entropy import Entropy
from ..votes.cube import Block
from .base import Bools, Labels
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

    def holding(self, labels: int) -> int:
        """Return 1: a class is one label."""
        return 1

    def _every_class(self, labels: int) -> Labels:
        return np.eye(labels, dtype=np.int8)

    def noise_free(self, block: Block) -> Bools:
        """Return the label with the most votes (queries, labels); none where nobody votes."""
        tally = self.tally(block)
        wanted = np.zeros((block.queries, block.labels), np.bool_)
        voted = tally.profiles[:, 0] > 0
        wanted[voted] = tally.ballots[tally.winners[voted, 0]]
        return wanted

    def _vote(
        self, block: Block
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.bool_]]:
        query, voter, cast = super()._vote(block)
        speaks = cast.any(axis=1)
        return query[speaks], voter[speaks], cast[speaks]

    @property
    def _refusal(self) -> tuple[str, ...]:
        return (
            "plurality takes at most one positive per ballot, and a ballot has more (which one "
            "is sealed)",
        )

    def _may_be_silent(self, block: Block) -> bool:
        # A ballot of zeros is allowed, so a neighbour may fall silent.
        return True

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
            cells = self.cell_probabilities(self.tally(block))
            held = cells[:, : 0 if self.gate is None else 1, 2]  # a query as a whole, or not at all
            parts.append(np.concatenate([cells[..., 1], held], axis=1))
        return np.concatenate(parts)

    def joint_probabilities(self, votes: Any) -> Floats:
        """Return the probability of each row, which has one label: (queries, outcomes)."""
        return self.outcome_probabilities(votes)

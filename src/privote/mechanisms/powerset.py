"""Powerset voting: each set of labels is one class of a single-winner election (Definition 8)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..entropy import Entropy
from ..errors import InputError, whole
from .classes import ClassMechanism

_MOST_BITS = 1 << 20  # of the number of sets, which is counted exactly


@dataclass(frozen=True, kw_only=True)
class PowersetVoting(ClassMechanism):
    """Release the label set with the largest noisy count among all 2^k sets.

    Neither drawing nor pricing needs memory or time of order 2^k; k may be thousands.

    Parameters
    ----------
    sigma
        PATE's sigma_GNMax: the count of every set gets its own N(0, sigma^2).
    max_positives
        Only sets with at most this many labels can win. A ballot with more is refused; shorten it
        with :meth:`privote.Ballots.clip`.
    gate
        A :class:`privote.Gate` on each query: the count of the leading set.

    A ballot that is missing as a whole votes for no set; a single missing vote is a no.

    Examples
    --------
    >>> import numpy as np, privote as pv
    >>> votes = np.zeros((1, 50, 3), bool)
    >>> votes[:, :, :2] = True
    >>> pv.PowersetVoting(sigma=1.0).release(votes).tolist()
    [[1, 1, 0]]
    """

    name: ClassVar[str] = "powerset"
    missing_counts_as_no: ClassVar[bool] = False  # the empty set is a class of its own

    max_positives: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_positives is not None:
            object.__setattr__(self, "max_positives", whole("max_positives", self.max_positives))

    def classes(self, labels: int) -> int:
        """Return the number of sets that can win, exactly."""
        return sum(_sizes(labels, self.max_positives))

    @property
    def _refusal(self) -> tuple[str, ...]:
        rule = (
            f"is {self.max_positives}, but a ballot has more positives (which one is sealed); "
            "raise it, or use Ballots.clip"
        )
        return "max_positives", rule

    def _draw_unvoted(
        self, voted: npt.NDArray[np.bool_], labels: int, entropy: Entropy
    ) -> npt.NDArray[np.bool_]:
        codes = {row.tobytes() for row in voted}
        while True:
            drawn = self._draw_set(labels, entropy)
            if drawn.tobytes() not in codes:
                return drawn

    def _draw_set(self, labels: int, entropy: Entropy) -> npt.NDArray[np.bool_]:
        """Draw uniformly among all sets that can win."""
        if self.max_positives is None or self.max_positives >= labels:
            bits = np.frombuffer(entropy.bytes(-(-labels // 8)), np.uint8)
            return np.unpackbits(bits, count=labels).astype(np.bool_)
        sizes = _sizes(labels, self.max_positives)
        ticket, size = entropy.below(sum(sizes)), 0
        while ticket >= sizes[size]:
            ticket -= sizes[size]
            size += 1
        drawn = np.zeros(labels, np.bool_)
        drawn[list(entropy.subset(size, labels))] = True
        return drawn

    def outcome_probabilities(self, votes: Any) -> list[dict[Any, float]]:
        """Return, for each query, the probability of every set that got a vote, by its labels.

        Keys are tuples of label indices; ``"unvoted"`` holds the probability that some set without
        a vote wins (each of them alike), ``"abstain"``, with a gate, that nothing is released.
        """
        out: list[dict[Any, float]] = []
        for block in self._accept(votes).blocks():
            tally = self.tally(block)
            wins = np.exp(self.win_log_probs(tally))
            for row, (abstain, answer) in enumerate(self.gate_probs(tally).tolist()):
                seen = np.flatnonzero(tally.profiles[row])
                entry: dict[Any, float] = {
                    tuple(np.flatnonzero(tally.ballots[tally.winners[row, i]]).tolist()): float(
                        wins[row, i] * answer
                    )
                    for i in seen
                }
                entry["unvoted"] = float(wins[row, -1] * answer)
                if self.gate is not None:
                    entry["abstain"] = abstain
                out.append(entry)
        return out


@lru_cache(maxsize=64)
def _sizes(labels: int, max_positives: int | None) -> tuple[int, ...]:
    """Return how many sets there are of each size, as exact integers."""
    top = labels if max_positives is None else min(labels, max_positives)
    bits = labels if top == labels else min(labels, top * labels.bit_length())
    if bits > _MOST_BITS or (top < labels and top * bits > 64 * _MOST_BITS):
        raise InputError(
            "labels",
            f"must be fewer for powerset voting: {labels} labels have about 2^{bits} sets, and at "
            f"most 2^{_MOST_BITS} can be counted",
        )
    if top == labels and labels > 64:
        return (1 << labels,)  # only the sum is needed, and a thousand binomials are slow
    sizes = [1]
    for size in range(top):
        sizes.append(sizes[-1] * (labels - size) // (size + 1))
    return tuple(sizes)

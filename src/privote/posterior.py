"""After the noise: what released tallies say together about every label, and how sure that is.

Everything here looks at released numbers and at public ones, so it is free. For each label the
distribution of its true tallies is estimated from the released ones (empirical Bayes: weights on a
grid of tallies, fitted by EM, shrunk towards those of all labels together). Then every cell has a
chance that more than half of the voters want the label, given all that was released. Cells are
counted in bins of a tenth of the noise, so ten million queries take no longer than a thousand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from .errors import InputError, finite, positive, whole

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

RULES = ("likely", "f1", "balanced")
FEWEST = 200  # cells; fewer cannot be fitted, and the plain majority of each tally decides

_POINTS, _MOST_POINTS, _MOST_BINS = 41, 500, 4000
_SHRINK = 5.0  # queries that the weights of all labels together count as
_ROUNDS, _MORE_ROUNDS = 100, 300  # of EM: to decide, and to compare two fits
_LUCK = 0.07  # of what is counted: the most by which luck alone may move a stated figure
_POOLED, _CLEAR = 6.0, 2.0  # evidence for majorities: log-likelihood, of all labels and of one
_HANDFUL = 5.0  # expected right ones that need evidence, or they come out of nothing


@dataclass(frozen=True)
class Posterior:
    """How likely most voters want a label, and which share of them, by its released tally.

    Made by :func:`posterior`. All but the tables is public by itself.

    Attributes
    ----------
    voters, sigma, steps
        Registered voters; deviation of the noise on a tally before rounding, in votes; how many
        steps of the tallies a vote is.
    first, width
        Of the bins: the first one's lowest tally, and how many tallies each has.
    counts
        (labels, bins) How many released tallies fall into each bin.
    """

    voters: int
    sigma: float
    steps: int
    first: int
    width: int
    counts: Counts

    @property
    def fitted(self) -> bool:
        """Whether there are cells enough for a fit."""
        return int(self.counts.sum()) >= FEWEST

    @cached_property
    def chances(self) -> Floats:
        """(labels, bins) The chance that more than half of the voters want the label.

        A fit to noise alone has a handful of likely ones: where nothing else speaks for those, or
        not even half a one is expected in all, chances end at one half.
        """
        if not self.fitted:
            flat = ndtr((self._middles - self.voters / 2) / self.sigma)
            return np.broadcast_to(flat, self.counts.shape).copy()
        chances = self._mean(self._model[0] > self.voters / 2)
        expected = self.counts * chances
        few = (expected * (chances > 0.5)).sum(axis=1) < _HANDFUL
        if (chances[few] > 0.5).any():
            pooled, by_label = self.evidence
            few &= (pooled < _CLEAR) & (by_label < _POOLED)
            chances[few] = np.minimum(chances[few], 0.5)
        return np.minimum(chances, 0.5) if expected.sum() < 0.5 else chances

    @cached_property
    def shares(self) -> Floats:
        """(labels, bins) The expected share of the voters who want the label."""
        if not self.fitted:
            flat = np.clip(self._middles / self.voters, 0.0, 1.0)
            return np.broadcast_to(flat, self.counts.shape).copy()
        return self._mean(self._model[0] / self.voters)

    @property
    def _middles(self) -> Floats:
        """(bins,) Each bin's middle, in votes."""
        lowest = self.first + self.width * np.arange(self.counts.shape[1])
        return np.asarray((lowest + (self.width - 1) / 2) / self.steps)

    def _mean(self, values: npt.NDArray[Any]) -> Floats:
        """Return the mean of values (grid,) from 0 to 1, given the bin: (labels, bins)."""
        weights, likelihood = self._weights, self._model[1]
        mean = (weights * values) @ likelihood.T / (weights @ likelihood.T)
        return np.asarray(np.clip(mean, 0.0, 1.0))

    @cached_property
    def _weights(self) -> Floats:
        """How common each true tally is, by label: (labels, grid)."""
        grid, likelihood = self._model
        start = np.full((1, len(grid)), 0.1 / len(grid))
        start[0, 0] += 0.9  # most labels are rare
        pooled, _ = _fit(self.counts.sum(axis=0)[None], likelihood, start, 0.0, _ROUNDS)
        start = np.repeat(pooled, len(self.counts), axis=0)
        return _fit(self.counts, likelihood, start, _SHRINK * pooled, _ROUNDS)[0]

    @cached_property
    def evidence(self) -> tuple[float, Floats]:
        """How much better tallies above one half explain what was released than none: in nats.

        For all labels together, and (labels,) for each.
        """
        grid, likelihood = self._model
        low = grid <= self.voters / 2
        gains = []
        for counts in (self.counts.sum(axis=0)[None], self.counts):
            fits = []
            for some in (likelihood[:, low], likelihood):
                flat = np.full((len(counts), some.shape[1]), 1 / some.shape[1])
                fits.append(_fit(counts, some, flat, 0.0, _MORE_ROUNDS)[1])
            gains.append(np.maximum(fits[1] - fits[0], 0.0))
        return float(gains[0][0]), gains[1]

    @cached_property
    def _model(self) -> tuple[Floats, Floats]:
        """The grid of true tallies in votes, and Pr[bin | tally], scaled by bin: (bins, grid)."""
        points = max(_POINTS, math.ceil(2 * self.voters / self.sigma) + 1)
        points = min(points, _MOST_POINTS, max(2, self.voters * self.steps + 1))
        grid = np.linspace(0, self.voters, points)
        gap = self.voters / (points - 1)
        # Between points that are far apart a tally may lie anywhere.
        scale = math.hypot(self.sigma, gap / math.sqrt(12)) if gap > 1 else self.sigma
        ends = (self.first + self.width * np.arange(self.counts.shape[1] + 1) - 0.5) / self.steps
        below = (ends[:-1, None] - grid) / scale
        above = (ends[1:, None] - grid) / scale
        mirrored = below > 0  # there both are upper tails, which would cancel
        near, far = np.where(mirrored, -below, above), np.where(mirrored, -above, below)
        likelihood = ndtr(near) - ndtr(far)
        top = likelihood.max(axis=1, keepdims=True)
        return grid, np.maximum(likelihood / np.where(top > 0, top, 1.0), 1e-300)

    # -- cells -------------------------------------------------------------------------------------

    def probabilities(self, tallies: npt.NDArray[Any]) -> Floats:
        """Return the chance of every cell: (queries, labels)."""
        return self._of_cells(self.chances, tallies)

    def expected_shares(self, tallies: npt.NDArray[Any]) -> Floats:
        """Return the expected share of the voters who want the label: (queries, labels)."""
        return self._of_cells(self.shares, tallies)

    def labels(self, tallies: npt.NDArray[Any], by: str | float = "likely") -> Bools:
        """Return the labels: (queries, labels)."""
        return self._of_cells(self.decided(by), tallies)

    def _of_cells(self, table: npt.NDArray[Any], tallies: npt.NDArray[Any]) -> npt.NDArray[Any]:
        place = (np.asarray(tallies) - self.first) // self.width
        place = np.clip(place, 0, self.counts.shape[1] - 1)
        return np.asarray(table[np.arange(len(table)), place])

    # -- decisions ---------------------------------------------------------------------------------

    def decided(self, by: str | float = "likely") -> Bools:
        """Return which bins are a 1: (labels, bins).

        Parameters
        ----------
        by
            ``"likely"``: where the chance is above one half, so that a one is likelier right than
            wrong. ``"f1"``: what has the largest expected F1 over all cells.
            ``"balanced"``: the largest expected balanced accuracy of each label. A number: where
            the chance is at least that.
        """
        chances, expected = self.chances, self.counts * self.chances
        if isinstance(by, str):
            if by not in RULES:
                raise InputError("by", f"must be one of {', '.join(RULES)}, or a number", by)
            if by == "likely":
                ones = chances > 0.5
            elif by == "f1":
                ones = chances >= self._best_bar(expected)
            else:
                ones = chances > expected.sum(axis=1, keepdims=True) / self._queries
        else:
            bar = finite("by", by)
            if not 0 <= bar <= 1:
                raise InputError("by", "must lie from 0 to 1", by)
            ones = chances >= bar
        # Where not even half a one is expected, there is none.
        return np.asarray(ones & (not self.fitted or expected.sum() >= 0.5))

    def _best_bar(self, expected: Floats) -> float:
        order = np.argsort(-self.chances, axis=None, kind="stable")
        hits = np.cumsum(expected.reshape(-1)[order])
        ones = np.cumsum(self.counts.reshape(-1)[order])
        best = int(np.argmax(2 * hits / np.maximum(ones + hits[-1], 1e-300)))
        return float(self.chances.reshape(-1)[order[best]])

    @property
    def _queries(self) -> int:
        return int(self.counts[0].sum())

    # -- quality -----------------------------------------------------------------------------------

    def quality(self, by: str | float = "likely", *, learnt: bool = True) -> dict[str, Any] | None:
        """Return the expected precision, recall and F1 against the noise-free majority.

        Parameters
        ----------
        by
            How labels are decided.
        learnt
            Whether the allowance was learnt from voters enough; if not, nothing can be told.

        Returns
        -------
        ``"precision"``, ``"recall"``, ``"f1"`` over all cells, and ``"by_label"``: arrays
        (labels,) of the same, of how many ``"ones"`` there are, and of the ``"gain"`` in accuracy
        over the better of always yes and always no. None if it cannot be told.
        """
        ones = self.decided(by)
        if not (learnt and self.fitted and self._told(ones)):
            return None
        expected = self.counts * self.chances
        hits, number = (ones * expected).sum(axis=1), (ones * self.counts).sum(axis=1)
        total = expected.sum(axis=1)
        right = hits + self._queries - number - (total - hits)
        gain = (right - np.maximum(total, self._queries - total)) / self._queries
        by_label = {**_figures(hits, number, total), "ones": number, "gain": gain}
        whole_table = _figures(hits.sum(), number.sum(), total.sum())
        return {**{name: float(value) for name, value in whole_table.items()}, "by_label": by_label}

    def _told(self, ones: Bools) -> bool:
        """Return whether what was released speaks for majorities, and luck does not drown it."""
        expected = self.counts * self.chances
        number = (ones * self.counts).sum()
        spread = 2 * math.sqrt(float((expected * (1 - self.chances)).sum()))
        if not number or spread > _LUCK * (number + expected.sum()):
            return False
        pooled, by_label = self.evidence
        hits = (ones * expected).sum(axis=1)
        return bool(pooled >= _POOLED or hits[by_label > _CLEAR].sum() >= hits.sum() / 2)


def posterior(tallies: npt.NDArray[Any], *, sigma: float, voters: int, steps: int = 1) -> Posterior:
    """Return what released tallies say together.

    Parameters
    ----------
    tallies
        (queries, labels) integers, as they were released.
    sigma
        Standard deviation of their noise before it was rounded, in votes.
    voters
        How many were registered.
    steps
        How many steps of the tallies a vote is.
    """
    released = np.asarray(tallies)
    if released.ndim != 2 or released.dtype.kind not in "iu" or not released.size:
        raise InputError(
            "tallies", f"must be integers (queries, labels), got shape {released.shape}"
        )
    sigma, voters, steps = positive("sigma", sigma), whole("voters", voters), whole("steps", steps)
    first, last = int(released.min()), int(released.max())
    width = max(1, math.floor(sigma * steps / 10), -(-(last - first + 1) // _MOST_BINS))
    bins = (last - first) // width + 1
    counts = [np.bincount((column - first) // width, minlength=bins) for column in released.T]
    return Posterior(voters, sigma, steps, first, width, np.array(counts, np.int64))


def _fit(
    counts: Counts, likelihood: Floats, weights: Floats, prior: Floats | float, rounds: int
) -> tuple[Floats, Floats]:
    """Return weights (labels, grid) fitted to counts (labels, bins) by EM, and log-likelihoods."""
    seen = counts.any(axis=0)
    counts, likelihood = counts[:, seen], likelihood[seen]
    for _ in range(rounds):
        weights = weights * ((counts / (weights @ likelihood.T)) @ likelihood) + prior
        weights = weights / weights.sum(axis=1, keepdims=True)
    return weights, np.asarray((counts * np.log(weights @ likelihood.T)).sum(axis=1))


def _figures(hits: Any, ones: Any, total: Any) -> dict[str, Any]:
    """Return precision, recall and F1; 0 where nothing is divided by nothing."""

    def share(part: Any, of: Any) -> Any:
        return np.where(of > 0, part / np.where(of > 0, of, 1.0), 0.0)

    return {
        "precision": share(hits, ones),
        "recall": share(hits, total),
        "f1": share(2 * hits, ones + total),
    }

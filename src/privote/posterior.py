"""After the noise: what released tallies say together about every label, and how sure that is.

Everything here looks at released numbers and at public ones, so it is free. Two models give every
cell a chance that more than half of the voters want the label, given all that was released. By its
tally alone (:class:`Histogram`): for each label, the distribution of its true tallies is estimated
from the released ones. With the queries' public rows (:class:`Regression`): the rows predict the
tally, and the cell's own tally corrects the prediction. Rules and quality are the same for both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh
from scipy.sparse import csr_matrix, issparse
from scipy.special import betainc, expit, ndtr

from .errors import InputError, finite, numbers, positive, whole

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

RULES = ("likely", "f1", "balanced")
FEWEST = 200  # cells; fewer cannot be fitted, and the plain majority of each tally decides

# Quality is stated of ones enough, and if luck moves no figure by more than a part of what counts.
_ONES, _LUCK = 30, 0.07
# Of a label's true tallies about their mean share u: variance u(1 - u) times a ratio that is
# estimated for all labels together, shrunk towards a usual one.
_RATIO, _RATIO_ERROR, _RATIOS = 0.15, 0.1, (0.005, 1.0)
_RARE = 0.02  # u and 1 - u are at least this

# Of the histogram.
_POINTS, _MOST_POINTS, _MOST_BINS = 41, 500, 4000
_SHRINK = 5.0  # queries that the weights of all labels together count as
_SMOOTH = 0.25  # weight of the Beta distribution beside the fitted weights, which fit noise, too
_ROUNDS, _MORE_ROUNDS = 100, 300  # of EM: to decide, and to compare two fits
_POOLED, _CLEAR = 6.0, 2.0  # evidence for majorities: log-likelihood, of all labels and of one
_LOUDEST = 3.0  # noise by voters up to which quality is stated
_HANDFUL = 5.0  # expected right ones that need evidence, or they come out of nothing

# Of the regression.
_DIRECTIONS = 150  # at most
_NARROWEST, _WIDEST, _BLOCK = 256, 4096, 1 << 21  # features of a row, and numbers of a block
_LARGEST = 1e100  # of a row's numbers, whose squares are added
_SPEAKS = 3.0  # nats by which a label's tallies must be no mere noise, or none of it is likely
_OPTIMISM = 3.0  # nats by which a label's fitted weights explain noise, too
_STRENGTHS = (np.inf, *np.geomspace(1e3, 1e-4, 36))  # of the ridge, by the largest variance
_NOISIEST = 0.6  # noise by voters up to which quality is stated for up to 625 queries


def check_rule(by: Any) -> str | float:
    """Return how labels are decided from tallies; refuse what is no rule and no threshold."""
    if isinstance(by, str) and by in RULES:
        return by
    if isinstance(by, str) or not 0 <= (bar := finite("by", by)) <= 1:
        raise InputError("by", f"must be one of {', '.join(RULES)}, or a number from 0 to 1", by)
    return bar


@dataclass(frozen=True, eq=False)
class Posterior:
    """How likely most voters want a label, and which share of them, for every released cell.

    Made by :func:`posterior`. A model gives chances to *atoms*, the bins of a label's tallies or
    the queries, and counts how many cells an atom stands for: tables (labels, atoms).

    Attributes
    ----------
    tallies
        (queries, labels) As released.
    model
        What gives the cells their chances.
    """

    tallies: Counts
    model: Histogram | Regression

    @property
    def fitted(self) -> bool:
        """Whether there are cells enough for a fit."""
        return self.tallies.size >= FEWEST

    @property
    def probabilities(self) -> Floats:
        """The chance of every cell: (queries, labels)."""
        return self.model.cells(self.model.chances, self.tallies)

    @property
    def shares(self) -> Floats:
        """The expected share of the voters who want the label: (queries, labels)."""
        return self.model.cells(self.model.shares, self.tallies)

    def labels(self, by: str | float = "likely") -> Bools:
        """Return the labels (queries, labels).

        Parameters
        ----------
        by
            ``"likely"``: where the chance is above one half, so that a one is likelier right than
            wrong. ``"f1"``: what has the largest expected F1 over all cells.
            ``"balanced"``: the largest expected balanced accuracy of each label; with both, none
            where not even half a one is expected. A number: where the chance is at least that.
        """
        return self.model.cells(self._decided(by), self.tallies)

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
        ones = self._decided(by)
        if not learnt or not self.fitted:
            return None
        expected, queries = self._expected, len(self.tallies)
        hits, number = (ones * expected).sum(axis=1), (ones * self.model.counts).sum(axis=1)
        total = expected.sum(axis=1)
        luck = 2 * math.sqrt(float((expected * (1 - self.model.chances)).sum()))
        drowned = luck > _LUCK * (number.sum() + total.sum())
        if drowned or number.sum() < _ONES or not self.model.supports(hits):
            return None
        right = hits + queries - number - (total - hits)
        gain = (right - np.maximum(total, queries - total)) / queries
        by_label = {**_figures(hits, number, total), "ones": number, "gain": gain}
        whole_table = _figures(hits.sum(), number.sum(), total.sum())
        return {**{name: float(value) for name, value in whole_table.items()}, "by_label": by_label}

    def _decided(self, by: str | float) -> Bools:
        """Return which atoms are a 1: (labels, atoms)."""
        chances, rule = self.model.chances, check_rule(by)
        if not isinstance(rule, str):
            return np.asarray(chances >= rule)
        if rule == "likely":
            return np.asarray(chances > 0.5)
        total = self._expected.sum(axis=1, keepdims=True)
        if self.fitted and total.sum() < 0.5:
            return np.zeros(chances.shape, bool)
        return np.asarray(
            chances > self._best_bar if rule == "f1" else chances > total / len(self.tallies)
        )

    @cached_property
    def _expected(self) -> Floats:
        """How many cells of an atom most voters want: (labels, atoms)."""
        return np.asarray(self.model.counts * self.model.chances)

    @cached_property
    def _best_bar(self) -> float:
        """Half the largest expected F1: where chances are above, ones raise it (Dinkelbach)."""
        bar, best, total = -1.0, 0.0, max(float(self._expected.sum()), 1e-300)
        while best > bar:
            bar, ones = best, self.model.chances > best
            hits = self._expected.sum(where=ones)
            best = float(hits / (self.model.counts.sum(where=ones) + total))
        return bar


def check_rows(rows: Any, queries: int) -> Any:
    """Return the queries' public rows (queries, features) if they are numbers, one row a query."""
    Rows(rows, queries)
    return rows


def posterior(
    tallies: npt.NDArray[Any], *, sigma: float, voters: int, resolution: int = 1, rows: Any = None
) -> Posterior:
    """Return what released tallies say together.

    Parameters
    ----------
    tallies
        (queries, labels) integers, as they were released.
    sigma
        Standard deviation of their noise before it was rounded, in votes.
    voters
        How many were registered.
    resolution
        How many units of the tallies a vote is.
    rows
        The queries' public rows (queries, features), an array or a scipy.sparse matrix.
    """
    released = np.asarray(tallies)
    if released.ndim != 2 or released.dtype.kind not in "iu" or not released.size:
        raise InputError(
            "tallies", f"must be integers (queries, labels), got shape {released.shape}"
        )
    released = np.asarray(released, np.int64)
    sigma, voters = positive("sigma", sigma), whole("voters", voters)
    resolution = whole("resolution", resolution)
    first, last = int(released.min()), int(released.max())
    width = max(1, math.floor(sigma * resolution / 10), -(-(last - first + 1) // _MOST_BINS))
    bins = (last - first) // width + 1
    counts = [np.bincount((column - first) // width, minlength=bins) for column in released.T]
    histogram = Histogram(voters, sigma, resolution, first, width, np.array(counts, np.int64))
    public = None if rows is None else Rows(rows, len(released))
    if public is None or not histogram.fitted:
        return Posterior(released, histogram)
    return Posterior(released, Regression.of(released, public, histogram))


# -- by the tallies alone --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Histogram:
    """Released tallies in bins of a tenth of the noise, and what they say (empirical Bayes).

    Ten million queries take no longer than a thousand. A label's true tallies have a Beta
    distribution about their mean, beside weights on a grid that are fitted by EM and shrunk towards
    those of all labels together.

    Attributes
    ----------
    voters, sigma, resolution
        Registered voters; deviation of the noise on a tally before rounding, in votes; how many
        units of the tallies a vote is.
    first, width
        The first bin's lowest tally, and how many tallies each bin has.
    counts
        (labels, bins) How many released tallies fall into each bin.
    """

    voters: int
    sigma: float
    resolution: int
    first: int
    width: int
    counts: npt.NDArray[Any]

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
        chances = self._mean(self._grid > self.voters / 2)
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
        return self._mean(self._grid / self.voters)

    def cells(self, table: npt.NDArray[Any], tallies: Counts) -> npt.NDArray[Any]:
        """Return what a table (labels, bins) has for every cell: (queries, labels)."""
        return np.asarray(table[np.arange(len(table)), (tallies - self.first) // self.width])

    def supports(self, hits: Floats) -> bool:
        """Return whether what was released speaks for majorities."""
        if self.sigma > _LOUDEST * self.voters:
            return False
        pooled, by_label = self.evidence
        return bool(pooled >= _POOLED or hits[by_label > _CLEAR].sum() >= hits.sum() / 2)

    @cached_property
    def evidence(self) -> tuple[float, Floats]:
        """How much better tallies above one half explain what was released than none: in nats.

        For all labels together, and (labels,) for each.
        """
        counts = np.vstack([self.counts.sum(axis=0), self.counts])
        start = np.tile(self._grid <= self.voters / 2, (2 * len(counts), 1))
        start[len(counts) :] = True  # what starts with no weight never gets any
        start = start / start.sum(axis=1, keepdims=True)
        fits = _fit(np.tile(counts, (2, 1)), self._likelihood[0], start, 0.0, _MORE_ROUNDS)[1]
        gains = np.maximum(fits[len(counts) :] - fits[: len(counts)], 0.0)
        return float(gains[0]), gains[1:]

    @cached_property
    def explained(self) -> Floats:
        """(labels,) The log-density of a label's released tallies, in votes."""
        likelihood, top = self._likelihood
        density = self._weights @ likelihood.T * top * (self.resolution / self.width)
        return np.asarray((self.counts * np.log(np.maximum(density, 1e-300))).sum(axis=1))

    def _mean(self, values: npt.NDArray[Any]) -> Floats:
        """Return the mean of values (grid,) from 0 to 1, given the bin: (labels, bins)."""
        weights, likelihood = self._weights, self._likelihood[0]
        mean = (weights * values) @ likelihood.T / (weights @ likelihood.T)
        return np.asarray(np.clip(mean, 0.0, 1.0))

    @cached_property
    def _weights(self) -> Floats:
        """How common each true tally is, by label: (labels, grid)."""
        points, likelihood = len(self._grid), self._likelihood[0]
        start = np.full((1, points), 0.1 / points)
        start[0, 0] += 0.9  # most labels are rare
        pooled, _ = _fit(self.counts.sum(axis=0)[None], likelihood, start, 0.0, _ROUNDS)
        start = np.repeat(pooled, len(self.counts), axis=0)
        fitted, _ = _fit(self.counts, likelihood, start, _SHRINK * pooled, _ROUNDS)
        return (1 - _SMOOTH) * fitted + _SMOOTH * self._beta

    @cached_property
    def _beta(self) -> Floats:
        """The weights of Beta distributions about the labels' means: (labels, grid)."""
        queries = self.counts.sum(axis=1, keepdims=True)
        mean = (self.counts @ self._middles)[:, None] / queries
        noise = self.sigma**2 * (1 + 1 / queries)
        spread = _spread(mean, self.voters)
        ratio = _ratio(_excess(self._middles - mean, noise, spread, self.counts))
        share = np.clip(mean / self.voters, _RARE, 1 - _RARE)
        size = max(1 / ratio - 1, 0.02)
        ends = np.concatenate([[0], (self._grid[:-1] + self._grid[1:]) / 2, [self.voters]])
        return np.diff(betainc(size * share, size * (1 - share), ends / self.voters), axis=1)

    @cached_property
    def _middles(self) -> Floats:
        """(bins,) Each bin's middle, in votes."""
        lowest = self.first + self.width * np.arange(self.counts.shape[1])
        return np.asarray((lowest + (self.width - 1) / 2) / self.resolution)

    @cached_property
    def _grid(self) -> Floats:
        """(grid,) The true tallies that have weights, in votes."""
        points = max(_POINTS, math.ceil(2 * self.voters / self.sigma) + 1)
        points = min(points, _MOST_POINTS, max(2, self.voters * self.resolution + 1))
        return np.linspace(0, self.voters, points)

    @cached_property
    def _likelihood(self) -> tuple[Floats, Floats]:
        """Pr[bin | true tally], scaled by bin (bins, grid), and the scale (bins,)."""
        gap = float(self._grid[1])
        # Between points that are far apart a tally may lie anywhere.
        scale = math.hypot(self.sigma, gap / math.sqrt(12)) if gap > 1 else self.sigma
        lowest = self.first + self.width * np.arange(self.counts.shape[1] + 1)
        ends = (lowest - 0.5) / self.resolution
        below = (ends[:-1, None] - self._grid) / scale
        above = (ends[1:, None] - self._grid) / scale
        mirrored = below > 0  # there both are upper tails, which would cancel
        near, far = np.where(mirrored, -below, above), np.where(mirrored, -above, below)
        likelihood = ndtr(near) - ndtr(far)
        top = likelihood.max(axis=1)
        scaled = likelihood / np.where(top > 0, top, 1.0)[:, None]
        return np.maximum(scaled, 1e-300), np.maximum(top, 1e-300)


# -- with the queries' rows ------------------------------------------------------------------------


class Rows:
    """The queries' rows in at most 150 principal directions, of which a block is in memory.

    Attributes
    ----------
    spans
        Blocks of queries.
    sizes
        (directions,) Variances, by the largest one.
    """

    def __init__(self, rows: Any, queries: int) -> None:
        values = rows.tocsr() if issparse(rows) else numbers("rows", rows)
        shape, kind = values.shape, values.dtype.kind
        if len(shape) != 2 or shape[0] != queries or not shape[1] or kind not in "biuf":
            rule = f"must be numbers ({queries} queries, features)"
            raise InputError("rows", f"{rule}, got {values.dtype} of shape {shape}")
        self._values, self._fold, self._mean = values, None, np.zeros(1)
        if shape[1] > _WIDEST:  # features share columns, with random signs
            rng, features = np.random.default_rng(0), np.arange(shape[1])
            signs, columns = rng.choice([-1.0, 1.0], shape[1]), rng.integers(_WIDEST, size=shape[1])
            self._fold = csr_matrix((signs, (features, columns)), (shape[1], _WIDEST))
        size = _BLOCK // min(max(shape[1], _NARROWEST), _WIDEST)
        self.spans = [slice(start, start + size) for start in range(0, queries, size)]
        sums: Any = 0.0
        for span in self.spans:
            block = self._centred(span)
            if not (np.abs(block) < _LARGEST).all():
                raise InputError("rows", f"must be finite, and below {_LARGEST:g}")
            sums += block.sum(axis=0)
        self._mean = sums / queries
        self.sizes, self._turn = self._principal()

    def block(self, span: slice) -> Floats:
        """Return a block of left singular vectors: (queries, directions)."""
        return np.asarray(self._centred(span) @ self._turn)

    def _centred(self, span: slice) -> Floats:
        """Return a block of rows less the mean: (queries, columns)."""
        part: Any = self._values[span] if self._fold is None else self._values[span] @ self._fold
        dense = np.asarray(part.toarray() if issparse(part) else part, np.float64)
        return np.asarray(dense - self._mean)

    def _principal(self) -> tuple[Floats, Floats]:
        """Return variances, and what turns centred rows: (columns, directions)."""
        blocks, full = (self._centred(span) for span in self.spans), None
        if self._values.shape[0] <= len(self._mean):
            full = np.concatenate([*blocks])
        moments: Any = sum(block.T @ block for block in blocks) if full is None else full @ full.T
        size = len(moments)
        values, vectors = eigh(moments, subset_by_index=[max(0, size - _DIRECTIONS), size - 1])
        clear = values > 1e-10 * values[-1]
        values, vectors = values[clear], vectors[:, clear] / np.sqrt(values[clear])
        turn = vectors if full is None else full.T @ (vectors / np.sqrt(values))
        return values / values.max(initial=1e-300), turn


@dataclass(frozen=True, eq=False)
class Ridge:
    """Ridge regressions of labels' tallies on rows, each with its best strength.

    Attributes
    ----------
    gaps
        (queries, labels) Tallies less the labels' means, in votes.
    rows
        The queries'.
    slopes
        (directions, labels) Products of left singular vectors and gaps.
    shrunk
        (directions, labels) What the best strength leaves of each direction; no rows at all: 0.
    """

    gaps: Floats
    rows: Rows
    slopes: Floats
    shrunk: Floats

    @classmethod
    def of(cls, gaps: Floats, rows: Rows) -> Ridge:
        """Return the regressions whose leave-one-out error is the smallest."""
        slopes: Any = sum(rows.block(span).T @ gaps[span] for span in rows.spans)
        factors = rows.sizes[:, None] / (rows.sizes[:, None] + np.array(_STRENGTHS))
        errors = np.zeros((len(_STRENGTHS), gaps.shape[1]))
        for span in rows.spans:
            vectors = rows.block(span)
            rest = np.maximum(1 - vectors**2 @ factors - 1 / len(gaps), 1e-9)
            for place, factor in enumerate(factors.T):
                error = (gaps[span] - vectors @ (factor[:, None] * slopes)) / rest[:, place, None]
                errors[place] += (error**2).sum(axis=0)
        return cls(gaps, rows, slopes, factors[:, errors.argmin(axis=0)])

    def errors(self, span: slice) -> tuple[Floats, Floats]:
        """Return by how much tallies exceed what the others predict (queries, labels).

        And the variance of these predictions, by that of the noise on a tally.
        """
        vectors, one = self.rows.block(span), 1 / len(self.gaps)
        own = vectors**2 @ self.shrunk + one  # the weight of a cell's own tally in its fit
        rest = np.maximum(1 - own, 1e-9)
        errors = (self.gaps[span] - vectors @ (self.shrunk * self.slopes)) / rest
        return errors, np.maximum((vectors**2 @ self.shrunk**2 + one - own**2) / rest**2, one)


@dataclass(frozen=True, eq=False)
class Regression:
    """What rows and released tallies say together, for every query.

    A ridge regression of each label's tallies on the rows predicts a cell from all others (leave
    one out). The true tally is normal about the prediction, and the cell's own tally corrects it.
    Averaged with the histogram, label by label, by how well each explains the released tallies.

    Attributes
    ----------
    chances, shares
        (labels, queries) As :class:`Histogram` has them.
    noise
        The deviation of the noise, by voters.
    """

    chances: Floats
    shares: Floats
    noise: float

    @classmethod
    def of(cls, tallies: Counts, rows: Rows, histogram: Histogram) -> Regression:
        """Return the model of tallies (queries, labels)."""
        voters, votes = histogram.voters, tallies / histogram.resolution
        noise = histogram.sigma**2 + 1 / (12 * histogram.resolution**2)  # rounding included
        ridge = Ridge.of(votes - votes.mean(axis=0), rows)
        shares, chances = np.empty(votes.shape), np.empty(votes.shape)
        sums, explained = np.zeros(2), np.zeros(votes.shape[1])
        for span in rows.spans:
            errors, chances[span] = ridge.errors(span)
            shares[span] = means = votes[span] - errors
            sums += _excess(errors, noise * (1 + chances[span]), _spread(means, voters))
        ratio = _ratio(sums)
        for span in rows.spans:
            means, released = shares[span], votes[span]
            prior = ratio * _spread(means, voters) + noise * chances[span]
            both = prior + noise
            explained -= ((released - means) ** 2 / both + np.log(2 * math.pi * both)).sum(0) / 2
            means = (prior * released + noise * means) / both
            shares[span] = np.clip(means / voters, 0.0, 1.0)
            chances[span] = ndtr((means - voters / 2) / np.sqrt(prior * noise / both))
        alone = histogram.explained - _OPTIMISM
        weight = expit(explained - alone)
        nothing = -((votes**2).sum(axis=0) / noise + len(votes) * math.log(2 * math.pi * noise)) / 2
        silent = np.maximum(explained, alone) - nothing < _SPEAKS
        for table, bins in ((chances, histogram.chances), (shares, histogram.shares)):
            table += (1 - weight) * (histogram.cells(bins, tallies) - table)
        chances[:, silent] = np.minimum(chances[:, silent], 0.5)
        return cls(chances.T, shares.T, histogram.sigma / voters)

    @property
    def counts(self) -> Counts:
        """(labels, queries) Ones: a query is a cell of each label."""
        return np.broadcast_to(np.int64(1), self.chances.shape)

    def cells(self, table: npt.NDArray[Any], _: Counts) -> npt.NDArray[Any]:
        """Return what a table (labels, queries) has for every cell: (queries, labels)."""
        return table.T.copy()

    def supports(self, _: Floats) -> bool:
        """Return whether the noise is small enough for so many queries."""
        return self.noise <= _NOISIEST * max(1.0, math.sqrt(self.chances.shape[1]) / 25)


# -- what both have in common ----------------------------------------------------------------------


def _spread(means: Floats, voters: int) -> Floats:
    """Return u(1 - u) in votes squared, of predicted tallies in votes."""
    share = np.clip(means / voters, _RARE, 1 - _RARE)
    return np.asarray(voters**2 * share * (1 - share))


def _excess(gaps: Floats, noise: Any, spread: Floats, counts: Any = 1) -> Floats:
    """Return by how much squared gaps exceed the noise, by the spread: numerator, denominator."""
    precision = counts / (2 * (noise + _RATIO * spread) ** 2)
    excess = precision * spread * (gaps**2 - noise)
    return np.array([excess.sum(), (precision * spread**2).sum()])


def _ratio(sums: Floats) -> float:
    """Return the variance of true tallies about their predictions by the spread, shrunk."""
    trust = 1 / _RATIO_ERROR**2
    return float(np.clip((sums[0] + trust * _RATIO) / (sums[1] + trust), *_RATIOS))


def _fit(
    counts: npt.NDArray[Any], likelihood: Floats, weights: Floats, prior: Any, rounds: int
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
    parts, wholes = np.array([hits, hits, 2 * hits]), np.array([ones, total, ones + total])
    shares = np.divide(parts, wholes, out=np.zeros_like(parts), where=wholes > 0)
    return dict(zip(("precision", "recall", "f1"), shares, strict=True))

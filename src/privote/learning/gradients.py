r"""Linear models of private records: by noisy gradients, or from one noisy sum.

*Gradients*, the strongest plain rival of votes: noisy gradient descent on all records at once. For
one record the gradient of the logistic loss is the outer product of its residuals and its features,
so its norm is the product of two norms and nothing of size (records, features, labels) is ever
built. Full batches give the noise of one Gaussian mechanism, spread over the steps; smaller ones
gain nothing here but speed. A person with several records adds the mean of their gradients, clipped
as a whole (see :mod:`privote.learning.training`).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import expit, logit
from sklearn.utils.validation import check_is_fitted

from ..errors import InputError, positive
from .embedding import embed, embedding_for, fit_embedding
from .noise import CLIP_MARGIN, Noise, Priced, TrainingPlan, affordable_rate
from .rows import (
    BLOCK,
    Floats,
    Labels,
    Progress,
    deviations,
    normalize_rows,
    padded_blocks,
    same_anywhere,
)
from .training import (
    Arrays,
    Layout,
    Persons,
    PrivateTraining,
    Sizes,
    by_person,
    check_descent,
    rows_of,
)
from .workers import one_thread

_HUGE = 1e30
_VALUES = 1 << 22  # of persons' gradients at once: 32 MiB
_FASTEST = 10.0  # beyond, full batches of rows of norm 1 swing instead of settling


class PrivateLinear(PrivateTraining):
    """A linear model on rows that a public embedding maps, each scaled to norm 1 by itself.

    Attributes
    ----------
    coef_, intercept_
        (labels, features) and (labels,), on rows in the embedding.
    embedding_
        The public map, None for rows as they are; see :mod:`privote.learning.embedding`.
    """

    embedding: Any
    power: float
    normalise = True

    def decision_function(self, X: Any) -> Floats:
        """Return each label's logit: (rows, labels)."""
        check_is_fitted(self, "coef_")
        rows = self._design(self._rows(X))[:, :-1]
        return np.asarray(np.asarray(rows @ self.coef_.T) + self.intercept_)

    def predict_proba(self, X: Any) -> Floats:
        """Return each label's probability: (rows, labels)."""
        return np.asarray(expit(self.decision_function(X)))

    def _read(self, X: Any) -> Any:
        return self._rows(X, reset=True)

    def _power(self) -> float:
        """Return to which power features are divided by their public deviations."""
        return float(self.power)

    def _look(self, X_public: Any, records: int, labels: int) -> Any:
        """Settle from public rows how any row is mapped; return these rows in the design.

        Without public rows there is nothing to go by, and rows stay as they are.
        """
        self.embedding_, self.mean_, self.scale_ = None, np.zeros(1), np.ones(1)
        if X_public is None:
            if self.embedding not in (None, "auto"):
                raise InputError("embedding", "needs `X_public`: it is fitted on public rows")
            return None
        public = self._rows(X_public, "X_public")
        chosen = self.embedding
        if isinstance(chosen, str) and chosen == "auto":
            chosen = embedding_for(public, records, labels, self.epsilon)
        self.embedding_ = fit_embedding(chosen, public)
        seen = embed(self.embedding_, public)
        mean, spread = deviations(seen)
        if not sp.issparse(seen):
            self.mean_ = mean
        # Of a feature that is constant in public nothing is known: take it for one like others.
        usual = float(np.median(spread[spread > 0])) if spread.any() else 1.0
        self.scale_ = np.where(spread > 0, spread, usual) ** -self._power()
        return self._design(public)

    def _design(self, X: Any) -> Any:
        """Return rows as they are learnt from, with a constant 1 at the end: (rows, features + 1).

        Values that overflow become 0: in a sum over records they would show.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            rows = X if self.embedding_ is None else embed(self.embedding_, _bounded(X))
            if sp.issparse(rows) and self.mean_.any():  # public rows were dense, and are centred
                rows = rows.toarray()
            if sp.issparse(rows):
                rows = rows.astype(np.float64).multiply(self.scale_).tocsr()
                rows.data = np.nan_to_num(rows.data, posinf=0.0, neginf=0.0)
            else:
                rows = (np.asarray(rows, np.float64) - self.mean_) * self.scale_
                rows = np.nan_to_num(rows, posinf=0.0, neginf=0.0)
        ones = np.ones((X.shape[0], 1))
        if self.normalise:
            rows = normalize_rows(rows)
        if sp.issparse(rows):
            return sp.hstack([rows, ones], format="csr")
        return np.hstack([rows, ones])


def _bounded(X: Any) -> Any:
    """Return rows without huge values: scikit-learn refuses what overflows inside a pipeline."""
    if not sp.issparse(X):
        return np.clip(X, -_HUGE, _HUGE)
    X = X.copy()
    X.data = np.clip(X.data, -_HUGE, _HUGE)
    return X


@dataclass(eq=False, repr=False)
class DPLinear(PrivateLinear):
    """Logistic regressions on many labels, trained together by noisy gradient descent.

    Parameters
    ----------
    epsilon, delta
        The promise for the whole training.
    steps, sample_rate
        How many gradients, and which share of the records each of them takes; 1 is all of them.
    clip
        Largest norm of one record's gradient, over all labels together.
    learning_rate
        Step for a mean gradient of norm ``clip``. None: as large as the noise allows, at most 10;
        found from public numbers, see :func:`privote.learning.noise.affordable_rate`.
    momentum
        Share of the last step that is kept.
    initial_share
        Public guess at how often a label is present, where training starts.
    normalise
        Scale every row to norm 1, each by itself, which costs no privacy.
    embedding
        Where rows are put before: see :func:`privote.learning.embedding.fit_embedding`; fitted on
        the public rows given to ``fit``. ``"auto"``: principal components, as many as public
        numbers suggest; without public rows, none.
    power
        If public rows are given to ``fit``, each feature (in the embedding) is divided by its
        deviation there to this power, and centred unless rows are sparse: 0 leaves features alone,
        1 standardises them.
    seed
        ``None``: cryptographic noise. A number makes the noise reproducible and the model
        *simulated*: it protects nobody.
    progress
        Called as ``progress(done, steps)``.

    Attributes
    ----------
    coef_, intercept_
        (labels, features) and (labels,): the mean over the second half of the steps, on features
        ``(x - mean_) * scale_`` in the embedding (and then of norm 1).
    guarantee_, embedding_
        The :class:`privote.guarantees.Guarantee` of the weights; the public map.
    learning_rate_
        The rate that was used.
    """

    epsilon: float = 8.0
    delta: float = 1e-5
    _: KW_ONLY
    steps: int = 100
    sample_rate: float = 1.0
    clip: float = 1.0
    learning_rate: float | None = None
    momentum: float = 0.9
    initial_share: float = 0.1
    normalise: bool = True
    embedding: Any = "auto"
    power: float = 0.5
    seed: int | None = None
    progress: Progress | None = None

    def _plan(self, records: int) -> TrainingPlan:
        check_descent(self)
        if self.power != 0:
            positive("power", self.power)
        return TrainingPlan(steps=self.steps, sample_rate=self.sample_rate)

    def _prepare(self, rows: Any, Y: Labels, unit: Persons, X_public: Any, priced: Priced) -> Any:
        self._look(X_public, priced.records, Y.shape[1])
        rate = affordable_rate(priced, self.momentum)
        self.learning_rate_ = float(self.learning_rate or min(_FASTEST, rate))
        rows, (order, sizes) = self._design(rows), by_person(unit)
        return (rows, Y, None) if order is None else (rows[order], Y[order], sizes)

    def _layout(self, prepared: Any) -> Layout:
        rows, Y, _ = prepared
        features, labels = rows.shape[1] - 1, Y.shape[1]
        return {"coef": (np.float64, (labels, features)), "intercept": (np.float64, (labels,))}

    def _draw(self, prepared: Any, priced: Priced, noise: Noise) -> Arrays:
        weights = self._descend(prepared, priced, noise)
        return {
            "coef": np.ascontiguousarray(weights[:-1].T),
            "intercept": weights[-1] + logit(self.initial_share),
        }

    def _finish(self, drawn: Arrays, prepared: Any, priced: Priced) -> None:
        self.coef_, self.intercept_ = drawn["coef"], drawn["intercept"]

    def _descend(self, prepared: Any, priced: Priced, noise: Noise) -> Floats:
        (rows, Y, sizes), records = prepared, priced.records
        deviation = priced.noise_multiplier * self.clip
        # The expected size of a batch is public; the sampled one is not.
        unit = self.sample_rate * records * self.clip
        weights = np.zeros((rows.shape[1], Y.shape[1]))
        velocity, mean, averaged = np.zeros_like(weights), np.zeros_like(weights), 0
        for step in range(self.steps):
            chosen = noise.sample(records, self.sample_rate)
            part, truth, counts = rows, Y, sizes
            if len(chosen) < records:
                mine = rows_of(chosen, sizes)
                part, truth, counts = rows[mine], Y[mine], None if sizes is None else sizes[chosen]
            total = clipped_sum(part, truth, weights, logit(self.initial_share), self.clip, counts)
            noisy = noise.add(total, deviation)
            velocity = self.momentum * velocity - self.learning_rate_ * noisy / unit
            weights = weights + velocity
            if step >= self.steps // 2:
                mean, averaged = mean + weights, averaged + 1
            if self.progress is not None:
                self.progress(step + 1, self.steps)
        return np.asarray(mean / averaged)


def clipped_sum(
    rows: Any, Y: Labels, weights: Floats, offset: float, clip: float, sizes: Sizes = None
) -> Floats:
    """Return the sum of gradients of norm at most ``clip``: (features, labels).

    The gradient of a record with features x and residuals r (predicted minus true, 0 where the
    label is unknown) is x rᵀ, of norm ‖x‖·‖r‖. One that overflows adds nothing. With ``sizes``
    rows stand person by person, each has so many, and adds the clipped mean of their gradients.
    """
    total, limit = np.zeros_like(weights), clip * (1 - CLIP_MARGIN)
    every = [np.zeros((0, Y.shape[1]))]
    with one_thread(), np.errstate(over="ignore", invalid="ignore"):
        for block, span in padded_blocks(rows, _block(sp.issparse(rows), *weights.shape)):
            real = span.stop - span.start
            truth = np.full((block.shape[0], Y.shape[1]), -1, Y.dtype)
            truth[:real] = Y[span]
            residuals, norms = _residuals(block, truth, weights, offset)
            if sizes is not None:
                every.append(residuals[:real])
                continue
            total += np.asarray(block.T @ (residuals * (limit / np.maximum(norms, limit))[:, None]))
        if sizes is not None:
            return _clipped_means(rows, np.concatenate(every), sizes, limit)
    return total


def _residuals(block: Any, truth: Labels, weights: Floats, offset: float) -> tuple[Floats, Floats]:
    """Return residuals (rows, labels) and the norms of gradients (rows,), each row's by itself."""
    residuals = np.nan_to_num(expit(np.asarray(block @ weights) + offset) - truth)
    residuals[truth < 0] = 0.0
    squares = block.multiply(block) if sp.issparse(block) else block * block
    norms = np.sqrt(np.asarray(squares.sum(axis=1)).ravel())
    norms = norms * np.sqrt((residuals * residuals).sum(axis=1))
    norms[np.isnan(norms)] = np.inf
    return residuals, norms


@cache
def _block(sparse: bool, features: int, labels: int) -> int:
    """Return how many rows to take at once: one where places in a block round differently."""
    weights, truth = np.random.default_rng(1).normal(size=(features, labels)), np.zeros(labels)

    def mapped(rows: Floats) -> Floats:
        return np.column_stack(_residuals(rows, np.tile(truth, (len(rows), 1)), weights, -1.0))

    return BLOCK if sparse or same_anywhere(mapped, (BLOCK, features)) else 1


def _clipped_means(
    rows: Any, residuals: Floats, sizes: npt.NDArray[np.int64], most: float
) -> Floats:
    """Return the sum over persons of mean gradients of norm at most ``most``.

    A person's mean is written out, and it is that vector which is clipped and added. A product with
    a sparse matrix adds up a person's records in their order, and its squares are added up in an
    order that no number of persons changes, so no bit of it depends on others.
    """
    total = np.zeros((rows.shape[1], residuals.shape[1]))
    ends = np.append(0, np.cumsum(sizes))
    step = max(1, _VALUES // total.size)
    for start in range(0, len(sizes), step):
        here, many = ends[start : start + step + 1], sizes[start : start + step]
        mine, count = slice(here[0], here[-1]), int(here[-1] - here[0])
        shares = residuals[mine] / np.repeat(many, many)[:, None]
        places, shape = np.arange(count), (len(here) - 1, count)
        adders = [sp.csr_matrix((label, places, here - here[0]), shape) for label in shares.T]
        means = [adder @ rows[mine] for adder in adders]
        dense = np.stack([mean.toarray() if sp.issparse(mean) else mean for mean in means])
        norms = np.sqrt((dense * dense).sum(axis=0).sum(axis=1))
        norms[np.isnan(norms)] = np.inf
        dense[:, ~np.isfinite(norms)] = 0.0
        total += np.tensordot(most / np.maximum(norms, most), dense, (0, 1)).T
    return total

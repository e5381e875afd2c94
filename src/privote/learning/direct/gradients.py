"""The strongest plain rival: a linear model by noisy gradient descent, on all records at once.

For one record the gradient of the logistic loss is the outer product of its residuals and its
features, so its norm is the product of two norms and nothing of size (records, features, labels) is
ever built. Full batches give the noise of one Gaussian mechanism, spread over the steps; smaller
ones gain nothing here but speed.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ...errors import InputError, positive
from ..rows import check_labels
from .account import begin, one_each
from .noise import (
    Noise,
    TrainingPlan,
    affordable_rate,
    next_clip,
    split_for_clipping,
)

Floats = npt.NDArray[np.float64]
Progress = Callable[[int, int], None]

_FASTEST = 10.0  # beyond, full batches of rows of norm 1 swing instead of settling


class DPLinear(MultiOutputMixin, ClassifierMixin, BaseEstimator):
    """Logistic regressions on many labels, trained together by noisy gradient descent.

    Parameters
    ----------
    epsilon, delta
        The promise for the whole training.
    adjacency
        ``"replace"``: one record changes, which is privote's promise; ``"add-remove"``: one record
        more or fewer, which most of the literature quotes and which needs half the noise.
    steps, sample_rate
        How many gradients, and which share of the records each of them takes; 1 is all of them.
    clip
        Largest norm of one record's gradient, over all labels together.
    adaptive
        Let a noisy count steer ``clip`` to the middle of the gradients' norms (Andrew et al. 2021);
        the count's noise is part of the same promise.
    learning_rate
        Step for a mean gradient of norm ``clip``. None: as large as the noise allows, at most 10;
        found from public numbers, see :func:`privote.learning.direct.noise.affordable_rate`.
    momentum
        Share of the last step that is kept.
    initial_share
        Public guess at how often a label is present, where training starts.
    normalise
        Scale every row to norm 1, each by itself, which costs no privacy.
    power
        If public rows are given to ``fit``, each feature is divided by its deviation there to this
        power (and centred, unless rows are sparse): 0 leaves features alone, 1 standardises them.
    seed
        ``None``: cryptographic noise. A number makes the noise reproducible and the model
        *simulated*: it protects nobody.
    progress
        Called as ``progress(done, steps)``.

    Attributes
    ----------
    coef_, intercept_
        (labels, features) and (labels,): the mean over the second half of the steps, on features
        ``(x - mean_) * scale_`` (and then of norm 1).
    privacy_
        :class:`~privote.learning.direct.account.TrainingPrivacy`: what may be published.
    clip_, learning_rate_
        The last clipping norm, and the rate that was used.
    """

    accepts_missing = True  # labels of -1 are left out of the loss

    def __init__(
        self,
        epsilon: float = 8.0,
        delta: float = 1e-5,
        *,
        adjacency: str = "replace",
        steps: int = 100,
        sample_rate: float = 1.0,
        clip: float = 1.0,
        adaptive: bool = False,
        learning_rate: float | None = None,
        momentum: float = 0.9,
        initial_share: float = 0.1,
        normalise: bool = True,
        power: float = 0.5,
        seed: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.steps = steps
        self.sample_rate = sample_rate
        self.clip = clip
        self.adaptive = adaptive
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.initial_share = initial_share
        self.normalise = normalise
        self.power = power
        self.seed = seed
        self.progress = progress

    def fit(
        self,
        X: Any,
        y: npt.ArrayLike,
        X_public: Any = None,
        *,
        groups: Any = None,
        ledger: Any = None,
        dataset: str = "default",
        consumer: str | None = None,
    ) -> DPLinear:
        """Train on private rows and labels (rows, labels) of 1, 0 and -1 (unknown).

        Parameters
        ----------
        X, y
            Private rows (rows, features) and labels.
        X_public
            Rows of the same kind that need no protection; only their scale is used.
        groups
            (rows,) whose each row is: then the first row of every person takes part, and the
            promise is for persons.
        ledger, dataset, consumer
            Where the budget is kept, and under which names; charged before training starts.
        """
        plan = TrainingPlan(
            steps=self.steps, sample_rate=self.sample_rate, adjacency=self.adjacency
        )
        self._check()
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64)
        Y = check_labels(y, X.shape[0])
        if groups is not None:
            X, Y = one_each(X, Y, groups)
        self._measure(X_public, sp.issparse(X))
        noise = Noise(self.seed)
        self.privacy_ = begin(
            plan,
            self.epsilon,
            self.delta,
            records=X.shape[0],
            labels=Y.shape[1],
            simulated=noise.simulated,
            persons=groups is not None,
            ledger=ledger,
            dataset=dataset,
            consumer=consumer,
        )
        multiplier = self.privacy_.noise_multiplier
        rate = affordable_rate(plan, multiplier, X.shape[0], self.momentum)
        self.learning_rate_ = float(self.learning_rate or min(_FASTEST, rate))
        weights = self._descend(self._design(X), Y, multiplier, noise)
        self.coef_ = np.ascontiguousarray(weights[:-1].T)
        self.intercept_ = weights[-1] + logit(self.initial_share)
        self.n_labels_ = Y.shape[1]
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Return each label's probability: (rows, labels)."""
        check_is_fitted(self, "coef_")
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        rows = self._design(X)[:, :-1]
        return np.asarray(expit(np.asarray(rows @ self.coef_.T) + self.intercept_))

    def predict(self, X: Any) -> npt.NDArray[np.int8]:
        """Return 1 where a label is at least as likely as not: (rows, labels)."""
        return np.asarray(self.predict_proba(X) >= 0.5).astype(np.int8)

    def _check(self) -> None:
        positive("clip", self.clip)
        if self.learning_rate is not None:
            positive("learning_rate", self.learning_rate)
        if self.power != 0:
            positive("power", self.power)
        for name, open_below in (("momentum", False), ("initial_share", True)):
            value: Any = getattr(self, name)
            fine = isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) < 1
            if not fine or (open_below and value == 0):
                low = "(0" if open_below else "[0"
                raise InputError(name, f"must lie in {low}, 1)", value)

    def _measure(self, X_public: Any, sparse: bool) -> None:
        """Find the public scale of features; without public rows there is none."""
        self.mean_, self.scale_ = np.zeros(self.n_features_in_), np.ones(self.n_features_in_)
        if X_public is None:
            return
        public = validate_data(self, X_public, accept_sparse="csr", dtype=np.float64, reset=False)
        mean = np.asarray(public.mean(axis=0)).ravel()
        square = public.multiply(public) if sp.issparse(public) else public * public
        variance = np.asarray(square.mean(axis=0)).ravel() - mean**2
        deviation = np.sqrt(np.maximum(variance, 0.0))
        varies = deviation > 1e-9 * np.abs(mean)
        # Of a feature that is constant in public nothing is known: take it for one like others.
        usual = float(np.median(deviation[varies])) if varies.any() else 1.0
        self.scale_ = np.where(varies, deviation, usual) ** -float(self.power)
        if not sparse:
            self.mean_ = mean

    def _design(self, X: Any) -> Any:
        """Return scaled rows with a constant 1 at the end: (rows, features + 1).

        Values that overflow become 0: in the sum of gradients they would show.
        """
        ones = np.ones((X.shape[0], 1))
        with np.errstate(over="ignore", invalid="ignore"):
            if not sp.issparse(X):
                X = np.nan_to_num((X - self.mean_) * self.scale_, posinf=0.0, neginf=0.0)
                return np.hstack([_normalised(X) if self.normalise else X, ones])
            X = (X @ sp.diags_array(self.scale_)).tocsr()
            X.data = np.nan_to_num(X.data, posinf=0.0, neginf=0.0)
            if self.normalise:
                norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
                X = sp.diags_array(1 / np.where(norms > 0, norms, 1.0)) @ X
            return sp.hstack([X, ones], format="csr")

    def _descend(
        self, rows: Any, Y: npt.NDArray[np.int8], multiplier: float, noise: Noise
    ) -> Floats:
        batch = self.sample_rate * rows.shape[0]
        clip, count_noise = self.clip, 0.0
        if self.adaptive:
            multiplier, count_noise = split_for_clipping(multiplier, batch)
        weights = np.zeros((rows.shape[1], Y.shape[1]))
        velocity, mean, averaged = np.zeros_like(weights), np.zeros_like(weights), 0
        for step in range(self.steps):
            chosen = noise.sample(rows.shape[0], self.sample_rate)
            all_of_them = len(chosen) == rows.shape[0]
            part, truth = (rows, Y) if all_of_them else (rows[chosen], Y[chosen])
            total, below = clipped_sum(part, truth, weights, logit(self.initial_share), clip)
            noisy = noise.add(total, multiplier * clip)
            velocity = self.momentum * velocity - self.learning_rate_ * noisy / (batch * clip)
            weights = weights + velocity
            if self.adaptive:
                below = float(noise.add(np.array([below]), count_noise)[0])
                clip = next_clip(clip, below, batch, quantile=0.5, rate=0.2)
            if step >= self.steps // 2:
                mean, averaged = mean + weights, averaged + 1
            if self.progress is not None:
                self.progress(step + 1, self.steps)
        self.clip_ = clip
        return np.asarray(mean / averaged)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "progress": None}

    def __sklearn_tags__(self) -> Any:
        """Say what this takes: sparse rows, many labels."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        return tags


def clipped_sum(
    rows: Any, Y: npt.NDArray[np.int8], weights: Floats, offset: float, clip: float
) -> tuple[Floats, float]:
    """Return the sum of gradients of norm at most ``clip``, and the count that steers it.

    The gradient of a record with features x and residuals r (predicted minus true, 0 where the
    label is unknown) is x rᵀ, of norm ‖x‖·‖r‖. One that overflows adds nothing.

    Returns
    -------
    tuple
        (features, labels), and the sum over records of +1/2 (not clipped) or -1/2 (clipped).
    """
    if rows.shape[0] == 0:
        return np.zeros_like(weights), 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        residuals = np.nan_to_num(expit(np.asarray(rows @ weights) + offset) - Y)
        residuals[Y < 0] = 0.0
        squares = rows.multiply(rows) if sp.issparse(rows) else rows * rows
        norms = np.sqrt(np.asarray(squares.sum(axis=1)).ravel())
        norms = norms * np.sqrt((residuals * residuals).sum(axis=1))
    norms[np.isnan(norms)] = np.inf
    # A hair inside the ball, so that rounding never leaves it.
    factor = clip * (1 - 1e-12) / np.maximum(norms, clip)
    total = np.asarray(rows.T @ (residuals * factor[:, None]))
    return total, float((norms <= clip).sum() - rows.shape[0] / 2)


def _normalised(X: Floats) -> Floats:
    norms = np.sqrt((X * X).sum(axis=1, keepdims=True))
    return np.asarray(X / np.where(norms > 0, norms, 1.0))

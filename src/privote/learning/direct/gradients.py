"""The strongest plain rival: a linear model by noisy gradient descent, on all records at once.

For one record the gradient of the logistic loss is the outer product of its residuals and its
features, so its norm is the product of two norms and nothing of size (records, features, labels) is
ever built. Full batches give the noise of one Gaussian mechanism, spread over the steps; smaller
ones gain nothing here but speed.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, logit

from ...errors import positive
from ...learning.workers import one_thread
from ..rows import Floats, Labels, Progress, padded_blocks
from .account import Paid
from .base import (
    SUM_HAIR,
    Checkpoints,
    Persons,
    PrivateLinear,
    check_descent,
    one_each,
    packed,
    unpacked,
)
from .noise import Noise, TrainingPlan, affordable_rate, next_clip, split_for_clipping

_FASTEST = 10.0  # beyond, full batches of rows of norm 1 swing instead of settling


@dataclass(eq=False, repr=False)
class DPLinear(PrivateLinear):
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
    privacy_, embedding_
        :class:`~privote.learning.direct.account.TrainingPrivacy`: what may be published; the public
        map.
    clip_, learning_rate_
        The last clipping norm, and the rate that was used.
    """

    epsilon: float = 8.0
    delta: float = 1e-5
    _: KW_ONLY
    adjacency: str = "replace"
    steps: int = 100
    sample_rate: float = 1.0
    clip: float = 1.0
    adaptive: bool = False
    learning_rate: float | None = None
    momentum: float = 0.9
    initial_share: float = 0.1
    normalise: bool = True
    embedding: Any = "auto"
    power: float = 0.5
    seed: int | None = None
    progress: Progress | None = None

    def _plan(self) -> TrainingPlan:
        check_descent(self)
        if self.power != 0:
            positive("power", self.power)
        return TrainingPlan(
            steps=self.steps, sample_rate=self.sample_rate, adjacency=self.adjacency
        )

    def _prepare(self, rows: Any, Y: Labels, unit: Persons, X_public: Any, records: int) -> Any:
        rows, Y = one_each(rows, Y, unit)
        self._look(X_public, records, Y.shape[1])
        return self._design(rows), Y

    def _train(self, given: Any, plan: TrainingPlan, noise: Noise, paid: Paid) -> list[Floats]:
        rows, Y = given
        multiplier = self.privacy_.noise_multiplier
        rate = affordable_rate(plan, multiplier, rows.shape[0], self.momentum)
        self.learning_rate_ = float(self.learning_rate or min(_FASTEST, rate))
        weights = self._descend(rows, Y, multiplier, noise, Checkpoints(paid, self.steps))
        self.coef_ = np.ascontiguousarray(weights[:-1].T)
        self.intercept_ = weights[-1] + logit(self.initial_share)
        return self.drawn_()

    def drawn_(self) -> list[Floats]:
        """Return the weights, which were drawn."""
        return [self.coef_, self.intercept_]

    def _descend(
        self, rows: Any, Y: Labels, multiplier: float, noise: Noise, checkpoints: Checkpoints
    ) -> Floats:
        batch = self.sample_rate * rows.shape[0]
        clip, count_noise = self.clip, 0.0
        if self.adaptive:
            multiplier, count_noise = split_for_clipping(multiplier, batch)
        weights = np.zeros((rows.shape[1], Y.shape[1]))
        velocity, mean, averaged = np.zeros_like(weights), np.zeros_like(weights), 0
        start = 0
        if checkpoints.state is not None:
            state = unpacked(checkpoints.state)
            weights, velocity, mean = state["weights"], state["velocity"], state["mean"]
            clip, start, averaged = float(state["clip"]), int(state["step"]), int(state["averaged"])
        for step in checkpoints.rest(start):
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
            held: dict[str, Any] = {"weights": weights, "velocity": velocity, "mean": mean}
            held |= {"clip": clip, "step": step + 1, "averaged": averaged}
            checkpoints.keep(step + 1, partial(packed, **held))
            if self.progress is not None:
                self.progress(step + 1, self.steps)
        self.clip_ = clip
        return np.asarray(mean / averaged)


def clipped_sum(
    rows: Any, Y: Labels, weights: Floats, offset: float, clip: float
) -> tuple[Floats, float]:
    """Return the sum of gradients of norm at most ``clip``, and the count that steers it.

    The gradient of a record with features x and residuals r (predicted minus true, 0 where the
    label is unknown) is x rᵀ, of norm ‖x‖·‖r‖. One that overflows adds nothing.

    Returns
    -------
    tuple
        (features, labels), and the sum over records of +1/2 (not clipped) or -1/2 (clipped).
    """
    total, below, most = np.zeros_like(weights), 0.0, clip * (1 - SUM_HAIR)
    with one_thread(), np.errstate(over="ignore", invalid="ignore"):
        for block, place in padded_blocks(rows):
            truth = np.full((block.shape[0], Y.shape[1]), -1, Y.dtype)
            truth[: place.stop - place.start] = Y[place]
            residuals = np.nan_to_num(expit(np.asarray(block @ weights) + offset) - truth)
            residuals[truth < 0] = 0.0
            squares = block.multiply(block) if sp.issparse(block) else block * block
            norms = np.sqrt(np.asarray(squares.sum(axis=1)).ravel())
            norms = norms * np.sqrt((residuals * residuals).sum(axis=1))
            norms[np.isnan(norms)] = np.inf
            total += np.asarray(block.T @ (residuals * (most / np.maximum(norms, most))[:, None]))
            below += float((norms[: place.stop - place.start] <= clip).sum())
    return total, below - rows.shape[0] / 2

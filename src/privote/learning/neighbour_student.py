"""A student that knows how its labels were drawn.

A label released by neighbours is not the label of the query: it is a noisy yes or no to "do enough
records around this query carry it?". Both the noise and the circle are public, so the student can
be asked the same question: it predicts every public row within the circle, adds up, and the link
says how likely the released label was. The weights that make the released labels likeliest undo
both the noise and the blur of the circle. Everything here is public: it costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit, log_ndtr, logit
from sklearn.base import BaseEstimator, ClassifierMixin

from ..errors import InputError, UnavailableError, positive
from ..links import GaussianLink
from ..mechanisms import ABSTAIN, BinaryVoting
from .nearness import Floats

_DENSE = 0.1  # above this share of near rows a product with a dense matrix is the quicker one
_PREVALENCES = np.geomspace(0.001, 0.9, 24)  # of a label, to start from the likeliest
_LOG_DENSITY = -0.5 * np.log(2 * np.pi)


@dataclass(frozen=True, kw_only=True, eq=False)
class Circles:
    """Which public rows stand for the private records near each query; public.

    Attributes
    ----------
    near
        For each radius the rows of the pool within it: (queries, rows), sparse.
    radius_of
        (labels,) which of them a label has.
    voters
        Private records in all: each public row stands for voters / rows of them.
    """

    near: tuple[sparse.csr_array, ...]
    radius_of: npt.NDArray[np.int64]
    voters: int

    @property
    def queries(self) -> int:
        """Queries of the batch."""
        return int(self.near[0].shape[0])


class NeighbourStudent(ClassifierMixin, BaseEstimator):
    """Logistic regressions, fitted to labels that neighbours released.

    Parameters
    ----------
    mechanism
        What the labels were released with: Binary voting with a sigma.
    C
        Inverse strength of the penalty |w|^2 / 2, as in scikit-learn.
    max_iter
        Steps of L-BFGS at the most.

    Attributes
    ----------
    coef_, intercept_
        (labels, features), (labels,)
    """

    def __init__(self, mechanism: BinaryVoting, *, C: float = 1.0, max_iter: int = 100) -> None:
        self.mechanism = mechanism
        self.C = C
        self.max_iter = max_iter

    def fit(
        self, X: Any, batches: Sequence[tuple[Circles, npt.NDArray[np.int8]]]
    ) -> NeighbourStudent:
        """Fit to one or more batches of released labels.

        Parameters
        ----------
        X
            The whole public pool (rows, features), dense or sparse, in the student's own features.
        batches
            For each batch its circles (:meth:`privote.NeighbourBallots.circles`) and the released
            labels (queries, labels). What a gate held back is left out.
        """
        rows = sparse.csr_array(X) if sparse.issparse(X) else np.asarray(X, np.float64)
        lessons = [_Lesson.of(circles, labels, self.mechanism) for circles, labels in batches]
        if not lessons or any(near.shape[1] != rows.shape[0] for x in lessons for near in x.near):
            raise InputError(
                f"batches must be one or more whose circles are of the {rows.shape[0]} rows of X"
            )
        labels = lessons[0].sign.shape[1]
        penalty, shape = positive("C", self.C), (rows.shape[1] + 1, labels)
        start = np.zeros(shape)
        start[-1] = logit(_likeliest(lessons, (rows.shape[0], labels)))

        def loss(flat: Floats) -> tuple[float, Floats]:
            weights = flat.reshape(shape)
            chance = expit(np.asarray(rows @ weights[:-1]) + weights[-1])
            total, slope = 0.0, np.zeros_like(chance)
            for lesson in lessons:
                value, part = lesson.likelihood(chance)
                total, slope = total - penalty * float(value.sum()), slope - penalty * part
            slope *= chance * (1 - chance)
            total += 0.5 * float((weights[:-1] ** 2).sum())
            down = np.vstack([np.asarray(rows.T @ slope) + weights[:-1], slope.sum(axis=0)])
            return total, down.reshape(-1)

        found = minimize(
            loss, start.reshape(-1), jac=True, method="L-BFGS-B", options={"maxiter": self.max_iter}
        )
        best = found.x.reshape(shape)
        self.coef_, self.intercept_ = best[:-1].T.copy(), best[-1].copy()
        self.classes_, self.n_features_in_ = np.arange(labels), rows.shape[1]
        return self

    def decision_function(self, X: Any) -> Floats:
        """Return the logits (rows, labels)."""
        return np.asarray(np.asarray(X @ self.coef_.T) + self.intercept_)

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability that each label is true, not that it would be released."""
        return np.asarray(expit(self.decision_function(X)))

    def predict(self, X: Any) -> npt.NDArray[np.int64]:
        """Return the labels that are more likely than not (rows, labels)."""
        return np.asarray(self.decision_function(X) > 0).astype(np.int64)


@dataclass(frozen=True)
class _Lesson:
    """One batch: how likely its labels are, given the chances of every public row."""

    near: tuple[Any, ...]
    radius_of: npt.NDArray[np.int64]
    sign: Floats  # 1, -1 for a released 1, 0; 0 where nothing was
    per_row: float
    bar: float
    slope: float

    @classmethod
    def of(cls, circles: Circles, labels: Any, mechanism: BinaryVoting) -> _Lesson:
        if not isinstance(mechanism, BinaryVoting) or mechanism.sigma is None:
            raise UnavailableError("NeighbourStudent needs BinaryVoting with a sigma")
        released = np.asarray(labels)
        if released.shape != (circles.queries, len(circles.radius_of)):
            raise InputError(
                f"labels of a batch must be {(circles.queries, len(circles.radius_of))} as its "
                f"circles, got {released.shape}"
            )
        link = GaussianLink(
            sigma=mechanism.sigma, quota=mechanism.quota, false_alarm=mechanism.false_alarm
        )
        many = [near.nnz > _DENSE * near.shape[0] * near.shape[1] for near in circles.near]
        return cls(
            tuple(
                near.toarray() if dense else near
                for near, dense in zip(circles.near, many, strict=True)
            ),
            circles.radius_of,
            np.where(released == ABSTAIN, 0.0, np.where(released == 1, 1.0, -1.0)),
            circles.voters / circles.near[0].shape[1],
            link.bar(circles.voters),
            np.sqrt(2) / mechanism.sigma,
        )

    def likelihood(self, chance: Floats) -> tuple[Floats, Floats]:
        """Return the log-likelihood (labels,) and its slope in the chances (rows, labels)."""
        up, total = np.zeros_like(chance), np.zeros(chance.shape[1])
        for place, near in enumerate(self.near):
            own = np.flatnonzero(self.radius_of == place)
            sign = self.sign[:, own]
            votes = self.per_row * np.asarray(near @ chance[:, own])
            z = sign * self.slope * (votes - self.bar)
            log_p = np.where(sign == 0, 0.0, log_ndtr(z))
            total[own] = log_p.sum(axis=0)
            pull = sign * self.slope * np.exp(_LOG_DENSITY - 0.5 * z * z - log_p)
            up[:, own] = self.per_row * np.asarray(near.T @ pull)
        return total, up


def _likeliest(lessons: Sequence[_Lesson], shape: tuple[int, int]) -> Floats:
    """Return the prevalence that fits each label best if it is the same everywhere: (labels,).

    The likelihood has flat ends, where all labels are released or none; a search that starts there
    may stay there.
    """
    fits = np.zeros((len(_PREVALENCES), shape[1]))
    for place, chance in enumerate(_PREVALENCES):
        for lesson in lessons:
            fits[place] += lesson.likelihood(np.full(shape, chance))[0]
    return np.asarray(_PREVALENCES[np.argmax(fits, axis=0)])

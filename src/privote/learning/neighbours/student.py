"""A student that knows how its labels were drawn.

A label released by neighbours is not the label of the query: it is a noisy yes or no to "do enough
records around this query carry it?". Both the noise and the circle are public, so the student can
be asked the same question: it predicts every public row within the circle, adds up, and the link
says how likely the released label was. The weights that make the released labels likeliest undo
both the noise and the blur of the circle. Everything here is public: it costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit, log_ndtr, logit

from ...errors import InputError, UnavailableError, positive
from ...mechanisms import ABSTAIN, Mechanism
from ..rows import Floats, LabelClassifier, Labels

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
        Registered voters: each public row stands for voters / rows of them.
    """

    near: tuple[sparse.csr_array, ...]
    radius_of: npt.NDArray[np.int64]
    voters: int

    @property
    def queries(self) -> int:
        """Queries of the batch."""
        return int(self.near[0].shape[0])


@dataclass(eq=False, repr=False)
class NeighbourStudent(LabelClassifier):
    """Logistic regressions, fitted to labels that neighbours released.

    Parameters
    ----------
    mechanism
        What the labels were released with: Binary voting with a sigma, or any other whose labels
        say whether noisy yes-votes stand above a bar.
    C
        Inverse strength of the penalty |w|^2 / 2, as in scikit-learn.
    max_iter
        Steps of L-BFGS at the most.

    Attributes
    ----------
    coef_, intercept_
        (labels, features), (labels,)
    """

    mechanism: Mechanism
    _: KW_ONLY
    C: float = 1.0
    max_iter: int = 100

    def fit(self, X: Any, batches: Sequence[tuple[Circles, Labels]]) -> NeighbourStudent:
        """Fit to one or more batches of released labels.

        Parameters
        ----------
        X
            The whole public pool (rows, features), dense or sparse, in the student's own features.
        batches
            For each batch its circles (:meth:`privote.NeighbourBallots.circles`) and the released
            labels (queries, labels). What is -1, held back or not asked, is left out. Batches with
            the same circles object are read at once: several passes then cost the time of one.
        """
        rows = sparse.csr_array(X) if sparse.issparse(X) else np.asarray(X, np.float64)
        together: dict[int, tuple[Circles, list[Any]]] = {}
        for circles, released in batches:
            together.setdefault(id(circles), (circles, []))[1].append(released)
        evidence = [_Evidence.of(*batch, self.mechanism) for batch in together.values()]
        if not evidence or any(near.shape[1] != rows.shape[0] for x in evidence for near in x.near):
            raise InputError(
                "batches",
                f"must be one or more whose circles are of the {rows.shape[0]} rows of `X`",
            )
        labels = evidence[0].yes.shape[1]
        penalty, shape = positive("C", self.C), (rows.shape[1] + 1, labels)
        start = np.zeros(shape)
        start[-1] = logit(_likeliest(evidence, (rows.shape[0], labels)))

        def loss(flat: Floats) -> tuple[float, Floats]:
            weights = flat.reshape(shape)
            chance = expit(np.asarray(rows @ weights[:-1]) + weights[-1])
            total, slope = 0.0, np.zeros_like(chance)
            for part in evidence:
                value, pull = part.likelihood(chance)
                total, slope = total - penalty * float(value.sum()), slope - penalty * pull
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


def bar_of(mechanism: Mechanism, voters: int, who: str) -> tuple[float, float]:
    """Return the bar of yes-votes and the deviation of the noise on them, which ``who`` needs."""
    found = mechanism.noisy_bar(voters)
    if found is None:
        raise UnavailableError(
            f"{who} needs labels that are noisy yes-votes above a bar, such as those of "
            "BinaryVoting with a sigma and no gate"
        )
    return found


@dataclass(frozen=True)
class _Evidence:
    """Batches with the same circles: how likely their labels are, given chances of public rows."""

    near: tuple[Any, ...]
    radius_of: npt.NDArray[np.int64]
    yes: Floats  # how often 1 was released, and 0: (queries, labels)
    no: Floats
    per_row: float
    bar: float
    slope: float

    @classmethod
    def of(cls, circles: Circles, labels: Sequence[Any], mechanism: Mechanism) -> _Evidence:
        bar, deviation = bar_of(mechanism, circles.voters, "NeighbourStudent")
        shape = (circles.queries, len(circles.radius_of))
        released = [np.asarray(batch) for batch in labels]
        for batch in released:
            if batch.shape != shape:
                raise InputError(
                    f"labels of a batch must be {shape} as its circles, got {batch.shape}"
                )
        many = [near.nnz > _DENSE * near.shape[0] * near.shape[1] for near in circles.near]
        return cls(
            tuple(
                near.toarray() if dense else near
                for near, dense in zip(circles.near, many, strict=True)
            ),
            circles.radius_of,
            np.sum([batch == 1 for batch in released], axis=0, dtype=np.float64),
            np.sum([(batch != 1) & (batch != ABSTAIN) for batch in released], axis=0, dtype=float),
            circles.voters / circles.near[0].shape[1],
            bar,
            1 / deviation,
        )

    def likelihood(self, chance: Floats) -> tuple[Floats, Floats]:
        """Return the log-likelihood (labels,) and its slope in the chances (rows, labels)."""
        up, total = np.zeros_like(chance), np.zeros(chance.shape[1])
        for place, near in enumerate(self.near):
            own = np.flatnonzero(self.radius_of == place)
            yes, no = self.yes[:, own], self.no[:, own]
            votes = self.per_row * np.asarray(near @ chance[:, own])
            z = self.slope * (votes - self.bar)
            log_yes, log_no = log_ndtr(z), log_ndtr(-z)
            total[own] = (yes * log_yes + no * log_no).sum(axis=0)
            density = _LOG_DENSITY - 0.5 * z * z
            pull = yes * np.exp(density - log_yes) - no * np.exp(density - log_no)
            up[:, own] = self.per_row * self.slope * np.asarray(near.T @ pull)
        return total, up


def _likeliest(evidence: Sequence[_Evidence], shape: tuple[int, int]) -> Floats:
    """Return the prevalence that fits each label best if it is the same everywhere: (labels,).

    The likelihood has flat ends, where all labels are released or none; a search that starts there
    may stay there.
    """
    fits = np.zeros((len(_PREVALENCES), shape[1]))
    for place, chance in enumerate(_PREVALENCES):
        for part in evidence:
            fits[place] += part.likelihood(np.full(shape, chance))[0]
    return np.asarray(_PREVALENCES[np.argmax(fits, axis=0)])

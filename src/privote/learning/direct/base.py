"""What training on private records has in common, whatever leaves it: gradients or moments.

The order is always the same, and it is the promise: settings, rows and public data are checked, the
noise is settled and charged, and only then does anything that was made of private records leave.

What was drawn is kept in a draft: a noisy sum, or how far noisy steps have come. A run that resumes
goes on from there, at no further charge. The steps that a dead process drew after it last kept its
state are drawn again, on records sampled anew. That is sound: what leaves is one draw of every
step, each with the noise that was charged, and each chosen by the steps before it that leave, too;
the draws that died were seen by nobody, and when a process dies does not depend on them. What is
kept follows from noisy sums and public numbers alone (weights, their mean, momentum, the clipping
norm): no gradient, no sample, no row.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable
from io import BytesIO
from time import monotonic
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import expit
from sklearn.utils.validation import check_is_fitted, validate_data

from ...errors import InputError, positive
from ...files import Draft, drafted
from ..embedding import embed, embedding_for, fit_embedding
from ..rows import (
    Floats,
    LabelClassifier,
    Labels,
    check_groups,
    check_labels,
    count_rows,
    deviations,
    fraction,
    take_rows,
)
from .account import GRADIENTS, Paid, TrainingPrivacy, begin
from .noise import Noise, TrainingPlan

Persons = npt.NDArray[np.int64] | None

HAIR = 1e-12  # a row ends up just inside the unit ball, so that rounding never leaves it
# What a record adds ends up further inside, so that rounding of the sum never shows more than was
# priced: n vectors, summed in blocks of b, are off by at most 2^-53 (b + n / b) n times their norm
# (Higham 2002, section 4.2), which this covers up to 20 million rows.
SUM_HAIR = 1e-4
_HUGE = 1e30
_PAUSE, _SELDOM = 0.5, 20.0  # seconds between two kept states; and in times of how long one takes


class PrivateTraining(LabelClassifier):
    """A classifier that learns from private records themselves, with noise.

    A subclass says in :meth:`_plan` what will be priced (and refuses bad settings), in
    :meth:`_prepare` what it needs (and refuses bad rows), and trains in :meth:`_train`.

    Attributes
    ----------
    privacy_
        :class:`~privote.learning.direct.account.TrainingPrivacy`: what may be published.
    classes_, n_labels_
        (labels,) numbers of the labels; how many there are.
    """

    released: ClassVar[str] = GRADIENTS

    epsilon: float
    delta: float
    seed: int | None

    def fit(
        self,
        X: Any,
        y: npt.ArrayLike,
        X_public: Any = None,
        *,
        ids: npt.ArrayLike | None = None,
        groups: npt.ArrayLike | None = None,
        ledger: Any = None,
        dataset: str = "default",
        consumer: str | None = None,
        draft: str | os.PathLike[str] | Draft | None = None,
        resume: bool = False,
    ) -> Self:
        """Train on private rows and labels (rows, labels) of 1, 0 and -1 (unknown).

        Parameters
        ----------
        X, y
            Private rows (rows, ...) and labels.
        X_public
            Rows of the same kind that need no protection; how features are scaled or embedded
            follows from them, and never from private rows.
        ids
            (rows,) names of the records: rows of one name are one record.
        groups
            (rows,) whose each row is: the promise is then for persons.
        ledger, dataset, consumer
            Where the budget is kept, and under which names; charged before training starts.
        draft
            A new file, in which what is drawn is kept: whatever fails after the charge, it was paid
            for once. It stays; remove it when the model is saved.
        resume
            Go on from what a call with the same arguments left behind in ``draft``, at no further
            charge.
        """
        settings = self.get_params().items()
        asked = {name: str(value) for name, value in settings if name != "progress"}
        asked |= {"dataset": dataset, "consumer": str(consumer)}
        with drafted(draft, asked, resume=resume) as kept:
            account = {"ledger": ledger, "dataset": dataset, "consumer": consumer, "draft": kept}
            return self._fit(X, y, X_public, ids, groups, account)

    def _fit(
        self, X: Any, y: Any, X_public: Any, ids: Any, groups: Any, account: dict[str, Any]
    ) -> Self:
        plan, noise, draft = self._plan(), Noise(self.seed), account["draft"]
        rows = self._read(X)
        Y = check_labels(y, count_rows(rows))
        names, unit = check_groups(ids, len(Y), "ids")
        if groups is not None:
            names, unit = check_groups(groups, len(Y))
        records = len(Y) if names is None else len(names)
        self._restore(draft)
        given = self._prepare(rows, Y, unit, X_public, records)
        paid = begin(
            plan,
            self.epsilon,
            self.delta,
            records=records,
            labels=Y.shape[1],
            simulated=noise.simulated,
            persons=groups is not None,
            released=self.released,
            **account,
        )
        self.privacy_: TrainingPrivacy = paid.privacy
        self.n_labels_, self.classes_ = Y.shape[1], np.arange(Y.shape[1])
        self.privacy_ = paid.record(*self._train(given, plan, noise, paid))
        return self

    def _restore(self, draft: Draft | None) -> None:
        """Take from a draft what is public and has to be the same, before anything is charged."""

    @abstractmethod
    def _plan(self) -> TrainingPlan:
        """Return what will be done, for its price; bad settings are refused."""

    @abstractmethod
    def _read(self, X: Any) -> Any:
        """Return private rows, checked."""

    @abstractmethod
    def _prepare(self, rows: Any, Y: Labels, unit: Persons, X_public: Any, records: int) -> Any:
        """Return what training needs; nothing is refused after this.

        ``unit`` (rows,) says which of ``records`` records or persons each row belongs to; None if
        each is its own.
        """

    @abstractmethod
    def _train(self, given: Any, plan: TrainingPlan, noise: Noise, paid: Paid) -> list[Floats]:
        """Train, from what the draft holds on; it is charged. Returns what was drawn."""


class Checkpoints:
    """The state of noisy steps in a draft: after the last one, and now and then before.

    Attributes
    ----------
    state
        What an earlier run kept; None where there is nothing.
    """

    def __init__(self, paid: Paid, steps: int) -> None:
        self._paid, self._steps = paid, steps
        self.state = None if paid.draft is None else paid.draft.read()
        self._next = monotonic() + _PAUSE

    def rest(self, done: int) -> range:
        """Return the steps that are left after so many; refuse those that a copy has drawn."""
        if done < self._steps:
            self._paid.check_undrawn()
        return range(done, self._steps)

    def keep(self, done: int, state: Callable[[], bytes]) -> None:
        """Keep the state after so many steps, if it is time."""
        now, draft = monotonic(), self._paid.draft
        if draft is not None and (done == self._steps or now >= self._next):
            draft.keep(state(), instead=True)
            after = monotonic()
            self._next = after + max(_PAUSE, _SELDOM * (after - now))


def packed(**arrays: npt.ArrayLike) -> bytes:
    """Return arrays as a draft keeps them."""
    data = BytesIO()
    np.savez(data, **arrays)
    return data.getvalue()


def unpacked(data: bytes) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays that :func:`packed` was given."""
    with np.load(BytesIO(data), allow_pickle=False) as arrays:
        return dict(arrays)


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
        rows = self._design(self._read(X, reset=False))[:, :-1]
        return np.asarray(np.asarray(rows @ self.coef_.T) + self.intercept_)

    def predict_proba(self, X: Any) -> Floats:
        """Return each label's probability: (rows, labels)."""
        return np.asarray(expit(self.decision_function(X)))

    def _read(self, X: Any, reset: bool = True) -> Any:
        # In one order: a row's sum over features may be rounded by it.
        return validate_data(self, X, accept_sparse="csr", dtype=np.float64, order="C", reset=reset)

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
        public = self._read(X_public, reset=False)
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
            rows = on_the_ball(rows)
        if sp.issparse(rows):
            return sp.hstack([rows, ones], format="csr")
        return np.hstack([rows, ones])


def check_descent(model: Any, *shares: str) -> None:
    """Refuse settings of noisy gradient descent that make no sense.

    ``shares`` name further settings strictly between 0 and 1.
    """
    positive("clip", model.clip)
    if model.learning_rate is not None:
        positive("learning_rate", model.learning_rate)
    fraction("momentum", model.momentum, "[)")
    for name in ("initial_share", *shares):
        fraction(name, getattr(model, name), "()")


def _bounded(X: Any) -> Any:
    """Return rows without huge values: scikit-learn refuses what overflows inside a pipeline."""
    if not sp.issparse(X):
        return np.clip(X, -_HUGE, _HUGE)
    X = X.copy()
    X.data = np.clip(X.data, -_HUGE, _HUGE)
    return X


def on_the_ball(rows: Any) -> Any:
    """Return rows of norm 1, or 0 where there is nothing; each is scaled by itself.

    First to a largest value of 1: squares of tiny values would vanish, or lose their digits, and
    squares of huge ones overflow, and the norm with them.
    """
    largest = abs(rows).max(axis=1)
    rows = _divided(rows, largest.toarray() if sp.issparse(rows) else largest)
    square = rows.multiply(rows) if sp.issparse(rows) else rows * rows
    return _divided(rows, np.sqrt(np.asarray(square.sum(axis=1))) * (1 + HAIR))


def _divided(rows: Any, by: Floats) -> Any:
    by = np.where(by > 0, by, 1.0).reshape(-1, 1)
    if not sp.issparse(rows):
        return rows / by
    rows = rows.copy()
    rows.data /= np.repeat(by.ravel(), np.diff(rows.indptr))  # 1 / by may overflow
    return rows


def one_each(X: Any, Y: Labels, unit: Persons) -> tuple[Any, Labels]:
    """Return one row of every record or person, the first: then the promise is for those.

    Which one it is follows from the order of a person's own rows, so nobody moves another's.
    """
    if unit is None:
        return X, Y
    _, first = np.unique(unit, return_index=True)
    if len(first) == len(Y):
        return X, Y
    kept = np.sort(first)
    return take_rows(X, kept), Y[kept]

"""A site's model: how it is trained, what it answers with, and the integers that programs take.

A model is linear: log-odds of each label on public features. Everything about it happens at one
site, on its own records and on labels that were released to it.

The querier clips its features to a public bound. The owner of a model scales its weights so that no
row within the bound can bring a score to 2^62: nothing in the engine would notice an overflow. A
score only matters by its sign, so every label has a scale of its own; thresholds are part of the
biases.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import expit, logit

from .. import metrics
from ..errors import InputError, numbers, positive, whole
from ..files import check_written, complete, written
from ..votes.arrays import ArrayFile
from .programs import IntArray

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]

_FORMAT = 1  # of a saved model
_SURE = 1e6  # the score of a label that a model answers with a constant
_MOST = 1 << 28  # numbers of a model: a file may claim to unpack to anything


@dataclass(frozen=True, kw_only=True, eq=False)
class SiteModel:
    """A site's model: yes on a label if its probability is at least the label's threshold.

    Parameters
    ----------
    weights, bias
        (features, labels) and (labels,): they give the log-odds of each label.
    labels
        Names of the labels, in order.
    thresholds
        (labels,) probabilities strictly between 0 and 1.
    """

    weights: Floats
    bias: Floats
    labels: tuple[str, ...]
    thresholds: Floats

    def __post_init__(self) -> None:
        weights = np.array(self.weights, np.float64)
        if weights.ndim != 2 or not 0 < weights.size <= _MOST:
            raise InputError("weights", "must be a matrix (features, labels)", weights.shape)
        outputs = weights.shape[1]
        bias = _broadcast("bias", self.bias, outputs)
        if not (np.isfinite(weights).all() and np.isfinite(bias).all()):
            raise InputError("weights and bias must be finite, got nan or infinity")
        names = tuple(str(name) for name in self.labels)
        if len(names) != outputs or len(set(names)) != outputs:
            raise InputError("labels", f"must be {outputs} different names", names)
        thresholds = _broadcast("thresholds", self.thresholds, outputs)
        if not ((thresholds > 0) & (thresholds < 1)).all():
            raise InputError("thresholds", "must be between 0 and 1", self.thresholds)
        values = {"weights": weights, "bias": bias, "labels": names, "thresholds": thresholds}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def features(self) -> int:
        """How many features a row has."""
        return int(self.weights.shape[0])

    def scores(self, X: Any) -> Floats:
        """Return the log-odds (rows, labels)."""
        return np.asarray(rows_of(X, self.features) @ self.weights + self.bias)

    def predict_proba(self, X: Any) -> Floats:
        """Return each label's probability (rows, labels)."""
        return np.asarray(expit(self.scores(X)))

    def votes(self, X: Any) -> Labels:
        """Return the ballots in clear (rows, labels): 1 where the threshold is reached."""
        return np.asarray(self.scores(X) >= logit(self.thresholds)).astype(np.int8)

    def save(self, path: str | Path) -> None:
        """Write the model to an .npz file of plain arrays, readable by its owner only."""
        target = Path(path)
        if not target.parent.is_dir():
            raise InputError(f"path {str(path)!r}: there is no folder {str(target.parent)!r}")
        with complete(target, force=True, owner_only=True) as part, part.open("wb") as file:
            np.savez(
                file,
                weights0=self.weights,
                bias0=self.bias,
                labels=np.array(self.labels),
                thresholds=self.thresholds,
                written=json.dumps(written(_FORMAT)),
            )

    @classmethod
    def load(cls, path: str | Path) -> SiteModel:
        """Read a model that :meth:`save` wrote; nothing in the file is run."""
        try:
            file = ArrayFile(path)
            check_written("it", json.loads(str(file["written"])), _FORMAT)
            names = ("weights0", "bias0", "thresholds")
            weights, bias, thresholds = (file[name] for name in names)
            labels = tuple(map(str, np.atleast_1d(file["labels"])))
        except (InputError, KeyError) as error:
            raise InputError(f"{path} must be a linear model saved as .npz: {error}") from None
        return cls(weights=weights, bias=bias, labels=labels, thresholds=thresholds)

    @classmethod
    def of(
        cls, estimator: Any, *, labels: Sequence[str] | None = None, thresholds: Any = 0.5
    ) -> SiteModel:
        """Return the model of a fitted linear classifier.

        Parameters
        ----------
        estimator
            A fitted OneVsRestClassifier or MultiOutputClassifier of LogisticRegression, or anything
            with ``coef_`` (labels, features) and ``intercept_``, such as
            :class:`privote.learning.LinearStudent`; also a pipeline of a StandardScaler and one of
            them.
        labels
            Names; "0", "1", ... by default.
        thresholds
            One probability, or one for each label.

        Raises
        ------
        InputError
            The estimator is not linear, or has other classes than 0 and 1.
        """
        weights, bias = _linear_of(estimator)
        names = tuple(map(str, range(weights.shape[1]))) if labels is None else tuple(labels)
        return cls(weights=weights, bias=bias, labels=names, thresholds=thresholds)


def rows_of(X: Any, features: int) -> Floats:
    """Return finite rows (rows, features) as float64."""
    rows = numbers("X", X.toarray() if sp.issparse(X) else X).astype(np.float64)
    if rows.ndim != 2 or rows.shape[1] != features:
        raise InputError("X", f"must have the shape (rows, {features})", rows.shape)
    if not np.isfinite(rows).all():
        row, column = (int(index) for index in np.argwhere(~np.isfinite(rows))[0])
        raise InputError("X", f"must be finite, also at row {row}, column {column}")
    return rows


def _linear_of(estimator: Any) -> tuple[Any, Any]:
    """Return weights (features, labels) and bias (labels,) of a fitted linear classifier."""
    steps = getattr(estimator, "steps", None)
    if steps is not None and len(steps) == 2 and hasattr(steps[0][1], "scale_"):
        weights, bias = _linear_of(steps[1][1])
        # (x - mean) / scale becomes part of the weights.
        scaler, ones = steps[0][1], np.ones(len(weights))
        scale = ones if scaler.scale_ is None else scaler.scale_
        mean = 0 * ones if getattr(scaler, "mean_", None) is None else scaler.mean_
        weights = weights / scale[:, None]
        return weights, bias - mean @ weights
    if hasattr(estimator, "estimators_"):
        parts = [_one_label(each) for each in estimator.estimators_]
        width = max((len(weights) for weights, _ in parts), default=0)
        columns = [part if len(part) else np.zeros(width) for part, _ in parts]
        return np.array(columns).T, np.array([bias for _, bias in parts])
    if not hasattr(estimator, "coef_"):
        raise InputError("estimator", "must be a fitted linear model", type(estimator).__name__)
    if hasattr(estimator, "solver"):  # else each label has classes of its own
        _one_label(estimator)
    weights = np.atleast_2d(np.asarray(estimator.coef_, np.float64)).T
    return weights, _broadcast("intercept_", estimator.intercept_, weights.shape[1])


def _one_label(estimator: Any) -> tuple[Floats, float]:
    """Return (features,) and the bias of one label's classifier; constants have no weights."""
    constant = getattr(estimator, "y_", None)
    if constant is not None and not hasattr(estimator, "coef_"):
        return np.zeros(0), _SURE if bool(np.ravel(constant)[0]) else -_SURE
    classes = np.asarray(getattr(estimator, "classes_", ())).tolist()
    if not hasattr(estimator, "coef_") or classes not in ([0, 1], [False, True]):
        raise InputError("estimator", "must be linear, with the classes 0 and 1", classes)
    return np.asarray(estimator.coef_[0], np.float64), float(np.ravel(estimator.intercept_)[0])


def _broadcast(name: str, value: Any, size: int) -> Floats:
    try:
        return np.array(np.broadcast_to(np.asarray(value, np.float64), (size,)))
    except (TypeError, ValueError):
        raise InputError(name, f"must be one number or {size}", value) from None


LIMIT = 1 << 62
_MOST_BITS = 30
_WEIGHT_BITS = 20  # at most, and lowered as needed
_TINY = 1e-200  # weights below are 0: their scale would leave the range of floating point
_HUGE = 1 / _TINY


def quantise_rows(X: Any, *, features: int, bound: float, bits: int) -> IntArray:
    """Return the querier's rows (rows, features): clipped to ``bound``, in steps of 2^-bits of it.

    A feature x becomes round(2^bits x / bound).
    """
    bound, unit = positive("bound", bound), 1 << whole("bits", bits, most=_MOST_BITS)
    rows = np.clip(rows_of(X, features), -bound, bound)
    return np.asarray(np.rint(rows / bound * unit), np.float64).astype(np.int64)


def quantise_model(model: SiteModel, *, bound: float, bits: int) -> dict[str, IntArray]:
    """Return the peer's inputs of a ballot program, without the mask.

    Parameters
    ----------
    model
        The owner's model.
    bound, bits
        The public bound and bits of the rows.

    Returns
    -------
    dict
        weights (features, labels) and bias (labels,), with the signs of the model's scores.
    """
    bound, unit = positive("bound", bound), 1 << whole("bits", bits, most=_MOST_BITS)
    weights, bias = model.weights * bound, model.bias - logit(model.thresholds)
    for precision in range(_WEIGHT_BITS, 0, -1):
        whole_weights, whole_bias = _signed(weights, bias, precision, unit)
        # Python's integers: the smallest int64 has no absolute value among the others.
        sizes, shifts = abs(whole_weights.astype(object)), abs(whole_bias.astype(object))
        if max(unit * sizes.sum(axis=0) + shifts) < LIMIT:
            return {"weights": whole_weights, "bias": whole_bias}
    raise InputError("bits", "must keep every score below 2^62: use fewer", bits)


def _signed(weights: Floats, bias: Floats, bits: int, unit: int) -> tuple[IntArray, IntArray]:
    """Return integer weights and biases with the signs of x / unit @ weights + bias.

    The largest weight of a label has ``bits`` bits. A bias beyond the reach of its label's weights
    decides alone and is cut to just that: ``unit`` is the largest input.
    """
    top = np.abs(weights).max(axis=0)
    if not top.max() < _HUGE:
        raise InputError(f"model: weights times bound must be below {_HUGE:g}, got {top.max():g}")
    top = np.where(top > _TINY, top, 0.0)
    scale = 2.0**bits / np.where(top > 0, top, 1.0)
    whole_weights = np.rint(weights * scale).astype(np.int64)
    reach = np.abs(whole_weights).sum(axis=0).astype(np.float64) * unit + 1.0
    real = np.clip(bias * scale * unit, -reach, reach)
    # A bias that rounds to 0 without weights must keep its sign: 0 would be a yes.
    real = np.where((top == 0) & (bias < 0), -1.0, real)
    return whole_weights, np.rint(np.clip(real, -LIMIT, LIMIT)).astype(np.int64)


# -- training --------------------------------------------------------------------------------------

METRICS = ("ACC", "BAC", "AUC", "MAP")
_FOLDS = 3
_EDGE = 1e-6  # thresholds stay this far from 0 and 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Records:
    """What a site has: rows (records, features) and labels (records, labels) of 1, 0 and -1.

    The labels are the coalition's, in its order. A label that a site does not have is -1
    throughout; the site then says no to it.
    """

    X: Any
    Y: Labels

    def __post_init__(self) -> None:
        from ..learning.rows import check_labels

        object.__setattr__(self, "Y", check_labels(self.Y, self.X.shape[0], "Y"))

    @classmethod
    def under(cls, labels: Sequence[str], X: Any, Y: Labels, own: Sequence[str]) -> Records:
        """Return records whose labels ``own`` stand where the coalition's ``labels`` have them."""
        strange = [name for name in own if name not in labels]
        if strange or not own:
            rule = f"must be one or more of {', '.join(labels)}"
            raise InputError("labels", rule, (strange or ["none"])[0])
        wide = np.full((len(Y), len(labels)), -1, np.int8)
        wide[:, [list(labels).index(name) for name in own]] = Y
        return cls(X=X, Y=wide)

    def folds(self) -> Iterator[tuple[Records, Records]]:
        """Yield, in turn, most records and those that are held out."""
        turn = np.arange(len(self.Y)) % _FOLDS
        for fold in range(_FOLDS if len(self.Y) >= _FOLDS else 0):
            parts = (turn != fold, turn == fold)
            rest, held = (Records(X=self.X[part], Y=self.Y[part]) for part in parts)
            yield rest, held


def train_site(
    records: Records, labels: Sequence[str], released: Records | None = None
) -> SiteModel:
    """Return the model a site trains on its own records: logistic regressions.

    Parameters
    ----------
    records, labels
        The site's own records; the names of the coalition's labels.
    released
        Rows that the coalition labelled: 1, 0 and -1 where the gate held back.

    Notes
    -----
    A threshold is where the share of yeses, on own records held out in turn, is the label's own
    share: with a threshold of one half a rare label would never get a vote. A label that the site
    has no records of is learned from the coalition alone, and its threshold follows how often it
    was released.
    """
    if released is not None and released.Y.shape[1] != records.Y.shape[1]:
        rule = f"must have {records.Y.shape[1]} labels, as `records`"
        raise InputError("released", rule, released.Y.shape[1])
    model = _fit(records, released)
    scores = np.zeros(records.Y.shape)
    for fold, (rest, held) in enumerate(records.folds()):
        part = _fit(rest, released)
        scores[fold::_FOLDS] = np.asarray(held.X @ part.coef_.T) + part.intercept_
    thresholds = _thresholds(scores, records.Y)
    if released is not None:
        learnt = np.asarray(released.X @ model.coef_.T) + model.intercept_
        known = (records.Y != -1).any(axis=0)
        thresholds = np.where(known, thresholds, _thresholds(learnt, released.Y))
    return SiteModel.of(model, labels=labels, thresholds=thresholds)


def evaluate(model: SiteModel, X: Any, Y: Labels) -> dict[str, Any]:
    """Return a model's metrics on test rows, with its own thresholds; also label by label."""
    return metrics.multilabel(Y, model.predict_proba(X), model.votes(X))


def gain(records: Records, labels: Sequence[str], released: Records) -> tuple[float, float]:
    """Return balanced accuracy on own records held out in turn, without and with released rows."""
    scores = [
        [evaluate(train_site(rest, labels, new), held.X, held.Y)["BAC"] for new in (None, released)]
        for rest, held in records.folds()
    ]
    before, after = np.mean(scores or [[np.nan, np.nan]], axis=0).tolist()
    return before, after


def _fit(records: Records, released: Records | None) -> Any:
    from ..learning.students import LinearStudent  # seconds that no answer waits for

    X, Y = records.X, records.Y
    if released is not None:
        stack = sp.vstack if sp.issparse(X) else np.vstack
        # Every third row is held out to choose the penalty: own and new rows are mixed.
        order = np.random.default_rng(0).permutation(len(Y) + len(released.Y))
        X, Y = stack([X, released.X])[order], np.vstack([Y, released.Y])[order]
    return LinearStudent().fit(X, Y)


def _thresholds(scores: Floats, Y: Labels) -> Floats:
    """Return probabilities at which as many held-out records are a yes as really are."""
    thresholds = np.full(Y.shape[1], 0.5)
    for label in range(Y.shape[1]):
        known = Y[:, label] != -1
        yes = int((Y[known, label] == 1).sum())
        if 0 < yes < known.sum():
            ranked = np.sort(scores[known, label])[::-1]
            bar = (ranked[yes - 1] + ranked[yes]) / 2
            thresholds[label] = 1 / (1 + np.exp(-np.clip(bar, -30, 30)))
    return np.clip(thresholds, _EDGE, 1 - _EDGE)

"""The model an answering party serves: linear, or with one hidden ReLU layer; its thresholds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import expit, logit

from .._version import check_written, written
from ..errors import InputError
from ..files import complete
from ..votes.arrays import ArrayFile

Floats = npt.NDArray[np.float64]
Layer = tuple[Floats, Floats]

_FORMAT = 1  # of a saved model
_SURE = 1e6  # the score of a label that a model answers with a constant
_MOST = 1 << 28  # numbers of a model: a file may claim to unpack to anything


@dataclass(frozen=True, kw_only=True, eq=False)
class SiteModel:
    """A site's model: yes on a label if its probability is at least the label's threshold.

    Parameters
    ----------
    layers
        One layer, or two with a ReLU between: (weights (inputs, outputs), bias (outputs,)). The
        last one gives the log-odds of each label.
    labels
        Names of the labels, in order.
    thresholds
        (labels,) probabilities strictly between 0 and 1.
    """

    layers: tuple[Layer, ...]
    labels: tuple[str, ...]
    thresholds: Floats

    def __post_init__(self) -> None:
        if len(self.layers) not in (1, 2):
            raise InputError("layers", "must be one or two", len(self.layers))
        layers = tuple(_layer(index, *layer) for index, layer in enumerate(self.layers))
        if len(layers) == 2 and layers[0][0].shape[1] != layers[1][0].shape[0]:
            raise InputError(
                "layers", f"must fit each other, got {layers[0][0].shape} and {layers[1][0].shape}"
            )
        names = tuple(str(name) for name in self.labels)
        outputs = layers[-1][0].shape[1]
        if len(names) != outputs or len(set(names)) != outputs:
            raise InputError("labels", f"must be {outputs} different names", names)
        thresholds = _broadcast("thresholds", self.thresholds, outputs)
        if not ((thresholds > 0) & (thresholds < 1)).all():
            raise InputError("thresholds", "must be between 0 and 1", self.thresholds)
        for name, value in (("layers", layers), ("labels", names), ("thresholds", thresholds)):
            object.__setattr__(self, name, value)

    @property
    def features(self) -> int:
        """How many features a row has."""
        return int(self.layers[0][0].shape[0])

    @property
    def hidden(self) -> int | None:
        """How many hidden units there are; None for a linear model."""
        return int(self.layers[0][0].shape[1]) if len(self.layers) == 2 else None

    def scores(self, X: Any) -> Floats:
        """Return the log-odds (rows, labels)."""
        values = rows_of(X, self.features)
        if len(self.layers) == 2:
            values = np.maximum(values @ self.layers[0][0] + self.layers[0][1], 0.0)
        return np.asarray(values @ self.layers[-1][0] + self.layers[-1][1])

    def predict_proba(self, X: Any) -> Floats:
        """Return each label's probability (rows, labels)."""
        return np.asarray(expit(self.scores(X)))

    def votes(self, X: Any) -> npt.NDArray[np.int8]:
        """Return the ballots in clear (rows, labels): 1 where the threshold is reached."""
        return np.asarray(self.scores(X) >= logit(self.thresholds)).astype(np.int8)

    def only(self, labels: Sequence[str]) -> SiteModel:
        """Return the same model for some of its labels, in the order given."""
        strange = [name for name in labels if name not in self.labels]
        if strange:
            raise InputError("labels", "must be among the model's", strange[0])
        kept = [self.labels.index(name) for name in labels]
        weights, bias = self.layers[-1]
        return SiteModel(
            layers=(*self.layers[:-1], (weights[:, kept], bias[kept])),
            labels=tuple(labels),
            thresholds=self.thresholds[kept],
        )

    def save(self, path: str | Path) -> None:
        """Write the model to an .npz file of plain arrays, readable by its owner only."""
        target = Path(path)
        if not target.parent.is_dir():
            raise InputError(f"path {str(path)!r}: there is no folder {str(target.parent)!r}")
        arrays: dict[str, Any] = {"labels": np.array(self.labels), "thresholds": self.thresholds}
        arrays["written"] = json.dumps(written(_FORMAT))
        for index, (weights, bias) in enumerate(self.layers):
            arrays[f"weights{index}"], arrays[f"bias{index}"] = weights, bias
        with complete(target, force=True, owner_only=True) as part, part.open("wb") as file:
            np.savez(file, **arrays)

    @classmethod
    def load(cls, path: str | Path) -> SiteModel:
        """Read a model that :meth:`save` wrote; nothing in the file is run."""
        try:
            file = ArrayFile(path)
            if "written" in file:  # models of others, and those before this, do not say
                check_written("it", json.loads(str(file["written"])), _FORMAT)
            layers = 1 + ("weights1" in file)
            wanted = {"labels", "thresholds"} | {
                f"{kind}{index}" for kind in ("weights", "bias") for index in range(layers)
            }
            if {*file.names} - {"written"} != wanted:
                raise InputError(f"it must hold {sorted(wanted)}, got {sorted(file.names)!r:.80}")
            arrays = {name: file[name] for name in wanted}
        except InputError as error:
            raise InputError(f"{path} must be a model saved as .npz: {error}") from None
        return cls(
            layers=tuple((arrays[f"weights{i}"], arrays[f"bias{i}"]) for i in range(layers)),
            labels=tuple(str(name) for name in np.atleast_1d(arrays["labels"])),
            thresholds=arrays["thresholds"],
        )

    @classmethod
    def of(
        cls, estimator: Any, *, labels: Sequence[str] | None = None, thresholds: Any = 0.5
    ) -> SiteModel:
        """Return the model of a fitted classifier.

        Parameters
        ----------
        estimator
            A fitted OneVsRestClassifier or MultiOutputClassifier of LogisticRegression, an
            MLPClassifier (relu, one hidden layer), :class:`privote.learning.LinearStudent`, linear
            LinearTeachers, anything with ``coef_`` (labels, features) and ``intercept_``, or a
            pair of those two; also a pipeline of a StandardScaler and one of them.
        labels
            Names; "0", "1", ... by default.
        thresholds
            One probability, or one for each label.
        """
        layers = _layers_of(estimator)
        outputs = int(np.shape(layers[-1][0])[1])
        names = tuple(labels) if labels is not None else tuple(str(i) for i in range(outputs))
        return cls(layers=layers, labels=names, thresholds=thresholds)


def rows_of(X: Any, features: int) -> Floats:
    """Return finite rows (rows, features) as float64."""
    try:
        rows = np.asarray(X.toarray() if sp.issparse(X) else X, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError("X", "must hold numbers", sealed=f"{error!s:.60}") from None
    if rows.ndim != 2 or rows.shape[1] != features:
        raise InputError("X", f"must have the shape (rows, {features})", rows.shape)
    if not np.isfinite(rows).all():
        row, column = (int(index) for index in np.argwhere(~np.isfinite(rows))[0])
        raise InputError("X", f"must be finite, also at row {row}, column {column}")
    return rows


def _layers_of(estimator: Any) -> tuple[Layer, ...]:
    if isinstance(estimator, tuple) and len(estimator) == 2:
        return (_linear(*estimator),)
    steps = getattr(estimator, "steps", None)
    if steps is not None and len(steps) == 2 and hasattr(steps[0][1], "scale_"):
        return _scaled(steps[0][1], _layers_of(steps[1][1]))
    if hasattr(estimator, "coefs_"):
        return _perceptron(estimator)
    if hasattr(estimator, "estimators_"):
        parts = [_one_label(index, one) for index, one in enumerate(estimator.estimators_)]
        width = max((len(weights) for weights, _ in parts), default=0)
        weights = [part if len(part) else np.zeros(width) for part, _ in parts]
        return (_linear(np.array(weights), np.array([bias for _, bias in parts])),)
    if hasattr(estimator, "layers_") and len(estimator.layers_) == 1:
        weights, bias = estimator.layers_[0]
        return (_linear(weights, np.clip(np.asarray(bias, np.float64), -_SURE, _SURE)),)
    if hasattr(estimator, "coef_") and hasattr(estimator, "intercept_"):
        if np.ndim(getattr(estimator, "classes_", 0)) and hasattr(estimator, "solver"):
            _check_binary("estimator", estimator)
        return (_linear(estimator.coef_, estimator.intercept_),)
    raise InputError(
        "estimator",
        "must be a fitted linear model, or a network with one hidden ReLU layer, got "
        f"{type(estimator).__name__}",
    )


def _linear(coef: Any, intercept: Any) -> Layer:
    weights = np.atleast_2d(np.asarray(coef, np.float64)).T
    return weights, _broadcast("intercept_", intercept, weights.shape[1])


def _one_label(index: int, estimator: Any) -> tuple[Floats, float]:
    """Return (features,) and the bias of one label's classifier; constants have no weights."""
    constant = getattr(estimator, "y_", None)
    if constant is not None and not hasattr(estimator, "coef_"):
        return np.zeros(0), _SURE if bool(np.ravel(constant)[0]) else -_SURE
    if not hasattr(estimator, "coef_") or np.shape(estimator.coef_)[0] != 1:
        raise InputError(
            f"label {index} of estimator must be a logistic regression of two classes, got "
            f"{type(estimator).__name__}"
        )
    _check_binary(f"label {index} of estimator", estimator)
    return np.asarray(estimator.coef_[0], np.float64), float(np.ravel(estimator.intercept_)[0])


def _check_binary(what: str, estimator: Any) -> None:
    classes = np.asarray(estimator.classes_)
    if classes.tolist() not in ([0, 1], [False, True]):
        raise InputError(what, "must have the classes 0 and 1", classes.tolist())


def _perceptron(estimator: Any) -> tuple[Layer, ...]:
    shape = (len(estimator.coefs_), estimator.activation, estimator.out_activation_)
    if shape != (2, "relu", "logistic"):
        raise InputError(
            "estimator",
            "must have one hidden layer, activation relu and independent labels, got "
            f"{shape[0] - 1} hidden layers, {shape[1]} and {shape[2]}",
        )
    return tuple(
        (np.asarray(weights, np.float64), np.asarray(bias, np.float64))
        for weights, bias in zip(estimator.coefs_, estimator.intercepts_, strict=True)
    )


def _scaled(scaler: Any, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Return layers for unscaled rows: (x - mean) / scale becomes part of the first."""
    weights, bias = layers[0]
    scale = np.ones(len(weights)) if scaler.scale_ is None else np.asarray(scaler.scale_)
    mean = np.zeros(len(weights)) if getattr(scaler, "mean_", None) is None else scaler.mean_
    first = weights / scale[:, None]
    return ((first, bias - np.asarray(mean) @ first), *layers[1:])


def _layer(index: int, weights: Any, bias: Any) -> Layer:
    matrix = np.array(weights, np.float64)
    if matrix.ndim != 2 or not 0 < matrix.size <= _MOST:
        raise InputError(f"weights of layer {index} must be a matrix, got shape {matrix.shape}")
    vector = _broadcast(f"bias of layer {index}", bias, matrix.shape[1])
    if not (np.isfinite(matrix).all() and np.isfinite(vector).all()):
        raise InputError(f"weights and bias of layer {index} must be finite, got nan or infinity")
    return matrix, vector


def _broadcast(name: str, value: Any, size: int) -> Floats:
    try:
        return np.array(np.broadcast_to(np.asarray(value, np.float64), (size,)))
    except (TypeError, ValueError):
        raise InputError(name, f"must be one number or {size}", value) from None

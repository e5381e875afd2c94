"""The model an answering party serves, and rows and models as the integers that programs take.

A model is linear or has one hidden ReLU layer. The querier clips its features to a public bound.
The owner of a model scales its weights so that no row within the bound can bring a score to 2^62:
nothing in the engine would notice an overflow. A score only matters by its sign, so every label has
a scale of its own; thresholds are part of the biases.
"""

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
from ..errors import InputError, positive, whole
from ..files import complete
from ..votes.arrays import ArrayFile
from .programs import IntArray

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


LIMIT = 1 << 62
_MOST_BITS = 30
_WEIGHT_BITS = 20  # at most, and lowered as needed
_TINY = 1e-200  # weights below are 0: their scale would leave the range of floating point
_HUGE = 1 / _TINY


def quantise_rows(X: Any, *, features: int, bound: float, bits: int) -> IntArray:
    """Return the querier's rows (rows, features): clipped to ``bound``, in steps of 2^-bits of it.

    A feature x becomes round(2^bits x / bound).
    """
    bound, unit = positive("bound", bound), _unit(bits)
    rows = np.clip(rows_of(X, features), -bound, bound)
    return np.asarray(np.rint(rows / bound * unit), np.float64).astype(np.int64)


def quantise_model(
    model: SiteModel, *, bound: float, bits: int, labels: Sequence[str] | None = None
) -> dict[str, IntArray]:
    """Return the peer's inputs of a ballot program, without the mask.

    Parameters
    ----------
    model
        The owner's model.
    bound, bits
        The public bound and bits of the rows.
    labels
        The coalition's labels; one that the model does not have is answered with no. The model's
        own by default.

    Returns
    -------
    dict
        weights (features, labels) and bias (labels,), or with a hidden layer weights1, bias1,
        weights2 and bias2.
    """
    bound, unit = positive("bound", bound), _unit(bits)
    names = tuple(model.labels if labels is None else labels)
    if not set(model.labels) <= set(names):
        strange = sorted(set(model.labels) - set(names))
        raise InputError(
            "labels", f"must contain all labels of the model, got none of {strange!r:.80}"
        )
    columns = [names.index(name) for name in model.labels]
    if model.hidden is None:
        weights, bias = _linear_numbers(model, bound, unit)
        weights, bias = _spread(weights, bias, columns, len(names))
        return {"weights": weights, "bias": bias}
    return _network_numbers(model, bound, unit, columns, len(names))


def _linear_numbers(model: SiteModel, bound: float, unit: int) -> tuple[IntArray, IntArray]:
    weights, bias = model.layers[0]
    for bits in range(_WEIGHT_BITS, 0, -1):
        result = _signed(weights * bound, bias - logit(model.thresholds), 1.0 / unit, bits, unit)
        if max(_reach(*result, [unit] * len(weights))) < LIMIT:
            return result
    raise _too_large(bound, unit)


def _network_numbers(
    model: SiteModel, bound: float, unit: int, columns: list[int], labels: int
) -> dict[str, IntArray]:
    (weights1, bias1), (weights2, bias2) = model.layers
    folded = bias2 - logit(model.thresholds)
    # A bias far beyond the weights sets the scale: a hidden unit counts by its size.
    top = max(float(np.abs(weights1).max()) * bound, float(np.abs(bias1).max()) / len(weights1))
    _check_scale(top)
    top = top if top > _TINY else 1.0
    # Both layers lose bits in turn, the second first: the first is multiplied by more.
    for total in range(2 * _WEIGHT_BITS, 1, -1):
        first_bits, second_bits = -(-total // 2), total // 2
        scale = 2.0**first_bits / top
        inner = np.rint(weights1 * bound * scale).astype(np.int64)
        shift = np.rint(np.clip(bias1 * scale * unit, -LIMIT, LIMIT)).astype(np.int64)
        first = _reach(inner, shift, [unit] * len(inner))
        if max(first) >= LIMIT:
            continue
        step = 1.0 / (scale * unit)  # what one of the hidden integers is worth
        outer, last = _signed(weights2, folded, step, second_bits, max(first))
        if max(_reach(outer, last, first)) < LIMIT:
            outer, last = _spread(outer, last, columns, labels)
            return {"weights1": inner, "bias1": shift, "weights2": outer, "bias2": last}
    raise _too_large(bound, unit)


def _signed(
    weights: Floats, bias: Floats, step: float, bits: int, most: int
) -> tuple[IntArray, IntArray]:
    """Return integer weights and biases with the signs of input * step @ weights + bias.

    The largest weight of a label has ``bits`` bits. A bias beyond the reach of its label's weights
    decides alone and is cut to just that: ``most`` is the largest input.
    """
    top = np.abs(weights).max(axis=0)
    _check_scale(float(top.max()))
    top = np.where(top > _TINY, top, 0.0)
    scale = 2.0**bits / np.where(top > 0, top, 1.0)
    whole_weights = np.rint(weights * scale).astype(np.int64)
    reach = np.abs(whole_weights).sum(axis=0).astype(np.float64) * most + 1.0
    real = np.clip(bias * scale / step, -reach, reach)
    # A bias that rounds to 0 without weights must keep its sign: 0 would be a yes.
    real = np.where((top == 0) & (bias < 0), -1.0, real)
    return whole_weights, np.rint(np.clip(real, -LIMIT, LIMIT)).astype(np.int64)


def _reach(weights: IntArray, bias: IntArray, most: Sequence[int]) -> list[int]:
    """Return the largest |input @ weights + bias| of each output, for inputs within ``most``."""
    # Python's integers: the smallest int64 has no absolute value among the others.
    sizes, shifts = np.abs(weights.astype(object)), np.abs(bias.astype(object))
    return [int(total) for total in np.array(most, object) @ sizes + shifts]


def _spread(
    weights: IntArray, bias: IntArray, columns: list[int], labels: int
) -> tuple[IntArray, IntArray]:
    """Return weights and biases for all labels; where the model has none, always no."""
    wide = np.zeros((len(weights), labels), np.int64)
    last = np.full(labels, -1, np.int64)
    wide[:, columns], last[columns] = weights, bias
    return wide, last


def _unit(bits: int) -> int:
    return 1 << whole("bits", bits, most=_MOST_BITS)


def _check_scale(top: float) -> None:
    if not top < _HUGE:
        raise InputError(f"model: weights times bound must be below {_HUGE:g}, got {top:g}")


def _too_large(bound: float, unit: int) -> InputError:
    return InputError(
        f"bits must leave room for the weights: with `bound={bound:g}` and 2^bits={unit} a "
        "score could reach 2^62"
    )

"""Rows and models as integers: what a ballot program takes, without overflow in the worst case.

The querier clips its features to a public bound. The owner of a model scales its weights so that
no row within the bound can bring a score to 2^62: nothing in the engine would notice an overflow.
A score only matters by its sign, so every label has a scale of its own; thresholds are part of
the biases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import logit

from ..errors import InputError, positive, whole
from .messages import IntArray
from .models import Floats, SiteModel, rows_of

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
    model: SiteModel,
    *,
    bound: float,
    bits: int,
    labels: Sequence[str] | None = None,
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
        weights, bias = _linear(model, bound, unit)
        weights, bias = _spread(weights, bias, columns, len(names))
        return {"weights": weights, "bias": bias}
    return _perceptron(model, bound, unit, columns, len(names))


def _linear(model: SiteModel, bound: float, unit: int) -> tuple[IntArray, IntArray]:
    weights, bias = model.layers[0]
    for bits in range(_WEIGHT_BITS, 0, -1):
        result = _signed(weights * bound, bias - logit(model.thresholds), 1.0 / unit, bits, unit)
        if max(_reach(*result, [unit] * len(weights))) < LIMIT:
            return result
    raise _too_large(bound, unit)


def _perceptron(
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

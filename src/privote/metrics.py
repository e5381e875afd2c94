"""How good multi-label answers are: the ten figures of merit, all from scikit-learn's metrics.

A cell (query, label) whose truth is unknown (-1) or whose answer is ABSTAIN (-1) is left out of
every figure; ``coverage`` says how much was counted. So the figures of a release that abstains are
about what it answered, and must be read together with the coverage.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import InputError, numbers
from .mechanisms import ABSTAIN

Floats = npt.NDArray[np.float64]
Cells = npt.NDArray[np.int8]
Counted = npt.NDArray[np.bool_]

UNKNOWN = -1
_NEED_BOTH_CLASSES = ("BAC", "AUC", "AP")


def multilabel(
    Y_true: npt.ArrayLike, Y_score: npt.ArrayLike | None, Y_pred: npt.ArrayLike | None = None
) -> dict[str, Any]:
    """Compare answers with the truth, label by label and overall.

    Parameters
    ----------
    Y_true
        (queries, labels) of 0 and 1, or -1, NaN or None where the truth is unknown.
    Y_score
        (queries, labels) of finite numbers, larger where a 1 is more likely. None if there are only
        answers: then AUC and MAP are NaN.
    Y_pred
        (queries, labels) of 0 and 1, or -1 for ABSTAIN. By default a 1 where ``Y_score`` is at
        least 0.5, which needs scores between 0 and 1.

    Returns
    -------
    dict
        - ``ACC``, ``BAC``, ``AUC``, ``MAP``: accuracy, balanced accuracy, area under the ROC curve
          and average precision, each a mean over labels.
        - ``CP``, ``CR``, ``CF1``: precision, recall and F1, each a mean over labels. CF1 is the
          mean of the labels' F1, as in scikit-learn's macro average, not the F1 of CP and CR.
        - ``OP``, ``OR``, ``OF1``: the same over all cells together (micro average).
        - ``coverage``: the share of cells counted.
        - ``undefined``: indices of the labels left out of BAC, AUC and MAP, because what was
          counted of ``Y_true`` has one class only.
        - ``per_label``: ``ACC BAC AUC AP P R F1`` as float arrays (labels,), NaN where undefined,
          and ``positives`` and ``counted`` as integers.

    Notes
    -----
    A ratio without cases (the precision of a label never predicted, the recall of a label never
    present) counts as 0, as in scikit-learn. A mean over no label is NaN.
    """
    truth, answers, scores = _check(Y_true, Y_score, Y_pred)
    counted = (truth != UNKNOWN) & (answers != ABSTAIN)
    per_label = _by_label(truth, answers, scores, counted)
    overall = _ratios(truth[counted], answers[counted])
    return {
        "ACC": _mean(per_label["ACC"]),
        "BAC": _mean(per_label["BAC"]),
        "AUC": _mean(per_label["AUC"]),
        "MAP": _mean(per_label["AP"]),
        "CP": _mean(per_label["P"]),
        "CR": _mean(per_label["R"]),
        "CF1": _mean(per_label["F1"]),
        "OP": overall[0],
        "OR": overall[1],
        "OF1": overall[2],
        "coverage": float(counted.mean()),
        "undefined": [int(label) for label in np.flatnonzero(np.isnan(per_label["BAC"]))],
        "per_label": per_label,
    }


def _by_label(
    truth: Cells, answers: Cells, scores: Floats | None, counted: Counted
) -> dict[str, npt.NDArray[Any]]:
    """Return every figure for every label: arrays (labels,)."""
    # Imported here because it takes a second that other uses of the package should not pay.
    from sklearn.metrics import (
        accuracy_score,
        average_precision_score,
        balanced_accuracy_score,
        roc_auc_score,
    )

    labels = truth.shape[1]
    figures: dict[str, npt.NDArray[Any]] = {
        name: np.full(labels, np.nan) for name in ("ACC", *_NEED_BOTH_CLASSES, "P", "R", "F1")
    }
    figures["counted"] = counted.sum(axis=0)
    figures["positives"] = ((truth == 1) & counted).sum(axis=0)
    for label in np.flatnonzero(figures["counted"]):
        here = counted[:, label]
        t, a = truth[here, label], answers[here, label]
        figures["ACC"][label] = accuracy_score(t, a)
        figures["P"][label], figures["R"][label], figures["F1"][label] = _ratios(t, a)
        if 0 < figures["positives"][label] < figures["counted"][label]:
            figures["BAC"][label] = balanced_accuracy_score(t, a)
            if scores is not None:
                figures["AUC"][label] = roc_auc_score(t, scores[here, label])
                figures["AP"][label] = average_precision_score(t, scores[here, label])
    return figures


def _ratios(truth: Cells, answers: Cells) -> tuple[float, float, float]:
    """Return precision, recall and F1 of the ones; NaN if there is nothing to count."""
    from sklearn.metrics import precision_recall_fscore_support

    if not len(truth):
        return math.nan, math.nan, math.nan
    precision, recall, f1, _ = precision_recall_fscore_support(
        truth, answers, labels=[0, 1], pos_label=1, average="binary", zero_division=0
    )
    return float(precision), float(recall), float(f1)


def _mean(values: npt.NDArray[Any]) -> float:
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else math.nan


def _check(
    Y_true: npt.ArrayLike, Y_score: npt.ArrayLike | None, Y_pred: npt.ArrayLike | None
) -> tuple[Cells, Cells, Floats | None]:
    """Return truth, answers and scores as arrays of one shape."""
    truth = label_table("Y_true", Y_true)
    scores = None
    if Y_score is not None:
        scores = numbers("Y_score", Y_score)
        if scores.shape != truth.shape or not np.isfinite(scores).all():
            rule = f"must be finite and have the shape of `Y_true`, {truth.shape}"
            raise InputError("Y_score", f"{rule}, got shape {scores.shape}")
    if Y_pred is not None:
        return truth, label_table("Y_pred", Y_pred, truth.shape), scores
    if scores is None:
        raise InputError("Y_pred", "must be given if Y_score is None, got None for both")
    if scores.min() < 0 or scores.max() > 1:
        raise InputError(
            "Y_score",
            "must be in [0, 1] if Y_pred is not given (a score of 0.5 or more counts as 1)",
            sealed=f"scores are from {scores.min():g} to {scores.max():g}",
        )
    return truth, (scores >= 0.5).astype(np.int8), scores


def label_table(argument: str, Y: Any, shape: tuple[int, ...] | None = None) -> Cells:
    """Return labels as int8 (queries, labels) if they hold 1, 0 and -1 only.

    -1 is ABSTAIN, or unknown, and so are NaN and None. Where a ``shape`` is given, they must have
    it.
    """
    array = numbers(argument, Y)
    array = np.where(np.isnan(array), UNKNOWN, array)
    if array.ndim != 2 or not array.size or not np.isin(array, (-1, 0, 1)).all():
        raise InputError(argument, "must be a table (queries, labels) of 1, 0 and -1")
    if shape is not None and array.shape != shape:
        rule = f"must have the shape (queries, labels) = {shape}"
        raise InputError(argument, f"{rule}, got {array.shape}")
    return array.astype(np.int8)

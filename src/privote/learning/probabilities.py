"""One shape for what classifiers are told and say: (rows, labels), whoever is asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.special import expit

from ..errors import InputError

Floats = npt.NDArray[np.float64]


def targets(model: Any, Y: npt.NDArray[np.int8]) -> npt.NDArray[Any]:
    """Return labels as this classifier wants them: networks compare them with real numbers."""
    skorch = any(kind.__module__.startswith("skorch") for kind in type(model).__mro__)
    return Y.astype(np.float32 if skorch else np.int64)


def label_probabilities(model: Any, X: Any, labels: int) -> Floats:
    """Return each label's probability of a 1: (rows, labels).

    Takes what scikit-learn's classifiers give: an array (rows, labels), a list with one array
    (rows, classes) a label, two columns for one label; else decisions, squashed; else predictions.
    """
    if hasattr(model, "predict_proba"):
        given = model.predict_proba(X)
        if isinstance(given, list):
            given = np.stack(
                [_of_one(part, kinds) for part, kinds in zip(given, model.classes_, strict=True)],
                axis=1,
            )
    elif hasattr(model, "decision_function"):
        given = expit(model.decision_function(X))
    else:
        given = model.predict(X)
    if sparse.issparse(given):
        given = given.toarray()
    chance = np.asarray(given, np.float64)
    if chance.ndim == 3 and chance.shape[1] == 2:  # skorch: no and yes of every label
        chance = chance[:, 1]
    if chance.ndim == 1:
        chance = chance[:, None]
    if labels == 1 and chance.shape[1] == 2:
        chance = chance[:, 1:]
    if chance.ndim != 2 or chance.shape[1] != labels:
        raise InputError(
            f"{type(model).__name__} must give one probability a label, (rows, {labels}), "
            f"got shape {chance.shape}"
        )
    return chance


def _of_one(chance: npt.NDArray[Any], classes: npt.NDArray[Any]) -> Floats:
    """Return the probability of a 1 from one label's (rows, classes)."""
    kinds = list(np.asarray(classes).tolist())
    if 1 not in kinds:
        return np.zeros(len(chance))
    return np.asarray(chance[:, kinds.index(1)], np.float64)

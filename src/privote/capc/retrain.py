"""A site's own model, and the same model after the coalition has labelled rows for it.

Everything here happens at one site, on its own records and on labels that were released to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from .. import metrics
from ..errors import InputError
from ..learning.rows import check_labels
from ..learning.students.classifiers import LinearStudent
from .models import SiteModel

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]

FIGURES = ("ACC", "BAC", "AUC", "MAP")
_FOLDS = 3
_EDGE = 1e-6  # thresholds stay this far from 0 and 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Records:
    """What a site has: rows (records, features) and labels (records, labels) of 1, 0 and -1.

    The labels are the coalition's, in its order. A label that a site does not have is -1
    throughout; the site then abstains on it.
    """

    X: Any
    Y: Labels

    def __post_init__(self) -> None:
        object.__setattr__(self, "Y", check_labels(self.Y, self.X.shape[0], "Y"))

    @classmethod
    def under(cls, labels: Sequence[str], X: Any, Y: Labels, own: Sequence[str]) -> Records:
        """Return records whose labels ``own`` stand where the coalition's ``labels`` have them."""
        strange = [name for name in own if name not in labels]
        if strange or not own:
            raise InputError(
                "labels", f"must be one or more of {', '.join(labels)}", (strange or ["none"])[0]
            )
        wide = np.full((len(Y), len(labels)), -1, np.int8)
        wide[:, [list(labels).index(name) for name in own]] = Y
        return cls(X=X, Y=wide)

    def knows(self) -> npt.NDArray[np.bool_]:
        """Return which labels this site has: (labels,)."""
        return np.asarray((self.Y != -1).any(axis=0))


def train_site(records: Records, labels: Sequence[str]) -> SiteModel:
    """Return the model a site trains on its own records: logistic regressions.

    A threshold is where the share of yeses, on records held out in turn, is the label's own share:
    with a threshold of one half a rare label would never get a vote.
    """
    return _site_model(records, labels, None)


def retrain_site(
    records: Records, labels: Sequence[str], X_new: Any, released: npt.ArrayLike
) -> SiteModel:
    """Return the model a site trains on its own records and on rows that the coalition labelled.

    Parameters
    ----------
    records, labels
        The site's own records; the names of the coalition's labels.
    X_new, released
        (rows, features), and (rows, labels) of 1, 0 and -1 where the gate held back.

    Notes
    -----
    Thresholds follow the site's own records. A label that it has no records of is learned from the
    coalition alone, and its threshold follows how often it was released.
    """
    new = Records(X=X_new, Y=np.asarray(released, np.int8))
    if new.Y.shape[1] != records.Y.shape[1]:
        raise InputError(
            "released", f"must have {records.Y.shape[1]} labels, as `records`", new.Y.shape[1]
        )
    return _site_model(records, labels, new)


def judge(model: SiteModel, X: Any, Y: Labels) -> dict[str, Any]:
    """Return a model's figures on test rows, with its own thresholds; also label by label."""
    chance = model.predict_proba(X)
    return metrics.multilabel(Y, chance, model.votes(X))


def weakest(models: Mapping[str, SiteModel], X: Any, Y: Labels, count: int) -> list[str]:
    """Return the names of the models with the lowest balanced accuracy, the lowest first."""
    if not 1 <= count <= len(models):
        raise InputError("count", f"must lie in 1..{len(models)}, the models", count)
    return sorted(models, key=lambda name: float(judge(models[name], X, Y)["BAC"]))[:count]


def _site_model(records: Records, labels: Sequence[str], new: Records | None) -> SiteModel:
    model = _fit(records, new)
    turn = np.arange(len(records.Y)) % _FOLDS
    scores = np.zeros(records.Y.shape)
    for fold in range(_FOLDS if len(records.Y) >= _FOLDS else 0):
        rest, held = np.flatnonzero(turn != fold), np.flatnonzero(turn == fold)
        part = _fit(Records(X=records.X[rest], Y=records.Y[rest]), new)
        scores[held] = np.asarray(records.X[held] @ part.coef_.T) + part.intercept_
    thresholds = _thresholds(scores, records.Y)
    if new is not None:
        taught = np.asarray(new.X @ model.coef_.T) + model.intercept_
        thresholds = np.where(records.knows(), thresholds, _thresholds(taught, new.Y))
    return SiteModel(
        layers=((model.coef_.T, model.intercept_),), labels=tuple(labels), thresholds=thresholds
    )


def _fit(records: Records, new: Records | None) -> LinearStudent:
    X, Y = records.X, records.Y
    if new is not None:
        stack = sp.vstack if sp.issparse(X) else np.vstack
        # Every third row is held out to choose the penalty: own and new rows are mixed.
        order = np.random.default_rng(0).permutation(len(Y) + len(new.Y))
        X, Y = stack([X, new.X])[order], np.vstack([Y, new.Y])[order]
    return LinearStudent().fit(X, Y)


def _thresholds(scores: Floats, Y: Labels) -> Floats:
    """Return probabilities at which as many held-out records are a yes as really are."""
    found = np.full(Y.shape[1], 0.5)
    for label in range(Y.shape[1]):
        known = Y[:, label] != -1
        yes = int((Y[known, label] == 1).sum())
        if not 0 < yes < known.sum():
            continue
        ranked = np.sort(scores[known, label])[::-1]
        bar = (ranked[yes - 1] + ranked[yes]) / 2
        found[label] = 1 / (1 + np.exp(-np.clip(bar, -30, 30)))
    return np.clip(found, _EDGE, 1 - _EDGE)

"""Scenes for a simulated coalition: a model for each site, rows to ask, and what they are worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from privote.capc.models import SiteModel
    from privote.capc.terms import Terms


@dataclass(frozen=True, kw_only=True, eq=False)
class Scenery:
    """What a simulation knows and a real coalition does not.

    Attributes
    ----------
    X, Y
        Rows to ask, and their true labels.
    models
        Each answering site's.
    """

    X: npt.NDArray[np.float64]
    Y: npt.NDArray[np.int8]
    models: dict[str, SiteModel]

    def votes(self) -> npt.NDArray[np.int8]:
        """Return every site's votes in clear: (queries, sites, labels)."""
        return np.stack([model.votes(self.X) for model in self.models.values()], axis=1)

    def figures(self, labels: npt.NDArray[np.int8]) -> list[dict[str, Any]]:
        """Return how good released labels are, beside the majority and a site alone."""
        votes = self.votes()
        alone = [self._row("", votes[:, site]) for site in range(votes.shape[1])]
        majority = (2 * votes.sum(axis=1) >= votes.shape[1]).astype(np.int8)
        mean = {key: float(np.mean([row[key] for row in alone])) for key in ("ACC", "BAC")}
        return [
            {**self._row("released", labels), "answered": float((labels >= 0).mean())},
            {**self._row("majority, no noise", majority), "answered": 1.0},
            {"labels": "one site alone, mean", **mean, "answered": 1.0},
        ]

    def _row(self, name: str, labels: npt.NDArray[np.int8]) -> dict[str, Any]:
        from privote.metrics import multilabel

        said = np.maximum(labels, 0)
        found = multilabel(self.Y, said.astype(float), said)
        return {"labels": name, "ACC": float(found["ACC"]), "BAC": float(found["BAC"])}


def made(
    terms: Terms, parties: int, queries: int, hidden: int | None, scenes: int, seed: int
) -> Scenery:
    """Train a model for each site on scenes of its own, and compose scenes to ask."""
    from privote.capc.models import SiteModel
    from privote.datasets.scenes import load_scenes

    data = load_scenes(private=parties * scenes, public=queries, test=1, seed=seed)
    parts = np.array_split(np.arange(len(data.X_private)), parties)
    models = {
        party: SiteModel.of(
            _trained(data.X_private[part], data.Y_private[part], hidden, seed), labels=terms.labels
        )
        for party, part in zip(terms.parties, parts, strict=True)
    }
    return Scenery(X=data.X_public.astype(np.float64), Y=data.Y_public, models=models)


def _trained(X: Any, Y: Any, hidden: int | None, seed: int) -> Any:
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.neural_network import MLPClassifier

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a rough model votes too
        if hidden is None:
            return OneVsRestClassifier(LogisticRegression(C=0.1)).fit(X, Y)
        return MLPClassifier((hidden,), max_iter=60, random_state=seed).fit(X, Y)

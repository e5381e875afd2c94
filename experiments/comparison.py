"""PATE's student against other ways to learn from the same private data.

All models have the same architecture (one linear layer a label) and are judged on the same test
rows. The private ones make the same promise: (epsilon, delta) for changing one record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from privote import PATEClassifier, metrics
from privote.errors import BudgetError
from privote.learning.gradients import DPLinear
from privote.learning.students import LinearStudent
from privote.learning.teachers import partition, partition_key

FIGURES = ("ACC", "BAC", "AUC", "MAP")
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One data set and one budget.

    Attributes
    ----------
    X_private, Y_private, X_public, X_test, Y_test
        Private records with labels, public rows, test rows with true labels.
    epsilon, delta
        The promise of every private model, for changing one record.
    n_teachers
        Parts of the private records, for PATE and for the single teacher.
    random_state
        For training.
    seed
        Makes every private model a simulation; None draws secure noise.
    """

    X_private: Any
    Y_private: npt.NDArray[np.int8]
    X_public: Any
    X_test: Any
    Y_test: npt.NDArray[np.int8]
    epsilon: float
    delta: float
    n_teachers: int = 50
    random_state: int = 0
    seed: int | None = None

    def judge(self, name: str, chance: Floats, **facts: Any) -> dict[str, Any]:
        """Return one row: who, what it promises, and its figures on the test rows."""
        found = metrics.multilabel(self.Y_test, chance)
        row = {"model": name, "epsilon": None, "answered": None, **facts}
        return row | {figure: found[figure] for figure in FIGURES}

    def without_privacy(self) -> dict[str, Any]:
        """Return the row of a model trained on all private records, which protects nobody."""
        model = LinearStudent().fit(self.X_private, self.Y_private)
        return self.judge("not private", model.predict_proba(self.X_test))

    def one_teacher(self) -> dict[str, Any]:
        """Return the row of a model trained on one part, as each teacher is; not private."""
        key = partition_key(None, "", self.seed)
        part = partition(self.X_private.shape[0], self.n_teachers, key=key)
        mine = np.flatnonzero(part == np.bincount(part).argmax())
        model = LinearStudent().fit(self.X_private[mine], self.Y_private[mine])
        return self.judge("one teacher (not private)", model.predict_proba(self.X_test))

    def pate(self, name: str, **settings: Any) -> dict[str, Any]:
        """Return the row of PATE's student with these settings of :class:`PATEClassifier`.

        A refused budget is a row without figures.
        """
        model = PATEClassifier(
            **{
                "n_teachers": self.n_teachers,
                "epsilon": self.epsilon,
                "delta": self.delta,
                "random_state": self.random_state,
                **settings,
            }
        )
        try:
            model.fit(self.X_private, self.Y_private, self.X_public, seed=self.seed)
        except BudgetError:
            return {"model": name, "epsilon": None, "answered": 0}
        return self.judge(
            name,
            model.predict_proba(self.X_test),
            epsilon=model.release_.epsilon,
            answered=model.release_.answered,
        )

    def dpsgd(self) -> dict[str, Any]:
        """Return the row of noisy gradient descent on the private records."""
        model = DPLinear(self.epsilon, self.delta, seed=self.seed)
        chance = model.fit(self.X_private, self.Y_private).predict_proba(self.X_test)
        return self.judge("DPSGD", chance, epsilon=self.epsilon)

"""What scikit-learn's tools do to a guarantee is said, and only then."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import privote as pv

X = np.random.default_rng(0).normal(size=(900, 3))
Y = (X[:, :2] > 0).astype(np.int8)


def said_by(work: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    ours = (each for each in caught if issubclass(each.category, pv.PrivoteWarning))
    return [str(each.message) for each in ours]


@pytest.mark.parametrize("method", ["gradients", "teachers"])
def test_fits_by_scikit_learn_that_no_guarantee_covers_warn(method: str) -> None:
    model = pv.PrivateClassifier(method, epsilon=8.0, delta=1e-6)
    public = {"public": X[600:]}
    usual = said_by(lambda: model.fit(X[:600], Y[:600], **public))
    folds = said_by(lambda: cross_val_score(model, X[:600], Y[:600], cv=2, params=public))
    assert sum("cross-validation" in text for text in folds) == 2
    counted = {**public, "ledger": pv.Ledger.in_memory()}
    line = make_pipeline(StandardScaler(), model)
    step = {f"privateclassifier__{name}": value for name, value in counted.items()}
    scaled = said_by(lambda: line.fit(X[:600], Y[:600], **step))
    assert sum("Pipeline" in text for text in scaled) == 1
    plain = make_pipeline("passthrough", model)
    for texts in (
        usual,
        said_by(
            lambda: plain.fit(X[:600], Y[:600], **step | {"privateclassifier__dataset": "another"})
        ),
    ):
        assert not [text for text in texts if "Pipeline" in text or "cross-validation" in text]

"""The figures of docs/pictures.md from the shared features of Pascal VOC 2012, its own sides."""

from pathlib import Path

import numpy as np
import pytest

import privote as pv


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("method", "least"), [("auto", 0.95), ("neighbours", 0.95), ("teachers", 0.93)]
)
def test_models_of_pictures_at_epsilon_10(shared_data: Path, method: str, least: float) -> None:
    with np.load(shared_data / "voc2012_trainval_efficientnet_lite0_160.npz") as file:
        X, Y, train = file["features"].astype(np.float32), file["labels"], file["train"]
    others = np.flatnonzero(~train)
    public, test = others[::2], others[1::2]
    model = pv.PrivateClassifier(method, epsilon=10.0, delta=1e-5)
    model.fit(X[train], Y[train], X[public])
    figures = pv.metrics.multilabel(Y[test], model.predict_proba(X[test]))
    assert figures["AUC"] >= least
    assert model.privacy_["epsilon"] <= 10.0

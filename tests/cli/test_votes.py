"""``privote votes``, and what ``privote label`` makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from tests.cli.conftest import Run

import privote as pv

pytest.importorskip("zarr")

NAMES = [f"site {place}" for place in range(6)]
LABELS = ("--labels", "flu,cold")


def rows() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(300, 3))


@pytest.fixture
def models(tmp_path: Path) -> dict[str, RandomForestClassifier]:
    X = np.random.default_rng(1).normal(size=(90, 3))
    (tmp_path / "models").mkdir()
    made = {}
    for seed, name in enumerate(NAMES):
        made[name] = RandomForestClassifier(3, random_state=seed).fit(X, X[:, :2] > 0.1)
        joblib.dump(made[name], tmp_path / "models" / f"{name}.joblib")
    np.save(tmp_path / "rows.npy", rows())
    return made


def test_models_to_labels(
    run: Run, models: dict[str, RandomForestClassifier], tmp_path: Path
) -> None:
    given = ("votes", "rows.npy", "models", *LABELS, "--output", "votes.zarr")
    done = run(*given, "--chunk", 100, "--group", 4, "--json")
    assert done.exit_code == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["label_names"] == ["flu", "cold"]
    assert (facts["queries"], facts["voters"], facts["labels"]) == (300, 6, 2)
    assert (facts["chunks"], facts["done_before"]) == (6, 0)
    assert "site" not in done.stdout  # the names of voters
    found = pv.Ballots.of(tmp_path / "votes.zarr")
    wanted = np.stack([model.predict(rows()) for model in models.values()], axis=1)
    assert np.array_equal(found.to_array(), wanted)
    settings = ("--mechanism", "binary", "--sigma", 2, "--epsilon", 8, "--delta", 1e-5)
    more = ("--guarantee", "allowance", "--queries", 10, "--ledger", "ledger.db")
    labelled = run("label", "votes.zarr", *settings, *more, "--output", "labels.csv")
    assert labelled.exit_code == 0, labelled.stderr
    assert (tmp_path / "labels.csv").read_text().startswith("query,flu,cold\n")
    assert "their names" in labelled.stdout


def test_thresholds_and_names(run: Run, models: dict[str, RandomForestClassifier]) -> None:
    Path("names.txt").write_text("a\nb\nc\nd\ne\nf\n")
    files = [f"models/{name}.joblib" for name in NAMES]
    more = ("--threshold", "0.3,0.9", "--names", "names.txt", "--output", "v.zarr")
    done = run("votes", "rows.npy", *files, "--labels", 2, *more)
    assert done.exit_code == 0, done.stderr
    chance = [
        np.stack([part[:, 1] for part in model.predict_proba(rows())], axis=1)
        for model in models.values()
    ]
    found = pv.Ballots.of("v.zarr")
    assert np.array_equal(found.to_array(), np.stack(chance, axis=1) >= np.array([0.3, 0.9]))
    assert found.voter_names == tuple("abcdef")
    assert found.label_names is None

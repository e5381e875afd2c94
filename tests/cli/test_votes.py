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
    (tmp_path / "names.txt").write_text("\n".join("abcdef"))
    given = ("votes", "rows.npy", "models", "--labels", "flu,cold", "--threshold", "0.3,0.9")
    more = ("--names", "names.txt", "--chunk", 100, "--output", "votes.zarr")
    done = run(*given, *more, "--json")
    assert done.exit_code == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["label_names"] == ["flu", "cold"]
    assert (facts["queries"], facts["voters"], facts["labels"]) == (300, 6, 2)
    assert (facts["chunks"], facts["done_before"]) == (3, 0)
    assert "site" not in done.stdout  # the names of voters
    found = pv.Ballots.of(tmp_path / "votes.zarr")
    chances = [
        np.stack([part[:, 1] for part in model.predict_proba(rows())], axis=1)
        for model in models.values()
    ]
    assert np.array_equal(found.to_array(), np.stack(chances, axis=1) >= np.array([0.3, 0.9]))
    assert found.voter_names == tuple("abcdef")
    settings = ("--mechanism", "binary", "--sigma", 2, "--epsilon", 8, "--delta", 1e-5)
    paid = ("--guarantee", "allowance", "--queries", 10, "--ledger", "ledger.db")
    labelled = run("label", "votes.zarr", *settings, *paid, "--output", "labels.csv")
    assert labelled.exit_code == 0, labelled.stderr
    assert (tmp_path / "labels.csv").read_text().startswith("query,flu,cold\n")

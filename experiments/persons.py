"""Persons with several records: one record each, or the mean gradient of all, at the same price.

The promise is for persons in both columns, with the same noise multiplier, sampling and steps.
*One record* is what privote did before: the first record of each person, the others dropped. *Mean
gradient* is what it does now. Persons are split into private, public and test by chance.

- patients: 6,000 visits of made-up patients (``load_patients``), 1 to 4 each.
- NIH: 4,999 real chest X-rays of 1,335 patients, 1 to 67 each, as 32 x 32 pixels behind the
  principal components of public ones.

Run it with ``python experiments/persons.py``; kept in ``experiments/results/persons.txt``.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from tasks import SHARED

import privote as pv
from privote.learning import DPLinear, DPSGDClassifier
from privote.learning.tables import TableEncoder

DELTA = 1e-5
EPSILONS = (2.0, 8.0)
NAMES = ("patients", "NIH")
GRADIENTS, NETWORK = "gradients", "dpsgd, mlp"


def sides(name: str, seed: int) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return rows, labels and persons of each side; no person is on two."""
    if name == "patients":
        data = pv.datasets.load_patients(6000, seed=seed)
        X, Y, persons = data.X, data.Y, data.groups
    else:
        with np.load(SHARED / "data" / "nih_chestxray14_part1_64.npz") as held:
            pixels = held["images"].reshape(-1, 32, 2, 32, 2).mean(axis=(2, 4)) / 255
            X, Y, persons = pixels.reshape(len(pixels), -1), held["labels"], held["patients"]
    names = np.unique(persons)
    side = dict(zip(names, np.random.default_rng(seed).permutation(len(names)), strict=True))
    place = np.array([side[person] for person in persons]) / len(names)
    rows = {
        which: np.flatnonzero((place >= low) & (place < high))
        for which, low, high in (("private", 0, 0.6), ("public", 0.6, 0.8), ("test", 0.8, 1))
    }
    if name == "patients":
        encoder = TableEncoder().fit(X.take(rows["public"]))
        X = encoder.numbers(X)
    return {
        which: (X[some], Y[some].astype(np.int8), persons[some]) for which, some in rows.items()
    }


def auc(model: object, test: tuple[np.ndarray, np.ndarray, np.ndarray]) -> float:
    """Return the mean AUC over the labels that the test rows have."""
    X, Y, _ = test
    there = (Y == 1).any(axis=0)
    chance = model.predict_proba(X)  # type: ignore[attr-defined]
    return float(pv.metrics.multilabel(Y[:, there], chance[:, there])["AUC"])


def models(epsilon: float, seed: int) -> dict[str, object]:
    """Return the two kinds of training."""
    return {
        GRADIENTS: DPLinear(epsilon, DELTA, seed=seed),
        NETWORK: DPSGDClassifier(
            epsilon, DELTA, network="mlp", hidden=32, steps=60, sample_rate=0.1, seed=seed
        ),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = parser.parse_args().seeds
    warnings.simplefilter("ignore")
    print(f"AUC on test persons, delta {DELTA:g}, mean and standard error of {seeds} seeds")
    form = "{:10}{:12}{:>8}{:>18}{:>18}{:>18}"
    print(form.format("data", "method", "epsilon", "one record", "mean gradient", "gain"))
    for name in NAMES:
        found: dict[tuple[str, float], list[tuple[float, float]]] = {}
        for seed in range(seeds):
            cut = sides(name, seed)
            X, Y, persons = cut["private"]
            public = cut["public"][0]
            _, first = np.unique(persons, return_index=True)
            for epsilon in EPSILONS:
                for kind in [GRADIENTS] if epsilon < EPSILONS[-1] else [GRADIENTS, NETWORK]:
                    one, mean = (models(epsilon, seed)[kind] for _ in range(2))
                    one.fit(X[first], Y[first], public)  # type: ignore[attr-defined]
                    mean.fit(X, Y, public, groups=persons)  # type: ignore[attr-defined]
                    assert one.guarantee_.mechanism == mean.guarantee_.mechanism  # type: ignore[attr-defined]
                    both = auc(one, cut["test"]), auc(mean, cut["test"])
                    found.setdefault((kind, epsilon), []).append(both)
        for (kind, epsilon), pairs in sorted(found.items()):
            table = np.array(pairs)
            columns = (*table.T, table[:, 1] - table[:, 0])
            error = max(1, np.sqrt(seeds - 1))
            cells = [f"{c.mean():.3f} ± {c.std() / error:.3f}" for c in columns]
            print(form.format(name, kind, f"{epsilon:g}", *cells), flush=True)
        print(f"  ({len(X)} records of {len(first)} persons in the last draw)", flush=True)


if __name__ == "__main__":
    main()

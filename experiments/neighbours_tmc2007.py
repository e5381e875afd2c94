"""Neighbours as voters on aviation safety reports (tmc2007): a student's AUC by privacy budget.

20,000 private reports vote on 4,000 public ones; 4,000 others are the test. Every row but the first
is unconditional (epsilon, 1e-5)-differential privacy for replacing one report with all its labels.

- true labels: a logistic regression on the 4,000 true labels, without privacy, for scale.
- noisy gradients: ``DPLinear`` on the private reports, on words and on the TF-IDF of the others.
- neighbours: ``PrivateClassifier("neighbours")`` with its defaults, on words: it embeds them by the
  public rows, learns the allowance and releases tallies, with one share by public numbers.

Run: python experiments/neighbours_tmc2007.py [--epsilon 2 8] [--seeds 5]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from privote.datasets import mulan
from privote.learning.gradients import DPLinear
from privote.learning.private import PrivateClassifier

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "mulan_tmc2007-500.arff"
PRIVATE, PUBLIC, TEST = 20_000, 4_000, 4_000
DELTA = 1e-5


@dataclass(frozen=True)
class Task:
    """One split, as it is and weighted by TF-IDF from the public rows."""

    private: tuple[csr_array, np.ndarray]
    public: tuple[csr_array, np.ndarray]
    test: tuple[csr_array, np.ndarray]
    weighted: tuple[csr_array, csr_array, csr_array]


def load(seed: int) -> Task:
    data = mulan(SHARED)
    order = np.random.default_rng(seed).permutation(len(data.Y))
    stops = np.cumsum([0, PRIVATE, PUBLIC, TEST])
    parts = [order[low:high] for low, high in pairwise(stops)]
    private, public, test = ((csr_array(data.X[rows]), data.Y[rows]) for rows in parts)
    weights = TfidfTransformer().fit(public[0])
    sides = (private, public, test)
    return Task(*sides, weighted=tuple(weights.transform(side[0]) for side in sides))


def auc(task: Task, scores: np.ndarray) -> float:
    """Return the mean over labels of the area under the ROC curve."""
    return float(roc_auc_score(task.test[1], scores, average="macro"))


def truth(task: Task) -> float:
    """Return the AUC of one logistic regression per label, on the true labels of public rows."""
    pool, unseen = task.weighted[1], task.weighted[2]
    scores = [
        LogisticRegression(max_iter=300).fit(pool, column).decision_function(unseen)
        for column in task.public[1].T
    ]
    return auc(task, np.stack(scores, axis=1))


def rivals(task: Task, epsilon: float, seed: int) -> dict[str, float]:
    """Return the AUC of noisy gradient descent under the same promise."""
    found = {}
    sides = {"words": (task.private[0], task.test[0]), "TF-IDF": task.weighted[::2]}
    for name, (rows, unseen) in sides.items():
        model = DPLinear(epsilon, DELTA, seed=seed)
        model.fit(rows, task.private[1])
        found[f"noisy gradients, {name}"] = auc(task, unseen @ model.coef_.T)
    return found


def neighbours(task: Task, epsilon: float, seed: int) -> dict[str, float]:
    """Return the AUC of the estimator as a user gets it, on words."""
    model = PrivateClassifier("neighbours", epsilon, DELTA, random_state=seed)
    model.fit(*task.private, task.public[0], seed=seed)
    return {"neighbours": auc(task, model.predict_proba(task.test[0]))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[2.0, 8.0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    given = parser.parse_args()
    if not SHARED.exists():
        print(f"The data is absent: there is no {SHARED.name} in ../shared/data.")
        return
    found: dict[tuple[float, str], list[float]] = {}
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        task, started = load(seed), time.perf_counter()
        known = truth(task)
        for epsilon in given.epsilon:
            rows = {"true labels": known} | rivals(task, epsilon, seed)
            rows |= neighbours(task, epsilon, seed)
            for name, value in rows.items():
                found.setdefault((epsilon, name), []).append(value)
        print(f"seed {seed}: {time.perf_counter() - started:.0f} s", flush=True)
    print(f"\n{'epsilon':>7}  {'labels, student':<24} {'AUC':>6}  {'+-':>6}  by seed")
    for (epsilon, name), values in found.items():
        each = " ".join(f"{value:.4f}" for value in values)
        print(f"{epsilon:7g}  {name:<24} {np.mean(values):6.4f}  {np.std(values):6.4f}  {each}")


if __name__ == "__main__":
    main()

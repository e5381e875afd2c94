"""Neighbours as voters on aviation safety reports (tmc2007): a student's AUC by privacy budget.

20,000 private reports vote on 4,000 public ones; 4,000 others are the test. Every row but the first
is unconditional (epsilon, 1e-5)-differential privacy for replacing one report with all its labels.
What is tuned was tuned on the split of seed 100, which is not among those reported by default.

- true labels: a logistic regression on the 4,000 true labels, without privacy, for scale.
- noisy gradients: ``DPLinear`` on the private reports, on words and on the TF-IDF of the others.
- one share: the same share for all labels; a logistic regression on the released labels.
- balanced: a first batch of 400 queries says how common each label is; then all are asked, more
  than once, with a share for each label; a logistic regression on all released labels.
- balanced, aware: the same labels; the student knows how they were drawn (``NeighbourStudent``).
- PATEClassifier, defaults: the estimator with ``voters="neighbours", embedding="tfidf"``, whose own
  rule settles noise, shares and passes from public numbers.

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

import privote as pv
from privote.datasets import mulan
from privote.learning.direct.linear import DPLinear
from privote.learning.neighbours.ballots import NeighbourBallots
from privote.learning.neighbours.labelling import NeighbourStudent, balanced_shares
from privote.learning.pate import PATEClassifier

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "mulan_tmc2007-500.arff"
PRIVATE, PUBLIC, TEST = 20_000, 4_000, 4_000
DELTA, FIRST, SMALLEST = 1e-5, 400, 0.002


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Public choices for one budget."""

    one: tuple[float, float]  # one share: share, sigma
    start: float  # balanced: the share of the first batch,
    sigma: float
    false_alarm: float
    aim: float
    passes: int  # how often every query is asked,
    C: float  # the logistic regression's,
    aware: float  # and that of the student that knows


SETTINGS = {
    2.0: Setting(
        one=(0.01, 40.0), start=0.01, sigma=60.0, false_alarm=0.1, aim=0.35, passes=2, C=0.1,
        aware=1.0,
    ),
    8.0: Setting(
        one=(0.003, 10.0), start=0.005, sigma=20.0, false_alarm=0.05, aim=0.45, passes=4, C=0.1,
        aware=0.3,
    ),
}  # fmt: skip


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


def logistic(task: Task, rows: np.ndarray, labels: np.ndarray, C: float) -> float:
    """Return the AUC of one logistic regression per label, on public rows as often as asked."""
    pool, unseen = task.weighted[1][rows], task.weighted[2]
    scores = np.zeros((unseen.shape[0], labels.shape[1]))
    for label in range(labels.shape[1]):
        if len(np.unique(labels[:, label])) > 1:
            model = LogisticRegression(C=C, max_iter=300).fit(pool, labels[:, label])
            scores[:, label] = model.decision_function(unseen)
    return auc(task, scores)


def rivals(task: Task, epsilon: float, seed: int) -> dict[str, float]:
    """Return the AUC of noisy gradient descent under the same promise."""
    found = {}
    sides = {"words": (task.private[0], task.test[0]), "TF-IDF": task.weighted[::2]}
    for name, (rows, unseen) in sides.items():
        model = DPLinear(epsilon, DELTA, adjacency="replace", seed=seed)
        model.fit(rows, task.private[1])
        found[f"noisy gradients, {name}"] = auc(task, unseen @ model.coef_.T)
    return found


def one_share(task: Task, setting: Setting, epsilon: float, seed: int) -> dict[str, float]:
    """Return the AUC with the same share for all labels."""
    share, sigma = setting.one
    mechanism = pv.BinaryVoting(sigma=sigma, false_alarm=0.05)
    release = pv.label(
        ballots(task, share), mechanism=mechanism, epsilon=epsilon, delta=DELTA, seed=seed
    )
    return {"one share": logistic(task, np.arange(PUBLIC), release.labels, 0.2)}


def balanced(task: Task, setting: Setting, epsilon: float, seed: int) -> dict[str, float]:
    """Return the AUC with shares that follow a first batch of released labels."""
    mechanism = pv.BinaryVoting(sigma=setting.sigma, false_alarm=setting.false_alarm)
    votes = ballots(task, setting.start)
    electorate = pv.Electorate(
        mechanism=mechanism,
        voters=PRIVATE,
        labels=task.private[1].shape[1],
        epsilon=epsilon,
        delta=DELTA,
        seed=seed,
    )
    first = np.arange(FIRST)
    known = electorate.answer(votes.take(first)).labels
    shares = balanced_shares(known, setting.start, mechanism, PRIVATE, aim=setting.aim)
    # Few different circles: a factor of two apart is close enough.
    steps = np.round(np.log2(np.maximum(shares / SMALLEST, 1)))
    wide = votes.with_share(SMALLEST * 2**steps)
    batches, rows = [(votes.take(first).circles(), known)], [first]
    for turn in range(setting.passes):
        rows.append(np.arange(0 if turn else FIRST, PUBLIC))
        batch = wide.take(rows[-1])
        batches.append((batch.circles(), electorate.answer(batch).labels))
    student = NeighbourStudent(mechanism, C=setting.aware).fit(task.weighted[1], batches)
    labels = np.concatenate([released for _, released in batches])
    return {
        "balanced": logistic(task, np.concatenate(rows), labels, setting.C),
        "balanced, aware": auc(task, student.decision_function(task.weighted[2])),
    }


def estimator(task: Task, epsilon: float, seed: int) -> dict[str, float]:
    """Return the AUC of the estimator as a user gets it, on words."""
    model = PATEClassifier(
        voters="neighbours", embedding="tfidf", epsilon=epsilon, delta=DELTA, random_state=seed
    )
    model.fit(*task.private, task.public[0], seed=seed)
    return {"PATEClassifier, defaults": auc(task, model.predict_proba(task.test[0]))}


def ballots(task: Task, share: float) -> NeighbourBallots:
    """Return the private reports as voters on the public ones."""
    return NeighbourBallots(*task.private, task.public[0], share, radius="query", embedding="tfidf")


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
        truth = logistic(task, np.arange(PUBLIC), task.public[1], 1.0)
        for epsilon in given.epsilon:
            setting = SETTINGS[epsilon]
            rows = {"true labels": truth} | rivals(task, epsilon, seed)
            rows |= one_share(task, setting, epsilon, seed) | balanced(task, setting, epsilon, seed)
            rows |= estimator(task, epsilon, seed)
            for name, value in rows.items():
                found.setdefault((epsilon, name), []).append(value)
        print(f"seed {seed}: {time.perf_counter() - started:.0f} s", flush=True)
    print(f"\n{'epsilon':>7}  {'labels, student':<24} {'AUC':>6}  {'+-':>6}  by seed")
    for (epsilon, name), values in found.items():
        each = " ".join(f"{value:.4f}" for value in values)
        print(f"{epsilon:7g}  {name:<24} {np.mean(values):6.4f}  {np.std(values):6.4f}  {each}")


if __name__ == "__main__":
    main()

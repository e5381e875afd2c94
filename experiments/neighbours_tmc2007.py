"""Neighbours as voters on aviation safety reports (tmc2007): a student's AUC by privacy budget.

20,000 private reports vote on 4,000 public ones; 4,000 others are the test. Unconditional
(epsilon, 1e-5)-differential privacy for replacing one report with all its labels. Everything that
is tuned was tuned on the split of seed 100, which is not among those reported by default.

Rows of the table:

- one share: the same circle for all labels; logistic regression on the released labels.
- balanced: a first batch of 400 queries says how common each label is, and the other 3,600 are
  asked with a share for each label.
- balanced, aware: the student knows how labels were drawn (``NeighbourStudent``).
- true labels: the same student on the 4,000 true labels, without privacy, for scale.

Run: python experiments/neighbours_tmc2007.py [--epsilon 2 8] [--seeds 5]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import privote as pv
from privote.datasets import mulan
from privote.learning.neighbour_student import NeighbourStudent
from privote.learning.neighbours import NeighbourBallots
from privote.learning.shares import balanced_shares

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "mulan_tmc2007-500.arff"
PRIVATE, PUBLIC, TEST = 20_000, 4_000, 4_000
DELTA, FIRST = 1e-5, 400


@dataclass(frozen=True)
class Setting:
    """Public choices for one budget; ``one`` is for one share, the rest for balanced ones."""

    one: tuple[float, float]  # share, sigma
    start: float
    sigma: float
    false_alarm: float
    aim: float
    penalty: float  # C of the logistic regressions
    aware: float  # C of the student that knows


SETTINGS = {
    2.0: Setting((0.01, 40.0), 0.01, 45.0, 0.10, 0.45, 0.2, 1.0),
    8.0: Setting((0.003, 10.0), 0.004, 14.0, 0.02, 0.35, 0.5, 0.7),
}


@dataclass(frozen=True)
class Task:
    """One split, as it is and weighted by TF-IDF from the public rows."""

    private: tuple[csr_array, np.ndarray]
    public: tuple[csr_array, np.ndarray]
    test: tuple[csr_array, np.ndarray]
    pool: csr_array
    unseen: csr_array


def load(seed: int) -> Task:
    data = mulan(SHARED, sparse=True)
    order = np.random.default_rng(seed).permutation(len(data.Y))
    stops = np.cumsum([0, PRIVATE, PUBLIC, TEST])
    parts = [order[low:high] for low, high in zip(stops[:-1], stops[1:], strict=True)]
    private, public, test = ((csr_array(data.X[rows]), data.Y[rows]) for rows in parts)
    weights = TfidfTransformer().fit(public[0])
    return Task(private, public, test, weights.transform(public[0]), weights.transform(test[0]))


def auc(task: Task, scores: np.ndarray) -> float:
    """Return the mean over labels of the area under the ROC curve."""
    return float(roc_auc_score(task.test[1], scores, average="macro"))


def logistic(task: Task, labels: np.ndarray, penalty: float) -> float:
    """Return the AUC of one logistic regression per label."""
    scores = np.zeros((task.unseen.shape[0], labels.shape[1]))
    for label in range(labels.shape[1]):
        if 0 < labels[:, label].sum() < len(labels):
            model = LogisticRegression(C=penalty, max_iter=300)
            model.fit(task.pool, labels[:, label])
            scores[:, label] = model.decision_function(task.unseen)
    return auc(task, scores)


def one_share(task: Task, setting: Setting, epsilon: float, seed: int) -> dict[str, float]:
    share, sigma = setting.one
    votes = ballots(task, share)
    mechanism = pv.BinaryVoting(sigma=sigma, false_alarm=0.05)
    release = pv.label(votes, mechanism=mechanism, epsilon=epsilon, delta=DELTA, seed=seed)
    return {"one share": logistic(task, release.labels, setting.penalty)}


def balanced(task: Task, setting: Setting, epsilon: float, seed: int) -> dict[str, float]:
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
    first = votes.take(np.arange(FIRST))
    known = electorate.answer(first).labels
    shares = balanced_shares(known, setting.start, mechanism, PRIVATE, aim=setting.aim)
    # Few different circles: a factor of two apart is close enough.
    rest = votes.with_share(0.002 * 2 ** np.round(np.log2(np.maximum(shares, 0.002) / 0.002)))
    rest = rest.take(np.arange(FIRST, PUBLIC))
    more = electorate.answer(rest).labels
    labels = np.concatenate([known, more])
    student = NeighbourStudent(mechanism, C=setting.aware)
    student.fit(task.pool, [(first.circles(), known), (rest.circles(), more)])
    return {
        "balanced": logistic(task, labels, setting.penalty),
        "balanced, aware": auc(task, student.decision_function(task.unseen)),
    }


def ballots(task: Task, share: float) -> NeighbourBallots:
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
        truth = logistic(task, task.public[1], 1.0)
        for epsilon in given.epsilon:
            setting = SETTINGS[epsilon]
            rows = {"true labels": truth}
            rows |= one_share(task, setting, epsilon, seed) | balanced(task, setting, epsilon, seed)
            for name, value in rows.items():
                found.setdefault((epsilon, name), []).append(value)
        print(f"seed {seed}: {time.perf_counter() - started:.0f} s", flush=True)
    print(f"\n{'epsilon':>7}  {'labels, student':<18} {'AUC':>6}  {'+-':>6}  by seed")
    for (epsilon, name), values in found.items():
        each = " ".join(f"{value:.4f}" for value in values)
        print(f"{epsilon:7g}  {name:<18} {np.mean(values):6.4f}  {np.std(values):6.4f}  {each}")


if __name__ == "__main__":
    main()

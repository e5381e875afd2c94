"""Fifty teachers, and 250: all labels of a part at once, against scikit-learn's loop.

The peer trains scikit-learn's logistic regression, as it comes, for each teacher and each label.
Both see the same parts and answer the same queries, in one thread and in one run: linear algebra of
this size only gets slower with more threads. The data is tmc2007-500 where it is on this machine,
else made up in its shape.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from comparison import peer, row
from scipy.stats import rankdata
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from threadpoolctl import threadpool_limits

from privote.learning import LinearTeachers, cast, train
from privote.learning.teachers import partition

RECORDS, FEATURES, LABELS, QUERIES = 28_596, 500, 22, 4_000
Timed = tuple[Any, float, float]


def real() -> tuple[np.ndarray, np.ndarray] | None:
    """Return tmc2007-500 as float32 rows and labels, or None if it is not here."""
    home = os.environ.get("PRIVOTE_SHARED")
    folder = Path(home) if home else Path(__file__).resolve().parents[2] / "shared"
    path = folder / "data" / "mulan_tmc2007-500.arff"
    if not path.exists():
        return None
    from privote.datasets import mulan

    data = mulan(path)
    return np.asarray(data.X, np.float32), np.asarray(data.Y, np.int8)


def made_up() -> tuple[np.ndarray, np.ndarray]:
    """Return words and topics: 22 of 500 words are present, labels are linear with noise."""
    rng = np.random.default_rng(0)
    X = (rng.random((RECORDS, FEATURES)) < rng.beta(0.5, 10, FEATURES)).astype(np.float32)
    scores = X @ rng.normal(size=(FEATURES, LABELS)) + rng.normal(size=(RECORDS, LABELS))
    shares = np.geomspace(0.5, 0.015, LABELS)
    bars = [np.quantile(each, 1 - share) for each, share in zip(scores.T, shares, strict=True)]
    return X, (scores > bars).astype(np.int8)


def timed(work: Callable[[], Any]) -> Timed:
    """Return what the work gives, its seconds, and its processor seconds."""
    wall, processor = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - processor


def one_by_one(X: np.ndarray, Y: np.ndarray, part: np.ndarray, teachers: int) -> list[Any]:
    return [
        OneVsRestClassifier(LogisticRegression()).fit(X[part == t], Y[part == t])
        for t in range(teachers)
    ]


def mean_auc(answers: np.ndarray, truth: np.ndarray) -> float:
    """Return the mean over teachers of the macro-AUC of (queries, teachers, labels)."""
    queries = len(answers)
    ranks = rankdata(answers.reshape(queries, -1), axis=0).reshape(answers.shape)
    ones = truth.sum(axis=0)
    won = np.einsum("qtk,qk->tk", ranks, truth.astype(float)) - ones * (ones + 1) / 2
    both = (ones > 0) & (ones < queries)
    return float((won / np.maximum(ones * (queries - ones), 1))[:, both].mean())


def compare(X: np.ndarray, Y: np.ndarray, teachers: int) -> None:
    queries, answers_to = X[:QUERIES], Y[:QUERIES]
    X, Y = X[QUERIES:], Y[QUERIES:]
    part = partition(len(X), teachers, key=0)
    runs = [timed(lambda: train(None, X, Y, part, teachers)) for _ in range(3)]
    ours, wall, processor = sorted(runs, key=lambda run: run[1])[1]
    slow, slow_wall, slow_processor = timed(lambda: one_by_one(X, Y, part, teachers))
    cube, asked, _ = timed(lambda: np.concatenate(list(ours.predict_proba(queries))))
    slow_cube, slow_asked, _ = timed(
        lambda: np.stack([model.predict_proba(queries) for model in slow], axis=1)
    )
    _, voting, _ = timed(lambda: cast(ours, queries))
    low, high = int(ours.sizes.min()), int(ours.sizes.max())
    print(f"\n{teachers} teachers x {Y.shape[1]} labels, {low} to {high} records each")
    print(f"privote: trained in {wall:.2f} s ({processor:.2f} s of processor), median of 3 runs")
    print(f"         {len(queries):,} queries answered in {asked:.2f} s; votes in {voting:.2f} s")
    print(f"         mean macro-AUC of a teacher {mean_auc(cube, answers_to):.4f}")
    print(f"peer:    trained in {slow_wall:.2f} s ({slow_processor:.2f} s of processor)")
    print(f"         {len(queries):,} queries answered in {slow_asked:.2f} s")
    print(f"         mean macro-AUC of a teacher {mean_auc(slow_cube, answers_to):.4f}")
    by = peer("a logistic regression each", "scikit-learn")
    row(f"train {teachers} teachers x {Y.shape[1]} labels", wall, slow_wall, "s", by)
    row(f"ask {teachers} teachers {len(queries):,} queries", asked, slow_asked, "s", by)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teachers", type=int, nargs="+", default=[50, 250])
    arguments = parser.parse_args()
    found = real()
    X, Y = found or made_up()
    order = np.random.default_rng(0).permutation(len(X))
    X, Y = X[order], Y[order]
    print(f"{'tmc2007-500' if found else 'made-up data'}: {X.shape[0]:,} x {X.shape[1]} float32")
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train(LinearTeachers(), X[:500], Y[:500], np.zeros(500, int), 1)  # imports
        for teachers in arguments.teachers:
            compare(X, Y, teachers)


if __name__ == "__main__":
    main()

"""Make votes like the embedded ones from the public Mulan file of tmc2007-500.

    python experiments/make_teacher_votes.py FOLDER/tmc2007-500.arff [--output votes.npz]

The reports are permuted with seed 0. The first 4,000 are voted on: these are, report by report, the
queries of the embedded votes, whose truth must come out equal. The others are dealt to 50 teachers,
one logistic regression a label each; a teacher says yes above one half. How the embedded votes'
teachers were dealt theirs was not kept, so the two agree in kind, not bit by bit: the script prints
how well. C = 1 is the one of three tried (1, 0.1, 0.03) that agrees best.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from privote.datasets import load_teacher_votes, mulan

QUERIES, TEACHERS = 4000, 50


def vote(X: np.ndarray, Y: np.ndarray, pool: np.ndarray, strength: float) -> np.ndarray:
    """Return one teacher's votes on the pool: (queries, labels)."""
    said = np.zeros((len(pool), Y.shape[1]), bool)
    for label, column in enumerate(Y.T):
        if column.min() == column.max():
            said[:, label] = column[0]
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            said[:, label] = LogisticRegression(C=strength).fit(X, column).predict(pool)
    return said


def describe(name: str, votes: np.ndarray, truth: np.ndarray) -> None:
    share = votes.mean(axis=1)
    majority = share > 0.5
    print(
        f"{name:<9} yes {votes.mean():.4f}"
        f"  a teacher is right {np.mean(votes == truth[:, None]):.4f}"
        f"  majority {np.mean(majority == truth):.4f}"
        f"  cells where all but 5 agree {np.mean(np.minimum(share, 1 - share) <= 0.1):.4f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("arff", type=Path)
    parser.add_argument("--strength", type=float, default=1.0, help="C of the regressions")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    data, known = mulan(arguments.arff), load_teacher_votes()
    X, Y = np.asarray(data.X, np.float64), np.asarray(data.Y) == 1
    order = np.random.default_rng(0).permutation(len(Y))
    pool, rest = order[:QUERIES], order[QUERIES:]
    print(f"the same reports: {np.array_equal(Y[pool], known.truth)}")
    made = Parallel(n_jobs=-1)(
        delayed(vote)(X[part], Y[part], X[pool], arguments.strength)
        for part in np.array_split(rest, TEACHERS)
    )
    votes = np.stack(made, axis=1)
    describe("embedded", known.votes, known.truth)
    describe("made", votes, known.truth)
    same = (votes.mean(axis=1) > 0.5) == (known.votes.mean(axis=1) > 0.5)
    print(f"the majorities agree on {same.mean():.4f} of the cells")
    if arguments.output is not None:
        packed = {"votes": np.packbits(votes), "truth": np.packbits(known.truth)}
        np.savez_compressed(arguments.output, shape=np.array(votes.shape), **packed)
        print(f"written to {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

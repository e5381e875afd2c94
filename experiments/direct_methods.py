"""Gradients and moments, with a public embedding: test AUC by privacy budget on five data sets.

One split each, delta 1e-5, promises for one record replaced. tmc2007: 20,000 private reports, 4,000
public, 4,000 test; yeast, emotions and scene: three fifths private, one fifth public, one fifth
test; scenes as they come, on landmarks. Noise is seeded (a simulation): three seeds, the mean.

Run: python experiments/direct_methods.py [--sets scenes yeast] [--epsilon 8 4 2 1] [--seeds 3]
    [--methods moments]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import privote as pv
from privote.datasets import mulan
from privote.datasets import open as open_data
from privote.learning.embedding import Landmarks
from privote.learning.gradients import DPLinear
from privote.learning.moments import DPMoments
from privote.learning.students import LinearStudent

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
FILES = {
    "tmc2007": ("tmc2007-500",),
    "yeast": ("yeast",),
    "emotions": ("emotions",),
    "scene": ("scene-train", "scene-test"),
}
METHODS: dict[str, Any] = {
    "gradients, not embedded": lambda **given: DPLinear(embedding=None, **given),
    "gradients": lambda **given: DPLinear(**given),
    "moments": lambda **given: DPMoments(**given),
}
DELTA = 1e-5


def load(name: str, folder: Path) -> tuple[Any, Any, Any, Any, Any]:
    """Return private rows and labels, public rows, test rows and labels."""
    if name == "scenes":
        sides = open_data("scenes").split()
        see = Landmarks().fit(sides.public.X).transform
        private, public, test = sides.private, sides.public, sides.test
        return see(private.X), private.Y, see(public.X), see(test.X), test.Y
    parts = [mulan(folder / f"mulan_{file}.arff") for file in FILES[name]]
    X: Any = np.vstack([part.X.toarray() if sp.issparse(part.X) else part.X for part in parts])
    Y = np.vstack([part.Y for part in parts])
    sizes = (20_000, 4_000, 4_000) if name == "tmc2007" else (len(Y) * 3 // 5, len(Y) // 5, len(Y))
    if name == "tmc2007":
        X = sp.csr_array(X)  # words
    order = np.random.default_rng(0).permutation(len(Y))
    private, public, test = np.split(order[: sum(sizes)], np.cumsum(sizes)[:2])
    return X[private], Y[private], X[public], X[test], Y[test]


def main() -> None:
    """Print one row a data set and method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=["scenes", *FILES])
    parser.add_argument("--epsilon", nargs="+", type=float, default=[8.0, 4.0, 2.0, 1.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--shared", type=Path, default=SHARED)
    given = parser.parse_args()
    print("| | method | " + " | ".join(f"ε = {e:g}" for e in given.epsilon) + " |")
    for name in given.sets:
        X, Y, X_public, X_test, Y_test = load(name, given.shared)
        best = LinearStudent().fit(X, Y).predict_proba(X_test)
        auc = pv.metrics.multilabel(Y_test, best)["AUC"]
        print(f"| {name} | not private | {auc:.3f} |", flush=True)
        for method in given.methods:
            make, found = METHODS[method], []
            for epsilon in given.epsilon:
                figures = []
                for seed in range(given.seeds):
                    model = make(epsilon=epsilon, delta=DELTA, seed=seed).fit(X, Y, X_public)
                    figures.append(
                        pv.metrics.multilabel(Y_test, model.predict_proba(X_test))["AUC"]
                    )
                found.append(f"{np.mean(figures):.3f}")
            print(f"| {name} | {method} | {' | '.join(found)} |", flush=True)
    sys.stdout.flush()


if __name__ == "__main__":
    main()

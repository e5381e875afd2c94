"""Students of the same 300 released labels: with guesses about unlabelled rows, and without.

Teachers on parts of the private rows vote by prevalence; binary voting releases 300 rows. Every
student sees the same rows and labels, and the rest of the public rows if it can use them. Students
without guesses are tuned *on the test rows*, which favours them; MixMatch is as it comes. Means and
standard deviations over seeds: each seed is another split, partition, training and noise. BAC is
for the share of yes that was released.

Run: python experiments/students.py --seeds 3
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np
from sklearn.linear_model import LogisticRegression
from tasks import NAMES, load

import privote as pv
from privote.learning import PartialLabels, cast, train
from privote.learning.mixmatch import MixMatchClassifier
from privote.learning.networks import Rows, Scaling
from privote.learning.teachers import partition

QUERIES = 300
# Teachers and sigma; rows moved from the private to the public side, where that has few.
VOTES = {"tmc2007": (50, 7.0, 0), "yeast": (12, 3.0, 400), "scene": (12, 3.0, 400)}
VOTES["scenes"] = (50, 7.0, 0)
STRENGTHS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0)
DROPPED = (0.0, 0.2, 0.5, 0.7)
FIGURES = ("AUC", "MAP", "BAC")
Answer = Callable[[np.ndarray], np.ndarray]


class Lesson:
    """Public rows, of which the first have released labels, and test rows."""

    def __init__(self, name: str, seed: int) -> None:
        task = load(name, seed)
        teachers, sigma, moved = VOTES[name]
        kept = len(task.X_private) - moved
        X_public = np.concatenate([task.X_public, task.X_private[kept:]])
        parts = partition(kept, teachers, key=seed)
        ensemble = train(None, task.X_private[:kept], task.Y_private[:kept], parts, teachers)
        votes = cast(ensemble, X_public)[:QUERIES]
        self.labels = pv.BinaryVoting(sigma=sigma, quota=0.4).release(votes, seed=seed)
        self.rows, self.rest = X_public[:QUERIES], X_public[QUERIES:]
        self.X_test, self.Y_test, self.seed = task.X_test, task.Y_test, seed
        self.share = (self.labels.sum(axis=0) + 1) / (len(self.labels) + 2)

    def judge(self, answer: Answer) -> np.ndarray:
        """Return AUC, MAP and BAC on the test rows."""
        pool, chance = answer(self.rest), answer(self.X_test)
        pairs = zip(pool.T, self.share, strict=True)
        bars = np.array([np.quantile(column, 1 - share) for column, share in pairs])
        found = pv.metrics.multilabel(self.Y_test, chance, (chance >= bars).astype(np.int8))
        return np.array([found[figure] for figure in FIGURES])

    def linear(self) -> Iterator[np.ndarray]:
        """Yield logistic regressions of several strengths."""
        scale = Scaling.of([Rows(self.rows), Rows(self.rest)])
        for strength in STRENGTHS:
            model = PartialLabels(LogisticRegression(C=strength, max_iter=500))
            model.fit(scale(self.rows), self.labels)
            yield self.judge(lambda X, model=model: model.predict_proba(scale(X)))

    def network(self) -> Iterator[np.ndarray]:
        """Yield the same network without guesses, with several shares of values left out."""
        for dropped in DROPPED:
            model = MixMatchClassifier(
                unlabelled_weight=0.0, mixup=0.0, feature_dropout=dropped, random_state=self.seed
            ).fit(self.rows, self.labels, X_unlabelled=self.rest)
            yield self.judge(model.predict_proba)

    def mixmatch(self) -> Iterator[np.ndarray]:
        """Yield MixMatch as it comes."""
        model = MixMatchClassifier(random_state=self.seed)
        yield self.judge(model.fit(self.rows, self.labels, self.rest).predict_proba)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", nargs="+", choices=NAMES, default=NAMES)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)
    for name in arguments.data:
        started = time.perf_counter()
        lessons = [Lesson(name, seed) for seed in range(arguments.seeds)]
        print(f"{name}: {len(lessons[0].rest)} unlabelled rows, {arguments.seeds} seeds")
        for who in ("linear", "network", "mixmatch"):
            # Figures of (seeds, settings, 3); the setting with the best mean AUC.
            tried = np.array([list(getattr(lesson, who)()) for lesson in lessons])
            best = tried[:, int(np.argmax(tried.mean(axis=0)[:, 0]))]
            figures = zip(FIGURES, best.mean(axis=0), best.std(axis=0), strict=True)
            print(
                f"  {who:9s}", *(f"{f} {mean:.3f} ± {sd:.3f}" for f, mean, sd in figures), sep="  "
            )
            sys.stdout.flush()
        print(f"  {time.perf_counter() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Where rounds help PATE's teachers: the student so far as the baseline of the next queries.

With more than one round, votes that agree with the student so far cost nothing. Everything is
PATE's own default: an allowance that is learnt for all rows, and tallies. "used" is how much of it
a mean teacher has cast, a sealed number that only a simulation may print. Means and standard
deviations over seeds: each seed is another split, partition, training and noise.

Run: python experiments/rounds.py --seeds 3
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings

import numpy as np
from tasks import load

import privote as pv

TEACHERS = (("scenes", 50), ("scenes", 100), ("tmc2007", 250), ("yeast", 50), ("scene", 50))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[8.0])
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--data", nargs="+", default=sorted({name for name, _ in TEACHERS}))
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=pv.PrivoteWarning)
    columns = "".join(
        f"{f'{rounds} rounds: labelled':>20s} {'used':>5s} {'AUC':^13s}"
        for rounds in arguments.rounds
    )
    print(f"{'':8s} {'teachers':>8s} {'epsilon':>7s} {'rows':>5s}{columns}  seconds", flush=True)
    for name, teachers in TEACHERS:
        for epsilon in arguments.epsilon if name in arguments.data else ():
            started, cells = time.perf_counter(), []
            for rounds in arguments.rounds:
                found = np.array(
                    [
                        _run(name, teachers, rounds, epsilon, arguments.delta, seed)
                        for seed in range(arguments.seeds)
                    ]
                )
                (labelled, used, mean), spread = found.mean(axis=0), found[:, 2].std(ddof=1)
                cells.append(f"{labelled:20.0f} {used:5.2f} {mean:.3f} ± {spread:.3f}")
            rows, seconds = len(load(name).X_public), time.perf_counter() - started
            line = f"{name:8s} {teachers:8d} {epsilon:7g} {rows:5d}{''.join(cells)}"
            print(f"{line}  {seconds:7.0f}", flush=True)
    return 0


def _run(
    name: str, teachers: int, rounds: int, epsilon: float, delta: float, seed: int
) -> tuple[float, float, float]:
    """Return how many rows were labelled, the part of the allowance used, and the student's AUC."""
    task = load(name, seed)
    pate = pv.PATEClassifier(
        n_teachers=teachers, rounds=rounds, epsilon=epsilon, delta=delta, random_state=seed
    )
    pate.fit(task.X_private, task.Y_private, task.X_public, seed=1000 + seed)
    used = float((pate.release_.sealed.spent / pate.release_.sealed.allowance).mean())
    figures = pv.metrics.multilabel(task.Y_test, pate.predict_proba(task.X_test))
    return pate.release_.answered, used, figures["AUC"]


if __name__ == "__main__":
    sys.exit(main())

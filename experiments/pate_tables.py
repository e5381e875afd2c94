"""PATE's students against models that learn from the private records themselves, on four data sets.

Every model is linear on the same features (MixMatch: a network) and judged on the same test rows.
The private ones promise the same (epsilon, delta) for changing one record; PATE by allowance. Means
and standard deviations over seeds: each seed is another split, partition, training and noise.

Run: python experiments/pate_tables.py --seeds 3
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from comparison import FIGURES, Comparison
from tasks import NAMES, load

from privote.errors import MissingExtraError

TEACHERS = {"tmc2007": 250, "yeast": 50, "scene": 50, "scenes": 100}


def runs(contest: Comparison, mixmatch: bool) -> dict[str, Callable[[], dict[str, Any]]]:
    """Return what is compared, by name."""
    found = {
        "not private": contest.without_privacy,
        "one teacher (not private)": contest.one_teacher,
        "DPSGD": contest.dpsgd,
        "PATE, teachers": lambda: contest.pate("PATE, teachers"),
        "PATE, neighbours": lambda: contest.pate("PATE, neighbours", voters="neighbours"),
    }
    if mixmatch:
        from privote.learning.mixmatch import MixMatchClassifier

        name = "PATE, teachers, MixMatch"
        found[name] = lambda: contest.pate(name, student=MixMatchClassifier())
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--no-mixmatch", action="store_true", help="leave the torch student out")
    arguments = parser.parse_args()
    for name in arguments.data:
        rows: dict[str, list[dict[str, Any]]] = {}
        started = time.perf_counter()
        for seed in range(arguments.seeds):
            task = load(name, seed)
            contest = Comparison(
                X_private=task.X_private,
                Y_private=task.Y_private,
                X_public=task.X_public,
                X_test=task.X_test,
                Y_test=task.Y_test,
                epsilon=arguments.epsilon,
                delta=arguments.delta,
                n_teachers=TEACHERS[name],
                random_state=seed,
                seed=1000 + seed,
            )
            for model, run in runs(contest, not arguments.no_mixmatch).items():
                print(f"{name}, seed {seed}: {model} ...", file=sys.stderr)
                try:
                    rows.setdefault(model, []).append(run())
                except MissingExtraError as error:
                    print(f"{model}: {error}", file=sys.stderr)
        sizes = f"{len(task.X_private)} private, {len(task.X_public)} public"
        print(
            f"\n{name}: {sizes}, {len(task.X_test)} test rows, {task.Y_test.shape[1]} labels; "
            f"{TEACHERS[name]} teachers; epsilon {arguments.epsilon:g}, delta "
            f"{arguments.delta:g}; {arguments.seeds} seeds, {time.perf_counter() - started:.0f} s"
        )
        print(f"{'model':27s} {'labelled':>8s}  " + "  ".join(f"{f:^13s}" for f in FIGURES))
        for model, found in rows.items():
            answered = [row["answered"] for row in found if row["answered"] is not None]
            shown = f"{np.mean(answered):.0f}" if answered else "-"
            print(f"{model:27s} {shown:>8s}  " + "  ".join(_spread(found, f) for f in FIGURES))
    return 0


def _spread(rows: list[dict[str, Any]], figure: str) -> str:
    values = [row[figure] for row in rows if row.get(figure) is not None]
    if not values:
        return f"{'refused':^13s}"
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=min(1, len(values) - 1)):.3f}"


if __name__ == "__main__":
    sys.exit(main())

"""tmc2007: what a student learns under each unconditional guarantee.

250 teachers, delta 1e-5. Every row is a student (logistic regressions, penalty chosen on released
labels, where it does not say MixMatch) trained on what one guarantee lets out of the same 4,000
public reports; neighbours are near by the TF-IDF of words, and answer a row more than once. Noise
comes from public numbers only: PATE's own default under an allowance; n / 2 under composition.

Run: python experiments/pate_guarantees.py --seeds 5
"""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

import numpy as np
from comparison import Comparison
from tasks import load

import privote as pv
from privote.learning.mixmatch import MixMatchClassifier
from privote.learning.students import LinearStudent
from privote.planning.budget import allowance_for, least

TEACHERS, DELTA = 250, 1e-5


def variants(contest: Comparison, labels: int, rows: int) -> dict[str, dict[str, Any]]:
    """Return the settings of PATE to compare, by name."""
    size = (TEACHERS, labels, contest.epsilon, DELTA)
    needed = math.ceil(rows * labels / 10)  # contributions of a voter who says yes to one in ten

    def lasts(sigma: float) -> bool:
        return allowance_for(pv.BinaryVoting(sigma=sigma), *size) >= needed

    sigma = least(lasts, 10.0, 1e-3)
    low = pv.BinaryVoting(sigma=min(sigma, 1.25 * TEACHERS), quota=0.3)
    return {
        "composition": {"guarantee": "worst-case"},
        "allowance, baseline of zeros": {},
        "  threshold 0.5": {"threshold": 0.5},
        "  quota 0.3": {"mechanism": low},
        "  threshold 0.5, quota 0.3": {"threshold": 0.5, "mechanism": low},
        "  quota 0.3, MixMatch student": {"mechanism": low, "student": MixMatchClassifier()},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[2.0, 8.0])
    arguments = parser.parse_args()
    found: dict[str, dict[float, list[dict[str, Any]]]] = {}
    for seed in range(arguments.seeds):
        task = load("tmc2007", seed)
        for epsilon in arguments.epsilon:
            contest = Comparison(
                X_private=task.X_private,
                Y_private=task.Y_private,
                X_public=task.X_public,
                X_test=task.X_test,
                Y_test=task.Y_test,
                epsilon=epsilon,
                delta=DELTA,
                n_teachers=TEACHERS,
                random_state=seed,
                seed=1000 + seed,
            )
            jobs = {
                name: lambda s=settings, n=name, c=contest: c.pate(n, **s)
                for name, settings in variants(
                    contest, task.Y_private.shape[1], len(task.X_public)
                ).items()
            }
            jobs["neighbours"] = lambda c=contest: c.pate(
                "neighbours", voters="neighbours", embedding="tfidf"
            )
            jobs["DPSGD, linear"] = contest.dpsgd
            jobs["true labels of the public rows"] = lambda c=contest, t=task: c.judge(
                "true labels",
                LinearStudent().fit(t.X_public, t.Y_public).predict_proba(t.X_test),
            )
            for name, job in jobs.items():
                print(f"seed {seed}, epsilon {epsilon:g}: {name.strip()} ...", file=sys.stderr)
                found.setdefault(name, {}).setdefault(epsilon, []).append(job())
    heads = "".join(f"{f'epsilon {e:g}: labelled':>22s} {'AUC':^13s}" for e in arguments.epsilon)
    print(
        f"Student's AUC on tmc2007 ({arguments.seeds} seeds, {TEACHERS} teachers, delta {DELTA:g})"
    )
    print(f"{'':36s}{heads}")
    for name, by_epsilon in found.items():
        cells = "".join(_cell(by_epsilon.get(epsilon, [])) for epsilon in arguments.epsilon)
        print(f"{name:36s}{cells}")
    return 0


def _cell(rows: list[dict[str, Any]]) -> str:
    values = [row["AUC"] for row in rows if row.get("AUC") is not None]
    if not values:
        return f"{'':>22s} {'refused':^13s}"
    answered = [row["answered"] for row in rows if row.get("answered") is not None]
    shown = f"{np.mean(answered):.0f}" if answered else "-"
    spread = np.std(values, ddof=min(1, len(values) - 1))
    refused = f" ({len(rows) - len(values)} refused)" if len(values) < len(rows) else ""
    return f"{shown:>22s} {np.mean(values):.3f} ± {spread:.3f}{refused}"


if __name__ == "__main__":
    sys.exit(main())

"""Every way to learn from private records, on six data sets, and what the rule for them would take.

Each run learns from private rows under (epsilon, 1e-5) for one record (patients: one person)
replaced and is judged on test rows: AUC, MAP and BAC of the labels that it predicts. A seed is
another split, another training, other noise. "auto" is the rule of ``privote.learning.methods``
with its numbers fitted on the other five data sets.

Results are kept in a file, so that a run that was stopped goes on.

Run: python experiments/methods.py --seeds 10 > experiments/results/methods.txt
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import privote as pv
from privote.datasets import load_patients, mulan
from privote.learning import LinearStudent, PrivateClassifier, TableEncoder
from privote.learning.methods import Numbers
from tasks import SHARED, load

DELTA = 1e-5
SETS = ("emotions", "yeast", "scene", "patients", "scenes", "tmc2007")
METHODS = ("gradients", "moments", "neighbours", "teachers")
EPSILONS = (1.0, 2.0, 4.0, 8.0)
FIGURES = ("AUC", "MAP", "BAC", "ACC")
TMC = (8_000, 2_000, 3_000)  # of 28,596 rows
Sides = dict[str, Any]


def sides(name: str, seed: int) -> Sides:
    """Return private rows, labels and persons, public rows, test rows and labels."""
    if name == "patients":
        return _patients(seed)
    if name == "emotions":
        data = mulan(SHARED / "data" / "mulan_emotions.arff")
        order = np.random.default_rng(seed).permutation(len(data.Y))
        parts = np.split(order, [350, 470])
        X = np.asarray(data.X, np.float32)
        X = (X - X[parts[1]].mean(axis=0)) / X[parts[1]].std(axis=0)
        return _named([X[rows] for rows in parts], [data.Y[rows] for rows in parts])
    task = load(name, seed)
    X = [task.X_private, task.X_public, task.X_test]
    Y = [task.Y_private, task.Y_public, task.Y_test]
    if name == "tmc2007":
        from scipy.sparse import csr_array

        X = [csr_array(rows[:size]) for rows, size in zip(X, TMC, strict=True)]
        Y = [rows[:size] for rows, size in zip(Y, TMC, strict=True)]
    return _named(X, Y)


def _named(X: list[Any], Y: list[Any], groups: Any = None) -> Sides:
    return {"X": X, "Y": Y[0], "Y_test": Y[2], "groups": groups}


def _patients(seed: int) -> Sides:
    """Return 9,000 visits, about 6,000 of them private; nobody is on two sides."""
    data = load_patients(9_000, seed)
    persons, place = np.unique(data.groups, return_inverse=True)
    side = np.random.default_rng(seed).choice(3, len(persons), p=[0.66, 0.17, 0.17])[place]
    rows = [np.flatnonzero(side == part) for part in range(3)]
    return _named(
        [data.X[part] for part in rows], [data.Y[part] for part in rows], data.groups[rows[0]]
    )


def numbers_of(task: Sides, epsilon: float) -> Numbers:
    """Return what is public about a training."""
    groups = task["groups"]
    return Numbers(
        records=len(task["Y"]) if groups is None else len(np.unique(groups)),
        labels=task["Y"].shape[1],
        public=task["X"][1].shape[0],
        epsilon=epsilon,
        delta=DELTA,
    )


def run(task: Sides, method: str, epsilon: float, seed: int) -> dict[str, float]:
    """Return the figures of one training."""
    X, X_public, X_test = task["X"]
    started = time.perf_counter()
    if method == "not private":
        if hasattr(X, "columns"):
            encode = TableEncoder().fit(X_public).transform
            X, X_test = (encode(rows).toarray() for rows in (X, X_test))
        model: Any = LinearStudent().fit(X, task["Y"])
    else:
        model = PrivateClassifier(method, epsilon, DELTA, random_state=seed)
        model.fit(X, task["Y"], X_public, groups=task["groups"], seed=1000 + seed)
    chance, said = model.predict_proba(X_test), model.predict(X_test)
    found = pv.metrics.multilabel(task["Y_test"], chance, said)
    half = pv.metrics.multilabel(task["Y_test"], chance)
    row = {name: float(found[name]) for name in FIGURES}
    row |= {f"{name} at 0.5": float(half[name]) for name in ("BAC", "ACC")}
    row["always no"] = float(1 - task["Y_test"][task["Y_test"] >= 0].mean())
    return row | {"seconds": time.perf_counter() - started}


def gather(kept: Path, names: list[str], seeds: int, budgets: list[float]) -> dict[str, Any]:
    """Return all figures by "set|epsilon|method|seed", and public numbers by set."""
    found: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    for seed in range(seeds):
        for name in names:
            jobs = [("not private", 0.0), *((m, e) for e in budgets for m in METHODS)]
            jobs = [job for job in jobs if f"{name}|{job[1]:g}|{job[0]}|{seed}" not in found]
            if not jobs:
                continue
            try:
                task = sides(name, seed)
            except (OSError, pv.InputError) as error:
                print(f"{name} is left out: {error}", file=sys.stderr)
                continue
            public = numbers_of(task, 1.0)
            found[name] = {x: getattr(public, x) for x in ("records", "labels", "public")}
            for method, epsilon in jobs:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    row = run(task, method, epsilon, seed)
                found[f"{name}|{epsilon:g}|{method}|{seed}"] = row
                part = kept.with_suffix(".part")
                part.write_text(json.dumps(found))
                os.replace(part, kept)
            print(f"{name}, seed {seed}", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    gather(Path(sys.argv[1]), sys.argv[2].split(","), int(sys.argv[3]), list(EPSILONS))

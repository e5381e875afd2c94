"""Every way to learn from private records, on six data sets, and what the rule for them would take.

Each run learns from private rows under (epsilon, 1e-5) for one record (patients: one person)
replaced and is judged on test rows: AUC, MAP and BAC of the labels that it predicts. A seed is
another split, another training, other noise. "auto" is the rule of ``privote.learning.methods``
with its numbers fitted on the other five data sets.

Results are kept in a file, so that a run that was stopped goes on.

Run: python experiments/methods.py --seeds 10 --kept FILE > experiments/results/methods.txt
     python experiments/methods.py --methods teachers --seeds 10 --kept FILE
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from tasks import SHARED, load

import privote as pv
from privote.datasets import load_patients, mulan
from privote.learning import LinearStudent, PrivateClassifier, TableEncoder
from privote.learning.methods import BAR, POWER, Numbers, rule

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


def gather(
    kept: Path, names: list[str], seeds: int, budgets: list[float], methods: list[str]
) -> dict[str, Any]:
    """Return all figures by "set|epsilon|method|seed", and public numbers by set."""
    found: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    for seed in range(seeds):
        for name in names:
            jobs = [("not private", 0.0), *((m, e) for e in budgets for m in methods)]
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


Found = dict[tuple[str, float], dict[str, list[dict[str, float]]]]


def by_cell(kept: dict[str, Any]) -> Found:
    """Return rows, one a seed, by (set, epsilon) and method."""
    cells: Found = {}
    for key, row in kept.items():
        if "|" in key:
            name, epsilon, method, _ = key.split("|")
            cells.setdefault((name, float(epsilon)), {}).setdefault(method, []).append(row)
    return cells


def mean(rows: list[dict[str, float]], figure: str) -> float:
    """Return the mean over seeds."""
    return float(np.mean([row[figure] for row in rows]))


def lost(cells: Found, numbers: dict[str, Any], power: float, bar: float) -> dict[Any, float]:
    """Return how much AUC the rule loses to the best method, cell by cell."""
    found = {}
    for (name, epsilon), methods in cells.items():
        if epsilon:
            best = max(mean(rows, "AUC") for rows in methods.values())
            taken = rule(Numbers(**numbers[name], epsilon=epsilon, delta=DELTA), power, bar)[0]
            found[name, epsilon] = best - mean(methods[taken], "AUC")
    return found


def fitted(cells: Found, numbers: dict[str, Any]) -> tuple[float, float]:
    """Return the power and bar that lose least on average; of equals the middle one."""
    tried = []
    for power in (0.5, 1.0, 1.5, 2.0):
        for bar in np.geomspace(1, 1e5, 101):
            tried.append((np.mean([*lost(cells, numbers, power, bar).values()]), power, bar))
    least = min(each[0] for each in tried)
    good = [each[1:] for each in tried if each[0] <= least + 1e-9]
    return good[len(good) // 2]


def report(kept: dict[str, Any]) -> None:
    """Print everything: figures of every method, and what the rule takes, fitted elsewhere."""
    cells, numbers = by_cell(kept), {name: kept[name] for name in kept if "|" not in name}
    print("AUC ± standard error / MAP / BAC of the predicted labels (BAC at 0.5); delta 1e-5.")
    print('"auto": what the rule takes here if it is fitted on the other sets.')
    gaps, direct = [], {}
    for name in SETS:
        if name not in numbers:
            print(f"\n{name}: its files are not there, so it is left out.")
            continue
        others = {cell: methods for cell, methods in cells.items() if cell[0] != name}
        power, bar = fitted(others, numbers)
        plain = mean(cells[name, 0.0]["not private"], "AUC")
        sizes = ", ".join(f"{value:,} {what}" for what, value in numbers[name].items())
        print(f"\n{name} ({sizes}); not private: AUC {plain:.3f}; the rule: power {power:g}, "
              f"bar {bar:.0f}")  # fmt: skip
        for epsilon in EPSILONS:
            methods = cells[name, epsilon]
            taken = rule(Numbers(**numbers[name], epsilon=epsilon, delta=DELTA), power, bar)[0]
            best = max(methods, key=lambda method: mean(methods[method], "AUC"))
            print(f"  epsilon {epsilon:g}, {len(methods[taken])} seeds, auto: {taken}")
            for method in METHODS:
                print(f"    {method:11s} {_figures(methods[method])}"
                      + ("  <- auto" if method == taken else ""))  # fmt: skip
            pairs = zip(methods[best], methods[taken], strict=True)
            apart = np.array([one["AUC"] - other["AUC"] for one, other in pairs])
            error = apart.std(ddof=1) / np.sqrt(len(apart)) if len(apart) > 1 else 0.0
            gaps.append((float(apart.mean()), float(error), name, epsilon, best, taken))
            better = max(mean(methods[method], "AUC") for method in ("gradients", "moments"))
            signal = Numbers(**numbers[name], epsilon=epsilon, delta=DELTA).signal
            direct[signal] = plain - better
    print(f"\nauto loses to the best method of each cell: {np.mean([g[0] for g in gaps]):.4f} AUC "
          f"on average over {len(gaps)} cells. The worst:")  # fmt: skip
    for gap, error, name, epsilon, best, taken in sorted(gaps, reverse=True)[:6]:
        print(f"  {name}, epsilon {epsilon:g}: {gap:.3f} ± {error:.3f} ({taken}, not {best})")
    power, bar = fitted(cells, numbers)
    print(f"\nFitted on all sets: power {power:g}, bar {bar:.0f}; it loses "
          f"{np.mean([*lost(cells, numbers, power, bar).values()]):.4f}.")  # fmt: skip
    print(f"In use: power {POWER:g}, bar {BAR:g}; it loses "
          f"{np.mean([*lost(cells, numbers, POWER, BAR).values()]):.4f}.")  # fmt: skip
    print("\nAUC that the better of gradients and moments loses to the same without privacy,\n"
          "by signal (records x epsilon / root of labels): mean, worst")  # fmt: skip
    edges = (0.0, 500.0, 1500.0, 4000.0, np.inf)
    for low, high in itertools.pairwise(edges):
        part = [value for signal, value in direct.items() if low <= signal < high]
        if part:
            print(f"  {low:g} to {high:g}: {np.mean(part):.3f}, {max(part):.3f} ({len(part)})")


def figures(kept: dict[str, Any]) -> None:
    """Print the figures of some methods, set by set."""
    print("AUC ± standard error / MAP / BAC of the predicted labels (BAC at 0.5); delta 1e-5.")
    for (name, epsilon), methods in by_cell(kept).items():
        for method, rows in methods.items():
            print(f"{name:9s} epsilon {epsilon:g}, {len(rows)} seeds, {method}: {_figures(rows)}")


def against_teachers(seeds: int = 3, epsilon: float = 4.0) -> None:
    """Print a table of patients: the default method, and fifty teachers with PATE's own noise."""
    rows: dict[str, list[dict[str, float]]] = {"fifty teachers": [], "by default": []}
    for seed in range(seeds):
        task = {**sides("patients", seed), "groups": None}  # records, not persons
        rows["by default"].append(run(task, "auto", epsilon, seed))
        encoder = TableEncoder().fit(task["X"][1])
        X, X_public, X_test = (encoder.numbers(side) for side in task["X"])
        pate = pv.PATEClassifier(epsilon=epsilon, delta=DELTA, random_state=seed)
        pate.fit(X, task["Y"], X_public, seed=1000 + seed)
        found = pv.metrics.multilabel(task["Y_test"], pate.predict_proba(X_test))
        rows["fifty teachers"].append({name: float(found[name]) for name in FIGURES})
    always = mean(rows["by default"], "always no")
    print(f"\npatients, epsilon {epsilon:g} for one record, {len(task['Y']):,} of them, {seeds} "
          f"seeds; always saying no is right for {always:.3f} of the labels:")  # fmt: skip
    for name, found in rows.items():
        shown = ", ".join(f"{figure} {mean(found, figure):.3f}" for figure in FIGURES)
        print(f"  {name:15s} {shown}")


def _figures(rows: list[dict[str, float]]) -> str:
    auc = [row["AUC"] for row in rows]
    error = np.std(auc, ddof=1) / np.sqrt(len(auc)) if len(auc) > 1 else 0.0
    return (
        f"{np.mean(auc):.3f} ± {error:.3f} / {mean(rows, 'MAP'):.3f} / {mean(rows, 'BAC'):.3f} "
        f"({mean(rows, 'BAC at 0.5'):.3f})"
    )


def main() -> int:
    """Run what is not there yet, and print everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--kept", type=Path, default=Path("methods.json"))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    given = parser.parse_args()
    kept = gather(given.kept, given.sets, given.seeds, list(EPSILONS), given.methods)
    if len(given.methods) < len(METHODS):
        figures(kept)
        return 0
    report(kept)
    against_teachers()
    return 0


if __name__ == "__main__":
    sys.exit(main())

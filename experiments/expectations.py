"""What privacy costs each label, by how many records carry it: eight data sets at several sizes.

Every run learns from private rows under (epsilon, 1e-5) for one record replaced (patients, nih: one
person) and is judged on test rows, label by label, beside the same linear model without privacy.
A label's evidence is the number of private records (or persons) that carry it, times epsilon, over
the root of the number of labels. From that the script fits, always on the other data sets,

- which of gradients and moments to take (``privote.learning.methods.rule``), and
- how much of their AUC above one half labels keep, from the worst to the best set.

voc is Pascal VOC 2012, nih a part of ChestX-ray14, both as features of EfficientNet-Lite0, which
``--features DIR`` keeps. Results are kept in a file, so that a run that was stopped goes on.

Run: python experiments/expectations.py --kept FILE --features DIR
         > experiments/results/expectations.txt
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from methods import sides
from sklearn.metrics import roc_auc_score
from tasks import SHARED

from privote.learning import LinearStudent, PrivateClassifier, TableEncoder
from privote.learning.methods import BAR, POWER, Numbers, rule

DELTA = 1e-5
EPSILONS = (1.0, 2.0, 4.0, 8.0)
METHODS = ("gradients", "moments")
SIZES = {  # private rows; None is all of them
    "emotions": (None,),
    "yeast": (None, 500),
    "scene": (None, 500),
    "patients": (None, 1_500),
    "scenes": (None, 1_000),
    "tmc2007": (None, 2_000),
    "voc": (None, 2_000, 600),
    "nih": (None, 1_000),
}
# Edges of evidence: from rare labels in small tables to common ones in large tables.
EDGES = (0.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0, np.inf)


def load(name: str, seed: int, features: Path) -> dict[str, Any]:
    """Return private, public and test rows and labels, and persons, as ``methods.sides`` does."""
    if name == "voc":
        return voc(seed)
    if name == "nih":
        return _nih(seed, features)
    return sides(name, seed)


def voc(seed: int) -> dict[str, Any]:
    """Train is private; of val every second picture is public; a seed draws other sides."""
    with np.load(SHARED / "data" / "voc2012_trainval_efficientnet_lite0_160.npz") as file:
        X, Y, train = file["features"].astype(np.float32), file["labels"], file["train"]
    val = np.flatnonzero(~train.astype(bool))
    rows = [np.flatnonzero(train), val[::2], val[1::2]]
    if seed:
        order = np.random.default_rng(seed).permutation(len(X))
        rows = np.split(order, [5_717, 5_717 + 2_912])
    return {"X": [X[r] for r in rows], "Y": Y[rows[0]], "Y_test": Y[rows[2]], "groups": None}


def _nih(seed: int, features: Path) -> dict[str, Any]:
    """Of 1,335 patients 835 are private, 250 public, and 250 for the test."""
    with np.load(SHARED / "data" / "nih_chestxray14_part1_64.npz") as file:
        pictures, Y, patients = file["images"], file["labels"], file["patients"]
    kept = features / "nih.npy"
    if not kept.exists():
        from privote.learning import PictureEncoder

        colours = np.repeat(pictures[:, None], 3, axis=1)
        np.save(kept, PictureEncoder().numbers(colours))
    X = np.load(kept).astype(np.float32)
    persons, place = np.unique(patients, return_inverse=True)
    side = np.repeat([0, 1, 2], [835, 250, len(persons) - 1_085])
    side = side[np.random.default_rng(seed).permutation(len(persons))][place]
    rows = [np.flatnonzero(side == part) for part in range(3)]
    return {
        "X": [X[r] for r in rows],
        "Y": Y[rows[0]],
        "Y_test": Y[rows[2]],
        "groups": patients[rows[0]],
    }


def smaller(task: dict[str, Any], size: int | None) -> dict[str, Any]:
    """Return the same with so many private rows, whole persons."""
    if size is None:
        return task
    if task["groups"] is None:
        keep = np.arange(size)
    else:
        persons = np.unique(task["groups"])
        share = size / len(task["Y"])
        some = np.random.default_rng(0).random(len(persons)) < share
        keep = np.flatnonzero(np.isin(task["groups"], persons[some]))
    X = task["X"][0][keep]
    groups = None if task["groups"] is None else task["groups"][keep]
    return {**task, "X": [X, *task["X"][1:]], "Y": task["Y"][keep], "groups": groups}


def by_label(model: Any, X: Any, Y: Any) -> list[float | None]:
    """Return each label's AUC; None where a test side has one class only."""
    chance, found = model.predict_proba(X), []
    for k in range(Y.shape[1]):
        known = Y[:, k] >= 0
        both = known.any() and 0 < Y[known, k].mean() < 1
        found.append(float(roc_auc_score(Y[known, k], chance[known, k])) if both else None)
    return found


def run(task: dict[str, Any], method: str, epsilon: float, seed: int) -> list[float | None]:
    """Return each label's AUC of one training."""
    X, X_public, X_test = task["X"]
    if method == "not private":
        if hasattr(X, "columns"):
            encode = TableEncoder().fit(X_public).transform
            X, X_test = (encode(rows).toarray() for rows in (X, X_test))
        elif not hasattr(X, "tocsr"):
            centre, scale = X_public.mean(0), X_public.std(0)
            scale = np.where(scale > 0, scale, 1)
            X, X_test = (X - centre) / scale, (X_test - centre) / scale
        model: Any = LinearStudent().fit(X, task["Y"])
    else:
        model = PrivateClassifier(method, epsilon, DELTA, random_state=seed)
        model.fit(X, task["Y"], X_public, groups=task["groups"], seed=1000 + seed)
    return by_label(model, X_test, task["Y_test"])


def carriers(task: dict[str, Any]) -> list[int]:
    """Return how many records, or persons, carry each label."""
    Y, groups = task["Y"] == 1, task["groups"]
    if groups is None:
        return [int(n) for n in Y.sum(axis=0)]
    return [len(np.unique(groups[Y[:, k]])) for k in range(Y.shape[1])]


def gather(kept: Path, features: Path, names: list[str], seeds: int) -> dict[str, Any]:
    """Return every run by "set|size|epsilon|method|seed", and public numbers by "set|size|seed"."""
    found: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    for seed, name in itertools.product(range(seeds), names):
        whole = None
        for size in SIZES[name]:
            jobs = [("not private", 0.0), *itertools.product(METHODS, EPSILONS)]
            jobs = [j for j in jobs if f"{name}|{size}|{j[1]:g}|{j[0]}|{seed}" not in found]
            if not jobs:
                continue
            whole = load(name, seed, features) if whole is None else whole
            task = smaller(whole, size)
            groups = task["groups"]
            found[f"{name}|{size}|{seed}"] = {
                "records": len(task["Y"]) if groups is None else len(np.unique(groups)),
                "labels": task["Y"].shape[1],
                "public": task["X"][1].shape[0],
                "carriers": carriers(task),
            }
            for method, epsilon in jobs:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    auc = run(task, method, epsilon, seed)
                found[f"{name}|{size}|{epsilon:g}|{method}|{seed}"] = auc
            part = kept.with_suffix(".part")
            part.write_text(json.dumps(found))
            os.replace(part, kept)
            print(f"{name}, {size or 'all'} rows, seed {seed}", file=sys.stderr, flush=True)
    return found


Cell = tuple[str, str, float]  # set, size, epsilon


def cells_of(kept: dict[str, Any]) -> dict[Cell, dict[str, float]]:
    """Return each method's AUC, mean over labels and seeds, by set, size and epsilon."""
    found: dict[Cell, dict[str, list[float]]] = {}
    for key, auc in kept.items():
        if len(parts := key.split("|")) == 5 and parts[3] in METHODS:
            cell = found.setdefault((parts[0], parts[1], float(parts[2])), {})
            cell.setdefault(parts[3], []).extend(value for value in auc if value is not None)
    return {
        cell: {name: float(np.mean(auc)) for name, auc in methods.items()}
        for cell, methods in found.items()
    }


def taken(kept: dict[str, Any], cell: Cell, power: float, bar: float) -> str:
    """Return the method that the rule takes."""
    public = kept[f"{cell[0]}|{cell[1]}|0"]
    sizes = {name: public[name] for name in ("records", "labels", "public")}
    return rule(Numbers(**sizes, epsilon=cell[2], delta=DELTA), power, bar)[0]


def lost(kept: dict[str, Any], cells: Any, power: float, bar: float) -> list[float]:
    """Return how much AUC the rule loses to the better method, cell by cell."""
    return [
        max(methods.values()) - methods[taken(kept, cell, power, bar)]
        for cell, methods in cells.items()
    ]


def fitted(kept: dict[str, Any], cells: Any) -> tuple[float, float]:
    """Return the power and bar that lose least on average; of equals the middle one."""
    tried = [
        (np.mean(lost(kept, cells, power, bar)), power, bar)
        for power in (0.5, 1.0, 1.5, 2.0)
        for bar in np.geomspace(1, 1e5, 51)
    ]
    least = min(each[0] for each in tried)
    good = [each[1:] for each in tried if each[0] <= least + 1e-9]
    return good[len(good) // 2]


def labels_of(kept: dict[str, Any]) -> list[tuple[str, float, float, float]]:
    """Return (set, evidence, AUC without privacy, AUC kept) of every label in every run.

    Of the two methods, the one that the rule in use takes. A label that not even the model without
    privacy can tell (AUC below 0.55) is left out.
    """
    found = []
    for key, auc in kept.items():
        if len(parts := key.split("|")) != 5 or parts[3] not in METHODS:
            continue
        name, size, epsilon, method, seed = parts
        if method != taken(kept, (name, size, float(epsilon)), POWER, BAR):
            continue
        public = kept[f"{name}|{size}|{seed}"]
        plain = kept[f"{name}|{size}|0|not private|{seed}"]
        for carriers, private, best in zip(public["carriers"], auc, plain, strict=True):
            if private is not None and best >= 0.55:
                evidence = carriers * float(epsilon) / np.sqrt(public["labels"])
                found.append((name, evidence, best, (private - 0.5) / (best - 0.5)))
    return found


def by_set(labels: list[tuple[str, float, float, float]]) -> dict[float, dict[str, float]]:
    """Return what the labels of a set kept together, by evidence; sets with ten labels or more."""
    found: dict[float, dict[str, float]] = {}
    for low, high in itertools.pairwise(EDGES):
        for name in SIZES:
            some = [each for each in labels if each[0] == name and low <= each[1] < high]
            if len(some) >= 10:
                above = np.array([best - 0.5 for _, _, best, _ in some])
                shares = np.array([share for *_, share in some])
                found.setdefault(low, {})[name] = float((above * shares).sum() / above.sum())
    return found


def report(kept: dict[str, Any]) -> None:
    """Print which method wins where, and what labels keep; always also fitted on other sets."""
    cells = cells_of(kept)
    print("AUC, mean over labels and seeds; delta 1e-5; the better of the two is marked")
    for (name, size, epsilon), methods in cells.items():
        public = kept[f"{name}|{size}|0"]
        best = max(methods, key=lambda method: methods[method])
        figures = ", ".join(f"{m} {auc:.3f}{'*' * (m == best)}" for m, auc in methods.items())
        print(f"  {name:9s} n={public['records']:<6d} k={public['labels']:<3d} "
              f"epsilon {epsilon:g}: {figures}")  # fmt: skip
    print("\nThe rule, fitted on the other sets, loses to the better method:")
    for left in SIZES:
        others = {cell: methods for cell, methods in cells.items() if cell[0] != left}
        own = {cell: methods for cell, methods in cells.items() if cell[0] == left}
        if own:
            power, bar = fitted(kept, others)
            gaps = lost(kept, own, power, bar)
            print(f"  {left:9s} power {power:g}, bar {bar:.0f}: {np.mean(gaps):.4f} on average, "
                  f"{max(gaps):.4f} at worst")  # fmt: skip
    power, bar = fitted(kept, cells)
    for name, numbers in (("Fitted on all", (power, bar)), ("In use", (POWER, BAR))):
        average = np.mean(lost(kept, cells, *numbers))
        print(f"{name}: power {numbers[0]:g}, bar {numbers[1]:.0f}: {average:.4f}")
    print("\nWhat labels kept of their AUC above one half, by evidence (records that carry one x\n"
          "epsilon / root of labels), from the worst to the best set")  # fmt: skip
    table = by_set(labels_of(kept))
    for low, shares in table.items():
        sets = ", ".join(f"{name} {share:.2f}" for name, share in shares.items())
        print(
            f"  from {low:4g}: {min(shares.values()):.2f} to {max(shares.values()):.2f}  ({sets})"
        )
    print("Left out, a set was within the range of the others, lower than it, higher than it:")
    for left in SIZES:
        places = []
        for shares in table.values():
            others = [share for name, share in shares.items() if name != left]
            if left in shares and others:
                low, high = min(others) - 0.01, max(others) + 0.01
                places.append((shares[left] > high) - (shares[left] < low))
        print(f"  {left:9s} {places.count(0)}, {places.count(-1)}, {places.count(1)}")


def main() -> int:
    """Run what is not there yet, and print everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sets", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--kept", type=Path, default=Path("expectations.json"))
    parser.add_argument("--features", type=Path, default=Path())
    given = parser.parse_args()
    report(gather(given.kept, given.features, given.sets, given.seeds))
    return 0


if __name__ == "__main__":
    sys.exit(main())

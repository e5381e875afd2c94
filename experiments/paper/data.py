"""Labels and how they depend on each other: published matrices beside the owners' label files."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from scipy.special import ndtr

import privote as pv
from privote.learning import cast, train
from privote.learning.teachers import partition

from .bench import Bench, Measured
from .electorates import published, relative_rates
from .sources import CHEXPERT, FEATURES, MIMIC, PADCHEST, VOC, chest_labels, find, voc_labels

_SAME_NAME = {"Pleural Effusion": "Effusion"}


def positive(Y: np.ndarray) -> np.ndarray:
    """Return P(column | row): of the rows with one label, how many have the other."""
    ones = (np.asarray(Y) == 1).astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (ones.T @ ones) / ones.sum(axis=0)[:, None]


def negative(Y: np.ndarray, *, known: bool) -> np.ndarray:
    """Return P(no column | no row): of all rows, or of those where both are known."""
    none = (np.asarray(Y) == 0).astype(float)
    counted = (np.asarray(Y) != -1).astype(float) if known else np.ones_like(none)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (none.T @ none) / (none.T @ counted)


# -- Tables 5 to 9, Figure 6 -----------------------------------------------------------------------


def matrices(bench: Bench) -> Measured | None:
    """Compare the four published matrices with what the label files give, where they are."""
    voc = voc_labels(bench.data)
    files = {
        "voc": None if voc is None else (voc, tuple(published("voc")[0])),
        "mimic": chest_labels(bench.data, MIMIC, ("PA",)),
        "chexpert": chest_labels(bench.data, CHEXPERT, ("PA",)),
        "padchest": chest_labels(bench.data, PADCHEST, ("PA",)),
    }
    if files["chexpert"] is None or files["padchest"] is None:
        return None
    rows, facts = [], {}
    for name, labels in files.items():
        names, told = published(name)
        if labels is None:
            rows.append({"matrix": name, "rows": "no file", "cells": told.size})
            continue
        there = [_SAME_NAME.get(one, one) for one in labels[1]]
        place = [there.index(_SAME_NAME.get(one, one)) for one in names]
        apart = np.abs(positive(labels[0])[np.ix_(place, place)] - told)
        equal = int((apart <= 0.00051).sum())
        rows.append({"matrix": name, "rows": len(labels[0]), "cells": apart.size, "equal": equal})
        rows[-1]["largest difference"] = float(apart.max())
        facts |= {f"{name}_equal": equal, f"{name}_cells": int(apart.size)}
    return Measured(rows=rows, facts=facts)


def chexpert_negative(bench: Bench) -> Measured | None:
    """Read CheXpert's file in every way: views, and whether what is not known counts as a row."""
    told = published("chexpert_negative")[1]
    off, rows = ~np.eye(len(told), dtype=bool), []
    for name, views in (("PA", ("PA",)), ("AP", ("AP",)), ("frontal", ("AP", "PA")), ("all", None)):
        labels = chest_labels(bench.data, CHEXPERT, views)
        if labels is None:
            return None
        for known in (False, True):
            apart = np.abs(negative(labels[0][:, :5], known=known) - told)[off]
            rows.append({"views": name, "of": "both known" if known else "first absent"})
            rows[-1]["cells equal"] = int((apart <= 0.00051).sum())
            rows[-1]["largest difference"] = float(apart.max())
    best = min(rows, key=lambda row: row["largest difference"])
    frontal, names = chest_labels(bench.data, CHEXPERT) or (np.empty(0), ())
    ill, air, dim = (
        frontal[:, names.index(n)] == 1 for n in ("Pneumonia", "Pneumothorax", "Lung Opacity")
    )
    facts = {"equal": best["cells equal"], "largest": best["largest difference"]}
    facts |= {"both": float((ill & air).mean()), "opacity": float(dim[ill & air].mean())}
    return Measured(rows=rows, facts=facts)


def hierarchy(bench: Bench) -> Measured | None:
    """Look up whether Pneumonia implies Consolidation and Opacity, where both are known."""
    labels = chest_labels(bench.data, CHEXPERT)
    if labels is None:
        return None
    rows, (Y, there) = [], labels
    names, told = published("chexpert")
    for given, also in (
        ("Pneumonia", "Consolidation"),
        ("Pneumonia", "Lung Opacity"),
        ("Consolidation", "Lung Opacity"),
    ):
        known = Y[Y[:, there.index(given)] == 1, there.index(also)]
        rows.append({"given": given, "also": also})
        rows[-1]["published"] = float(told[names.index(given), names.index(also)])
        rows[-1]["where both are known"] = float((known == 1).sum() / (known >= 0).sum())
    keys = ("consolidation", "opacity", "onward")
    facts = {key: row["where both are known"] for key, row in zip(keys, rows, strict=True)}
    return Measured(rows=rows, facts=facts)


# -- Figure 7, Table 13 ----------------------------------------------------------------------------


def positives(bench: Bench) -> Measured | None:
    """Count labels a picture, in train and in val, difficult objects counted."""
    told = (3539, 1677, 484, 105, 17, 1)
    parts = {part: voc_labels(bench.data, part) for part in ("train", "val")}
    if any(Y is None for Y in parts.values()):
        return None
    counts = {p: np.bincount((Y == 1).sum(axis=1), minlength=7)[1:7] for p, Y in parts.items()}
    rows = [{"labels": size, "published": n, **{p: int(c[size - 1]) for p, c in counts.items()}}
            for size, n in enumerate(told, 1)]  # fmt: skip
    facts = {f"{part}_equal": counts[part].tolist() == list(told) for part in parts}
    facts["mean"] = sum(n * size for size, n in enumerate(told, 1)) / sum(told)
    return Measured(rows=rows, facts=facts)


def distributions(bench: Bench) -> Measured:
    """Compare how unequal labels are: the frequencies that the four matrices imply."""
    rows, facts = [], {}
    for name in ("voc", "chexpert", "mimic", "padchest"):
        rate = np.sort(relative_rates(published(name)[1]))[::-1]
        rate = rate / rate.sum()
        gini = float(1 - 2 * (np.cumsum(rate[::-1]) - rate[::-1] / 2).sum() / len(rate))
        rows.append({"data": name, "labels": len(rate), "Gini": gini})
        rows[-1]["most frequent / rarest"] = float(rate[0] / rate[-1])
        facts[name] = gini
    return Measured(rows=rows, facts=facts)


# -- Appendix B: a map of pixels -------------------------------------------------------------------

_GRID, _VOTERS = 10, 20


def boxes(folder: Path, names: list[str]) -> np.ndarray:
    """Return maps of 10 x 10 cells, 1 where the middle lies in an object's box: (pictures, 100)."""
    maps = np.zeros((len(names), _GRID, _GRID), np.int8)
    for place, name in enumerate(names):
        tree = ElementTree.parse(folder / "Annotations" / f"{name}.xml")
        width, height = (float(tree.findtext(f"size/{side}")) for side in ("width", "height"))
        x, y = ((np.arange(_GRID) + 0.5) / _GRID * side for side in (width, height))
        for box in tree.iterfind("object/bndbox"):
            left, top, right, bottom = (
                float(box.findtext(edge)) for edge in ("xmin", "ymin", "xmax", "ymax")
            )
            rows, columns = (y >= top) & (y <= bottom), (x >= left) & (x <= right)
            maps[place] |= np.outer(rows, columns).astype(np.int8)
    return maps.reshape(len(names), -1)


def pixels(bench: Bench) -> Measured | None:
    """Price 40,000 pixels by sigma; and label VOC's pictures on a grid by twenty teachers."""
    pictures, features = find(bench.data, VOC), find(bench.data, FEATURES)
    if pictures is None or features is None:
        return None
    with np.load(features.path) as file:
        X, private = file["features"].astype(np.float32), file["train"].astype(bool)
        names = [str(name) for name in file["ids"]]
    chosen = np.concatenate([np.flatnonzero(private)[:4000], np.flatnonzero(~private)[:1000]])
    maps = boxes(pictures.path, [names[place] for place in chosen])
    parts = partition(4000, _VOTERS, key=0)
    teachers = train(None, X[chosen[:4000]], maps[:4000], parts, _VOTERS)
    votes = np.asarray(cast(teachers, X[chosen[4000:]], 0.5), bool)
    yes, truth = votes.sum(axis=1), maps[4000:] == 1
    rows, facts = [], {}
    for sigma in (0.01, 1.0, 2.0, 3.0, 4.0, 5.0):
        chance = ndtr((2 * yes - _VOTERS) / (sigma * 2**0.5))
        row: dict[str, Any] = {
            "σ": round(sigma),
            "accuracy": float(np.where(truth, chance, 1 - chance).mean()),
        }
        if sigma >= 1:
            cost = 40_000 * pv.BinaryVoting(sigma=sigma).worst_case_rdp(_VOTERS, 1)
            stated = 40_000 * pv.DEFAULT_ORDERS / sigma**2
            row["ε, paper"] = float(pv.epsilon_2017(stated, pv.DEFAULT_ORDERS, 1e-5))
            row["ε, exact"] = float(pv.epsilon(cost, pv.DEFAULT_ORDERS, 1e-5))
        rows.append(row)
    facts = {"accuracy_0": rows[0]["accuracy"], "accuracy_5": rows[-1]["accuracy"]}
    facts |= {"paper_4": rows[4]["ε, paper"], "exact_4": rows[4]["ε, exact"]}
    facts["constant"] = float(np.maximum(truth.mean(axis=0), 1 - truth.mean(axis=0)).mean())
    return Measured(rows=rows, facts=facts)

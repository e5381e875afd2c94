"""Models of public features: students of released labels, and private gradients.

Pascal VOC as EfficientNet-Lite0 sees it, cut as the paper cuts it: train is private; of val every
second picture is public, and the others are for the test. Or chest X-rays of the NIH, by the
principal components of public ones, with no patient on two sides. Where VOC's features are not at
hand, scenes of digits by their likeness to public scenes. PATE is in the paper's accounting, which
is conditional on these votes; DPSGD promises epsilon for changing one record, whatever the data. A
seed is another order of the public rows, other parts, and other noise.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

import privote as pv
from privote.datasets import load_scenes, load_teacher_votes
from privote.learning import cast, train
from privote.learning.dpsgd import DPSGDClassifier
from privote.learning.embedding import Landmarks, fit_embedding
from privote.learning.gradients import DPLinear
from privote.learning.mixmatch import MixMatchClassifier
from privote.learning.students import LinearStudent
from privote.learning.teachers import partition

from .bench import Bench, Measured, over_seeds
from .counts import answered
from .sources import FEATURES, NIH, find, voc_labels

Bools = npt.NDArray[np.bool_]
FIGURES = ("ACC", "BAC", "AUC", "MAP")
TEACHERS = 50
#: The paper's first five findings of CheXpert, which the NIH's labels have too.
FIVE = ("Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Effusion")
NAMES = {"voc": "VOC", "nih": "NIH X-rays", "scenes": "scenes of digits"}


@dataclass(frozen=True, eq=False)
class Task:
    """Rows and labels by side, and the teachers' votes on the public rows, where they are known."""

    X_private: Any
    Y_private: npt.NDArray[np.int8]
    X_public: Any
    Y_public: npt.NDArray[np.int8]
    X_test: Any
    Y_test: npt.NDArray[np.int8]
    known_votes: Bools | None = None

    def first(self, labels: int) -> Task:
        """Return the same with the first labels only."""
        cut = {f"Y_{s}": getattr(self, f"Y_{s}")[:, :labels] for s in ("private", "public", "test")}
        votes = None if self.known_votes is None else self.known_votes[:, :, :labels]
        return replace(self, **cut, known_votes=votes)

    def teachers(self, seed: int) -> Any:
        """Return fifty linear teachers, each trained on its own part of the private rows."""
        parts = partition(len(self.X_private), TEACHERS, key=seed)
        return train(None, self.X_private, self.Y_private, parts, TEACHERS)

    def judged(self, model: Any) -> dict[str, float]:
        """Return a fitted model's figures on the test rows, by label and by picture."""
        return figures(self.Y_test, model.predict_proba(self.X_test))

    def student(self, labels: Any) -> dict[str, float]:
        """Return the figures of a student of the first public rows."""
        return self.judged(LinearStudent().fit(self.X_public[: len(labels)], labels))


def figures(Y: npt.NDArray[np.int8], chance: Any) -> dict[str, float]:
    """Return ACC, BAC, AUC and MAP averaged over labels, and over pictures ("AUC, picture")."""
    by_label = pv.metrics.multilabel(Y, chance)
    found = {name: float(by_label[name]) for name in FIGURES}
    both = (Y == 1).any(axis=1) & (Y == 0).any(axis=1)
    truth, score = Y[both] == 1, np.asarray(chance)[both]
    ones, zeros = truth.sum(axis=1), (~truth).sum(axis=1)
    said = score > 0.5
    recall, rejected = (truth & said).sum(axis=1) / ones, (~truth & ~said).sum(axis=1) / zeros
    above = (rankdata(score, axis=1) * truth).sum(axis=1) - ones * (ones + 1) / 2
    ranked = np.take_along_axis(truth, np.argsort(-score, axis=1, kind="stable"), axis=1)
    precision = np.cumsum(ranked, axis=1) / np.arange(1, ranked.shape[1] + 1)
    values = ((truth == said).mean(), (recall + rejected).mean() / 2)
    values += ((above / (ones * zeros)).mean(), ((precision * ranked).sum(axis=1) / ones).mean())
    return found | {f"{n}, picture": float(v) for n, v in zip(FIGURES, values, strict=True)}


def there(data: Path | None) -> str:
    """Return what models learn from: VOC if its features are at hand, else scenes."""
    return "voc" if find(data, FEATURES) is not None else "scenes"


@lru_cache(maxsize=6)
def task(name: str, seed: int, data: Path | None) -> Task:
    """Return a task by its name: "voc", "nih" or "scenes"."""
    return {"voc": _voc, "nih": _nih, "scenes": _scenes}[name](seed, data)


def _voc(seed: int, data: Path | None) -> Task:
    found = find(data, FEATURES)
    assert found is not None
    with np.load(found.path) as file:
        X, private = file["features"].astype(np.float32), file["train"].astype(bool)
        Y = (file["labels"] != 0).astype(np.int8)  # what is only difficult counts, as in the paper
    votes = load_teacher_votes("voc2012").votes
    public, test = np.arange(0, len(votes), 2), np.arange(1, len(votes), 2)
    order = np.random.default_rng(seed).permutation(public)
    val = X[~private], Y[~private]
    sides = (X[private], Y[private], val[0][order], val[1][order], val[0][test], val[1][test])
    return Task(*sides, known_votes=votes[order])


def _nih(seed: int, data: Path | None) -> Task:
    found = find(data, NIH)
    assert found is not None
    with np.load(found.path) as file:
        names = [str(name) for name in file["label_names"]]
        Y = (file["labels"][:, [names.index(name) for name in FIVE]] == 1).astype(np.int8)
        X = file["images"].reshape(len(Y), -1).astype(np.float32) / 255
        who = np.unique(file["patients"], return_inverse=True)[1]
    # Of five patients three are private, one is public, one is for the test.
    side = (np.random.default_rng(seed).permutation(who.max() + 1) % 5)[who]
    eyes = fit_embedding("pca:64", X[side == 3])
    assert eyes is not None
    Z = np.asarray(eyes(X))
    return Task(*(part[rows] for rows in (side < 3, side == 3, side == 4) for part in (Z, Y)))


def _scenes(seed: int, data: Path | None) -> Task:
    made = load_scenes(private=5000, public=1500, test=1000, seed=seed)
    eyes = Landmarks().fit(made.X_public)
    sides = ("private", "public", "test")
    parts = [(eyes.transform(getattr(made, f"X_{s}")), getattr(made, f"Y_{s}")) for s in sides]
    return Task(*(one for pair in parts for one in pair))


# -- Table 1 ---------------------------------------------------------------------------------------

MECHANISMS = {
    "Powerset PATE": pv.PowersetVoting(sigma=2.0),
    "Binary PATE": pv.BinaryVoting(sigma=7.0),
    "Tau PATE": pv.TauVoting(sigma=9.0, tau=1.8),
}


class Constant:
    """A model that answers every row with the labels' frequencies."""

    def __init__(self, Y: npt.NDArray[np.int8]) -> None:
        self.rates = (Y == 1).mean(axis=0)

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the same probabilities for each row."""
        return np.tile(self.rates, (len(X), 1))


def constant(bench: Bench) -> Measured:
    """Judge the labels' frequencies, the same for every picture of val, by label and by picture."""
    truth = voc_labels(bench.data, "val")
    known = voc_labels(bench.data, "train")
    if truth is None or known is None:
        truth = known = load_teacher_votes("voc2012").truth.astype(np.int8)
    row = figures(truth, Constant(known).predict_proba(truth))
    facts = {name.lower().replace(", ", "_"): value for name, value in row.items()}
    return Measured(rows=[{"model": "label frequencies", **row}], facts=facts)


def _contest(here: Task, seed: int, epsilon: float) -> Iterator[tuple[str, dict[str, float]]]:
    private = here.X_private, here.Y_private
    gradients = DPLinear(epsilon=epsilon, delta=1e-5, seed=seed).fit(*private)
    yield "DPSGD, last layer", here.judged(gradients)
    votes = here.known_votes
    if votes is None:
        votes = np.asarray(cast(here.teachers(seed), here.X_public, 0.5), bool)
    for name, mechanism in MECHANISMS.items():
        number = max(2, answered(mechanism, votes, epsilon, 1e-5, paper=True))
        labels = mechanism.release(votes[:number], seed=seed)
        yield name, {"labelled": number, **here.student(labels)}
        if name != "Tau PATE":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that labels are few and noisy is the point
                student = MixMatchClassifier(random_state=seed)
                student.fit(here.X_public[:number], labels, here.X_public[number:])
            yield f"{name}, MixMatch", {"labelled": number, **here.judged(student)}


def contest(bench: Bench) -> Measured:
    """Train every model of Table 1, and judge it by label and by picture."""
    name, rows = there(bench.data), []
    here = task(name, 0, bench.data)
    rows.append({"ε": "-", "model": "not private"})
    rows[0] |= here.judged(LinearStudent().fit(here.X_private, here.Y_private))
    facts: dict[str, Any] = {"open": rows[0]["AUC"]}
    for epsilon in (10.0, 20.0):
        draws: dict[str, list[dict[str, float]]] = {}
        for seed in range(bench.seeds):
            for model, row in _contest(task(name, seed, bench.data), seed, epsilon):
                draws.setdefault(model, []).append(row)
        for model, found in draws.items():
            means, shown = over_seeds(found)
            rows.append({"ε": epsilon, "model": model, **shown})
            key = model.lower().replace(", ", "_").replace(" ", "_")
            facts[f"{key}_{epsilon:.0f}"] = means["AUC"]
    return Measured(rows=rows, facts={**facts, "data": NAMES[name]})


# -- Table 2 ---------------------------------------------------------------------------------------


def _scaled(here: Task) -> Task:
    """Return principal components of the public rows, in which a row's norm is about 1."""
    eyes = fit_embedding("pca:48", here.X_public)
    assert eyes is not None
    sides = {name: eyes(getattr(here, name)) for name in ("X_private", "X_public", "X_test")}
    unit = np.linalg.norm(sides["X_public"], axis=1).mean()
    return replace(here, **{n: (X / unit).astype(np.float32) for n, X in sides.items()})


def against_adaptive(bench: Bench) -> Measured:
    """Compare Binary PATE with plain and adaptive DPSGD: five labels, the last layer, ε = 8."""
    names = [there(bench.data)] + (["nih"] if find(bench.data, NIH) is not None else [])
    budget: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-4}
    steps: dict[str, Any] = {"steps": 200, "sample_rate": 0.05}
    rows, facts = [], {}
    for name in names:
        draws: dict[str, list[dict[str, float]]] = {}
        for seed in range(bench.seeds):
            here = task(name, seed, bench.data).first(5)
            model = LinearStudent().fit(here.X_private, here.Y_private)
            draws.setdefault("not private", []).append(here.judged(model))
            small = _scaled(here)
            for title, last in (("DPSGD", 1.0), ("adaptive DPSGD", 0.5)):
                private = DPSGDClassifier(**budget, **steps, schedule=last, seed=seed)
                private.fit(small.X_private, small.Y_private)
                draws.setdefault(title, []).append(small.judged(private))
            teachers = here.teachers(seed)
            for title, bar in (("at one half", 0.5), ("by prevalence", "prevalence")):
                votes = np.asarray(cast(teachers, here.X_public, bar), bool)
                mechanism = MECHANISMS["Binary PATE"]
                number = max(2, answered(mechanism, votes, 8.0, 1e-4, paper=True))
                row = here.student(mechanism.release(votes[:number], seed=seed))
                draws.setdefault(f"Binary PATE {title}", []).append({"labelled": number, **row})
        for model_name, found in draws.items():
            means, shown = over_seeds(found)
            rows.append({"data": NAMES[name], "model": model_name, **shown})
            facts[f"{name}_{model_name.lower().replace(' ', '_')}"] = means["AUC"]
    return Measured(rows=rows, facts=facts)


# -- run time, probability thresholds --------------------------------------------------------------


def run_time(bench: Bench) -> Measured:
    """Time training, voting, releasing and pricing."""
    here = task(there(bench.data), 0, bench.data)
    started = time.process_time()
    teachers = here.teachers(0)
    rows = [{"step": "train 50 linear teachers", "seconds": time.process_time() - started}]
    votes = np.asarray(cast(teachers, here.X_public, 0.5), bool)[:1000]
    for name, mechanism in MECHANISMS.items():
        started = time.process_time()
        mechanism.release(votes, seed=0)
        answered(mechanism, votes, paper=True)
        rows.append({"step": f"{name}: {len(votes)} queries"})
        rows[-1]["seconds"] = time.process_time() - started
    facts = {"teachers": rows[0]["seconds"], "slowest": max(row["seconds"] for row in rows[1:])}
    return Measured(rows=rows, facts=facts)


def thresholds(bench: Bench) -> Measured | None:
    """Tune one threshold for all labels, and one for each, on half of 900 public rows."""
    names = [n for n, f in (("voc", FEATURES), ("nih", NIH)) if find(bench.data, f) is not None]
    rows, facts = [], {}
    grid = np.array([0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.32, 0.4, 0.5, 0.6])
    for name in names:
        draws = []
        for seed in range(bench.seeds):
            here = task(name, seed, bench.data)
            teachers, X, Y = here.teachers(seed), here.X_public[:900], here.Y_public[:900]
            said = [np.asarray(cast(teachers, X, float(g)), bool).mean(axis=1) > 0.5 for g in grid]
            tuned = np.array([_bac_by_label(one[:450], Y[:450]) for one in said])
            judged = np.array([_bac_by_label(one[450:], Y[450:]) for one in said])
            best = int(tuned.mean(axis=1).argmax())
            each = np.take_along_axis(judged, tuned.argmax(axis=0)[None], axis=0)
            draws.append({"best": float(grid[best]), "half": float(judged[10].mean())})
            draws[-1] |= {"all": float(judged[best].mean()), "each": float(each.mean())}
        means, shown = over_seeds(draws)
        rows.append({"teachers": NAMES[name], **shown})
        facts |= {f"{name}_{key}": value for key, value in means.items()}
    return Measured(rows=rows, facts=facts) if rows else None


def _bac_by_label(answers: Any, truth: Any) -> Any:
    """Return each label's balanced accuracy; one half where it is never there."""
    found = pv.metrics.multilabel(truth, None, answers.astype(np.int8))["per_label"]["BAC"]
    return np.nan_to_num(np.asarray(found, float), nan=0.5)

"""Models of public features: of released labels, and of private records with noise.

The data is Pascal VOC as EfficientNet-Lite0 sees it, cut as the paper cuts it: train is private; of
val every second picture is public, and the others are for the test. Or chest X-rays of the NIH, by
the principal components of public ones, with no patient on two sides. Where neither is at hand,
scenes of digits by their likeness to public scenes. Everything private promises epsilon for
changing one record, but for PATE in the paper's accounting, which promises that of these votes
only. A seed is another order of the public rows, other parts, and other noise.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import privote as pv
from privote.datasets import load_scenes, load_teacher_votes
from privote.learning import cast, train
from privote.learning.embedding import Landmarks, fit_embedding
from privote.learning.gradients import DPLinear
from privote.learning.students import LinearStudent
from privote.learning.teachers import partition

from .counts import answered, over_seeds
from .kinds import FAILS, HOLDS, PART, Bench, Measured, Plot, Verdict
from .sources import FEATURES, NIH, find

Facts = Mapping[str, Any]
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

    def votes(self, seed: int) -> Bools:
        """Return fifty linear teachers' votes on the public rows."""
        if self.known_votes is not None:
            return self.known_votes
        parts = partition(len(self.X_private), TEACHERS, key=seed)
        models = train(None, self.X_private, self.Y_private, parts, TEACHERS)
        return np.asarray(cast(models, self.X_public), bool)

    def judged(self, model: Any, **facts: Any) -> dict[str, Any]:
        """Return a fitted model's figures on the test rows."""
        found = pv.metrics.multilabel(self.Y_test, model.predict_proba(self.X_test))
        return {**facts, **{figure: float(found[figure]) for figure in FIGURES}}

    def student(self, labels: Any) -> dict[str, Any]:
        """Return the figures of a student of the first public rows."""
        return self.judged(LinearStudent().fit(self.X_public[: len(labels)], labels))


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


# -- students and private gradients ----------------------------------------------------------------

OPEN, GRADIENTS, DEFAULT = "not private", "DPSGD", "privote's default"
VOTES = "privote's default of votes"
MECHANISMS = {
    "Powerset PATE": pv.PowersetVoting(sigma=2.0),
    "Binary PATE": pv.BinaryVoting(sigma=7.0),
    "Tau PATE": pv.TauVoting(sigma=9.0, tau=1.8),
}
EPSILONS = (10.0, 20.0)


def students(
    here: Task, seed: int, epsilon: float, delta: float, names: tuple[str, ...]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield students of labels that the paper's accounting lets be answered."""
    votes = here.votes(seed)
    for name in names:
        mechanism = MECHANISMS[name]
        number = answered(mechanism, votes, epsilon, delta, paper=True)
        labels = mechanism.release(votes[:number], seed=seed)
        if number > 1:
            yield name, {"labelled": number, **here.student(labels)}


def quietly(make: Any) -> Any:
    """Return what is made, without warnings that noisy labels are noisy: that is measured."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


def _contest(here: Task, seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    private = here.X_private, here.Y_private
    yield OPEN, {"ε": None, **here.judged(LinearStudent().fit(*private))}
    for epsilon in EPSILONS:
        budget: dict[str, Any] = {"epsilon": epsilon, "delta": 1e-5}
        plain = DPLinear(**budget, seed=seed).fit(*private)
        yield GRADIENTS, {"ε": epsilon, **here.judged(plain)}
        for name, row in students(here, seed, epsilon, 1e-5, tuple(MECHANISMS)):
            yield name, {"ε": epsilon, **row}
        for name, made in (
            (VOTES, pv.PATEClassifier(**budget, random_state=seed)),
            (DEFAULT, pv.PrivateClassifier(**budget, random_state=seed)),
        ):
            model = quietly(lambda made=made: made.fit(*private, here.X_public, seed=seed))
            labelled = {} if model.release_ is None else {"labelled": model.release_.answered}
            yield name, {"ε": epsilon, **labelled, **here.judged(model)}


def contest(bench: Bench) -> Measured:
    """Train every model, for every seed."""
    name = there(bench.data)
    found: dict[tuple[Any, str], list[dict[str, float]]] = {}
    for seed in range(bench.seeds):
        here = task(name, seed, bench.data)
        for model, row in _contest(here, seed):
            epsilon = row.pop("ε")
            found.setdefault((epsilon, model), []).append(row)
    rows, facts, series = [], {"data": NAMES[name]}, {}
    for (epsilon, model), draws in found.items():
        means, shown = over_seeds(draws)
        rows.append({"ε": "–" if epsilon is None else f"{epsilon:g}", "model": model, **shown})
        facts.setdefault(f"{epsilon or 0:g}", {})[model] = means
        for at in EPSILONS if epsilon is None else (epsilon,):
            series.setdefault(model, {})[at] = means["AUC"]
    plot = Plot(title=f"AUC by the budget, {NAMES[name]}", x="epsilon", y="AUC", series=series)
    return Measured(rows=rows, facts=facts, plots=[plot])


def contest_verdict(facts: Facts) -> Verdict:
    good = []
    for epsilon in ("10", "20"):
        auc = {name: row["AUC"] for name, row in facts[epsilon].items()}
        good += [auc["Binary PATE"] > auc[GRADIENTS]]
        good += [auc["Binary PATE"] > auc.get("Powerset PATE", 0.5)]
    ahead = "ahead of" if good[0] and good[2] else "behind"
    said = ", ".join(f"{name} {row['AUC']:.3f}" for name, row in facts["10"].items())
    return (HOLDS if all(good) else PART if any(good) else FAILS), (
        f"{facts['data']}, test AUC at ε = 10: {said}; without privacy "
        f"{facts['0'][OPEN]['AUC']:.3f}. Binary PATE is ahead of Powerset PATE and {ahead} DPSGD, "
        "here one layer on public features; the paper trains a ResNet-50 whole. PATE is in the "
        "paper's accounting, the rest is unconditional."
    )

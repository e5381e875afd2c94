"""Adaptive DPSGD against PATE: the last layer on frozen features, five labels, as in the paper.

The paper's adaptive DPSGD is very likely the one with decaying noise that was evaluated on CheXpert
(Zhang et al., WACV 2021 workshop): privote's ``schedule``. Private gradients see the principal
components of public rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from privote.learning.dpsgd import DPSGDClassifier
from privote.learning.embedding import fit_embedding
from privote.learning.students import LinearStudent

from .counts import over_seeds
from .kinds import FAILS, HOLDS, PART, Bench, Measured, Verdict
from .learning import GRADIENTS, NAMES, OPEN, Task, students, task, there
from .sources import NIH, find

Facts = Mapping[str, Any]
BUDGET = {"epsilon": 8.0, "delta": 1e-4}
DECAY = "DPSGD, decaying noise"


def _scaled(here: Task) -> Task:
    """Return principal components of the public rows, in which a row's norm is about 1."""
    eyes = fit_embedding("pca:48", here.X_public)
    assert eyes is not None
    sides = {name: eyes(getattr(here, name)) for name in ("X_private", "X_public", "X_test")}
    unit = np.linalg.norm(sides["X_public"], axis=1).mean()
    return replace(here, **{n: (X / unit).astype(np.float32) for n, X in sides.items()})


def _models(here: Task, seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    yield OPEN, here.judged(LinearStudent().fit(here.X_private, here.Y_private))
    rows = _scaled(here)
    for name, last in ((GRADIENTS, 1.0), (DECAY, 0.5)):
        steps: dict[str, Any] = {"steps": 200, "sample_rate": 0.05, "schedule": last}
        model = DPSGDClassifier(**BUDGET, **steps, seed=seed)
        yield name, rows.judged(model.fit(rows.X_private, rows.Y_private))
    yield from students(here, seed, 8.0, 1e-4, ("Powerset PATE", "Binary PATE"))


def against_adaptive(bench: Bench) -> Measured:
    """Compare students with private gradients, plain and with decaying noise."""
    names = [there(bench.data)] + (["nih"] if find(bench.data, NIH) is not None else [])
    rows, facts = [], {}
    for name in names:
        found: dict[str, list[dict[str, Any]]] = {}
        for seed in range(bench.seeds):
            for model, row in _models(task(name, seed, bench.data).first(5), seed):
                found.setdefault(model, []).append(row)
        for model, draws in found.items():
            means, shown = over_seeds(draws)
            rows.append({"data": NAMES[name], "model": model, **shown})
            facts.setdefault(NAMES[name], {})[model] = means["AUC"]
    return Measured(rows=rows, facts=facts)


def against_adaptive_verdict(facts: Facts) -> Verdict:
    good = []
    for auc in facts.values():
        good += [auc[DECAY] > auc[GRADIENTS], auc.get("Binary PATE", 0.5) > auc[DECAY]]
    said = "; ".join(
        f"{data}: " + ", ".join(f"{n} {a:.3f}" for n, a in auc.items())
        for data, auc in facts.items()
    )
    return (HOLDS if all(good) else PART if any(good) else FAILS), (
        f"AUC at ε = 8, δ = 1e-4, the last layer on frozen features as in the paper. {said}. "
        "Decaying noise is the adaptive DPSGD that was evaluated on CheXpert; every step is priced."
    )

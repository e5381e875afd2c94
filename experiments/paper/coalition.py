"""Sites that label rows for each other, in the clear, with the paper's data-dependent accounting.

Fifty linear models on Pascal VOC's public features, 114 pictures each, as in the paper; without the
features, on scenes of digits, 40 each. Three sites ask all others about public rows, until the
budget is used up, and train again on their own records and the labels. This simulates what the
paper reports; what privote itself promises a coalition is another, unconditional accounting
(docs/coalition.md, and experiments/capc_retrain.py for before and after by it).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import privote as pv
from privote.capc.models import METRICS, Records, SiteModel, evaluate, train_site

from .bench import Bench, Measured, spread
from .counts import answered
from .learning import Task, task, there
from .sources import NIH, find

SITES, ASKING, DELTA, SIGMA = 50, 3, 1e-5, 7.0
EACH = {"voc": 114, "scenes": 40, "nih": 300}  # records of a site


@dataclass(frozen=True, eq=False)
class Settled:
    """The sites' records and models, and the public and test rows of one seed."""

    records: list[Records]
    models: list[SiteModel]
    rows: Task

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the labels."""
        return tuple(str(place) for place in range(self.rows.Y_test.shape[1]))


@lru_cache(maxsize=6)
def settled(name: str, seed: int, data: Path | None, sites: int = SITES) -> Settled:
    """Share private records out among the sites, few each, and train a model at every site."""
    rows, each = task(name, seed, data), EACH[name]
    order = np.random.default_rng(seed).permutation(len(rows.X_private))
    parts = [order[place * each : (place + 1) * each] for place in range(sites)]
    records = [Records(X=rows.X_private[p], Y=rows.Y_private[p]) for p in parts]
    world = Settled(records, [], rows)
    world.models.extend(train_site(one, world.labels) for one in records)
    return world


def figures(model: SiteModel, rows: Task) -> dict[str, Any]:
    found = evaluate(model, rows.X_test, rows.Y_test)
    out = {figure: float(found[figure]) for figure in METRICS}
    out["by label"] = [float(v) for v in found["per_label"]["BAC"]]
    return out


def ask(world: Settled, site: int, mechanism: Any, epsilon: float) -> dict[str, Any]:
    """Return a site's figures after the others have labelled rows for it."""
    others = [m for place, m in enumerate(world.models) if place != site]
    third = len(world.rows.X_public) // 3
    X = world.rows.X_public[third * (site % 3) : third * (site % 3 + 1)]
    votes = np.stack([model.votes(X) for model in others], axis=1).astype(bool)
    number = answered(mechanism, votes, epsilon, DELTA, paper=True)
    exact = answered(mechanism, votes, epsilon, DELTA)
    labels = mechanism.release(votes[:number], seed=site)
    model = train_site(world.records[site], world.labels, Records(X=X[:number], Y=labels))
    return {"asked": number, "exact": exact, **figures(model, world.rows)}


WAYS: dict[str, Any] = {
    "Binary": pv.BinaryVoting(sigma=SIGMA),
    "Tau": pv.TauVoting(sigma=SIGMA, tau=1.8),
    "Tau, gated": pv.TauVoting(sigma=SIGMA, tau=1.8, gate=pv.Gate(threshold=50, sigma=30)),
}


@lru_cache(maxsize=64)
def _after(
    data: Path | None, seed: int, who: tuple[int, ...], way: str, epsilon: float
) -> tuple[dict[str, Any], ...]:
    world = settled(there(data), seed, data)
    return tuple(ask(world, site, WAYS[way], epsilon) for site in who)


def _weakest(world: Settled) -> tuple[int, ...]:
    found = [figures(model, world.rows)["BAC"] for model in world.models]
    return tuple(int(place) for place in np.argsort(found)[:ASKING])


def _compare(
    bench: Bench,
    cases: Mapping[str, tuple[str, float]],
    names: Mapping[str, str],
    *,
    weakest: bool,
) -> Measured:
    found: dict[str, list[dict[str, Any]]] = {}
    for seed in range(bench.seeds):
        world = settled(there(bench.data), seed, bench.data)
        who = _weakest(world) if weakest else tuple(range(ASKING))
        found.setdefault("before", []).extend(figures(world.models[s], world.rows) for s in who)
        for name, (way, epsilon) in cases.items():
            found.setdefault(name, []).extend(_after(bench.data, seed, who, way, epsilon))
    return _told(found, names)


def _told(found: Mapping[str, list[dict[str, Any]]], names: Mapping[str, str]) -> Measured:
    """Return every state's figures, and as facts what it gains on the state before."""
    rows, facts = [], {}
    before = {f: np.mean([v[f] for v in found["before"]], axis=0) for f in (*METRICS, "by label")}
    for state, values in found.items():
        row: dict[str, Any] = {"state": state}
        if state != "before":
            row["labelled, paper"] = spread([v["asked"] for v in values])
            row["labelled, exact"] = spread([v["exact"] for v in values])
            for figure in METRICS:
                gain = np.mean([v[figure] for v in values]) - before[figure]
                facts[f"{names[state]}_{figure.lower()}"] = float(gain)
            by_label = np.mean([v["by label"] for v in values], axis=0) - before["by label"]
            weak = np.argsort(before["by label"])[:3]
            facts[f"{names[state]}_weak"] = float(by_label[weak].mean())
            facts[f"{names[state]}_labels"] = int((by_label > 0).sum())
        row |= {figure: spread([v[figure] for v in values]) for figure in METRICS}
        rows.append(row)
    return Measured(rows=rows, facts=facts)


def degrading(bench: Bench) -> Measured | None:
    """Ten sites with chest X-rays, few votes to agree: the paper's PadChest, on the NIH's."""
    if find(bench.data, NIH) is None:
        return None
    found: dict[str, list[dict[str, Any]]] = {}
    for seed in range(bench.seeds):
        world = settled("nih", seed, bench.data, 10)
        mechanism = pv.BinaryVoting(sigma=SIGMA)
        for site in range(ASKING):
            found.setdefault("before", []).append(figures(world.models[site], world.rows))
            found.setdefault("after, ε = 20", []).append(ask(world, site, mechanism, 20.0))
    return _told(found, {"after, ε = 20": "after"})


def by_budget(bench: Bench) -> Measured:
    """Three sites of fifty, before and after, at both budgets; and the three weakest of fifty."""
    cases = {"after, ε = 10": ("Binary", 10.0), "after, ε = 20": ("Binary", 20.0)}
    names = {"after, ε = 10": "ten", "after, ε = 20": "twenty"}
    some = _compare(bench, cases, names, weakest=False)
    weak = _compare(bench, {"after, ε = 20": ("Binary", 20.0)}, names, weakest=True)
    rows = [{"sites": who, **row} for who, part in (("three", some), ("weakest three", weak))
            for row in part.rows]  # fmt: skip
    facts = {**some.facts, **{f"weakest_{k}": v for k, v in weak.facts.items()}}
    return Measured(rows=rows, facts=facts)


def by_clipping(bench: Bench) -> Measured:
    """Three sites of fifty with Tau, with and without a gate, and with Binary."""
    cases = {name: (name, 20.0) for name in WAYS}
    return _compare(
        bench, cases, {"Binary": "binary", "Tau": "tau", "Tau, gated": "gated"}, weakest=False
    )


# -- two domains ----------------------------------------------------------------------------------


def _disturbed(X: np.ndarray, seed: int) -> np.ndarray:
    """Return rows as another domain sees them: every feature scaled and shifted a little."""
    rng = np.random.default_rng([seed, 5])
    scale = X.std(axis=0)
    return np.asarray(
        X * rng.uniform(0.8, 1.2, X.shape[1])
        + 0.15 * scale * rng.normal(size=X.shape[1])
        + 0.4 * scale * rng.normal(size=X.shape)
    )


def cross_domain(bench: Bench) -> Measured:
    """Ten weak sites of one domain ask fifty sites of another."""
    found: dict[str, list[float]] = {}
    for seed in range(bench.seeds):
        world = settled(there(bench.data), seed, bench.data)
        sides = [f"X_{side}" for side in ("private", "public", "test")]
        rows = replace(world.rows, **{s: _disturbed(getattr(world.rows, s), seed) for s in sides})
        few = [slice(len(rows.X_private) - 15 * p - 15, -15 * p or None) for p in range(10)]
        records = [Records(X=rows.X_private[part], Y=rows.Y_private[part]) for part in few]
        models = [train_site(one, world.labels) for one in records]
        for name, group in (("own ensemble", models), ("other domain", world.models)):
            votes = np.stack([m.votes(rows.X_test) for m in group], axis=1)
            answers = (votes.mean(axis=1) > 0.5).astype(np.int8)
            figure = pv.metrics.multilabel(rows.Y_test, None, answers)["BAC"]
            found.setdefault(name, []).append(float(figure))
        X = rows.X_public[:1000]
        votes = np.stack([m.votes(X) for m in world.models], axis=1).astype(bool)
        mech = pv.BinaryVoting(sigma=9.0, gate=pv.Gate(threshold=50, sigma=30))
        number = answered(mech, votes, 20.0, DELTA, paper=True)
        labels = mech.release(votes[:number], seed=seed)
        for one, model in list(zip(records, models, strict=True))[:3]:
            after = train_site(one, world.labels, Records(X=X[:number], Y=labels))
            found.setdefault("before", []).append(figures(model, rows)["BAC"])
            found.setdefault("after", []).append(figures(after, rows)["BAC"])
        found.setdefault("labelled", []).append(float(number))
    rows_out = [{"what": name, "BAC (or rows)": spread(v)} for name, v in found.items()]
    facts = {name.replace(" ", "_"): float(np.mean(v)) for name, v in found.items()}
    return Measured(rows=rows_out, facts=facts)

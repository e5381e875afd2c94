"""A coalition of 50 sites: models of three querying sites before and after, by privacy budget.

Each site has its own part of the private records and trains its own model. The querying sites ask
all others about public rows, through the roles and messages of the protocol (clear engine: the same
integers as the secure one), and train again on their own records and the released labels.

Epsilon is each answering site's whole budget, for all three querying sites together, whatever else
they ask; unconditional, delta 1e-5. A querying site stops where its share of the allowance is
expected to end, judged by how often its own model says yes. The noise is 0.3 times the voters.

- equal: every site has the same number of records, as in the paper.
- weakest: the same, and the querying sites are those with the lowest balanced accuracy *on the test
  rows*: part of what they gain is chance that evens out.
- small: the querying sites have a tenth of the others' records.
- other labels: the same as equal, but the querying sites and half of the others have no records of
  every second label; figures are of those labels, for which there is no model before. Who does not
  have a label never says yes, so the bar stands at a quarter of the voters.

Run: python experiments/capc_retrain.py --seeds 3
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from tasks import Task, load

import privote as pv
from privote.capc.charges import Prices
from privote.capc.coalition import Simulation
from privote.capc.models import METRICS, Records, SiteModel, evaluate, train_site
from privote.capc.terms import Terms

SITES, QUERIERS, DELTA, SPARE = 50, 3, 1e-5, 0.9
SIGMA = 0.3 * (SITES - 1)


@dataclass(frozen=True, kw_only=True)
class Way:
    """How labels are released."""

    name: str
    mechanism: Any
    epsilon: float
    guarantee: str = "allowance"


def ways(case: str) -> list[Way]:
    binary = pv.BinaryVoting(sigma=SIGMA, quota=0.25 if case == "other labels" else None)
    found = [
        Way(name="binary", mechanism=binary, epsilon=10.0),
        Way(name="binary", mechanism=binary, epsilon=20.0),
    ]
    if case != "equal":
        return found
    gate = pv.Gate(threshold=0.7 * SITES, sigma=SIGMA)
    tau = pv.TauVoting(sigma=SIGMA, tau=1.8, grid=1024)
    gated_tau = pv.TauVoting(sigma=SIGMA, tau=1.8, grid=1024, gate=gate)
    return [
        *found,
        Way(name="binary, composition", mechanism=binary, epsilon=20.0, guarantee="worst-case"),
        Way(
            name="binary, gated",
            mechanism=pv.BinaryVoting(sigma=SIGMA, gate=gate),
            epsilon=20.0,
        ),
        Way(name="tau", mechanism=tau, epsilon=20.0),
        Way(name="tau, gated", mechanism=gated_tau, epsilon=20.0),
    ]


@dataclass(frozen=True, kw_only=True)
class Sites:
    """Fifty sites, three of which ask; ``judged`` are the labels that figures are of."""

    names: list[str]
    records: dict[str, Records]
    models: dict[str, SiteModel]
    queriers: list[str]
    labels: tuple[str, ...]
    judged: np.ndarray


def settle(task: Task, seed: int, case: str) -> Sites:
    """Share the private records out among the sites, and train their models."""
    labels = tuple(f"label-{i}" for i in range(task.Y_private.shape[1]))
    parts = np.array_split(np.random.default_rng(seed).permutation(len(task.X_private)), SITES)
    names = [f"site-{place:02d}" for place in range(SITES)]
    judged = np.arange(len(labels))
    if case == "other labels":
        judged = judged[1::2]
    records = {}
    for place, (name, rows) in enumerate(zip(names, parts, strict=True)):
        if case == "small" and place < QUERIERS:
            rows = rows[: max(2, len(rows) // 10)]
        Y = task.Y_private[rows].astype(np.int8)
        if case == "other labels" and (place < QUERIERS or place % 2):
            Y[:, judged] = -1
        records[name] = Records(X=task.X_private[rows], Y=Y)
    models = {name: train_site(own, labels) for name, own in records.items()}
    queriers = names[:QUERIERS]
    if case == "weakest":
        by_strength = sorted(
            models, key=lambda name: float(evaluate(models[name], task.X_test, task.Y_test)["BAC"])
        )
        queriers = by_strength[:QUERIERS]
    return Sites(
        names=names, records=records, models=models, queriers=queriers, labels=labels, judged=judged
    )


def terms_of(sites: Sites, task: Task, way: Way) -> Terms:
    return Terms(
        name="study",
        labels=sites.labels,
        features=task.X_public.shape[1],
        bound=float(np.abs(task.X_public).max()),
        mechanism=way.mechanism,
        guarantee=way.guarantee,
        epsilon=way.epsilon,
        delta=DELTA,
        guardian="guardian",
        parties=tuple(sites.names),
        queriers=tuple(sites.queriers),
        most_queries=len(task.X_public),
    )


def affordable(terms: Terms, querier: str, model: SiteModel, X: np.ndarray) -> int:
    """Return how many rows to ask: public numbers, and the querying site's own model."""
    prices = Prices(terms)
    if terms.guarantee == "worst-case":
        fit = 0
        share = terms.epsilon / len(terms.queriers)
        while fit < len(X) and max(prices.charged(querier, fit + 1).values()) <= share:
            fit += 1
        return fit
    votes = model.votes(X)
    each = float(votes.any(axis=1).mean() if terms.counted.by_ballot else votes.sum(axis=1).mean())
    left = min(prices.allowances(querier).values())
    return int(min(len(X), max(1, SPARE * left / max(each, 1e-9))))


def run(sites: Sites, task: Task, way: Way, seed: int) -> list[dict[str, Any]]:
    """Return, for every querying site, its figures after, and how many rows were labelled."""
    terms = terms_of(sites, task, way)
    coalition = Simulation(terms, sites.models, seed=seed)
    found = []
    for querier in sites.queriers:
        count = affordable(terms, querier, sites.models[querier], task.X_public)
        if not count:
            found.append({"asked": 0})
            continue
        rows = task.X_public[:count]
        labels = coalition.ask(querier, rows).labels
        model = train_site(sites.records[querier], sites.labels, Records(X=rows, Y=labels))
        found.append({"asked": len(rows), **figures(model, task, sites.judged)})
    return found


def figures(model: SiteModel, task: Task, judged: np.ndarray) -> dict[str, Any]:
    part = SiteModel(
        weights=model.weights[:, judged],
        bias=model.bias[judged],
        labels=tuple(np.array(model.labels)[judged]),
        thresholds=model.thresholds[judged],
    )
    found = evaluate(part, task.X_test, task.Y_test[:, judged])
    return {figure: found[figure] for figure in METRICS}


def show(name: str, epsilon: str, rows: list[dict[str, Any]]) -> None:
    good = [row for row in rows if "BAC" in row]
    asked = f"{np.mean([row['asked'] for row in rows]):.0f}" if "asked" in rows[0] else "-"
    cells = "  ".join(
        f"{np.mean([row[f] for row in good]):.3f} ± {np.std([row[f] for row in good]):.3f}"
        if good
        else f"{'-':^13s}"
        for f in METRICS
    )
    print(f"  {name:24s} {epsilon:>4s} {asked:>6s}  {cells}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--data", nargs="+", default=["scenes", "tmc2007"])
    parser.add_argument("--cases", nargs="+", default=["equal", "weakest", "small", "other labels"])
    given = parser.parse_args()
    print(f"{SITES} sites, {QUERIERS} of them ask, {given.seeds} seeds; mean ± sd over both")
    for data in given.data:
        tasks = {s: load(data, s) for s in range(given.first_seed, given.first_seed + given.seeds)}
        for case in given.cases:
            started = time.perf_counter()
            before: list[dict[str, Any]] = []
            after: dict[int, list[dict[str, Any]]] = {}
            plans = ways(case)
            for seed, task in tasks.items():
                print(f"{data}, {case}, seed {seed} ...", file=sys.stderr, flush=True)
                sites = settle(task, seed, case)
                before += [figures(sites.models[q], task, sites.judged) for q in sites.queriers]
                for place, way in enumerate(plans):
                    after.setdefault(place, []).extend(run(sites, task, way, 1000 * seed))
            heads = "  ".join(f"{figure:^13s}" for figure in METRICS)
            print(f"\n{data}, {case}:{'':{26 - len(data) - len(case)}s} eps  asked  {heads}")
            show("before", "", before)
            for place, way in enumerate(plans):
                show(way.name, f"{way.epsilon:g}", after[place])
            print(f"  {time.perf_counter() - started:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

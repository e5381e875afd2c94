"""Asking one label first, and the others only if it was released as 1: the paper's three ways.

On real readers of CheXpert; and within a promise, on real votes (tmc2007: fifty teachers, five
labels). There an indicator and the four labels that most imply it are chosen on the
first half of the queries, whose truth counts as public; everything is measured on the other half,
which each seed takes in an order of its own.

- every label: all five are asked.
- more noise: the same, with so much noise that as many queries fit as the gated way answers.
- indicator only: the four others are set to 0 without being asked.
- gated: the four others are asked where the indicator is *released* as 1, and are 0 elsewhere
  (``pv.dependencies.gated``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import privote as pv
from privote.accounting.renyi import rounded_up
from privote.datasets import load_teacher_votes
from privote.planning import queries_for, sigma_for

from .bench import Bench, Measured, over_seeds, spread
from .counts import chances, expected
from .electorates import Electorate, electorate
from .sources import RADIOLOGISTS, find

Array = npt.NDArray[Any]
DELTA, EPSILON, LABELS = 1e-5, 8.0, 5
SIGMAS = (7.0, 20.0)


def gated_questions(bench: Bench) -> Measured | None:
    """Ask five findings always, with more noise, or four of them only if the first was released 1.

    Real readers of CheXpert: eight radiologists, and the same with ten models. Sigma is the paper's
    7 of fifty voters, scaled to theirs. Costs are summed over all 500 studies at order 2, so that
    "more noise" costs what the gated questions cost.
    """
    if find(bench.data, RADIOLOGISTS) is None:
        return None
    rows: list[dict[str, Any]] = []
    facts: dict[str, float] = {}
    for name in ("radiologists", "readers"):
        for account in ("pate2018", "exact"):
            runs = [_ways(electorate(name, s, bench.data).first(LABELS), account, s)
                    for s in range(bench.seeds)]  # fmt: skip
            for way in runs[0]:
                means, shown = over_seeds([run[way] for run in runs])
                kind = "paper" if account == "pate2018" else "exact"
                rows.append({"votes": name, "accounting": kind, "way": way, **shown})
                key = way.replace(" ", "_")
                facts |= {f"{name}_{kind}_{key}_{f}": v for f, v in means.items()}
    return Measured(rows=[*rows, *promised(bench)], facts=facts)


def _ways(some: Electorate, bound: str, seed: int) -> dict[str, dict[str, float]]:
    """Return for each way how many times as many queries it allows, its noise, ACC and BAC."""
    scale = some.voters / 50
    mechanism, rng = pv.BinaryVoting(sigma=7.0 * scale), np.random.default_rng(seed)

    def cost(votes: Array, noise: float) -> Array:
        return np.asarray(pv.BinaryVoting(sigma=noise).rdp(votes, [2.0], bound=bound)[:, 0])

    table = chances(mechanism, some.votes)
    asked = rng.random(len(table)) < table[:, 0, 1]
    every = cost(some.votes, mechanism.sigma).sum()
    gated = cost(some.votes[:, :, :1], mechanism.sigma).sum()
    gated += (cost(some.votes[:, :, 1:], mechanism.sigma) * asked).sum()
    louder = 7.0 * scale
    while louder < 400 and cost(some.votes, louder).sum() > gated:
        louder *= 1.02
    through = table.copy()
    through[~asked, 1:, 0], through[~asked, 1:, 1] = 1.0, 0.0
    through[:, 0, 1], through[:, 0, 0] = asked, ~asked
    noisy = chances(pv.BinaryVoting(sigma=louder), some.votes)
    more = float(every / gated)
    return {
        "all": {"queries": 1.0, "sigma": 7.0, **expected(table, some.truth)},
        "more noise": {"queries": more, "sigma": louder / scale, **expected(noisy, some.truth)},
        "gated": {"queries": more, "sigma": 7.0, **expected(through, some.truth)},
    }


# -- within a promise -----------------------------------------------------------------------------


def family(truth: Array) -> list[int]:
    """Return an indicator and the labels that most imply it, from labels that are public."""
    rate, given = truth.mean(axis=0), pv.dependencies.positive(truth)
    np.fill_diagonal(given, 0)
    common = (rate > 0.03) & (rate < 0.5)
    score = np.where(common[:, None] & common[None], given, 0)
    best = np.sort(score, axis=0)[-(LABELS - 1) :].sum(axis=0)
    indicator = int(best.argmax())
    return [indicator, *np.argsort(-score[:, indicator])[: LABELS - 1].tolist()]


def in_worst_case(votes: Array, truth: Array, sigma: float, seed: int) -> dict[str, dict[str, Any]]:
    """Return queries answered, sigma, the budget needed for all of them, and BAC and MAP."""
    mechanism, voters = pv.BinaryVoting(sigma=sigma), votes.shape[1]
    every = mechanism.release(votes, seed=seed)
    asked = np.where((every[:, :1] == 1) | (np.arange(LABELS) == 0), every, 0).astype(every.dtype)
    questions = np.cumsum(np.where(every[:, 0] == 1, LABELS, 1))
    asked = asked[questions <= queries_for(mechanism, voters, 1, EPSILON, DELTA)]
    same = len(asked)
    fit = queries_for(mechanism, voters, LABELS, EPSILON, DELTA)
    louder = sigma_for(
        lambda s: pv.BinaryVoting(sigma=s), voters, LABELS, EPSILON, DELTA, max(same, 1)
    )
    every = every[:same]
    noisy = pv.BinaryVoting(sigma=louder).release(votes[:same], seed=seed)
    alone = np.where(np.arange(LABELS) == 0, every, 0).astype(every.dtype)
    table = {
        "every label": (every[:fit], sigma, EPSILON),
        "every label, same queries": (every, sigma, price(mechanism, voters, LABELS * same)),
        "more noise": (noisy, louder, EPSILON),
        "indicator only, same queries": (alone, sigma, price(mechanism, voters, same)),
        "gated": (asked, sigma, EPSILON),
    }
    found = {}
    for way, (labels, noise, needed) in table.items():
        good = pv.metrics.multilabel(truth[: len(labels)], labels.astype(float), labels)
        found[way] = {"queries": float(len(labels)), "sigma": noise, "epsilon": needed}
        found[way] |= {"BAC": float(good["BAC"]), "MAP": float(good["MAP"])}
    return found


def price(mechanism: pv.Mechanism, voters: int, labels: int) -> float:
    """Return the epsilon of so many labels in the worst case, rounded up."""
    curve = labels * mechanism.worst_case_rdp(voters, 1)
    return float(rounded_up(float(pv.epsilon(curve, pv.DEFAULT_ORDERS, DELTA)), 4))


def until_one_runs_out(votes: Array, sigma: float, seed: int) -> tuple[int, int]:
    """Return how many queries until a voter has nothing left: every label asked, and gated."""
    mechanism = pv.BinaryVoting(sigma=sigma)
    kept = pv.Electorate(
        mechanism=mechanism, voters=votes.shape[1], labels=1, epsilon=EPSILON, delta=DELTA
    )
    first = mechanism.release(votes[:, :, [0]], seed=seed)[:, 0] == 1
    asked = votes & (first[:, None, None] | (np.arange(LABELS) == 0))
    lasts = [
        int((np.cumsum(cast.sum(axis=2), axis=0) <= kept.allowance).all(axis=1).sum())
        for cast in (votes, asked)
    ]
    return lasts[0], lasts[1]


def promised(bench: Bench) -> list[dict[str, Any]]:
    """Return rows of all ways on real votes, in the worst case and under an allowance."""
    data = load_teacher_votes()
    half = len(data.truth) // 2
    chosen = family(data.truth[:half])
    votes, truth = data.votes[half:][:, :, chosen], data.truth[half:][:, chosen]
    turns = [np.random.default_rng(seed).permutation(len(votes)) for seed in range(bench.seeds)]
    rows: list[dict[str, Any]] = []
    for sigma in SIGMAS:
        found = [in_worst_case(votes[p], truth[p], sigma, s) for s, p in enumerate(turns)]
        for way in found[0]:
            runs = [run[way] for run in found]
            shown = {figure: spread([run[figure] for run in runs]) for figure in runs[0]}
            rows.append({"way": f"tmc2007, worst case, sigma {sigma:g}: {way}", **shown})
        lasts = [until_one_runs_out(votes[p], sigma, s) for s, p in enumerate(turns)]
        for place, way in enumerate(("every label", "gated")):
            name = f"tmc2007, allowance, sigma {sigma:g}, until a voter runs out: {way}"
            rows.append({"way": name, "queries": spread([run[place] for run in lasts])})
    return rows

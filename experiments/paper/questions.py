"""Asking one label first, and the others only if it was released as 1: the paper's three ways.

As the paper counts, on the CheXpert electorate; and within a promise, on real votes (tmc2007: fifty
teachers, five labels). There an indicator and the four labels that most imply it are chosen on the
first half of the queries, whose truth counts as public; everything is measured on the other half,
which each seed takes in an order of its own.

- every label: all five are asked.
- more noise: the same, with so much noise that as many queries fit as the gated way answers.
- indicator only: the four others are set to 0 without being asked.
- gated: the four others are asked where the indicator is *released* as 1, and are 0 elsewhere
  (``pv.dependencies.gated``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

import privote as pv
from privote.accounting.renyi import rounded_up
from privote.datasets import load_teacher_votes
from privote.planning import queries_for, sigma_for

from .counts import chances, expected, limits, orders_for, spread
from .electorates import electorate
from .kinds import FAILS, HOLDS, PART, Bench, Measured, Verdict

Facts = Mapping[str, Any]
Array = npt.NDArray[Any]
DELTA, EPSILON, LABELS = 1e-5, 8.0, 5
SIGMAS = (7.0, 20.0)


def gated_questions(bench: Bench) -> Measured:
    """Ask five labels always, with more noise, or four of them only if the first was released 1."""
    found: dict[str, list[dict[str, float]]] = {}
    accounts = (("paper", True), ("exact", False))
    for seed in range(bench.seeds):
        some = electorate("chexpert", seed, bench.data).first(LABELS)
        votes, truth = some.votes, some.truth
        rng = np.random.default_rng(seed)
        mech, orders = pv.BinaryVoting(sigma=7.0), orders_for(8.0)
        first = chances(mech, votes)[:, 0, 1]
        asked = rng.random(len(first)) < first
        for account, old in accounts:
            bound = "pate2018" if old else "exact"
            most = limits(8.0, 1e-4, orders, old=old)

            def count(costs: np.ndarray, most: np.ndarray = most) -> int:
                within = (np.cumsum(costs, axis=0) <= most).any(axis=1)
                return len(within) if within.all() else int(within.argmin())

            one = mech.rdp(votes[:, :, :1], orders, bound=bound)
            rest = mech.rdp(votes[:, :, 1:], orders, bound=bound)
            number = count(one + rest)
            gated = max(1, count(one + rest * asked[:, None]))
            table = chances(mech, votes[:gated])
            through = table.copy()
            through[~asked[:gated], 1:, 0], through[~asked[:gated], 1:, 1] = 1.0, 0.0
            through[:, 0, 1], through[:, 0, 0] = asked[:gated], ~asked[:gated]
            louder = 7.0
            while (
                louder < 400
                and count(pv.BinaryVoting(sigma=louder).rdp(votes[:gated], orders, bound=bound))
                < gated
            ):
                louder *= 1.1
            noisy = chances(pv.BinaryVoting(sigma=louder), votes[:gated])
            for way, answered, chance in (
                ("all labels", number, table),
                ("more noise", gated, noisy),
                ("gated questions", gated, through),
            ):
                figures = expected(chance, truth[:gated])
                row = {"queries": float(answered), "sigma": 7.0, **figures}
                if way == "more noise":
                    row["sigma"] = louder
                found.setdefault(f"{way}, {account}", []).append(row)
    rows = [
        {
            "way": f"CheXpert electorate, {way}",
            **{k: spread([v[k] for v in values]) for k in values[0]},
        }
        for way, values in found.items()
    ]
    facts = {
        way: {k: float(np.mean([v[k] for v in values])) for k in values[0]}
        for way, values in found.items()
    }
    return Measured(rows=[*rows, *promised(bench)], facts=facts)


def gated_questions_verdict(facts: Facts) -> Verdict:
    good, said = [], []
    for account, name in (("paper", "in the paper's accounting"), ("exact", "exactly")):
        every, noisy, gated = (
            facts[f"{way}, {account}"] for way in ("all labels", "more noise", "gated questions")
        )
        good += [gated["queries"] > 1.5 * every["queries"], gated["BAC"] > noisy["BAC"]]
        good.append(gated["BAC"] < every["BAC"])
        said.append(
            f"{name} {every['queries']:.0f} queries become {gated['queries']:.0f}, with BAC "
            f"{gated['BAC']:.3f} gated and {noisy['BAC']:.3f} with more noise instead "
            f"({every['BAC']:.3f} for all labels)"
        )
    return (HOLDS if all(good) else PART if any(good) else FAILS), (
        "On the CheXpert electorate, five labels, ε = 8: "
        + "; ".join(said)
        + ". What a promise allows, on real votes, is in the rows for tmc2007."
    )


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

"""Plans that promise what the door does not give: random mechanisms, budgets and votes."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.attacks.conftest import Outcome, scaled

import privote as pv
from privote import planning


def _mechanism(rng: np.random.Generator) -> pv.Mechanism:
    sigma = float(rng.uniform(0.5, 8.0))
    kinds: list[Any] = [
        lambda: pv.BinaryVoting(sigma=sigma),
        lambda: pv.BinaryVoting(sigma=sigma, quota=float(rng.uniform(0.2, 0.8))),
        lambda: pv.BinaryVoting(sigma=sigma, gate=pv.Gate(threshold=5, sigma=2 * sigma)),
        lambda: pv.BinaryVoting(link=pv.OptimalLink(cost=0.5 / sigma, order=4.0)),
        lambda: pv.TauVoting(sigma=sigma, tau=1.2),
        lambda: pv.PowersetVoting(sigma=sigma),
        lambda: pv.PluralityVoting(sigma=sigma),
    ]
    return kinds[rng.integers(len(kinds))]()  # type: ignore[no-any-return]


def _answers(votes: Any, guarantee: str, **run: Any) -> int:
    """Return how many queries a release answers with every voter counted; 0 for a refusal."""
    try:
        release = pv.label(votes, guarantee=guarantee, seed=0, **run)
    except pv.BudgetError:
        return 0
    if guarantee == "worst-case":
        return release.answered
    for queries in range(1, len(votes) + 1):
        every = {"guarantee": guarantee, "queries": "all", "seed": 0}
        if pv.label(votes[:queries], **every, **run).sealed.refused.any():
            return queries - 1
    return len(votes)


def test_a_plan_is_what_a_release_does(outcome: Outcome) -> None:
    tried = through = 0
    for seed in range(scaled(12, 300)):
        rng = np.random.default_rng(seed)
        mechanism = _mechanism(rng)
        votes = np.eye(2, dtype=bool)[rng.integers(2, size=(8, 6))]
        votes &= rng.random((8, 6, 1)) < rng.random()
        run: dict[str, Any] = {"mechanism": mechanism, "delta": 1e-5}
        run["epsilon"] = float(np.exp(rng.uniform(np.log(0.01), np.log(20.0))))
        planned = planning.queries_that_fit(mechanism, votes, run["epsilon"], 1e-5)
        for guarantee in ("allowance", "worst-case"):
            tried += 1
            through += planned[guarantee] != _answers(votes, guarantee, **run)
    outcome("a plan counts other queries than a release answers", tried, through)

"""Polls of people: how often exactly the noise-free winners are released, by mechanism and budget.

Every PrefLib and Pabulib file of the shared data; delta = 1e-6, no ledger. For each outcome the
table has every mechanism that can release it at the noise that planning gives it, what auto took,
and how far that is behind the best, in points.

Chances are computed; where money is spent they are shares of 100,000 draws.

Run: python experiments/polls.py
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from privote.entropy import Entropy
from privote.errors import InputError
from privote.polls import PollBallots, read
from privote.polls.mechanisms import (
    Greedy,
    NoisyCounts,
    PollMechanism,
    PollOutcome,
    PollSize,
    Quota,
    Seats,
)
from privote.polls.planning import plan_poll

SHARED = Path(os.environ.get("PRIVOTE_SHARED", Path(__file__).resolve().parents[2] / "shared"))
DELTA, EPSILONS, DRAWS, RUNS = 1e-6, (0.1, 0.5, 1.0, 2.0), 100_000, 300
MECHANISMS = ("binary", "top-m", "counts")


def outcomes(ballots: PollBallots) -> Iterator[tuple[str, PollOutcome]]:
    if ballots.costs is not None and ballots.money is not None:
        yield "greedy", Greedy(costs=ballots.costs, money=ballots.money)
    if ballots.size.each == 1:
        yield "quota 1/2", Quota(share=0.5)
    for seats in (1, 2, 5, 16):
        if seats < min(len(ballots.options), 6 if len(ballots.options) < 100 else 99):
            yield f"{seats} seats" if seats > 1 else "1 seat", Seats(number=seats)


def chance(mechanism: PollMechanism, ballots: PollBallots, outcome: PollOutcome) -> float:
    """Return how often exactly the noise-free winners of the poll are released."""
    voters = ballots.voters
    counts, wanted = ballots.counts.astype(float), outcome.winners(ballots.counts, voters)
    if not isinstance(outcome, Greedy):
        levels, times = np.unique(counts, return_counts=True)
        return mechanism.chance(levels[::-1], times[::-1], voters, outcome)
    assert isinstance(mechanism, NoisyCounts)
    return drawn(mechanism.sigma, counts, wanted, outcome)


def drawn(sigma: float, counts: np.ndarray, wanted: np.ndarray, outcome: Greedy) -> float:
    """Return the share among draws; a tie goes by place."""
    rng, right = np.random.default_rng(0), 0
    step = 10_000 if len(counts) < 100 else 1_000
    for _ in range(0, DRAWS, step):
        noisy = counts + np.rint(sigma * rng.standard_normal((step, len(counts))))
        won = spend(np.argsort(-noisy, axis=1, kind="stable"), outcome)
        right += int((won == wanted).all(axis=1).sum())
    return right / DRAWS


def spend(order: np.ndarray, outcome: Greedy) -> np.ndarray:
    costs = np.array([float(cost) for cost in outcome.costs])
    left = np.full(len(order), float(outcome.money))
    won = np.zeros(order.shape, bool)
    rows = np.arange(len(order))
    for rank in range(order.shape[1]):
        option = order[:, rank]
        fits = costs[option] <= left
        won[rows[fits], option[fits]] = True
        left[fits] -= costs[option[fits]]
    return won


def covered(size: PollSize) -> tuple[int, float, float]:
    """Return half an interval at epsilon 1, and how often all options lie within: sums, draws."""
    plan = plan_poll(size, Seats(number=1), epsilon=1.0, delta=DELTA, shares=True)
    mechanism, half = plan.mechanism, plan.interval
    assert isinstance(mechanism, NoisyCounts)
    assert half is not None
    computed = float((1 - 2 * mechanism.noise.above(half)) ** size.options)
    entropy = Entropy()
    seen = [
        bool((np.abs(entropy.rounded_gaussian(mechanism.sigma, size.options)) <= half).all())
        for _ in range(RUNS)
    ]
    return half, computed, float(np.mean(seen))


def shown(value: float | None) -> str:
    return f"{'-':>7}" if value is None else f"{100 * value:7.1f}"


def lines(ballots: PollBallots, behind: list[float]) -> Iterator[str]:
    size = ballots.size
    for label, outcome in outcomes(ballots):
        for epsilon in EPSILONS:
            found: dict[str, float | None] = {}
            for kind in MECHANISMS:
                try:
                    plan = plan_poll(size, outcome, epsilon=epsilon, delta=DELTA, mechanism=kind)
                    found[kind] = chance(plan.mechanism, ballots, outcome)
                except InputError:
                    found[kind] = None
            row = f"{label:<9}{epsilon:>5g}" + "".join(shown(found[kind]) for kind in MECHANISMS)
            plan = plan_poll(size, outcome, epsilon=epsilon, delta=DELTA)
            taken = plan.mechanism.facts()["mechanism"]
            short = max(value for value in found.values() if value is not None)
            short -= found[taken] or 0.0
            behind.append(short)
            yield row + f"  {taken:<7}{100 * short:5.1f}"


def main() -> None:
    start = time.perf_counter()
    behind: list[float] = []
    folder = SHARED / "data"
    for path in sorted([*folder.glob("preflib_*.cat"), *folder.glob("pabulib_*.pb")]):
        ballots = read(path)
        size = ballots.size
        print(
            f"\n{path.name}: {size.voters} voters, {size.options} options, at most {size.most} "
            f"{'approvals' if size.each == 1 else f'points, {size.each} each'} a ballot"
        )
        half, computed, seen = covered(size)
        print(
            f"shares at epsilon 1: +- {half}; all options within: {computed:.4f} (sum), "
            f"{seen:.3f} ({RUNS} exact draws)"
        )
        heads = "".join(f"{head:>7}" for head in MECHANISMS)
        print(f"{'outcome':<9}{'eps':>5}{heads}  auto  behind")
        for line in lines(ballots, behind):
            print(line, flush=True)
    print()
    over = sum(value > 0.02 for value in behind)
    print(
        f"auto: behind the best by at most {100 * max(behind):.2f} points in {len(behind)} cases; "
        f"by more than 2 in {over}"
    )
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()

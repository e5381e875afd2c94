"""The full audit: random small elections, adaptive runs, and bounds that are wrong on purpose.

Per mechanism at least 100,000 elections (n <= 12 voters, k <= 4 labels; random sigma, tau, norm,
gate, bar, missing votes), every neighbour enumerated in both directions by an independent
implementation; 2,000 adaptive runs with an allowance, every transcript enumerated; 40,000 pairs of
electorates whose allowance is learnt, every branch enumerated; 500 adversaries who choose every
charge to a ledger from released labels, each playing its best policy; then broken bounds, which the
same audit must catch. Exits 1 if anything is not as it should be.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from adaptive import adaptive
from learnt import PLANS, WRONG, learnt
from policies import by_the_best_order, policies

import privote as pv
from privote import audit

ORDERS = np.array([1.05, 2.0, 5.0, 32.0, 400.0])
KINDS = tuple(pv.MECHANISMS)


def random_gate(rng: np.random.Generator, voters: int) -> pv.Gate | None:
    if rng.random() < 0.6:
        return None
    return pv.Gate(threshold=rng.uniform(-1, voters + 2), sigma=10 ** rng.uniform(-0.7, 1))


def random_mechanism(kind: str, rng: np.random.Generator, voters: int) -> pv.Mechanism:
    """Return a mechanism with random parameters; sigma from a tenth of a vote to ten."""
    sigma, gate = 10 ** rng.uniform(-1, 1), random_gate(rng, voters)
    if kind == "tau":
        norm = int(rng.integers(1, 3))
        return pv.TauVoting(sigma=sigma, tau=rng.uniform(0.2, 2.5), norm=norm, gate=gate)
    if kind == "powerset":
        most = None if rng.random() < 0.6 else int(rng.integers(1, 4))
        return pv.PowersetVoting(sigma=sigma, max_positives=most, gate=gate)
    if kind == "tally":
        clip = {} if rng.random() < 0.5 else {"tau": rng.uniform(0.8, 2.5), "grid": 8}
        return pv.TallyVoting(sigma=sigma, **clip)
    if kind != "binary":
        every = audit.subjects(pv.MECHANISMS[kind])
        some = replace(every[rng.integers(len(every))], sigma=sigma)
        return replace(some, gate=gate) if "gate" in some.settings() else some
    choice = rng.integers(3)
    if choice == 1:
        return pv.BinaryVoting(sigma=sigma, quota=rng.uniform(0.05, 0.95))
    if choice == 2:
        return pv.BinaryVoting(sigma=sigma, false_alarm=10 ** rng.uniform(-4, -0.4))
    return pv.BinaryVoting(sigma=sigma, gate=gate)


def one_setting(task: tuple[str, int, int]) -> dict[str, Any]:
    """Audit one random setting on some elections."""
    kind, elections, seed = task
    rng = np.random.default_rng(seed)
    labels = int(rng.integers(1, 5))
    if kind == "plurality":
        labels = max(labels, 2)
    missing = bool(rng.random() < 0.25)
    if missing and labels > 2:
        labels = 2  # three-valued ballots: 3^k of them
    voters = int(rng.integers(1, 13))
    mechanism = random_mechanism(kind, rng, voters)
    report = audit.exact(
        mechanism, voters, labels, ORDERS, elections=elections, missing=missing, seed=seed
    )
    return {
        "kind": kind,
        "elections": report.elections,
        "neighbours": report.neighbours,
        "worst": max(report.ratios.values()),
        "violations": [str(v) for v in report.violations],
        "setting": f"{mechanism}, {voters} voters, {labels} labels, missing={missing}, seed={seed}",
    }


def one_run(task: tuple[str, int, int]) -> dict[str, Any]:
    """Audit some adaptive runs of one random setting."""
    kind, runs, seed = task
    rng = np.random.default_rng(seed)
    voters, labels = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    if kind == "plurality":
        labels = 2
    mechanism = random_mechanism(kind, rng, voters)
    allowance = int(rng.integers(1, 4))
    queries = 3 if labels == 1 or mechanism.gate is None else 2
    report = adaptive(
        mechanism,
        voters,
        labels,
        allowance=allowance,
        queries=queries,
        orders=ORDERS,
        runs=runs,
        seed=seed,
    )
    return {
        "kind": "adaptive",
        "elections": runs,
        "neighbours": report.transcripts,
        "worst": report.ratio,
        "violations": [f"run {seed}" for seed in report.broken] + ["ballots"] * report.unlike,
        "setting": f"{mechanism}, {voters} voters, {labels} labels, V={allowance}, seed={seed}",
    }


def one_learning(task: tuple[str, int, int]) -> dict[str, Any]:
    """Audit some pairs of electorates whose allowance is learnt."""
    plan, pairs, seed = task
    report = learnt(plan, pairs, seed=seed)
    return {
        "kind": "learnt",
        "elections": pairs,
        "neighbours": report.branches,
        "worst": report.ratio,
        "violations": [f"pair {seed}" for seed in report.broken],
        "setting": plan,
    }


def one_policy(task: tuple[str, int, int]) -> dict[str, Any]:
    """Play some best policies against a ledger."""
    _, count, seed = task
    report = policies(count, seed=seed)
    return {
        "kind": "policies",
        "elections": count,
        "neighbours": report.histories,
        "worst": report.ratio,
        "violations": [f"policy {seed}" for seed in report.broken],
        "setting": "charges that follow released labels",
    }


def broken_bounds() -> Iterator[tuple[str, bool]]:
    """Yield bounds that are wrong in print or by design, and whether the audit catches them."""
    tau = pv.TauVoting(sigma=2.0, tau=1.0)
    claimed = audit.exact(
        tau, 6, 2, ORDERS, elections=200, stated=lambda orders: orders * 1.0 / 2.0**2
    )
    yield "tau's order * tau^2 / sigma^2 as worst case", not claimed.ok
    binary = pv.BinaryVoting(sigma=2.0)
    halved = audit.exact(
        binary,
        6,
        2,
        ORDERS,
        elections=200,
        stated=lambda orders: 0.99 * binary.worst_case_rdp(6, 2, orders),
    )
    yield "Binary's worst case less one percent", not halved.ok
    single = adaptive(binary, 3, 2, allowance=2, queries=3, orders=ORDERS, runs=200, factor=1)
    yield "an allowance charged V instead of 2V", not single.ok
    published = audit.exact(binary, 12, 2, ORDERS, elections=200, bound="pate2018")
    yield "Theorem 6 as a bound on both directions", not published.ok
    for plan in WRONG:
        yield f"allowance learnt, {plan}", not learnt(plan, 500).ok
    steered = policies(1, seed=350, admit=by_the_best_order)
    yield "a budget that settles at the best order of each history", not steered.ok


def gather(pool: Any, job: Any, tasks: list[Any], name: str) -> list[dict[str, Any]]:
    found = []
    for done, result in enumerate(pool.imap_unordered(job, tasks, chunksize=2), start=1):
        found.append(result)
        print(f"\r{name}: {done}/{len(tasks)} settings", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elections", type=int, default=100_000, help="per mechanism")
    parser.add_argument("--runs", type=int, default=2_000, help="adaptive runs")
    parser.add_argument("--pairs", type=int, default=10_000, help="per plan of learnt allowances")
    parser.add_argument("--policies", type=int, default=500, help="adversaries over a ledger")
    parser.add_argument("--batch", type=int, default=500, help="elections per random setting")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    arguments = parser.parse_args()
    violations = 0
    print(f"{'what':<10} {'elections':>10} {'neighbours':>12} {'worst ratio':>12} {'seconds':>8}")
    with multiprocessing.get_context("fork").Pool(arguments.jobs) as pool:
        for number, kind in enumerate((*KINDS, "adaptive", "learnt", "policies")):
            started = time.perf_counter()
            first = arguments.seed + number * 1_000_000
            if kind == "adaptive":
                count = math.ceil(arguments.runs / 20)
                tasks = [(KINDS[i % len(KINDS)], 20, first + 1000 * i) for i in range(count)]
                found = gather(pool, one_run, tasks, kind)
            elif kind == "learnt":
                parts = math.ceil(arguments.pairs / 100)
                tasks = [(plan, 100, first + 100 * i) for plan in PLANS for i in range(parts)]
                found = gather(pool, one_learning, tasks, kind)
            elif kind == "policies":
                count = math.ceil(arguments.policies / 5)
                found = gather(pool, one_policy, [(kind, 5, 5 * i) for i in range(count)], kind)
            else:
                count = math.ceil(arguments.elections / arguments.batch)
                tasks = [(kind, arguments.batch, first + 1000 * i) for i in range(count)]
                found = gather(pool, one_setting, tasks, kind)
            bad = [(f["setting"], v) for f in found for v in f["violations"]]
            violations += len(bad)
            print(
                f"{kind:<10} {sum(f['elections'] for f in found):>10,} "
                f"{sum(f['neighbours'] for f in found):>12,} "
                f"{max(f['worst'] for f in found):>12.9f} {time.perf_counter() - started:>8.0f}",
                flush=True,
            )
            for setting, violation in bad[:10]:
                print(f"  VIOLATION: {setting}: {violation}")
    print()
    for name, caught in broken_bounds():
        print(f"{'caught' if caught else 'NOT CAUGHT'}: {name}")
        violations += not caught
    print(f"\n{violations} violations")
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()

"""Tallies with a learnt allowance, decided afterwards: how good the labels are, and what is said.

Every figure is against the noise-free majority over all queries asked, means of the seeds. Votes
come in random order (permuted by the seed), the first N queries are asked. Bits to compare with are
Binary's, with the noise that the same allowance leaves and the best single bar in hindsight.

    python experiments/tallies.py            # all tables, some minutes
    python experiments/tallies.py --seeds 2 --only quality
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import privote as pv
from privote.accounting.allowance import (
    Learning,
    learning_epsilon,
    mu_at_order,
    mu_of_budget,
    settled,
)
from privote.entropy import Entropy
from privote.posterior import Posterior, posterior
from privote.votes.contributions import bound_votes

Votes = npt.NDArray[np.bool_]
DELTA = 1e-5
EPSILONS = (8.0, 4.0, 2.0, 1.0)
SHARED = Path(os.environ.get("PRIVOTE_SHARED", Path(__file__).resolve().parents[2] / "shared"))
FILES = {
    "VOC 2012, 50 teachers": "votes_voc2012_50.npz",
    "tmc2007, 50 teachers": "votes_tmc2007_50.npz",
    "tmc2007, 250 teachers": "votes_tmc2007_250.npz",
}
# A reference of 77 lines, whole budget, 3 draws, decided by F1 (epsilon 8, 4, 2, 1).
REFERENCE = {
    ("VOC 2012, 50 teachers", 300): (0.77, 0.53, 0.36, 0.19),
    ("VOC 2012, 50 teachers", 1000): (0.53, 0.39, 0.34, 0.27),
    ("tmc2007, 50 teachers", 300): (0.70, 0.60, 0.52, 0.32),
    ("tmc2007, 50 teachers", 1000): (0.60, 0.55, 0.52, 0.31),
    ("tmc2007, 250 teachers", 300): (0.94, 0.90, 0.82, 0.73),
    ("tmc2007, 250 teachers", 1000): (0.91, 0.84, 0.76, 0.70),
}


@dataclass(frozen=True)
class Run:
    """One release, and what the labels should have been."""

    truth: Votes
    tallies: npt.NDArray[np.int64]
    said: Posterior
    learning: Learning
    allowance: int
    true: npt.NDArray[np.int64]

    def labels(self, by: str) -> Votes:
        return self.said.labels(by)


def released(votes: Votes, epsilon: float, seed: int, *, whole: bool = True) -> Run:
    """Learn the allowance, cut, and release tallies, as a call without a ledger or with one."""
    queries, voters, labels = votes.shape
    order, rho = settled(epsilon, DELTA)
    epsilon0 = learning_epsilon(rho, voters)
    learning = Learning(voters=voters, queries=queries, labels=labels, epsilon0=epsilon0)
    entropy = Entropy(seed)
    chances = learning.log_probs(votes.sum(axis=(0, 2)))
    allowance = learning.grid[int(entropy.categorical(chances[None])[0])]
    mu = (
        mu_of_budget(epsilon, DELTA, epsilon0)
        if whole
        else mu_at_order(order * (rho - epsilon0**2 / 8), order)
    )
    mechanism = pv.TallyVoting(sigma=learning.sigma(allowance, mu))
    left = np.full(voters, learning.limit(allowance))
    counted, *_ = bound_votes(votes, np.zeros((queries, labels), bool), left, "vote")
    blocks = pv.Ballots.from_array(counted).blocks()
    tallies = np.concatenate([mechanism.draw(mechanism.tally(block), entropy) for block in blocks])
    said = posterior(tallies, sigma=mechanism.sigma, voters=voters)
    truth = 2 * votes.sum(axis=1) > voters
    return Run(truth, tallies, said, learning, allowance, counted.sum(axis=1))


def figures(truth: Votes, labels: Votes) -> dict[str, float]:
    """Return precision, recall, F1 and accuracy."""
    hits, ones, wanted = (float(x.sum()) for x in (truth & labels, labels, truth))
    return {
        "precision": hits / ones if ones else float("nan"),
        "recall": hits / wanted if wanted else float("nan"),
        "f1": 2 * hits / (ones + wanted) if ones + wanted else 1.0,
        "accuracy": float((truth == labels).mean()),
        "ones": ones,
    }


# -- electorates ----------------------------------------------------------------------------------


def shared(name: str, queries: int, seed: int) -> Votes:
    cube = _cube(FILES[name])
    return cube[np.random.default_rng(seed).permutation(len(cube))[:queries]]


@lru_cache(maxsize=4)
def _cube(file: str) -> Votes:
    with np.load(SHARED / "data" / file) as archive:
        shape = tuple(int(size) for size in archive["shape"])
        bits = np.unpackbits(archive["votes"], count=int(np.prod(shape)))
    return bits.reshape(shape).astype(bool)


def made(
    *,
    queries: int = 600,
    voters: int = 60,
    labels: int = 10,
    share: float | tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.3),
    hit: float = 0.8,
    alarm: float = 0.02,
    uneven: float = 0.0,
    alike: bool = False,
) -> Callable[[int], Votes]:
    """Return an electorate: who wants a label says so with ``hit``, who does not with ``alarm``."""

    def electorate(seed: int) -> Votes:
        rng = np.random.default_rng(1000 + seed)
        shares = np.resize(np.asarray(share, float), labels)
        wanted = rng.random((queries, labels)) < shares
        if alike:  # labels of one group come together
            wanted = (rng.random((queries, 1)) < shares) & (rng.random((queries, labels)) < 0.9)
        weight = np.exp(uneven * rng.normal(size=voters))[None, :, None]
        chance = np.where(wanted[:, None, :], hit, alarm) * np.minimum(weight, 1 / max(hit, 1e-9))
        return rng.random((queries, voters, labels)) < chance

    return electorate


ODD: dict[str, Callable[[int], Votes]] = {
    "empty votes": made(share=0.0, alarm=0.0),
    "only false alarms": made(share=0.0, alarm=0.05),
    "unanimous": made(hit=1.0, alarm=0.0),
    "8 voters": made(voters=8),
    "100 labels": made(labels=100, queries=300, share=(0.003, 0.01, 0.03, 0.1)),
    "very rare labels": made(share=0.002, alarm=0.001),
    "very common labels": made(share=0.85, hit=0.9, alarm=0.1),
    "common, nearly unanimous": made(share=0.18, hit=0.97, alarm=0.01),
    "uneven voters": made(uneven=1.0, hit=0.6),
    "correlated labels": made(alike=True),
    "one label": made(labels=1, queries=1000, share=0.2),
    "undecided voters": made(share=0.3, hit=0.55, alarm=0.2),
    "400 voters": made(voters=400),
}


# -- bits, to compare with ------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def bit_noise(cells_moved: int, voters: int, epsilon: float) -> float:
    """Return the noise on yes-votes with which so many changed bits fit the rest of a budget."""
    order, rho = settled(epsilon, DELTA)
    left = order * (rho - learning_epsilon(rho, voters) ** 2 / 8)
    low, high = 1e-2, 1e7  # of PATE's sigma, sqrt(2) times the noise
    for _ in range(40):
        middle = (low * high) ** 0.5
        cost = pv.BinaryVoting(sigma=middle).contribution_rdp(voters, 1, [order])[0]
        low, high = (middle, high) if cells_moved * cost > left else (low, middle)
    return high / 2**0.5


def best_bits(run: Run, epsilon: float, seed: int) -> float:
    """Return the F1 of bits at the best bar in hindsight."""
    moved = min(2 * run.allowance, run.learning.cells)
    noise = bit_noise(moved, run.learning.voters, epsilon)
    noisy = run.true + noise * np.random.default_rng(seed).normal(size=run.true.shape)
    order = np.argsort(-noisy, axis=None)
    hits = np.cumsum(run.truth.reshape(-1)[order])
    scores = 2 * hits / (np.arange(1, hits.size + 1) + max(1, run.truth.sum()))
    return float(scores.max())


# -- tables ---------------------------------------------------------------------------------------


def settings(seeds: int) -> Iterator[tuple[str, Callable[[int], Votes]]]:
    for name, queries in REFERENCE:
        yield (
            f"{name}, {queries:,}",
            lambda seed, name=name, queries=queries: shared(name, queries, seed),
        )


def reference(votes: Votes, epsilon: float, seed: int) -> float:
    """Return the reference's F1 on the same queries; its draws are others."""
    found = spec_from_file_location("tally", SHARED / "tools" / "tally.py")
    assert found is not None
    assert found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    truth = 2 * votes.sum(axis=1) > votes.shape[1]
    return figures(truth, module.release(votes, epsilon, DELTA, seed)[0])["f1"]


def table_f1(seeds: int) -> None:
    print("F1, decided by F1: whole budget (reference: as kept; on these queries) [in a ledger]")
    print(f"{'votes, queries':<30}" + "".join(f"{f'epsilon {e:g}':>28}" for e in EPSILONS))
    ours, theirs, ledger, same = [], [], [], []
    for (name, queries), known_row in REFERENCE.items():
        cells = []
        for epsilon, known in zip(EPSILONS, known_row, strict=True):
            scores = [
                [
                    figures(run.truth, run.labels("f1"))["f1"]
                    for run in (
                        released(shared(name, queries, seed), epsilon, seed, whole=whole)
                        for seed in range(seeds)
                    )
                ]
                for whole in (True, False)
            ]
            mean, pinned = np.mean(scores, axis=1)
            here = np.mean(
                [reference(shared(name, queries, seed), epsilon, seed) for seed in range(seeds)]
            )
            for kept, value in zip(
                (ours, theirs, ledger, same), (mean, known, pinned, here), strict=True
            ):
                kept.append(float(value))
            mark = "!" if mean < known - 0.03 else " "
            cells.append(f"{mean:.3f}{mark}({known:.2f}; {here:.3f}) [{pinned:.3f}]")
        print(f"{f'{name}, {queries:,}':<30}" + "".join(f"{cell:>28}" for cell in cells))
    print(
        f"mean {np.mean(ours):.4f}; reference {np.mean(theirs):.4f} as kept, {np.mean(same):.4f} "
        f"on these queries; in a ledger {np.mean(ledger):.4f}; '!': more than .03 below as kept\n"
    )


def table_default(seeds: int) -> None:
    print("Decided by default (likely): accuracy - always no's, precision, recall")
    print(f"{'votes, queries':<30}" + "".join(f"{f'epsilon {e:g}':>24}" for e in EPSILONS))
    for name, votes in settings(seeds):
        cells = []
        for epsilon in EPSILONS:
            rows = []
            for seed in range(seeds):
                run = released(votes(seed), epsilon, seed)
                found = figures(run.truth, run.labels("likely"))
                gain = found["accuracy"] - (1 - run.truth.mean())
                rows.append([gain, found["precision"], found["recall"]])
            gain, precision, recall = np.nanmean(rows, axis=0)
            cells.append(f"{gain:+.4f} {precision:.2f} {recall:.2f}")
        print(f"{name:<30}" + "".join(f"{cell:>24}" for cell in cells))
    print()


def table_quality(seeds: int) -> None:
    print("Quality, where it is told: stated F1 - actual, by rule (f1, likely); '-' cannot be told")
    print("and the ones released where nobody wants any")
    gaps: list[float] = []
    told = asked = 0
    everything = [*settings(seeds), *ODD.items()]
    for name, votes in everything:
        cells = []
        for epsilon in EPSILONS:
            texts = []
            for by in ("f1", "likely"):
                off, ones = [], 0.0
                for seed in range(seeds):
                    run = released(votes(seed), epsilon, seed)
                    found = figures(run.truth, run.labels(by))
                    stated = run.said.quality(by, learnt=run.learning.learns)
                    asked += 1
                    if stated is not None:
                        told += 1
                        off.append(stated["f1"] - found["f1"])
                    if not run.truth.any():
                        ones += found["ones"]
                gaps += off
                text = f"{len(off)}: {np.mean(off):+.2f}..{max(off):+.2f}" if off else "-"
                texts.append(text + (f" {ones:g} ones" if ones else ""))
            cells.append(" | ".join(texts))
        print(f"{name:<30}" + "".join(f"{cell:>36}" for cell in cells))
    size = np.abs(gaps)
    print(
        f"told {told} of {asked}; off by {size.mean():.3f} on average, largest {size.max():.3f}, "
        f"overstated by at most {max(gaps):.3f}\n"
    )


def table_regret(seeds: int) -> None:
    print("Regret in F1 against Binary's bits with the best single bar in hindsight")
    print(f"{'votes, queries':<30}" + "".join(f"{f'epsilon {e:g}':>22}" for e in EPSILONS))
    every: list[float] = []
    for name, votes in [*settings(seeds), *ODD.items()]:
        if name in ("empty votes", "only false alarms"):
            continue
        cells = []
        for epsilon in EPSILONS:
            rows = []
            for seed in range(seeds):
                run = released(votes(seed), epsilon, seed)
                if run.truth.any():
                    bits = best_bits(run, epsilon, seed)
                    rows.append([bits, figures(run.truth, run.labels("f1"))["f1"]])
            bits, tallies = np.mean(rows, axis=0)
            every.append(bits - tallies)
            cells.append(f"{bits:.2f} - {tallies:.2f} = {bits - tallies:+.3f}")
        print(f"{name:<30}" + "".join(f"{cell:>22}" for cell in cells))
    print(f"mean {np.mean(every):+.4f}, worst {max(every):+.4f}\n")


TABLES: dict[str, Callable[[int], Any]] = {
    "f1": table_f1,
    "default": table_default,
    "quality": table_quality,
    "regret": table_regret,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", choices=TABLES, default=None)
    arguments = parser.parse_args()
    for name, table in TABLES.items():
        if arguments.only in (None, name):
            table(arguments.seeds)


if __name__ == "__main__":
    main()

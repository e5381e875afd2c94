"""How far advice from public numbers falls behind the best settings, found by trying them all.

Simulated electorates: a share ``yes`` of the cells is wanted; voters agree about them more or less,
and differ in how often they say yes (the busiest 1.56 times the mean). The measure is balanced
accuracy, where a query that is not answered counts as a no throughout. Regret is the best of an
exhaustive grid (guarantee, sigma, bar, number of queries) minus what the advice reaches. The same
floor holds for all, up to the last query answered: with those voters who have not run out, a label
that every voter wants is missed, and one that nobody wants released, at most one time in ten, the
latter also at most half as often as labels are wanted.

A wrong share of yes is tried on every third electorate: then queries are answered in batches until
released labels say that the allowance ends.

Accuracies are expectations over votes and noise, not draws: counts of yes-votes are binomial (from
64 voters on, normal), and a voter counts while its cumulative surprises are within its allowance.
So no size is too large. Small electorates are also drawn, and go through the allowance's own rule
and the mechanism: the last line says how much that differs.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import gammaln, ndtr, ndtri, xlog1py, xlogy

import privote as pv
from privote.blocks import DenseBlock
from privote.planning import Advice, allowance_for, queries_left
from privote.surprises import effective

DELTA, QUALITY, STRAYS, BUSIEST = 1e-5, 0.1, 5, 1.56
YES = (0.01, 0.03, 0.1, 0.3, 0.5)
AGREEMENT = {"low": 0.3, "middle": 0.6, "high": 0.9}  # of the way from chance to unanimity
VOTERS, LABELS = (10, 50, 250, 1000, 10_000), (1, 10, 100, 1000)
QUERIES, EPSILONS = (1, 100, 10_000, 100_000), (1.0, 8.0)
GRID = (YES, AGREEMENT, VOTERS, LABELS, QUERIES, EPSILONS)
# Between those values, and no number of the advice was chosen by it.
HELD_OUT = (
    (0.02, 0.05, 0.2, 0.4),
    {"faint": 0.2, "fair": 0.45, "clear": 0.75},
    (20, 100, 500, 3000),
    (3, 30, 300),
    (10, 1000, 30_000),
    (2.0, 4.0),
)
LEVELS = AGREEMENT | HELD_OUT[1]

BARS = (0.02, 0.05, *(round(0.1 + 0.05 * i, 2) for i in range(17)))
NOISES = np.geomspace(0.005, 1.0, 24)  # shares of the most noise that the floor allows
EXACT_VOTERS, GROUPS, TIMES = 64, 40, 28
OPEN = (0.55, 0.99)  # beyond, nothing helps, or everything does
DRAWN = 2_000_000  # votes that are drawn at most


@dataclass(frozen=True)
class Cell:
    yes: float
    level: str
    voters: int
    labels: int
    queries: int
    epsilon: float

    @property
    def agreement(self) -> float:
        return self.yes + (1 - self.yes) * LEVELS[self.level]

    def floor(self) -> tuple[float, float]:
        """Return by how many spreads unanimous voters must stand off the bar, above and below."""
        strays = min(QUALITY, STRAYS * QUALITY * self.yes / (1 - self.yes))
        return float(-ndtri(QUALITY)), float(-ndtri(strays))

    def voter_rates(self) -> np.ndarray:
        """Return (3, groups): how often voters say yes at all, to wanted labels, to others."""
        groups = min(self.voters, GROUPS)
        spread = 0.24 * ndtri((np.arange(groups) + 0.5) / groups)
        busy = 1 + np.clip(spread, 1 - BUSIEST, BUSIEST - 1)
        own = np.minimum(self.yes * busy, 1.0)
        wanted = np.minimum(self.agreement * busy, 1.0)
        others = np.clip((own - self.yes * wanted) / (1 - self.yes), 0.0, 1.0)
        return np.stack([own, wanted, others])

    def __str__(self) -> str:
        return (
            f"yes {self.yes:<5g} {self.level:6s} {self.voters:6,d} voters {self.labels:5,d} labels "
            f"{self.queries:7,d} queries epsilon {self.epsilon:g}"
        )


@lru_cache(maxsize=8)
def _bought(epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    sigmas = np.geomspace(0.1, 30_000, 90)
    votes = [2 * allowance_for(pv.BinaryVoting(sigma=s), 64, 1, epsilon, DELTA) for s in sigmas]
    return np.log(sigmas), np.log(np.maximum(votes, 0.1))


def bought(sigma: np.ndarray, epsilon: float) -> np.ndarray:
    """Return how many single votes a budget buys."""
    return np.exp(np.interp(np.log(sigma), *_bought(epsilon)))


@lru_cache(maxsize=8)
def _combinations(voters: int) -> np.ndarray:
    counts = np.arange(voters + 1)
    return gammaln(voters + 1) - gammaln(counts + 1) - gammaln(voters - counts + 1)


def released(share: np.ndarray, voters: int, sigma: np.ndarray, bar: np.ndarray) -> np.ndarray:
    """Return how often a label is released if voters say yes with this chance; all broadcast."""
    if voters > EXACT_VOTERS:
        spread = np.sqrt(sigma**2 + 2 * voters * share * (1 - share))
        return ndtr(math.sqrt(2) * voters * (share - bar) / spread)
    counts, p = np.arange(voters + 1), share[..., None]
    chances = np.exp(_combinations(voters) + xlogy(counts, p) + xlog1py(voters - counts, -p))
    one = ndtr(math.sqrt(2) * (counts - voters * bar[..., None]) / sigma[..., None])
    return (chances * one).sum(axis=-1)


def gains(
    cell: Cell, sigma: np.ndarray, bar: np.ndarray, allowance: np.ndarray, times: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return (settings, times): how much more often wanted labels are released; and the floor's.

    The second says whether unanimous voters are still heard at that time.
    """
    own, wanted, others = cell.voter_rates()
    mean = times[:, None] * cell.labels * own
    spread = np.sqrt(np.maximum(mean * (1 - own), 1e-9))
    levels, place = np.unique(allowance, return_inverse=True)
    counts = ndtr((levels[:, None, None] + 0.5 - mean) / spread)
    heard, yes, strays = (
        (counts * rate).mean(axis=-1)[place] for rate in (np.ones_like(own), wanted, others)
    )
    noise, at = sigma[:, None], bar[:, None]
    gain = released(yes, cell.voters, noise, at) - released(strays, cell.voters, noise, at)
    left = math.sqrt(2) * cell.voters * (heard - at) / noise
    none = math.sqrt(2) * cell.voters * at / noise
    misses, alarms = cell.floor()
    return gain, (left >= misses * (1 - 1e-3)) & (none >= alarms * (1 - 1e-3))


def accuracy(gain: np.ndarray, times: np.ndarray, queries: int) -> np.ndarray:
    """Return balanced accuracy if queries up to each time are answered: (settings, times)."""
    widths = np.diff(times, prepend=0.0)
    middle = np.concatenate([gain[:, :1], (gain[:, 1:] + gain[:, :-1]) / 2], axis=1)
    return 0.5 + 0.5 * np.cumsum(middle * widths, axis=1) / queries


def best(cell: Cell) -> tuple[float, str]:
    """Return the best accuracy of all settings that keep the floor, and which one has it."""
    bar, share = (a.reshape(-1) for a in np.meshgrid(BARS, NOISES))
    misses, alarms = cell.floor()
    sigma = share * math.sqrt(2) * cell.voters * np.minimum((1 - bar) / misses, bar / alarms)
    times = np.unique(np.rint(np.geomspace(1, cell.queries, TIMES)))
    votes = bought(sigma, cell.epsilon)
    found = (0.5, "nothing")
    for guarantee in ("allowance", "worst-case"):
        allowance = np.floor(votes / 2) if guarantee == "allowance" else np.full(len(votes), 1e18)
        gain, good = gains(cell, sigma, bar, allowance, times)
        score = np.where(good, accuracy(gain, times, cell.queries), 0.5)
        score = np.where(allowance[:, None] >= 1, score, 0.5)
        if guarantee == "worst-case":
            score = np.where(times * cell.labels <= votes[:, None] * 1.001, score, 0.5)
        row, column = np.unravel_index(score.argmax(), score.shape)
        if score[row, column] > found[0]:
            what = f"{guarantee} sigma {sigma[row]:.3g} bar {bar[row]:g} {times[column]:.0f}"
            found = (float(score[row, column]), what)
    return found


def reached(cell: Cell, advice: Advice, queries: int) -> float:
    """Return the accuracy of what was advised, with so many queries answered."""
    shown = advice.mechanism.parameters()
    times = np.unique(np.rint(np.geomspace(1, queries, TIMES)))
    allowance = 1e18 if advice.allowance is None else advice.allowance
    values = (shown["sigma"], shown.get("quota", 0.5), allowance)
    gain, _ = gains(cell, *(np.array([float(v)]) for v in values), times)
    return float(accuracy(gain, times, cell.queries)[0, -1])


def advise(cell: Cell, yes: float) -> Advice:
    return pv.advise(
        voters=cell.voters,
        labels=cell.labels,
        epsilon=cell.epsilon,
        delta=DELTA,
        queries=cell.queries,
        yes=yes,
        agreement=cell.agreement,
    )


def stop(cell: Cell, advice: Advice) -> int:
    """Return after how many queries released labels say to stop, in batches of half what is left.

    Released labels are as expected while nobody has run out; at most 20,000 of them are read.
    """
    if advice.allowance is None:
        return advice.queries
    shown = advice.mechanism.parameters()
    _, wanted, others = cell.voter_rates()
    sigma, bar = np.array(float(shown["sigma"])), np.array(float(shown.get("quota", 0.5)))
    one, stray = (
        float(released(np.array(r.mean()), cell.voters, sigma, bar)) for r in (wanted, others)
    )
    ones = cell.yes * one + (1 - cell.yes) * stray
    answered = max(1, advice.queries // 4)
    for _ in range(6):
        seen = min(answered, -(-20_000 // cell.labels))
        labels = np.zeros(seen * cell.labels, np.int8)
        labels[: round(len(labels) * ones)] = 1
        labels = labels.reshape(seen, cell.labels)
        left = queries_left(
            advice.mechanism, cell.voters, advice.allowance, labels, yes=advice.outlook.yes
        )
        if left is None:
            return advice.queries
        left = min(left + seen, cell.queries) - answered
        if left <= 0:
            break
        answered += -(-left // 2)
    return answered


def drawn(cell: Cell, advice: Advice, queries: int, seed: int = 0) -> float:
    """Return the same accuracy from drawn votes, the allowance's own rule and the mechanism."""
    rng = np.random.default_rng(seed)
    _, yes, others = cell.voter_rates()
    who = np.arange(cell.voters) % len(yes)
    wanted = rng.random((cell.queries, cell.labels)) < cell.yes
    rates = np.where(wanted[:, None, :], yes[who][:, None], others[who][:, None])
    block = DenseBlock((rng.random(rates.shape) < rates)[:queries], missing=False)
    if advice.allowance is not None:
        block, _, _ = effective(
            block,
            np.zeros((queries, cell.labels), np.bool_),
            np.full(cell.voters, advice.allowance),
            unit=advice.mechanism.surprise_unit,
            silence_is_zeros=advice.mechanism.silence_is_zeros,
        )
    one = np.zeros(wanted.shape)
    one[:queries] = advice.mechanism.cell_probabilities(advice.mechanism.tally(block))[..., 1]
    return float(0.5 + 0.5 * (one[wanted].mean() - one[~wanted].mean()))


def cells(axes: tuple, small: bool) -> list[Cell]:
    """Return every electorate; a few of each kind for a quick look."""
    grid = list(itertools.product(*axes))
    return [Cell(*values) for values in (grid[::37] if small else grid)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a 37th of the electorates")
    small = parser.parse_args().small
    advise(Cell(0.1, "middle", 50, 10, 100, 8.0), 0.1)  # what is imported is not timed
    print("The grid on which the advice was tuned:")
    compare(cells(GRID, small))
    print("\nAnother grid, held out:")
    compare(cells(HELD_OUT, small))


def compare(electorates: list[Cell]) -> None:
    """Print how far the advice falls behind the best settings."""
    rows: dict[str, list[tuple[float, float, str]]] = {
        "right": [],
        "3x too high": [],
        "3x too low": [],
    }
    spent, differences = [], []
    for place, cell in enumerate(electorates):
        top, what = best(cell)
        for name, factor in (("right", 1.0), ("3x too high", 3.0), ("3x too low", 1 / 3)):
            if factor * cell.yes > 0.9 * cell.agreement or (factor != 1 and place % 3):
                continue
            start = time.process_time()
            advice = advise(cell, factor * cell.yes)
            spent.append(time.process_time() - start)
            queries = advice.queries if factor == 1 else stop(cell, advice)
            score = reached(cell, advice, queries)
            said = f"{advice.guarantee} {advice.mechanism} {queries}"
            line = f"{cell}: {score:.3f}, best {top:.3f} ({what}); {said}"
            rows[name].append((top - score, top, line))
            votes = cell.voters * cell.labels * cell.queries
            if factor == 1 and 20_000 < votes <= DRAWN and cell.queries > 1:
                differences.append(drawn(cell, advice, queries) - score)
    for name, found in rows.items():
        regret = np.array([max(value, 0.0) for value, _, _ in found])
        open_ones = np.array([OPEN[0] < top < OPEN[1] for _, top, _ in found])
        print(f"share of yes {name}: {len(found)} electorates, mean regret {regret.mean():.4f},")
        print(
            f"  median {np.median(regret):.4f}, 95 percent below {np.quantile(regret, 0.95):.3f}, "
            f"above .05 in {(regret > 0.05).mean():.1%}"
        )
        print(
            f"  where settings matter (the best reaches {OPEN[0]} to {OPEN[1]}): "
            f"{open_ones.sum()} electorates, mean {regret[open_ones].mean():.4f}; worst:"
        )
        for value, _, line in sorted(found, reverse=True)[:6]:
            print(f"  {value:.3f}  {line}")
    print(
        "one call of advise, processor time, with prices that earlier calls worked out: median "
        f"{np.median(spent):.2f} s, 95 percent below {np.quantile(spent, 0.95):.2f} s, longest "
        f"{max(spent):.2f} s"
    )
    if differences:
        gap = np.abs(differences)
        print(
            f"{len(gap)} electorates drawn: accuracy differs by {gap.mean():.4f} on average, "
            f"{gap.max():.3f} at most"
        )


if __name__ == "__main__":
    sys.exit(main())

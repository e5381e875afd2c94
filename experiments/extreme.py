"""Extreme multi-label: a map of 1,000 and of 40,000 pixels, each pixel a yes/no label.

The map is made up: disks and rectangles. Twenty voters, as in the paper's segmentation, each draw
the shapes a little off and flip a few pixels. One map is one query. It is asked pixel by pixel, and
by region: tiles that are public, on each of which a voter says what most of its own pixels say, so
that one label serves for all pixels of a tile.

Two levels of noise: sigma 3, the most that the paper found to be bearable (Binary, Tau; Powerset
gets what lets a set that all want win), and what keeps one map within epsilon 8 by the Gaussian
bound; the exact epsilon, which is what is shown, is then smaller.

- epsilon: of one map at delta 1e-5, worst case: may be promised.
- on these votes: the exact data-dependent one, which is no promise. Tau's is left out on more than
  a few hundred labels: it compares all sizes of ballots, which takes minutes and gigabytes.
- accuracy: pixels as in the true map; a released map without any vote would have that of the last
  row, all background.
- seconds to draw, seconds to price the worst case, and the most memory that drawing took.

Run: python experiments/extreme.py [--seeds 3]
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from math import log, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

import privote as pv
from privote.accounting.renyi import rounded_up

DELTA, VOTERS, EPSILON, SIGMA = 1e-5, 20, 8.0, 3.0
FLIPS, SHIFT = 0.02, 0.02  # pixels a voter flips; how far it draws a shape off, as a share
FEW = 500  # labels up to which Tau's data-dependent cost is worked out
NAMES = ("Binary", "Tau", "Powerset")
MAPS = {1_000: ((25, 40), 5), 40_000: ((200, 200), 10)}

Bits = npt.NDArray[np.bool_]


def shapes(size: tuple[int, int], rng: np.random.Generator, off: float = 0.0) -> Bits:
    """Return a map of two disks and a rectangle, each moved by up to ``off`` of the map's size."""
    y, x = np.mgrid[: size[0], : size[1]].astype(float)
    y, x = y / size[0], x / size[1]
    move = rng.normal(0, off, (3, 2)) if off else np.zeros((3, 2))
    drawn = (y - 0.3 - move[0, 0]) ** 2 + (x - 0.3 - move[0, 1]) ** 2 < 0.16**2
    drawn |= (y - 0.75 - move[1, 0]) ** 2 + (x - 0.6 - move[1, 1]) ** 2 < 0.12**2
    return drawn | ((abs(y - 0.3 - move[2, 0]) < 0.15) & (abs(x - 0.8 - move[2, 1]) < 0.12))


def ballots(size: tuple[int, int], rng: np.random.Generator) -> Bits:
    """Return what every voter draws: (voters, pixels)."""
    drawn = np.stack([shapes(size, rng, SHIFT) for _ in range(VOTERS)])
    return (drawn ^ (rng.random(drawn.shape) < FLIPS)).reshape(VOTERS, -1)


def tiles(size: tuple[int, int], side: int) -> npt.NDArray[np.intp]:
    """Return the tile of each pixel: (pixels,)."""
    rows, columns = (np.arange(length) // side for length in size)
    return (rows[:, None] * (columns[-1] + 1) + columns).reshape(-1)


def by_region(votes: Bits, region: npt.NDArray[np.intp]) -> Bits:
    """Return what most of a voter's pixels in each region say: (voters, regions)."""
    count = np.bincount(region)
    yes = np.stack([np.bincount(region, weights=one, minlength=len(count)) for one in votes])
    return yes > count / 2


def mechanisms(labels: int) -> dict[str, Callable[[float], pv.Mechanism]]:
    """Return what makes each mechanism from its sigma."""
    tau = sqrt(0.1 * labels)
    return {
        "Binary": lambda sigma: pv.BinaryVoting(sigma=sigma),
        "Tau": lambda sigma: pv.TauVoting(sigma=sigma, tau=tau),
        "Powerset": lambda sigma: pv.PowersetVoting(sigma=sigma),
    }


def bearable(name: str, labels: int) -> float:
    """Return the sigma of the first setting.

    The largest of 2^k noises is about sqrt(2 k log 2) sigma: a set must have more votes to win.
    """
    return SIGMA if name != "Powerset" else min(SIGMA, 0.5 * VOTERS / sqrt(2 * labels * log(2)))


def within(make: Callable[[float], pv.Mechanism], labels: int) -> float:
    """Return the smallest sigma, to a hundredth of itself, that keeps one map within the budget."""
    one = make(1.0).worst_case_rdp(VOTERS, labels, bound="gaussian")  # falls with sigma^2
    low, high = 0.01, 1e5
    while high > 1.01 * low:
        middle = sqrt(low * high)
        fits = pv.epsilon(one / middle**2, pv.DEFAULT_ORDERS, DELTA) <= EPSILON
        low, high = (low, middle) if fits else (middle, high)
    return high


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one mechanism does to one map."""

    mechanism: str
    sigma: float
    labels: int
    epsilon: float
    here: float
    accuracy: float
    draw: float
    price: float
    memory: float


def measure(name: str, mechanism: Any, votes: Bits, spread: Any, truth: Bits, seeds: int) -> Row:
    """Draw and price one map; ``spread`` says which label each pixel gets."""
    cube, labels = votes[None], votes.shape[1]
    tracemalloc.start()
    started = time.perf_counter()
    drawn = [mechanism.release(cube, seed=seed)[0] for seed in range(seeds)]
    draw = (time.perf_counter() - started) / seeds
    memory = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    started = time.perf_counter()
    worst = mechanism.worst_case_rdp(VOTERS, labels)
    price = time.perf_counter() - started
    here = np.nan
    if name != "Tau" or labels <= FEW:
        here = float(pv.epsilon(mechanism.total_rdp(cube), pv.DEFAULT_ORDERS, DELTA))
    return Row(
        mechanism=name,
        sigma=mechanism.sigma,
        labels=labels,
        epsilon=float(pv.epsilon(worst, pv.DEFAULT_ORDERS, DELTA)),
        here=here,
        accuracy=float(np.mean([(one[spread] == truth).mean() for one in drawn])),
        draw=draw,
        price=price,
        memory=memory,
    )


def rows(
    size: tuple[int, int], side: int, seeds: int, names: tuple[str, ...] = NAMES
) -> dict[str, list[Row]]:
    """Measure mechanisms on one map, by pixel and by region, at both levels of noise."""
    rng = np.random.default_rng(0)
    truth, votes, region = shapes(size, rng).reshape(-1), ballots(size, rng), tiles(size, side)
    asked = {"pixel": (votes, np.arange(len(region))), "region": (by_region(votes, region), region)}
    found: dict[str, list[Row]] = {}
    for unit, (cast, spread) in asked.items():
        for name in names:
            make = mechanisms(cast.shape[1])[name]
            for sigma in (bearable(name, cast.shape[1]), within(make, cast.shape[1])):
                row = measure(name, make(sigma), cast, spread, truth, seeds)
                found.setdefault(f"by {unit}, {cast.shape[1]:,} labels", []).append(row)
    return found


def show(pixels: int, found: dict[str, list[Row]], blank: float) -> None:
    """Print one map's table."""
    print(f"\n{pixels:,} pixels, {VOTERS} voters; all background: accuracy {blank:.3f}")
    print(
        f"{'':12s}{'sigma':>9s}{'epsilon':>10s}{'on these votes':>16s}{'accuracy':>10s}"
        f"{'draw s':>9s}{'price s':>9s}{'MiB':>8s}"
    )
    for title, table in found.items():
        print(title)
        for row in table:
            here = "-" if np.isnan(row.here) else rounded_up(row.here, 4)
            print(
                f"  {row.mechanism:10s}{row.sigma:9.3g}{rounded_up(row.epsilon, 4):>10s}"
                f"{here:>16s}{row.accuracy:10.3f}{row.draw:9.3f}{row.price:9.2f}{row.memory:8.1f}"
            )


def main() -> int:
    """Measure both maps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    print(f"one map; delta {DELTA:g}; {arguments.seeds} seeds")
    for pixels, (size, side) in MAPS.items():
        truth = shapes(size, np.random.default_rng(0))
        show(pixels, rows(size, side, arguments.seeds), float(1 - truth.mean()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

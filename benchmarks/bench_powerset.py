"""Powerset voting: exact bill without 2^k bins, against building them.

Two peers, both with 2^20 bins per query:
- *exact*: win probability of every bin by quadrature, for the votes and for a single neighbour (a
  full bill needs all neighbours, so this flatters the peer);
- *bound*: the published bound only, which is not exact: one erfc a bin, one noise a bin to draw.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from comparison import peer, row
from scipy.special import log_ndtr

import privote as pv
from privote.accounting.pate2018 import theorem6

VOTERS, SIGMA = 50, 2.0


def make_votes(queries: int, labels: int, seed: int) -> np.ndarray:
    """Return votes that agree on a common set but for one vote in thirty."""
    rng = np.random.default_rng(seed)
    common = rng.random((queries, 1, labels)) < min(0.1, 2 / labels)
    return common ^ (rng.random((queries, VOTERS, labels)) < min(1 / 30, 1 / labels))


def bins(ballots: np.ndarray) -> np.ndarray:
    codes = ballots @ (1 << np.arange(ballots.shape[1]))
    return np.bincount(codes, minlength=1 << ballots.shape[1]).astype(float)


def win_probabilities(counts: np.ndarray, nodes: int = 240) -> np.ndarray:
    """Return the win probability of every bin, one after the other in slabs."""
    grid = np.linspace(-6 * SIGMA, counts.max() + 8 * SIGMA, nodes)
    product = np.zeros(nodes)
    for slab in np.array_split(counts, 256):
        product += log_ndtr((grid[None] - slab[:, None]) / SIGMA).sum(axis=0)
    out = []
    for slab in np.array_split(counts, 256):
        z = (grid[None] - slab[:, None]) / SIGMA
        out.append(np.exp(product - log_ndtr(z) - z * z / 2).sum(axis=1))
    return np.concatenate(out)


def peer_exact(ballots: np.ndarray, orders: np.ndarray) -> None:
    here, moved = bins(ballots), ballots.copy()
    moved[0] = ~moved[0]
    p, q = win_probabilities(here), win_probabilities(bins(moved))
    with np.errstate(all="ignore"):
        for order in orders:
            np.sum(p**order * q ** (1 - order))


def peer_bound(ballots: np.ndarray, orders: np.ndarray, rng: np.random.Generator) -> None:
    counts = bins(ballots)
    gaps = counts.max() - np.delete(counts, counts.argmax())
    log_q = np.logaddexp.reduce(log_ndtr(-gaps / (np.sqrt(2) * SIGMA)))
    theorem6(log_q, SIGMA, orders)
    np.argmax(counts + rng.normal(0, SIGMA, len(counts)))


def timed(job: object, *arguments: object) -> float:
    started = time.perf_counter()
    job(*arguments)  # type: ignore[operator]
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--peer-queries", type=int, default=1)
    arguments = parser.parse_args()
    orders, rng = pv.DEFAULT_ORDERS, np.random.default_rng(2)
    mechanism = pv.PowersetVoting(sigma=SIGMA)
    votes = make_votes(arguments.queries, 20, 0)

    def ours(cube: np.ndarray) -> None:
        mechanism.rdp(cube, orders)
        mechanism.release(cube)

    fast = timed(ours, votes) / arguments.queries
    few = votes[: arguments.peer_queries]
    exact = np.mean([timed(peer_exact, ballots, orders) for ballots in few])
    bound = np.mean([timed(peer_bound, ballots, orders, rng) for ballots in few])
    print(
        f"Powerset, {VOTERS} voters, sigma {SIGMA:g}, {len(orders)} orders, exact bill and release"
    )
    job = f"Powerset: exact bill and release, {VOTERS} voters, 20 labels"
    numpy = ("numpy", "scipy")
    row(job, fast * 1e3, float(exact) * 1e3, "ms/query", peer("2^20 bins, exact", *numpy))
    row(job, fast * 1e3, float(bound) * 1e3, "ms/query", peer("2^20 bins, a bound", *numpy))
    for labels in (100, 1000, 5000):
        cube = make_votes(20, labels, labels)
        each = timed(ours, cube) / len(cube)
        print(f"privote, k={labels:<5d}    {each * 1e3:8.2f} ms a query (2^{labels} classes)")


if __name__ == "__main__":
    main()

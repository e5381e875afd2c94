"""Binary voting on a million queries: accounting and release in one pass, against a plain loop.

The peer is the shape of the published code: for every query, for every label, count the votes, take
the probability of the rarer outcome, price it at all orders, draw one noise. Same orders, same
machine, same run; the peer is measured on few queries and compared per query.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from comparison import peer, row
from scipy.stats import norm

import privote as pv
from privote.accounting.pate2018 import theorem6

VOTERS, LABELS, SIGMA = 50, 20, 7.0


def write_votes(path: Path, queries: int) -> None:
    """Write packed votes that mostly agree: a yes with probability 1/8, or 7/8 on some labels."""
    rng = np.random.default_rng(0)
    size = queries * VOTERS * LABELS // 8
    bits = rng.integers(0, 256, size, dtype=np.uint8)
    for _ in range(2):
        bits &= rng.integers(0, 256, size, dtype=np.uint8)
    np.savez(path, votes=bits, shape=np.array([queries, VOTERS, LABELS]))


def ours(path: Path, queries: int, connection: multiprocessing.connection.Connection) -> None:
    """Bill and release everything; report seconds, and mebibytes at the most."""
    started = time.perf_counter()
    release = pv.label(
        path,
        mechanism=pv.BinaryVoting(sigma=SIGMA),
        epsilon=1.0,
        delta=1e-5,
        guarantee="data-dependent",
        queries=queries,
    )
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    connection.send((seconds, peak, release.answered))


def plain_loop(votes: np.ndarray, orders: np.ndarray) -> float:
    """Bill and release query by query and label by label; return seconds."""
    started = time.perf_counter()
    rng = np.random.default_rng(1)
    total = np.zeros(len(orders))
    for ballots in votes:
        for label in range(ballots.shape[1]):
            counts = np.array([(ballots[:, label] == 0).sum(), (ballots[:, label] == 1).sum()])
            gap = abs(int(counts[1]) - int(counts[0]))
            log_q = norm.logcdf(-gap / (np.sqrt(2) * SIGMA))
            total += theorem6(log_q, SIGMA, orders)
            np.argmax(counts + rng.normal(0, SIGMA, 2))
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=1_000_000)
    parser.add_argument("--peer-queries", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "votes.npz"
        write_votes(path, arguments.queries)
        receive, send = multiprocessing.Pipe(duplex=False)
        # A process of its own, so that the peak is of this job alone.
        child = multiprocessing.get_context("spawn").Process(
            target=ours, args=(path, arguments.queries, send)
        )
        child.start()
        seconds, peak, answered = receive.recv()
        child.join()
        votes = pv.Ballots.of(path).head(arguments.peer_queries).to_array()
    slow = plain_loop(votes, pv.DEFAULT_ORDERS) / arguments.peer_queries
    fast = seconds / answered
    print(f"Binary, {VOTERS} voters x {LABELS} labels, {len(pv.DEFAULT_ORDERS)} orders, packed")
    print(f"privote: {answered:,} queries billed and released in {seconds:.2f} s, one pass")
    print(f"         {fast * 1e6:.2f} microseconds a query, {peak:.0f} MiB at the most")
    row(
        f"Binary: bill and release {answered:,} queries x {VOTERS} voters x {LABELS} labels",
        fast * 1e6,
        slow * 1e6,
        "us/query",
        peer("loop over labels", "numpy", "scipy"),
    )


if __name__ == "__main__":
    main()

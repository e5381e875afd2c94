"""Neighbours as voters: who is near, streamed, and labels released; against scikit-learn's search.

The peer is ``NearestNeighbors(algorithm="brute").radius_neighbors``, the fastest exact search of
scikit-learn for such data (euclidean, single precision; on rows of length 1 it finds the same
pairs as the cosine). Same rows, same radius, same machine, same run; with ``--full`` the peer is
measured on fewer queries and compared per pair of rows.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import multiprocessing.connection
import resource
import time

import numpy as np
import numpy.typing as npt
from comparison import peer, row
from sklearn.neighbors import NearestNeighbors

import privote as pv
from privote.learning.neighbours import NeighbourBallots

FEATURES, LABELS, SIGMA, EPSILON = 64, 20, 40.0, 8.0


def made_up(records: int, queries: int) -> tuple[npt.NDArray[np.float32], ...]:
    """Return private and public rows of length 1 around common centres, and labels."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(200, FEATURES)).astype(np.float32)
    rows = centres[rng.integers(0, 200, records + queries)]
    rows += rng.standard_normal(rows.shape, dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rule = rng.normal(size=(FEATURES, LABELS)).astype(np.float32)
    return rows[:records], rows[:records] @ rule > 1.5, rows[records:]


def search(
    records: int, queries: int, share: float, pipe: multiprocessing.connection.Connection
) -> None:
    """Find everybody who is near, block by block, and release nothing."""
    private, labels, public = made_up(records, queries)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    started = time.perf_counter()
    some = public[:2000]  # one radius for all queries, as the peer has
    radius = float(np.quantile(1 - some @ some.T, share + 1 / len(some)))
    votes = NeighbourBallots(private, labels, public, share, radius=radius)
    ready = time.perf_counter() - started
    found = sum(len(block.query) for block in votes.blocks())
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    pipe.send((ready, seconds, found, before, peak, radius))


def release(
    records: int, queries: int, share: float, pipe: multiprocessing.connection.Connection
) -> None:
    """Label everything under an allowance."""
    private, labels, public = made_up(records, queries)
    started = time.perf_counter()
    votes = NeighbourBallots(private, labels, public, share)
    mechanism = pv.BinaryVoting(sigma=SIGMA, false_alarm=0.05)
    done = pv.label(votes, mechanism=mechanism, epsilon=EPSILON, delta=1e-6)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    pipe.send((seconds, peak, done.allowance, float(done.sealed.exhausted.mean())))


def radius_search(
    records: int, queries: int, radius: float, pipe: multiprocessing.connection.Connection
) -> None:
    """Find the same pairs with scikit-learn, in batches of 1,000 queries so that memory is fair."""
    private, _, public = made_up(records, queries)
    started = time.perf_counter()
    nearest = NearestNeighbors(radius=math.sqrt(2 * radius), algorithm="brute").fit(private)
    found = 0
    for start in range(0, queries, 1000):
        near = nearest.radius_neighbors(public[start : start + 1000], return_distance=False)
        found += sum(len(who) for who in near)
    pipe.send((time.perf_counter() - started, found))


def apart(job: object, *arguments: object) -> tuple[float, ...]:
    """Run a job in a process of its own, so that peaks are its own."""
    receive, send = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("spawn").Process(target=job, args=(*arguments, send))
    child.start()
    result: tuple[float, ...] = receive.recv()
    child.join()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int)
    parser.add_argument("--queries", type=int)
    parser.add_argument("--share", type=float, default=0.001)
    parser.add_argument("--full", action="store_true", help="10^6 records, 10^5 queries")
    parser.add_argument("--peer-queries", type=int, help="default: all, with --full 2,000")
    parser.add_argument("--no-release", action="store_true", help="only the search")
    given = parser.parse_args()
    records = given.records or (1_000_000 if given.full else 100_000)
    queries = given.queries or (100_000 if given.full else 10_000)
    few = given.peer_queries or min(queries, 2_000 if given.full else queries)
    ready, seconds, found, before, peak, radius = apart(search, records, queries, given.share)
    fast = (seconds - ready) / (records * queries)
    print(
        f"{records:,} records x {queries:,} queries, {FEATURES} features, share {given.share:g}: "
        f"{found:,} ballots"
    )
    print(
        f"search:  {seconds:.1f} s, {ready:.1f} of them to prepare; {fast * 1e9:.2f} ns a pair; "
        f"{peak:.0f} MiB at the most, {before:.0f} of them before it began"
    )
    slow, seen = apart(radius_search, records, few, radius)
    each = slow / (records * few)
    print(f"peer:    {each * 1e9:.2f} ns a pair ({few:,} queries, {seen:,} pairs in {slow:.1f} s)")
    row(
        f"find neighbours, {records:,} records x {queries:,} queries x {FEATURES} features",
        fast * 1e9,
        each * 1e9,
        "ns/pair",
        peer("radius_neighbors, brute", "scikit-learn"),
    )
    if not given.no_release:
        whole, most, allowance, out = apart(release, records, queries, given.share)
        print(
            f"release: {whole:.1f} s with search, allowance and draw; allowance {allowance} a "
            f"record, {out:.3f} of the records used it up; {most:.0f} MiB at the most"
        )


if __name__ == "__main__":
    main()

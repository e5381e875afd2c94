"""Labelling a pool larger than memory: peak memory must not grow with the number of queries.

Votes lie in a Zarr store and are labelled twice under an allowance, each time in a process of its
own: a small pool and one many times larger. The peer is the small pool: the ratio of peaks is 1 if
memory is constant, and the size of the pools' ratio if everything is loaded. The released labels
themselves (one byte a cell) are kept in memory; they are subtracted to show the rest.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

import privote as pv

VOTERS, LABELS, STEP = 50, 20, 8192


def write_votes(path: Path, queries: int) -> None:
    """Write votes block by block: a yes with probability 1/8."""
    import zarr

    store = zarr.create_array(
        str(path), shape=(queries, VOTERS, LABELS), chunks=(STEP, VOTERS, LABELS), dtype="bool"
    )
    rng = np.random.default_rng(0)
    for start in range(0, queries, STEP):
        size = (min(STEP, queries - start), VOTERS, LABELS)
        store[start : start + size[0]] = rng.integers(0, 8, size, dtype=np.uint8) == 0


def label(path: Path, connection: multiprocessing.connection.Connection) -> None:
    started = time.perf_counter()
    release = pv.label(
        path,
        mechanism=pv.BinaryVoting(sigma=12.0),
        epsilon=8.0,
        delta=1e-5,
        guarantee="allowance",
    )
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    connection.send((release.answered, seconds, peak, release.labels.nbytes / 2**20))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=2_000_000)
    parser.add_argument("--peer-queries", type=int, default=100_000)
    arguments = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for queries in (arguments.peer_queries, arguments.queries):
            path = Path(folder) / f"{queries}.zarr"
            write_votes(path, queries)
            receive, send = multiprocessing.Pipe(duplex=False)
            child = multiprocessing.get_context("spawn").Process(target=label, args=(path, send))
            child.start()
            answered, seconds, peak, labels = receive.recv()
            child.join()
            found.append((answered, seconds, peak, labels))
            print(
                f"{answered:9,d} queries x {VOTERS} voters x {LABELS} labels: {seconds:6.1f} s, "
                f"{1e6 * seconds / answered:.1f} us a query, peak {peak:,.0f} MiB, "
                f"of which released labels {labels:,.0f} MiB"
            )
    small, large = found
    print(
        f"{large[0] / small[0]:.0f} times the queries, {large[2] / small[2]:.2f} times the peak, "
        f"{(large[2] - large[3]) / (small[2] - small[3]):.2f} times without the labels"
    )


if __name__ == "__main__":
    main()

"""Labelling millions of queries from packed bits: against numpy, in constant memory.

The peer reads the same file and adds up its bits with numpy alone: unpack a block, sum over the
voters. It prices nothing, keeps nobody's allowance and draws nothing. privote does all of that:
contributions, a charge and an entry a block in a ledger, secure draws. A ledger on disk waits for
the disk at every entry, so it has a row of its own.

Votes come in two kinds: of those who ``last``, half of the voters run out on the way, each
elsewhere; of those who do not, an eighth says yes, and all have run out after a hundred queries.
Every job runs in a process of its own, so that its peak is its own, and in turns with the peer; the
best of each counts. Starting up is not timed. On a loaded machine look at the processor time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import privote as pv
from privote.votes.arrays import ArrayFile

VOTERS, LABELS, STEP = 50, 20, 8192
MECHANISM, BUDGET = pv.BinaryVoting(sigma=12.0), {"epsilon": 8.0, "delta": 1e-5}
ALLOWANCE = 138  # what that buys
Job = Callable[..., dict[str, Any] | None]


def write_votes(path: Path, queries: int, *, last: bool) -> None:
    """Write packed votes of voters who last about as long as the file, or hardly at all."""
    rng = np.random.default_rng(0)
    size = queries * VOTERS * LABELS // 8
    if last:
        bits = np.zeros(size, np.uint8)
        lasts = rng.uniform(0.2, 1.8, VOTERS) * queries
        for voter in range(VOTERS):
            contributions = int(ALLOWANCE * queries / lasts[voter])
            query, label = (
                rng.integers(0, queries, contributions),
                rng.integers(0, LABELS, contributions),
            )
            cell = (query * VOTERS + voter) * LABELS + label
            np.bitwise_or.at(bits, cell // 8, (128 >> (cell % 8)).astype(np.uint8))
    else:
        bits = rng.integers(0, 256, size, dtype=np.uint8)
        for _ in range(2):
            bits &= rng.integers(0, 256, size, dtype=np.uint8)
    np.savez(path, votes=bits, shape=np.array([queries, VOTERS, LABELS]))


def count_with_numpy(path: Path) -> dict[str, Any]:
    """Read the file and add up its bits, label by label."""
    with np.load(path) as arrays:
        queries = int(arrays["shape"][0])
    bits, ballot = ArrayFile(path).open("votes"), VOTERS * LABELS // 8
    bits.check()
    yes = np.empty((queries, LABELS), np.uint8)
    for start in range(0, queries, STEP):
        part = np.unpackbits(bits[start * ballot : (start + STEP) * ballot])
        cells = part.reshape(-1, VOTERS, LABELS)
        yes[start : start + STEP] = np.add.reduce(cells, axis=1, dtype=np.uint8)
    return {"answered": queries}


def only_read(path: Path) -> dict[str, Any]:
    """Open the file as a release does, checksum and all, and read it block by block."""
    ballots = pv.Ballots.of(path)
    ballots.check()
    for start in range(0, ballots.queries, STEP):
        ballots._rows(start, min(start + STEP, ballots.queries))
    return {"answered": ballots.queries}


def label(path: Path, folder: Path, *, on_disk: bool = False) -> dict[str, Any]:
    """Label all queries under an allowance, charged to a ledger in memory or on disk."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        release = pv.label(
            path,
            mechanism=MECHANISM,
            **BUDGET,
            guarantee="allowance",
            ledger=Path(place) / "ledger.db" if on_disk else None,
        )
    return {
        "answered": release.answered,
        "allowance": release.allowance,
        "out": int((release.sealed.refused > 0).sum()),
    }


def _timed(job: Job, arguments: tuple[Any, ...], where: dict[str, Any], pipe: Any) -> None:
    warnings.simplefilter("ignore")
    few = np.zeros((8, VOTERS, LABELS), bool)  # loads all code, and fills tables of prices
    pv.label(few, mechanism=MECHANISM, **BUDGET, guarantee="allowance", seed=0)
    started, used = time.perf_counter(), time.process_time()
    found = job(*arguments, **where) or {}
    found["seconds"] = time.perf_counter() - started
    found["processor"] = time.process_time() - used
    found["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    pipe.send(found)


def alone(job: Job, *arguments: Any, **where: Any) -> dict[str, Any]:
    """Run a job in a process of its own; return what it found, its seconds and its peak."""
    receive, send = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("spawn").Process(
        target=_timed, args=(job, arguments, where, send)
    )
    child.start()
    send.close()
    found: dict[str, Any] = receive.recv()
    child.join()
    return found


def best(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        **min(runs, key=lambda run: run["seconds"]),
        "processor": min(run["processor"] for run in runs),
        "peak": max(run["peak"] for run in runs),
    }


def show(name: str, run: dict[str, Any], peer: dict[str, Any], read: dict[str, Any]) -> None:
    each = 1e6 * run["seconds"] / run["answered"]
    ratios = [run[what] / peer[what] for what in ("seconds", "processor")]
    share = read["seconds"] / run["seconds"]
    print(
        f"{name:<26}{run['seconds']:7.2f} s {each:6.2f} us a query {run['peak']:7,.0f} MiB   "
        f"{ratios[0]:5.2f} of the peer's time, {ratios[1]:5.2f} of its processor time"
        + (f", {share:4.0%} reading" if "out" in run else "")
    )


def compare(folder: Path, path: Path, repeat: int) -> None:
    jobs: dict[str, tuple[Any, ...]] = {
        "numpy, counting": (count_with_numpy, path),
        "privote, only reading": (only_read, path),
        "privote, labelling": (label, path, folder),
        "the same, ledger on disk": (label, path, folder, {"on_disk": True}),
    }
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in jobs}
    for _ in range(repeat):
        for name, (job, *given) in jobs.items():
            where = given.pop() if isinstance(given[-1], dict) else {}
            runs[name].append(alone(job, *given, **where))
    found = {name: best(each) for name, each in runs.items()}
    peer, read = found["numpy, counting"], found["privote, only reading"]
    for name, run in found.items():
        show(name, run, peer, read)
    print(f"{run['out']} of {VOTERS} voters ran out of {run['allowance']} contributions")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for last in (True, False):
            path = folder / f"{last}.npz"
            alone(write_votes, path, given.queries, last=last)
            size = path.stat().st_size / 2**20
            kind = "half of the voters last" if last else "an eighth says yes, nobody lasts"
            print(
                f"{given.queries:,} queries x {VOTERS} voters x {LABELS} labels, packed, "
                f"{size:,.0f} MiB: {kind}"
            )
            compare(folder, path, given.repeat)
            print()


if __name__ == "__main__":
    main()

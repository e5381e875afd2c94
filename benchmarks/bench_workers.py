"""No workers and two, on each backend: teachers trained, and labels released where votes are many.

Labels are released of three kinds of votes. Of few voters, in packed bits: to count them takes no
longer than to draw labels, which the guardian does alone. Of many voters, and in a compressed
Zarr: there counting, and reading, is most of the work, and workers share it. Every vote counts: the
epsilon is one with which nobody runs out.

The peer is the same job in this process alone, without workers. With two of them beside a guardian
that draws, on two cores, a ratio of 2 is out of reach. Backends are started, and have done a small
job, before time is taken, as on a cluster that runs; but Ray starts its workers with every job.
Each job is done twice, in turns with its peer, and the better times count.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from bench_curves import LASTING, write_votes
from comparison import peer, row
from joblib import parallel_config
from sklearn.ensemble import RandomForestClassifier

import privote as pv
from privote.learning import train

PACKAGES = {"threading": "joblib", "loky": "joblib", "dask": "distributed", "ray": "ray"}
WORKERS = 2


@contextlib.contextmanager
def started(backend: str) -> Iterator[None]:
    """Start a backend with two workers on this machine."""
    if backend == "dask":
        import distributed

        with distributed.Client(
            n_workers=WORKERS,
            threads_per_worker=1,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
        ):
            yield
    elif backend == "ray":
        import ray
        from ray.util.joblib import register_ray

        register_ray()
        logging.getLogger("ray.util.multiprocessing.pool").setLevel(logging.CRITICAL)
        ray.init(
            num_cpus=WORKERS,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.CRITICAL,
        )
        try:
            yield
        finally:
            ray.shutdown()
    else:
        yield


def teachers(records: int, count: int) -> Callable[[int], None]:
    """Return a job: train forests, each on its part of made-up records."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(records, 20))
    Y = (X @ rng.normal(size=(20, 4)) > 0).astype(np.int8)
    part = np.arange(records) % count
    model = RandomForestClassifier(n_estimators=60, random_state=0)

    def job(n_jobs: int) -> None:
        train(model, X, Y, part, count, n_jobs=n_jobs)

    return job


def write_zarr(path: Path, queries: int, voters: int, labels: int) -> None:
    """Write about one yes in eight as a compressed Zarr array, a block of queries a chunk."""
    import zarr

    rng, step = np.random.default_rng(0), 8192
    shape, chunks = (queries, voters, labels), (step, voters, labels)
    array = zarr.create(shape=shape, chunks=chunks, dtype="bool", store=str(path))
    for start in range(0, queries, step):
        stop = min(start + step, queries)
        array[start:stop] = rng.random((stop - start, voters, labels), np.float32) < 0.125


def labels(path: Path) -> Callable[[int], None]:
    """Return a job: release labels of a file of votes under an allowance."""
    mechanism = pv.BinaryVoting(sigma=12.0)

    def job(n_jobs: int) -> None:
        del n_jobs  # as joblib is told
        pv.label(
            path,
            mechanism=mechanism,
            epsilon=LASTING,
            delta=1e-5,
            guarantee="allowance",
            queries="all",
        )

    return job


def seconds(job: Callable[[int], None], *where: tuple[str, int]) -> list[float]:
    """Return the best time in each place, a backend and how many workers; in turns, twice."""
    took: list[list[float]] = [[] for _ in where]
    for _ in range(2):
        for (backend, workers), times in zip(where, took, strict=True):
            began = time.perf_counter()
            with parallel_config(backend, n_jobs=workers):
                job(workers)
            times.append(time.perf_counter() - began)
    return [min(times) for times in took]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backends", nargs="+", choices=PACKAGES, default=list(PACKAGES))
    parser.add_argument("--teachers", type=int, default=40)
    parser.add_argument("--queries", type=int, default=4_000_000)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        train_job = teachers(200 * given.teachers, given.teachers)
        jobs = {f"train {given.teachers} forests": (train_job, teachers(400, 2))}
        few = Path(folder) / "few.npz"
        write_votes(few, 50_000, 50, 20)
        for where, write, shape in (
            ("packed", write_votes, (given.queries, 50, 20)),
            ("packed", write_votes, (max(1, given.queries // 50), 1000, 100)),
            ("Zarr", write_zarr, (max(1, given.queries // 7), 50, 20)),
        ):
            votes = Path(folder) / f"{where}-{shape[1]}.{'npz' if where == 'packed' else 'zarr'}"
            write(votes, *shape)
            queries, voters, count = shape
            name = f"label {queries:,} queries x {voters} voters x {count} labels, {where}"
            jobs[name] = (labels(votes), labels(few))
        for backend in given.backends:
            by = peer("no workers", PACKAGES[backend])
            with started(backend):
                for name, (job, small) in jobs.items():
                    seconds(small, (backend, WORKERS))
                    one, two = seconds(job, ("sequential", 1), (backend, WORKERS))
                    row(f"{name}, {WORKERS} workers on {backend}", two, one, "s", by)


if __name__ == "__main__":
    main()

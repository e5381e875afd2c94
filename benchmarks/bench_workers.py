"""One worker and two, on each backend: teachers trained, and labels released where votes are many.

Labels are released of three kinds of votes. Of few voters, in packed bits: to count them takes no
longer than to send sums back and to draw, which one does alone. Of many voters, and in a compressed
Zarr: there counting, and reading, is most of the work, and workers share it.

The peer is the same job with one worker on the same backend; a ratio of 2 is all that two workers
can give. Backends are started, and have done a small job, before time is taken; each job is done
twice, and the better time counts.
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
from typing import Any

import numpy as np
from bench_curves import write_votes
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


def teachers(records: int, count: int) -> Callable[[str, int], None]:
    """Return a job: train forests, each on its part of made-up records."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(records, 20))
    Y = (X @ rng.normal(size=(20, 4)) > 0).astype(np.int8)
    part = np.arange(records) % count
    model = RandomForestClassifier(n_estimators=60, random_state=0)

    def job(backend: str, workers: int) -> None:
        with parallel_config(backend, n_jobs=workers):
            train(model, X, Y, part, count, n_jobs=workers)

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


def labels(path: Path) -> Callable[[str, int], None]:
    """Return a job: release labels of a file of votes under an allowance."""
    mechanism = pv.BinaryVoting(sigma=12.0)

    def job(backend: str, workers: int) -> None:
        how: dict[str, Any] = {"n_jobs": workers}
        if backend != "threading":  # which is what labelling does by itself
            how["backend"] = backend
        pv.label(
            path,
            mechanism=mechanism,
            epsilon=8.0,
            delta=1e-5,
            guarantee="allowance",
            queries="all",
            **how,
        )

    return job


def seconds(job: Callable[[str, int], None], backend: str, workers: int) -> float:
    took = []
    for _ in range(2):
        began = time.perf_counter()
        job(backend, workers)
        took.append(time.perf_counter() - began)
    return min(took)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backends", nargs="+", choices=PACKAGES, default=list(PACKAGES))
    parser.add_argument("--teachers", type=int, default=40)
    parser.add_argument("--queries", type=int, default=1_000_000)
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
            ("Zarr", write_zarr, (max(1, given.queries // 5), 50, 20)),
        ):
            votes = Path(folder) / f"{where}-{shape[1]}.{'npz' if where == 'packed' else 'zarr'}"
            write(votes, *shape)
            queries, voters, count = shape
            name = f"label {queries:,} queries x {voters} voters x {count} labels, {where}"
            jobs[name] = (labels(votes), labels(few))
        for backend in given.backends:
            with started(backend):
                for name, (job, small) in jobs.items():
                    seconds(small, backend, WORKERS)
                    one, two = (seconds(job, backend, workers) for workers in (1, WORKERS))
                    by = peer(f"1 worker on {backend}", PACKAGES[backend])
                    row(f"{name}, {WORKERS} workers", two, one, "s", by)


if __name__ == "__main__":
    main()

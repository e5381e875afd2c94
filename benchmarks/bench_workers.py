"""No workers and two, on each backend: teachers trained, and their votes collected.

The peer is the same job in this process alone, without workers. Backends are started, and have done
a small job, before time is taken, as on a cluster that runs; but Ray starts its workers with every
job. Each job is done twice, in turns with its peer, and the better times count.
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
from comparison import peer, row
from joblib import dump, parallel_config
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


def votes(folder: Path, models: int, rows: int) -> Callable[[int], None]:
    """Return a job: collect the votes of saved forests about made-up rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 20))
    Y = (X @ rng.normal(size=(20, 4)) > 0).astype(np.int8)
    saved = folder / f"models-{models}"
    saved.mkdir()
    for place in range(models):
        forest = RandomForestClassifier(n_estimators=60, random_state=place).fit(X, Y)
        dump(forest, saved / f"{place}.joblib")
    asked = folder / f"rows-{rows}.npy"
    np.save(asked, rng.normal(size=(rows, 20)))

    def job(n_jobs: int) -> None:
        del n_jobs  # as joblib is told
        with tempfile.TemporaryDirectory(dir=folder) as place:
            pv.collect_votes(saved, asked, Path(place) / "votes.zarr", labels=4)

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
    parser.add_argument("--rows", type=int, default=20_000)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        train_job = teachers(200 * given.teachers, given.teachers)
        jobs = {f"train {given.teachers} forests": (train_job, teachers(400, 2))}
        place = Path(folder)
        name = f"votes of {given.teachers} forests on {given.rows:,} rows"
        jobs[name] = (votes(place, given.teachers, given.rows), votes(place, 2, 100))
        for backend in given.backends:
            by = peer("no workers", PACKAGES[backend])
            with started(backend):
                for name, (job, small) in jobs.items():
                    seconds(small, (backend, WORKERS))
                    one, two = seconds(job, ("sequential", 1), (backend, WORKERS))
                    row(f"{name}, {WORKERS} workers on {backend}", two, one, "s", by)


if __name__ == "__main__":
    main()

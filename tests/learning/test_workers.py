"""The same work in this process, in others, on Dask and on Ray; and what a dead worker is."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import joblib
import pytest
from joblib.parallel import get_active_backend
from tests.refusals import refused

from privote.learning.workers import WorkerLostError, each, on_workers, one_thread
from privote.votes.cube import keep_memory


def square(number: int) -> int:
    return number * number


def whose(number: int) -> int:
    """Return who works on this, after a while."""
    time.sleep(0.002)
    return os.getpid()


def shared_out_by(number: int) -> str:
    """Return what would do the work that this work shares out."""
    return type(get_active_backend()[0]).__name__


def die_once(mark: str, number: int) -> int:
    """Kill this very process, the first time that anybody works on 5."""
    if number == 5:
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return number
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_results_come_in_order() -> None:
    assert list(each(square, range(20))) == [n * n for n in range(20)]


def test_nothing_is_asked_for_before_it_is_due() -> None:
    asked: list[int] = []

    def given() -> Any:
        for number in range(100):
            asked.append(number)
            yield number

    for workers, due in ((1, 2), (2, 8)):
        asked.clear()
        with joblib.parallel_config("threading", n_jobs=workers):
            results = each(square, given(), at_once=4)
            assert [next(results), next(results)] == [0, 1]
            assert len(asked) == due
            results.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("count", [1, 2])
def test_in_processes(count: int) -> None:
    with on_workers("loky", count):
        assert list(each(square, range(12))) == [n * n for n in range(12)]


def test_what_joblib_was_told_is_done() -> None:
    with joblib.parallel_config("threading", n_jobs=2), on_workers():
        assert list(each(square, range(12))) == [n * n for n in range(12)]


def test_a_dead_worker_is_said(tmp_path: Path) -> None:
    work = partial(die_once, str(tmp_path / "mark"))
    with (
        pytest.raises(WorkerLostError, match="a worker died in the middle of its work"),
        on_workers("loky", 2),
    ):
        list(each(work, range(12)))
    assert list(each(work, range(12))) == [*range(12)]


@pytest.mark.parametrize("error", [BrokenProcessPool("of its own"), WorkerLostError("of its own")])
def test_what_fails_to_be_asked_for_is_no_lost_worker(error: Exception) -> None:
    """Whoever gives the calls may have workers of its own: none of its calls is left out."""

    def given() -> Any:
        yield from range(30)
        raise error

    with (
        joblib.parallel_config("threading", n_jobs=2),
        pytest.raises(type(error), match="of its own"),
    ):
        list(each(square, given()))


def test_work_is_shared_whatever_it_takes() -> None:
    """joblib would guess how many short calls to give away at once, and leave all to one worker."""
    with on_workers("loky", 2):
        for _ in range(2):
            seen = [*each(whose, range(64), at_once=32)]
    assert len(set(seen)) == 2


@pytest.mark.parametrize("backend", ["loky", "dask"])
def test_what_a_worker_shares_out_stays_with_it(backend: str) -> None:
    """Dask would send every tree of a forest to some worker, when each trains a forest."""
    if backend == "dask":
        pytest.importorskip("distributed")
    with on_workers(backend, 2):
        assert set(each(shared_out_by, range(4))) == {"ThreadingBackend"}


@pytest.mark.skipif(sys.platform == "win32", reason="kills by signal")
def test_dask_does_the_work_of_a_dead_worker_again(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    work = partial(die_once, str(tmp_path / "mark"))
    with on_workers("dask", 2):
        assert list(each(work, range(12))) == [*range(12)]
    assert (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    ("given", "argument"),
    [
        (("spark", None, None), "backend"),
        (("loky", None, "tcp://x:1"), "address"),
        ((None, None, "tcp://x:1"), "address"),
        (("loky", 0, None), "workers"),
    ],
)
def test_refused(given: tuple[Any, ...], argument: str) -> None:
    with refused(argument), on_workers(*given):
        pass


def test_an_address_that_leads_nowhere_is_said() -> None:
    dask = pytest.importorskip("dask")
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        refused("address"),
        on_workers("dask", None, "tcp://127.0.0.1:9"),
    ):
        pass


def test_linear_algebra_is_held_to_one_thread() -> None:
    from threadpoolctl import threadpool_info

    with one_thread():
        pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
        assert pools
        assert all(pool["num_threads"] == 1 for pool in pools)


FAULTS = """
import resource, sys
import numpy as np
from privote.votes.cube import keep_memory
if sys.argv[1] == "kept":
    keep_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        np.ones(int(sys.argv[2]), np.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's")
def test_memory_of_a_block_is_kept_for_the_next() -> None:
    """Without, every array of some megabytes comes in pages that are not there yet."""
    plain = os.environ | {"MALLOC_TRIM_THRESHOLD_": "65536"}  # as Dask has it
    found = []
    for how in ("not", "kept"):
        command = [sys.executable, "-c", FAULTS, how, str(1 << 21)]
        found.append(
            int(subprocess.run(command, env=plain, check=True, capture_output=True).stdout)
        )
    assert found[1] < 1024 < found[0]  # pages of two arrays, of twenty


@pytest.mark.parametrize("said", [{}, {"TRIM": 1 << 16}, {"TRIM": 1 << 34, "MMAP": 1 << 33}])
def test_what_the_environment_says_of_memory_stays_if_it_is_more(
    said: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TRIM", "MMAP"):
        monkeypatch.delenv(f"MALLOC_{name}_THRESHOLD_", raising=False)
    for name, value in said.items():
        monkeypatch.setenv(f"MALLOC_{name}_THRESHOLD_", str(value))
    told: list[int] = []
    library = SimpleNamespace(mallopt=lambda option, value: told.append(option))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    keep_memory.__wrapped__()
    assert told == ([] if "MMAP" in said else [-1, -3])

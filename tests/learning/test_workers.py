"""The same work in this process, in others, and on Dask."""

from __future__ import annotations

from typing import Any

import joblib
import pytest
from joblib.parallel import get_active_backend
from tests.refusals import refused

from privote.learning.workers import each, on_workers


def square(number: int) -> int:
    return number * number


def shared_out_by(number: int) -> str:
    """Return what would do the work that this work shares out."""
    return type(get_active_backend()[0]).__name__


def test_nothing_is_asked_for_before_it_is_due() -> None:
    asked: list[int] = []

    def given() -> Any:
        for number in range(100):
            asked.append(number)
            yield number

    for workers, due in ((1, 2), (2, 8)):
        asked.clear()
        with joblib.parallel_config("threading", n_jobs=workers):
            results = each(square, given())
            assert [next(results), next(results)] == [0, 1]
            assert len(asked) == due
            results.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("backend", ["loky", "dask"])
def test_what_a_worker_shares_out_stays_with_it(
    backend: str, request: pytest.FixtureRequest
) -> None:
    """Dask would send every tree of a forest to some worker, when each trains a forest."""
    if backend == "dask":
        client = pytest.importorskip("distributed").Client(processes=False, dashboard_address=None)
        request.addfinalizer(client.close)
    with on_workers(backend, 2):
        assert set(each(shared_out_by, range(4))) == {"ThreadingBackend"}


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

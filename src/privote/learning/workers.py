"""Workers: the same calls in this process, in others, or on other machines, through joblib."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from itertools import islice
from typing import Any, TypeVar

from ..errors import InputError, PrivoteError, missing_extra, shown, whole

CLUSTERS = ("dask", "ray")
_ROUND = 4  # calls for each worker before more are asked for: what waits takes memory

Given = TypeVar("Given")
Result = TypeVar("Result")


class WorkerLostError(PrivoteError):
    """A worker died in the middle of its work, which may be done again."""


def on_workers(
    backend: str | None = None, count: int | None = None, address: str | None = None
) -> AbstractContextManager[Any]:
    """Return the block in which :func:`each` works in so many processes, or on a cluster.

    Parameters
    ----------
    backend, address
        As for ``joblib.parallel_config``: "loky", "dask" or "ray", and the scheduler of a cluster.
        None: what is configured already, and the Dask client or the Ray of this process.
    count
        How many workers; None: one, or on a cluster as many as it has; -1: as many as there are.
    """
    cluster = backend in CLUSTERS
    if address is not None and not cluster:
        raise InputError("address", "needs `backend=dask` or `backend=ray`")
    if count not in (None, -1):
        whole("workers", count)
    if count is None and backend is None:
        return nullcontext()
    from joblib import parallel_config

    how: dict[str, Any] = {"n_jobs": count or (-1 if cluster else 1)}
    how |= {} if backend is None else {"backend": backend}
    try:
        if backend == "ray":
            import ray
            from ray.util.joblib import register_ray

            register_ray()
            if address is not None:
                ray.init(address=address, log_to_driver=False)
        elif address is not None:
            how["scheduler_host"] = address
        config: AbstractContextManager[Any] = parallel_config(**how)
        return config
    except ImportError:
        raise missing_extra(str(backend), f"working on {str(backend).title()}") from None
    except Exception as error:  # each library has its own tree
        argument = "backend" if address is None else "address"
        rule = f"cannot be used: {' '.join(str(error).split())[:200]}"
        raise InputError(argument, rule, backend if address is None else address) from None


def each(
    work: Callable[[Given], Result],
    given: Iterable[Given],
    *,
    n_jobs: int | None = None,
    prefer: str | None = None,
) -> Iterator[Result]:
    """Yield ``work`` of everything given, in order; what is due later is not asked for yet.

    Raises
    ------
    WorkerLostError
        If a worker dies, and the backend does not start its work again by itself.
    """
    # Imported here because it takes a second that other uses of the package should not pay.
    from joblib import Parallel, delayed, effective_n_jobs

    workers = int(effective_n_jobs(n_jobs))
    if workers < 2:
        yield from map(work, given)
        return
    calls, call = iter(given), delayed(partial(_inside, work))
    with Parallel(n_jobs, prefer=prefer, batch_size=1) as pool:
        while some := [*islice(calls, _ROUND * workers)]:
            try:
                results = pool(map(call, some))
            except BrokenExecutor as error:
                text = shown(" ".join(str(error).split()))
                raise WorkerLostError(f"a worker died: {text}") from error
            yield from results


def _inside(work: Callable[[Given], Result], one: Given) -> Result:
    """Do the work in a worker: what it shares out itself stays there, which Dask would not have."""
    from joblib import parallel_config

    with parallel_config("threading"):
        return work(one)


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold linear algebra to one thread: sums then have one order, and small ones no waiting."""
    with _pools().limit(limits=1, user_api="blas"):
        yield


@cache
def _pools() -> Any:
    """Return the thread pools of this process's libraries; looking for them takes a while."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()

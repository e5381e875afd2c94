"""Workers: the same calls in this process, in others, or on other machines, through joblib.

Whoever hands out work says what is to be done and gets the results in order; where it is done is
up to joblib: processes of this machine (loky), or a cluster (Dask, Ray) that runs already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from itertools import islice
from typing import Any, TypeVar

from ..errors import InputError, PrivoteError, missing_extra, shown, whole

BACKENDS = ("loky", "dask", "ray")
_ROUND = 8  # calls a worker gets at once where results cannot be had one by one
_SHARES = 4  # in which it gets them: joblib's own guess may leave all to one worker
# What backends raise when a worker is gone, by name: none of them need be installed.
_LOSSES = ("BrokenExecutor", "KilledWorker", "RayActorError", "WorkerCrashedError")

Given = TypeVar("Given")
Result = TypeVar("Result")


class WorkerLostError(PrivoteError):
    """A worker died in the middle of its work, which may be done again."""


@contextmanager
def on_workers(
    backend: str | None = None, count: int | None = None, address: str | None = None
) -> Iterator[None]:
    """Let :func:`each` work in so many processes, or on a cluster, while the block runs.

    Parameters
    ----------
    backend
        "loky", "dask" or "ray"; None: whatever ``joblib.parallel_config`` says.
    count
        How many workers; None: one, or on a cluster as many as it has; -1: as many as there are.
    address
        Of the scheduler of a cluster; without one, the Dask client or the Ray of this process.
    """
    if backend not in (None, *BACKENDS):
        raise InputError("backend", f"must be one of {', '.join(BACKENDS)}", backend)
    cluster = backend in ("dask", "ray")
    if address is not None and not cluster:
        raise InputError("address", "needs `backend=dask` or `backend=ray`")
    if count not in (None, -1):
        whole("workers", count)
    if count is None and backend is None:
        yield
        return
    from joblib import parallel_config

    how: dict[str, Any] = {"n_jobs": count or (-1 if cluster else 1)}
    try:
        if backend == "ray":
            import ray
            from ray.util.joblib import register_ray

            register_ray()
            if address is not None:
                ray.init(address=address, log_to_driver=False)
        elif address is not None:
            how["scheduler_host"] = address
        config = parallel_config(**how) if backend is None else parallel_config(backend, **how)
    except ImportError:
        raise missing_extra(str(backend), f"working on {str(backend).title()}") from None
    except Exception as error:  # each library has its own tree
        why = shown(" ".join(str(error).split()))
        raise InputError("address", f"leads to no scheduler: {why}", address) from None
    with config:
        yield


def each(
    work: Callable[[Given], Result],
    given: Iterable[Given],
    *,
    n_jobs: int | None = None,
    prefer: str | None = None,
    at_once: int = _ROUND,
) -> Iterator[Result]:
    """Yield ``work`` of everything given, in order; what is due later is not asked for yet.

    Parameters
    ----------
    at_once
        How many calls each worker gets before the next ones are asked for.

    Raises
    ------
    WorkerLostError
        If a worker dies, and the backend does not start its work again by itself.
    """
    # Imported here because it takes a second that other uses of the package should not pay.
    from joblib import Parallel, delayed, effective_n_jobs

    workers = max(1, int(effective_n_jobs(n_jobs)))
    call = work if workers < 2 else partial(_inside, work)
    calls, size = iter(given), at_once * workers if workers > 1 else 1
    batch = max(1, at_once // _SHARES)
    with Parallel(n_jobs, prefer=prefer, pre_dispatch="all", batch_size=batch) as pool:
        # Asked for outside of `_losses`: what fails there is no worker's loss.
        while chunk := [*islice(calls, size)]:
            with _losses():
                results = pool(delayed(call)(call_input) for call_input in chunk)
            yield from results
            del results


def _inside(work: Callable[[Given], Result], one: Given) -> Result:
    """Do the work in a worker: what it shares out itself stays there, which Dask would not have."""
    from joblib import parallel_config

    with parallel_config("threading"):
        return work(one)


@contextmanager
def _losses() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if any(kind.__name__ in _LOSSES for kind in type(error).__mro__):
            text = shown(" ".join(str(error).split()))
            raise WorkerLostError(f"a worker died: {text}") from error
        raise


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

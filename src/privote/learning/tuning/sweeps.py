"""Sigma, tau and the gate, each over a grid, as in the paper's appendix on tuning."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import InputError
from ...mechanisms import BinaryVoting, Gate, Mechanism, TauVoting
from .trials import Bench, Progress, Tuning, check_grid

#: As shares of the voters: 2 to 60 of 50.
_SIGMA_SHARES = (0.04, 0.06, 0.1, 0.14, 0.18, 0.24, 0.3, 0.4, 0.6, 0.8, 1.2)
_GATE_SHARES = (0.6, 0.7, 0.8, 0.9, 1.0)
_GATE_SIGMA_SHARES = (0.1, 0.2, 0.4, 0.6)
_TAUS = 6  # values of tau by norm, unless told


def tune_sigma(
    votes: Any,
    truth: npt.ArrayLike | None = None,
    *,
    epsilon: float,
    delta: float,
    sigmas: Sequence[float] | None = None,
    make: Callable[[float], Mechanism] = lambda sigma: BinaryVoting(sigma=sigma),
    progress: Progress | None = None,
    **how: Any,
) -> Tuning:
    """Try one amount of noise after the other.

    Parameters
    ----------
    votes
        (queries, voters, labels) array, dense ballots or path.
    truth
        (queries, labels) of 1, 0 and -1 (unknown); without it labels are compared with the
        noise-free majority.
    epsilon, delta
        The budget, for replacing one voter's ballots on all queries.
    sigmas
        What to try: PATE's sigma_GNMax. By default a grid that grows with the number of voters.
    make
        From a sigma to the mechanism.
    progress
        Called as ``progress(done, total)``.
    how
        ``guarantees``, ``releases`` and ``seed``, as in `queries_that_fit` and `expected_figures`.
    """
    bench = Bench.of(votes, truth, epsilon=epsilon, delta=delta, **how)
    voters = bench.votes.shape[1]
    grid = check_grid("sigmas", default_sigmas(voters) if sigmas is None else sigmas)
    mechanisms = [make(sigma) for sigma in grid]  # what is refused is refused before the work
    trials = [
        bench.try_out(mechanism, {"sigma": sigma})
        for mechanism, sigma in watched(list(zip(mechanisms, grid, strict=True)), progress)
    ]
    return bench.tuning("sigma", trials)


def tune_tau(
    votes: Any,
    truth: npt.ArrayLike | None = None,
    *,
    sigma: float,
    epsilon: float,
    delta: float,
    taus: Sequence[float] | None = None,
    norms: Sequence[int] = (2, 1),
    gate: Gate | None = None,
    progress: Progress | None = None,
    **how: Any,
) -> Tuning:
    """Try one bound on a ballot's norm after the other, in l2 and in l1; parameters as tune_sigma.

    Parameters
    ----------
    sigma, gate
        The noise and, if any, the gate, the same for all.
    taus
        What to try in each norm; by default from ballots with a single full vote up to no clipping.
    norms
        Which: 2, 1 (Private-kNN's) or both.

    Returns
    -------
    Each trial's details say the share of the yes-votes' weight that clipping keeps (``kept``), the
    share of the ballots it shortens (``clipped``), and what one query costs at most, in single
    votes of Binary, by the Gaussian bound (``cost``; public).
    """
    bench = Bench.of(votes, truth, epsilon=epsilon, delta=delta, **how)
    sizes = np.bincount((bench.votes == 1).sum(axis=2).reshape(-1))
    if not norms:
        raise InputError("norms must be 2, 1 or both, got none")
    grid = [
        TauVoting(sigma=sigma, tau=tau, norm=norm, gate=gate)
        for norm in norms
        for tau in check_grid("taus", _default_taus(len(sizes) - 1, norm) if taus is None else taus)
    ]
    trials = [
        bench.try_out(
            mechanism,
            {"norm": mechanism.norm, "tau": mechanism.tau},
            _clipping(mechanism, sizes, bench.votes.shape),
        )
        for mechanism in watched(grid, progress)
    ]
    return bench.tuning("tau", trials)


def tune_gate(
    votes: Any,
    truth: npt.ArrayLike | None = None,
    *,
    mechanism: Mechanism,
    epsilon: float,
    delta: float,
    thresholds: Sequence[float] | None = None,
    sigmas: Sequence[float] | None = None,
    progress: Progress | None = None,
    **how: Any,
) -> Tuning:
    """Try every pair of a gate's threshold and noise; parameters as tune_sigma.

    Parameters
    ----------
    mechanism
        Without a gate, its noise tuned before: the first trial is the mechanism as it is.
    thresholds, sigmas
        The gate's T and sigma_T; by default shares of the number of voters.
    """
    if mechanism.gate is not None:
        raise InputError(f"mechanism must have no gate yet, got {mechanism}")
    bench = Bench.of(votes, truth, epsilon=epsilon, delta=delta, **how)
    voters = bench.votes.shape[1]
    bars = [voters * s for s in _GATE_SHARES] if thresholds is None else thresholds
    noises = [voters * s for s in _GATE_SIGMA_SHARES] if sigmas is None else sigmas
    pairs = list(product(check_grid("sigmas", noises), check_grid("thresholds", bars)))
    gates = [None, *(Gate(threshold=bar, sigma=noise) for noise, bar in pairs)]
    trials = [
        bench.try_out(
            replace(mechanism, gate=gate),
            {
                "gate_threshold": None if gate is None else gate.threshold,
                "gate_sigma": None if gate is None else gate.sigma,
            },
        )
        for gate in watched(gates, progress)
    ]
    return bench.tuning("gate", trials)


def default_sigmas(voters: int) -> list[float]:
    """Return amounts of noise worth trying with so many voters."""
    return [float(f"{voters * share:.3g}") for share in _SIGMA_SHARES]


def _default_taus(largest: int, norm: int) -> list[float]:
    """Return the norms of ballots with a few numbers of ones, from one to the largest ballot."""
    ones = np.unique(np.geomspace(1, max(1, largest), _TAUS).round())
    # Rounded up: such a ballot is not clipped.
    return [math.ceil(100 * size ** (1 / norm) - 1e-9) / 100 for size in ones]


def _clipping(
    mechanism: TauVoting, sizes: npt.NDArray[np.int64], shape: tuple[int, ...]
) -> Mapping[str, float]:
    """Return how much of the votes is kept; ``sizes`` counts ballots by their number of ones."""
    _, voters, labels = shape
    weights = mechanism.weights(labels)[: len(sizes)]
    ones = sizes * np.arange(len(sizes))
    worst = mechanism.worst_case_rdp(voters, labels, [2.0], bound="gaussian")[0]
    single = BinaryVoting(sigma=mechanism.sigma, gate=mechanism.gate).worst_case_rdp(
        voters, 1, [2.0], bound="gaussian"
    )[0]
    return {
        "kept": float((ones * weights).sum() / ones.sum()) if ones.any() else 1.0,
        "clipped": float(sizes[1:][weights[1:] < 1].sum() / sizes.sum()),
        "cost": float(worst / single),
    }


def watched(items: Sequence[Any], progress: Progress | None) -> Any:
    """Yield the items, saying how many are done."""
    for done, item in enumerate(items):
        if progress is not None:
            progress(done, len(items))
        yield item

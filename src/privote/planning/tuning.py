"""Sigma, tau, a gate, a threshold or the mechanism: each tried on votes that may be looked at."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from ..accounting.filters import pinned_order
from ..errors import BallotError, InputError, UnavailableError, positive
from ..mechanisms import MECHANISMS, BinaryVoting, Gate, Mechanism
from ..votes.cube import Ballots, BallotSource, check_probabilities, check_shape, check_threshold
from .counting import Bools
from .quality import Truth, check_truth, noise_free, quality_of
from .trials import Bench, Trial, Tuning

#: As shares of the voters: 2 to 60 of 50.
_SIGMAS = (0.04, 0.06, 0.1, 0.14, 0.18, 0.24, 0.3, 0.4, 0.6, 0.8, 1.2)
_SIGMA = 0.14
_GATES, _GATE_SIGMAS = (0.6, 0.7, 0.8, 0.9, 1.0), (0.1, 0.2, 0.4, 0.6)
_TAUS = 6  # values of tau by norm
_THRESHOLDS = tuple(round(0.05 * step, 2) for step in range(1, 20))
_ROUNDS = 8  # halvings of the way between two values of a grid: right to 0.1 percent
_SEARCHED, _HALVINGS = (1e-2, 1e2), 12  # sigmas of equal quality, as shares of the voters


def tune_sigma(
    votes: Any,
    truth: npt.ArrayLike | None = None,
    *,
    mechanism: Mechanism | None = None,
    sigmas: Sequence[float] | None = None,
    refine: bool = False,
    **how: Any,
) -> Tuning:
    """Try one amount of noise after the other.

    Parameters
    ----------
    votes, truth, how
        As in `Bench`, ``epsilon`` and ``delta`` among them.
    mechanism
        Tried with each sigma in place of its own; Binary by default. An optimal link gets the cost
        that Gaussian noise of this sigma has at the bar.
    sigmas
        What to try: PATE's sigma_GNMax. By default a grid that grows with the number of voters.
    refine
        Also search between the chosen sigma and its neighbours.
    """
    bench = Bench(votes, truth, **how)
    voters = bench.ballots.voters
    grid = _grid("sigmas", [_neat(voters * s) for s in _SIGMAS] if sigmas is None else sigmas)
    kind = BinaryVoting(sigma=1.0) if mechanism is None else mechanism
    made = {sigma: kind.with_noise(sigma) for sigma in grid}  # what is refused is refused first
    trials = [bench.try_out(made[s], {"sigma": s}) for s in bench.watched(grid)]
    if refine:
        trials = _refined(bench, trials, lambda s: bench.try_out(kind.with_noise(s), {"sigma": s}))
    return bench.tuning("sigma", trials)


def _refined(bench: Bench, trials: list[Trial], at: Callable[[float], Trial]) -> list[Trial]:
    """Climb from the best sigma to better ones between its neighbours, halving the way."""
    seen = {trial.values["sigma"]: trial for trial in trials}
    grid = sorted(seen)

    def best() -> float:
        tuning = bench.tuning("sigma", list(seen.values()))
        return float(max(tuning.trials, key=tuning.score).values["sigma"])

    place = grid.index(best())
    left, right = grid[max(place - 1, 0)], grid[min(place + 1, len(grid) - 1)]
    for _ in range(_ROUNDS):
        here = best()
        for end in (left, right):
            middle = _neat(math.sqrt(here * end))
            if middle not in seen:
                seen[middle] = at(middle)
        found, order = best(), sorted(seen)
        place = order.index(found)
        left, right = order[max(place - 1, 0)], order[min(place + 1, len(order) - 1)]
    return [seen[sigma] for sigma in sorted(seen)]


def tune_tau(
    votes: Any,
    truth: npt.ArrayLike | None = None,
    *,
    mechanism: Mechanism,
    taus: Sequence[float] | None = None,
    norms: Sequence[int] = (2, 1),
    **how: Any,
) -> Tuning:
    """Try one bound on a ballot's norm after the other, in l2 and in l1; parameters as tune_sigma.

    Parameters
    ----------
    mechanism
        With a tau and a norm, each in turn replaced.
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
    kind: Any = mechanism
    if not {"tau", "norm"} <= mechanism.parameters().keys():
        raise InputError("mechanism", f"must have a tau to tune, got {mechanism}")
    bench = Bench(votes, truth, **how)
    sizes = _sizes(bench.ballots)
    if not norms:
        raise InputError("norms", "must be 2, 1 or both, got none")
    grid = [
        replace(kind, tau=tau, norm=norm)
        for norm in norms
        for tau in _grid("taus", _default_taus(len(sizes) - 1, norm) if taus is None else taus)
    ]
    trials = [
        bench.try_out(each, {"norm": each.norm, "tau": each.tau}, _clipping(each, sizes, bench))
        for each in bench.watched(grid)
    ]
    return bench.tuning("tau", trials)


def _sizes(ballots: BallotSource) -> npt.NDArray[np.int64]:
    """Return how many ballots have each number of ones, from none to the longest."""
    ones = [block.speakers()[2].sum(axis=1) for block in ballots.blocks()]
    sizes = np.bincount(np.concatenate(ones), minlength=1)
    sizes[0] += ballots.queries * ballots.voters - sizes.sum()  # who said nothing
    return sizes


def _default_taus(largest: int, norm: int) -> list[float]:
    """Return the norms of ballots with a few numbers of ones, from one to the largest ballot."""
    ones = np.unique(np.geomspace(1, max(1, largest), _TAUS).round())
    # Rounded up: such a ballot is not clipped.
    return [math.ceil(100 * size ** (1 / norm) - 1e-9) / 100 for size in ones]


def _clipping(mechanism: Any, sizes: npt.NDArray[np.int64], bench: Bench) -> dict[str, float]:
    """Return how much of the votes is kept; ``sizes`` counts ballots by their number of ones."""
    voters, labels = bench.ballots.voters, bench.ballots.labels
    weights = mechanism.weights(labels)[: len(sizes)]
    ones = sizes * np.arange(len(sizes))
    worst = mechanism.worst_case_rdp(voters, labels, [2.0], bound="gaussian")[0]
    single = BinaryVoting(sigma=mechanism.sigma, gate=mechanism.gate)
    return {
        "kept": float((ones * weights).sum() / ones.sum()) if ones.any() else 1.0,
        "clipped": float(sizes[1:][weights[1:] < 1].sum() / sizes.sum()),
        "cost": float(worst / single.worst_case_rdp(voters, 1, [2.0], bound="gaussian")[0]),
    }


def tune_gate(
    votes: Any,
    truth: npt.ArrayLike | None = None,
    *,
    mechanism: Mechanism,
    gate_thresholds: Sequence[float] | None = None,
    gate_sigmas: Sequence[float] | None = None,
    **how: Any,
) -> Tuning:
    """Try every pair of a gate's threshold and noise; parameters as tune_sigma.

    Parameters
    ----------
    mechanism
        Without a gate, its noise tuned before: the first trial is the mechanism as it is.
    gate_thresholds, gate_sigmas
        The gate's T and sigma_T; by default shares of the number of voters.
    """
    kind: Any = mechanism
    if mechanism.gate is not None:
        raise InputError("mechanism", f"must have no gate yet, got {mechanism}")
    bench = Bench(votes, truth, **how)
    voters = bench.ballots.voters
    bars = [_neat(voters * s) for s in _GATES] if gate_thresholds is None else gate_thresholds
    noises = [_neat(voters * s) for s in _GATE_SIGMAS] if gate_sigmas is None else gate_sigmas
    pairs = product(_grid("gate_sigmas", noises), _grid("gate_thresholds", bars))
    gates = [None, *(Gate(threshold=bar, sigma=noise) for noise, bar in pairs)]
    trials = [
        bench.try_out(
            replace(kind, gate=gate),
            {
                "gate_threshold": None if gate is None else gate.threshold,
                "gate_sigma": None if gate is None else gate.sigma,
            },
        )
        for gate in bench.watched(gates)
    ]
    return bench.tuning("gate", trials)


def tune_mechanism(
    votes: Any,
    truth: npt.ArrayLike | None = None,
    *,
    sigma: float | None = None,
    mechanisms: Iterable[Mechanism] | None = None,
    also: Iterable[type[Mechanism]] = (),
    equal: str = "noise",
    **how: Any,
) -> Tuning:
    """Put mechanisms side by side, at equal noise or at equal quality; parameters as tune_sigma.

    Parameters
    ----------
    sigma
        The noise; by default a seventh of the voters, or for ``equal="as-given"`` each one's own.
    mechanisms
        What to compare: of any class that extends :class:`privote.Mechanism`. By default the
        variants of everything in :data:`privote.mechanisms.MECHANISMS`.
    also
        Classes whose variants are compared with those.
    equal
        ``"noise"``: all with this sigma. ``"quality"``: the first with this sigma, and the others
        with so much noise that as many of their labels are wrong as of the first's.
        ``"as-given"``: each with its own noise.

    Returns
    -------
    What cannot count these ballots, or is worse than the first without any noise, is left out, and
    ``left_out`` says why.
    """
    if equal not in ("noise", "quality", "as-given"):
        raise InputError("equal", "must be noise, quality or as-given", equal)
    bench = Bench(votes, truth, **how)
    noise = _neat(_SIGMA * bench.ballots.voters) if sigma is None else positive("sigma", sigma)
    if mechanisms is None:
        order = pinned_order(bench.budget.epsilon, bench.budget.delta)
        kinds = dict.fromkeys([*MECHANISMS.values(), *also])
        mechanisms = [m for kind in kinds for m in kind.variants(noise, order)]
    elif equal != "as-given":
        mechanisms = [mechanism.with_noise(noise) for mechanism in mechanisms]
    able = [each for each in mechanisms if _able(bench, each)]
    if not able:
        raise InputError(
            "mechanisms", f"must hold one that can count these votes: {bench.left_out}"
        )
    target = bench.wrong(able[0])
    trials = []
    for place, each in enumerate(bench.watched(able)):
        found = each if equal != "quality" or place == 0 else _as_wrong(bench, each, target)
        if found is not None:
            trials.append(bench.try_out(found, {"mechanism": str(found)}))
    return bench.tuning("mechanism", trials)


def _able(bench: Bench, mechanism: Mechanism) -> bool:
    try:
        mechanism.check(bench.ballots)
    except (BallotError, UnavailableError) as error:
        bench.left_out[str(mechanism)] = str(error)
        return False
    return True


def _as_wrong(bench: Bench, mechanism: Mechanism, target: float) -> Mechanism | None:
    """Return the mechanism with the most noise that leaves no more than ``target`` wrong."""
    low, high = (share * bench.ballots.voters for share in _SEARCHED)
    if bench.wrong(mechanism.with_noise(low)) > target:
        why = f"more than {target:.4g} of its labels are wrong with hardly any noise"
        bench.left_out[mechanism.name] = why
        return None
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        fits = bench.wrong(mechanism.with_noise(middle)) <= target
        low, high = (middle, high) if fits else (low, middle)
    return mechanism.with_noise(float(f"{low:.4g}"))


def tune_threshold(
    probabilities: npt.ArrayLike,
    truth: npt.ArrayLike,
    *,
    mechanism: Mechanism,
    thresholds: Sequence[float] | None = None,
    others: Mapping[str, Bools] | None = None,
    **how: Any,
) -> Tuning:
    """Try thresholds for all labels, and the best one of each label; parameters as tune_sigma.

    Parameters
    ----------
    probabilities
        (queries, voters, labels) in [0, 1]; at or above the threshold is a yes.
    truth
        It is needed: the majority depends on the threshold itself.
    mechanism
        How the votes would be released.
    thresholds
        What to try; by default 0.05 to 0.95.
    others
        Votes (queries, voters, labels) made in other ways, by name, to try as well.

    Returns
    -------
    Each trial's values say which ``rule`` it was and, for "common", its ``threshold``; its details
    hold the ``thresholds`` and the yes-votes of a ballot (``yes_per_ballot``). Each label's best
    threshold is judged by the same queries that chose it, so it looks too good.
    """
    cube = np.asarray(probabilities)
    queries, _, labels = check_shape(cube.shape)
    check_probabilities(cube)
    known = check_truth(truth, queries, labels)
    grid = _grid("thresholds", _THRESHOLDS if thresholds is None else thresholds)
    check_threshold(max(grid), labels)
    bench = Bench(cube >= grid[0], known, **how)
    best = best_per_label(cube, known, grid, mechanism)
    tries: list[tuple[str, float | None, Any, Bools | None]] = [
        *(("common", threshold, threshold, None) for threshold in grid),
        ("per label", None, best.tolist(), None),
        *((name, None, None, made) for name, made in (others or {}).items()),
    ]
    trials = []
    for rule, threshold, bars, made in bench.watched(tries):
        votes = cube >= np.asarray(bars) if made is None else made
        details = {"thresholds": bars, "yes_per_ballot": float(votes.sum(axis=2).mean())}
        values = {"rule": rule, "threshold": threshold}
        trials.append(bench.try_out(mechanism, values, details, Ballots.of(votes)))
    return bench.tuning("threshold", trials)


def best_per_label(
    probabilities: npt.NDArray[Any], truth: Truth, grid: Sequence[float], mechanism: Mechanism
) -> npt.NDArray[np.float64]:
    """Return the threshold at which each label's noise-free outcome is best: (labels,).

    Where missed and false alarms together are fewest, the smallest of equals. A label with one
    class only takes what is best on average.
    """
    scores = np.full((len(grid), truth.shape[1]), np.nan)
    for row, threshold in enumerate(grid):
        plain = noise_free(mechanism, Ballots.of(probabilities >= threshold))
        for label in range(truth.shape[1]):
            found = quality_of(plain[:, [label]], truth[:, [label]])
            scores[row, label] = found.missed + found.false_alarm
    undefined = np.isnan(scores).any(axis=0)
    if undefined.all():
        raise InputError("truth", "must have a label with both classes to choose thresholds by")
    scores[:, undefined] = scores[:, ~undefined].mean(axis=1, keepdims=True)
    return np.asarray(np.array(grid)[scores.argmin(axis=0)])


def _grid(name: str, values: Sequence[float]) -> list[float]:
    """Return the values to try; at least one, all finite and positive, none twice."""
    grid = [positive(name, value) for value in values]
    if not grid:
        raise InputError(name, "must hold at least one value, got none")
    if len(set(grid)) < len(grid):
        raise InputError(name, f"must not hold a value twice, got {grid}")
    return grid


def _neat(value: float) -> float:
    """Return the value to four digits: what is tried is what is printed."""
    return float(f"{value:.4g}")

"""From which probability on a voter says yes: one threshold, one per label, or a share of the pool.

The paper tunes one threshold for all labels and one per label by the noise-free ensemble's balanced
accuracy. A probability at or above the threshold is a yes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...ballots import check_probabilities, check_shape, check_threshold
from ...errors import InputError
from ...mechanisms import Mechanism
from ..teachers.votes import top_share
from .figures import Truth, figures_of, majority
from .sweeps import watched
from .trials import Bench, Progress, Tuning, check_grid, check_truth

Floats = npt.NDArray[np.float64]
Votes = npt.NDArray[np.bool_]

BEST_BY = {"BAC": "BAC", "F1": "CF1"}
_THRESHOLDS = tuple(round(0.05 * step, 2) for step in range(1, 20))


def tune_threshold(
    probabilities: npt.ArrayLike,
    truth: npt.ArrayLike,
    *,
    mechanism: Mechanism,
    epsilon: float,
    delta: float,
    thresholds: Sequence[float] | None = None,
    best_by: str = "BAC",
    prevalence: npt.ArrayLike | None = None,
    progress: Progress | None = None,
    **how: Any,
) -> Tuning:
    """Try thresholds for all labels, the best one of each label, and shares of the pool.

    Parameters
    ----------
    probabilities
        (queries, voters, labels) in [0, 1].
    truth
        (queries, labels) of 1, 0 and -1 (unknown). It is needed: the majority depends on the
        threshold itself.
    mechanism, epsilon, delta
        How the votes would be released, under which budget.
    thresholds
        What to try; by default 0.05 to 0.95.
    best_by
        "BAC" or "F1" of the noise-free majority, by which each label's best threshold is chosen.
    prevalence
        (labels,) or (voters, labels): the share of the queries to which a voter says yes.
    progress, how
        As in `tune_sigma`.

    Returns
    -------
    Each trial's values say which ``rule`` it was ("common", "per label", "prevalence") and, for
    the first, its ``threshold``; its details hold the ``thresholds`` of the second, the noise-free
    majority's figures (``noise_free``) and the yes-votes of a ballot (``yes_per_ballot``). Each
    label's best threshold is judged by the same queries that chose it, so it looks too good. The
    tuning's own noise-free figures are those of the best common threshold.
    """
    cube = np.asarray(probabilities)
    queries, _, labels = check_shape(cube.shape)
    check_probabilities(cube)
    known = check_truth(truth, queries, labels)
    if best_by not in BEST_BY:
        raise InputError(f"best_by must be one of {', '.join(BEST_BY)}, got {best_by!r}")
    grid = check_grid("thresholds", _THRESHOLDS if thresholds is None else thresholds)
    check_threshold(max(grid), labels)
    share = None if prevalence is None else check_prevalence(prevalence, cube.shape)
    bench = Bench.of(cube >= grid[0], known, epsilon=epsilon, delta=delta, **how)

    rules: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"rule": "common", "threshold": threshold}, {"thresholds": threshold})
        for threshold in grid
    ]
    best = best_per_label(cube, known, grid, best_by)
    rules.append(({"rule": "per label", "threshold": None}, {"thresholds": best.tolist()}))
    if share is not None:
        rules.append(({"rule": "prevalence", "threshold": None}, {}))
    trials = []
    for values, details in watched(rules, progress):
        votes = top_share(cube, share) if share is not None and not details else None
        votes = cube >= np.asarray(details["thresholds"]) if votes is None else votes
        details["noise_free"] = figures_of(majority(votes), known)
        details["yes_per_ballot"] = float(votes.sum(axis=2).mean())
        trials.append(bench.try_out(mechanism, values, details, votes))
    figures = [trial.details["noise_free"] for trial in trials[: len(grid)]]
    top = max(figures, key=lambda f: -1.0 if np.isnan(f[BEST_BY[best_by]]) else f[BEST_BY[best_by]])
    return replace(bench.tuning("threshold", trials), noise_free=top)


def best_per_label(
    probabilities: npt.NDArray[Any], truth: Truth, grid: Sequence[float], best_by: str = "BAC"
) -> Floats:
    """Return the threshold at which the noise-free majority of each label is best: (labels,).

    The smallest of equals. A label with one class only takes what is best on average.
    """
    labels = truth.shape[1]
    scores = np.full((len(grid), labels), np.nan)
    for row, threshold in enumerate(grid):
        answers = majority(probabilities >= threshold)
        for label in range(labels):
            column = slice(label, label + 1)
            figures = figures_of(answers[:, column], truth[:, column])
            if not np.isnan(figures["BAC"]):  # with one class F1 says nothing either
                scores[row, label] = figures[BEST_BY[best_by]]
    undefined = np.isnan(scores).any(axis=0)
    if undefined.all():
        raise InputError("truth must have a label with both classes to choose thresholds by")
    scores[:, undefined] = scores[:, ~undefined].mean(axis=1, keepdims=True)
    return np.asarray(np.array(grid)[scores.argmax(axis=0)])


def check_prevalence(prevalence: npt.ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Return shares in [0, 1], one per label, or one per voter and label."""
    share = np.asarray(prevalence)
    _, voters, labels = shape
    if share.dtype.kind not in "fiub" or share.shape not in ((labels,), (voters, labels)):
        raise InputError(
            f"prevalence must hold one share per label ({labels}), or per voter and label "
            f"({voters}, {labels}); got shape {share.shape}"
        )
    if not ((share >= 0) & (share <= 1)).all():
        raise InputError("prevalence must lie in [0, 1]")
    return share.astype(np.float64)

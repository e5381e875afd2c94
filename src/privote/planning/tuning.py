"""Settings tried on votes that may be looked at: how many queries fit, and how good labels are.

Counts ask what a release asks when it answers: the budget's own filter, the rule by which
contributions are counted, all Rényi orders. The measure of labels is **wrong**: the mean, over the
cells (query, label) that are answered, of the probability that what is released differs from the
truth; without a truth, from what the voters want without noise.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..ledger import Budget
from ..mechanisms import Mechanism
from ..metrics import label_table
from ..votes.contributions import bound_contributions
from ..votes.cube import Ballots, BallotSource
from .budget import allowance_for
from .chances import cell_probabilities, noise_free

_GATE = ("gate_threshold", "gate_sigma")
#: What else may vary: fields of a mechanism, and the bar above which a probability is a yes.
SETTINGS = ("sigma", "tau", *_GATE, "threshold")
_ROUNDING = 1e-12  # must not push the best itself below the bar


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One combination of settings that was tried.

    Attributes
    ----------
    mechanism, threshold
        Ready to use. The threshold is one value, one per label, or None for votes.
    queries
        How many of the first queries the budget answers, until the first voter runs out.
    wrong, wrong_by_label
        The share of the answered cells that is released otherwise than wanted; (labels,) of each.
        NaN where nothing is answered.
    answered
        The share of all cells that is answered; 1 without a gate.
    noise_free
        The share of cells that would be wrong without noise.
    """

    mechanism: Mechanism
    threshold: float | tuple[float, ...] | None
    queries: int
    wrong: float
    wrong_by_label: tuple[float, ...]
    answered: float
    noise_free: float


def tune(
    votes: Any,
    mechanism: Mechanism,
    truth: npt.ArrayLike | None = None,
    *,
    epsilon: float,
    delta: float,
    settings: Mapping[str, Sequence[float]],
    drop: float = 0.02,
) -> tuple[Trial | None, list[Trial]]:
    """Try settings on votes that are public or paid for; return the best, and all that were tried.

    **Not private**: the figures depend on the votes, and settings chosen from them void the
    guarantee for these very votes. Use them to label others.

    Parameters
    ----------
    votes
        (queries, voters, labels) array, ballots or path; probabilities if thresholds are tried.
    mechanism
        What the settings change.
    truth
        (queries, labels) of 1, 0 and -1 (unknown). Required for thresholds; otherwise labels are
        compared with what the voters want without noise.
    epsilon, delta
        The budget.
    settings
        What to try, in all combinations: values of "sigma", "tau", "gate_threshold" (T),
        "gate_sigma" and "threshold" (γ). Thresholds are also combined label by label: each label
        gets the one with which it is least often wrong, beside the best of the other settings.
    drop
        Best is what answers most labels while at most ``drop`` more of the cells are wrong than in
        the best outcome without noise: the paper's rule. None if nothing such answers a query.

    Examples
    --------
    >>> import numpy as np, privote as pv
    >>> votes = np.random.default_rng(0).random((50, 40, 3)) < [0.9, 0.1, 0.1]
    >>> mechanism, tried = pv.BinaryVoting(sigma=7.0), {"sigma": [5.0, 10.0]}
    >>> best, trials = pv.planning.tune(votes, mechanism, epsilon=8, delta=1e-5, settings=tried)
    >>> len(trials)
    2
    """
    if not 0 <= drop <= 1:
        raise InputError("drop", "must lie in [0, 1]", drop)
    if not settings or not set(settings) <= set(SETTINGS):
        raise InputError("settings", f"must be some of {', '.join(SETTINGS)}", [*settings])
    if "threshold" in settings and truth is None:
        raise InputError("truth", "must be given to compare thresholds")
    budget, grid = Budget(epsilon=epsilon, delta=delta), dict(settings)
    thresholds: Sequence[Any] = grid.pop("threshold", (None,))

    def attempt(able: Mechanism, threshold: Any) -> Trial:
        ballots = Ballots.of(votes, threshold=threshold)
        able.check(ballots)
        shape = ballots.queries, ballots.labels
        wanted = None if truth is None else label_table("truth", truth, shape)
        queries = _queries_that_fit(able, ballots, budget)
        shares = _shares(able, ballots, wanted)
        return Trial(mechanism=able, threshold=threshold, queries=queries, **shares)

    combinations = (dict(zip(grid, values, strict=True)) for values in product(*grid.values()))
    able = [_with(mechanism, values) for values in combinations]
    trials = [attempt(variant, threshold) for variant in able for threshold in thresholds]
    best = _best(trials, drop)
    same = [trial for trial in trials if best is not None and trial.mechanism == best.mechanism]
    if best is not None and len(same) > 1:
        wrong = np.nan_to_num([trial.wrong_by_label for trial in same], nan=1.0)
        by_label = tuple(same[index].threshold for index in wrong.argmin(axis=0))
        trials.append(attempt(best.mechanism, by_label))
    return _best(trials, drop), trials


def _with(mechanism: Any, settings: dict[str, float]) -> Mechanism:
    """Return a mechanism with other settings."""
    gate = {name.removeprefix("gate_"): settings.pop(name) for name in _GATE if name in settings}
    if not settings.keys() <= set(mechanism.settings()) or (gate and mechanism.gate is None):
        raise InputError("settings", f"must be settings of {mechanism}, its gate's among them")
    if gate:
        settings = {**settings, "gate": replace(mechanism.gate, **gate)}
    changed: Mechanism = replace(mechanism, **settings)
    return changed


def _best(trials: Sequence[Trial], drop: float) -> Trial | None:
    """Return what answers most labels while they stay good: a gate holds labels back."""
    bar = min(trial.noise_free for trial in trials) + drop + _ROUNDING
    good = [trial for trial in trials if trial.wrong <= bar and trial.queries]
    return max(good, key=lambda trial: (trial.queries * trial.answered, -trial.wrong), default=None)


def _queries_that_fit(mechanism: Mechanism, ballots: BallotSource, budget: Budget) -> int:
    """Return how many of the first queries a budget answers until the first voter has run out.

    With a baseline of zeros; 0 if the budget buys no contribution, which is a refusal.
    """
    size = ballots.voters, ballots.labels, budget.epsilon, budget.delta
    allowance = allowance_for(mechanism, *size)
    unit, missing_is_no = mechanism.contribution_unit, mechanism.missing_counts_as_no

    def out(queries: int) -> bool:
        left = np.full(ballots.voters, allowance)
        for block in ballots.head(queries).blocks():
            zeros = np.zeros((block.queries, block.labels), np.bool_)
            _, spent, clipped = bound_contributions(
                block, zeros, left, unit=unit, missing_counts_as_no=missing_is_no
            )
            left = left - spent
            if clipped.any():
                return True
        return False

    return bisect_left(range(1, ballots.queries + 1), True, key=out) if allowance else 0


def _shares(
    mechanism: Mechanism, ballots: BallotSource, truth: npt.NDArray[Any] | None
) -> dict[str, Any]:
    """Return the shares of cells that are wrong, as a :class:`Trial` has them."""
    # By label: cells released otherwise than wanted, answered, wrong without noise, and all.
    sums, start = np.zeros((4, ballots.labels)), 0
    for block in ballots.blocks():
        majority = np.asarray(noise_free(mechanism, block), np.bool_)
        wanted = majority if truth is None else truth[start : start + block.queries]
        start += block.queries
        no, yes, _ = np.moveaxis(cell_probabilities(mechanism, mechanism.tally(block)), -1, 0)
        cells = np.where(wanted == 1, no, yes), no + yes, majority != wanted, np.ones_like(no)
        sums += [(cell * (wanted >= 0)).sum(axis=0) for cell in cells]
    wrong, answered, plain, every = sums.sum(axis=1).tolist()
    return {
        "wrong": _share(wrong, answered),
        "wrong_by_label": tuple(map(_share, *sums[:2].tolist())),
        "answered": _share(answered, every),
        "noise_free": _share(plain, every),
    }


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else math.nan

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

from ..accounting.renyi import Floats, check_orders, largest_curve
from ..errors import InputError
from ..ledger import Budget
from ..mechanisms import Mechanism
from ..metrics import label_table
from ..votes.contributions import bound_contributions
from ..votes.cube import Ballots, BallotSource
from .budget import allowance_for, room
from .chances import cell_probabilities, noise_free

_GUARANTEES = ("allowance", "worst-case", "data-dependent")
_GATE = ("gate_threshold", "gate_sigma")
#: What else may vary: fields of a mechanism, and the bar above which a probability is a yes.
SETTINGS = ("sigma", "tau", *_GATE, "threshold")
_CELLS = "qls,qlo->lso"  # queries, labels, sides, outcomes
_FIRST = 64  # queries priced first, then twice as many
_ROUNDING = 1e-12  # must not push the best itself below the bar


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One combination of settings that was tried.

    Attributes
    ----------
    mechanism, threshold
        Ready to use. The threshold is one value, one per label, or None for votes.
    queries
        How many of the first queries the budget answers under the guarantee.
    wrong, missed, false_alarm
        Shares of the answered cells that are released otherwise than wanted: of all, of those that
        should be 1, of those that should be 0. NaN where there are none.
    wrong_by_label
        (labels,)
    answered
        The share of all cells that is answered; 1 without a gate.
    noise_free
        The share of cells that would be wrong without noise.
    """

    mechanism: Mechanism
    threshold: float | tuple[float, ...] | None
    queries: int
    wrong: float
    missed: float
    false_alarm: float
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
    guarantee: str = "allowance",
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
    guarantee
        Under which queries are counted: "allowance" (until the first voter runs out), "worst-case"
        or "data-dependent".
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
    if guarantee not in _GUARANTEES:
        raise InputError("guarantee", f"must be one of {', '.join(_GUARANTEES)}", guarantee)
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
        known = None if truth is None else label_table("truth", truth, shape)
        shares = _shares(able, ballots, known)
        queries = queries_that_fit(able, ballots, budget, guarantee)
        return Trial(mechanism=able, threshold=threshold, queries=queries, **shares)

    combinations = (dict(zip(grid, values, strict=True)) for values in product(*grid.values()))
    able = [_with(mechanism, each) for each in combinations]
    trials = [attempt(each, threshold) for each in able for threshold in thresholds]
    best = _best(trials, drop)
    same = [trial for trial in trials if best is not None and trial.mechanism == best.mechanism]
    if best is not None and len(same) > 1:
        wrong = np.nan_to_num([trial.wrong_by_label for trial in same], nan=1.0)
        by_label = tuple(same[place].threshold for place in wrong.argmin(axis=0))
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


# -- how many queries fit --------------------------------------------------------------------------


def queries_that_fit(
    mechanism: Mechanism, ballots: BallotSource, budget: Budget, guarantee: str
) -> int:
    """Return how many of the first queries a budget answers.

    Under "allowance" until the first voter has run out, with a baseline of zeros; 0 if the budget
    buys no contribution, which is a refusal. "data-dependent": by the exact cost of these votes.
    """
    size = ballots.voters, ballots.labels
    if guarantee == "worst-case":
        return room(mechanism.worst_case_rdp(*size), budget, ballots.queries)
    if guarantee == "data-dependent":
        return _by_cost(mechanism, ballots, budget)
    allowance = allowance_for(mechanism, *size, budget.epsilon, budget.delta)

    def out(queries: int) -> bool:
        left = np.full(ballots.voters, allowance)
        for block in ballots.head(queries).blocks():
            zeros = np.zeros((block.queries, block.labels), np.bool_)
            unit, silent = mechanism.contribution_unit, mechanism.missing_counts_as_no
            _, spent, refused = bound_contributions(
                block, zeros, left, unit=unit, missing_counts_as_no=silent
            )
            left = left - spent
            if refused.any():
                return True
        return False

    return bisect_left(range(1, ballots.queries + 1), True, key=out) if allowance else 0


def _by_cost(mechanism: Mechanism, ballots: BallotSource, budget: Budget) -> int:
    orders = check_orders(None)
    most, queries = largest_curve(budget.epsilon, orders, budget.delta), _FIRST
    while True:  # little is priced beyond what fits
        head = ballots.head(min(queries, ballots.queries))
        fits = (np.cumsum(mechanism.rdp(head, orders), axis=0) <= most).any(axis=1)
        if head.queries == ballots.queries or not fits.all():
            return int(fits.sum())
        queries *= 2


# -- how good labels are ---------------------------------------------------------------------------


def _shares(
    mechanism: Mechanism, ballots: BallotSource, truth: npt.NDArray[Any] | None
) -> dict[str, Any]:
    """Return the shares of cells that are wrong, as a :class:`Trial` has them."""
    # By label: what should be (0, 1), and what is released (0, 1, ABSTAIN).
    sums, plain = np.zeros((2, ballots.labels, 2, 3))
    start = 0
    for block in ballots.blocks():
        majority = np.asarray(noise_free(mechanism, block), np.bool_)
        wanted = majority if truth is None else truth[start : start + block.queries]
        sides = np.stack([wanted == 0, wanted == 1], axis=-1).astype(np.float64)
        sums += np.einsum(_CELLS, sides, cell_probabilities(mechanism, mechanism.tally(block)))
        plain += np.einsum(_CELLS, sides, np.stack([~majority, majority, 0 * majority], axis=-1))
        start += block.queries
    of = sums.sum(axis=0)
    return {
        "wrong": _wrong(of),
        "missed": _share(of[1, 0], of[1, :2].sum()),
        "false_alarm": _share(of[0, 1], of[0, :2].sum()),
        "wrong_by_label": tuple(map(_wrong, sums)),
        "answered": _share(of[:, :2].sum(), of.sum()),
        "noise_free": _wrong(plain.sum(axis=0)),
    }


def _wrong(sums: Floats) -> float:
    return _share(sums[0, 1] + sums[1, 0], sums[:, :2].sum())


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else math.nan

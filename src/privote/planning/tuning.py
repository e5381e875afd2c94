"""Mechanisms tried on votes that may be looked at: what each answers, how good, which to take.

Each count asks what the guardian asks when it answers: the budget's own filter, the rule by which
surprises are counted, all Rényi orders.

The measure of labels is **wrong**: the mean, over the cells (query, label) that are answered, of
the probability that what is released differs from what is wanted. What is wanted is the truth where
it is given, and else what the voters want without noise. Its two parts say which way: *missed* is
over the cells that should be 1, *false alarm* over those that should be 0.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..accounting.renyi import Floats, check_orders, largest_curve
from ..errors import BallotError, InputError, UnavailableError, positive
from ..ledger import Budget
from ..mechanisms import MECHANISMS, Mechanism
from ..metrics import label_table
from ..votes.cube import Ballots, BallotSource
from ..votes.surprises import effective
from .budget import allowance_for, room

Truth = npt.NDArray[np.int8]

#: Under which guarantees queries are counted.
COUNTS = ("allowance", "worst-case", "data-dependent")
#: What stands next to every number that depends on votes.
NOT_PRIVATE = (
    "These figures depend on the votes and are for the owner's eyes, unless the votes are public "
    "or paid for. Settings chosen from them void the guarantee."
)
#: As shares of the voters: 2 to 60 of 50.
_SIGMAS = (0.04, 0.06, 0.1, 0.14, 0.18, 0.24, 0.3, 0.4, 0.6, 0.8, 1.2)
_SIGMA = 0.14
_TAUS = 6  # values of tau by norm
_FIRST = 64  # queries priced first, then twice as many
_ROUNDING = 1e-12  # must not push the best itself below the bar


@dataclass(frozen=True, kw_only=True)
class Quality:
    """What to expect of released labels.

    Attributes
    ----------
    wrong, missed, false_alarm
        Shares of the answered cells that are released otherwise than wanted: of all, of those that
        should be 1, of those that should be 0. NaN where there are none.
    answered
        The share of all cells that is answered; 1 without a gate.
    """

    wrong: float
    missed: float
    false_alarm: float
    answered: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One mechanism that was tried.

    Attributes
    ----------
    mechanism
        Ready to use.
    fits
        Queries that the budget answers, by `COUNTS`.
    quality
        Of labels for all queries that were looked at, so that trials can be compared.
    noise_free
        Of what the voters want without noise, against what is wanted.
    """

    mechanism: Mechanism
    fits: Mapping[str, int]
    quality: Quality
    noise_free: Quality


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """All that was tried on the same votes, under the same budget.

    Attributes
    ----------
    trials
        In the order in which they were tried.
    against
        What labels were compared with: "truth", or the "noise-free majority".
    queries, voters, labels
        The votes that were looked at.
    epsilon, delta
        The budget.
    guarantee, drop
        The rule of choice: see `chosen`.
    left_out
        What could not be tried, and why.
    """

    trials: Sequence[Trial]
    against: str
    queries: int
    voters: int
    labels: int
    epsilon: float
    delta: float
    guarantee: str = "allowance"
    drop: float = 0.02
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def chosen(self) -> Trial | None:
        """What answers most labels under the guarantee while they stay good.

        Good is: at most ``drop`` more of the cells wrong than the best noise-free outcome has. The
        paper's rule: as much noise, or as small a tau, as the labels stand. None if nothing good is
        answered.
        """
        least = min(trial.noise_free.wrong for trial in self.trials)
        good = [
            trial
            for trial in self.trials
            if trial.quality.wrong <= least + self.drop + _ROUNDING and trial.fits[self.guarantee]
        ]
        # A gate holds labels back: labels count, not queries.
        return max(
            good,
            key=lambda trial: (
                trial.fits[self.guarantee] * trial.quality.answered,
                -trial.quality.wrong,
            ),
            default=None,
        )

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values, the note first."""
        names = ("guarantee", "drop", "epsilon", "delta", "queries", "voters", "labels")
        return {
            "note": NOT_PRIVATE,
            "private": False,
            **{name: getattr(self, name) for name in (*names, "against", "left_out")},
            "chosen": None if self.chosen is None else self.chosen.mechanism.parameters(),
            "trials": [
                {
                    "parameters": trial.mechanism.parameters(),
                    "fits": dict(trial.fits),
                    "quality": asdict(trial.quality),
                    "noise_free": asdict(trial.noise_free),
                }
                for trial in self.trials
            ],
        }


def tune(
    votes: Any,
    mechanisms: Iterable[Mechanism],
    truth: npt.ArrayLike | None = None,
    *,
    epsilon: float,
    delta: float,
    guarantee: str = "allowance",
    drop: float = 0.02,
    progress: Callable[[int, int], None] | None = None,
) -> Tuning:
    """Try mechanisms on votes that are public or paid for, and say which to take.

    Parameters
    ----------
    votes
        (queries, voters, labels) array, ballots or path.
    mechanisms
        What to try; :func:`candidates` has grids. What cannot count these ballots is left out, and
        ``left_out`` says why.
    truth
        (queries, labels) of 1, 0 and -1 (unknown); without it labels are compared with what the
        voters want without noise.
    epsilon, delta
        The budget, as in `queries_for`.
    guarantee, drop
        What to choose by: see `Tuning.chosen`.
    progress
        Called as ``progress(done, total)``.
    """
    if guarantee not in COUNTS:
        raise InputError("guarantee", f"must be one of {', '.join(COUNTS)}", guarantee)
    if not 0 <= drop <= 1:
        raise InputError("drop", "must lie in [0, 1]", drop)
    budget = Budget(epsilon=epsilon, delta=delta)
    ballots = Ballots.of(votes)
    known = None
    if truth is not None:
        known = label_table("truth", truth, (ballots.queries, ballots.labels))
    able, left_out = [], {}
    for mechanism in mechanisms:
        try:
            mechanism.check(ballots)
        except (BallotError, UnavailableError) as error:
            left_out[str(mechanism)] = str(error)
        else:
            able.append(mechanism)
    if not able:
        raise InputError("mechanisms", f"must include one that fits these votes: {left_out}")
    trials = []
    for done, mechanism in enumerate(able):
        if progress is not None:
            progress(done, len(able))
        plain = noise_free(mechanism, ballots)
        wanted = plain if known is None else known
        trials.append(
            Trial(
                mechanism=mechanism,
                fits=queries_that_fit(mechanism, ballots, epsilon, delta),
                quality=quality(mechanism, ballots, wanted),
                noise_free=quality_of(plain, wanted),
            )
        )
    return Tuning(
        trials=trials,
        against="noise-free majority" if known is None else "truth",
        queries=ballots.queries,
        voters=ballots.voters,
        labels=ballots.labels,
        epsilon=budget.epsilon,
        delta=budget.delta,
        guarantee=guarantee,
        drop=drop,
        left_out=left_out,
    )


def candidates(
    over: str,
    mechanism: Mechanism,
    voters: int,
    labels: int,
    values: Sequence[float] | None = None,
) -> list[Mechanism]:
    """Return the same mechanism with each of several settings.

    Parameters
    ----------
    over
        ``"sigma"``: the noise. ``"tau"``: the norm to which ballots are clipped.
    values
        What to try. By default sigmas that grow with the number of voters, taus from ballots with a
        single full vote up to no clipping.
    """
    if over == "sigma":
        grid = [float(f"{voters * share:.4g}") for share in _SIGMAS] if values is None else values
        return [mechanism.with_noise(positive("sigmas", sigma)) for sigma in grid]
    if "tau" not in mechanism.parameters():
        raise InputError("mechanism", f"must have a tau to tune, got {mechanism}")
    if values is None:
        ones = np.unique(np.geomspace(1, labels, _TAUS).round())
        norm = mechanism.parameters().get("norm", 2)
        # Rounded up: a ballot of so many ones is not clipped.
        values = [math.ceil(100 * size ** (1 / norm) - 1e-9) / 100 for size in ones]
    kind: Any = mechanism
    return [replace(kind, tau=tau) for tau in values]


def variants(
    voters: int, sigma: float | None = None, also: Iterable[type[Mechanism]] = ()
) -> list[Mechanism]:
    """Return every mechanism that releases labels, all with this noise.

    By default a seventh of the voters. ``also`` holds classes that extend
    :class:`privote.Mechanism`.
    """
    noise = float(f"{_SIGMA * voters:.4g}") if sigma is None else positive("sigma", sigma)
    kinds = dict.fromkeys([*MECHANISMS.values(), *also])
    return [each for kind in kinds for each in kind.variants(noise)]


# -- how many queries fit --------------------------------------------------------------------------


def queries_that_fit(
    mechanism: Mechanism, votes: Any, epsilon: float, delta: float
) -> dict[str, int]:
    """Return how many of the first queries a budget answers.

    ``"allowance"``: until the first voter has run out, with a baseline of zeros; 0 if the budget
    buys not one surprise, which is a refusal. ``"worst-case"``: whatever the votes.
    ``"data-dependent"``: by the exact cost of these votes, query by query.
    """
    budget = Budget(epsilon=epsilon, delta=delta)
    ballots = Ballots.of(votes)
    mechanism.check(ballots)
    allowance = allowance_for(mechanism, ballots.voters, ballots.labels, epsilon, delta)
    each = mechanism.worst_case_rdp(ballots.voters, ballots.labels)
    return {
        "allowance": _lasting(mechanism, ballots, allowance) if allowance else 0,
        "worst-case": room(each, budget, ballots.queries),
        "data-dependent": _by_cost(mechanism, ballots, budget),
    }


def _lasting(mechanism: Mechanism, ballots: BallotSource, allowance: int) -> int:
    """Return how many of the first queries pass before a voter runs out."""

    def out(queries: int) -> bool:
        left = np.full(ballots.voters, allowance)
        for block in ballots.head(queries).blocks():
            _, spent, refused = effective(
                block,
                np.zeros((block.queries, ballots.labels), np.bool_),
                left,
                unit=mechanism.surprise_unit,
                silence_is_zeros=mechanism.silence_is_zeros,
            )
            left = left - spent
            if refused.any():
                return True
        return False

    return bisect_left(range(1, ballots.queries + 1), True, key=out)


def _by_cost(mechanism: Mechanism, ballots: BallotSource, budget: Budget) -> int:
    orders = check_orders(None)
    most, queries = largest_curve(budget.epsilon, orders, budget.delta), _FIRST
    while True:  # little is priced beyond what fits
        some = ballots.head(min(queries, ballots.queries))
        fits = (np.cumsum(mechanism.rdp(some, orders), axis=0) <= most).any(axis=1)
        if some.queries == ballots.queries or not fits.all():
            return int(fits.sum())
        queries *= 2


# -- how good labels are ---------------------------------------------------------------------------


def quality(mechanism: Mechanism, ballots: BallotSource, wanted: Truth) -> Quality:
    """Return how good labels for these votes are to be expected, over all of their queries.

    ``wanted`` (queries, labels) has 1, 0 and -1 (unknown, left out).
    """
    sums, start = np.zeros((2, 3)), 0
    for block in ballots.blocks():
        chances = mechanism.cell_probabilities(mechanism.tally(block))
        rows = wanted[start : start + block.queries]
        start += block.queries
        sums += [chances[rows == side].sum(axis=0) for side in (0, 1)]
    return _quality(sums)


def quality_of(answers: npt.NDArray[Any], wanted: Truth) -> Quality:
    """Return how good given labels are, 1, 0 and -1: (queries, labels)."""
    outcomes = np.stack([answers == outcome for outcome in (0, 1, -1)], axis=-1).astype(np.float64)
    return _quality(np.array([outcomes[wanted == side].sum(axis=0) for side in (0, 1)]))


def _quality(sums: Floats) -> Quality:
    """Return shares of sums (what should be, what is released: 0, 1, ABSTAIN)."""
    answered = sums[:, :2].sum(axis=1)
    false_alarms, misses = float(sums[0, 1]), float(sums[1, 0])
    return Quality(
        wrong=_share(false_alarms + misses, float(answered.sum())),
        missed=_share(misses, float(answered[1])),
        false_alarm=_share(false_alarms, float(answered[0])),
        answered=_share(float(answered.sum()), float(sums.sum())),
    )


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else math.nan


def noise_free(mechanism: Mechanism, ballots: BallotSource) -> Truth:
    """Return what the voters want without noise, as this mechanism asks them: (queries, labels)."""
    parts = [mechanism.noise_free(block) for block in ballots.blocks()]
    return np.concatenate(parts).astype(np.int8)

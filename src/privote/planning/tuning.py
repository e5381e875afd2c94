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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..accounting.filters import pinned_order
from ..accounting.renyi import Floats, check_orders
from ..accounting.renyi import epsilon as to_epsilon
from ..errors import BallotError, InputError, UnavailableError, positive
from ..guardian.allowance import check_baseline
from ..ledger import Budget
from ..mechanisms import MECHANISMS, Mechanism
from ..votes.cube import Ballots, BallotSource, Block, Counts, DenseBlock, SparseBlock
from ..votes.surprises import effective
from .budget import allowance_for, room

Bools = npt.NDArray[np.bool_]
Truth = npt.NDArray[np.int8]

#: What is counted: queries under each guarantee, and at the published bound of PATE 2018 instead of
#: the exact cost.
COUNTS = ("allowance", "worst-case", "data-dependent", "published")
#: What stands next to every number that depends on votes.
NOT_PRIVATE = (
    "These figures depend on the votes: for the owner's eyes unless the votes are public or paid "
    "for; choosing by them voids the guarantee."
)
#: As shares of the voters: 2 to 60 of 50.
_SIGMAS = (0.04, 0.06, 0.1, 0.14, 0.18, 0.24, 0.3, 0.4, 0.6, 0.8, 1.2)
_SIGMA = 0.14
_TAUS = 6  # values of tau by norm
_PLENTY = np.iinfo(np.int64).max  # an allowance that never ends
_STEP = 64  # queries priced at a time: little is priced beyond what fits
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
        Queries that the budget answers, by `COUNTS`; None where a count is not to be had.
    quality
        Of labels for all queries that were looked at, so that trials can be compared.
    noise_free
        Of what the voters want without noise, against what is wanted.
    """

    mechanism: Mechanism
    fits: Mapping[str, int | None]
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
                (trial.fits[self.guarantee] or 0) * trial.quality.answered,
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
    baseline: npt.ArrayLike | None = None,
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
    baseline
        (queries, labels) public guess, for an allowance; zeros by default.
    progress
        Called as ``progress(done, total)``.
    """
    if guarantee not in COUNTS[:-1]:
        raise InputError("guarantee", f"must be one of {', '.join(COUNTS[:-1])}", guarantee)
    if not 0 <= drop <= 1:
        raise InputError("drop", "must lie in [0, 1]", drop)
    budget = Budget(epsilon=epsilon, delta=delta)
    ballots = Ballots.of(votes)
    known = None if truth is None else check_truth(truth, ballots.queries, ballots.labels)
    able, left_out = [], {}
    for mechanism in mechanisms:
        try:
            mechanism.check(ballots)
        except (BallotError, UnavailableError) as error:
            left_out[str(mechanism)] = str(error)
        else:
            able.append(mechanism)
    if not able:
        raise InputError("mechanisms", f"must hold one that can count these votes: {left_out}")
    trials = []
    for done, mechanism in enumerate(able):
        if progress is not None:
            progress(done, len(able))
        plain = noise_free(mechanism, ballots)
        wanted = plain if known is None else known
        trials.append(
            Trial(
                mechanism=mechanism,
                fits=queries_that_fit(mechanism, ballots, epsilon, delta, baseline=baseline),
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
        ``"sigma"``: the noise; an optimal link gets the cost that Gaussian noise of this sigma has
        at the bar. ``"tau"``: the norm to which ballots are clipped.
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
    voters: int,
    epsilon: float,
    delta: float,
    sigma: float | None = None,
    also: Iterable[type[Mechanism]] = (),
) -> list[Mechanism]:
    """Return every mechanism that releases labels, all with this noise.

    By default a seventh of the voters. ``also`` holds classes that extend
    :class:`privote.Mechanism`.
    """
    order = pinned_order(epsilon, delta)
    noise = float(f"{_SIGMA * voters:.4g}") if sigma is None else positive("sigma", sigma)
    kinds = dict.fromkeys([*MECHANISMS.values(), *also])
    return [each for kind in kinds for each in kind.variants(noise, order)]


# -- how many queries fit --------------------------------------------------------------------------


def queries_that_fit(
    mechanism: Mechanism,
    votes: Any,
    epsilon: float,
    delta: float,
    *,
    baseline: npt.ArrayLike | None = None,
) -> dict[str, int | None]:
    """Return how many of the first queries a budget answers; None where a count is not to be had.

    ``"allowance"``: until the first voter has run out; 0 if the budget buys not one surprise, which
    is a refusal. ``"worst-case"``: whatever the votes. ``"data-dependent"``: by the exact cost of
    these votes, query by query; ``"published"``: the same by the bound of PATE 2018.
    """
    budget = Budget(epsilon=epsilon, delta=delta)
    ballots = Ballots.of(votes)
    mechanism.check(ballots)
    guess = np.zeros((ballots.queries, ballots.labels), np.bool_)
    if baseline is not None:
        guess = check_baseline(baseline, ballots, mechanism)
    allowance = allowance_for(mechanism, ballots.voters, ballots.labels, epsilon, delta)
    lasting = 0  # not a single surprise: refused, however quiet the voters are
    if allowance >= 1:
        busiest = busiest_voter(mechanism, ballots, guess)
        lasting = int(np.searchsorted(busiest, allowance, side="right"))
    each = mechanism.worst_case_rdp(ballots.voters, ballots.labels)
    return {
        "allowance": lasting,
        "worst-case": room(mechanism, each, budget, ballots.queries),
        "data-dependent": _by_cost(mechanism, ballots, budget, "exact"),
        "published": _published(mechanism, ballots, budget),
    }


def busiest_voter(mechanism: Mechanism, ballots: BallotSource, guess: Bools) -> Counts:
    """Return the surprises of the busiest voter after each query: (queries,).

    As if no allowance ever ended. ``guess`` is the baseline (queries, labels).
    """
    cast, most, start = np.zeros(ballots.voters, np.int64), [], 0
    for block in ballots.blocks():
        rows = guess[start : start + block.queries]
        start += block.queries
        counted, _, _ = effective(
            block,
            rows,
            np.full(ballots.voters, _PLENTY),
            unit=mechanism.surprise_unit,
            silence_is_zeros=mechanism.silence_is_zeros,
        )
        most.append(_running(mechanism, counted, rows, cast))
    return np.asarray(np.maximum.accumulate(np.concatenate(most)))


def _running(mechanism: Mechanism, block: Block, guess: Bools, cast: Counts) -> Counts:
    """Add a block's surprises to ``cast``; return the most any voter has cast by then: (queries,).

    Of a sparse block only those who speak are looked at, so a later query may show less.
    """
    single = mechanism.surprise_unit == "vote"
    if isinstance(block, SparseBlock):
        size = block.votes.sum(axis=1)
        spoke = size > 0 if mechanism.silence_is_zeros else np.ones_like(size)
        counts = size if single else spoke.astype(np.int64)
        order = np.argsort(block.query, kind="stable")
        ends = np.searchsorted(block.query[order], np.arange(block.queries + 1))
        most = np.zeros(block.queries, np.int64)
        for row in range(block.queries):
            here = order[ends[row] : ends[row + 1]]
            cast[block.voter[here]] += counts[here]  # at most one ballot a voter and query
            most[row] = cast[block.voter[here]].max(initial=0)
        return most
    assert isinstance(block, DenseBlock)
    departs = block.votes != guess[:, None, :]
    running = cast + np.cumsum(departs.sum(axis=2) if single else departs.any(axis=2), axis=0)
    cast[:] = running[-1]
    return np.asarray(running.max(axis=1))


def _by_cost(mechanism: Mechanism, ballots: BallotSource, budget: Budget, bound: str) -> int:
    orders = check_orders(None)
    total, answered = np.zeros(len(orders)), 0
    for block in ballots.blocks():
        for part in _parts(block):
            sums = total + np.cumsum(mechanism.cost(mechanism.tally(part), orders, bound), axis=0)
            fits = np.asarray(to_epsilon(sums, orders, budget.delta)) <= budget.epsilon
            if not fits.all():
                return answered + int(fits.argmin())
            total, answered = sums[-1], answered + len(sums)
    return answered


def _published(mechanism: Mechanism, ballots: BallotSource, budget: Budget) -> int | None:
    if "pate2018" not in mechanism.bounds:
        return None
    try:
        return _by_cost(mechanism, ballots, budget, "pate2018")
    except UnavailableError:  # it is proved for Gaussian noise
        return None


def _parts(block: Block) -> Iterator[Block]:
    """Yield a dense block in small runs of queries; a sparse one as it is."""
    if not isinstance(block, DenseBlock):
        yield block
        return
    for start in range(0, block.queries, _STEP):
        rows = block.votes[start : start + _STEP]
        yield DenseBlock(rows, missing=block.missing, start=block.start + start)


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


def check_truth(truth: npt.ArrayLike, queries: int, labels: int) -> Truth:
    """Return true labels as (queries, labels) int8 of 1, 0 and -1 (unknown)."""
    array = np.asarray(truth)
    if array.shape != (queries, labels):
        raise InputError(
            "truth",
            f"must have the shape (queries, labels), ({queries}, {labels}) as the votes, got "
            f"{array.shape}",
        )
    if array.dtype.kind not in "biuf" or not np.isin(array, (-1, 0, 1)).all():
        raise InputError("truth", "must hold 1, 0 and -1 (unknown) only")
    return array.astype(np.int8)

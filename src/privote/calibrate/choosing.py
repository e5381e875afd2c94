"""Choose a mechanism on votes that may be looked at: `best`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy.typing as npt

from ..accounting.renyi import check_delta, rounded_up
from ..ballots import Ballots, BallotSource, Threshold
from ..errors import BudgetError, InputError, UnavailableError, positive
from ..guardian.registry import check_baseline
from ..mechanisms import Mechanism
from .agreement import check_measure, scorer
from .answers import answers
from .families import Family, Space, gates, several
from .result import Calibration, Candidate, with_front
from .sample import Sample, Wanted
from .search import Progress, Search

_WORST_CASES = ("allowance", "worst-case")
_ROUNDS = 8  # halvings of the way between two sigmas of the grid: right to 0.1 percent
_COARSE_ROUNDS = 5  # where each sigma takes seconds: right to 1.5 percent


def best(
    votes: Any,
    *,
    epsilon: float,
    delta: float,
    mechanism: str = "binary",
    guarantee: str = "allowance",
    floor: float = 0.95,
    measure: str = "agreement",
    truth: npt.ArrayLike | None = None,
    baseline: npt.ArrayLike | None = None,
    threshold: Threshold = None,
    sigmas: float | Sequence[float] | None = None,
    link: bool | None = None,
    quotas: float | Sequence[float] | None = None,
    taus: float | Sequence[float] | None = None,
    norms: int | Sequence[int] | None = None,
    max_positives: int | None = None,
    gate: bool = False,
    refine: bool = True,
    beyond: bool = False,
    progress: Progress | None = None,
) -> Calibration:
    """Return the noise (and link, tau, gate) that answers most queries at a floor of utility.

    The votes are looked at, so they must be *public, or paid for*: choosing on the private votes
    that are labelled next voids the promise made for them.

    Utility is the exact expectation, not a draw: of the cells (query, label) that are answered, the
    share that is released as the noise-free election would, or as ``truth`` says. It is taken over
    all queries of ``votes``; how many are answered is counted on them in their order.

    Parameters
    ----------
    votes
        (queries, voters, labels): as many voters as there will be, and queries like theirs.
    epsilon, delta
        The budget, for replacing one voter's ballots on all queries.
    mechanism
        ``"binary"``, ``"tau"``, ``"powerset"`` or ``"plurality"``.
    guarantee
        ``"allowance"``: queries until the first voter runs out. ``"worst-case"``: queries that fit
        whatever the votes. ``"data-dependent"``: queries that fit at these votes' exact prices.
        ``"ptr"`` (binary): queries with which these votes pass the test 99 times in 100.
    floor
        The utility below which a candidate is out.
    measure
        ``"agreement"`` over all cells; ``"agreement_on_yes"`` over cells that should be 1;
        ``"balanced"``, the mean of both kinds of cells, for labels that are rare.
    truth
        (queries, labels) true labels, to measure against instead of the noise-free outcome.
    baseline
        (queries, labels) public guess, for an allowance.
    threshold
        If votes are probabilities: a yes is one at or above it.
    sigmas
        The sigmas to try; by default a logarithmic grid.
    link
        Binary: try optimal links as well as Gaussian noise. By default if ``sigmas`` is not given
        and worst cases are priced (``"allowance"``, ``"worst-case"``): at the prices of consensus
        links gain nothing.
    quotas
        Binary: bars to try, as shares of the voters. Several of them need ``truth``.
    taus, norms
        Tau: bounds and norms to try; by default up to the longest ballot, and both norms.
    max_positives
        Powerset: as in :class:`privote.PowersetVoting`.
    gate
        Also try gates, on the best mechanism without one. Utility is then of what is answered, and
        what counts is queries times the share answered.
    refine
        Search between the sigmas of the grid, too.
    beyond
        Under an allowance: also say how good labels are if all queries are answered.
    progress
        Called with how much is done, and of how much.
    """
    space = Space(
        mechanism=mechanism,
        sigmas=several("sigmas", sigmas),
        link=sigmas is None and guarantee in _WORST_CASES if link is None else link,
        quotas=several("quotas", quotas),
        taus=several("taus", taus),
        norms=_check_norms(norms),
        max_positives=max_positives,
    )
    ballots = Ballots.of(votes, threshold=threshold)
    budget = (positive("epsilon", epsilon), check_delta(delta))
    _check_wishes(space, floor, gate, truth)
    tried = space.families(ballots, *budget)
    sample = _sample(ballots, tried[0].counting, guarantee, baseline)
    counter = answers(guarantee, sample, tried[0].counting, *budget)
    want = Wanted(sample, truth)
    check_measure(measure, want(tried[0].counting))
    coarse = counter.slow or mechanism != "binary"
    search = Search(
        counter,
        want,
        floor=floor,
        measure=measure,
        grid=space.grid(ballots.voters, *budget, coarse=coarse),
        rounds=(_COARSE_ROUNDS if coarse else _ROUNDS) if refine else 0,
        progress=progress,
    )
    chosen = _chosen(search, tried, ballots.voters if gate else None)
    table = with_front(search.candidates)
    if not search.reaches(chosen):
        raise _refusal(table, floor, measure, budget)
    if beyond and guarantee == "allowance":
        table = tuple(_beyond(c, sample, want, measure) if c.on_front else c for c in table)
    return Calibration(
        chosen=next(c for c in table if c.mechanism == chosen.mechanism),
        table=table,
        guarantee=guarantee,
        epsilon=budget[0],
        delta=budget[1],
        floor=float(floor),
        measure=measure,
        against=want.name,
        available=ballots.queries,
        voters=ballots.voters,
        labels=ballots.labels,
    )


def _chosen(search: Search, tried: Sequence[Family], gate_voters: int | None) -> Candidate:
    """Return the best candidate; if none reaches the floor, price those that come closest."""
    search.expect(len(tried))
    if gate_voters is not None:
        search.expect(len(gates(tried[0], gate_voters)))
    leader = search.run(tried)
    if gate_voters is not None:
        gated = gates(leader.family, gate_voters)
        leader, tried = search.run(gated), [*tried, *gated]
    chosen = search.priced(leader, thorough=True)
    if not search.reaches(chosen):
        search.come_close(tried)
    search.finish()
    return chosen


def _check_norms(norms: int | Sequence[int] | None) -> tuple[int, ...] | None:
    given = several("norms", norms)
    if given is not None and not set(given) <= {1.0, 2.0}:
        raise InputError(f"norms must be 1, 2 or both, got {norms!r}")
    return None if given is None else tuple(int(norm) for norm in given)


def _check_wishes(space: Space, floor: float, gate: bool, truth: Any) -> None:
    if not positive("floor", floor) <= 1:
        raise InputError(f"floor must lie in (0, 1], got {floor!r}")
    if space.quotas is None:
        return
    if gate:
        raise UnavailableError("a gate goes with the bar at one half: give no quotas with gate")
    if truth is None and len(space.quotas) > 1:
        raise InputError(
            "several quotas need truth: the noise-free outcome is another with each of them"
        )


def _sample(ballots: BallotSource, counting: Mechanism, guarantee: str, baseline: Any) -> Sample:
    """Return the votes as this guarantee counts them; refuse ballots that cannot be counted."""
    counting.check(ballots)
    if guarantee == "allowance":
        return Sample(ballots=ballots, guess=check_baseline(baseline, ballots, counting))
    if baseline is not None:
        raise InputError(f"baseline goes with guarantee 'allowance', not {guarantee!r}")
    return Sample(ballots=ballots, guess=None)


def _beyond(candidate: Candidate, sample: Sample, want: Wanted, measure: str) -> Candidate:
    """Add the utility of answering every query, whoever has run out."""
    mechanism = candidate.mechanism
    agreement = scorer(sample, mechanism, want(mechanism), allowance=candidate.allowance)(mechanism)
    return replace(candidate, beyond=agreement.measured(measure)[0])


def _refusal(
    table: Sequence[Candidate], floor: float, measure: str, budget: tuple[float, float]
) -> BudgetError:
    spent = f"epsilon={rounded_up(budget[0])} at delta={rounded_up(budget[1])}"
    if not table:
        return BudgetError(f"{spent} answers not one query with any of the noises tried")
    closest = max(table, key=attrgetter("utility"))
    return BudgetError(
        f"no candidate that {spent} affords reaches floor={floor:g}: the best {measure} is "
        f"{closest.utility:.4f}, with {closest.mechanism} and {closest.queries} queries; lower the "
        "floor, or take a larger budget or more voters"
    )

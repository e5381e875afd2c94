"""Settings that nobody named: chosen before a vote is counted, accounted for afterwards.

Nothing here takes votes. What goes in is what the caller states, sizes, what a ledger publishes,
and labels that were released.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..ballots import BallotSource, check_head
from ..errors import BudgetError, InputError
from ..guardian import allowance_of, seats
from ..ledger import Budget, Ledger
from ..ledger.totals import Scope
from ..mechanisms import MECHANISMS, Mechanism, mechanism_of
from ..release import GUARANTEES, Release
from .advice import Advice, advise
from .budget import allowance_for, queries_for
from .crowd import YES, Crowd
from .forecast import WORRY, with_forecast
from .pace import Pace

AUTO, ALL = "auto", "all"
STOPPED = "It stopped after"  # begins the sentence that says so

_QUALITY = 0.1
# A budget for so few queries, and so few of those asked, or for such labels, is hardly worth it.
_HANDFUL, _SMALL, _NOISE = 10, 0.1, 0.25
_LITTLE = 0.01  # of a budget: what is left is nothing


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a caller of `label` asks for; see there."""

    mechanism: Mechanism | str
    guarantee: str
    budget: Budget
    scope: Scope
    queries: int | str | None
    simulated: bool
    for_allowance: bool  # something is given that only an allowance makes use of
    yes: float | None
    agreement: float | None
    most_ones: int | None
    quality: float | None

    def __post_init__(self) -> None:
        named = isinstance(self.mechanism, str) and self.mechanism == AUTO
        if not named and not isinstance(self.mechanism, Mechanism):
            rule = "must be auto or a privote mechanism, such as BinaryVoting(sigma=7.0)"
            raise InputError("mechanism", rule, self.mechanism)
        if self.guarantee not in (AUTO, *GUARANTEES):
            known = ", ".join((AUTO, *GUARANTEES))
            raise InputError("guarantee", f"must be one of {known}", self.guarantee)
        if isinstance(self.queries, str) and self.queries != ALL:
            raise InputError("queries", "must be a number, all, or nothing", self.queries)
        if named:
            if self.guarantee in ("ptr", "data-dependent"):
                rule = f"must be given with `guarantee={self.guarantee}`: its noise is not advised"
                raise InputError("mechanism", rule, self.mechanism)
            return
        for name in ("agreement", "most_ones", "quality"):
            if getattr(self, name) is not None:
                raise InputError(name, "goes with `mechanism=auto`: it is for the choice of one")

    @property
    def bar(self) -> float:
        """How often a label that every voter wants may be missed."""
        return _QUALITY if self.quality is None else self.quality

    def wanted(self, ballots: BallotSource) -> int:
        """Return how many queries are to be answered."""
        if self.queries is None or isinstance(self.queries, str):
            return ballots.queries
        return check_head(self.queries, ballots.queries)

    def exactly(self, ballots: BallotSource, guarantee: str) -> int | None:
        """Return how many queries the guardian must answer; None if that is seen on the way."""
        if self.queries is None or (self.queries == ALL and guarantee == "allowance"):
            return None
        return self.wanted(ballots)


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What a request comes to, and why, in sentences."""

    mechanism: Mechanism
    guarantee: str
    reasons: tuple[str, ...] = ()
    warning: str | None = None  # of what is not worth its budget, to be said before it is charged

    def pace(self, request: Request, voters: int, labels: int) -> Pace | None:
        """Return what says when to stop; None where nobody can run out, or nothing tells."""
        if self.guarantee != "allowance":
            return None
        if request.yes is None and Crowd(self.mechanism, voters, labels).few_suffice:
            return None
        through = request.queries is not None
        return Pace(mechanism=self.mechanism, labels=labels, yes=request.yes, through=through)


def settled(
    request: Request, ballots: BallotSource, ledger: Ledger | None, names: Sequence[Any] | None
) -> Chosen:
    """Choose what nobody named.

    Of the ballots only their sizes are asked for. ``ledger`` is None if it is yet to be made.
    """
    wanted, known = request.wanted(ballots), None
    if ledger is not None and request.guarantee in (AUTO, "allowance"):
        known = allowance_of(
            ledger,
            request.scope,
            (ballots.voters, ballots.labels),
            None if names is None else seats(names, ballots.voters),
            simulated=request.simulated,
        )
    lasts = ledger is None or ledger.lasts
    if isinstance(request.mechanism, Mechanism):
        if request.guarantee != AUTO:
            return Chosen(mechanism=request.mechanism, guarantee=request.guarantee)
        return _guaranteed(request.mechanism, request, ballots, known, lasts=lasts)
    if known is not None and known["mechanism"] in MECHANISMS:
        return Chosen(
            mechanism=mechanism_of(known),
            guarantee="allowance",
            reasons=(
                "These voters have an allowance that is charged already: this goes on with it and "
                "its settings, at no further cost.",
            ),
        )
    budget = _left(request, ledger, lasts=lasts)
    advice = _advice(request, ballots, budget, wanted)
    reasons = advice.reasons
    if request.yes is None:
        guess = (
            f"Nobody said how often voters say yes, so {YES:g} of all votes was taken, and the "
            "noise follows from that: who knows better says so (yes=, --yes)."
        )
        reasons = (guess, *reasons)
    warning = _too_few(advice)
    return Chosen(
        mechanism=advice.mechanism,
        guarantee=advice.guarantee,
        reasons=reasons if warning is None else (warning, *reasons),
        warning=warning,
    )


def _voters_are(number: int) -> str:
    return "1 voter is" if number == 1 else f"{number:,} voters are"


def _too_few(advice: Advice) -> str | None:
    """Return that there are too few voters, where next to nothing comes of the budget; or None."""
    few = advice.queries <= _HANDFUL and advice.queries < _SMALL * advice.asked
    if not few and advice.missed <= _NOISE:
        return None
    comes = f"this budget is enough for about {advice.queries:,} of them"
    if not few:
        comes = f"{advice.missed:.0%} of what every voter wants would be missed"
    enough = advice.needed.get("voters")
    more = "" if enough is None else f", and {enough:,} voters would be enough"
    return (
        f"{_voters_are(advice.outlook.voters)} too few for {advice.asked:,} queries, by public "
        f"numbers: {comes}{more}. Before a budget is spent, `privote plan` says what it buys."
    )


def _guaranteed(
    mechanism: Mechanism,
    request: Request,
    ballots: BallotSource,
    known: dict[str, Any] | None,
    *,
    lasts: bool,
) -> Chosen:
    if request.for_allowance:
        kind, why = "allowance", "a baseline or names of voters are given, which it makes use of"
    elif known == mechanism.parameters():
        kind, why = "allowance", "these voters have one already, and this goes on with it"
    else:
        kind = _better_guarantee(mechanism, request, ballots, goes_on=lasts)
        why = "by public numbers it is enough for as many queries as the other, or more"
    return Chosen(
        mechanism=mechanism, guarantee=kind, reasons=(f"The guarantee is {kind}: {why}.",)
    )


def _left(request: Request, ledger: Ledger | None, *, lasts: bool) -> Budget:
    """Return what is left of the budget, as one to ask advice for: a public number."""
    budget, totals = request.budget, None if ledger is None else ledger.reading()
    known = None if totals is None else totals.budgets.get((request.scope[0], None))
    left = None if totals is None else totals.left(request.scope)
    if left is not None and left < _LITTLE * budget.epsilon:
        raise BudgetError(
            f"nothing is left of the budget of data set {request.scope[0]!r}: the ledger lists "
            "what it was charged for"
        )
    rule = ("shared" if lasts else None) if known is None else known.rule
    return Budget(epsilon=budget.epsilon if left is None else left, delta=budget.delta, rule=rule)


def _advice(request: Request, ballots: BallotSource, budget: Budget, wanted: int) -> Advice:
    settled_on = "allowance" if request.for_allowance else None
    found = _advised(
        (ballots.voters, ballots.labels),
        budget,
        wanted,
        request.bar,
        yes=YES if request.yes is None else request.yes,
        agreement=request.agreement,
        most_ones=request.most_ones,
        guarantee=settled_on if request.guarantee == AUTO else request.guarantee,
        exactly=request.queries is not None,
    )
    if not found.good and request.queries is None:
        said = " ".join((*found.reasons, *found.changes))
        raise BudgetError(
            f"Nothing is released, and nothing charged. {said} With `queries=all` it goes on."
        )
    return found


def _advised(
    sizes: tuple[int, int],
    budget: Budget,
    wanted: int,
    quality: float,
    *,
    exactly: bool,
    **guesses: Any,
) -> Advice:
    """Ask for advice; where all queries must be answered, whatever that makes of the labels."""
    given = {"voters": sizes[0], "labels": sizes[1], "epsilon": budget.epsilon, **guesses}
    given |= {"delta": budget.delta, "rule": budget.rule, "queries": wanted}
    found = advise(quality=quality, **given)
    if exactly and (found.queries < wanted or not found.good):
        found = advise(quality=None, **given)
    return found


def _better_guarantee(
    mechanism: Mechanism, request: Request, ballots: BallotSource, *, goes_on: bool
) -> str:
    """Return "allowance" or "worst-case": under which a mechanism answers more queries well.

    By public numbers only. Where both are enough for all queries, labels are equally good; then the
    worst case, since nobody can run out and only what is answered is charged. If it ``goes_on``, as
    with a ledger, what is enough for more queries.
    """
    size = ballots.voters, ballots.labels
    given = *size, request.budget.epsilon, request.budget.delta
    rule = "shared" if goes_on else None
    worst = queries_for(mechanism, *given, rule=rule)
    allowance = allowance_for(mechanism, *given, rule=rule)
    if not worst and allowance:
        return "allowance"  # what it lasts for is a guess; what fits in the worst case is not
    yes = YES if request.yes is None else request.yes
    lasts = Crowd(mechanism, *size).lasts(allowance, yes) if allowance else 0
    enough = min(worst, lasts) >= request.wanted(ballots) and not goes_on
    return "worst-case" if enough or worst >= lasts else "allowance"


# -- afterwards ------------------------------------------------------------------------------------


def expected(
    release: Release,
    mechanism: Mechanism,
    *,
    yes: float | None = None,
    baseline: npt.ArrayLike | None = None,
    paced: bool = False,
    why: str | None = None,
    quality: float = _QUALITY,
    near: npt.ArrayLike | None = None,
) -> Release:
    """Return a release with its forecast, why it stopped, and what would answer more.

    From public numbers and released labels: post-processing.

    Parameters
    ----------
    yes, baseline, near
        As in `forecast`.
    paced
        Whether it was stopped before voters run out.
    why
        Why it stopped.
    """
    if not release.answered:
        return release
    found = with_forecast(
        release,
        mechanism,
        yes=yes,
        baseline=None if baseline is None else np.asarray(baseline)[: release.answered],
        asked=0 if paced else None,
        near=near,
    )
    asked = release.answered if release.asked is None else release.asked
    said = list(release.reasons)
    if release.answered < asked:
        if release.guarantee == "worst-case":
            why = why or "the next query would not fit the budget, in the worst case"
        why = why or "released labels tell how long the allowance lasts"
        said.append(f"{STOPPED} {release.answered:,} of {asked:,} queries: {why}.")
    assert found.forecast is not None
    if why is not None and not paced and release.answered == asked:  # it went on all the same
        told = replace(found.forecast, warnings=(*found.forecast.warnings, f"{why}."))
        if yes is None:  # labels of voters who ran out do not tell how often they say yes
            told = replace(told, yes=None, yes_from=None, lasts=None)
        found = replace(found, forecast=told)
    if release.answered < asked or (found.forecast and found.forecast.missed > WORRY):
        said += _better(found, mechanism, asked, quality)
    return replace(found, reasons=tuple(dict.fromkeys(said)))


def _better(release: Release, mechanism: Mechanism, asked: int, quality: float) -> list[str]:
    """Return what would answer more queries, or with fewer labels missed, in sentences."""
    if release.guarantee not in ("allowance", "worst-case"):
        return []
    known = None if release.forecast is None else release.forecast.yes
    sizes, budget = (release.voters, release.labels.shape[1]), release.budget
    advice = _advised(
        sizes,
        Budget(epsilon=budget, delta=release.delta),
        asked,
        quality,
        exactly=False,
        yes=YES if known is None else min(max(known, 1e-4), 0.9),
    )
    said = []
    more = advice.queries > release.answered
    more |= release.forecast is not None and release.forecast.missed > quality
    if advice.good and more and advice.mechanism != mechanism:
        said.append(
            f"Another budget of this size is enough for {advice.queries:,} queries with "
            f"{advice.mechanism} ({advice.guarantee}), and {advice.missed:.0%} missed of what "
            "every voter wants."
        )
    found = [*said, *advice.changes]
    if found and known is not None and release.forecast and release.forecast.yes_from == "released":
        by = f"up to {release.forecast.yeses}"
        found.insert(0, f"What follows goes by released labels, which say: {by}.")
    return found

"""A poll, start to end: read, plan by public numbers, charge, draw, and say what may be said."""

from __future__ import annotations

import json
import os
import warnings
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..accounting.renyi import DEFAULT_ORDERS
from ..entropy import Entropy
from ..errors import InputError, PrivoteWarning, positive
from ..files import Draft, beside, complete, drafted
from ..guardian import Accounts
from ..labelling import check_output
from ..ledger import Budget, Ledger
from ..ledger.records import stated
from ..ledger.totals import check_name
from ..mechanisms.outcomes import Greedy, PollOutcome, Quota, Seats, ranking
from ..mechanisms.polls import Drawn, NoisyCounts
from ..planning.polls import PollPlan, plan_poll
from .ballots import PollBallots
from .reading import read
from .result import Call, PollResult, PollSealed, Share

_QUOTA = 0.5
_UNASKED = ("source", "ledger", "output", "resume", "force")  # may differ in a resumed run


def poll(
    source: Any,
    *,
    epsilon: float,
    delta: float,
    seats: int | None = None,
    quota: float | None = None,
    shares: bool = False,
    mechanism: str = "auto",
    typical: float | None = None,
    confidence: float = 0.95,
    title: str | None = None,
    people: str | None = None,
    ledger: Any = None,
    budget: float | None = None,
    seed: int | None = None,
    output: str | os.PathLike[str] | Draft | None = None,
    resume: bool = False,
    force: bool = False,
    **reading: Any,
) -> PollResult:
    """Release the outcome of a poll, once, under differential privacy.

    Neighbours are two polls of as many voters in which one person's ballot differs. Which mechanism
    is used follows from public numbers; the budget is charged before anything is drawn.

    Parameters
    ----------
    source
        A file or an abcvoting profile; ``reading`` goes to :func:`privote.polls.read`.
    epsilon, delta
        What this poll may cost one person.
    seats, quota
        Who wins: so many options, or all that more than this share of the voters approve. Without
        either, the greedy rule where options have costs and there is money to spend, else a quota
        of one half.
    shares
        Publish every option's share, too, with intervals that hold for all at once.
    mechanism, typical, confidence
        As for :func:`privote.planning.polls.plan_poll`.
    title
        What the poll is called; the file's own title unless told.
    people, ledger, budget
        Whose budget is charged, in which ledger, and the epsilon that all their polls together may
        cost: fixed by the first poll, where it is this one's own unless told.
    seed
        An integer makes a simulation that protects nobody, and says so.
    output
        A new ``.json`` file for all that may be published. It is claimed before anything is
        charged, and what is drawn is on disk before anything else happens to it. A draft instead
        of a path: whoever opened it writes what is to be made of it.
    resume
        Finish what an earlier call with the same arguments left behind in ``output``: what was
        drawn stays as it is, and what was charged is not charged again.
    force
        Replace the file if it exists.
    """
    asked = {name: str(value) for name, value in locals().items() if name not in _UNASKED}
    path = None
    if output is not None and not isinstance(output, Draft):
        path = check_output(output, ".json", replaced=force or resume)
    ballots = read(source, **reading)
    Budget(epsilon=epsilon, delta=delta).warn(ballots.voters)
    outcome = _outcome(ballots, seats, quota)
    plan = plan_poll(
        ballots.size,
        outcome,
        epsilon=epsilon,
        delta=delta,
        shares=shares,
        mechanism=mechanism,
        typical=typical,
        confidence=confidence,
        shared=ledger is not None,
    )
    if plan.chance:
        warnings.warn(plan.chance, PrivoteWarning, stacklevel=2)
    entropy = Entropy(seed)
    _check_people(people, ledger, budget)
    claimed, accounts = output if path is None else beside(path), None
    with drafted(claimed, asked, resume=resume, force=force) as draft, ExitStack() as stack:
        if ledger is not None and people is not None:
            book = stack.enter_context(Ledger.at(ledger))
            how = {"epsilon": epsilon, "budget": budget, "simulated": entropy.simulated}
            accounts = _charged(plan, people, book, draft, **how)
        result = _result(
            ballots,
            plan,
            _drawn(plan, ballots, entropy, draft, accounts),
            shares,
            title=title or _title(ballots, source),
            simulated=entropy.simulated,
        )
        if accounts is not None:
            result = _recorded(result, accounts)
        if path is not None and draft is not None:
            with complete(path, force=force or resume) as part:
                part.write_text(result.json(), encoding="utf-8")
            draft.finish()
    return result


def _drawn(
    plan: PollPlan,
    ballots: PollBallots,
    entropy: Entropy,
    draft: Draft | None,
    accounts: Accounts | None,
) -> Drawn:
    """Draw, and keep what was drawn; or return what the run that is resumed has kept."""
    kept = None if draft is None else draft.read()
    if kept is None:
        if accounts is not None:
            accounts.check_undrawn()
        drawn = plan.mechanism.draw(ballots.tally, plan.outcome, entropy)
        if draft is not None:
            counts = None if drawn.counts is None else drawn.counts.tolist()
            draft.keep(json.dumps([ballots.options, drawn.winners.tolist(), counts]).encode())
        return drawn
    options, winners, counts = json.loads(kept)
    if options != list(ballots.options):
        raise InputError("resume", "must be with the same ballots: these have other options")
    numbers = None if counts is None else np.array(counts, np.int64)
    return Drawn(winners=np.array(winners, np.bool_), counts=numbers)


def _outcome(ballots: PollBallots, seats: int | None, quota: float | None) -> PollOutcome:
    if seats is not None and quota is not None:
        raise InputError("seats", "goes without `quota`: both say who wins", seats)
    if seats is not None:
        return Seats(number=seats)
    if quota is None and ballots.costs is not None and ballots.money is not None:
        return Greedy(costs=ballots.costs, money=ballots.money)
    return Quota(share=_QUOTA if quota is None else quota)


def _check_people(people: str | None, ledger: Any, budget: float | None) -> None:
    if ledger is None:
        for name, value in (("people", people), ("budget", budget)):
            if value is not None:
                raise InputError(name, "goes with `ledger`", value)
        return
    if people is None:
        raise InputError("people", "must be named with `ledger`: whose budget is charged", None)
    check_name("people", people)
    if budget is not None:
        positive("budget", budget)


def _charged(
    plan: PollPlan, people: str, book: Ledger, draft: Draft | None, **how: Any
) -> Accounts:
    """Charge the price to the people's budget; it is on disk when this returns."""
    people, budget = book.known(people)[0], how["budget"]
    known = book.reading().budgets.get((people, None))
    if known is None:
        whole = Budget(epsilon=how["epsilon"] if budget is None else budget, delta=plan.delta)
    elif budget is not None and budget != known.epsilon:
        # Worded by the ledger, which knows what stays.
        whole = Budget(epsilon=budget, delta=known.delta)
    else:
        whole = known
    accounts = Accounts(
        ledger=book,
        budget=whole,
        orders=DEFAULT_ORDERS,
        dataset=people,
        stamp={
            "guarantee": "poll",
            "mechanism": plan.mechanism.facts(),
            "simulated": how["simulated"],
            "protects": "a person's ballot",
        },
        draft=draft,
    )
    accounts.charge(plan.curve, _sizes(plan))
    return accounts


def _sizes(plan: PollPlan) -> dict[str, int]:
    size = plan.size
    return {"voters": size.voters, "labels": size.options, "most": size.most, "each": size.each}


def _recorded(result: PollResult, accounts: Accounts) -> PollResult:
    """Enter what was drawn and is stated; return it with where, and what the budget was by then."""
    book = accounts.ledger
    now = next(
        each for each in book.standing() if (each["dataset"], each["consumer"]) == accounts.scope
    )
    result = replace(
        result,
        people=accounts.dataset,
        budget={name: now[name] for name in ("epsilon", "delta", "used")},
        new=accounts.new and book.lasts,
        ledger=book.last_entry(),
    )
    entry = accounts.record(result.drawn, stated(result.facts()), _sizes(result.plan))
    if entry is None or not book.lasts:
        return result
    known = {name: entry.hidden["stated"][name] for name in ("budget", "new")}
    return replace(result, ledger=entry.place, **known)


def _result(
    ballots: PollBallots, plan: PollPlan, drawn: Drawn, shares: bool, **facts: Any
) -> PollResult:
    names = ballots.options
    listed: tuple[Share, ...] | None = None
    calls: tuple[Call, ...] = ()
    apart = None
    order = np.arange(len(names))
    if shares and drawn.counts is not None and isinstance(plan.mechanism, NoisyCounts):
        order = ranking(drawn.counts)
        listed = tuple(_share(plan, names[at], int(drawn.counts[at])) for at in order)
        apart = plan.mechanism.noise.apart(len(names), plan.confidence)
        calls = tuple(
            Call(above=one.option, below=two.option, decided=one.count - two.count > apart)
            for one, two in pairwise(listed)
        )
    true = plan.outcome.winners(ballots.tally.counts, ballots.voters)
    return PollResult(
        winners=tuple(names[at] for at in order if drawn.winners[at]),
        shares=listed,
        calls=calls,
        apart=apart,
        options=names,
        plan=plan,
        notes=ballots.notes,
        sealed=PollSealed(
            counts=ballots.tally.counts,
            winners=tuple(name for name, won in zip(names, true, strict=True) if won),
            emptied=ballots.emptied,
        ),
        **facts,
    )


def _share(plan: PollPlan, option: str, count: int) -> Share:
    """Return a released count as a share; what no poll can have is cut off."""
    size, half = plan.size, plan.interval
    assert half is not None
    share, low, high = (
        min(max((count + move) / size.voters, 0.0), float(size.each)) for move in (0, -half, half)
    )
    call = None
    if isinstance(plan.outcome, Quota):
        bar = plan.outcome.bar(size.voters)
        call = "above" if count - half > bar else "below" if count + half <= bar else "too close"
    return Share(option=option, count=count, share=share, low=low, high=high, call=call)


def _title(ballots: PollBallots, source: Any) -> str:
    said = ballots.meta.get("TITLE") or ballots.meta.get("description")
    return said or (Path(source).stem if isinstance(source, str | Path) else "A poll")

"""A poll, start to end: read, plan by public numbers, charge, draw, and say what may be said."""

from __future__ import annotations

import json
import os
import warnings
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..accounting.renyi import DEFAULT_ORDERS, Floats
from ..entropy import Entropy
from ..errors import InputError, PrivoteWarning, positive
from ..files import Draft, beside, check_new, complete, drafted
from ..guardian import Accounts
from ..ledger import Budget, Ledger
from ..ledger.records import stated
from ..ledger.totals import check_name
from .ballots import PollBallots
from .mechanisms import Drawn
from .outcomes import outcome_of
from .planning import PollPlan, calibrated, plan_poll
from .reading import read
from .result import PollResult, result_of

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

    The guarantee protects each person's ballot, on all questions together: neighbouring polls have
    the same number of voters and differ in one ballot. The mechanism is chosen from public numbers.
    The budget is charged before anything is drawn.

    Parameters
    ----------
    source
        A file, a data frame, a mapping of columns or a list of records; ``reading`` is passed to
        :func:`privote.polls.read`.
    epsilon, delta
        What this poll may cost.
    seats, quota
        Who wins on each question: the ``seats`` most approved options, or every option that more
        than the share ``quota`` of the voters approve. Without either: the greedy rule if options
        have costs, else a quota of one half.
    shares
        Also publish noisy shares of all options, with intervals that hold for all of them at once.
    mechanism, confidence
        As for :func:`privote.polls.planning.plan_poll`.
    title
        Title of the poll; default: the title in the file.
    people, ledger, budget
        The group of people whose budget is charged, the ledger, and the total epsilon of all their
        polls (at the same delta). The first poll fixes it; default: its ``epsilon``.
    seed
        An integer makes a simulation, which protects nobody and is marked as such.
    output
        A new ``.json`` file for everything that may be published. It is reserved before anything is
        charged, and the outcome is written as soon as it is drawn. Or a draft, which its owner
        finishes.
    resume
        Finish an earlier call with the same arguments that failed; nothing is drawn or charged
        twice.
    force
        Overwrite the file if it exists.

    Examples
    --------
    >>> import privote as pv
    >>> ballots = {"Ada": [1] * 90 + [0] * 10, "Bo": [0] * 100}
    >>> result = pv.poll(ballots, epsilon=2.0, delta=1e-6, seats=1)
    >>> result.winners, result.delta
    (('Ada',), 1e-06)
    """
    asked = {name: str(value) for name, value in locals().items() if name not in _UNASKED}
    path = None
    if output is not None and not isinstance(output, Draft):
        path = check_new("output", output, (".json",), force=force or resume)
    ballots = read(source, **reading)
    Budget(epsilon=epsilon, delta=delta).warn(ballots.voters)
    plan = plan_poll(
        ballots.size,
        outcome_of(seats, quota, ballots.costs, ballots.money),
        epsilon=epsilon,
        delta=delta,
        shares=shares,
        mechanism=mechanism,
        confidence=confidence,
    )
    if plan.chance:
        warnings.warn(plan.chance, PrivoteWarning, stacklevel=2)
    entropy = Entropy(seed)
    _check_people(people, ledger, budget)
    claimed, accounts = output if path is None else beside(path), None
    with drafted(claimed, asked, resume=resume, force=force) as draft, ExitStack() as stack:
        if ledger is not None and people is not None:
            book = stack.enter_context(Ledger.at(ledger))
            accounts = _charged(plan, people, book, draft, budget, entropy.simulated)
        drawn = _drawn(plan, ballots, entropy, draft, accounts)
        title = title or _title(ballots, source)
        result = result_of(ballots, plan, drawn, title=title, simulated=entropy.simulated)
        if accounts is not None:
            result = _recorded(result, accounts)
        if path is not None and draft is not None:
            with complete(path, force=force or resume) as part:
                part.write_text(result.json(), encoding="utf-8")
            draft.finish()
    return result


def draw(plan: PollPlan, ballots: PollBallots, entropy: Entropy) -> Drawn:
    """Draw one question after the other; the price is that of all. Unbilled: the caller charged."""
    parts = [
        plan.mechanism.draw(ballots.counts[options], ballots.voters, plan.outcome, entropy)
        for options in plan.size.places
    ]
    counts = [part.counts for part in parts if part.counts is not None]
    winners = np.concatenate([part.winners for part in parts])
    return Drawn(winners=winners, counts=np.concatenate(counts) if counts else None)


def _title(ballots: PollBallots, source: Any) -> str:
    title = ballots.meta.get("TITLE") or ballots.meta.get("description")
    return title or (Path(source).stem if isinstance(source, str | Path) else "A poll")


# -- the ledger ------------------------------------------------------------------------------------


def _check_people(people: str | None, ledger: Any, budget: float | None) -> None:
    if ledger is None:
        for name, value in (("people", people), ("budget", budget)):
            if value is not None:
                raise InputError(name, "needs `ledger`", value)
        return
    if people is None:
        raise InputError("people", "must be given with `ledger`")
    check_name("people", people)
    if budget is not None:
        positive("budget", budget)


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
        drawn = draw(plan, ballots, entropy)
        if draft is not None:
            counts = None if drawn.counts is None else drawn.counts.tolist()
            draft.keep(json.dumps([ballots.options, drawn.winners.tolist(), counts]).encode())
        return drawn
    options, winners, counts = json.loads(kept)
    if options != list(ballots.options):
        raise InputError("resume", "must repeat the call with the same ballots")
    numbers = None if counts is None else np.array(counts, np.int64)
    return Drawn(winners=np.array(winners, np.bool_), counts=numbers)


def _charged(
    plan: PollPlan,
    people: str,
    book: Ledger,
    draft: Draft | None,
    budget: float | None,
    simulated: bool,
) -> Accounts:
    """Charge the price to the people's budget; it is on disk when this returns."""
    people = book.known(people)
    accounts = Accounts(
        ledger=book,
        budget=Budget(epsilon=plan.asked, delta=plan.delta),
        dataset=people,
        total=budget,
        stamp={
            "guarantee": "poll",
            "mechanism": plan.mechanism.facts(),
            "simulated": simulated,
            "protects": "a ballot",
        },
        draft=draft,
    )

    def price(epsilon: float) -> Floats:
        cost = Budget(epsilon=epsilon, delta=plan.delta)
        return calibrated(plan.mechanism, plan.size, cost).rdp(plan.size, DEFAULT_ORDERS)

    accounts.charge(plan.curve, _sizes(plan), price)
    return accounts


def _sizes(plan: PollPlan) -> dict[str, int]:
    size = plan.size
    return {"voters": size.voters, "labels": size.options, "most": size.most, "each": size.each}


def _recorded(result: PollResult, accounts: Accounts) -> PollResult:
    """Enter what was drawn and is stated; return it with where, and what the budget was by then."""
    book = accounts.ledger
    result = replace(
        result,
        people=accounts.dataset,
        budget=accounts.standing(),
        new=accounts.new and book.lasts,
        ledger=book.last_entry(),
    )
    entry = accounts.record(result.drawn, stated(result.facts()), _sizes(result.plan))
    if entry is None or not book.lasts:
        return result
    known = {name: entry.hidden["stated"][name] for name in ("budget", "new")}
    return replace(result, ledger=entry.place, **known)

"""A poll, start to end: read, plan by public numbers, charge, draw, and say what may be said.

What leaves it are winners, shares where they were paid for, and the statement.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from .._version import written
from ..accounting.renyi import DEFAULT_ORDERS, Floats, rounded_up
from ..entropy import Entropy
from ..errors import InputError, PrivoteWarning, positive
from ..files import Draft, beside, check_new, complete, drafted
from ..guardian import Accounts
from ..ledger import Budget, Ledger
from ..ledger.records import digest_of, stated
from ..ledger.totals import check_name
from ..mechanisms.base import Bools
from ..mechanisms.outcomes import Greedy, PollOutcome, PollTally, Quota, Seats, Whole, ranking
from ..mechanisms.polls import Drawn, NoisyCounts
from ..planning.polls import PollPlan, calibrated, plan_poll
from ..release import SIMULATED, UNCERTAIN, Sealed, Shown, budget_used, digest_of_facts, so_far
from .ballots import PollBallots
from .reading import read

_QUOTA = 0.5
_UNASKED = ("source", "ledger", "output", "resume", "force")  # may differ in a resumed run
FORMAT = 1
UNCOUNTED = (
    "No ledger was used: further polls of the same people, or repeating this one with fresh "
    "noise, spend additional epsilon and delta that are not counted here."
)


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
        As for :func:`privote.planning.polls.plan_poll`.
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
    outcome = _outcome(ballots, seats, quota)
    plan = plan_poll(
        ballots.size,
        outcome,
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
        drawn = _by_question(plan, ballots.tally, entropy)
        if draft is not None:
            counts = None if drawn.counts is None else drawn.counts.tolist()
            draft.keep(json.dumps([ballots.options, drawn.winners.tolist(), counts]).encode())
        return drawn
    options, winners, counts = json.loads(kept)
    if options != list(ballots.options):
        raise InputError("resume", "must repeat the call with the same ballots")
    numbers = None if counts is None else np.array(counts, np.int64)
    return Drawn(winners=np.array(winners, np.bool_), counts=numbers)


def _by_question(plan: PollPlan, tally: PollTally, entropy: Entropy) -> Drawn:
    """Draw one question after the other; the price is that of all."""
    parts = [PollTally(tally.voters, tally.counts[at]) for at in plan.size.places]
    drawn = [plan.mechanism.draw(part, plan.outcome, entropy) for part in parts]
    counts = [each.counts for each in drawn if each.counts is not None]
    return Drawn(
        winners=np.concatenate([each.winners for each in drawn]),
        counts=np.concatenate(counts) if counts else None,
    )


def _outcome(ballots: PollBallots, seats: int | None, quota: float | None) -> PollOutcome:
    if seats is not None and quota is not None:
        raise InputError("seats", "cannot be combined with `quota`: both decide who wins", seats)
    if seats is not None:
        return Seats(number=seats)
    if quota is None and ballots.costs is not None and ballots.money is not None:
        return Greedy(costs=ballots.costs, money=ballots.money)
    return Quota(share=_QUOTA if quota is None else quota)


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


def _result(
    ballots: PollBallots, plan: PollPlan, drawn: Drawn, shares: bool, **facts: Any
) -> PollResult:
    names, noisy = ballots.options, drawn.counts
    won = [names[at] for at in np.flatnonzero(drawn.winners)]
    unsure = won if plan.chance else []
    if noisy is not None and not plan.chance:
        # Counts are paid for whether or not they are published, and so is what follows from them.
        unsure = [names[at] for at in _uncertain(plan, drawn.winners, noisy)]
    published: dict[str, Any] = {"shares": None, "calls": (), "apart": None}
    if shares and noisy is not None:
        published = _published(plan, names, noisy)
        won = [share.option for share in published["shares"] if share.option in won]
    return PollResult(
        winners=tuple(won),
        uncertain=tuple(unsure),
        options=names,
        questions=ballots.questions,
        plan=plan,
        roll=ballots.roll,
        notes=ballots.notes,
        sealed=_sealed(ballots, plan),
        **published,
        **facts,
    )


def _published(plan: PollPlan, names: tuple[str, ...], counts: Whole) -> dict[str, Any]:
    """Return the shares from the largest count down, question by question, and the calls."""
    assert isinstance(plan.mechanism, NoisyCounts)
    apart = plan.mechanism.noise.apart(len(names), plan.confidence)
    ranked = [at[ranking(counts[at])].tolist() for at in plan.size.places]
    return {
        "shares": tuple(_share(plan, names[at], int(counts[at])) for one in ranked for at in one),
        "calls": tuple(
            Call(
                above=names[high],
                below=names[low],
                decided=bool(counts[high] - counts[low] > apart),
            )
            for one in ranked
            for high, low in pairwise(one)
        ),
        "apart": apart,
    }


def _uncertain(plan: PollPlan, won: Bools, counts: Whole) -> list[int]:
    """Return the winners that may have lost without noise, by noisy counts alone."""
    assert isinstance(plan.mechanism, NoisyCounts)
    noise, options, unsure = plan.mechanism.noise, plan.size.options, []
    half = noise.within(options, plan.confidence)
    apart = noise.apart(options, plan.confidence)
    for places in plan.size.places:
        for at in places[won[places]].tolist():
            if isinstance(plan.outcome, Quota):
                sure = counts[at] - half > plan.outcome.bar(plan.size.voters)
            else:
                ahead = places[counts[at] - counts[places] <= apart]
                sure = plan.outcome.surely(at, ahead[ahead != at].tolist())
            if not sure:
                unsure.append(at)
    return unsure


def _sealed(ballots: PollBallots, plan: PollPlan) -> Sealed:
    """Return the true counts, who wins by them, and which options a tie-break decides on."""
    names, counts = np.array(ballots.options, object), ballots.tally.counts
    winners, ties = list[str](), list[str]()
    for at in plan.size.places:
        won = plan.outcome.winners(counts[at], ballots.voters)
        winners += names[at[won]].tolist()
        if isinstance(plan.outcome, Seats) and counts[at[won]].min() == counts[at[~won]].max():
            ties += names[at[counts[at] == counts[at[won]].min()]].tolist()
    return Sealed(counts=counts, winners=tuple(winners), ties=tuple(ties), emptied=ballots.emptied)


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


# -- what leaves -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Share:
    """One option's count, as it was released, and where the true share lies.

    With points, shares are points a voter. ``call`` is about a quota: above, below or too close.
    """

    option: str
    count: int
    share: float
    low: float
    high: float
    call: str | None = None


@dataclass(frozen=True, kw_only=True)
class Call:
    """Two neighbours in rank, and whether their order is decided or too close to call."""

    above: str
    below: str
    decided: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class PollResult(Shown):
    """What :func:`privote.poll` returns. Everything but ``sealed`` may be published.

    Attributes
    ----------
    winners
        By name: from the largest count down where counts were released, else in the poll's order.
        Question by question, where there are several; so is all that follows.
    uncertain
        Winners that may have lost without noise: all if noise picks them, else by the noisy counts
        that were drawn, published or not. Bits, and winners drawn one by one, tell of none.
    shares
        From the largest count down; None unless asked for.
    calls
        Neighbours in rank; empty without shares.
    apart
        Counts further apart than this are in their true order, all at once; None without shares.
        The plan's gap, but with a quota, where that is how far from the bar they are.
    options, questions
        Names of the options, and how many of them each question has; see :meth:`by_question`.
    plan
        What was drawn, its price and what it is good for.
    title, notes
        What the poll is called, and how its ballots were read.
    roll
        The column that names who voted; None without.
    simulated
        True if a seed was given: then nobody is protected.
    people, ledger, budget
        Whose budget was charged, where, and what they may be asked in all; None without a ledger.
    new
        Whether nothing was charged to these people before.
    sealed
        For the owner's eyes: the true ``counts`` and ``winners``, the ``ties`` for a last seat, and
        how many ballots were ``emptied``. Epsilon and delta do not cover them; never saved, printed
        or pickled.
    """

    winners: tuple[str, ...]
    uncertain: tuple[str, ...]
    shares: tuple[Share, ...] | None
    calls: tuple[Call, ...]
    apart: int | None
    options: tuple[str, ...]
    questions: Mapping[str, int]
    plan: PollPlan = field(repr=False)
    title: str
    roll: str | None
    notes: tuple[str, ...]
    simulated: bool
    people: str | None = None
    ledger: Mapping[str, Any] | None = None
    budget: Mapping[str, float] | None = None
    new: bool = False
    sealed: Sealed = field(repr=False)

    def by_question(self) -> Iterator[tuple[str, PollResult]]:
        """Yield each question with what was released on it, a result with its own options.

        A poll of one question yields itself, under "".
        """
        if not self.questions:
            yield "", self
            return
        for question, places in zip(self.questions, self.plan.size.places, strict=True):
            own = {self.options[at]: self.options[at][len(question) + 2 :] for at in places}
            shares = [
                replace(s, option=own[s.option]) for s in self.shares or () if s.option in own
            ]
            calls = [call for call in self.calls if call.above in own]
            yield (
                question,
                replace(
                    self,
                    questions={},
                    options=tuple(own.values()),
                    winners=tuple(own[name] for name in self.winners if name in own),
                    uncertain=tuple(own[name] for name in self.uncertain if name in own),
                    shares=None if self.shares is None else tuple(shares),
                    calls=tuple(replace(c, above=own[c.above], below=own[c.below]) for c in calls),
                ),
            )

    @property
    def epsilon(self) -> float:
        """What this poll costs one person at most."""
        return self.plan.epsilon

    @property
    def delta(self) -> float:
        """The probability that is left out of the promise."""
        return self.plan.delta

    @property
    def voters(self) -> int:
        """How many: public."""
        return self.plan.size.voters

    @property
    def drawn(self) -> str:
        """The digest of what was drawn, as a ledger records it: winners, and counts if published.

        Each in the order of the options.
        """
        rows = [[int(option in self.winners) for option in self.options]]
        if self.shares is not None:
            counts = {share.option: share.count for share in self.shares}
            rows.append([counts[option] for option in self.options])
        return digest_of(np.array(rows, np.int64))

    def facts(self) -> dict[str, Any]:
        """Return all that is public as plain values, with a digest over the rest of them."""
        plan = self.plan
        made: dict[str, Any] = {
            **written(FORMAT),
            "title": self.title,
            "outcome": plan.outcome.describe(),
            **self._won(),
            "voters": self.voters,
            "roll": self.roll,
            "most": plan.size.most,
            "each": plan.size.each,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighbours": f"{self._unit()} replaced by any other; the number of voters public",
            **plan.mechanism.facts(),
            "reason": plan.reason,
            "confidence": plan.confidence,
            "gap": plan.gap,
            "simulated": self.simulated,
            "people": self.people,
            "ledger": None if self.ledger is None else dict(self.ledger),
            "budget": None if self.budget is None else dict(self.budget),
            "new": self.new,
            "drawn": [self.drawn],
            "notes": list(self.notes),
        }
        if self.questions:
            made["questions"] = {name: part._won() for name, part in self.by_question()}
        if self.shares is not None:
            made["interval"], made["apart"] = plan.interval, self.apart
        return {**made, "digest": digest_of_facts(made)}

    def _won(self) -> dict[str, Any]:
        """Return who won, of whom, as plain values."""
        made: dict[str, Any] = {
            "winners": list(self.winners),
            "uncertain": list(self.uncertain) if self.judged else None,
            "options": list(self.options),
        }
        if self.shares is not None:
            made["shares"] = [vars(share) for share in self.shares]
            made["calls"] = [vars(call) for call in self.calls]
        return made

    def _unit(self) -> str:
        """Return what is protected: a person's ballot only where somebody says whose each is."""
        whose = "one ballot" if self.roll is None else "one person's ballot"
        return whose + ", on all questions together," * bool(self.questions)

    @property
    def judged(self) -> bool:
        """Whether what was drawn tells which winners are uncertain."""
        return isinstance(self.plan.mechanism, NoisyCounts) or self.plan.chance is not None

    def json(self) -> str:
        """Return the facts as a file holds them."""
        return json.dumps(self.facts(), indent=2, ensure_ascii=False) + "\n"

    @property
    def digest(self) -> str:
        """A fingerprint of everything public: who publishes something else has another one."""
        return str(self.facts()["digest"])

    def named(self) -> list[str]:
        """Return the winners by name, each that is uncertain marked as such."""
        unsure = self.uncertain
        return [f"{one} ({UNCERTAIN})" if one in unsure else one for one in self.winners]

    def _winners(self) -> str:
        """Return the winners in one line, question by question."""
        return "; ".join(
            f"{question}: " * bool(question) + (", ".join(part.named()) or "none")
            for question, part in self.by_question()
        )

    def brief(self) -> dict[str, str]:
        """Return the outcome in a few words each, by what they are about."""
        plan = self.plan
        return {
            "winners": self._winners(),
            "rule": plan.outcome.describe(),
            "electorate": f"{self.voters:,} voters, {len(self.options):,} options"
            + f" on {len(self.questions)} questions" * bool(self.questions),
            "epsilon, delta": f"{rounded_up(self.epsilon)}, {rounded_up(self.delta)}",
            "mechanism": f"{plan.mechanism.facts()['mechanism']}: {plan.reason}",
            "decides": self.decides(),
            **({"NEW": f"first charge to {self.people!r} in this ledger"} if self.new else {}),
            **self._counted_so_far(),
        }

    def summary(self) -> str:
        """Return the outcome in a few lines."""
        return "\n".join(f"{name:<16}{value}" for name, value in self.brief().items())

    def decides(self) -> str:
        """Return how close a race this much noise decides, in words."""
        plan = self.plan
        share = plan.gap / self.voters
        unit = "votes" if plan.size.each == 1 else "points"
        part = f" ({100 * share:.2g} % of the voters)" if plan.size.each == 1 else ""
        if plan.size.each == 1 and share > 1:
            part = " (more than there are voters, so the winners are random)"
        return (
            f"options that are {plan.gap:,.0f} {unit} {plan.apart}{part}, all at once with "
            f"{100 * plan.confidence:g} % probability"
        )

    def _counted_so_far(self) -> dict[str, str]:
        """Return what all polls of these people cost by now, and how much of their budget."""
        if self.budget is None:
            return {}
        facts = {**self.budget, "delta": self.delta, "dataset": self.people}
        texts = {"so far": so_far(facts), "budget": budget_used(facts)}
        return {name: text for name, text in texts.items() if text}

    def statement(self) -> str:
        """Return the promise in plain words, one paragraph a line."""
        promise = f"({rounded_up(self.epsilon)}, {rounded_up(self.delta)})"
        times = "e^epsilon"  # for an epsilon whose factor no number holds
        if self.epsilon < 700:
            digits = 2 if self.epsilon < 4 else 0 if self.epsilon < 14 else None
            times = rounded_up(math.exp(self.epsilon), 3, places=digits)
        lines = [
            f"What is published here is {promise}-differentially private: if any {self._unit()} "
            f"were replaced by any other, no outcome would become more than {times} times as "
            f"likely, plus {rounded_up(self.delta)}. The number of voters, {self.voters:,}, and "
            "the options are public.",
            f"Winners: {self.plan.outcome.describe()}, by noisy counting. {self._wrong()}",
        ]
        if self.shares is not None:
            lines.append(
                "The intervals hold for all options at once with probability "
                f"{self.plan.confidence:g}; they cover the noise only. So do the calls."
            )
        if self.simulated:
            lines.insert(0, f"{SIMULATED} Without a seed, this would hold:")
        lines.append(self._counted())
        lines.append("Settings that were chosen by looking at these ballots are not covered.")
        return "\n".join(lines)

    def _wrong(self) -> str:
        marks = "Winners that may have lost without the noise are marked uncertain."
        if not self.judged:
            marks = (
                "Whether a race was close, a tie, or without any approval is not told; noisy "
                "shares tell."
            )
        return (
            f"Noise can change the outcome of a close race. This poll decides {self.decides()}. "
            f"{marks}"
        )

    def _counted(self) -> str:
        if self.people is None:
            return UNCOUNTED
        new = ", who are new to this ledger" if self.new else ""
        facts = self._counted_so_far()
        return (
            f"The poll is charged to the budget of {self.people!r}{new}. So far: "
            f"{facts['so far']}. Budget: {facts['budget']}."
        )

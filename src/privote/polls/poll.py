"""A poll, start to end: read, plan by public numbers, charge, draw, and say what may be said."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..accounting.renyi import DEFAULT_ORDERS, Floats
from ..entropy import Entropy
from ..errors import PrivoteWarning
from ..files import written
from ..guarantees import GAUSSIAN, RENYI, Guarantee, Sealed, Shown, to_json, worded
from ..ledger import Account, Budget, Ledger, Outcome, Request, Run
from ..release import digest_of_facts
from .mechanisms import Drawn, NoisyCounts, Quota, Seats, outcome_of, ranking
from .planning import PollPlan, calibrated, plan_poll
from .reading import PollBallots, read

FORMAT = 2
_BRIEF = ("simulated", "epsilon", "delta", "total", "budget", "new")
UNCERTAIN = "uncertain"  # a winner that noise alone may have made


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
    options, questions
        Names of the options, and how many of them each question has; see :meth:`by_question`.
    plan
        What was drawn, its price and what it is good for.
    guarantee
        What is promised, and what all polls of these people cost so far.
    title, notes
        What the poll is called, and how its ballots were read.
    roll
        The column that names who voted; None without.
    sealed
        For the owner's eyes: the true ``counts`` and ``winners``, the ``ties`` for a last seat, and
        how many ballots were ``emptied``. Epsilon and delta do not cover them; never saved, printed
        or pickled.
    """

    winners: tuple[str, ...]
    uncertain: tuple[str, ...]
    shares: tuple[Share, ...] | None
    options: tuple[str, ...]
    questions: Mapping[str, int]
    plan: PollPlan = field(repr=False)
    guarantee: Guarantee = field(repr=False)
    title: str
    roll: str | None
    notes: tuple[str, ...]
    sealed: Sealed = field(repr=False)

    @property
    def calls(self) -> tuple[Call, ...]:
        """Neighbours in rank; empty without shares.

        Counts more than the plan's ``apart`` apart are in their true order, all at once.
        """
        shares, apart = self.shares or (), self.plan.apart or 0
        last = {*accumulate(self.questions.values())}  # of each question
        return tuple(
            Call(above=a.option, below=b.option, decided=a.count - b.count > apart)
            for rank, (a, b) in enumerate(pairwise(shares), 1)
            if rank not in last
        )

    def by_question(self) -> Iterator[tuple[str, PollResult]]:
        """Yield each question with what was released on it, a result with its own options.

        A poll of one question yields itself, under "".
        """
        if not self.questions:
            yield "", self
        for question, places in zip(self.questions, self.plan.size.places, strict=False):
            names = {
                self.options[index]: self.options[index][len(question) + 2 :] for index in places
            }
            shares = [s for s in self.shares or () if s.option in names]
            part = replace(
                self,
                questions={},
                options=tuple(names.values()),
                winners=tuple(names[name] for name in self.winners if name in names),
                uncertain=tuple(names[name] for name in self.uncertain if name in names),
                shares=self.shares and tuple(replace(s, option=names[s.option]) for s in shares),
            )
            yield question, part

    @property
    def epsilon(self) -> float:
        """What this poll costs, alone."""
        return self.plan.epsilon

    @property
    def delta(self) -> float:
        """The probability that is left out of the promise."""
        return self.plan.delta

    def facts(self) -> dict[str, Any]:
        """Return all that is public as plain values, with a digest over the rest of them."""
        plan = self.plan
        facts: dict[str, Any] = {
            **written(FORMAT),
            "title": self.title,
            "outcome": plan.outcome.describe(),
            **self._outcome(),
            "voters": plan.size.voters,
            "roll": self.roll,
            "most": plan.size.most,
            "each": plan.size.each,
            **plan.mechanism.facts(),
            "reason": plan.reason,
            "confidence": plan.confidence,
            "gap": plan.gap,
            "guarantee": self.guarantee.facts(),
            "notes": list(self.notes),
        }
        if self.questions:
            facts["questions"] = {name: part._outcome() for name, part in self.by_question()}
        if self.shares is not None:
            facts |= {"interval": plan.interval, "apart": plan.apart}
        return {**facts, "digest": digest_of_facts(facts)}

    def _outcome(self) -> dict[str, Any]:
        """Return who won, of whom, as plain values."""
        facts: dict[str, Any] = {
            "winners": list(self.winners),
            "uncertain": list(self.uncertain) if self.plan.judges else None,
            "options": list(self.options),
        }
        if self.shares is not None:
            facts["shares"] = [vars(share) for share in self.shares]
            facts["calls"] = [vars(call) for call in self.calls]
        return facts

    def json(self) -> str:
        """Return the facts as a file holds them."""
        return to_json(self.facts())

    def brief(self) -> dict[str, str]:
        """Return the outcome in a few words each, by what they are about."""
        plan, size = self.plan, self.plan.size
        winners = "; ".join(
            f"{question}: " * bool(question) + (", ".join(marked(part)) or "none")
            for question, part in self.by_question()
        )
        return {
            "winners": winners,
            "rule": plan.outcome.describe(),
            "electorate": f"{size.voters:,} voters, {size.options:,} options"
            + f" on {len(self.questions)} questions" * bool(self.questions),
            "mechanism": f"{plan.mechanism.name}: {plan.reason}",
            "decides": plan.decides,
            **{row.name: row.text for row in self.guarantee.rows() if row.key in _BRIEF},
        }

    def summary(self) -> str:
        """Return the outcome in a few lines."""
        return "\n".join(f"{name:<16}{value}" for name, value in self.brief().items())

    def statement(self) -> str:
        """Return the privacy statement for the person who signs off."""
        return self.guarantee.statement()


def marked(result: PollResult) -> list[str]:
    """Return the winners by name, each that is uncertain marked as such."""
    unsure = result.uncertain
    return [f"{name} ({UNCERTAIN})" if name in unsure else name for name in result.winners]


def result_of(
    ballots: PollBallots, plan: PollPlan, drawn: Drawn, guarantee: Guarantee, title: str
) -> PollResult:
    """Return what was drawn as a result."""
    names, counts, shares = ballots.options, drawn.counts, None
    ranked = np.arange(len(names))
    if plan.shares and counts is not None:
        ranked = np.concatenate([index[ranking(counts[index])] for index in plan.size.places])
        shares = tuple(_share(plan, names[index], int(counts[index])) for index in ranked)
    return PollResult(
        winners=tuple(names[index] for index in ranked[drawn.winners[ranked]]),
        uncertain=tuple(names[index] for index in _uncertain(plan, drawn)),
        shares=shares,
        options=names,
        questions=ballots.questions,
        plan=plan,
        roll=ballots.roll,
        notes=ballots.notes,
        sealed=_sealed(ballots, plan),
        guarantee=guarantee,
        title=title,
    )


def _uncertain(plan: PollPlan, drawn: Drawn) -> Iterator[int]:
    """Yield the winners that may have lost without noise.

    By noisy counts alone, which are paid for whether or not they are published.
    """
    counts, outcome = drawn.counts, plan.outcome
    for places in plan.size.places:
        for index in places[drawn.winners[places]].tolist():
            sure = plan.chance is None
            if sure and counts is not None and isinstance(outcome, Quota):
                sure = counts[index] - (plan.interval or 0) > outcome.bar(plan.size.voters)
            elif sure and counts is not None and not isinstance(outcome, Quota):
                ahead = places[counts[index] - counts[places] <= (plan.apart or 0)]
                sure = outcome.surely(index, ahead[ahead != index].tolist())
            if not sure:
                yield index


def _share(plan: PollPlan, option: str, count: int) -> Share:
    """Return a released count as a share; what no poll can have is cut off."""
    size, half = plan.size, plan.interval or 0
    share, low, high = (
        min(max((count + move) / size.voters, 0.0), float(size.each)) for move in (0, -half, half)
    )
    call = None
    if isinstance(plan.outcome, Quota):
        bar = plan.outcome.bar(size.voters)
        call = "above" if count - half > bar else "below" if count + half <= bar else "too close"
    return Share(option=option, count=count, share=share, low=low, high=high, call=call)


def _sealed(ballots: PollBallots, plan: PollPlan) -> Sealed:
    """Return the true counts, who wins by them, and which options a tie-break decides on."""
    names, counts = np.array(ballots.options, object), ballots.counts
    winners, ties = list[str](), list[str]()
    for indices in plan.size.places:
        won = plan.outcome.winners(counts[indices], ballots.voters)
        winners += names[indices[won]].tolist()
        if (
            isinstance(plan.outcome, Seats)
            and counts[indices[won]].min() == counts[indices[~won]].max()
        ):
            ties += names[indices[counts[indices] == counts[indices[won]].min()]].tolist()
    return Sealed(counts=counts, winners=tuple(winners), ties=tuple(ties), emptied=ballots.emptied)


Write = Callable[[PollResult], Mapping[str, str]]


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
    ledger: Any = None,
    dataset: str = "default",
    budget: float | None = None,
    seed: int | None = None,
    resume: bool = False,
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
    ledger, dataset, budget
        The ledger, the name in it of the people who vote, and the epsilon that all their polls may
        cost together; see :func:`privote.label`.
    seed
        An integer makes a simulation, which protects nobody and is marked as such.
    resume
        Finish an earlier call with the same arguments and ledger that did not return, at no further
        charge.

    Examples
    --------
    >>> import privote as pv
    >>> ballots = {"Ada": [1] * 90 + [0] * 10, "Bo": [0] * 100}
    >>> result = pv.poll(ballots, epsilon=2.0, delta=1e-6, seats=1)
    >>> result.winners, result.delta
    (('Ada',), 1e-06)
    """
    ballots = read(source, **reading)
    plan = plan_poll(
        ballots.size,
        outcome_of(seats, quota, ballots.costs, ballots.money),
        epsilon=epsilon,
        delta=delta,
        shares=shares,
        mechanism=mechanism,
        confidence=confidence,
    )
    account = Account(ledger=ledger, dataset=dataset, budget=budget)
    title = title or title_of(ballots, source)
    return Polling(ballots, plan, title, account, Entropy(seed)).result(resume=resume)


@dataclass(frozen=True, eq=False)
class Polling:
    """A poll that is read and planned: what it will cost, and then its result."""

    ballots: PollBallots
    plan: PollPlan
    title: str
    account: Account
    entropy: Entropy

    def __post_init__(self) -> None:
        self.cost.warn(self.ballots.voters)
        if self.plan.chance:
            warnings.warn(self.plan.chance, PrivoteWarning, stacklevel=4)

    @property
    def cost(self) -> Budget:
        """What the poll may cost."""
        return Budget(epsilon=self.plan.asked, delta=self.plan.delta)

    def request(self, output: str | None = None) -> Request:
        """Return what the poll asks of a ledger, by public numbers."""
        plan, size = self.plan, self.plan.size

        def price(epsilon: float) -> Floats:
            if epsilon == plan.asked:
                return plan.curve
            cost = Budget(epsilon=epsilon, delta=plan.delta)
            return calibrated(plan.mechanism, size, cost).rdp(size, DEFAULT_ORDERS)

        layout: dict[str, Any] = {"winners": (np.int8, (size.options,))}
        if isinstance(plan.mechanism, NoisyCounts):
            layout["counts"] = (np.int64, (size.options,))
        return Request(
            dataset=self.account.dataset,
            budget=self.account.budget,
            cost=self.cost,
            guarantee="poll",
            protects="a ballot",
            simulated=self.entropy.simulated,
            terms={
                "mechanism": plan.mechanism.facts(),
                "outcome": plan.outcome.describe(),
                "options": list(self.ballots.options),
                **{"voters": size.voters, "most": size.most, "each": size.each},
                **{"shares": plan.shares, "title": self.title},
            },
            price=price,
            layout=layout,
            room=(1 << 16) + 8 * len(json.dumps(self.ballots.options)),
            output=output,
        )

    def result(
        self, *, output: str | None = None, write: Write | None = None, resume: bool = False
    ) -> PollResult:
        """Reserve, draw, commit and deliver; the arguments are those of ``Labelling.release``."""
        with (
            Ledger.at(self.account.ledger) as ledger,
            ledger.reserve(self.request(output), resume=resume) as run,
        ):
            if run.outcome is None:
                self._draw(run)
            assert run.outcome is not None
            arrays = run.outcome.arrays
            drawn = Drawn(winners=arrays["winners"].astype(np.bool_), counts=arrays.get("counts"))
            guarantee = Guarantee.of_facts(run.outcome.facts)
            result = result_of(self.ballots, self.plan, drawn, guarantee, self.title)
            run.deliver({} if write is None else write(result))
        return result

    def _draw(self, run: Run) -> None:
        plan, drawn = self.plan, draw(self.plan, self.ballots, self.entropy)
        arrays = {"winners": drawn.winners.astype(np.int8)}
        if drawn.counts is not None:
            arrays["counts"] = drawn.counts.astype(np.int64)
        outcome = Outcome(arrays=arrays)
        guarantee = worded(
            Guarantee(
                kind="poll",
                epsilon=plan.epsilon,
                delta=plan.delta,
                mechanism=plan.mechanism.facts(),
                voters=plan.size.voters,
                released=f"who wins ({plan.outcome.describe()})"
                + " and noisy shares of all options" * plan.shares,
                protects=self._whose(),
                simulated=self.entropy.simulated,
                standing=run.standing,
                accountant=GAUSSIAN if "counts" in arrays else RENYI,
                notes=plan.notes,
                drawn=outcome.drawn,
            )
        )
        run.commit(
            Outcome(arrays=arrays, facts=guarantee.facts(), statement=guarantee.statement()),
            queries=len(plan.size.places),
        )

    def _whose(self) -> str:
        """Return what is protected: a person's ballot only where somebody says whose each is."""
        whose = "a ballot" if self.ballots.roll is None else "a person's ballot"
        return f"{whose} on all questions together" if self.ballots.questions else whose


def draw(plan: PollPlan, ballots: PollBallots, entropy: Entropy) -> Drawn:
    """Draw one question after the other; the price is that of all. Unbilled: the caller charged."""
    parts = [
        plan.mechanism.draw(ballots.counts[options], ballots.voters, plan.outcome, entropy)
        for options in plan.size.places
    ]
    counts = [part.counts for part in parts if part.counts is not None]
    winners = np.concatenate([part.winners for part in parts])
    return Drawn(winners=winners, counts=np.concatenate(counts) if counts else None)


def title_of(ballots: PollBallots, source: Any) -> str:
    """Return the title in a file, or else the file's name."""
    title = ballots.meta.get("TITLE") or ballots.meta.get("description")
    return title or (Path(source).stem if isinstance(source, str | Path) else "A poll")

"""What leaves a poll: winners, shares where they were paid for, and the statement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from .._version import written
from ..guarantees import Guarantee, Sealed, Shown, to_json
from ..release import digest_of_facts
from .ballots import PollBallots
from .mechanisms import Drawn
from .outcomes import Quota, Seats, ranking
from .planning import PollPlan

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

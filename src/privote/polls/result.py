"""What leaves a poll: winners, shares where they were paid for, and the statement."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .._version import written
from ..accounting.renyi import rounded_up
from ..ledger.records import digest_of
from ..planning.polls import PollPlan
from ..release import digest_of_facts

FORMAT = 1
_SAME = 0.99  # of the epsilon asked for: nothing to speak of is lost
UNCOUNTED = (
    "No ledger was kept: a second poll of the same people, or this one again with fresh noise, is "
    "not counted, and would have to be added to this promise."
)
SIMULATED = "Simulated: the noise came from a seed, so this protects nobody."


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
class PollSealed:
    """For the owner's eyes: the true counts and winners. No epsilon covers them."""

    counts: npt.NDArray[np.int64]
    winners: tuple[str, ...]
    emptied: int


@dataclass(frozen=True, kw_only=True, eq=False)
class PollResult:
    """What :func:`privote.poll` returns. Everything but ``sealed`` may be published.

    Attributes
    ----------
    winners
        By name: from the largest count down where counts were released, else in the poll's order.
    shares
        From the largest count down; None unless asked for.
    calls
        Neighbours in rank; empty without shares.
    apart
        Counts further apart than this are in their true order, all at once; None without shares.
        The plan's gap, but with a quota, where that is how far from the bar they are.
    options, plan
        Names of the options; what was drawn, its price and what it is good for.
    title, notes
        What the poll is called, and how its ballots were read.
    simulated
        True if a seed was given: then nobody is protected.
    people, ledger, budget
        Whose budget was charged, where, and what they may be asked in all; None without a ledger.
    new
        Whether nothing was charged to these people before.
    """

    winners: tuple[str, ...]
    shares: tuple[Share, ...] | None
    calls: tuple[Call, ...]
    apart: int | None
    options: tuple[str, ...]
    plan: PollPlan = field(repr=False)
    title: str
    notes: tuple[str, ...]
    simulated: bool
    people: str | None = None
    ledger: Mapping[str, Any] | None = None
    budget: Mapping[str, float] | None = None
    new: bool = False
    sealed: PollSealed = field(repr=False)

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
            "winners": list(self.winners),
            "voters": self.voters,
            "options": list(self.options),
            "most": plan.size.most,
            "each": plan.size.each,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighbours": "one person's ballot replaced by any other; the number of voters public",
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
        if self.shares is not None:
            made["interval"], made["apart"] = plan.interval, self.apart
            made["shares"] = [vars(share) for share in self.shares]
            made["calls"] = [vars(call) for call in self.calls]
        return {**made, "digest": digest_of_facts(made)}

    def json(self) -> str:
        """Return the facts as a file holds them."""
        return json.dumps(self.facts(), indent=2, ensure_ascii=False) + "\n"

    @property
    def digest(self) -> str:
        """A fingerprint of everything public: who publishes something else has another one."""
        return str(self.facts()["digest"])

    def brief(self) -> dict[str, str]:
        """Return the outcome in a few words each, by what they are about."""
        plan = self.plan
        return {
            "winners": ", ".join(self.winners) or "none",
            "rule": plan.outcome.describe(),
            "electorate": f"{self.voters:,} voters, {len(self.options):,} options",
            "epsilon, delta": f"{rounded_up(self.epsilon)}, {rounded_up(self.delta)}",
            "mechanism": f"{plan.mechanism.facts()['mechanism']}: {plan.reason}",
            "decides": self.decides(),
            **({"NEW": f"{self.people!r} had no charge in this ledger before"} if self.new else {}),
            **self._price_of_ledger(),
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
            part = " (more than there are voters, so chance decides)"
        return (
            f"options that are {plan.gap:,.0f} {unit} {plan.apart}{part}, all of them in "
            f"{100 * plan.confidence:g} of 100 polls"
        )

    def _price_of_ledger(self) -> dict[str, str]:
        """Return what later polls cost this one, where a ledger counts more strictly."""
        asked = self.plan.asked
        if self.people is None or self.epsilon > _SAME * asked:
            return {}
        return {
            "with a ledger": f"{rounded_up(asked)} of the budget is charged, so that later polls "
            f"add up. On its own this poll costs {rounded_up(self.epsilon, 3)}: without a ledger, "
            f"epsilon {rounded_up(asked)} takes less noise."
        }

    def statement(self) -> str:
        """Return the promise in plain words, one paragraph a line."""
        promise = f"({rounded_up(self.epsilon)}, {rounded_up(self.delta)})"
        times = "e^epsilon"  # for an epsilon whose factor no number holds
        if self.epsilon < 700:
            digits = 2 if self.epsilon < 4 else 0 if self.epsilon < 14 else None
            times = rounded_up(math.exp(self.epsilon), 3, places=digits)
        lines = [
            f"What is published here is {promise}-differentially private: replace any one person's "
            f"ballot by any other, and no outcome becomes more than {times} times as likely, plus "
            f"{rounded_up(self.delta)}: it tells no more than that of which of the two was cast. "
            f"The number of voters, {self.voters:,}, and the options are public.",
            f"Winners: {self.plan.outcome.describe()}, by noisy counting. {self._wrong()}",
        ]
        if self.shares is not None:
            lines.append(
                f"The intervals hold for all options at once with probability "
                f"{self.plan.confidence:g}; they follow from the noise alone. So do the calls."
            )
        if self.simulated:
            lines.insert(0, f"{SIMULATED} Without a seed this would hold:")
        lines.append(self._counted())
        lines.append("Settings chosen by looking at these ballots are not covered.")
        return "\n".join(lines)

    def _wrong(self) -> str:
        return f"Noise can change the outcome of a close race; it decides {self.decides()}."

    def _counted(self) -> str:
        if self.people is None:
            return UNCOUNTED
        assert self.budget is not None
        new = ", who are new to its ledger" if self.new else ""
        return (
            f"It is charged to the budget of {self.people!r}{new}: epsilon "
            f"{rounded_up(self.budget['epsilon'])} at delta {rounded_up(self.budget['delta'])} for "
            f"all polls of these people together, of which {rounded_up(self.budget['used'])} is "
            "used."
        )

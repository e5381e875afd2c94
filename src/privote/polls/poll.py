"""A poll, start to end: read, plan by public numbers, charge, draw, and say what may be said."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..accounting.renyi import DEFAULT_ORDERS, Floats
from ..entropy import Entropy
from ..errors import PrivoteWarning
from ..guarantees import GAUSSIAN, RENYI, Guarantee, worded
from ..ledger import Account, Budget, Ledger, Outcome, Request, Run
from .ballots import PollBallots
from .mechanisms import Drawn, NoisyCounts
from .outcomes import outcome_of
from .planning import PollPlan, calibrated, plan_poll
from .reading import read
from .result import PollResult, result_of

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

"""Policies: an adversary who chooses what to charge next from the labels released so far.

A ledger promises (epsilon, delta) for all charges together, also where mechanism, sigma, guarantee
and number of queries follow what was released. Here they do. One voter says yes to everything in
one world and no in the other. In every stage the adversary may pick any step from a menu, takes as
much of it as the ledger admits, and sees how many ones come out. Since that number tells all there
is to tell, every history is enumerated, and on each the step that helps most is taken: the best
policy over the menu, by backward induction. Its exact delta at the stated epsilon must not exceed
the stated delta.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import gammaln

from privote.accounting.allowance import FACTOR
from privote.accounting.filters import pinned_order
from privote.accounting.renyi import Floats, epsilon
from privote.errors import BudgetError, whole
from privote.ledger import Budget, Request
from privote.ledger.events import LedgerState, admit, raised
from privote.mechanisms import BinaryVoting

_MOST = 60  # draws of one step: more are not taken, so that histories can be listed


@dataclass(frozen=True)
class Step:
    """One charge: a mechanism, a guarantee, and queries or contributions (None: what fits)."""

    mechanism: BinaryVoting
    guarantee: str
    times: int | None = None


@dataclass(frozen=True)
class Poll:
    """The electorate: how many of the others say yes, with one voter whose votes are unknown."""

    voters: int
    yes: int

    def log_probs(self, mechanism: BinaryVoting) -> Floats:
        """Return log Pr[0], log Pr[1] of one draw without and with the voter's yes: (2, 2)."""
        votes = np.arange(self.voters)[None, :] < np.array([[self.yes], [self.yes + 1]])
        return np.asarray(np.log(mechanism.outcome_probabilities(votes[:, :, None])[:, 0, :]))


Admit = Callable[[Budget, Poll, Sequence[Step], Step], int]


def at_the_door(budget: Budget, poll: Poll, before: Sequence[Step], step: Step) -> int:
    """Return how many queries or contributions are admitted after these steps: the real door."""
    state = LedgerState()
    state.add((1, ""), "", raised(state, budget, "default"))
    for past in before:
        _charge(state, budget, poll, past)
    low, high = 0, step.times or (_MOST if step.guarantee == "worst-case" else _MOST // FACTOR)
    while low < high:
        middle = (low + high + 1) // 2
        try:
            admit(state, _request(budget, poll, replace(step, times=middle)))
        except BudgetError:
            high = middle - 1
        else:
            low = middle
    return low if step.times in (None, low) else 0


def _charge(state: LedgerState, budget: Budget, poll: Poll, step: Step) -> None:
    for event in admit(state, _request(budget, poll, step)):
        state.add((len(state.charges) + 2, ""), "", event)


def _request(budget: Budget, poll: Poll, step: Step) -> Request:
    """Return what a part of a budget asks of the ledger."""
    curve = (step.times or 0) * _each(poll, step)
    part = Budget(epsilon=(1 - 1e-6) * budget.epsilon, delta=budget.delta)  # not the whole
    return Request(
        dataset="default",
        cost=part,
        guarantee=step.guarantee,
        terms={"times": step.times},
        price=lambda _: curve,
    )


def _each(poll: Poll, step: Step) -> Floats:
    """Return what one query, or one contribution, costs."""
    if step.guarantee == "worst-case":
        return step.mechanism.worst_case_rdp(poll.voters, 1)
    return FACTOR * step.mechanism.contribution_rdp(poll.voters, 1)


def by_the_best_order(budget: Budget, poll: Poll, before: Sequence[Step], step: Step) -> int:
    """Return what fits if every sum may settle at its best order: wrong, for the audit to catch."""
    spent = sum((past.times or 0) * _each(poll, past) for past in before)
    wanted = step.times or (_MOST if step.guarantee == "worst-case" else _MOST // FACTOR)
    for fit in range(wanted, 0, -1):
        if epsilon(spent + fit * _each(poll, step), None, budget.delta) <= budget.epsilon:
            return fit if step.times in (None, fit) else 0
    return 0


@dataclass(frozen=True)
class PolicyReport:
    """What the adversary reached.

    Attributes
    ----------
    policies, histories
        How many best policies were found, each over its whole menu, and how many histories they
        were found on.
    ratio
        The largest true delta / stated delta.
    broken
        Seeds of the policies that exceed what is stated.
    """

    policies: int
    histories: int
    ratio: float
    broken: tuple[int, ...]

    @property
    def ok(self) -> bool:
        """True if no policy exceeds the stated delta."""
        return not self.broken

    def summary(self) -> str:
        """Return the findings in a line."""
        return (
            f"{'ok' if self.ok else 'BROKEN'}: {self.policies} best policies over a ledger, "
            f"{self.histories} histories, largest true delta / stated {self.ratio:.6f}"
            + (f"; exceeded with seeds {self.broken[:5]}" if self.broken else "")
        )


def policies(count: int = 20, *, seed: int = 0, admit: Admit = at_the_door) -> PolicyReport:
    """Try to break the promise of a ledger's budget by charges that follow released labels.

    Parameters
    ----------
    count, seed
        Policy i is made from ``seed + i``: budget, rule, electorate, first step and menu.
    admit
        Who says what still fits: the guardian, or a rule that is to be shown wrong.
    """
    whole("count", count)
    whole("seed", seed, 0)
    broken, largest, histories = [], 0.0, 0
    for each in range(seed, seed + count):
        game = Game.random(np.random.default_rng(each), admit)
        ratio = game.best() / game.budget.delta
        largest, histories = max(largest, ratio), histories + game.histories
        if ratio > 1:
            broken.append(each)
    return PolicyReport(count, histories, largest, tuple(broken))


class Game:
    """One budget, one electorate, and the menu of every stage."""

    def __init__(
        self, budget: Budget, poll: Poll, menus: Sequence[Sequence[Step]], admit: Admit
    ) -> None:
        self.budget, self.poll, self.menus = budget, poll, menus
        self.histories = 0
        self._admit = lru_cache(maxsize=None)(
            lambda before, step: admit(budget, poll, before, step)
        )

    @classmethod
    def random(cls, rng: np.random.Generator, admit: Admit) -> Game:
        """Return a game to try."""
        voters = int(rng.integers(1, 6))
        poll = Poll(voters, int(rng.integers(voters)) if rng.random() < 0.5 else 0)
        target = float(rng.choice([1.0, 2.0, 8.0, 8.0, 20.0]))
        budget, alone = Budget(epsilon=target, delta=1e-5), rng.random() < 0.25
        three = rng.random() < 0.25
        first = _mechanism(rng, target, 1.0 if three else 0.3)
        menus = [[Step(first, _guarantee(rng), int(rng.integers(2, 7 if three else 17)))]]
        for _ in range(2 if three else 1):
            dishes = [
                first if alone else _mechanism(rng, target, share)
                for share in np.geomspace(0.05, 20.0, 6 if three else 14)
            ]
            menus.append([Step(dish, _guarantee(rng)) for dish in dishes])
        return cls(budget, poll, menus, admit)

    def best(self) -> float:
        """Return the delta of the best policy, in the better direction for the adversary."""
        return max(self._best((), 0.0, 0.0), self._best((), 0.0, 0.0, turned=True))

    def _best(
        self, before: tuple[Step, ...], here: float, there: float, turned: bool = False
    ) -> float:
        """Return the most that histories from here on add to delta, given their log-weights."""
        stop = max(0.0, math.exp(here) - math.exp(self.budget.epsilon + there))
        if len(before) == len(self.menus):
            return stop
        options = [stop]
        for step in self.menus[len(before)]:
            fit = self._admit(before, step)
            if not fit:
                continue
            taken = Step(step.mechanism, step.guarantee, fit)
            one, two = self._draws(taken)
            one, two = (two, one) if turned else (one, two)
            self.histories += len(one)
            last = len(before) + 1 == len(self.menus)
            if last:
                gain = np.exp(here + one) - np.exp(self.budget.epsilon + there + two)
                options.append(float(np.maximum(gain, 0.0).sum()))
            else:
                options.append(
                    sum(
                        self._best((*before, taken), here + p, there + q, turned)
                        for p, q in zip(one.tolist(), two.tolist(), strict=True)
                    )
                )
        return max(options)

    def _draws(self, step: Step) -> tuple[Floats, Floats]:
        """Return the log-probabilities of the number of ones in both worlds.

        Under an allowance the voter spends its contributions on cells with one baseline in one
        world, and on cells with the other in the other: so the worlds differ in twice as many.
        """
        assert step.times is not None
        draws = step.times * (FACTOR if step.guarantee == "allowance" else 1)
        ones = np.arange(draws + 1)
        ways = gammaln(draws + 1) - gammaln(ones + 1) - gammaln(draws - ones + 1)
        logs = self.poll.log_probs(step.mechanism)
        with np.errstate(invalid="ignore"):
            worlds = [
                ways
                + np.where(ones > 0, ones * one, 0.0)
                + np.where(ones < draws, (draws - ones) * zero, 0.0)
                for zero, one in logs
            ]
        return worlds[0], worlds[1]


def _guarantee(rng: np.random.Generator) -> str:
    return str(rng.choice(["worst-case", "worst-case", "allowance"]))


def _mechanism(rng: np.random.Generator, target: float, share: float) -> BinaryVoting:
    """Return a mechanism of which a query costs about so much of the budget, in tenths."""
    cost = share * target / 10 * 10 ** rng.uniform(-0.3, 0.3)
    order = pinned_order(target, 1e-5)
    quota = None if rng.random() < 0.7 else float(rng.uniform(0.1, 0.9))
    return BinaryVoting(sigma=float(np.sqrt(order / cost)), quota=quota)

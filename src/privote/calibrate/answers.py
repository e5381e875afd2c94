"""How many of a sample's queries a budget answers, guarantee by guarantee.

Each counter takes a mechanism and returns the number of queries, the first ones, and the allowance
where there is one. Unless ``thorough``, slow mechanisms are priced at a few orders only, which can
understate the number but never overstate it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..accounting import ptr
from ..accounting.allowance import FACTOR, largest_count
from ..accounting.renyi import Floats, check_orders
from ..accounting.renyi import epsilon as to_epsilon
from ..errors import BudgetError, InputError, UnavailableError
from ..guardian.consensus import Levels
from ..mechanisms import BinaryVoting, Mechanism
from ..mechanisms.cells import CellTally
from ..mechanisms.classes import ClassTally
from .orders import FewOrders, Price, orders_around
from .sample import Sample

GUARANTEES = ("allowance", "worst-case", "ptr", "data-dependent")

_NEAR = 1  # orders on either side of the expected best one that a test is proposed at
_THIN = 4  # every fourth order, where the best one cannot be told beforehand
_STEP = 64  # queries of a slow mechanism priced at a time: little is priced beyond what fits


class Answered(NamedTuple):
    """How many queries are answered, and the allowance where there is one."""

    queries: int
    allowance: int | None = None


@dataclass(frozen=True, kw_only=True)
class Answers(ABC):
    """A sample, and the budget its queries have to fit."""

    #: Whether more noise never answers fewer queries.
    rises_with_noise: ClassVar[bool] = True
    #: Whether counting takes seconds even for Binary.
    slow: ClassVar[bool] = False

    sample: Sample
    epsilon: float
    delta: float
    few: FewOrders

    @abstractmethod
    def count(self, mechanism: Mechanism, *, thorough: bool = False) -> Answered:
        """Return how many of the first queries are answered."""

    @property
    def _size(self) -> tuple[int, int]:
        return self.sample.ballots.voters, self.sample.ballots.labels

    def _largest(self, mechanism: Mechanism, price: Price, thorough: bool) -> int:
        """Return how many times ``price(orders)`` fits the budget."""
        if thorough or isinstance(mechanism, BinaryVoting):
            orders = check_orders(None)
            return largest_count(price(orders), orders, self.epsilon, self.delta)
        return self.few.largest(price)


@dataclass(frozen=True, kw_only=True)
class UnderAllowance(Answers):
    """Queries until the first voter has run out; all of them are answered beyond, less well."""

    busiest: Any  # (queries,) surprises of the busiest voter so far

    def count(self, mechanism: Mechanism, *, thorough: bool = False) -> Answered:
        """Return how many queries are answered with nobody exhausted, and the allowance."""
        allowance = self._largest(
            mechanism,
            lambda orders: FACTOR * mechanism.surprise_rdp(*self._size, orders),
            thorough,
        )
        if allowance < 1:  # not a single surprise: `label` refuses, however quiet the voters are
            return Answered(0, 0)
        return Answered(int(np.searchsorted(self.busiest, allowance, side="right")), allowance)


@dataclass(frozen=True, kw_only=True)
class InWorstCase(Answers):
    """Plain composition of worst cases."""

    def count(self, mechanism: Mechanism, *, thorough: bool = False) -> Answered:
        """Return how many queries fit whatever the votes; at most as many as there are."""
        fit = self._largest(
            mechanism, lambda orders: mechanism.worst_case_rdp(*self._size, orders), thorough
        )
        return Answered(min(fit, self.sample.ballots.queries))


@dataclass(frozen=True, kw_only=True)
class AtExactPrices(Answers):
    """The exact, data-dependent cost of each query, added up."""

    rises_with_noise: ClassVar[bool] = False

    def count(self, mechanism: Mechanism, *, thorough: bool = False) -> Answered:
        """Return how many queries fit at the prices of these very votes."""
        fast = isinstance(mechanism, BinaryVoting)
        orders = check_orders(None)
        if not (thorough or fast):
            orders = orders[::_THIN]
        total, answered = np.zeros(len(orders)), 0
        for part in self._parts(mechanism, None if fast else _STEP):
            sums = total + np.cumsum(mechanism.cost(part, orders, "exact"), axis=0)
            fit = self._last_that_fits(sums, orders)
            answered += fit
            if fit < len(sums):
                break
            total = sums[-1]
        return Answered(answered)

    def _last_that_fits(self, sums: Floats, orders: Floats) -> int:
        """Return how many of the running sums (queries, orders) fit the budget."""

        def fits(queries: int) -> bool:
            curve = sums[queries - 1]
            return float(np.max(to_epsilon(curve, orders, self.delta))) <= self.epsilon

        return _last(fits, len(sums))

    def _parts(self, mechanism: Mechanism, step: int | None) -> Iterator[Any]:
        for _, block in self.sample.blocks(mechanism):
            tally = mechanism.tally(block)
            for start in range(0, block.queries, step or block.queries):
                yield _slice(tally, slice(start, start + (step or block.queries)))


@dataclass(frozen=True, kw_only=True)
class AfterTest(Answers):
    """Propose-test-release: queries with which these votes pass the test, 99 times in 100."""

    rises_with_noise: ClassVar[bool] = False
    slow: ClassVar[bool] = True

    seen: list[int] = field(default_factory=list)  # what was counted before: a guess for the next

    def count(self, mechanism: Mechanism, *, thorough: bool = False) -> Answered:
        """Return the most queries, by bisection, that were seen to pass."""
        assert isinstance(mechanism, BinaryVoting)
        orders = check_orders(None)
        if not thorough:
            orders = orders_around(self.epsilon, self.delta, _NEAR)
        tallies = [mechanism.tally(block) for _, block in self.sample.blocks(mechanism)]
        margins = np.concatenate([tally.margins for tally in tallies])

        def passes(queries: int) -> bool:
            tally = replace(tallies[0], margins=margins[:queries])
            return self._passes(mechanism, tally, orders)

        self.seen.append(_last(passes, len(margins), self.seen[-1] if self.seen else 1))
        return Answered(self.seen[-1])

    def _passes(self, mechanism: BinaryVoting, tally: CellTally, orders: Floats) -> bool:
        levels = Levels.of(mechanism, self.sample.ballots)
        assert levels is not None
        levels.add(tally)
        try:
            proposal = ptr.propose(
                levels.costs(orders),
                orders,
                tally.margins.size,
                self.epsilon,
                self.delta,
                reach=levels.reach,
            )
        except BudgetError:
            return False
        table = levels.costs(np.array([proposal.order]))[0]
        slack = ptr.distance(table, levels.histogram, proposal.threshold, levels.reach)
        return slack >= proposal.depth


def _last(fits: Callable[[int], bool], most: int, guess: int | None = None) -> int:
    """Return the last of 1..most that fits, by bisection; 0 if not even the first does.

    Where trying is slow, a good ``guess`` saves most of it: steps away from it double.
    """
    low, high = 0, most + 1
    probe, step = (most if guess is None else min(max(guess, 1), most)), 1
    while high - low > 1:
        if fits(probe):
            low, ahead = probe, probe + step
        else:
            high, ahead = probe, probe - step
        step *= 2
        inside = low < ahead < high and not (low > 0 and high <= most)
        probe = ahead if inside and guess is not None else (low + high) // 2
    return low


def _slice(tally: Any, rows: slice) -> Any:
    """Return some queries of a tally."""
    if isinstance(tally, CellTally):
        return replace(tally, margins=tally.margins[rows])
    assert isinstance(tally, ClassTally)
    return replace(tally, profiles=tally.profiles[rows], winners=tally.winners[rows])


def answers(
    guarantee: str, sample: Sample, counting: Mechanism, epsilon: float, delta: float
) -> Answers:
    """Return the counter of a guarantee, by its name."""
    few = FewOrders(epsilon, delta)
    if guarantee == "allowance":
        busiest = sample.busiest(counting)
        return UnderAllowance(sample=sample, epsilon=epsilon, delta=delta, few=few, busiest=busiest)
    kinds: dict[str, type[Answers]] = {
        "worst-case": InWorstCase,
        "ptr": AfterTest,
        "data-dependent": AtExactPrices,
    }
    if guarantee not in kinds:
        raise InputError(f"guarantee must be one of {', '.join(GUARANTEES)}, got {guarantee!r}")
    if guarantee == "ptr" and not isinstance(counting, BinaryVoting):
        raise UnavailableError(
            f"guarantee 'ptr' is calibrated for binary voting only, not for {counting.name}"
        )
    return kinds[guarantee](sample=sample, epsilon=epsilon, delta=delta, few=few)

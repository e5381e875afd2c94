"""Whether a budget admits a run: decided on public numbers and the ledger's state, nothing else.

A run whose epsilon and delta are the budget's, with nothing charged before, is *whole*: its own
exact price holds, and it stays alone in the budget. Every other run is a *part*: it counts by its
Rényi cost at the budget's order, and is refused where that does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..accounting.filters import check_charge, largest_part
from ..accounting.renyi import DEFAULT_ORDERS, Floats, rounded_up
from ..errors import BudgetError, InputError
from .events import (
    AllowanceState,
    Budget,
    BudgetScope,
    BudgetSet,
    Charged,
    Counts,
    LedgerState,
    check_name,
)


@dataclass(frozen=True, kw_only=True)
class Account:
    """Whom a run is charged to.

    Attributes
    ----------
    ledger
        A ledger, or its place; None where the budget is for one call.
    dataset
        Whose data: a name in the ledger.
    budget
        What all runs of the data set may cost together, if the ledger does not know it yet; None
        for what the first run costs.
    """

    ledger: Any = None
    dataset: str = "default"
    budget: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class AllowanceRequest:
    """An allowance that a run opens, or goes on with.

    Attributes
    ----------
    terms
        What else an allowance is for: only the same terms go on with it.
    voters, names
        How many are registered; their names, or None where they are known by their place.
    wanted
        Contributions for life of each voter: (voters,); None where that is learnt.
    queries, planned
        How many are asked now; and for how many the allowance is learnt in all.
    plans
        Whether somebody asked for that number.
    lasts
        Whether a later run may go on with it.
    """

    terms: Mapping[str, Any]
    voters: int
    names: Sequence[str] | None = None
    wanted: Counts | None = None
    queries: int | None = None
    planned: int | None = None
    plans: bool = False
    lasts: bool = True


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """What a run asks of a ledger: public numbers only.

    Attributes
    ----------
    dataset, budget
        As in :class:`Account`.
    cost
        What the run may cost, alone.
    guarantee, protects, simulated, terms
        The kind of guarantee, whom it protects, whether the noise has a seed, and every other
        public term: a run that is resumed repeats them all.
    price
        The Rényi curve of such a run by its epsilon; None where the cost depends on the votes.
    allowance
        The allowance that pays for it, if any.
    layout
        Type and shape of every array of the outcome, by name: fixed by public numbers.
    room
        Bytes that words and numbers about the outcome need at most.
    output
        Where the outcome goes: with the terms, what the run is known by.
    """

    dataset: str
    cost: Budget
    guarantee: str
    terms: Mapping[str, Any]
    price: Callable[[float], Floats] | None
    budget: float | None = None
    protects: str = "a voter"
    simulated: bool = False
    allowance: AllowanceRequest | None = None
    layout: Mapping[str, tuple[npt.DTypeLike, tuple[int, ...]]] = field(default_factory=dict)
    room: int = 1 << 16
    output: str | None = None

    def __post_init__(self) -> None:
        check_name("dataset", self.dataset)

    @property
    def size(self) -> int:
        """How many bytes the outcome has."""
        arrays = (np.dtype(kind).itemsize * int(np.prod(of)) for kind, of in self.layout.values())
        return self.room + sum(arrays)

    def cost_at(self, order: float, epsilon: float | None = None) -> float:
        """Return what the run, or one like it at another epsilon, costs at an order."""
        if self.price is None:
            return 0.0
        curve = check_charge(self.price(self.cost.epsilon if epsilon is None else epsilon))
        return float(curve[int(np.searchsorted(DEFAULT_ORDERS, order))])


def admit(state: LedgerState, request: Request) -> tuple[*tuple[BudgetSet, ...], Charged]:
    """Return the events that charge a run: its budget, if that is new, and the charge; or raise."""
    scope, cost, whole, price = authorise(state, request), request.cost, False, None
    if request.price is not None:
        asked = (cost.epsilon, cost.delta)
        whole = not scope.epsilons and asked == (scope.budget.epsilon, scope.budget.delta)
        price = request.cost_at(scope.budget.filter.order)
        if not whole and not scope.admits(price):
            raise refusal(scope, request)
    charge = Charged(
        dataset=scope.name,
        epsilon=cost.epsilon,
        delta=cost.delta,
        protects=request.protects,
        guarantee=request.guarantee,
        terms=request.terms,
        cost=None if whole else price,
        whole=whole,
        conditional=request.price is None,
        simulated=request.simulated,
    )
    return (charge,) if scope.name in state.scopes else (_budget(scope.name, scope.budget), charge)


def _budget(dataset: str, budget: Budget) -> BudgetSet:
    order = budget.filter.order  # fixed with the first, for good
    return BudgetSet(dataset=dataset, epsilon=budget.epsilon, delta=budget.delta, order=order)


def raised(state: LedgerState, budget: Budget, dataset: str) -> BudgetSet:
    """Return the event that sets a data set's budget, or raises it; or refuse another change."""
    scope = state.scopes.get(dataset)
    if scope is None:
        return _budget(dataset, budget)
    if scope.whole:
        raise BudgetError(f"one run took the whole budget of data set {dataset!r}")
    if budget.delta != scope.budget.delta or budget.epsilon < scope.budget.epsilon:
        raise BudgetError(
            f"the budget of data set {dataset!r} is {scope.budget}: only its epsilon can be "
            f"raised; you asked for {budget}"
        )
    return _budget(dataset, replace(scope.budget, epsilon=budget.epsilon))


def nothing_left(event: BudgetSet) -> str:
    """Say, before the charge, that a run without a budget leaves nothing for others."""
    return (
        f"data set {event.dataset!r} is new, and no budget was set: it is this run's epsilon "
        f"{rounded_up(event.epsilon)}, and nothing will be left for other runs. To leave some, set "
        "a larger budget first (`privote ledger budget`)"
    )


def authorise(state: LedgerState, request: Request) -> BudgetScope:
    """Return the data set's scope; refuse another budget, kind or unit than it keeps to."""
    cost, name = request.cost, state.known(request.dataset)
    scope = state.scopes.get(name)
    if scope is None:
        epsilon = cost.epsilon if request.budget is None else request.budget
        return BudgetScope(name, Budget(epsilon=epsilon, delta=cost.delta))
    budget = scope.budget
    if cost.delta != budget.delta:
        raise BudgetError(
            f"delta must be {rounded_up(budget.delta)}, that of the budget of data set {name!r}, "
            f"got {rounded_up(cost.delta)}"
        )
    if request.budget is not None and request.budget != budget.epsilon:
        raise BudgetError(
            f"the budget of data set {name!r} is {budget}; you asked for epsilon "
            f"{rounded_up(request.budget)}. Only `privote ledger budget` raises it"
        )
    conditional = request.price is None
    if scope.conditional not in (None, conditional):
        kind = "data-dependent" if scope.conditional else "unconditional"
        raise BudgetError(
            f"data set {name!r} is for {kind} releases only: the two kinds of guarantee cannot be "
            "combined on the same votes"
        )
    # Who has several records loses more from a release that protects one than the sum says.
    unit, other = (whom.partition(" (")[0] for whom in (request.protects, scope.protects or ""))
    if other not in ("", unit):
        raise BudgetError(
            f"data set {name!r} protects {other}: it cannot be combined with a release that "
            f"protects {unit}. Name another data set"
        )
    return scope


def refusal(scope: BudgetScope, request: Request) -> BudgetError:
    """Return the refusal of a run that does not fit, with what could still be asked."""
    text = (
        f"epsilon {rounded_up(request.cost.epsilon)} does not fit into what is left of the budget "
        f"of data set {scope.name!r} (epsilon {rounded_up(scope.budget.epsilon)}, "
        f"{100 * (scope.share or 0.0):.0f} % used)"
    )
    if scope.whole:
        return BudgetError(
            f"{text}: one run took all of it. A run that is planned for more queries than it asks "
            "(`plan_for`) pays for later ones, too"
        )
    order = scope.budget.filter.order
    largest = largest_part(
        lambda epsilon: request.cost_at(order, epsilon), scope.room, request.cost.epsilon
    )
    if not largest:
        return BudgetError(f"{text}: no run fits")
    return BudgetError(f"{text}. {still(scope, largest)}")


def still(scope: BudgetScope, largest: float) -> str:
    """Say what could still be asked: one run at the largest epsilon, or several at a smaller."""
    text = f"You can still ask: one run at epsilon {largest:g} or less"
    smaller = float(f"{largest / 4:.1g}")
    runs = scope.runs_at(smaller)
    return f"{text}, or {runs} at epsilon {smaller:g}" if runs > 1 else text


def after(state: LedgerState, request: Request) -> BudgetScope:
    """Return the data set's scope as it will be once a run is charged; or raise."""
    *_, charge = admit(state, request)
    scope = authorise(state, request)
    return replace(
        scope,
        spent=scope.spent + (charge.cost or 0.0),
        epsilons=[*scope.epsilons, charge.epsilon],
        whole=scope.whole or charge.whole,
        conditional=charge.conditional,
    )


def pays(account: AllowanceState, wanted: AllowanceRequest, digests: Sequence[str] | None) -> bool:
    """Return whether an allowance for the same terms is of these voters, and may pay for a run."""
    names = wanted.names
    if digests and names and seats_of(account, names, digests) is None:
        return False
    if account.remaining is None or wanted.plans:
        return True
    return not account.lost and account.remaining >= (wanted.queries or 0)


def continued(account: AllowanceState, wanted: AllowanceRequest) -> None:
    """Refuse to go on with an allowance that is lost, in use, or not what was asked for."""
    if account.run is not None:
        raise BudgetError(
            f"run {account.run} of this allowance is not finished: resume it, or end it with "
            f"`privote ledger abandon {account.run}`"
        )
    if account.lost:
        raise BudgetError(
            "a run of this allowance failed after it was charged, so nobody knows what is left of "
            "the allowance: it counts as spent"
        )
    planned = account.charge.planned
    if planned is None:
        return
    if wanted.plans and wanted.planned != planned:
        raise BudgetError(
            f"this allowance was learnt for {planned:,} queries in total, which cannot be changed; "
            f"got `plan_for={wanted.planned}`"
        )
    if account.answered + (wanted.queries or 0) > planned:
        raise BudgetError(
            f"this allowance was learnt for {planned:,} queries in total, and "
            f"{account.answered:,} are answered: {wanted.queries:,} more do not fit"
        )


def seats_of(
    account: AllowanceState, names: Sequence[str], digests: Sequence[str]
) -> Counts | None:
    """Return the seat of each named voter; None where none of them is registered.

    Voters are found whatever their order, and also if others of the same account are absent. All
    who are named must be in it, or none: so a voter has one allowance under the same terms.
    """
    seats = [(account.seats or {}).get(digest) for digest in digests]
    strangers = [name for name, seat in zip(names, seats, strict=True) if seat is None]
    if len(strangers) == len(names):
        return None
    if strangers:
        raise InputError(
            "voter_ids",
            "names a voter who is not registered: the voters of an allowance are fixed when it is "
            "charged",
            sealed=f"it is {strangers[0]!r:.60}",
        )
    return np.array(seats, np.int64)

"""Look before you pay: what a run costs and leaves, and what to expect, from public numbers."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

from privote.accounting.allowance import line, mu_of_budget
from privote.accounting.renyi import DEFAULT_ORDERS, Floats, rounded_up
from privote.guarantees import PERSON, RECORD
from privote.ledger import Account, Budget, Ledger, Request
from privote.ledger.events import continued, still

from .output import print_json, say


def look(
    request: Request, account: Account, *notes: str, outlook: str | None = None
) -> dict[str, Any]:
    """Return what to say before a run is charged, by name; nothing is written or charged.

    The outlook is of noise that is still to be set; an allowance that goes on has its own.

    Raises
    ------
    BudgetError
        If the budget does not admit the run.
    """
    place = account.ledger
    expected = [outlook, *notes] if outlook else [*notes]
    asked = f"epsilon {rounded_up(request.cost.epsilon)} at delta {rounded_up(request.cost.delta)}"
    if place is None:
        cost = f"This run costs {asked} at most. "
        cost += "Without a ledger, other releases of the data add to it."
        return {"cost": cost, "expected": expected}
    # A ledger that is new has no anchor yet, and is not made here.
    new = not place.head.exists()
    with closing(Ledger.in_memory() if new else Ledger.open(place, readonly=True)) as ledger:
        facts = _quoted(ledger, request, asked)
    known = facts.pop("noise", None)
    return {**facts, "expected": expected if known is None else [known, *notes]}


def _quoted(ledger: Ledger, request: Request, asked: str) -> dict[str, Any]:
    state = ledger.state
    name = state.known(request.dataset)
    run = ledger.find(request)
    if run is not None and not run.finished:
        rule = "finish it with --resume, or end it with privote ledger abandon"
        return {"cost": f"Run {run.number} with these terms is charged already: {rule}."}
    charge = ledger.allowance_for(state, request)
    if charge is not None and request.allowance is not None:
        continued(state.accounts[charge], request.allowance)
        paid = {"cost": "This run continues an allowance that is paid for: it costs nothing more."}
        sigma = (state.accounts[charge].mechanism or {}).get("sigma")
        if sigma is not None:
            noise = "The standard deviation of the noise on a tally is that of the runs before"
            paid["noise"] = f"{noise}: {sigma:.3g} votes."
        return paid
    scope = ledger.quote(request)
    known = "" if name in state.scopes else " The data set is new in this ledger."
    facts = {"dataset": name, "budget": scope.budget.epsilon, "new": name not in state.scopes}
    if request.price is None:
        cost = f"What this run costs depends on the votes; {asked} is a target that may be exceeded"
        return {**facts, "cost": f"{cost}. It is charged to data set {name!r}.{known}"}
    if scope.whole:
        cost = f"This run costs {asked}: the whole budget of data set {name!r}.{known} Nothing "
        return {**facts, "cost": f"{cost}will be left for other runs.", "left": 0.0}
    left, share = scope.largest(), 100 * (scope.share or 0.0)
    return {
        **facts,
        "cost": f"This run costs {asked}. Afterwards {share:.0f} % of the budget of data set "
        f"{name!r} (epsilon {rounded_up(scope.budget.epsilon)}) will be used.{known}",
        "left": left,
        "still": f"{still(scope, left)}." if left else "No other run fits after it.",
    }


def gaussian(account: Account, cost: Budget, persons: bool) -> Request:
    """Return what a training asks of a ledger, about: as if all its noise were Gaussian."""

    def price(epsilon: float) -> Floats:
        return line(0.0, mu_of_budget(epsilon, cost.delta, 0.0)) * DEFAULT_ORDERS

    request = Request(
        dataset=account.dataset, cost=cost, guarantee="training", terms={}, price=price
    )
    return replace(request, budget=account.budget, protects=PERSON if persons else RECORD)


def print_look(facts: dict[str, Any], *, stop: bool, json: bool) -> None:
    """Say it: on stderr before a run; a dry run has nothing else to say, on stdout."""
    if stop and json:
        print_json(facts)
        return
    lines = [facts.get("votes"), facts["cost"], facts.get("still"), *facts["expected"]]
    lines += ["Dry run: nothing was charged or drawn."] if stop else []
    say("\n".join(filter(None, lines)), err=not stop)

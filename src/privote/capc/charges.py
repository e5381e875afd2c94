"""What a batch costs each answering party, and the ledger entries that say so.

One budget per answering party (the data set is the party, the consumer the querying party). All
of it is decided on the public terms, before anything is seen: charged first, released later.

Worst case: every query costs each party the mechanism's worst case. Allowance: each party has V
contributions for each querying party; their whole cost, 2 V contributions (:mod:`privote.accounting
.allowance`), is charged once, at the first batch; all that V bounds is counted in secret.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from typing import Any

import numpy as np

from ..accounting.allowance import FACTOR, MOST
from ..accounting.filters import fitting
from ..accounting.renyi import DEFAULT_ORDERS, Floats, epsilon
from ..errors import BudgetError, LedgerError, PeerError
from ..ledger import Budget, Ledger, Request
from ..ledger.events import Charged, Committed, Delivered, LedgerState, Reserved
from ..mechanisms import Mechanism
from .noise import SharedNoise
from .terms import PROMISE, Terms

UNKNOWN, RESERVED, COMMITTED = "unknown", "reserved", "committed"  # states of a batch
# The curves of several querying parties add up to what was checked only up to rounding.
_ROUNDING = 1e-12


class Prices:
    """What queries and contributions cost under public terms; nothing here has seen a vote."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms

    def each(self, querier: str) -> Floats:
        """Return what a query, or a contribution, costs a party at most: (orders,)."""
        terms = self.terms
        kind = "contribution_rdp" if terms.allowance else "worst_case_rdp"
        return _curve(_priced(terms), kind, len(terms.voters(querier)), len(terms.labels))

    def allowance(self, party: str) -> int:
        """Return V: how many contributions a party has for each querying party, for life.

        The largest number that keeps the party's budget if every querying party uses its own.
        """
        terms = self.terms
        voters = tuple(len(terms.voters(asker)) for asker in terms.queriers if asker != party)
        return _largest(_priced(terms), voters, len(terms.labels), terms.epsilon, terms.delta)

    def allowances(self, querier: str) -> dict[str, int]:
        """Return V of everybody who answers this querying party; of nobody without an allowance."""
        voters = self.terms.voters(querier) if self.terms.allowance else ()
        return {party: self.allowance(party) for party in voters}


def _priced(terms: Terms) -> Mechanism | SharedNoise:
    """Return what says what a query costs: the mechanism, or the noise that the sites draw."""
    return terms.counted.shared or terms.mechanism


# Parties of the same size have the same prices, and finding them takes a while.
@lru_cache(maxsize=256)
def _curve(priced: Mechanism | SharedNoise, kind: str, voters: int, labels: int) -> Floats:
    curve: Floats = getattr(priced, kind)(voters, labels, DEFAULT_ORDERS)
    return curve


@lru_cache(maxsize=1024)
def _largest(
    priced: Mechanism | SharedNoise,
    voters: tuple[int, ...],
    labels: int,
    budget: float,
    delta: float,
) -> int:
    """Return the largest equal share of an allowance, one for each size of electorate."""
    each = np.max([_curve(priced, "contribution_rdp", n, labels) for n in voters], axis=0)
    filter_ = Budget(epsilon=budget, delta=delta).filter
    cost = FACTOR * len(voters) * each[int(np.searchsorted(DEFAULT_ORDERS, filter_.order))]
    within = budget * (1 if len(voters) == 1 else 1 - _ROUNDING)
    return replace(filter_, budget=within).fitting(0.0, float(cost), MOST)


class Charges:
    """Reserves and commits batches at the guardian's ledger; all that capc wants of it is here.

    Parameters
    ----------
    terms, ledger
        What was agreed, and where it is recorded.
    simulated
        Whether noise or masks have a seed; recorded with every charge.
    insecure
        Whether the engine hides nothing; recorded with every charge.
    journal
        The identity of the journal that counts what was charged. Another one's counts would begin
        anew, so it is refused.
    """

    def __init__(
        self, terms: Terms, ledger: Ledger, *, simulated: bool, insecure: bool, journal: str
    ) -> None:
        self.terms, self.ledger, self.prices = terms, ledger, Prices(terms)
        self._simulated, self._insecure, self._journal = simulated, insecure, journal

    def state(self, batch: str) -> str:
        """Return whether a batch is unknown, reserved or committed."""
        run = self.ledger.state.latest(batch)
        if run is None:
            return UNKNOWN
        if run.finished and run.commit is None:
            raise BudgetError("this batch was abandoned at the guardian")
        return RESERVED if run.commit is None else COMMITTED

    def reserve(self, querier: str, queries: int, batch: str) -> None:
        """Charge a batch to everybody who answers, durably; or BudgetError, and charge nothing.

        A batch that is charged is not charged again. All of it is one transaction.
        """
        with self.ledger.transaction() as state:
            run = state.latest(batch)
            if run is None:
                voters = self.terms.voters(querier)
                charges = [self._charge(state, party, querier, queries) for party in voters]
                holder = secrets.token_hex(8)
                self.ledger.append(Reserved(key=batch, holder=holder, charge=charges[0]))
            elif state.charges[run.reserved.charge].consumer != querier:
                raise PeerError("this batch is another querying party's")

    def commit(self, batch: str, outcome: str) -> bool:
        """Enter, once, that a batch is released; return whether it is: not one that was abandoned.

        ``outcome`` is the digest of this side's share.
        """
        with self.ledger.transaction() as state:
            run = state.latest(batch)
            if run is None:
                return False
            if run.commit is None and not run.finished:
                number, holder = run.number, run.holder
                self.ledger.append(Committed(run=number, holder=holder, drawn=outcome))
                self.ledger.append(Delivered(run=number, holder=holder))
            return run.commit is not None

    def _charge(self, state: LedgerState, party: str, querier: str, queries: int) -> int:
        """Charge one party, or find its allowance, which is charged once; return the entry."""
        terms, each, facts = self.terms, self.prices.each(querier), dict[str, Any]()
        public = {
            "coalition": terms.name,
            "promise": terms.digest(PROMISE),
            "mechanism": terms.mechanism.parameters(),
            "labels": len(terms.labels),
            **({"insecure": True} if self._insecure else {}),
        }
        if terms.allowance:
            allowance = self.prices.allowance(party)
            named = json.dumps([public, party, querier, self._simulated], sort_keys=True)
            account = sha256(named.encode()).hexdigest()
            for entry, charge in state.charges.items():
                if charge.account == account:
                    self._check_account(charge, allowance)
                    return entry
            times, public["journal"] = FACTOR * allowance, self._journal
            facts = {"account": account, "voters": 1, "allowance": allowance}
        else:
            times, public["queries"] = queries, queries
        cost = float(epsilon(times * each, DEFAULT_ORDERS, terms.delta))

        def price(alone: float) -> Floats:
            fits = times if alone >= cost else fitting(each, alone, terms.delta, times)
            return fits * each

        request = Request(
            dataset=party,
            budget=terms.epsilon,
            cost=Budget(epsilon=cost, delta=terms.delta),
            guarantee=terms.guarantee,
            terms=public,
            price=price,
            simulated=self._simulated,
        )
        return self.ledger.charge(state, request, consumer=querier, **facts)

    def _check_account(self, known: Charged, allowance: int) -> None:
        """Refuse to go on with a charge whose count is elsewhere, or that paid for another V."""
        what = f"the allowance of {known.dataset} for {known.consumer}"
        if known.terms["journal"] != self._journal:
            raise LedgerError(f"{what} is counted in another journal: restore the one in use")
        if known.allowance != allowance:
            raise LedgerError(f"{what} was {known.allowance} when charged, it would be {allowance}")

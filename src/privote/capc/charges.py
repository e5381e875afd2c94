"""What a batch costs each answering party, and the ledger entries that say so.

One budget per answering party (the data set is the party, the consumer the querying party). All
of it is decided on the public terms, before anything is seen: charged first, released later.

Worst case: every query costs each party the mechanism's worst case. Allowance: each party has V
contributions for each querying party; their whole cost, 2 V contributions (:mod:`privote.accounting
.allowance`), is charged once, at the first batch; all that V bounds is counted in secret.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..accounting.allowance import FACTOR, MOST
from ..accounting.renyi import DEFAULT_ORDERS, Floats, epsilon
from ..errors import LedgerError
from ..guardian import Accounts
from ..ledger import Budget, Ledger
from ..ledger.totals import Account, Totals
from ..mechanisms import Mechanism
from .noise import SharedNoise
from .terms import Terms

if TYPE_CHECKING:
    from .journal import GuardianJournal

UNKNOWN, RESERVED, COMMITTED = "unknown", "reserved", "committed"  # states of a batch

# The curves of several querying parties add up to what was checked only up to rounding.
_ROUNDING = 1e-12
_PARTS = 1000  # of a query, where queries of different prices are mixed


class Prices:
    """What queries and contributions cost under public terms; nothing here has seen a vote."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms

    def each(self, querier: str) -> Floats:
        """Return what a query, or a contribution, costs a party at most: (orders,)."""
        return self._curve(self.terms.priced, len(self.terms.voters(querier)))

    def allowance(self, party: str) -> int:
        """Return V: how many contributions a party has for each querying party, for life.

        The largest number that keeps the party's budget if every querying party uses its own.
        """
        terms, labels = self.terms, len(self.terms.labels)
        return _largest(terms.priced, self._sizes(party), labels, terms.epsilon, terms.delta)

    def allowances(self, querier: str) -> dict[str, int]:
        """Return V of everybody who answers this querying party; of nobody without an allowance."""
        voters = self.terms.voters(querier) if self.terms.allowance else ()
        return {party: self.allowance(party) for party in voters}

    def charged(self, querier: str, queries: int) -> dict[str, float]:
        """Return the epsilon charged to each party for a batch; for an allowance, for all of them.

        Shares of the budget, and not what bounds this querying party's labels: an answering model
        may have learnt from labels that others received, and carries what those say of a party's
        data into these. Only the whole budget is true for everybody (ACCOUNTING, section 11).
        """
        costs = {}
        for party in self.terms.voters(querier):
            times = FACTOR * self.allowance(party) if self.terms.allowance else queries
            curve = times * self.each(querier)
            costs[party] = float(epsilon(curve, DEFAULT_ORDERS, self.terms.delta))
        return costs

    def if_known(self, querier: str, shares: int) -> float:
        """Return what the budget becomes towards whoever knows so many of the sites' shares.

        As many queries, or contributions, as the budget pays for, with the noise that then remains;
        all who ask may have used it, also one with fewer voters, of whose noise less remains.
        """
        noise, terms = self.terms.shared, self.terms
        assert noise is not None
        room = _settled(terms.epsilon, terms.delta).filter(DEFAULT_ORDERS).fitting
        found = []
        for sizes in {frozenset(self._sizes(party)) for party in terms.voters(querier)}:
            if shares >= min(sizes):
                return math.inf
            # Any mix of sizes costs at most the dearest one in its place, which takes fractions.
            parts, more = (1, 0) if len(sizes) == 1 else (_PARTS, 1)
            curves = []
            for size in sizes:
                times = (room(self._curve(noise, size) / parts, MOST) + more) / parts
                curves.append(times * self._curve(noise.without(shares), size))
            curve = np.max(curves, axis=0)
            found.append(float(epsilon(curve, DEFAULT_ORDERS, terms.delta)))
        return max(found)

    def _curve(self, mechanism: Mechanism | SharedNoise, voters: int) -> Floats:
        kind = "contribution_rdp" if self.terms.allowance else "worst_case_rdp"
        return _curve(mechanism, kind, voters, len(self.terms.labels))

    def _sizes(self, party: str) -> tuple[int, ...]:
        """Return how many voters each of those has who may ask this party."""
        terms = self.terms
        return tuple(len(terms.voters(asker)) for asker in terms.queriers if asker != party)


# Parties of the same size have the same prices, and finding them takes a while.
@lru_cache(maxsize=256)
def _curve(mechanism: Mechanism | SharedNoise, kind: str, voters: int, labels: int) -> Floats:
    curve: Floats = getattr(mechanism, kind)(voters, labels, DEFAULT_ORDERS)
    return curve


@lru_cache(maxsize=1024)
def _largest(
    mechanism: Mechanism | SharedNoise,
    voters: tuple[int, ...],
    labels: int,
    budget: float,
    delta: float,
) -> int:
    """Return the largest equal share of an allowance, one for each size of electorate."""
    each = np.max([_curve(mechanism, "contribution_rdp", n, labels) for n in voters], axis=0)
    within = budget * (1 if len(voters) == 1 else 1 - _ROUNDING)
    settled = replace(_settled(budget, delta), epsilon=within)
    return settled.filter(DEFAULT_ORDERS).fitting(FACTOR * len(voters) * each, MOST)


def _settled(budget: float, delta: float) -> Budget:
    """Return a party's budget as the ledger settles it: at its order all shares must fit."""
    # Shared: querying parties have electorates of different sizes, so curves of their own.
    return Budget(epsilon=budget, delta=delta).shared()


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
        Counts what was charged. Another one's counts would begin anew, so it is refused.
    """

    def __init__(
        self,
        terms: Terms,
        ledger: Ledger,
        *,
        simulated: bool,
        insecure: bool,
        journal: GuardianJournal,
    ) -> None:
        self.terms, self.ledger, self.prices = terms, ledger, Prices(terms)
        self._journal = journal
        self._stamp: dict[str, Any] = {"simulated": simulated}
        if insecure:
            self._stamp["insecure"] = True

    def state(self, batch: str) -> str:
        """Return whether a batch is unknown, reserved or committed."""
        return self._journal.state(batch)

    def reserve(self, querier: str, queries: int, batch: str) -> None:
        """Charge a batch to everybody who answers, durably; or BudgetError, and charge nothing.

        A batch that is charged is not charged again. Everything happens under the ledger's only
        lock, so two guardians never overspend together.
        """
        if self.state(batch) == UNKNOWN:
            each, voters = self.prices.each(querier), self.terms.voters(querier)
            facts = {"voters": len(voters), "labels": len(self.terms.labels)}
            with self.ledger.writing() as totals:
                charged = {(e.get("batch"), e.get("dataset")) for e in self.ledger.published()}
                for party in voters:
                    accounts = self._accounts(party, querier)
                    if self.terms.allowance:
                        self._open(accounts, totals, facts)
                    elif (batch, party) not in charged:
                        more = {**facts, "batch": batch}
                        accounts.charge_batch(each, queries, totals, facts=more)
        self._journal.reserve(batch, querier, queries)

    def commit(self, batch: str) -> None:
        """Enter, once, that the decision of a reserved batch is released."""
        self._journal.commit(batch)

    def _accounts(self, party: str, querier: str) -> Accounts:
        terms = self.terms
        stamp = {
            # Names what no other electorate's terms have: nobody else goes on with this account.
            "owner": f"coalition {terms.name} {terms.promise()[:16]} {self._journal.key[:16]}",
            "guarantee": terms.guarantee,
            "mechanism": terms.mechanism.parameters(),
            **self._stamp,
        }
        return Accounts(
            ledger=self.ledger,
            budget=_settled(terms.epsilon, terms.delta),
            dataset=party,
            consumer=querier,
            stamp=stamp,
        )

    def _open(self, accounts: Accounts, totals: Totals, facts: dict[str, Any]) -> None:
        """Charge an allowance, once; the same account is found again by its keyed name."""
        party, querier = accounts.dataset, str(accounts.consumer)
        named = {"coalition": self.terms.promise(), "party": party, "querier": querier}
        account = self.ledger.name_account({**named, **self._stamp})
        allowance = self.prices.allowance(party)
        accounts.authorise(totals)
        if account in totals.accounts:
            self._check_account(totals.accounts[account], allowance, party, querier)
            return
        contribution = self.prices.each(querier)
        # The account's one voter is the party itself.
        accounts.open_as(
            totals, account, contribution, np.array([allowance]), {**facts, "voters": 1}
        )

    def _check_account(self, known: Account, allowance: int, party: str, querier: str) -> None:
        """Refuse to go on with a charge whose count is elsewhere, or that paid for another V."""
        what = f"the allowance of {party} for {querier}"
        if str(json.loads(known.terms)["owner"]).rsplit(" ", 1)[-1] != self._journal.key[:16]:
            raise LedgerError(
                f"{what} is counted in another journal: restore the journal that was in use, "
                "without which nobody knows what is left"
            )
        if known.allowance.tolist() != [allowance]:
            raise LedgerError(
                f"{what}: {known.allowance.tolist()[0]} contributions are charged, this version "
                f"would count {allowance}"
            )

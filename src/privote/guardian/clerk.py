"""The guardian's clerk: what is authorised, charged and answered, in the words of the ledger.

Every transaction of a release is here. A charge is on disk when its method returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..accounting.allowance import FACTOR, MOST
from ..accounting.ptr import Proposal
from ..accounting.renyi import Floats, rounded_up
from ..ballots import BallotSource
from ..blocks import Counts
from ..errors import BudgetError, InputError
from ..ledger import Budget, Ledger
from ..ledger.totals import Totals, packed, terms_of
from ..mechanisms import Mechanism
from ..release import VOTER, Sealed
from .seats import check_wanted, find_account, plain, seats_of


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Clerk:
    """Keeps the ledger for one guardian.

    Attributes
    ----------
    names
        The data set, the consumer and the owner, as the ledger knows them.
    wanted
        The allowance asked for; None for the largest that fits.
    ids
        The place of each named voter; None if voters are known by their place.
    """

    mechanism: Mechanism
    budget: Budget
    guarantee: str
    orders: Floats
    ledger: Ledger
    names: dict[str, str | None]
    wanted: int | npt.ArrayLike | None
    ids: dict[str, int] | None
    simulated: bool
    protects: str

    # -- charges -----------------------------------------------------------------------------------

    def charge_fitting(self, each: Floats, ballots: BallotSource, queries: int | None) -> int:
        """Charge as many queries as fit at this cost each, and return how many; or refuse."""
        with self.ledger.writing() as totals:
            self._authorise(totals)
            fit = self.ledger.room(totals, each, self.orders, self.scope, ballots.queries)
            if fit < 1 or (queries is not None and queries > fit):
                raise BudgetError(
                    f"epsilon={rounded_up(self.budget.epsilon)} at "
                    f"delta={rounded_up(self.budget.delta)} allows {fit} "
                    f"(more) queries in the worst case with {self.mechanism}"
                    + (f", but queries={queries}" if queries else "")
                )
            self._charge(fit * each, ballots, queries=fit)
        return fit

    def charge_sealed(self, curve: Floats, ballots: BallotSource) -> None:
        """Charge a cost that depends on the votes: sealed, and no ground to refuse."""
        with self.ledger.writing() as totals:
            self._authorise(totals)
            sealed = {"rdp": curve.tolist()}
            self._charge(None, ballots, queries=ballots.queries, sealed=sealed)

    def charge_everything(self, proposal: Proposal, ballots: BallotSource) -> None:
        """Charge the whole budget of the data set, of which nothing may be used yet."""
        with self.ledger.writing() as totals:
            self._authorise(totals)
            if self._used(totals):
                raise BudgetError(
                    f"guarantee 'ptr' takes the whole budget of data set {self.scope[0]!r}, and "
                    "part of it is used"
                )
            own = totals.budgets.get(self.scope)
            if own is not None and (proposal.epsilon > own.epsilon or proposal.delta > own.delta):
                raise BudgetError(
                    f"guarantee 'ptr' spends epsilon={rounded_up(proposal.epsilon)}, "
                    f"delta={rounded_up(proposal.delta)} at once, more than {self.scope[1]!r} has: "
                    f"{rounded_up(own.epsilon)}, {rounded_up(own.delta)}"
                )
            # Its promise holds at one order and with all of delta: nothing can be added to it.
            self._charge(None, ballots, queries=ballots.queries, everything=True)

    # -- accounts ----------------------------------------------------------------------------------

    def register(self, voters: int, labels: int) -> tuple[str, Counts, Counts | None]:
        """Find this electorate's account, or open and charge it.

        Returns the account's name, the allowance by seat, and the seats of the voters as they were
        named (None if they come as registered).
        """
        wanted, roll = check_wanted(self.wanted, voters), self._roll
        surprise = self.mechanism.surprise_rdp(voters, labels, self.orders)
        body = {**self._entry("charge"), "voters": voters, "labels": labels}
        terms = terms_of(body)
        with self.ledger.writing() as totals:
            self._authorise(totals)
            account = find_account(totals.accounts, terms, voters, roll)
            if account is not None:
                known = totals.accounts[account]
                at = seats_of(known, roll)
                own = known.allowance if at is None else known.allowance[at]
                if wanted is not None and (own != wanted).any():
                    raise BudgetError("this electorate has an allowance already, and it stays")
                return account, known.allowance, at
            largest = self.ledger.room(totals, FACTOR * surprise, self.orders, self.scope, MOST)
            if largest < 1:
                raise self._nothing_left(totals)
            if wanted is not None and wanted.max() > largest:
                raise InputError(
                    f"allowance must lie in 0..{largest}, the largest that keeps "
                    f"epsilon={rounded_up(self.budget.epsilon)}; got {wanted.max()}"
                )
            allowance = np.full(voters, largest, np.int64) if wanted is None else wanted
            digests = None if roll is None else list(roll.values())
            account = self.ledger.name_account({"terms": terms, "voters": voters, "roll": digests})
            self.ledger.append(
                {
                    **body,
                    "orders": self.orders.tolist(),
                    "rdp": (FACTOR * int(allowance.max()) * surprise).tolist(),
                    "account": account,
                    "allowance": plain(allowance),
                },
                sealed=None if digests is None else {"roll": digests},
            )
        return account, allowance, None

    def answer(self, account: str, queries: int, spent: Counts, refused: Counts) -> None:
        """Enter what an answer took from an account; inside a transaction of the ledger."""
        sealed = {"spent": packed(spent), "refused": packed(refused)}
        body = {**self._entry("answer"), "account": account, "queries": queries}
        self.ledger.append(body, sealed)

    def answered(self, account: str) -> int:
        """Return how many queries were answered from an account so far."""
        return self.ledger.reading().accounts[account].queries

    def spending(self, account: str, allowance: Counts) -> Sealed:
        """Return what each voter has done with its allowance, in the order of their names."""
        known = self.ledger.reading().accounts[account]
        at = seats_of(known, self._roll)
        return Sealed(
            spent=known.spent.copy() if at is None else known.spent[at],
            refused=known.refused.copy() if at is None else known.refused[at],
            allowance=allowance.copy(),
        )

    @cached_property
    def _roll(self) -> dict[str, str] | None:
        if self.ids is None:
            return None
        return {name: self.ledger.name_voter(name) for name in self.ids}

    def _nothing_left(self, totals: Totals) -> BudgetError:
        budget = (
            f"epsilon={rounded_up(self.budget.epsilon)} at delta={rounded_up(self.budget.delta)}"
        )
        if self._used(totals):
            return BudgetError(
                f"what is left of {budget} for data set {self.scope[0]!r} buys not one surprise a "
                f"voter with {self.mechanism}: other charges have used it. To go on with an "
                "allowance that is charged already, use the same mechanism, voters, names and "
                "consumer"
            )
        return BudgetError(
            f"{budget} buys not one surprise a voter with {self.mechanism}: use a larger sigma or "
            "budget"
        )

    # -- entries -----------------------------------------------------------------------------------

    @property
    def scope(self) -> tuple[str, str | None]:
        """The data set and the consumer, as the ledger names them."""
        return str(self.names["dataset"]), self.names["consumer"]

    @property
    def rule(self) -> str | None:
        """How charges to the data set add up; None if there is no ledger that lasts."""
        known = self.ledger.reading().budgets.get((self.scope[0], None))
        if known is None or self.guarantee in ("ptr", "data-dependent"):
            return None
        return known.counted

    def _used(self, totals: Totals) -> bool:
        """Return True if anything was charged to the data set."""
        return (self.scope[0], None) in totals.charged

    def _authorise(self, totals: Totals) -> None:
        """Fix the data set's budget at first use; refuse another one, or another kind."""
        conditional = self.guarantee == "data-dependent"
        self.ledger.fix_budget(
            totals,
            self.budget,
            (self.scope[0], None),
            conditional,
            orders=self.orders,
            own=self.mechanism.own_order,
        )

    def _entry(self, kind: str) -> dict[str, Any]:
        return {
            "kind": kind,
            **self.names,
            "guarantee": self.guarantee,
            "mechanism": self.mechanism.parameters(),
            "simulated": self.simulated,
            **({} if self.protects == VOTER else {"protects": self.protects}),
        }

    def _charge(
        self,
        curve: Floats | None,
        ballots: BallotSource,
        *,
        queries: int,
        everything: bool = False,
        sealed: dict[str, Any] | None = None,
    ) -> None:
        body = {**self._entry("charge"), "voters": ballots.voters, "labels": ballots.labels}
        body |= {"queries": queries, "orders": self.orders.tolist()}
        body |= {"rdp": None if curve is None else curve.tolist(), "everything": everything}
        self.ledger.append(body, sealed)

"""The guardian: the only door. It checks the budget, charges the ledger, and only then draws.

A crash between charge and release wastes budget, never privacy.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from ..accounting.allowance import FACTOR
from ..accounting.renyi import Floats, Orders, check_orders, epsilon
from ..ballots import Ballots, BallotSource, check_head
from ..blocks import Counts
from ..entropy import Entropy
from ..errors import BudgetError, InputError, UnavailableError
from ..ledger import Budget, Ledger, Place
from ..ledger.totals import Totals, check_name, packed, terms_of
from ..mechanisms import Mechanism
from ..release import GUARANTEES, Later, Release, Sealed
from ..surprises import effective
from .consensus import Levels, propose, sanitize
from .seats import (
    check_baseline,
    check_guess,
    check_wanted,
    find_account,
    placed,
    plain,
    seated,
    seats,
    seats_of,
    steady_blocks,
)
from .voters import bills, by_voter

_MOST = 10**12  # an allowance of a cost that is zero


class Guardian:
    """Answers votes with one mechanism, within the budget of one data set.

    Parameters
    ----------
    mechanism, budget, ledger
        How to release, what it may cost in all, where it is recorded (a ledger or its path).
    guarantee
        ``"allowance"``, ``"worst-case"``, ``"ptr"`` or ``"data-dependent"``: see
        :func:`privote.label`.
    dataset, consumer, owner
        Whose votes, for whom, on whose behalf: names in the ledger.
    allowance
        For ``"allowance"``: ``None`` for the largest that fits, or less; one, or one per voter.
    voter_ids
        Names of the voters (texts or integers), in the order of the votes' second axis. By them a
        ledger knows voters again, whatever their order, also where some are absent.
    seed
        ``None``: secure. An integer makes a simulation.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        budget: Budget,
        ledger: Ledger | Place | str | os.PathLike[str],
        *,
        guarantee: str = "allowance",
        dataset: str = "default",
        consumer: str | None = None,
        owner: str | None = None,
        allowance: int | npt.ArrayLike | None = None,
        voter_ids: Sequence[Any] | None = None,
        orders: Orders | None = None,
        seed: int | None = None,
    ) -> None:
        if guarantee not in GUARANTEES:
            raise InputError(f"guarantee must be one of {', '.join(GUARANTEES)}, got {guarantee!r}")
        if not isinstance(mechanism, Mechanism):
            raise InputError(f"mechanism must be a privote mechanism, got {mechanism!r}")
        if not isinstance(budget, Budget):
            raise InputError(f"budget must be a privote.Budget, got {budget!r:.60}")
        check_name("dataset", dataset)
        for name, value in (("consumer", consumer), ("owner", owner)):
            if value is not None:
                check_name(name, value)
        if not isinstance(ledger, Ledger | Place | str | os.PathLike):
            raise InputError(f"ledger must be a Ledger or its path, got {ledger!r:.60}")
        self.mechanism, self.budget, self.guarantee = mechanism, budget, guarantee
        self.orders = check_orders(orders)
        self._wanted = allowance
        self._names = {"dataset": dataset, "consumer": consumer, "owner": owner}
        self._ids = None if voter_ids is None else seats(voter_ids)
        self._entropy = Entropy(seed)
        # Last: whoever calls with a bad argument leaves no new ledger behind.
        self._ledger = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
        self._owns_ledger = self._ledger is not ledger

    def __enter__(self) -> Guardian:
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of a ledger that was given by its path."""
        if self._owns_ledger:
            self._ledger.close()

    # A copy would hold a second door to the same votes.
    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError("a Guardian cannot be copied or pickled: its allowance exists once")

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse

    def release(
        self,
        votes: Any,
        *,
        queries: int | None = None,
        baseline: npt.ArrayLike | None = None,
        bound: str = "exact",
        voter_ids: Sequence[Any] | None = None,
    ) -> Release:
        """Authorise, charge durably, then draw, in that order. Bad input charges nothing."""
        ballots = Ballots.of(votes)
        if bound != "exact" and self.guarantee != "data-dependent":
            raise InputError(
                f"bound goes with guarantee 'data-dependent', not {self.guarantee!r}; got {bound!r}"
            )
        if queries is not None:
            ballots = ballots.head(check_head(queries, ballots.queries))
        if self.guarantee == "allowance":
            return self._allowance(ballots, check_guess(baseline, queries), voter_ids)
        if baseline is not None:
            raise InputError(f"baseline goes with guarantee 'allowance', not {self.guarantee!r}")
        if self.guarantee == "worst-case":
            return self._worst_case(ballots, queries)
        if queries is None:
            raise InputError(
                f"queries must be given for guarantee {self.guarantee!r}: stopping when a "
                "data-dependent cost is used up leaks, so the number is fixed before looking"
            )
        if self.guarantee == "ptr":
            return self._test_first(ballots)
        return self._data_dependent(ballots, bound)

    # -- composition ------------------------------------------------------------------------------

    def _worst_case(self, ballots: BallotSource, queries: int | None) -> Release:
        self.mechanism.check(ballots)
        each = self.mechanism.worst_case_rdp(ballots.voters, ballots.labels, self.orders)
        with self._ledger.writing() as totals:
            self._authorise(totals)
            fit = self._ledger.room(totals, each, self.orders, self._scope, ballots.queries)
            if fit < 1 or (queries is not None and queries > fit):
                raise BudgetError(
                    f"epsilon={self.budget.epsilon:g} at delta={self.budget.delta:g} allows {fit} "
                    f"(more) queries in the worst case with {self.mechanism}"
                    + (f", but queries={queries}" if queries else "")
                )
            self._charge(fit * each, ballots, queries=fit)
        return self._publish(self._draw(ballots.head(fit)), ballots.voters, fit * each)

    # -- prices of consensus -----------------------------------------------------------------------

    def _data_dependent(self, ballots: BallotSource, bound: str) -> Release:
        if bound not in self.mechanism.bounds:
            known = ", ".join(self.mechanism.bounds)
            raise InputError(f"bound must be one of {known}, got {bound!r}")
        self.mechanism.check(ballots)
        levels = Levels.of(self.mechanism, ballots) if bound == "exact" else None
        # One pass: the tally that is priced is the one that is drawn. The draws stay here until
        # the charge is on disk.
        total, drawn = np.zeros(len(self.orders)), []
        for block in ballots.blocks():
            tally = self.mechanism.tally(block)
            total += self.mechanism.total_cost(tally, self.orders, bound)
            drawn.append(self.mechanism.draw(tally, self._entropy))
            if levels is not None:
                levels.add(tally)
        delta = self.budget.delta
        shown, terms = sanitize(levels, self.orders, delta, self._entropy)
        with self._ledger.writing() as totals:
            self._authorise(totals)
            self._charge(None, ballots, queries=ballots.queries, sealed={"rdp": total.tolist()})
        exact = Later(lambda: by_voter(self.mechanism, ballots, delta))
        sealed = Sealed(
            epsilon=epsilon(total, self.orders, delta),
            rdp=total,
            orders=self.orders,
            bound=bound,
            bills=partial(bills, self.mechanism, ballots, delta),
            epsilon_by_voter=Later(lambda: exact.value.epsilon),
            accountant=Later(lambda: exact.value.accountant),
            epsilon_rdp=Later(lambda: exact.value.rdp),
            epsilon_pld=Later(lambda: exact.value.pld),
        )
        return self._publish(
            np.concatenate(drawn), ballots.voters, None, shown=shown, terms=terms, sealed=sealed
        )

    def _test_first(self, ballots: BallotSource) -> Release:
        levels = Levels.of(self.mechanism, ballots)
        if levels is None:
            raise UnavailableError(
                f"guarantee 'ptr' has a proof for binary voting only, not for "
                f"{self.mechanism.name}; 'allowance' and 'worst-case' take every mechanism"
            )
        self.mechanism.check(ballots)
        proposal = propose(levels, self.orders, ballots, self.budget)
        with self._ledger.writing() as totals:
            self._authorise(totals)
            if self._scope[0] in {place[0] for place in totals.curves} | totals.taken:
                raise BudgetError(
                    f"guarantee 'ptr' takes the whole budget of data set {self._scope[0]!r}, and "
                    "part of it is used"
                )
            own = totals.budgets.get(self._scope)
            if own is not None and (proposal.epsilon > own.epsilon or proposal.delta > own.delta):
                raise BudgetError(
                    f"guarantee 'ptr' spends epsilon={proposal.epsilon:g}, "
                    f"delta={proposal.delta:g} at once, more than {self._scope[1]!r} has: "
                    f"{own.epsilon:g}, {own.delta:g}"
                )
            # Its promise holds at one order and with all of delta: nothing can be added to it.
            self._charge(None, ballots, queries=ballots.queries, everything=True)
        drawn = []
        for block in ballots.blocks():
            tally = self.mechanism.tally(block)
            levels.add(tally)
            drawn.append(self.mechanism.draw(tally, self._entropy))
        passed = levels.passes(proposal, self._entropy)
        labels = np.concatenate(drawn) if passed else np.zeros((0, ballots.labels), np.int8)
        return self._publish(
            labels,
            ballots.voters,
            None,
            shown=proposal.epsilon,
            terms=levels.terms(proposal, passed),
        )

    # -- allowance ---------------------------------------------------------------------------------

    def _allowance(
        self, ballots: BallotSource, baseline: Any, voter_ids: Sequence[Any] | None
    ) -> Release:
        here = placed(self._ids, ballots.voters, voter_ids)
        guess = check_baseline(baseline, ballots, self.mechanism)
        self.mechanism.check(ballots)
        named = ballots.voters if self._ids is None else len(self._ids)
        account, allowance, at = self._register(named, ballots.labels)
        own = allowance if at is None else allowance[at]
        if here is not None:
            at = here if at is None else at[here]
        voters, labels, start = len(allowance), [], 0
        for block in steady_blocks(ballots, voters):
            rows = guess[start : start + block.queries]
            start += block.queries
            with self._ledger.writing() as totals:
                left = allowance - totals.accounts[account].spent
                counted, spent, refused = effective(
                    seated(block, at, voters),
                    rows,
                    left,
                    unit=self.mechanism.surprise_unit,
                    silence_is_zeros=self.mechanism.name != "powerset",
                )
                self._answer(account, block.queries, spent, refused)
            labels.append(self.mechanism.draw(self.mechanism.tally(counted), self._entropy))
        surprise = self.mechanism.surprise_rdp(voters, ballots.labels, self.orders)
        return self._publish(
            np.concatenate(labels),
            voters,
            FACTOR * int(allowance.max()) * surprise,
            allowance=plain(allowance),
            so_far=self.answered(account),
            sealed=self.spending(account, own),
        )

    def answered(self, account: str) -> int:
        """Return how many queries were answered from an allowance so far: a public number."""
        with self._ledger.writing() as totals:
            return totals.accounts[account].queries

    def register(self, voters: int, labels: int) -> tuple[str, Counts]:
        """Find this electorate's account in the ledger, or open and charge it.

        Returns the account's name and every voter's lifetime allowance (voters,).
        """
        account, allowance, at = self._register(voters, labels)
        if len(allowance) != voters:
            raise InputError(
                f"voters must be all {len(allowance)} who were registered together, got {voters} "
                "of them"
            )
        return account, allowance if at is None else allowance[at]

    def _register(self, voters: int, labels: int) -> tuple[str, Counts, Counts | None]:
        """Return account, allowance by seat, and the seats of this guardian's voters."""
        wanted, roll = check_wanted(self._wanted, voters), self._roll
        surprise = self.mechanism.surprise_rdp(voters, labels, self.orders)
        body = {**self._entry("charge"), "voters": voters, "labels": labels}
        terms = terms_of(body)
        with self._ledger.writing() as totals:
            self._authorise(totals)
            account = find_account(totals.accounts, terms, voters, roll)
            if account is not None:
                known = totals.accounts[account]
                at = seats_of(known, roll)
                own = known.allowance if at is None else known.allowance[at]
                if wanted is not None and (own != wanted).any():
                    raise BudgetError("this electorate has an allowance already, and it stays")
                return account, known.allowance, at
            largest = self._ledger.room(totals, FACTOR * surprise, self.orders, self._scope, _MOST)
            if largest < 1:
                raise self._nothing_left(totals)
            if wanted is not None and wanted.max() > largest:
                raise InputError(
                    f"allowance must lie in 0..{largest}, the largest that keeps "
                    f"epsilon={self.budget.epsilon:g}; got {wanted.max()}"
                )
            allowance = np.full(voters, largest, np.int64) if wanted is None else wanted
            digests = None if roll is None else list(roll.values())
            account = self._ledger.name_account({"terms": terms, "voters": voters, "roll": digests})
            self._ledger.append(
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

    def _nothing_left(self, totals: Totals) -> BudgetError:
        budget = f"epsilon={self.budget.epsilon:g} at delta={self.budget.delta:g}"
        name = self._scope[0]
        if name in {place[0] for place in totals.curves} | totals.taken:
            return BudgetError(
                f"what is left of {budget} for data set {name!r} buys not one surprise a voter "
                f"with {self.mechanism}: other charges have used it. To go on with an allowance "
                "that is charged already, use the same mechanism, voters, names and consumer"
            )
        return BudgetError(
            f"{budget} buys not one surprise a voter with {self.mechanism}: use a larger sigma or "
            "budget"
        )

    @cached_property
    def _roll(self) -> dict[str, str] | None:
        if self._ids is None:
            return None
        return {name: self._ledger.name_voter(name) for name in self._ids}

    def spending(self, account: str, allowance: Counts) -> Sealed:
        """Return what each voter has done with its allowance: for the owner's eyes.

        ``spent`` counts surprises, ``refused`` the ballots that counted as the baseline because
        what was left did not pay for them; both (voters,), in the order the voters were named.
        """
        with self._ledger.writing() as totals:
            known = totals.accounts[account]
            at = seats_of(known, self._roll)
            return Sealed(
                spent=known.spent.copy() if at is None else known.spent[at],
                refused=known.refused.copy() if at is None else known.refused[at],
                allowance=allowance.copy(),
            )

    def _answer(self, account: str, queries: int, spent: Counts, refused: Counts) -> None:
        sealed = {"spent": packed(spent), "refused": packed(refused)}
        body = {**self._entry("answer"), "account": account, "queries": queries}
        self._ledger.append(body, sealed)

    # -- entries -----------------------------------------------------------------------------------

    @property
    def _scope(self) -> tuple[str, str | None]:
        return str(self._names["dataset"]), self._names["consumer"]

    def _authorise(self, totals: Totals) -> None:
        """Fix the data set's budget at first use; refuse another one, or another kind."""
        conditional = self.guarantee == "data-dependent"
        self._ledger.fix_budget(totals, self.budget, (self._scope[0], None), conditional)

    def _entry(self, kind: str) -> dict[str, Any]:
        return {
            "kind": kind,
            **self._names,
            "guarantee": self.guarantee,
            "mechanism": self.mechanism.parameters(),
            "simulated": self._entropy.simulated,
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
        self._ledger.append(body, sealed)

    def _draw(self, ballots: BallotSource) -> npt.NDArray[np.int8]:
        return np.concatenate(
            [self.mechanism.draw(self.mechanism.tally(b), self._entropy) for b in ballots.blocks()]
        )

    def _publish(
        self,
        labels: npt.NDArray[np.int8],
        voters: int,
        curve: Floats | None,
        *,
        allowance: int | tuple[int, ...] | None = None,
        so_far: int | None = None,
        shown: float | None = None,
        terms: dict[str, Any] | None = None,
        sealed: Sealed | None = None,
    ) -> Release:
        cost = shown
        if curve is not None:
            cost = float(np.max(epsilon(curve, self.orders, self.budget.delta)))
        return Release(
            labels=labels,
            epsilon=cost,
            delta=self.budget.delta,
            guarantee=self.guarantee,
            budget=self.budget.epsilon,
            mechanism=self.mechanism.parameters(),
            voters=voters,
            allowance=allowance,
            terms=terms or {},
            simulated=self._entropy.simulated,
            ledger=self._ledger.place(),
            dataset=str(self._names["dataset"]),
            consumer=self._names["consumer"],
            so_far=so_far,
            sealed=sealed or Sealed(),
        )

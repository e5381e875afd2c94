"""The guardian: the only door. It checks the budget, charges the ledger, and only then draws.

A crash between charge and release wastes budget, never privacy.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from ..accounting.allowance import FACTOR
from ..accounting.renyi import Floats, Orders, check_orders, epsilon
from ..ballots import Ballots, BallotSource, check_head
from ..blocks import Counts
from ..entropy import Entropy
from ..errors import BudgetError, InputError, UnavailableError
from ..ledger import Budget, Ledger
from ..ledger.book import Totals
from ..mechanisms import Mechanism
from ..release import GUARANTEES, Release, Sealed
from ..surprises import effective
from .consensus import Levels, bills, propose, sanitize
from .seats import check_baseline, check_guess, seated, seats

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
        Names of the voters, in the order of the votes' second axis.
    seed
        ``None``: secure. An integer makes a simulation.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        budget: Budget,
        ledger: Ledger | str | os.PathLike[str],
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
        for name, value in (("dataset", dataset), ("consumer", consumer), ("owner", owner)):
            if value is not None and (not isinstance(value, str) or not value):
                raise InputError(f"{name} must be a name, got {value!r}")
        if not isinstance(ledger, Ledger | str | os.PathLike):
            raise InputError(f"ledger must be a Ledger or its path, got {ledger!r}")
        self.mechanism, self.budget, self.guarantee = mechanism, budget, guarantee
        self.orders = check_orders(orders)
        self._wanted = allowance
        self._names = {"dataset": dataset, "consumer": consumer, "owner": owner}
        self._ids = None if voter_ids is None else seats(voter_ids, len(voter_ids))
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
        sealed = Sealed(
            epsilon=epsilon(total, self.orders, delta),
            rdp=total,
            orders=self.orders,
            bound=bound,
            bills=lambda: bills(self.mechanism, ballots, delta),
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
        places = self._places(ballots, voter_ids)
        voters = ballots.voters if self._ids is None else len(self._ids)
        guess = check_baseline(baseline, ballots, self.mechanism)
        self.mechanism.check(ballots)
        account, allowance = self.register(voters, ballots.labels)
        labels, start = [], 0
        for block in ballots.blocks():
            rows = guess[start : start + block.queries]
            start += block.queries
            with self._ledger.writing() as totals:
                left = allowance - totals.spending(account, voters)
                counted, spent = effective(
                    seated(block, places, voters),
                    rows,
                    left,
                    unit=self.mechanism.surprise_unit,
                    silence_is_zeros=self.mechanism.name != "powerset",
                )
                self._answer(account, block.queries, spent)
            labels.append(self.mechanism.draw(self.mechanism.tally(counted), self._entropy))
        surprise = self.mechanism.surprise_rdp(voters, ballots.labels, self.orders)
        return self._publish(
            np.concatenate(labels),
            voters,
            FACTOR * int(allowance.max()) * surprise,
            allowance=_plain(allowance),
            sealed=self.spending(account, allowance),
        )

    def register(self, voters: int, labels: int) -> tuple[str, Counts]:
        """Find this electorate's account in the ledger, or open and charge it.

        Returns the account's name and every voter's lifetime allowance (voters,).
        """
        surprise = self.mechanism.surprise_rdp(voters, labels, self.orders)
        account = self._ledger.name_account(
            {
                **self._names,
                "mechanism": self.mechanism.parameters(),
                "simulated": self._entropy.simulated,
                "voters": voters,
                "labels": labels,
                "ids": None if self._ids is None else [repr(name) for name in self._ids],
            }
        )
        with self._ledger.writing() as totals:
            self._authorise(totals)
            known = totals.accounts.get(account)
            if known is not None and (
                self._wanted is None or (known == np.asarray(self._wanted)).all()
            ):
                return account, known
            if known is not None:
                raise BudgetError("this electorate has an allowance already, and it stays")
            largest = self._ledger.room(totals, FACTOR * surprise, self.orders, self._scope, _MOST)
            if largest < 1:
                raise BudgetError(
                    f"epsilon={self.budget.epsilon:g} at delta={self.budget.delta:g} buys not one "
                    f"surprise a voter with {self.mechanism}: use a larger sigma or budget"
                )
            allowance = self._check_allowance(voters, largest)
            self._ledger.append(
                {
                    **self._entry("charge"),
                    "voters": voters,
                    "labels": labels,
                    "orders": self.orders.tolist(),
                    "rdp": (FACTOR * int(allowance.max()) * surprise).tolist(),
                    "account": account,
                    "allowance": _plain(allowance),
                }
            )
        return account, allowance

    def spending(self, account: str, allowance: Counts) -> Sealed:
        """Return what each voter has spent: for the owner's eyes."""
        with self._ledger.writing() as totals:
            spent = totals.spending(account, len(allowance))
        return Sealed(spent=spent, allowance=allowance.copy())

    def _answer(self, account: str, queries: int, spent: Counts) -> None:
        who = np.flatnonzero(spent)
        self._ledger.append(
            {**self._entry("answer"), "account": account, "queries": queries},
            sealed={"spent": np.stack([who, spent[who]], axis=1).tolist()},
        )

    def _check_allowance(self, voters: int, largest: int) -> Counts:
        if self._wanted is None:
            return np.full(voters, largest, np.int64)
        array = np.asarray(self._wanted)
        if array.dtype.kind not in "iu" or array.shape not in ((), (voters,)):
            raise InputError(
                f"allowance must be one integer or one per voter ({voters}), "
                f"got {array.dtype} of shape {array.shape}"
            )
        if array.min() < 0 or array.max() > largest:
            raise InputError(
                f"allowance must lie in 0..{largest}, the largest that keeps "
                f"epsilon={self.budget.epsilon:g}; got {int(array.min())}..{int(array.max())}"
            )
        return np.broadcast_to(array, (voters,)).astype(np.int64)

    def _places(self, ballots: BallotSource, voter_ids: Sequence[Any] | None) -> Counts | None:
        """Return the seat of each voter of the batch; None if they sit as registered."""
        if voter_ids is None:
            if self._ids is not None and ballots.voters != len(self._ids):
                raise InputError(
                    f"votes must have {len(self._ids)} voters, got {ballots.voters}; "
                    "name them with voter_ids if some are absent"
                )
            return None
        if self._ids is None:
            raise InputError("voter_ids given, but the voters were registered without names")
        seats(voter_ids, ballots.voters)
        unknown = [name for name in voter_ids if name not in self._ids]
        if unknown:
            raise InputError(f"voter_ids holds {unknown[0]!r}, who is not registered")
        return np.array([self._ids[name] for name in voter_ids], np.int64)

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
            sealed=sealed or Sealed(),
        )


def _plain(allowance: Counts) -> int | tuple[int, ...]:
    first = int(allowance[0])
    return first if (allowance == first).all() else tuple(allowance.tolist())

"""The guardian: the only door. It checks the budget, charges the ledger, and only then draws.

A crash between charge and release wastes budget, never privacy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from ..accounting.allowance import FACTOR
from ..accounting.renyi import Floats, Orders, check_orders, epsilon
from ..ballots import Ballots, BallotSource, check_head
from ..blocks import Counts
from ..entropy import Entropy
from ..errors import InputError, UnavailableError
from ..ledger import Budget, Ledger, Place
from ..ledger.totals import check_name
from ..mechanisms import Mechanism
from ..release import GUARANTEES, VOTER, Later, Release, Sealed, check_protects
from ..surprises import effective
from .clerk import Clerk
from .consensus import Levels, propose, sanitize
from .seats import (
    check_baseline,
    check_guess,
    placed,
    plain,
    seated,
    seats,
    steady_blocks,
)
from .voters import bills, by_voter


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
    protects
        Whom it is a promise to that one voter's ballots may differ, for the statement: "a voter",
        or what reaches one voter only, e.g. "a person, with all their records". Whoever says so
        vouches for it.
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
        protects: str = VOTER,
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
        curve_orders, protects = check_orders(orders), check_protects(protects)
        self._ids = None if voter_ids is None else seats(voter_ids)
        self._entropy = Entropy(seed)
        # Last: whoever calls with a bad argument leaves no new ledger behind.
        self._ledger = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
        self._owns_ledger = self._ledger is not ledger
        self._clerk = Clerk(
            mechanism=mechanism,
            budget=budget,
            guarantee=guarantee,
            orders=curve_orders,
            ledger=self._ledger,
            names={"dataset": dataset, "consumer": consumer, "owner": owner},
            wanted=allowance,
            ids=self._ids,
            simulated=self._entropy.simulated,
            protects=protects,
        )

    # Read-only: what is charged is what is drawn.
    @property
    def mechanism(self) -> Mechanism:
        """How a tally becomes a release."""
        return self._clerk.mechanism

    @property
    def budget(self) -> Budget:
        """What all releases may cost."""
        return self._clerk.budget

    @property
    def guarantee(self) -> str:
        """What the budget promises."""
        return self._clerk.guarantee

    @property
    def orders(self) -> Floats:
        """The Rényi orders of every charge."""
        return self._clerk.orders

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
        keep: Callable[[Release], None] | None = None,
    ) -> Release:
        """Authorise, charge durably, then draw, in that order. Bad input charges nothing.

        ``keep`` is called with each part of the release as soon as it is drawn, so that whoever
        wants it can make it durable before the next part is charged or drawn.
        """
        ballots = Ballots.of(votes)
        if bound != "exact" and self.guarantee != "data-dependent":
            raise InputError(
                f"bound goes with guarantee 'data-dependent', not {self.guarantee!r}; got {bound!r}"
            )
        if queries is not None:
            ballots = ballots.head(check_head(queries, ballots.queries))
        if self.guarantee == "allowance":
            return self._allowance(ballots, check_guess(baseline, queries), voter_ids, keep)
        if baseline is not None:
            raise InputError(f"baseline goes with guarantee 'allowance', not {self.guarantee!r}")
        if self.guarantee == "worst-case":
            return self._worst_case(ballots, queries, keep)
        if queries is None:
            raise InputError(
                f"queries must be given for guarantee {self.guarantee!r}: stopping when a "
                "data-dependent cost is used up leaks, so the number is fixed before looking"
            )
        if self.guarantee == "ptr":
            release = self._test_first(ballots)
        else:
            release = self._data_dependent(ballots, bound)
        if keep is not None:
            keep(release)
        return release

    # -- composition ------------------------------------------------------------------------------

    def _worst_case(
        self,
        ballots: BallotSource,
        queries: int | None,
        keep: Callable[[Release], None] | None,
    ) -> Release:
        self.mechanism.check(ballots)
        each = self.mechanism.worst_case_rdp(ballots.voters, ballots.labels, self.orders)
        fit = self._clerk.charge_fitting(each, ballots, queries)
        drawn = []
        for block in ballots.head(fit).blocks():
            drawn.append(self.mechanism.draw(self.mechanism.tally(block), self._entropy))
            if keep is not None:
                keep(self._publish(drawn[-1], ballots.voters, fit * each))
        return self._publish(np.concatenate(drawn), ballots.voters, fit * each)

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
        self._clerk.charge_sealed(total, ballots)
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
        self._clerk.charge_everything(proposal, ballots)
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
        self,
        ballots: BallotSource,
        baseline: Any,
        voter_ids: Sequence[Any] | None,
        keep: Callable[[Release], None] | None,
    ) -> Release:
        here = placed(self._ids, ballots.voters, voter_ids)
        guess = check_baseline(baseline, ballots, self.mechanism)
        self.mechanism.check(ballots)
        named = ballots.voters if self._ids is None else len(self._ids)
        account, allowance, at = self._clerk.register(named, ballots.labels)
        own = allowance if at is None else allowance[at]
        if here is not None:
            at = here if at is None else at[here]
        voters, start = len(allowance), 0
        surprise = self.mechanism.surprise_rdp(voters, ballots.labels, self.orders)
        curve = FACTOR * int(allowance.max()) * surprise
        labels = np.empty((ballots.queries, ballots.labels), np.int8)  # once, not in pieces
        for block in steady_blocks(ballots, voters):
            now = slice(start, start + block.queries)
            start += block.queries
            with self._ledger.writing() as totals:
                left = allowance - totals.accounts[account].spent
                counted, spent, refused = effective(
                    seated(block, at, voters),
                    guess[now],
                    left,
                    unit=self.mechanism.surprise_unit,
                    silence_is_zeros=self.mechanism.silence_is_zeros,
                )
                self._clerk.answer(account, block.queries, spent, refused)
            labels[now] = self.mechanism.draw(self.mechanism.tally(counted), self._entropy)
            if keep is not None:
                lasting, so_far = plain(allowance), self.answered(account)
                keep(self._publish(labels[now], voters, curve, allowance=lasting, so_far=so_far))
        return self._publish(
            labels,
            voters,
            curve,
            allowance=plain(allowance),
            so_far=self.answered(account),
            sealed=self.spending(account, own),
        )

    def answered(self, account: str) -> int:
        """Return how many queries were answered from an allowance so far: a public number."""
        return self._clerk.answered(account)

    def register(self, voters: int, labels: int) -> tuple[str, Counts]:
        """Find this electorate's account in the ledger, or open and charge it.

        Returns the account's name and every voter's lifetime allowance (voters,).
        """
        account, allowance, at = self._clerk.register(voters, labels)
        if len(allowance) != voters:
            raise InputError(
                f"voters must be all {len(allowance)} who were registered together, got {voters} "
                "of them"
            )
        return account, allowance if at is None else allowance[at]

    def spending(self, account: str, allowance: Counts) -> Sealed:
        """Return what each voter has done with its allowance: for the owner's eyes.

        ``spent`` counts surprises, ``refused`` the ballots that counted as the baseline because
        what was left did not pay for them; both (voters,), in the order the voters were named.
        """
        return self._clerk.spending(account, allowance)

    # -- what leaves -------------------------------------------------------------------------------

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
            dataset=self._clerk.scope[0],
            consumer=self._clerk.scope[1],
            rule=self._clerk.rule,
            so_far=so_far,
            protects=self._clerk.protects,
            sealed=sealed or Sealed(),
        )

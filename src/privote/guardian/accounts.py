"""Accounts: the one way to charge a ledger, for whatever is released.

A charge is on disk when its method returns. What is charged is a curve, of votes or of anything
else; who asks is the guardian, a coalition's guardian, or a method that trains without votes. A
method that is given ``totals`` works inside the caller's transaction (:meth:`Ledger.writing`), so
that several accounts are charged together or not at all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from ..accounting.allowance import FACTOR, MOST
from ..accounting.filters import largest_part
from ..accounting.renyi import DEFAULT_ORDERS, Floats, rounded_up
from ..errors import BudgetError, DrawnError, InputError, LedgerError, PrivoteError, PrivoteWarning
from ..files import Draft
from ..ledger import Budget, Ledger
from ..ledger.records import STAMPED, Entry, digest_of
from ..ledger.store import CommittedError
from ..ledger.totals import Account, Totals, draft_of, packed, terms_of
from ..mechanisms.base import describe
from ..release import VOTER, Release, Sealed
from ..votes.contributions import remaining
from ..votes.cube import Counts

Some = TypeVar("Some")
_DRAWN = "another copy of this draft has already drawn what was paid for: nothing is drawn again"
_AT_THE_END = (
    "so_far",
    "total",
    "share",
    "runs",
    "new",
    "made",
)  # a part of a release states what was so by then
Roll = Mapping[str, tuple[str, str]]  # the digests of each voter's name


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Accounts:
    """What one data set may cost, and what was charged to it.

    Attributes
    ----------
    ledger
        Where charges enter.
    budget
        What this run may cost; of a coalition, which charges batch by batch, what the data set may.
    total
        The data set's epsilon in all, if whoever runs it says so; else the ledger knows it, or it
        is the budget of this run.
    dataset
        Whose data: as the ledger has this name, if it has it.
    consumer
        For whom: in a coalition, whose labels are for one of its sites.
    stamp
        What every entry says besides: the guarantee, the mechanism's parameters, the owner.
    conditional
        True for costs that depend on the votes: they are no ground to refuse.
    draft
        Where what is paid for is kept, if anywhere. Its claims are in the entries of a ledger that
        lasts: what a run that died has paid for, the run that resumes it does not pay again.
    new
        Whether nothing was charged to the data set before.
    """

    ledger: Ledger
    budget: Budget
    dataset: str
    total: float | None = None
    consumer: str | None = None
    stamp: Mapping[str, Any] = field(default_factory=dict)
    conditional: bool = False
    draft: Draft | None = None
    new: bool = field(init=False)
    _seen: set[int] = field(init=False, default_factory=set)  # outcomes of this run

    def __post_init__(self) -> None:
        if self.draft is not None:
            self.draft.check_ledger(lasts=self.ledger.lasts)
        totals = self.ledger.reading()
        object.__setattr__(self, "dataset", totals.known(self.dataset))
        object.__setattr__(self, "new", self.dataset not in totals.charged)

    @property
    def claim(self) -> str | None:
        """What the next entry is paid for; None without a draft, or a ledger that lasts."""
        return self.draft.claim if self.draft is not None and self.ledger.lasts else None

    def standing(self) -> dict[str, Any]:
        """Return what all runs of the data set cost so far, and how much of its budget that is."""
        totals, name = self.ledger.reading(), self.dataset
        if not self.ledger.lasts:
            return {"budget": self.budget.epsilon, "total": None, "share": None, "runs": 1}
        return {
            "budget": totals.budgets[name].epsilon,
            "total": totals.used(name),
            "share": totals.share(name),
            "runs": len(totals.asked.get(name, [])),
        }

    @property
    def rule(self) -> str | None:
        """How charges to the data set add up; None before its first entry."""
        known = self.ledger.reading().budgets.get(self.dataset)
        return None if known is None else known.counted

    # -- charges -----------------------------------------------------------------------------------

    def charge(
        self,
        curve: Floats,
        facts: Mapping[str, Any] | None = None,
        price: Callable[[float], Floats] | None = None,
    ) -> None:
        """Charge what a run costs, or refuse and charge nothing.

        ``facts`` is what its entry says; ``price`` is what a run like it would cost at another
        epsilon, to say in a refusal which would fit.
        """
        facts = facts or {}
        with self._transaction() as totals:
            entry = self.paid(totals, curve)
            if entry is None:
                self.enter(self._bought(totals, curve, facts, price))
            elif any(entry[name] != value for name, value in facts.items()):
                raise InputError("resume", "must repeat the request that was charged")

    def charge_queries(self, each: Floats, most: int, needed: int | None, facts: Any) -> int:
        """Charge as many queries, up to ``most``, as a run of this budget may answer; or refuse.

        ``needed`` is how many must fit; one, if it is None. Returns how many were charged.
        """
        with self._transaction() as totals:
            entry = self.paid(totals)
            if entry is not None:
                self.paid(totals, entry["queries"] * each)
                return min(most, int(entry["queries"]))
            fit = self.affords(each, most)
            if not self.ledger.lasts:  # all calls of a guardian are one run
                fit = min(fit, totals.fitting(each, DEFAULT_ORDERS, self.dataset, most))
            if fit < (needed or 1):
                raise BudgetError(
                    f"epsilon {rounded_up(self.budget.epsilon)} at delta "
                    f"{rounded_up(self.budget.delta)} allows {fit} queries in the worst case with "
                    f"{self._mechanism}" + (f", but queries={needed}" if needed else "")
                )

            def price(epsilon: float) -> Floats:
                return self.affords(each, most, epsilon) * each

            facts = {"queries": fit, **facts}
            self.enter(self._bought(totals, fit * each, facts, price))
        return fit

    def affords(self, each: Floats, most: int, epsilon: float | None = None) -> int:
        """Return how many costs ``each``, up to ``most``, this run's budget allows."""
        budget = replace(self.budget, epsilon=epsilon or self.budget.epsilon, order=None)
        return budget.filter(DEFAULT_ORDERS).fitting(each, most)

    def _bought(
        self,
        totals: Totals,
        curve: Floats,
        facts: Mapping[str, Any],
        price: Callable[[float], Floats] | None,
    ) -> dict[str, Any]:
        """Return what the entry of a charge says: of the whole budget, or of a part that fits.

        A run with the data set's own epsilon and delta, before any other, takes all of the budget
        and stays alone in it: its own exact price holds. Any other is a part, and counts at the
        budget's order. Without a ledger that lasts, calls with the same curve are one run.
        """
        budget = totals.budgets[self.dataset]
        asked = (self.budget.epsilon, self.budget.delta)
        whole = self.dataset not in totals.charged and asked == (budget.epsilon, budget.delta)
        fits = totals.fitting(curve, DEFAULT_ORDERS, self.dataset, 1) > 0
        # What is priced exactly, and not by its curve, takes the whole in any case.
        if whole and (self.ledger.lasts or "learnt" in facts or not fits):
            more = {"everything": True, "curve": curve.tolist()}
            return self._charge(None, {**facts, **more})
        if not fits:
            raise self._too_much(totals, price)
        return self._charge(curve, facts)

    def _too_much(self, totals: Totals, price: Callable[[float], Floats] | None) -> BudgetError:
        """Return the refusal of a run that does not fit, with the largest epsilon that would."""
        budget, share = totals.budgets[self.dataset], totals.share(self.dataset) or 0.0
        text = (
            f"epsilon {rounded_up(self.budget.epsilon)} does not fit into what is left of the "
            f"budget of data set {self.dataset!r} (epsilon {rounded_up(budget.epsilon)}, "
            f"{100 * share:.0f} % used)"
        )
        if self.dataset in totals.spent_whole:
            return BudgetError(f"{text}: one run took all of it")
        if price is None or budget.order is None:
            return BudgetError(text)
        at = int(np.searchsorted(DEFAULT_ORDERS, budget.order))
        fits = largest_part(
            lambda epsilon: float(price(epsilon)[at]),
            totals.room(self.dataset),
            self.budget.epsilon,
        )
        return BudgetError(
            f"{text}: epsilon {fits:g} would fit" if fits else f"{text}: no run fits"
        )

    def charge_batch(
        self, each: Floats, queries: int, totals: Totals, *, facts: Mapping[str, Any]
    ) -> None:
        """Charge a coalition's batch at the data set's order, or refuse; inside a transaction."""
        self.authorise(totals)
        if totals.fitting(each, DEFAULT_ORDERS, self.dataset, queries) < queries:
            fit = totals.fitting(each, DEFAULT_ORDERS, self.dataset, queries)
            raise BudgetError(
                f"{self._named} allows {fit} more queries of {self.consumer} in the worst case "
                f"with {self._mechanism}, but queries={queries}"
            )
        self.enter(self._charge(queries * each, {"queries": queries, **facts}))

    def charge_sealed(self, curve: Floats, facts: Mapping[str, Any]) -> None:
        """Charge a cost that depends on the votes: sealed, and no ground to refuse."""
        with self._transaction() as totals:
            if self.paid(totals) is None:
                self.enter(self._charge(None, facts), {"rdp": curve.tolist()})

    # -- allowances --------------------------------------------------------------------------------

    def open(
        self,
        contribution: Callable[[], Floats],
        wanted: Counts | None,
        facts: Mapping[str, Any],
        roll: Roll | None = None,
    ) -> Allowance:
        """Find the account of an electorate, or open and charge it.

        Parameters
        ----------
        contribution
            Works out what one contribution costs at most, (orders,): only to open an account.
        wanted
            (voters,) the allowance asked for; None for the largest that fits.
        facts
            Sizes of the electorate: voters, labels.
        roll
            The digests of each voter's name, by name; None if voters are known by their place.
        """
        each = contribution()
        most = self.affords(FACTOR * each, MOST)

        def bought(totals: Totals) -> dict[str, Any]:
            if most < 1 or (wanted is not None and wanted.max() < 1):
                raise BudgetError(
                    f"epsilon {rounded_up(self.budget.epsilon)} at delta "
                    f"{rounded_up(self.budget.delta)} does not allow a contribution per voter with "
                    f"{self._mechanism}: use a larger sigma or epsilon"
                )
            if wanted is not None and wanted.max() > most:
                raise InputError(
                    "allowance",
                    f"must lie in 0..{most}, the largest that keeps "
                    f"`epsilon={rounded_up(self.budget.epsilon)}`; got {wanted.max()}",
                )
            own = most if wanted is None else plain(wanted)

            def price(epsilon: float) -> Floats:
                return FACTOR * self.affords(FACTOR * each, MOST, epsilon) * each

            more = {**facts, "allowance": own}
            return self._bought(totals, FACTOR * np.max(own) * each, more, price)

        allowance = self._open(bought, facts, roll)
        if wanted is not None and (allowance.own != wanted).any():
            raise BudgetError("this electorate already has an allowance, which cannot be changed")
        return allowance

    def open_learnt(
        self,
        terms: Mapping[str, Any],
        price: Callable[[float], Floats],
        facts: Mapping[str, Any],
        roll: Roll | None,
        *,
        queries: int,
        plans: bool,
    ) -> Allowance:
        """Find the account of an electorate whose allowance is learnt, or open and charge it.

        What is charged follows from public numbers, the same whatever will be learnt. ``price`` is
        what such a run costs by its epsilon, ``terms`` are its public terms. An account that was
        opened for more queries than one call's (``plans``) pays for later calls, too, as long as so
        many ``queries`` are left in it; any other is for one call.
        """

        def bought(totals: Totals) -> dict[str, Any]:
            more = {**facts, "allowance": 0, "learnt": dict(terms)}
            return self._bought(totals, price(self.budget.epsilon), more, price)

        return self._open(bought, facts, roll, queries=None if plans else queries)

    def _open(
        self,
        bought: Callable[[Totals], dict[str, Any]],
        facts: Mapping[str, Any],
        roll: Roll | None,
        *,
        queries: int | None = None,
    ) -> Allowance:
        """Find an account, or enter the charge that is ``bought``.

        With ``queries``, only one that has so many left, or a new one for them alone.
        """
        terms = terms_of({**self.entry, **facts})
        digests = None if roll is None else [fold for fold, _ in roll.values()]
        named = {"terms": terms, "voters": facts["voters"], "roll": digests}
        with self.paying(), self.ledger.writing() as totals:
            self.authorise(totals)
            paid = self.paid(totals)
            # A coalition's accounts have other names, so nobody goes on with one of those.
            account = self.ledger.name_account(named)
            if roll is not None:
                account = _account_of(totals, terms, roll) or account
            if paid is not None and "account" in paid:
                account = paid["account"]
            elif queries is not None and not totals.answers(account, queries):
                account = self.ledger.name_account({**named, "entry": totals.head[0]})
            if account not in totals.accounts:
                names = None if digests is None else {"roll": digests}
                self.enter({**bought(totals), "account": account}, names)
            known, seats = totals.accounts[account], None
            if roll is not None and known.roll is not None:
                at = np.array(known.seats(roll.values()), np.int64)
                seats = None if np.array_equal(at, np.arange(len(known.roll))) else at
            own = known.allowance, known.curve, seats
            return Allowance(self, account, *own, known.learnt, known.mechanism)

    def open_as(
        self,
        totals: Totals,
        account: str,
        contribution: Floats,
        allowance: Counts,
        facts: Mapping[str, Any],
    ) -> None:
        """Charge an allowance under a name of its own, if it fits; inside a transaction."""
        curve, most = FACTOR * allowance.max() * contribution, int(allowance.max())
        if most < 1 or totals.fitting(curve, DEFAULT_ORDERS, self.dataset, 1) < 1:
            raise self._nothing_left(totals)
        more = {"account": account, "allowance": plain(allowance)}
        self.enter(self._charge(curve, {**facts, **more}))

    def authorise(self, totals: Totals) -> Budget:
        """Fix the data set's budget at first use; refuse another one, or another kind or unit."""
        # Who has several records loses more from a release that protects one than the sum says.
        own = self.stamp.get("protects")
        mine, known = (
            (whom or VOTER).partition(" (")[0]
            for whom in (own, totals.protects.get(self.dataset, own))
        )
        if known != mine:
            raise BudgetError(
                f"data set {self.dataset!r} protects {known}: it cannot be combined with a release "
                f"that protects {mine}. Name another data set"
            )
        budget = totals.budgets.get(self.dataset)
        if budget is not None and self.budget.order is None and budget.delta != self.budget.delta:
            raise BudgetError(
                f"delta must be {rounded_up(budget.delta)}, that of the budget of data set "
                f"{self.dataset!r}, got {rounded_up(self.budget.delta)}"
            )
        if self.total is not None and (budget is None or self.total != budget.epsilon):
            delta = self.budget.delta if budget is None else budget.delta
            budget = Budget(epsilon=self.total, delta=delta)
        if budget is None and self.ledger.lasts and not self.conditional:
            self._say_whole()
        return self.ledger.fix_budget(totals, budget or self.budget, self.dataset, self.conditional)

    def _say_whole(self) -> None:
        """Say, before the charge, that a run without a budget leaves nothing for others."""
        if self.budget.order is None:  # a coalition's is for all its batches
            text = (
                f"data set {self.dataset!r} is new, and no budget was set: it is this run's "
                f"epsilon {rounded_up(self.budget.epsilon)}, and nothing will be left for other "
                "runs. To leave some, set a larger budget first (`privote ledger budget`)"
            )
            warnings.warn(text, PrivoteWarning, stacklevel=6)

    # -- what is drawn -----------------------------------------------------------------------------

    def check_undrawn(self) -> None:
        """Refuse to draw, once more for one charge, what a copy of the draft has drawn.

        The ledger shows it: by a later claim, or by an outcome that this run has not come across.
        """
        if self.claim is None:
            return
        (key, place), totals = draft_of(self.claim), self.ledger.reading()
        others = {*totals.outcomes.get(key, ())} - self._seen
        if others or totals.reached.get(key, 0) > place:
            raise DrawnError(_DRAWN)

    def record(
        self, drawn: str, stated: Mapping[str, Any], body: Mapping[str, Any]
    ) -> Entry | None:
        """Enter the digest of what was drawn, unless the run that is resumed has; return the entry.

        Another draw than was entered is refused. Where the ledger fails by now, a draft that kept
        what was drawn can be resumed; without one there is a warning, and None.
        """
        try:
            with self.ledger.writing() as totals:
                key = None if self.claim is None else draft_of(self.claim)[0]
                own = {*totals.outcomes.get(key or "", ())} - self._seen
                known = self.ledger.records().outcomes if own else []
                same = [e for e in known if e.number in own and e.hidden["drawn"] == drawn]
                if not same:
                    self.check_undrawn()
                    same = [_outcome(self.ledger, {**self.entry, **body}, drawn, stated)]
        except LedgerError as error:
            if self.draft is not None:
                raise
            text = f"the outcome is released, but could not be recorded in the ledger: {error}"
            warnings.warn(text, PrivoteWarning, stacklevel=4)
            return None
        self._seen.add(same[0].number)
        return same[0]

    # -- entries -----------------------------------------------------------------------------------

    def paid(self, totals: Totals, curve: Floats | None = None) -> dict[str, Any] | None:
        """Return the charge that a run which is resumed has made already; None without one.

        ``curve`` is what is to be charged: another than that charge's is refused.
        """
        entry = totals.claims.get(self.claim or "")
        if entry is not None and curve is not None:
            known = np.array(entry.get("curve", entry["rdp"]))
            if known.shape != curve.shape or not (curve <= known).all():
                raise InputError("resume", "must repeat the request that was charged")
        if entry is not None and self.draft is not None:
            self.draft.charging()  # a copy of a draft may be older than its charge
        return entry

    @contextmanager
    def _transaction(self) -> Iterator[Totals]:
        """Write to the ledger, once the data set's budget is there."""
        with self.paying(), self.ledger.writing() as totals:
            self.authorise(totals)
            yield totals

    @contextmanager
    def paying(self) -> Iterator[None]:
        """Have the draft say no longer that it is paid for, where that is refused after all.

        An interrupt leaves it so, and so does what fails after the commit: who resumes finds in the
        ledger whether it was charged.
        """
        before = self.draft is not None and self.draft.paid
        try:
            yield
        except CommittedError:
            raise
        except PrivoteError:
            if self.draft is not None:
                self.draft.paid = before
            raise

    @property
    def entry(self) -> dict[str, Any]:
        """What every entry says."""
        body: dict[str, Any] = {"dataset": self.dataset, **self.stamp}
        if self.consumer is not None:
            body["consumer"] = self.consumer
        if self.budget.order is None:  # a coalition charges batch by batch
            body["asked"] = [self.budget.epsilon, self.budget.delta]
        return body if self.claim is None else {**body, "claim": self.claim}

    def _charge(self, curve: Floats | None, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the entry of a charge says."""
        body = {"kind": "charge", **self.entry, **facts, "orders": DEFAULT_ORDERS.tolist()}
        return {**body, "rdp": None if curve is None else curve.tolist()}

    def enter(self, body: dict[str, Any], sealed: dict[str, Any] | None = None) -> None:
        """Append an entry, inside a transaction; before that the draft says that it is paid for."""
        if self.draft is not None and self.claim is not None:
            self.draft.charging()
        self.ledger.append(body, sealed)

    @property
    def _mechanism(self) -> str:
        return describe(self.stamp["mechanism"]) if "mechanism" in self.stamp else "this"

    @property
    def _named(self) -> str:
        budget = self.budget
        return (
            f"the budget of data set {self.dataset!r} (epsilon={rounded_up(budget.epsilon)} at "
            f"delta={rounded_up(budget.delta)})"
        )

    def _nothing_left(self, totals: Totals) -> BudgetError:
        if self.dataset in totals.charged:
            return BudgetError(
                f"what is left of {self._named} does not allow a contribution per voter with "
                f"{self._mechanism}. To continue an allowance that is already charged, use the "
                "same mechanism, voters and names"
            )
        return BudgetError(
            f"{self._named} allows no contribution per voter with {self._mechanism}: use a "
            "larger sigma or budget"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Allowance:
    """A charged allowance of one electorate: what it paid for, and what is done with it.

    Attributes
    ----------
    each
        (registered voters,) contributions for life, by seat.
    curve
        What was charged: (orders,).
    seats
        The seat of each named voter; None if they come as they were registered.
    learnt, mechanism
        Of one that is learnt: its public terms, and the parameters that follow from it, once it is
        drawn.
    unit
        What a whole vote's contribution counts in what is spent.
    """

    accounts: Accounts
    account: str
    each: Counts
    curve: Floats
    seats: Counts | None
    learnt: dict[str, Any] | None = None
    mechanism: dict[str, Any] | None = None
    unit: int = 1

    @property
    def own(self) -> Counts:
        """The allowance of each voter, in the order of their names."""
        return self.each if self.seats is None else self.each[self.seats]

    @property
    def answered(self) -> int:
        """How many queries were answered from it so far: a public number."""
        return self._known.queries

    @property
    def before(self) -> int:
        """How many queries were answered from it before this run; where one is resumed, that."""
        known = self._known
        return known.before.get(self.accounts.claim or "", known.queries)

    def answer(
        self, queries: int, weigh: Callable[[Counts], tuple[Some, Counts, Counts]]
    ) -> Some | None:
        """Enter what some queries take from the allowance, durably, and return what counts of them.

        ``weigh`` takes what is left of each allowance (registered voters,) and returns what counts,
        what each voter spends and what is refused
        (:func:`privote.votes.contributions.bound_contributions`).

        What the run that is resumed has entered is not entered again: of what it kept nothing
        counts any more, and what it did not keep takes the same from the same allowance. Of a
        learnt allowance, no more queries are answered than were planned.
        """
        accounts = self.accounts
        with accounts.paying(), accounts.ledger.writing() as totals:
            known, claim = totals.accounts[self.account], accounts.claim
            entered = claim in known.before
            draft = accounts.draft
            if entered and draft is not None and draft.ahead() is not None:
                return None
            accounts.check_undrawn()
            if self.learnt is not None and not entered:
                self.check_planned(known.queries, queries)
            last = known.last if entered and known.last and known.last[0] == claim else None
            if last is not None:
                spent, refused = known.spent - last[1], known.refused - last[2]
                known = replace(known, spent=spent, refused=refused)
            left = remaining(self.unit * self.each, known.spent, known.refused)
            counted, spent, refused = weigh(left)
            if last is not None and all(map(np.array_equal, last[1:], (spent, refused))):
                return counted
            body = {"kind": "answer", **accounts.entry, "account": self.account}
            accounts.enter(
                {**body, "queries": queries},
                sealed={"spent": packed(spent), "refused": packed(refused)},
            )
        return counted

    def check_planned(self, answered: int, more: int) -> None:
        """Refuse more queries than were planned when the allowance was learnt."""
        assert self.learnt is not None
        if answered + more > self.learnt["planned"]:
            raise BudgetError(
                f"this allowance was learnt for {self.learnt['planned']:,} queries in total, and "
                f"{answered:,} are answered: {more:,} more do not fit"
            )

    def learn(self, draw: Callable[[], tuple[Mapping[str, Any], int | None, int]]) -> Allowance:
        """Return the allowance once it is drawn; if it is not, have it drawn, and enter it, once.

        ``draw`` returns the mechanism's parameters, the allowance as it is published, and how many
        contributions a voter may cast. All of it is paid for.
        """
        with self.accounts.ledger.writing() as totals:
            known = totals.accounts[self.account]
            if known.mechanism is None:
                parameters, allowance, limit = draw()
                body = {"kind": "learnt", **self.accounts.entry, "account": self.account}
                body |= {"mechanism": parameters, "allowance": allowance, "limit": limit}
                self.accounts.enter(body)
            return replace(self, each=known.allowance, mechanism=known.mechanism)

    def spending(self) -> Sealed:
        """Return what each voter has done with it, in the order of their names. Sealed."""
        known, at = self._known, slice(None) if self.seats is None else self.seats
        return Sealed(
            spent=-(-known.spent[at] // self.unit),
            refused=known.refused[at].copy(),
            allowance=self.own.copy(),
        )

    @property
    def last(self) -> tuple[Counts, Counts]:
        """What the last answer took, by seat: spent and refused. Sealed."""
        known = self._known.last
        assert known is not None
        return known[1:]

    @property
    def _known(self) -> Account:
        return self.accounts.ledger.reading().accounts[self.account]


def _account_of(totals: Totals, terms: str, roll: Roll) -> str | None:
    """Return the account that named voters have under these terms; None if they have none.

    They are found whatever their order, and also if others of the same account are absent. Whoever
    is named must be in it, or nobody: so a voter has one allowance under the same terms.
    """
    for account, known in totals.accounts.items():
        if known.terms != terms or known.roll is None:
            continue
        places = known.seats(roll.values())
        strangers = [name for name, seat in zip(roll, places, strict=True) if seat is None]
        if not strangers:
            if len(set(places)) < len(places):
                raise InputError("voter_ids", "must name each voter only once")
            return account
        if len(strangers) < len(roll):
            raise InputError(
                "voter_ids",
                "names a voter who is not registered: the voters of an allowance are fixed when "
                "it is charged",
                sealed=f"it is {strangers[0]!r:.60}",
            )
    return None


def _outcome(
    ledger: Ledger, body: Mapping[str, Any], drawn: str, stated: Mapping[str, Any]
) -> Entry:
    """Enter the digest of what was drawn and what is stated of it, inside a transaction.

    Sealed all the same: the published view says nothing that depends on votes, not even by way of a
    release.
    """
    hidden = {"drawn": drawn, "stated": dict(stated)}
    row = ledger.append({**body, "kind": "outcome"}, hidden)
    return Entry(number=row.number, digest=row.digest, body=body, hidden=hidden)


def recorded(release: Release, outcome: Entry, *, lasts: bool = True) -> Release:
    """Return a release with what its outcome, which is entered, says of it."""
    stated = {name: outcome.hidden["stated"][name] for name in _AT_THE_END}
    drawn = (*release.drawn, outcome.hidden["drawn"])
    return replace(release, ledger=outcome.place if lasts else None, drawn=drawn, **stated)


def record_kept(place: Any, release: Release, since: int, draft: Draft | None = None) -> Release:
    """Enter what a draft kept of a release, unless that is done: a crash may have come before it.

    ``place`` is the ledger or where it is, ``since`` the entry after which the draft begins.

    Only for a charge that is there and of which that much is not recorded, so that nobody records
    what was never paid for, or what another copy of the draft has drawn.
    """
    if draft is not None:
        draft.check_ledger(lasts=getattr(place, "lasts", place is not None))
    if release.ledger is None:
        return release
    with Ledger.at(place, create=False) as book:
        return _record_kept(book, release, since, None if draft is None else draft.claim)


def _record_kept(ledger: Ledger, release: Release, since: int, claim: str | None) -> Release:
    key, place = ("", 0) if claim is None else draft_of(claim)
    with ledger.writing() as totals:
        records, start, whole = ledger.records(), 0, replace(release, drawn=())
        for outcome in records.outcomes:
            if outcome.number <= since:
                continue
            stop = start + outcome.hidden["stated"].get("answered", 0)
            digest = digest_of(release.outcome[start:stop])
            same = all(outcome.body.get(name) == getattr(release, name) for name in STAMPED[:-1])
            if same and start < stop <= release.answered and digest == outcome.hidden["drawn"]:
                start, whole = stop, recorded(whole, outcome)
            elif outcome.number in totals.outcomes.get(key, ()):
                raise DrawnError(_DRAWN)
        if start == release.answered:
            return whole
        if totals.reached.get(key, 0) > place:
            raise DrawnError(_DRAWN)
        tallies = None if release.tallies is None else release.tallies[start:]
        rest = replace(release, labels=release.labels[start:], tallies=tallies)
        charge = records.pending(rest.facts()) if records.holds(release.ledger or {}) else None
        if charge is None:
            raise DrawnError(
                "the ledger has no matching charge for these labels: nothing is released"
            )
        own = (*STAMPED, "owner", "voters", "labels", "account")
        body = {name: charge.body[name] for name in own if name in charge.body}
        body["queries"] = rest.answered if "account" in body else charge.body["queries"]
        body |= {} if claim is None else {"claim": claim}
        return recorded(whole, _outcome(ledger, body, digest_of(rest.outcome), rest.stated))


def plain(allowance: Counts) -> int | tuple[int, ...]:
    """Return an allowance as one number if all voters have the same."""
    first = int(allowance[0])
    return first if (allowance == first).all() else tuple(allowance.tolist())

"""What happened to a ledger, as typed events; what they add up to; and what a budget admits.

Every entry is one event. A *budget* is set or raised; a *charge* enters against it; a *reservation*
says which process holds a run; a *commit* records what was drawn; a *delivery*, which files it went
into. What depends on votes is in fields that are sealed: they lie in a table of their own, and the
published view never reads them.

:class:`LedgerState` is the fold of all events: pure, without clock, file or key. Every decision of
a ledger is made on it, and on public numbers: a run whose epsilon and delta are the budget's, with
nothing charged before, is *whole*: its own exact price holds, and it stays alone in the budget.
Every other run is a *part*: it counts by its Rényi cost at the budget's order, and is refused where
that does not fit.
"""

from __future__ import annotations

import base64
import json
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..accounting.allowance import line, mu_of_budget
from ..accounting.filters import RenyiFilter, check_charge, largest_part, pinned_order
from ..accounting.renyi import DEFAULT_ORDERS, Floats, check_delta, rounded_up
from ..errors import BudgetError, InputError, LedgerError, PrivoteWarning, plural, positive
from ..votes.names import folded
from .store import Head

Counts = npt.NDArray[np.int64]

_LARGE = 20.0  # epsilon: the most that the papers use
_LONGEST = 1000  # characters of a name, which stands in every entry
# Bytes that it has in words about an outcome: there a dozen times, escaped in 12 bytes or fewer.
# The ledger's own name counts, which may be longer than the one that was asked for.
_NAMED = 256 * _LONGEST
_PARTS = 1000  # runs that are counted at most, to say how many would still fit


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a data set, or one run, may cost.

    Parameters
    ----------
    epsilon, delta
        The guarantee.
    order
        Of a data set's budget: the one Rényi order at which its charges are counted, fixed with it
        (:mod:`privote.accounting.filters`).

    Examples
    --------
    >>> import privote as pv
    >>> budget = pv.Budget(epsilon=8.0, delta=1e-5)
    >>> budget.epsilon, budget.delta
    (8.0, 1e-05)
    """

    epsilon: float
    delta: float
    order: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive("epsilon", self.epsilon))
        object.__setattr__(self, "delta", check_delta(self.delta))

    def warn(self, people: int) -> None:
        """Warn of a budget that promises little, before it is spent.

        ``people`` is how many are protected: voters, persons or records. A delta above one over
        that may be kept by publishing somebody whole; the papers' epsilons go up to 20.
        """
        if people > 1 / self.delta:
            text = (
                f"delta {rounded_up(self.delta)} is large: each person's data may be revealed "
                "with that probability. Choose delta well below 1 / (number of persons)"
            )
            warnings.warn(text, PrivoteWarning, stacklevel=2)
        if self.epsilon > _LARGE:
            text = rounded_up(self.epsilon)
            warnings.warn(
                f"epsilon {text} protects almost nobody: one person's data may change the "
                f"probability of the outcome by a factor of e^{text}",
                PrivoteWarning,
                stacklevel=2,
            )

    @property
    def filter(self) -> RenyiFilter:
        """What it admits at its pinned order: the best for a full budget of Gaussian noise."""
        order = self.order or pinned_order(self.epsilon, self.delta)
        return RenyiFilter(self.epsilon, self.delta, order)

    def __str__(self) -> str:
        return f"epsilon={rounded_up(self.epsilon)}, delta={rounded_up(self.delta)}"


def check_name(argument: str, value: Any) -> str:
    """Return a name that an entry can carry, and that can be written anywhere."""
    if not isinstance(value, str) or not folded(value):
        raise InputError(argument, "must be a non-empty text", value)
    if len(value) > _LONGEST:
        raise InputError(argument, f"must have at most {_LONGEST} characters, got {len(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(argument, f"must be valid UTF-8 text, got {value!a:.60}") from None
    return value


# -- events ----------------------------------------------------------------------------------------


_SEALED = {"sealed": True}  # what depends on votes, or says who runs this and where


@dataclass(frozen=True, kw_only=True)
class Event:
    """One entry. A field that is None is left out of its text."""

    kind: ClassVar[str]

    def encoded(self) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Return what the entry says, and what is sealed with it."""
        parts: list[dict[str, Any]] = [{"kind": self.kind}, {}]
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and value != each.default:
                parts["sealed" in each.metadata][each.name] = value
        return parts[0], parts[1] or None


@dataclass(frozen=True, kw_only=True)
class BudgetSet(Event):
    """A data set's budget: the first fixes order and delta, a later one raises epsilon."""

    kind = "budget"
    dataset: str
    epsilon: float
    delta: float
    order: float


@dataclass(frozen=True, kw_only=True)
class Charged(Event):
    """A data set pays for a run.

    Attributes
    ----------
    dataset, consumer
        Whose data; in a coalition, the site that asked.
    epsilon, delta
        What the run was to cost, alone.
    cost
        The Rényi cost at the data set's order. None where one run takes the whole budget, and where
        the cost depends on the votes.
    whole, conditional
        Which of the two it is.
    protects, guarantee, simulated, terms
        Whom the guarantee protects, its kind, whether the noise has a seed, all other public terms.
    account, voters, allowance, planned
        The allowance that is paid for, if any: a keyed digest of what it is for, how many voters
        share it, contributions for life (one number, or one per voter; None until it is learnt),
        and for how many queries it is learnt.
    roll
        Sealed: keyed digests of the voters' names, by seat.
    """

    kind = "charge"
    dataset: str
    epsilon: float
    delta: float
    protects: str
    guarantee: str
    terms: Mapping[str, Any]
    cost: float | None = None
    whole: bool = False
    conditional: bool = False
    simulated: bool = False
    consumer: str | None = None
    account: str | None = None
    voters: int | None = None
    allowance: int | list[int] | None = None
    planned: int | None = None
    roll: list[str] | None = field(default=None, repr=False, metadata=_SEALED)


@dataclass(frozen=True, kw_only=True)
class Reserved(Event):
    """A process holds a run, which is known by a keyed digest of its public terms and output.

    ``state`` is the last commit of its allowance: the run begins there.
    """

    kind = "reserve"
    key: str
    holder: str
    charge: int
    state: int = 0
    operator: dict[str, str] | None = field(default=None, repr=False, metadata=_SEALED)


@dataclass(frozen=True, kw_only=True)
class TakenOver(Event):
    """Another process resumes a run: the one before can neither commit nor deliver any more."""

    kind = "takeover"
    run: int
    holder: str
    operator: dict[str, str] | None = field(default=None, repr=False, metadata=_SEALED)


@dataclass(frozen=True, kw_only=True)
class Committed(Event):
    """What a run drew. It happens once for a reservation, by its current holder.

    Attributes
    ----------
    queries
        How many were answered; public.
    mechanism, limit
        What was learnt: parameters, and how many contributions of a voter count for life.
    drawn, statement, facts
        Sealed: digests of what was drawn, of the statement's own text, and of the plain values.
    spent, clipped
        Sealed: contributions that each voter cast, and ballots that counted as the baseline.
    curve
        Sealed: the Rényi costs of a release whose cost depends on the votes.
    """

    kind = "commit"
    run: int
    holder: str
    queries: int = 0
    mechanism: Mapping[str, Any] | None = None
    limit: int | None = None
    drawn: str | None = field(default=None, repr=False, metadata=_SEALED)
    statement: str | None = field(default=None, repr=False, metadata=_SEALED)
    facts: str | None = field(default=None, repr=False, metadata=_SEALED)
    spent: str | None = field(default=None, repr=False, metadata=_SEALED)
    clipped: str | None = field(default=None, repr=False, metadata=_SEALED)
    curve: list[float] | None = field(default=None, repr=False, metadata=_SEALED)


@dataclass(frozen=True, kw_only=True)
class Delivered(Event):
    """What was drawn is in its files, or with the caller; ``files`` are their digests, sealed."""

    kind = "deliver"
    run: int
    holder: str
    files: dict[str, str] | None = field(default=None, repr=False, metadata=_SEALED)


@dataclass(frozen=True, kw_only=True)
class Closed(Event):
    """A run ends without a commit: it stays charged, and nothing of it was released."""

    kind = "close"
    run: int
    failed: bool = False  # by an exception, which may depend on votes; otherwise abandoned
    holder: str | None = None


@dataclass(frozen=True, kw_only=True)
class Restored(Event):
    """All before is from a backup of this time; until replaced, nothing can be charged."""

    kind = "restored"
    backup: str
    operator: dict[str, str] | None = field(default=None, repr=False, metadata=_SEALED)


@dataclass(frozen=True, kw_only=True)
class Replaced(Event):
    """The owner says that the original of a restored ledger is gone."""

    kind = "replaced"
    operator: dict[str, str] | None = field(default=None, repr=False, metadata=_SEALED)


_KINDS: dict[str, type[Event]] = {
    each.kind: each
    for each in (
        *(BudgetSet, Charged, Reserved, TakenOver, Committed),
        *(Delivered, Closed, Restored, Replaced),
    )
}


def decoded(body: str, sealed: str | None) -> Event:
    """Return the event that an entry holds; refuse what no version of this format writes."""
    facts, hidden = json.loads(body), json.loads(sealed or "{}")
    kind = _KINDS.get(facts.get("kind"))
    if kind is None:
        raise LedgerError(f"an entry of the unknown kind {facts.get('kind')!r:.40}")
    values = {
        each.name: (hidden if "sealed" in each.metadata else facts).get(
            each.name, None if each.default is MISSING else each.default
        )
        for each in fields(kind)
    }
    return kind(**values)


def packed(counts: Counts) -> str:
    """Return small counts (voters,) as text: a few bits a voter, however many voters."""
    narrow = np.dtype(f"<u{1 if counts.max(initial=0) < 256 else 8}")
    body = zlib.compress(counts.astype(narrow).tobytes(), level=1)
    return f"{narrow.itemsize}:{base64.b64encode(body).decode('ascii')}"


def unpacked(text: str) -> Counts:
    """Return what :func:`packed` was given."""
    width, _, body = text.partition(":")
    return np.frombuffer(zlib.decompress(base64.b64decode(body)), f"<u{width}").astype(np.int64)


# -- what they add up to ---------------------------------------------------------------------------


@dataclass
class BudgetScope:
    """A data set: its budget, and what was charged to it.

    Attributes
    ----------
    spent
        The sum of costs at the budget's order.
    epsilons
        What each run was to cost alone.
    whole
        Whether one run took all of the budget.
    conditional, protects
        The kind of guarantee that the data set keeps to, and the unit of protection; None before
        the first charge.
    raised
        Whether the budget was raised after it was set.
    """

    name: str
    budget: Budget
    spent: float = 0.0
    epsilons: list[float] = field(default_factory=list)
    whole: bool = False
    conditional: bool | None = None
    protects: str | None = None
    raised: bool = False

    def add(self, charge: Charged) -> None:
        """Count a charge."""
        self.epsilons.append(charge.epsilon)
        self.spent += charge.cost or 0.0
        self.whole |= charge.whole
        if self.protects is None:
            self.conditional, self.protects = charge.conditional, charge.protects

    @property
    def total(self) -> float | None:
        """Epsilon of all charges; None where it depends on the votes.

        Of one run, its own. From the second on, the conversion of what all cost at the pinned
        order, which even at no cost is above 0.
        """
        if self.conditional:
            return None
        if self.whole:
            return self.budget.epsilon
        if not self.epsilons:
            return 0.0
        together = self.budget.filter.epsilon(self.spent)
        return min(self.epsilons[0], together) if len(self.epsilons) == 1 else together

    @property
    def share(self) -> float | None:
        """The share of the budget that is used; None where nothing is counted."""
        if self.conditional:
            return None
        if self.whole:
            return 1.0
        empty = self.budget.filter.room(0.0)
        return min(1.0, max(0.0, 1 - self.room / empty)) if empty else 1.0

    @property
    def room(self) -> float:
        """What is left of the budget, as a Rényi cost at its order."""
        return 0.0 if self.whole else self.budget.filter.room(self.spent)

    def admits(self, cost: float) -> bool:
        """Return whether a further cost fits."""
        return not self.whole and self.budget.filter.admits(self.spent, cost)

    def largest(self) -> float:
        """Return about the largest epsilon of one more run, of Gaussian noise; 0 if none fits."""
        if self.conditional or not self.epsilons:
            return self.budget.epsilon
        return largest_part(self.price, self.room, self.budget.epsilon)

    def price(self, epsilon: float) -> float:
        """Return what a run of Gaussian noise costs at the budget's order."""
        return self.budget.filter.order * line(0.0, mu_of_budget(epsilon, self.budget.delta, 0.0))

    def runs_at(self, epsilon: float) -> int:
        """Return how many more runs of this epsilon fit, of Gaussian noise."""
        if self.whole:
            return 0
        return self.budget.filter.fitting(self.spent, self.price(epsilon), _PARTS)


@dataclass
class AllowanceState:
    """A charged allowance: whose it is, and what was done with it.

    Attributes
    ----------
    charge
        The charge that paid for it.
    allowance, spent, clipped
        (voters,) by seat: contributions for life, contributions cast, and ballots that counted as
        the baseline because what was left did not pay for them.
    seats
        The seat of each voter by the keyed digest of its name; None if voters are known by place.
    answered
        How many queries were answered from it; public.
    mechanism
        Parameters that were learnt; None until then.
    last
        The entry of its last commit.
    run
        The reservation that is open; None if there is none.
    lost
        Whether a run failed after its reservation: nobody knows what that one spent.
    """

    charge: Charged
    allowance: Counts
    spent: Counts
    clipped: Counts
    seats: dict[str, int] | None
    answered: int = 0
    mechanism: Mapping[str, Any] | None = None
    last: int = 0
    run: int | None = None
    lost: bool = False

    @classmethod
    def of(cls, charge: Charged) -> AllowanceState:
        """Return an allowance of which nothing is used."""
        voters = charge.voters or 1
        allowance = np.broadcast_to(np.array(charge.allowance or 0, np.int64), (voters,)).copy()
        seats = None if charge.roll is None else {name: at for at, name in enumerate(charge.roll)}
        nothing = np.zeros(voters, np.int64)
        return cls(charge, allowance, nothing, nothing, seats)

    @property
    def limits(self) -> int | tuple[int, ...]:
        """Contributions for life: one number if all voters have the same, or one by seat."""
        first = int(self.allowance[0])
        return first if (self.allowance == first).all() else tuple(self.allowance.tolist())

    @property
    def remaining(self) -> int | None:
        """How many more queries a learnt allowance is for; None if any number."""
        return None if self.charge.planned is None else self.charge.planned - self.answered

    def add(self, entry: int, commit: Committed) -> None:
        """Count what a run took."""
        if commit.mechanism is not None:
            self.mechanism = commit.mechanism
            self.allowance = np.full(len(self.spent), commit.limit, np.int64)
        if commit.spent is not None and commit.clipped is not None:
            self.spent = self.spent + unpacked(commit.spent)
            self.clipped = self.clipped + unpacked(commit.clipped)
        self.answered, self.last, self.run = self.answered + commit.queries, entry, None


@dataclass
class RunState:
    """A run from its reservation on, whose entry has this number and digest.

    Attributes
    ----------
    status
        "open", "committed", "delivered", "failed" or "abandoned".
    """

    number: int
    digest: str
    reserved: Reserved
    holder: str
    at: str
    operator: Mapping[str, str]
    status: str = "open"
    commit: Committed | None = None
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.status not in ("open", "committed")

    @property
    def released(self) -> dict[str | None, str]:
        """What it released, by digest: its statement, what was drawn, files."""
        digests: dict[str | None, str] = {
            digest: f"file {name!r}" for name, digest in self.files.items()
        }
        if self.commit is None:
            return digests
        commit = {self.commit.drawn: "outcome", self.commit.statement: "statement"}
        return {**digests, **commit, self.commit.facts: "guarantee"}


@dataclass
class LedgerState:
    """The sum of all events so far; :meth:`add` takes the next one.

    Attributes
    ----------
    scopes, charges, accounts, runs
        Data sets by name, charges by their entry, allowances by the charge that paid for them, and
        runs by the entry of their reservation.
    restored
        When each backup was written that this ledger was restored from.
    replaced
        Whether the original of the last one is gone; True if it was never restored.
    """

    scopes: dict[str, BudgetScope] = field(default_factory=dict)
    accounts: dict[int, AllowanceState] = field(default_factory=dict)
    runs: dict[int, RunState] = field(default_factory=dict)
    charges: dict[int, Charged] = field(default_factory=dict)
    restored: list[str] = field(default_factory=list)
    replaced: bool = True

    def known(self, dataset: str) -> str:
        """Return the ledger's name of a data set: the same, or the one that folds to the same.

        A name that nobody knows yet stays as it is. Known names that fold together are not merged:
        what folds to two of them, and is neither, is refused.
        """
        if check_name("dataset", dataset) in self.scopes:
            return dataset
        same = sorted(name for name in self.scopes if folded(name) == folded(dataset))
        if len(same) > 1:
            names = ", ".join(map(ascii, same))
            rule = f"must match one of the ledger's names exactly: {names}"
            raise InputError("dataset", rule, dataset)
        return same[0] if same else dataset

    def latest(self, key: str) -> RunState | None:
        """Return the last run with this key."""
        runs = reversed(self.runs.values())
        return next((run for run in runs if run.reserved.key == key), None)

    def add(self, head: Head, at: str, event: Event) -> None:
        """Add one event: number and digest of its entry, and when that was written."""
        entry, digest = head
        match event:
            case BudgetSet():
                budget = Budget(epsilon=event.epsilon, delta=event.delta, order=event.order)
                scope = self.scopes.setdefault(event.dataset, BudgetScope(event.dataset, budget))
                scope.budget, scope.raised = budget, bool(scope.epsilons)
            case Charged():
                self.charges[entry] = event
                self.scopes[event.dataset].add(event)
                if event.account is not None:
                    self.accounts[entry] = AllowanceState.of(event)
            case Reserved():
                run = RunState(entry, digest, event, event.holder, at, event.operator or {})
                self.runs[entry] = run
                if event.charge in self.accounts:
                    self.accounts[event.charge].run = entry
            case TakenOver():
                run = self.runs[event.run]
                run.holder, run.operator = event.holder, event.operator or {}
            case Committed():
                run = self.runs[event.run]
                run.status, run.commit = "committed", event
                if run.reserved.charge in self.accounts:
                    self.accounts[run.reserved.charge].add(entry, event)
            case Delivered():
                self.runs[event.run].status = "delivered"
                self.runs[event.run].files = event.files or {}
            case Closed():
                run = self.runs[event.run]
                run.status = "failed" if event.failed else "abandoned"
                account = self.accounts.get(run.reserved.charge)
                if account is not None:
                    account.run, account.lost = None, account.lost or event.failed
            case Restored():
                self.restored.append(event.backup)
                self.replaced = False
            case Replaced():
                self.replaced = True


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What a data set had cost when a run was reserved, this run included.

    Attributes
    ----------
    dataset, budget, raised
        Its name, what it may cost in all, and whether that was raised after its first charge.
    total, share, runs
        Epsilon of all that was charged, which share of the budget that is, and how many runs it
        were; None where it depends on the votes.
    whole, order
        Whether one run took the whole budget; else the order at which charges add up.
    new
        Whether nothing was charged before.
    entry, digest
        The reservation in the ledger.
    continues
        The run that opened the allowance and was charged for it; None for that run itself.
    """

    dataset: str
    budget: float
    raised: bool
    total: float | None
    share: float | None
    runs: int
    whole: bool
    order: float
    new: bool
    entry: int
    digest: str
    continues: int | None = None

    @classmethod
    def of(cls, state: LedgerState, run: int) -> Standing:
        """Return what the data set of a run has cost by now."""
        charge = state.runs[run].reserved.charge
        scope = state.scopes[state.charges[charge].dataset]
        first = next(n for n, each in state.charges.items() if each.dataset == scope.name)
        opener = next(n for n, each in state.runs.items() if each.reserved.charge == charge)
        return cls(
            dataset=scope.name,
            budget=scope.budget.epsilon,
            raised=scope.raised,
            total=scope.total,
            share=scope.share,
            runs=len(scope.epsilons),
            whole=scope.whole,
            order=scope.budget.filter.order,
            new=first == charge and opener == run,
            entry=run,
            digest=state.runs[run].digest,
            continues=None if opener == run else opener,
        )


# -- what a budget admits --------------------------------------------------------------------------


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

    def __post_init__(self) -> None:
        check_name("dataset", self.dataset)
        if self.budget is not None:
            positive("budget", self.budget)
            if self.ledger is None:
                raise InputError("budget", "needs a `ledger`, which keeps it", self.budget)


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

    @property
    def size(self) -> int:
        """How many bytes the outcome has, and all that is said of it."""
        arrays = (np.dtype(kind).itemsize * int(np.prod(of)) for kind, of in self.layout.values())
        return self.room + _NAMED + sum(arrays)

    def cost_at(self, order: float, epsilon: float | None = None) -> float:
        """Return what the run, or one like it at another epsilon, costs at an order."""
        if self.price is None:
            return 0.0
        curve = check_charge(self.price(self.cost.epsilon if epsilon is None else epsilon))
        return float(curve[int(np.searchsorted(DEFAULT_ORDERS, order))])


def admit(state: LedgerState, request: Request) -> tuple[*tuple[BudgetSet, ...], Charged]:
    """Return the events that charge a run: its budget, if that is new, and the charge; or raise."""
    scope, cost, price = authorise(state, request), request.cost, None
    asked, conditional = (cost.epsilon, cost.delta), request.price is None
    whole = not conditional and not scope.epsilons
    whole = whole and asked == (scope.budget.epsilon, scope.budget.delta)
    if not whole and not conditional:
        price = request.cost_at(scope.budget.filter.order)
        if not scope.admits(price):
            raise refusal(scope, request)
    charge = Charged(
        dataset=scope.name,
        epsilon=cost.epsilon,
        delta=cost.delta,
        protects=request.protects,
        guarantee=request.guarantee,
        terms=request.terms,
        cost=price,
        whole=whole,
        conditional=conditional,
        simulated=request.simulated,
    )
    if scope.name in state.scopes:
        return (charge,)
    return raised(state, scope.budget, scope.name), charge


def raised(state: LedgerState, budget: Budget, dataset: str) -> BudgetSet:
    """Return the event that sets a data set's budget, or raises it; or refuse another change."""
    scope = state.scopes.get(dataset)
    if scope is not None and scope.whole:
        raise BudgetError(f"one run took the whole budget of data set {dataset!r}")
    first = budget if scope is None else scope.budget
    if budget.delta != first.delta or budget.epsilon < first.epsilon:
        raise BudgetError(
            f"the budget of data set {dataset!r} is {first}: only its epsilon can be "
            f"raised; you asked for {budget}"
        )
    order = first.filter.order  # fixed with the first, for good
    return BudgetSet(dataset=dataset, epsilon=budget.epsilon, delta=budget.delta, order=order)


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
            f"protects {unit}. Protect the same unit as before; another data set has a budget of "
            "its own, and is for other people"
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
    return BudgetError(f"{text}. {still(scope, largest, about=False)}")


def still(scope: BudgetScope, largest: float, *, about: bool = True) -> str:
    """Say what could still be asked: one run at the largest epsilon, or several at a smaller.

    About, unless the largest is that of the very run: one that learns an allowance pays a little
    more than one of Gaussian noise.
    """
    less = "a little less" if about else "less"
    text = f"You can still ask: one run at epsilon {largest:g} or {less}"
    smaller = float(f"{largest / 4:.1g}")
    runs = scope.runs_at(smaller)
    return f"{text}, or about {runs} at epsilon {smaller:g}" if runs > 1 else text


def after(state: LedgerState, request: Request) -> BudgetScope:
    """Return the data set's scope as it will be once a run is charged; or raise."""
    charge = admit(state, request)[-1]
    assert isinstance(charge, Charged)
    scope = authorise(state, request)
    scope = replace(scope, epsilons=[*scope.epsilons])
    scope.add(charge)
    return scope


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
            f"this allowance was learnt for {plural(planned, 'query')} in total, which cannot be "
            f"changed; got `plan_for={wanted.planned}`"
        )
    if account.answered + (wanted.queries or 0) > planned:
        raise BudgetError(
            f"this allowance was learnt for {plural(planned, 'query')} in total, of which "
            f"{account.answered:,} answered by now: {wanted.queries:,} more do not fit"
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

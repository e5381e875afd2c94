"""What happened to a ledger, as typed events, and what they add up to.

Every entry is one event. A *budget* is set or raised; a *charge* enters against it; a *reservation*
says which process holds a run; a *commit* records what was drawn; a *delivery*, which files it went
into. What depends on votes is in fields that are sealed: they lie in a table of their own, and the
published view never reads them.

:class:`LedgerState` is the fold of all events: pure, without clock, file or key. Every decision of
a ledger is made on it.
"""

from __future__ import annotations

import base64
import json
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..accounting.allowance import line, mu_of_budget
from ..accounting.filters import RenyiFilter, largest_part, pinned_order
from ..accounting.renyi import check_delta, rounded_up
from ..errors import InputError, LedgerError, PrivoteWarning, positive
from ..votes.names import folded

Counts = npt.NDArray[np.int64]

_LARGE = 20.0  # epsilon: the most that the papers use
_LONGEST = 1000  # characters of a name, which stands in every entry
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
    """A run from its reservation on.

    Attributes
    ----------
    status
        "open", "committed", "delivered", "failed" or "abandoned".
    """

    number: int
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
        same = [run for run in self.runs.values() if run.reserved.key == key]
        return same[-1] if same else None

    def add(self, entry: int, at: str, event: Event) -> None:
        """Add one event, which stands at this entry and was written at this time."""
        match event:
            case BudgetSet():
                self._set_budget(event)
            case Charged():
                self._charge(entry, event)
            case Reserved():
                run = RunState(entry, event, event.holder, at, event.operator or {})
                self.runs[entry] = run
                if event.charge in self.accounts:
                    self.accounts[event.charge].run = entry
            case TakenOver():
                run = self.runs[event.run]
                run.holder, run.operator = event.holder, event.operator or {}
            case Committed():
                self._commit(entry, event)
            case Delivered():
                self.runs[event.run].status = "delivered"
                self.runs[event.run].files = event.files or {}
            case Closed():
                self._close(event)
            case Restored():
                self.restored.append(event.backup)
                self.replaced = False
            case Replaced():
                self.replaced = True

    def _set_budget(self, event: BudgetSet) -> None:
        budget = Budget(epsilon=event.epsilon, delta=event.delta, order=event.order)
        scope = self.scopes.get(event.dataset)
        if scope is None:
            self.scopes[event.dataset] = BudgetScope(event.dataset, budget)
        else:
            scope.budget, scope.raised = budget, bool(scope.epsilons)

    def _charge(self, entry: int, event: Charged) -> None:
        scope = self.scopes[event.dataset]
        self.charges[entry] = event
        scope.epsilons.append(event.epsilon)
        scope.spent += event.cost or 0.0
        scope.whole |= event.whole
        if scope.protects is None:
            scope.conditional, scope.protects = event.conditional, event.protects
        if event.account is not None:
            voters = event.voters or 1
            allowance = np.broadcast_to(np.array(event.allowance or 0), (voters,))
            seats = None if event.roll is None else {name: at for at, name in enumerate(event.roll)}
            nothing = np.zeros(voters, np.int64)
            self.accounts[entry] = AllowanceState(
                event, allowance.astype(np.int64), nothing, nothing, seats
            )

    def _commit(self, entry: int, event: Committed) -> None:
        run = self.runs[event.run]
        run.status, run.commit = "committed", event
        if run.reserved.charge in self.accounts:
            self.accounts[run.reserved.charge].add(entry, event)

    def _close(self, event: Closed) -> None:
        run = self.runs[event.run]
        run.status = "failed" if event.failed else "abandoned"
        if run.reserved.charge in self.accounts:
            account = self.accounts[run.reserved.charge]
            account.run, account.lost = None, account.lost or event.failed


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

    @classmethod
    def of(cls, state: LedgerState, run: int, digest: str) -> Standing:
        """Return what the data set of a run has cost by now; ``digest`` is of its reservation."""
        charge = state.runs[run].reserved.charge
        scope = state.scopes[state.charges[charge].dataset]
        first = next(n for n, each in state.charges.items() if each.dataset == scope.name)
        return cls(
            dataset=scope.name,
            budget=scope.budget.epsilon,
            raised=scope.raised,
            total=scope.total,
            share=scope.share,
            runs=len(scope.epsilons),
            whole=scope.whole,
            order=scope.budget.filter.order,
            new=first == charge,
            entry=run,
            digest=digest,
        )

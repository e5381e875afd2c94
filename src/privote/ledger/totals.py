"""What the entries of a ledger add up to, read once and then only continued."""

from __future__ import annotations

import base64
import json
import math
import warnings
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..accounting.allowance import line, mu_of_budget
from ..accounting.filters import RenyiFilter, largest_part, pinned_order
from ..accounting.renyi import DEFAULT_ORDERS, Floats, check_delta, check_orders, rounded_up
from ..errors import InputError, LedgerError, PrivoteWarning, positive
from ..votes.names import folded
from .chain import Chain, canonical
from .store import START, Head, Row

Counts = npt.NDArray[np.int64]

_LARGE = 20.0  # epsilon: the most that the papers use
_TERMS = ("dataset", "consumer", "owner", "mechanism", "simulated", "labels", "asked")
_LONGEST = 1000  # characters of a name, which stands in every entry


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The privacy budget of a data set.

    Parameters
    ----------
    epsilon, delta
        The guarantee.
    order
        The one Rényi order at which charges are counted, of any mechanisms, also where they were
        chosen from released labels (:mod:`privote.accounting.filters`). A ledger that lasts sets it
        with the budget. ``None``, for a run without a ledger: all charges are multiples of the
        first, counted at the best order.

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
        if self.order is not None:
            object.__setattr__(self, "order", float(check_orders([self.order])[0]))

    def warn(self, people: int) -> None:
        """Warn of a budget that promises little, before it is spent.

        ``people`` is how many are protected: voters, persons or records. A delta above one over
        that may be kept by publishing somebody whole; the papers' epsilons go up to 20.
        """
        if people > 1 / self.delta:
            said = (
                f"delta {rounded_up(self.delta)} is large: each person's data may be revealed "
                "with that probability. Choose delta well below 1 / (number of persons)"
            )
            warnings.warn(said, PrivoteWarning, stacklevel=1)
        if self.epsilon > _LARGE:
            text = rounded_up(self.epsilon)
            said = (
                f"epsilon {text} protects almost nobody: one person's data may change the "
                f"probability of the outcome by a factor of e^{text}"
            )
            warnings.warn(said, PrivoteWarning, stacklevel=1)

    def shared(self) -> Budget:
        """Return this budget with an order: the best for a full one of Gaussian-like charges."""
        if self.order is not None:
            return self
        return replace(self, order=pinned_order(self.epsilon, self.delta))

    def differs(self, known: Budget) -> bool:
        """Return True if this asks for something else than what is known."""
        same = (self.epsilon, self.delta) == (known.epsilon, known.delta)
        return not same or self.order not in (None, known.order)

    @property
    def counted(self) -> str:
        """How charges add up, in words: "shared at order 4", "exclusive"."""
        return "exclusive" if self.order is None else f"shared at order {self.order:g}"

    def __str__(self) -> str:
        text = f"epsilon={rounded_up(self.epsilon)}, delta={rounded_up(self.delta)}"
        return text if self.order is None else f"{text}, {self.counted}"

    def filter(self, orders: Floats) -> RenyiFilter:
        """Return a filter that has admitted nothing yet."""
        return RenyiFilter(self.epsilon, self.delta, self.order, orders)


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


def terms_of(body: dict[str, Any]) -> str:
    """Return what an allowance was charged for: only the same terms go on with it."""
    return canonical({key: body.get(key) for key in _TERMS})


@dataclass
class Account:
    """A charged allowance: whose it is, and what was done with it.

    Attributes
    ----------
    terms
        For which data set, consumer, owner, mechanism and labels.
    allowance, spent, refused
        (voters,) by seat: contributions for life, contributions cast, and ballots that counted as
        the baseline because what was left did not pay for them.
    curve
        What it was charged: (orders,).
    queries
        How many were answered from it; public.
    roll
        The seat of each voter by the keyed digest of its name; None if voters are known by place.
    before
        How many queries were answered before each answer that has a claim, by claim.
    last
        The claim of the last answer, and what it took: spent and refused.
    learnt
        Public terms, where the allowance is learnt: none is there until it is drawn.
    mechanism
        Its parameters, which follow from a learnt allowance; None until that is drawn.
    """

    terms: str
    allowance: Counts
    spent: Counts
    refused: Counts
    curve: Floats
    roll: dict[str, int] | None
    queries: int = 0
    before: dict[str, int] = field(default_factory=dict)
    last: tuple[str | None, Counts, Counts] | None = None
    learnt: dict[str, Any] | None = None
    mechanism: dict[str, Any] | None = None

    def seats(self, digests: Iterable[tuple[str, str]]) -> list[int | None]:
        """Return the seat of each voter by what :meth:`Ledger.name_voter` says of its name.

        None who is not registered. A name as it stands comes before one that only folds to it.
        """
        roll = self.roll or {}
        return [roll.get(exact, roll.get(fold)) for fold, exact in digests]


@dataclass
class Totals:
    """The sums over all entries so far."""

    head: Head = (0, START)  # number and digest of the last entry
    budgets: dict[str, Budget] = field(default_factory=dict)
    conditional: dict[str, bool] = field(default_factory=dict)
    protects: dict[str, str | None] = field(default_factory=dict)
    filters: dict[str, RenyiFilter] = field(default_factory=dict)
    orders: dict[str, Floats] = field(default_factory=dict)
    charged: set[str] = field(default_factory=set)
    spent_whole: set[str] = field(default_factory=set)
    asked: dict[str, list[float]] = field(default_factory=dict)  # epsilons of runs, one by one
    accounts: dict[str, Account] = field(default_factory=dict)
    restored: list[dict[str, Any]] = field(default_factory=list)
    claims: dict[str, dict[str, Any]] = field(default_factory=dict)  # charges that have one
    outcomes: dict[str, list[int]] = field(default_factory=dict)  # their entries, by draft
    reached: dict[str, int] = field(default_factory=dict)  # the last claim of each draft

    def known(self, dataset: str) -> str:
        """Return the entries' name of a data set: the same, or the one that folds to the same.

        A name that nobody knows yet stays as it is. Known names that fold together are not merged:
        what folds to two of them, and is neither, is refused.
        """
        names = self.budgets.keys() | self.charged
        if check_name("dataset", dataset) in names:
            return dataset
        same = sorted(name for name in names if folded(name) == folded(dataset))
        if len(same) > 1:
            raise InputError(
                "dataset",
                f"must match one of the ledger's names exactly: {', '.join(map(ascii, same))}",
                dataset,
            )
        return same[0] if same else dataset

    def filter(self, dataset: str, orders: Floats) -> RenyiFilter:
        """Return what a data set's budget has admitted so far."""
        return self.filters.get(dataset) or self.budgets[dataset].filter(orders)

    def fitting(self, each: Floats, orders: Floats, dataset: str, most: int) -> int:
        """Return how many costs ``each``, up to ``most``, still fit a data set's budget."""
        known = self.orders.get(dataset)
        if known is not None and not np.array_equal(known, orders):
            raise InputError("orders", "must equal those of the data set's earlier charges")
        if dataset in self.spent_whole:
            return 0
        return self.filter(dataset, orders).fitting(each, most)

    def slope(self, orders: Floats, dataset: str) -> float:
        """Return the largest rho so that rho times the order still fits a data set's budget."""
        return 0.0 if dataset in self.spent_whole else self.filter(dataset, orders).slope()

    def answers(self, account: str, queries: int) -> bool:
        """Return whether so many queries are left in a learnt allowance."""
        known = self.accounts.get(account)
        planned = 0 if known is None or known.learnt is None else known.learnt["planned"]
        return known is not None and planned - known.queries >= queries

    def used(self, dataset: str) -> float | None:
        """Return the epsilon of all charges to a data set; None where it is not unconditional.

        Of one run, its own. From the second on, the conversion of what all cost at the pinned
        order, which even at no cost is above 0.
        """
        if self.conditional.get(dataset):
            return None
        if dataset in self.spent_whole:
            return self.budgets[dataset].epsilon
        if dataset not in self.filters:
            return 0.0
        runs = self.asked.get(dataset, [])
        together = self.filters[dataset].epsilon()
        return min(runs[0], together) if len(runs) == 1 else together

    def share(self, dataset: str) -> float | None:
        """Return which share of a data set's budget is used; None where nothing is counted."""
        if dataset not in self.budgets or self.conditional.get(dataset):
            return None
        if dataset in self.spent_whole:
            return 1.0
        left = self.filter(dataset, DEFAULT_ORDERS).room()
        return min(1.0, max(0.0, 1 - left / self.budgets[dataset].filter(DEFAULT_ORDERS).room()))

    def fits(self, dataset: str) -> float | None:
        """Return about the largest epsilon of one more run, of Gaussian noise; 0 if none fits."""
        if dataset not in self.budgets or self.conditional.get(dataset):
            return None
        budget = self.budgets[dataset]
        if dataset not in self.charged:
            return budget.epsilon
        order, delta = budget.order or 1.0, budget.delta

        def price(epsilon: float) -> float:
            return order * line(0.0, mu_of_budget(epsilon, delta, 0.0))

        return largest_part(price, self.room(dataset), budget.epsilon)

    def room(self, dataset: str) -> float:
        """Return what is left of a data set's budget, as a Rényi cost at its pinned order."""
        whole = dataset in self.spent_whole
        return 0.0 if whole else self.filter(dataset, DEFAULT_ORDERS).room()

    def add(self, row: Row, chain: Chain) -> None:
        """Add one entry."""
        body = json.loads(row.body)
        self.head = row.number, row.digest
        if body["kind"] == "restored":
            told = {"entry": row.number, "at": row.at, "backup": body["backup"]}
            self.restored.append(told)
            return
        if body.get("claim") is not None:
            draft, place = draft_of(body["claim"])
            self.reached[draft] = max(place, self.reached.get(draft, 0))
            if body["kind"] == "outcome":
                self.outcomes.setdefault(draft, []).append(row.number)
        if body["kind"] == "budget":
            (order,) = body["orders"] or (None,)
            budget = Budget(epsilon=body["epsilon"], delta=body["delta"], order=order)
            self.budgets[body["dataset"]] = budget
            if body["dataset"] in self.filters:  # it was raised
                self.filters[body["dataset"]].budget = budget.epsilon
        elif body["kind"] == "charge":
            self._add_charge(body, row, chain)
        elif body["kind"] == "learnt":
            account = self.accounts[body["account"]]
            account.mechanism = body["mechanism"]
            account.allowance = np.full(len(account.spent), body["limit"], np.int64)
        elif body["kind"] == "answer":
            self._add_answer(body, row, chain)

    def _add_charge(self, body: dict[str, Any], row: Row, chain: Chain) -> None:
        dataset = body["dataset"]
        self.conditional.setdefault(dataset, body["guarantee"] == "data-dependent")
        self.protects.setdefault(dataset, body.get("protects"))
        self.charged.add(dataset)
        if body.get("claim") is not None:
            self.claims[body["claim"]] = body
        if body.get("everything"):
            self.spent_whole.add(dataset)
        self.asked.setdefault(dataset, []).append(body["asked"][0] if "asked" in body else math.inf)
        if body["rdp"] is not None:
            curve, orders = np.array(body["rdp"]), np.array(body["orders"])
            self.orders[dataset] = orders
            if dataset in self.budgets:
                self.filters[dataset] = self.filter(dataset, orders)
                self.filters[dataset].add(curve)
        if "account" in body:
            hidden = unsealed(row, body, chain) if "seal" in body else {}
            roll, voters = hidden.get("roll"), body["voters"]
            curve = body.get("curve", body["rdp"])  # a whole budget is charged without one
            each = np.broadcast_to(np.array(body["allowance"]), (voters,)).astype(np.int64)
            self.accounts[body["account"]] = Account(
                terms=terms_of(body),
                allowance=each,
                spent=np.zeros(voters, np.int64),
                refused=np.zeros(voters, np.int64),
                curve=np.zeros(len(body["orders"])) if curve is None else np.array(curve),
                roll=None if roll is None else {name: seat for seat, name in enumerate(roll)},
                learnt=body.get("learnt"),
            )

    def _add_answer(self, body: dict[str, Any], row: Row, chain: Chain) -> None:
        hidden, account = unsealed(row, body, chain), self.accounts[body["account"]]
        if body.get("claim") is not None:
            account.before[body["claim"]] = account.queries
        spent, refused = unpacked(hidden["spent"]), unpacked(hidden["refused"])
        account.last = body.get("claim"), spent, refused
        account.queries += int(body["queries"])
        account.spent += spent
        account.refused += refused


def draft_of(claim: str) -> tuple[str, int]:
    """Return whose claim it is, and how far that draft had come."""
    key, _, place = claim.rpartition(".")
    return key, int(place)


def packed(counts: Counts) -> str:
    """Return small counts (voters,) as text: a few bits a voter, however many voters."""
    narrow = np.dtype(f"<u{1 if counts.max(initial=0) < 256 else 8}")
    body = zlib.compress(counts.astype(narrow).tobytes(), level=1)
    return f"{narrow.itemsize}:{base64.b64encode(body).decode('ascii')}"


def unpacked(text: str) -> Counts:
    """Return what :func:`packed` was given."""
    width, _, body = text.partition(":")
    return np.frombuffer(zlib.decompress(base64.b64decode(body)), f"<u{width}").astype(np.int64)


def unsealed(row: Row, body: dict[str, Any], chain: Chain) -> dict[str, Any]:
    """Return the sealed part of an entry, if it is the one that was sealed with it."""
    if row.sealed is None or chain.seal(row.sealed) != body["seal"]:
        raise LedgerError(f"the sealed part of entry {row.number} does not match: run verify")
    hidden: dict[str, Any] = json.loads(row.sealed)
    return hidden

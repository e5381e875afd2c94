"""What private training promises, to whom, and where it is charged; all of it before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy.typing as npt

from ...accounting.renyi import DEFAULT_ORDERS, rounded_up
from ...errors import BudgetError, InputError
from ...files import Draft
from ...guardian import Accounts
from ...ledger import Budget, Ledger
from ...ledger.records import digest_of, stated
from ...ledger.totals import check_scope
from ...release import PERSON, RECORD
from .noise import TrainingPlan

_CLOSE = 1e-3  # how far above the least noise that fits the search may stop, relative
GRADIENTS, MOMENTS = "noisy gradients", "noisy moments"
_MOST_NOISE = 10.0  # times that of a whole budget: what is left of it then is about a hundredth


@dataclass(frozen=True, kw_only=True)
class TrainingPrivacy:
    """What may be published about a privately trained model.

    Attributes
    ----------
    epsilon, delta
        The promise, for all steps together.
    adjacency
        What is protected: one record *replaced*, or one *added or removed*.
    protects
        A record; or a person.
    released
        What was released, and nothing else: :data:`GRADIENTS` or :data:`MOMENTS`.
    noise_multiplier, steps, sample_rate
        What was done; moments are one step that takes every record.
    records
        How many took part: records, or persons. Sums are scaled by it, so it counts as public,
        under either adjacency.
    simulated
        True if the noise came from a seed: then nobody is protected.
    dataset, ledger
        Where it was charged: the data set's name, and the number and digest of the last entry; None
        without a ledger that lasts.
    new
        Whether nothing was charged to that data set before.
    drawn
        The digest of what was drawn, as the ledger records it: noisy sums, or weights.
    """

    epsilon: float
    delta: float
    adjacency: str
    noise_multiplier: float
    steps: int
    sample_rate: float
    records: int
    simulated: bool
    protects: str = RECORD
    released: str = GRADIENTS
    dataset: str | None = None
    ledger: dict[str, Any] | None = None
    new: bool = False
    drawn: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values, for JSON and for the model's file."""
        return {**asdict(self), "drawn": list(self.drawn), "guarantee": self.released}

    def statement(self) -> str:
        """Return one sentence for whoever reads the model."""
        what = "replaced" if self.adjacency == "replace" else "added or removed"
        who = f"one {'person' if self.protects == PERSON else 'record'} {what}"
        promise = f"({rounded_up(self.epsilon, 5)}, {rounded_up(self.delta)})"
        if self.simulated:
            return (
                "Simulated: the noise came from a seed, so this model protects nobody. Without a "
                f"seed it would be {promise}-differentially private for {who}."
            )
        done = f"{self.steps} noisy gradients, sampling rate {self.sample_rate:g}"
        used, counted = "", "records"
        if self.protects == PERSON:
            used, counted = " One record of each person took part.", "persons"
        if self.released == MOMENTS:
            done = "one noisy sum of features times labels"
            used = used and " The mean over each person's records took part."
        new = ", which is new to its ledger" if self.new else ""
        charged = (
            "" if self.dataset is None else f" It is charged to data set {self.dataset!r}{new}."
        )
        return (
            f"The weights are {promise}-differentially private for {who}: {done}, noise multiplier "
            f"{self.noise_multiplier:g}.{used} The number of {counted}, {self.records}, is public."
            f"{charged} Settings chosen by looking at the private records are not covered."
        )


@dataclass(frozen=True, kw_only=True)
class Paid:
    """A training that is charged, and what it promises.

    Attributes
    ----------
    privacy
        What may be published, before anything is drawn.
    draft
        Where what is drawn is kept, if anywhere.
    """

    privacy: TrainingPrivacy
    draft: Draft | None = None
    ledger: Any = None
    accounts: Accounts | None = None
    entry: Mapping[str, Any] = field(default_factory=dict)

    def check_undrawn(self) -> None:
        """Refuse to draw what a run of another copy of the draft has drawn."""
        if self.accounts is not None and self.draft is not None:
            with Ledger.at(self.ledger) as book:
                replace(self.accounts, ledger=book).check_undrawn()

    def record(self, *drawn: npt.NDArray[Any]) -> TrainingPrivacy:
        """Enter what was drawn, which is kept; return what may be published, with where."""
        privacy = replace(self.privacy, drawn=(digest_of(*drawn),))
        if self.accounts is None:
            return privacy
        with Ledger.at(self.ledger) as book:
            accounts = replace(self.accounts, ledger=book)
            entry = accounts.record(privacy.drawn[0], stated(privacy.facts()), self.entry)
            if entry is None or not book.lasts:
                return privacy
        return replace(privacy, ledger=entry.place, new=entry.hidden["stated"]["new"])


def begin(
    plan: TrainingPlan,
    epsilon: float,
    delta: float,
    *,
    records: int,
    labels: int,
    simulated: bool,
    persons: bool = False,
    released: str = GRADIENTS,
    ledger: Any = None,
    dataset: str = "default",
    consumer: str | None = None,
    draft: Draft | None = None,
) -> Paid:
    """Settle the noise of a training, and charge it if there is a ledger.

    Without one the noise is the least for the promise. A ledger counts at one Rényi order, so that
    other releases can be added: there it is the least whose curve fits what is left of the budget,
    which is 5 to 9 % more for a budget that is whole.

    Parameters
    ----------
    plan
        Steps, sampling rate and adjacency.
    epsilon, delta
        The promise; with a ledger the data set's budget.
    records, labels, simulated, persons, released
        Facts about the training: how many records take part, how many labels they have, whether
        the noise comes from a seed, whether each record stands for a person, what leaves.
    ledger, dataset, consumer
        A ledger or its place, and the names in it; see :func:`privote.label`.
    draft
        Where what is drawn will be kept: what the run that it is of has charged is not charged
        again, and the noise is the one that was charged.
    """
    Budget(epsilon=epsilon, delta=delta).warn(records)
    protects = PERSON if persons else RECORD
    place: dict[str, Any] | None = None
    new, accounts, entry = False, None, dict[str, Any]()
    if draft is not None:
        draft.check_ledger(lasts=ledger is not None)
    if ledger is None:
        noise = plan.noise_multiplier(epsilon, delta)
    else:
        check_scope((dataset, consumer))  # before a ledger is made
        with Ledger.at(ledger) as book:
            accounts = Accounts(
                ledger=book,
                budget=Budget(epsilon=epsilon, delta=delta),
                orders=DEFAULT_ORDERS,
                dataset=dataset,
                consumer=consumer,
                stamp={
                    "guarantee": released,
                    "simulated": simulated,
                    "protects": protects,
                },
                draft=draft,
            )
            entry = _charge(plan, accounts, released, {"voters": records, "labels": labels})
            noise = float(entry["mechanism"]["noise_multiplier"])
            place, dataset = book.last_entry(), accounts.dataset
            new = accounts.new and book.lasts
    privacy = TrainingPrivacy(
        epsilon=plan.epsilon(noise, delta),
        delta=delta,
        adjacency=plan.adjacency,
        noise_multiplier=noise,
        steps=plan.steps,
        sample_rate=plan.sample_rate,
        records=records,
        simulated=simulated,
        protects=protects,
        released=released,
        dataset=None if ledger is None else dataset,
        ledger=place,
        new=new,
    )
    return Paid(privacy=privacy, draft=draft, ledger=ledger, accounts=accounts, entry=entry)


def _charge(
    plan: TrainingPlan, accounts: Accounts, released: str, facts: dict[str, Any]
) -> dict[str, Any]:
    """Charge the least noise that fits, or refuse; it is on disk when this returns.

    Returns what its entry says of the training.
    """
    if plan.adjacency != "replace":
        raise InputError(
            "adjacency", "must be 'replace' with a ledger, which counts that", plan.adjacency
        )
    budget, ledger = accounts.budget, accounts.ledger
    named = {"mechanism": released, "steps": plan.steps, "sample_rate": plan.sample_rate}
    with accounts.paying(), ledger.writing() as totals:
        accounts.authorise(totals)
        entry = accounts.paid(totals)
        if entry is not None:
            noise = float(entry["mechanism"]["noise_multiplier"])
            same = {**facts, "mechanism": {**named, "noise_multiplier": noise}}
            if any(entry[name] != value for name, value in same.items()):
                raise InputError("resume", "must be for what was charged: records, labels, steps")
            accounts.paid(totals, plan.rdp(noise, DEFAULT_ORDERS))
            return same

        def fits(noise: float) -> bool:
            curve = plan.rdp(noise, DEFAULT_ORDERS)
            return totals.fitting(curve, DEFAULT_ORDERS, accounts.scope, 1) > 0

        least = low = high = plan.noise_multiplier(budget.epsilon, budget.delta)
        while not fits(high):
            low, high = high, 1.5 * high
            if low > _MOST_NOISE * least:
                raise BudgetError(
                    f"what is left of `epsilon={rounded_up(budget.epsilon)}` at "
                    f"`delta={rounded_up(budget.delta)}` for data set {accounts.dataset!r} "
                    "buys no training"
                )
        while high > low * (1 + _CLOSE):
            middle = (low + high) / 2
            low, high = (low, middle) if fits(middle) else (middle, high)
        facts = {**facts, "mechanism": {**named, "noise_multiplier": high}}
        accounts.charge(plan.rdp(high, DEFAULT_ORDERS), facts, totals)
    return facts

"""What training on private records has in common, whatever leaves it: gradients or moments.

The order is always the same, and it is the promise: settings, rows and public data are checked, the
noise is settled and charged, and only then does anything that was made of private records leave.

What was drawn is kept in a draft: a noisy sum, or how far noisy steps have come. A run that resumes
goes on from there, at no further charge. The steps that a dead process drew after it last kept its
state are drawn again, on records sampled anew. That is sound: what leaves is one draw of every
step, each with the noise that was charged, and each chosen by the steps before it that leave, too;
the draws that died were seen by nobody, and when a process dies does not depend on them. What is
kept follows from noisy sums and public numbers alone (weights, their mean, momentum): no gradient,
no sample, no row.

*Persons.* With ``groups`` (or ``ids`` that occur twice) a person takes part with all records, or
with none: who takes part in a step is sampled by person. It adds the mean of the gradients of its
records, shortened to the clipping norm C as a whole. That vector is made of this person's records
and of public or released numbers alone, and its norm is at most C, however many records there are.
So replacing a person moves the sum by at most 2C: what a record does, at the same price. The number
of persons is public, the numbers of their records are not: nothing is divided by these but the
person's own sum.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from time import monotonic
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from ...accounting.renyi import DEFAULT_ORDERS, rounded_up
from ...errors import positive
from ...files import Draft, drafted
from ...guardian import Accounts
from ...ledger import Budget, Ledger
from ...ledger.records import digest_of, stated
from ...ledger.totals import check_name
from ...release import PERSON, RECORD, SIMULATED, Fact, budget_used, new_to, so_far
from ...shown import Shown
from ..rows import (
    Floats,
    LabelClassifier,
    Labels,
    check_groups,
    check_labels,
    count_rows,
    fraction,
    warn_of_scikit_learn,
)
from .noise import Noise, TrainingPlan

Persons = npt.NDArray[np.int64] | None  # (rows,) whose each is
Sizes = npt.NDArray[np.int64] | None  # (persons,) how many rows each has

GRADIENTS, MOMENTS = "noisy gradients", "noisy moments"
_AFTER = ("new", "budget", "total", "share", "runs")  # what was so when it was recorded
_PAUSE, _SELDOM = 0.5, 20.0  # seconds between two kept states; and in times of how long one takes


class PrivateTraining(LabelClassifier):
    """A classifier that learns from private records themselves, with noise.

    A subclass says in :meth:`_plan` what will be priced (and refuses bad settings), in
    :meth:`_prepare` what it needs (and refuses bad rows), and trains in :meth:`_train`.

    Attributes
    ----------
    privacy_
        :class:`TrainingPrivacy`: what may be published.
    classes_, n_labels_
        (labels,) numbers of the labels; how many there are.
    """

    released: ClassVar[str] = GRADIENTS

    epsilon: float
    delta: float
    seed: int | None

    def fit(
        self,
        X: Any,
        y: npt.ArrayLike,
        X_public: Any = None,
        *,
        ids: npt.ArrayLike | None = None,
        groups: npt.ArrayLike | None = None,
        ledger: Any = None,
        dataset: str = "default",
        budget: float | None = None,
        draft: str | os.PathLike[str] | Draft | None = None,
        resume: bool = False,
    ) -> Self:
        """Train on private rows and labels (rows, labels) of 1, 0 and -1 (unknown).

        Parameters
        ----------
        X, y
            Private rows (rows, ...) and labels.
        X_public
            Rows of the same kind that need no protection; how features are scaled or embedded
            follows from them, and never from private rows.
        ids
            (rows,) names of the records: rows of one name are one record.
        groups
            (rows,) whose each row is: the promise is then for persons.
        ledger, dataset
            Where the budget is kept, and under which name; charged before training starts.
        draft
            A new file, in which what is drawn is kept: whatever fails after the charge, it was paid
            for once. It stays; remove it when the model is saved.
        resume
            Go on from what a call with the same arguments left behind in ``draft``, at no further
            charge.
        """
        if self.seed is None:
            warn_of_scikit_learn(ledger)
        settings = self.get_params().items()
        asked = {name: str(value) for name, value in settings if name != "progress"}
        asked["dataset"] = dataset
        with drafted(draft, asked, resume=resume) as kept:
            account = {"ledger": ledger, "dataset": dataset, "budget": budget, "draft": kept}
            return self._fit(X, y, X_public, ids, groups, account)

    def _fit(
        self, X: Any, y: Any, X_public: Any, ids: Any, groups: Any, account: dict[str, Any]
    ) -> Self:
        noise, draft = Noise(self.seed), account["draft"]
        rows = self._read(X)
        Y = check_labels(y, count_rows(rows))
        names, unit = check_groups(ids, len(Y), "ids")
        if groups is not None:
            names, unit = check_groups(groups, len(Y))
        records = len(Y) if names is None else len(names)
        plan = self._plan(records)
        self._restore(draft)
        given = self._prepare(rows, Y, unit, X_public, records)
        paid = begin(
            plan,
            self.epsilon,
            self.delta,
            records=records,
            labels=Y.shape[1],
            simulated=noise.simulated,
            persons=groups is not None,
            released=self.released,
            **account,
        )
        self.privacy_: TrainingPrivacy = paid.privacy
        self.n_labels_, self.classes_ = Y.shape[1], np.arange(Y.shape[1])
        self.privacy_ = paid.record(*self._train(given, plan, noise, paid))
        return self

    def _restore(self, draft: Draft | None) -> None:
        """Take from a draft what is public and has to be the same, before anything is charged."""

    @abstractmethod
    def _plan(self, records: int) -> TrainingPlan:
        """Return what will be done, for its price; bad settings are refused."""

    @abstractmethod
    def _read(self, X: Any) -> Any:
        """Return private rows, checked."""

    @abstractmethod
    def _prepare(self, rows: Any, Y: Labels, unit: Persons, X_public: Any, records: int) -> Any:
        """Return what training needs; nothing is refused after this.

        ``unit`` (rows,) says which of ``records`` records or persons each row belongs to; None if
        each is its own.
        """

    @abstractmethod
    def _train(self, given: Any, plan: TrainingPlan, noise: Noise, paid: Paid) -> list[Floats]:
        """Train, from what the draft holds on; it is charged. Returns what was drawn."""


class Checkpoints:
    """The state of noisy steps in a draft: after the last one, and now and then before.

    Attributes
    ----------
    state
        What an earlier run kept; None where there is nothing.
    """

    def __init__(self, paid: Paid, steps: int) -> None:
        self._paid, self._steps = paid, steps
        self.state = None if paid.draft is None else paid.draft.read()
        self._next = monotonic() + _PAUSE

    def rest(self, done: int) -> range:
        """Return the steps that are left after so many; refuse those that a copy has drawn."""
        if done < self._steps:
            self._paid.check_undrawn()
        return range(done, self._steps)

    def keep(self, done: int, state: Callable[[], bytes]) -> None:
        """Keep the state after so many steps, if it is time."""
        now, draft = monotonic(), self._paid.draft
        if draft is not None and (done == self._steps or now >= self._next):
            draft.keep(state(), instead=True)
            after = monotonic()
            self._next = after + max(_PAUSE, _SELDOM * (after - now))


def check_descent(model: Any) -> None:
    """Refuse settings of noisy gradient descent that make no sense."""
    positive("clip", model.clip)
    if model.learning_rate is not None:
        positive("learning_rate", model.learning_rate)
    fraction("momentum", model.momentum, "[)")
    fraction("initial_share", model.initial_share, "()")


def by_person(unit: Persons) -> tuple[npt.NDArray[np.intp] | None, Sizes]:
    """Return the rows, person by person, and how many each has; None if each is its own."""
    sizes = None if unit is None else np.bincount(unit)
    if unit is None or sizes is None or (sizes == 1).all():
        return None, None
    return np.argsort(unit, kind="stable"), sizes


def rows_of(persons: npt.NDArray[np.intp], sizes: Sizes) -> npt.NDArray[np.intp]:
    """Return the rows of these persons, where rows are in the order of :func:`by_person`."""
    if sizes is None:
        return persons
    chosen = np.zeros(len(sizes), np.bool_)
    chosen[persons] = True
    return np.flatnonzero(np.repeat(chosen, sizes))


# -- what is promised, and where it is charged -----------------------------------------------------


def training_rows(facts: Mapping[str, Any]) -> list[Fact]:
    """Return what is said about a training without votes, from :meth:`TrainingPrivacy.facts`."""
    whom = "persons" if facts["protects"] == PERSON else "records"
    rows = [
        ("epsilon", "epsilon", rounded_up(facts["epsilon"])),
        ("delta", "delta", rounded_up(facts["delta"])),
        ("records", whom, f"{facts['records']:,}"),
        *(
            (name, name.replace("_", " "), f"{facts[name]:.6g}")
            for name in ("steps", "sample_rate", "noise_multiplier")
        ),
        ("total", "so far", so_far(facts)),
        ("budget", "budget", budget_used(facts)),
        ("protects", "protects", facts["protects"]),
        ("new", "NEW", new_to(facts["dataset"]) if facts["new"] else None),
        ("simulated", "SIMULATED", SIMULATED[11:] if facts["simulated"] else None),
    ]
    return [Fact(key, name, text) for key, name, text in rows if text]


@dataclass(frozen=True, kw_only=True)
class TrainingPrivacy(Shown):
    """What may be published about a privately trained model.

    Attributes
    ----------
    epsilon, delta
        The promise, for all steps together.
    protects
        What may be replaced by any other: a record; or a person.
    released
        What was released, and nothing else: :data:`GRADIENTS` or :data:`MOMENTS`.
    noise_multiplier, steps, sample_rate
        What was done; moments are one step that takes every record.
    decay
        The noise multiplier of the last steps in units of the first; 1 where it stays.
    records
        How many took part: records, or persons. Sums are scaled by it, so it counts as public.
    simulated
        True if the noise came from a seed: then nobody is protected.
    dataset, ledger
        Where it was charged: the data set's name, and the number and digest of the last entry; None
        without a ledger that lasts.
    budget, total, share, runs
        What that data set may cost in all, what all releases charged to it cost so far, which share
        of the budget that is, and how many they are; None without a ledger.
    new
        Whether nothing was charged to that data set before.
    drawn
        The digest of what was drawn, as the ledger records it: noisy sums, or weights.
    """

    epsilon: float
    delta: float
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
    decay: float = 1.0
    budget: float | None = None
    total: float | None = None
    share: float | None = None
    runs: int | None = None

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values, for JSON and for the model's file."""
        return {**asdict(self), "drawn": list(self.drawn), "guarantee": self.released}

    def brief(self) -> dict[str, str]:
        """Return what was done and what it costs, in a few words each."""
        return {row.name: row.text for row in training_rows(self.facts())}

    def statement(self) -> str:
        """Return one sentence for whoever reads the model."""
        who = f"one {'person' if self.protects == PERSON else 'record'} replaced"
        promise = f"({rounded_up(self.epsilon, 5)}, {rounded_up(self.delta)})"
        if self.simulated:
            return (
                "Simulated: the noise came from a seed, so this model protects nobody. Without a "
                f"seed, it would be {promise}-differentially private for {who}."
            )
        done = f"{self.steps} noisy gradients, sampling rate {self.sample_rate:g}"
        used, counted = "", "records"
        if self.protects == PERSON:
            used, counted = " The mean of each person's records was used.", "persons"
        if self.released == MOMENTS:
            done = "one noisy sum of features times labels"
        noise = f"{self.noise_multiplier:g}"
        if self.decay != 1:
            noise += f" in the first steps and {self.noise_multiplier * self.decay:g} in the last"
        new = ", which is new to this ledger" if self.new else ""
        charged, facts = "", self.facts()
        if self.dataset is not None:
            charged = f" It is charged to data set {self.dataset!r}{new}. So far: {so_far(facts)}."
            charged += f" Budget: {budget_used(facts)}."
        return (
            f"The weights are {promise}-differentially private for {who}: {done}, noise multiplier "
            f"{noise}.{used} The number of {counted}, {self.records}, is public.{charged} Settings "
            "that were chosen by looking at the private records are not covered."
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
        after = {name: entry.hidden["stated"][name] for name in _AFTER}
        return replace(privacy, ledger=entry.place, **after)


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
    budget: float | None = None,
    draft: Draft | None = None,
) -> Paid:
    """Settle the noise of a training, and charge it if there is a ledger.

    The noise is the least for this epsilon, with a ledger and without.

    Parameters
    ----------
    plan
        Steps and sampling rate.
    epsilon, delta
        What this training may cost.
    records, labels, simulated, persons, released
        Facts about the training: how many records take part, how many labels they have, whether
        the noise comes from a seed, whether each record stands for a person, what leaves.
    ledger, dataset, budget
        A ledger or its place, a name in it, and what the data set may cost in all; see
        :func:`privote.label`.
    draft
        Where what is drawn will be kept: what the run that it is of has charged is not charged
        again.
    """
    Budget(epsilon=epsilon, delta=delta).warn(records)
    protects = PERSON if persons else RECORD
    place: dict[str, Any] | None = None
    new, accounts, entry = False, None, dict[str, Any]()
    if draft is not None:
        draft.check_ledger(lasts=getattr(ledger, "lasts", ledger is not None))
    noise, standing = plan.noise_multiplier(epsilon, delta), dict[str, Any]()
    if ledger is not None:
        check_name("dataset", dataset)  # before a ledger is made
        with Ledger.at(ledger) as book:
            accounts = Accounts(
                ledger=book,
                budget=Budget(epsilon=epsilon, delta=delta),
                dataset=dataset,
                total=None if budget is None else positive("budget", budget),
                stamp={
                    "guarantee": released,
                    "simulated": simulated,
                    "protects": protects,
                },
                draft=draft,
            )
            entry = _facts(plan, noise, released, records, labels)
            accounts.charge(
                plan.rdp(noise, DEFAULT_ORDERS),
                entry,
                lambda e: plan.rdp(plan.noise_multiplier(e, delta), DEFAULT_ORDERS),
            )
            place, dataset, standing = book.last_entry(), accounts.dataset, accounts.standing()
            new = accounts.new and book.lasts
    privacy = TrainingPrivacy(
        epsilon=plan.epsilon(noise, delta),
        delta=delta,
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
        decay=plan.decay,
        **standing,
    )
    return Paid(privacy=privacy, draft=draft, ledger=ledger, accounts=accounts, entry=entry)


def _facts(
    plan: TrainingPlan, noise: float, released: str, records: int, labels: int
) -> dict[str, Any]:
    """Return what the entry of a charge says of a training."""
    named = {"mechanism": released, "steps": plan.steps, "sample_rate": plan.sample_rate}
    named |= {"noise_multiplier": noise, **({} if plan.decay == 1 else {"decay": plan.decay})}
    return {"voters": records, "labels": labels, "mechanism": named}

"""What training on private records has in common, whatever leaves it: gradients or moments.

The order is always the same, and it is the promise: settings, rows and public data are checked, the
noise is settled and charged, and only then is anything drawn. What was drawn is committed as a
whole, at the end: a training that breaks off before has released nothing, and starts again. The
rest follows from what was committed and from public rows.

*Persons.* With ``groups`` (or ``ids`` that occur twice) a person takes part with all records, or
with none: who takes part in a step is sampled by person. It adds the mean of the gradients of its
records, shortened to the clipping norm C as a whole. That vector is made of this person's records
and of public or released numbers alone, and its norm is at most C, however many records there are.
So replacing a person moves the sum by at most 2C: what a record does, at the same price. The number
of persons is public, the numbers of their records are not: nothing is divided by these but the
person's own sum.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from functools import cache
from types import FunctionType
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from ..errors import positive
from ..guarantees import GAUSSIAN, PERSON, RECORD, SAMPLED, Guarantee, worded
from ..ledger import Account, Budget, Ledger, Outcome, Request, Run, digest_of, digest_of_text
from .delivery import Delivery, Records, about
from .noise import Noise, Priced, TrainingPlan
from .rows import (
    LabelClassifier,
    Labels,
    check_groups,
    check_labels,
    count_rows,
    fraction,
)

Arrays = Mapping[str, npt.NDArray[Any]]
Layout = dict[str, tuple[npt.DTypeLike, tuple[int, ...]]]
Persons = npt.NDArray[np.int64] | None  # (rows,) whose each is
Sizes = npt.NDArray[np.int64] | None  # (persons,) how many rows each has

GRADIENTS, MOMENTS = "gradients", "moments"
_RELEASED = {
    GRADIENTS: "the weights of a model of {:,} labels",
    MOMENTS: "one noisy sum of features times {:,} labels",
}
_MEANS = "the mean of each person's records was used"
_SETTINGS = "settings that were chosen by looking at the private records are not covered"


class PrivateTraining(LabelClassifier):
    """A classifier that learns from private records themselves, with noise.

    A subclass says in :meth:`_plan` what will be priced (and refuses bad settings), in
    :meth:`_prepare` what it needs (and refuses bad rows), draws in :meth:`_draw`, and makes the
    model of what was drawn in :meth:`_finish`.

    Attributes
    ----------
    guarantee_
        The :class:`privote.guarantees.Guarantee` of what was released.
    classes_, n_labels_
        (labels,) numbers of the labels; how many there are.
    """

    kind: ClassVar[str] = GRADIENTS

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
        ledger, dataset, budget
            Where the budget is kept, and under which name; see :func:`privote.label`. It is charged
            before training starts.
        resume
            Finish a call with the same arguments that did not return, at no further charge.
        """
        account = Account(ledger=ledger, dataset=dataset, budget=budget)
        records = Records(X=X, y=y, public=X_public, ids=ids, groups=groups)
        return self.learn(records, Delivery(account=account, resume=resume))

    def learn(self, records: Records, delivery: Delivery) -> Self:
        """Train as :meth:`fit` does, and deliver the fitted model."""
        rows = self._read(records.X)
        Y = check_labels(records.y, count_rows(rows))
        names, unit = check_groups(records.ids, len(Y), "ids")
        if records.groups is not None:
            names, unit = check_groups(records.groups, len(Y))
        priced = self._priced(len(Y) if names is None else len(names))
        prepared = self._prepare(rows, Y, unit, records.public, priced)
        noise, account = Noise(self.seed), delivery.account
        request = Request(
            dataset=account.dataset,
            budget=account.budget,
            cost=Budget(epsilon=self.epsilon, delta=self.delta),
            guarantee=self.kind,
            protects=RECORD if records.groups is None else PERSON,
            simulated=noise.simulated,
            terms={
                **self._terms(priced, Y.shape[1]),
                **(delivery.about or about(records.public)),
            },
            price=cache(priced.curve_at),
            layout=self._layout(prepared),
            output=delivery.output,
        )
        request.cost.warn(priced.records)
        self.n_labels_, self.classes_ = Y.shape[1], np.arange(Y.shape[1])
        with (
            Ledger.at(account.ledger) as ledger,
            ledger.reserve(request, resume=delivery.resume) as run,
        ):
            if run.outcome is None:
                _commit(run, request, priced, self._draw(prepared, priced, noise))
            assert run.outcome is not None
            self.guarantee_ = Guarantee.of_facts(run.outcome.facts)
            self._finish(run.outcome.arrays, prepared, priced)
            run.deliver(delivery.write(self))
        return self

    def _priced(self, records: int) -> Priced:
        """Return the plan with the least noise for its epsilon, with a ledger and without."""
        plan = self._plan(records)
        noise = plan.noise_multiplier(self.epsilon, self.delta)
        return Priced(plan=plan, records=records, noise_multiplier=noise, delta=self.delta)

    def _terms(self, priced: Priced, labels: int) -> dict[str, Any]:
        """Return what a resumed run repeats; all of it is public."""
        settings = {
            name: value.__qualname__ if isinstance(value, FunctionType) else str(value)
            for name, value in self.get_params().items()
        }
        settings.pop("progress", None)
        return {
            "mechanism": priced.parameters(self.kind),
            "records": priced.records,
            "labels": labels,
            "settings": digest_of_text(json.dumps(settings, sort_keys=True)),
        }

    @abstractmethod
    def _plan(self, records: int) -> TrainingPlan:
        """Return what will be done, for its price; bad settings are refused."""

    @abstractmethod
    def _read(self, X: Any) -> Any:
        """Return private rows, checked."""

    @abstractmethod
    def _prepare(self, rows: Any, Y: Labels, unit: Persons, X_public: Any, priced: Priced) -> Any:
        """Return what training needs; nothing is refused after this.

        ``unit`` (rows,) says which record or person each row belongs to; None if each is its own.
        """

    @abstractmethod
    def _layout(self, prepared: Any) -> Layout:
        """Return type and shape of what is drawn, by name: from public numbers."""

    @abstractmethod
    def _draw(self, prepared: Any, priced: Priced, noise: Noise) -> Arrays:
        """Train, after the charge, and return what may leave. Nothing else does."""

    @abstractmethod
    def _finish(self, drawn: Arrays, prepared: Any, priced: Priced) -> None:
        """Make the model of what was drawn and of public numbers and rows."""


def _commit(run: Run, request: Request, priced: Priced, drawn: Arrays) -> None:
    """Commit what was drawn, with its guarantee."""
    persons = request.protects == PERSON
    guarantee = worded(
        Guarantee(
            kind=request.guarantee,
            epsilon=priced.plan.epsilon(priced.noise_multiplier, priced.delta),
            delta=priced.delta,
            mechanism=priced.parameters(request.guarantee),
            voters=priced.records,
            released=_RELEASED[request.guarantee].format(request.terms["labels"]),
            protects=request.protects,
            simulated=request.simulated,
            standing=run.standing,
            accountant=GAUSSIAN if priced.plan.sample_rate == 1 else SAMPLED,
            notes=(*([_MEANS] if persons else []), _SETTINGS),
            drawn=digest_of(*drawn.values()),
        )
    )
    statement = guarantee.statement()
    run.commit(Outcome(arrays=drawn, facts=guarantee.facts(), statement=statement))


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

"""Questions asked in turn: an indicator first, the rest only where its released label is 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..errors import BudgetError, InputError, UnavailableError, whole
from ..mechanisms import ABSTAIN
from ..release import Release
from ..votes.cube import Ballots
from .matrices import Labels


class Answer(Protocol):
    """What answers single questions: ``Electorate.answer``, or ``Guardian.release``."""

    def __call__(self, votes: Any, /, **more: Any) -> Release:
        """Charge, then release."""


def gated(
    answer: Answer,
    votes: Any,
    indicator: int,
    *,
    baseline: npt.ArrayLike | None = None,
    voter_ids: Sequence[Any] | None = None,
    batch: int = 16,
) -> Release:
    """Ask one label of each query first, and the others only where it is *released* as 1.

    A question is one label of one query, so whoever answers has ballots of one label:
    ``pv.Electorate(..., labels=1).answer``, or ``release`` of a guardian that has answered nothing
    else. Labels that are not asked are 0; all are ABSTAIN where the gate of a mechanism held the
    indicator back.

    **Privacy.** Which question comes next follows from released labels and public numbers alone,
    never from a vote. Under an *allowance* this is a run of the theorem
    (:mod:`privote.accounting.allowance`): queries may follow from what was released, and epsilon
    stays what it was before the first question. In the *worst case* every question costs the same
    and is charged before it is asked; how many fit is known from the first charge on, so the filter
    of the budget (:mod:`privote.accounting.filters`) holds the run within it on every history. How
    many questions a run asks depends on the labels it released: the sum of what it was charged is
    one of several that could have been, and promises nothing. So epsilon is the budget's, and what
    is saved shows as more queries answered within it. A label that was not asked follows from one
    that was released, which is post-processing.

    Parameters
    ----------
    answer
        See above. In the worst case it may answer fewer than it is asked, or refuse: then only
        queries leave that were answered to their end.
    votes
        (queries, voters, labels): what :func:`privote.label` takes; sparse ballots are refused.
    indicator
        The place of the label that is asked first.
    baseline
        (queries, labels) public guess, for an allowance.
    voter_ids
        Names of the voters, as ``answer`` takes them.
    batch
        How many queries are taken up together: their indicators, then their other labels.
    """
    ballots = Ballots.of(votes)
    if not isinstance(ballots, Ballots):
        raise UnavailableError("gated questions need dense votes: a sparse ballot is asked as one")
    indicator = whole("indicator", indicator, 0, ballots.labels - 1)
    cube, guess = ballots.to_array(), None if baseline is None else np.asarray(baseline)
    if guess is not None and guess.shape != (ballots.queries, ballots.labels):
        raise InputError(
            "baseline",
            f"must be (queries, labels) = {(ballots.queries, ballots.labels)}, got {guess.shape}",
        )
    if guess is not None and not np.isin(guess, (0, 1)).all():  # before a batch is charged
        raise InputError("baseline", "must hold 0 and 1 only")
    questions = _Questions(
        answer, cube, guess, {} if voter_ids is None else {"voter_ids": voter_ids}
    )
    others = np.delete(np.arange(ballots.labels), indicator)
    made: list[Labels] = []
    for start in range(0, ballots.queries, whole("batch", batch)):
        rows = np.arange(start, min(start + batch, ballots.queries))
        first = questions.ask(rows, np.array([indicator]))[:, 0]
        labels = np.zeros((len(first), ballots.labels), np.int8)
        labels[:, indicator] = first
        labels[first == ABSTAIN] = ABSTAIN
        yes = np.flatnonzero(first == 1)
        rest = questions.ask(rows[yes], others)
        labels[np.ix_(yes[: len(rest)], others)] = rest
        # A query that was begun and not answered to its end stays behind, and so do all after it.
        ended = len(first) if len(rest) == len(yes) else int(yes[len(rest)])
        made.append(labels[:ended])
        if ended < len(rows):
            break
    return questions.released(np.concatenate(made), ballots, indicator)


@dataclass
class _Questions:
    """Questions to whoever answers them, each one label of one query."""

    answer: Answer
    votes: npt.NDArray[Any]
    baseline: npt.NDArray[Any] | None
    more: dict[str, Any]
    asked: int = 0
    last: Release | None = None
    drawn: tuple[str, ...] = ()

    def ask(self, rows: npt.NDArray[np.intp], labels: npt.NDArray[np.intp]) -> Labels:
        """Return labels (answered rows, labels) of those rows all whose labels were answered."""
        count = len(rows) * len(labels)
        if not count:
            return np.empty((len(rows), len(labels)), np.int8)
        cells = np.swapaxes(self.votes[rows][:, :, labels], 1, 2)
        guess = {}
        if self.baseline is not None:
            guess["baseline"] = self.baseline[np.ix_(rows, labels)].reshape(count, 1)
        try:
            part = self.answer(cells.reshape(count, -1, 1), **guess, **self.more)
        except BudgetError:
            if self.last is None:
                raise
            return np.empty((0, len(labels)), np.int8)
        self.asked, self.last = self.asked + part.answered, part
        self.drawn += part.drawn
        whole_rows = part.answered // len(labels)
        return part.labels[: whole_rows * len(labels), 0].reshape(whole_rows, len(labels))

    def released(self, labels: Labels, ballots: Ballots, indicator: int) -> Release:
        """Return all that was answered as one release, which promises the budget."""
        assert self.last is not None
        told = (
            f"label {indicator} was asked first and the others only where it was released as 1, in "
            f"{self.asked} questions of one label in place of {labels.size}; others are 0"
        )
        if self.last.allowance is None:
            told += "; epsilon is the whole budget, whatever the number of questions"
        names = ballots.query_names
        return replace(
            self.last,
            labels=labels,
            drawn=self.drawn,
            # A realised sum would depend on the labels; an allowance is one sum for every history.
            epsilon=self.last.epsilon if self.last.allowance is not None else self.last.budget,
            so_far=None,
            label_names=ballots.label_names,
            query_names=None if names is None else names[: len(labels)],
            processed=(*self.last.processed, told),
        )

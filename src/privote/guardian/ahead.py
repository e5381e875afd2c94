"""Counting ahead: tallies are worked out anywhere, in any order; charged and drawn here, in order.

Which ballots of a run of queries count, what its voters spend on it and what the ballots add up to
follow from the votes, from public numbers and from what is left of each allowance, and from nothing
else: no charge and no draw is part of it. So it is worked out before its turn comes, on threads,
processes or machines, as often as it takes. How it is cut depends on public sizes alone, never on
who does the work: the same votes give the same tallies, and the same draws under a seed.
"""

from __future__ import annotations

import pickle
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..ballots import BallotSource
from ..blocks import Counts
from ..mechanisms import Mechanism
from ..surprises import effective, holds
from ..workers import FAR, LOSSES, Sent, each, keep_memory, received, shares_memory, told
from .lots import Lot, Seating, carried

Some = TypeVar("Some")

_WAVE = 4  # lots that a thread gets at once
_HELD = 1 << 28  # bytes of results, and of ballots that go along, that wait for their turn
_NOBODY: Counts = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Counted:
    """What a lot adds up to: its tally, and what its voters spent and were refused. Sealed."""

    tally: Any
    more: Any
    spent: Counts
    refused: Counts


@dataclass(frozen=True, eq=False)
class _Task:
    """A lot to count: with the baseline and what is left of each allowance, where there is one."""

    lot: Lot
    guess: npt.NDArray[np.bool_] | None = None
    left: Counts | None = None


@dataclass(frozen=True, eq=False)
class _Work:
    """How lots are counted: a pure function that can be sent away."""

    seating: Seating | Sent | None
    mechanism: Mechanism
    then: Callable[[Any], Any] | None

    def __call__(self, task: _Task) -> Counted:
        keep_memory()
        seating = received(self.seating) if isinstance(self.seating, Sent) else self.seating
        block = task.lot.block if seating is None else seating.block(task.lot)
        assert block is not None
        mechanism, spent, refused = self.mechanism, _NOBODY, _NOBODY
        if task.left is not None:
            guess = task.guess
            if guess is None:
                guess = np.broadcast_to(np.False_, (block.queries, block.labels))
            block, spent, refused = effective(
                block,
                guess,
                task.left,
                unit=mechanism.surprise_unit,
                silence_is_zeros=mechanism.silence_is_zeros,
            )
        tally = mechanism.tally(block)
        return Counted(tally, None if self.then is None else self.then(tally), spent, refused)


class Counter:
    """Counts the ballots of one release, here or on the workers that joblib is told to use.

    Parameters
    ----------
    ballots, mechanism
        What is counted, and how.
    places, registered
        The seats of the ballots' voters, as in :class:`Seating`.
    then
        Also work this out of every tally.
    """

    def __init__(
        self,
        ballots: BallotSource,
        mechanism: Mechanism,
        places: Counts | None = None,
        registered: int | None = None,
        then: Callable[[Any], Any] | None = None,
    ) -> None:
        self._reached = getattr(ballots, "reached", lambda queries: None)
        self._seating = Seating(ballots, places, registered or ballots.voters)
        self._here, self._labels = _Work(self._seating, mechanism, then), ballots.labels

    def lots(self) -> Iterator[Lot]:
        """Yield all queries in lots, by public sizes only."""
        return self._seating.lots()

    def counted(self) -> Iterator[Counted]:
        """Yield what each lot adds up to, in order."""
        for lot, found in self._each(self.lots(), lambda lots: map(_Task, lots), _all_hold):
            yield self._here(_Task(lot)) if found is None else found[1]
            self._reached(lot.stop)

    def weighed(
        self, lots: Iterable[Lot], guess: npt.NDArray[np.bool_] | None, left: Counts
    ) -> Iterator[tuple[Lot, Callable[[Counts], tuple[Any, Counts, Counts]]]]:
        """Yield each lot, in order, with what tells its tally, by what is left when its turn comes.

        That takes what is left of each allowance (voters,), and returns the tally, what each voter
        spends and how many ballots are refused.

        Parameters
        ----------
        guess
            (queries, labels) the baseline; None for zeros.
        left
            (voters,) What is left of each allowance now, before the first lot.
        """
        foreseen = _Foreseen(left)

        def task(lot: Lot, left: Counts) -> _Task:
            return _Task(lot, None if guess is None else guess[lot.start : lot.stop], left)

        def tasks(lots: Iterable[Lot]) -> Iterator[_Task]:
            return (task(lot, foreseen.left) for lot in lots)

        def weigh(
            lot: Lot, found: tuple[_Task, Counted] | None, left: Counts
        ) -> tuple[Any, Counts, Counts]:
            # Who else answers from the same allowance may have left less than was foreseen.
            result = found[1] if found is not None and _right_for(left, *found) else None
            if result is None:
                result = self._here(task(lot, left))
            return result.tally, result.spent, result.refused

        for lot, found in self._each(iter(lots), tasks, foreseen):
            yield lot, partial(weigh, lot, found)
            self._reached(lot.stop)

    def _each(
        self,
        lots: Iterator[Lot],
        tasks: Callable[[Iterable[Lot]], Iterator[_Task]],
        check: Callable[[_Task, Counted], _Task | None],
    ) -> Iterator[tuple[Lot, tuple[_Task, Counted] | None]]:
        """Yield every lot, with its task and result where workers have counted it ahead."""
        few = list(islice(lots, 2))
        backend, workers = told() if len(few) > 1 else (None, 1)
        if workers < 2:
            yield from ((lot, None) for lot in chain(few, lots))
            return
        work, wave = self._here, _WAVE
        if not shares_memory(backend):
            sent = self._seating.sent()
            work = replace(self._here, seating=sent)
            if sent is None:
                few = [carried(lot, self._seating) for lot in few]
                lots = (carried(lot, self._seating) for lot in lots)
            # As many lots as a few hundred megabytes of results, and of ballots that go along, are.
            held = max(len(pickle.dumps(lot)) + 8 * lot.queries * self._labels for lot in few)
            wave = max(_WAVE, min(FAR, _HELD // (held * workers)))
        results = _in_order(work, tasks(chain(few, lots)), check, workers, wave)
        with closing(_ahead(results, backend, workers, wave)) as found:
            for task, result in found:
                yield task.lot, (task, result)


class _Foreseen:
    """What will be left of each allowance when a lot's turn comes: a sum over the lots before it.

    Lots are counted together for what is left before the first of them. Where that was too much
    for one, it is counted again for what is left by then; that is known from sums alone.
    """

    def __init__(self, left: Counts) -> None:
        self.left = left

    def __call__(self, task: _Task, found: Counted) -> _Task | None:
        """Take in a result, in order; return what must be counted instead, if it is not right."""
        left, right = self.left, _right_for(self.left, task, found)
        out = (found.refused > 0) | (found.spent > left)
        self.left = np.where(out, 0, left - found.spent)
        return None if right else replace(task, left=left)


def _right_for(left: Counts, task: _Task, found: Counted) -> bool:
    assert task.left is not None
    return holds(left, task.left, found.spent, found.refused)


def _all_hold(task: _Task, found: Counted) -> None:
    return None


@dataclass(eq=False)
class _Turn:
    task: _Task
    result: Counted | None = None
    twice: bool = False


def _in_order(
    work: _Work,
    tasks: Iterator[_Task],
    check: Callable[[_Task, Counted], _Task | None],
    workers: int,
    wave: int,
) -> Generator[tuple[_Task, Counted], None, None]:
    """Yield each task with its result, in order; what ``check`` wants instead takes its place."""
    due: deque[_Turn] = deque()
    again: deque[_Turn] = deque()
    asked: deque[_Turn] = deque()

    def given() -> Iterator[_Task]:
        for task in chain(tasks, [None]):
            while again:
                asked.append(again.popleft())
                yield asked[-1].task
            if task is not None:
                due.append(_Turn(task))
                asked.append(due[-1])
                yield task

    waits = True
    while waits:
        for result in each(work, given(), n_jobs=workers, at_once=wave, losses=LOSSES):
            turn = asked.popleft()
            instead = None if turn.twice else check(turn.task, result)
            if instead is None:
                turn.result = result
            else:
                turn.task, turn.twice = instead, True
                again.append(turn)
            while due and due[0].result is not None:
                first = due.popleft()
                assert first.result is not None
                yield first.task, first.result
        waits = bool(again)


def _ahead(
    items: Generator[Some, None, None], backend: Any, workers: int, wave: int
) -> Generator[Some, None, None]:
    """Yield items that a thread of its own asks for: a few of them before they are wanted."""
    found: queue.Queue[tuple[bool, Any]] = queue.Queue(wave * workers)
    over = threading.Event()

    def put(good: bool, item: Any) -> None:
        while not over.is_set():
            try:
                return found.put((good, item), timeout=0.1)
            except queue.Full:
                continue

    def run() -> None:
        from joblib import parallel_config

        try:
            # What joblib is told holds for the thread in which it is told.
            with parallel_config(backend=backend, n_jobs=workers), closing(items):
                for item in items:
                    put(True, item)
                    if over.is_set():
                        return
            put(False, None)
        except BaseException as error:  # whatever it is, it is raised where it matters
            put(False, error)

    thread = threading.Thread(target=run, name="privote-counting", daemon=True)
    thread.start()
    try:
        while True:
            good, item = found.get()
            if good:
                yield item
            elif item is None:
                return
            else:
                raise item
    finally:
        over.set()
        thread.join()

"""Adaptive audit: the whole tree of transcripts of small runs with an allowance.

The next query's ballots and baseline are random functions of what was released so far. One voter
follows another strategy in the second world; everybody else, and the public, answer the same
history alike in both. The divergence between the two distributions of transcripts must not exceed
``factor * V * contribution_rdp``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from privote.accounting.renyi import Orders, check_orders
from privote.audit.exact import ABSOLUTE, AUDIT_ORDERS, RELATIVE, book_of
from privote.audit.reference import Floats, Ints, Textbook, renyi
from privote.errors import InputError, whole
from privote.mechanisms import Mechanism
from privote.mechanisms.base import check_electorate
from privote.votes.contributions import bound_votes

_MOST_TRANSCRIPTS = 20_000
_TALLIES = 5  # that are told apart: a tree of all there can be has no end


@dataclass(frozen=True)
class AdaptiveReport:
    """What an audit of adaptive runs saw.

    Attributes
    ----------
    runs, transcripts
        How many runs, and how many transcripts they have together.
    ratio
        The largest enumerated / stated over runs, orders and directions.
    broken
        Seeds of the runs that exceed what is stated; ``adaptive(..., runs=1, seed=that)`` repeats
        one.
    unlike
        How many effective ballots differ from the rule as the textbook has it.
    """

    mechanism: str
    voters: int
    labels: int
    allowance: int
    factor: float
    runs: int
    transcripts: int
    ratio: float
    broken: tuple[int, ...]
    unlike: int

    @property
    def ok(self) -> bool:
        """True if no run exceeds the stated cost."""
        return not self.broken and not self.unlike

    def summary(self) -> str:
        """Return the findings in a line or two."""
        text = (
            f"{'ok' if self.ok else 'BROKEN'}: {self.mechanism}, {self.voters} voters, "
            f"{self.labels} labels, allowance {self.allowance}: {self.runs} adaptive runs, "
            f"{self.transcripts} transcripts, largest enumerated/stated {self.ratio:.9f} "
            f"(stated: {self.factor:g} V contributions)"
        )
        if self.broken:
            text += f"\n  exceeded in {len(self.broken)} runs; seeds {self.broken[:5]}"
        if self.unlike:
            text += f"\n  {self.unlike} effective ballots break the rule"
        return text


def adaptive(
    mechanism: Mechanism,
    voters: int = 3,
    labels: int = 2,
    *,
    allowance: int = 1,
    queries: int = 3,
    orders: Orders | None = None,
    runs: int = 100,
    seed: int = 0,
    factor: float = 2,
) -> AdaptiveReport:
    """Try to break the guarantee of an allowance on adaptive runs.

    Parameters
    ----------
    mechanism, voters, labels, queries
        The runs; the tree has (outcomes per query) ^ queries leaves, so keep them small.
    allowance
        V, the contributions each voter has for life.
    runs, seed
        Run i is made from ``seed + i``.
    factor
        The cost stated is ``factor * V * contribution_rdp``: 2 is the theorem, 1 is wrong.
    """
    check_electorate(voters, labels)
    for name, value in (("allowance", allowance), ("queries", queries), ("runs", runs)):
        whole(name, value)
    whole("seed", seed, 0)
    curve = check_orders(AUDIT_ORDERS if orders is None else orders)
    book = book_of(mechanism, voters, labels, tallies=_TALLIES)
    if len(book.outcomes) ** queries > _MOST_TRANSCRIPTS:
        raise InputError(
            f"`queries={queries}` with {len(book.outcomes)} outcomes each makes more than "
            f"{_MOST_TRANSCRIPTS} transcripts: use fewer"
        )
    stated = factor * allowance * mechanism.contribution_rdp(voters, labels, curve)
    broken, largest, unlike = [], 0.0, 0
    for run in range(seed, seed + runs):
        tree = _Tree(book, allowance, queries, np.random.default_rng(run))
        one, two = tree.grow()
        costs = np.stack([renyi(one, two, curve), renyi(two, one, curve)])
        largest = max(largest, float((np.maximum(costs - ABSOLUTE, 0) / stated).max()))
        unlike += tree.unlike
        if not (costs <= stated * (1 + RELATIVE) + ABSOLUTE).all():
            broken.append(run)
    return AdaptiveReport(
        str(mechanism),
        voters,
        labels,
        allowance,
        factor,
        runs,
        runs * len(book.outcomes) ** queries,
        largest,
        tuple(broken),
        unlike,
    )


class _Tree:
    """The transcripts of one run in two worlds that differ in one voter's strategy."""

    def __init__(
        self, book: Textbook, allowance: int, queries: int, rng: np.random.Generator
    ) -> None:
        self.book, self.queries, self.rng = book, queries, rng
        self.allowance = allowance
        self.unlike = 0
        self._missing = rng.choice([0.0, 0.0, 0.2])
        self._zero = rng.random() < 0.3
        self._agree = rng.choice([0.0, 0.5, 0.9])
        # Half of the runs spend the two strategies' contributions on different queries: the worst
        # case.
        plan = rng.integers(2, size=queries) if rng.random() < 0.5 else None
        self._plan = plan if plan is None or rng.random() < 0.5 else np.arange(queries) % 2
        self._few = rng.random() < 0.7

    def grow(self) -> tuple[Floats, Floats]:
        """Return the log-probabilities of all transcripts in both worlds."""
        outcomes = len(self.book.outcomes)
        left = [np.full((1, self.book.voters), self.allowance, np.int64) for _ in range(2)]
        logs = [np.zeros(1), np.zeros(1)]
        for query in range(self.queries):
            nodes = len(logs[0])
            baseline, ballots = self._public(nodes)
            for world in range(2):
                mine = self._strategy(baseline, query, world)
                votes = np.concatenate([mine[:, None], ballots], axis=1)
                counted, after = self._effective(votes, baseline, left[world])
                left[world] = np.repeat(after, outcomes, axis=0)
                steps = self.book.log_probs(self.book.census(self._places(counted)))
                logs[world] = (logs[world][:, None] + steps).reshape(-1)
        return logs[0], logs[1]

    def _public(self, nodes: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return what both worlds share on each history: baselines, and all other ballots."""
        types, others = self.book.ballots, self.book.voters - 1
        baseline = types[self.rng.integers(len(types), size=nodes)]
        if self._zero:
            baseline = np.zeros_like(baseline)
        ballots = types[self.rng.integers(len(types), size=(nodes, others))]
        agree = self.rng.random((nodes, others, 1)) < self._agree
        return baseline, self._gap(np.where(agree, baseline[:, None], ballots))

    def _strategy(self, baseline: npt.NDArray[Any], query: int, world: int) -> npt.NDArray[Any]:
        types = self.book.ballots
        ballot = types[self.rng.integers(len(types), size=len(baseline))]
        if self._few:  # one label departs: no more than an allowance of one can pay
            place = self.rng.integers(self.book.labels, size=(len(baseline), 1))
            flipped = np.where(np.arange(self.book.labels) == place, 1 - baseline, baseline)
            known = (flipped[:, None] == types).all(axis=2).any(axis=1)
            ballot = np.where(known[:, None], flipped, ballot)
        if self._plan is not None and self._plan[query] != world:
            ballot = baseline
        return self._gap(ballot[:, None])[:, 0]

    def _gap(self, ballots: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Lose some votes."""
        vote = self.rng.random(ballots.shape) < self._missing
        ballot = self.rng.random((*ballots.shape[:-1], 1)) < self._missing
        return np.where(vote | ballot, -1, ballots).astype(np.int8)

    def _effective(
        self, votes: npt.NDArray[Any], baseline: npt.NDArray[Any], left: Ints
    ) -> tuple[npt.NDArray[np.bool_], Ints]:
        """Apply the real rule on every history, and count where the textbook's differs."""
        unit = self.book.mechanism.contribution_unit
        counted = np.empty(votes.shape, np.bool_)
        after = np.empty(left.shape, np.int64)
        for node in range(len(votes)):
            guess = baseline[node].astype(np.bool_)
            here, spent, cut = bound_votes(votes[node : node + 1], guess[None], left[node], unit)
            counted[node], after[node] = here[0], np.where(cut > 0, 0, left[node] - spent)
            plain, rest = effective_ballots(votes[node], guess, left[node], unit=unit)
            self.unlike += int((plain != here[0]).any(axis=1).sum() + (rest != after[node]).sum())
        return counted, after

    def _places(self, counted: npt.NDArray[np.bool_]) -> Ints:
        """Return the place of each effective ballot in the textbook's list."""
        same = (counted[:, :, None, :] == (self.book.ballots == 1)).all(axis=3)
        assert same.any(axis=2).all()
        return np.asarray(same.argmax(axis=2), np.int64)


def effective_ballots(
    ballots: npt.NDArray[Any], baseline: npt.NDArray[Any], left: Ints, *, unit: str
) -> tuple[npt.NDArray[np.bool_], Ints]:
    """Apply the rule of allowances to one query, the plain way.

    Who is missing counts as the baseline: vote by vote where votes are the unit, as a whole where
    ballots are (then a single missing vote is a no). Who has too little left counts as it too,
    and has nothing left from then on.

    Parameters
    ----------
    ballots, baseline, left
        (voters, labels) votes, (labels,) public guess, (voters,) contributions left.
    unit
        ``"vote"`` or ``"ballot"``: what a contribution is.

    Returns
    -------
    (voters, labels) ballots that count, (voters,) what is left after them.
    """
    out = np.zeros(ballots.shape, np.bool_)
    after = np.zeros(len(ballots), np.int64)
    guess = [bool(vote) for vote in baseline]
    for voter, ballot in enumerate(ballots.tolist()):
        if unit == "vote":
            filled = [g if vote == -1 else vote == 1 for vote, g in zip(ballot, guess, strict=True)]
        else:
            absent = all(vote == -1 for vote in ballot)
            filled = guess if absent else [vote == 1 for vote in ballot]
        need = sum(vote != g for vote, g in zip(filled, guess, strict=True))
        if unit == "ballot":
            need = min(need, 1)
        if need <= left[voter]:
            out[voter], after[voter] = filled, left[voter] - need
        else:
            out[voter] = guess
    return out, after

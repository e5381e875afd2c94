"""An electorate: voters with a lifetime allowance, answering any number of adaptive batches.

The guarantee is fixed before a vote is seen (see :mod:`privote.accounting.allowance`). Whoever runs
out counts as the public baseline from then on; who did is sealed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from .accounting.allowance import allowance_rdp, largest_allowance
from .accounting.renyi import Orders, check_delta, check_orders, epsilon
from .ballots import Ballots, BallotSource
from .blocks import MISSING, Block, DenseBlock, SparseBlock, Votes
from .entropy import Entropy
from .errors import BudgetError, InputError, positive
from .mechanisms import Mechanism
from .mechanisms.base import check_electorate
from .release import Release, Sealed

Counts = npt.NDArray[np.int64]


class Electorate:
    """Registered voters and what is left of each one's allowance.

    Parameters
    ----------
    mechanism
        How a tally becomes a release.
    voters, labels
        The size of the electorate. Fixed: a batch from fewer voters leaves the others missing.
    epsilon, delta
        The promise for all batches together, for replacing one voter's ballots everywhere.
    allowance
        ``None``: the largest that keeps the promise. Or one value, or one per voter, no larger.
    voter_ids
        Names of the voters; needed if batches list them in changing order or leave some out.
    seed
        ``None``: secure. An integer makes a simulation of every batch.
    """

    def __init__(
        self,
        *,
        mechanism: Mechanism,
        voters: int,
        labels: int,
        epsilon: float,
        delta: float,
        allowance: int | npt.ArrayLike | None = None,
        voter_ids: Sequence[Any] | None = None,
        orders: Orders | None = None,
        seed: int | None = None,
    ) -> None:
        check_electorate(voters, labels)
        if not isinstance(mechanism, Mechanism):
            raise InputError(f"mechanism must be a privote mechanism, got {mechanism!r}")
        self.mechanism, self.voters, self.labels = mechanism, int(voters), int(labels)
        self.budget, self.delta = positive("epsilon", epsilon), check_delta(delta)
        self._orders = check_orders(orders)
        self._surprise = mechanism.surprise_rdp(self.voters, self.labels, self._orders)
        largest = largest_allowance(self._surprise, self._orders, self.budget, self.delta)
        if largest < 1:
            raise BudgetError(
                f"epsilon={self.budget:g} at delta={self.delta:g} buys not one surprise a voter "
                f"with {mechanism}: use a larger sigma or a larger budget"
            )
        self._allowance = self._check_allowance(allowance, largest)
        self._left = self._allowance.copy()
        self._ids = None if voter_ids is None else self._check_ids(voter_ids, self.voters)
        self._entropy = Entropy(seed)
        self.answered = 0

    def _check_allowance(self, given: int | npt.ArrayLike | None, largest: int) -> Counts:
        if given is None:
            return np.full(self.voters, largest, np.int64)
        array = np.asarray(given)
        if array.dtype.kind not in "iu" or array.shape not in ((), (self.voters,)):
            raise InputError(
                f"allowance must be one integer or one per voter ({self.voters}), "
                f"got {array.dtype} of shape {array.shape}"
            )
        if array.min() < 0 or array.max() > largest:
            raise InputError(
                f"allowance must lie in 0..{largest}, the largest that keeps "
                f"epsilon={self.budget:g}; got {int(array.min())}..{int(array.max())}"
            )
        return np.broadcast_to(array, (self.voters,)).astype(np.int64)

    @staticmethod
    def _check_ids(ids: Sequence[Any], voters: int) -> dict[Any, int]:
        places = {name: place for place, name in enumerate(ids)}
        if len(ids) != voters or len(places) != voters:
            raise InputError(
                f"voter_ids must be {voters} different names, got {len(ids)} of which "
                f"{len(places)} differ"
            )
        return places

    # -- what may be known ------------------------------------------------------------------------

    @property
    def allowance(self) -> int | tuple[int, ...]:
        """How many surprises each voter had from the start: one number, or one per voter."""
        first = int(self._allowance[0])
        return first if (self._allowance == first).all() else tuple(self._allowance.tolist())

    @property
    def epsilon(self) -> float:
        """The guarantee for all batches together, past and future."""
        return float(self.epsilon_by_voter.max())

    @property
    def epsilon_by_voter(self) -> npt.NDArray[np.float64]:
        """Each voter's own guarantee, which follows from its own allowance: (voters,)."""
        values, inverse = np.unique(self._allowance, return_inverse=True)
        curves = allowance_rdp(self._surprise, values)
        each = np.array([epsilon(curve, self._orders, self.delta) for curve in curves])
        return np.asarray(each[inverse.reshape(-1)])

    @property
    def sealed(self) -> Sealed:
        """For the owner's eyes: what each voter has spent and who ran out."""
        return Sealed(spent=self._allowance - self._left, allowance=self._allowance.copy())

    def __repr__(self) -> str:
        return (
            f"Electorate({self.voters} voters, {self.labels} labels, "
            f"epsilon={self.epsilon:.4g}, delta={self.delta:g}, {self.mechanism})"
        )

    # A copy would hold the same allowance twice, and spend it twice.
    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError("an Electorate cannot be copied or pickled: its allowance exists once")

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse

    # -- answering --------------------------------------------------------------------------------

    def answer(
        self,
        votes: Any,
        baseline: npt.ArrayLike | None = None,
        *,
        voter_ids: Sequence[Any] | None = None,
    ) -> Release:
        """Answer every query of a batch; its queries and baseline may depend on past releases.

        Parameters
        ----------
        votes
            (queries, voters, labels) array, ballots or path.
        baseline
            (queries, labels) public guess, e.g. the current student's prediction; zeros by default.
            A vote that agrees with it costs nothing. Never derive it from private votes.
        voter_ids
            Names of this batch's voters, in the order of the cube's second axis.
        """
        ballots = Ballots.of(votes)
        places = self._places(ballots, voter_ids)
        guess = self._check_baseline(baseline, ballots)
        self.mechanism.check(ballots)
        labels = []
        start = 0
        for block in ballots.blocks():
            rows = guess[start : start + block.queries]
            start += block.queries
            counted, spent = self._effective(self._seat(block, places), rows)
            self._left = self._left - spent  # charged before anything is drawn
            labels.append(self.mechanism.draw(self.mechanism.tally(counted), self._entropy))
        self.answered += ballots.queries
        return Release(
            labels=np.concatenate(labels),
            epsilon=self.epsilon,
            delta=self.delta,
            guarantee="allowance",
            budget=self.budget,
            mechanism=self.mechanism.parameters(),
            voters=self.voters,
            allowance=self.allowance,
            simulated=self._entropy.simulated,
            sealed=self.sealed,
        )

    def _places(self, ballots: BallotSource, voter_ids: Sequence[Any] | None) -> Counts | None:
        """Return the seat of each voter of the batch; None if they sit as registered."""
        if ballots.labels != self.labels:
            raise InputError(f"votes must have {self.labels} labels, got {ballots.labels}")
        if voter_ids is None:
            if ballots.voters != self.voters:
                raise InputError(
                    f"votes must have {self.voters} voters, got {ballots.voters}; "
                    "name them with voter_ids if some are absent"
                )
            return None
        if self._ids is None:
            raise InputError("voter_ids given, but this electorate was made without names")
        self._check_ids(voter_ids, ballots.voters)
        unknown = [name for name in voter_ids if name not in self._ids]
        if unknown:
            raise InputError(f"voter_ids holds {unknown[0]!r}, who is not registered")
        return np.array([self._ids[name] for name in voter_ids], np.int64)

    def _check_baseline(
        self, baseline: npt.ArrayLike | None, ballots: BallotSource
    ) -> npt.NDArray[np.bool_]:
        shape = (ballots.queries, self.labels)
        if baseline is None:
            return np.broadcast_to(np.zeros((), np.bool_), shape)
        guess = np.asarray(baseline)
        if guess.shape != shape:
            raise InputError(f"baseline must be (queries, labels) = {shape}, got {guess.shape}")
        if guess.dtype != np.bool_ and not np.isin(guess, (0, 1)).all():
            raise InputError("baseline must hold 0 and 1 only")
        if ballots.sparse and guess.any():
            raise InputError("sparse ballots take a zero baseline only: a silent voter casts zeros")
        if self.mechanism.name == "plurality" and (guess.sum(axis=1) > 1).any():
            raise InputError("a plurality baseline must have at most one positive a query")
        limit = getattr(self.mechanism, "max_positives", None)
        if limit is not None and (guess.sum(axis=1) > limit).any():
            raise InputError(f"baseline has more than max_positives={limit} positives on a query")
        return guess.astype(np.bool_)

    def _seat(self, block: Block, places: Counts | None) -> Block:
        """Put the batch's voters on their registered seats; empty seats are missing."""
        if places is None:
            return block
        if isinstance(block, SparseBlock):
            return SparseBlock(
                block.query, places[block.voter], block.votes, block.queries, self.voters
            )
        assert isinstance(block, DenseBlock)
        votes = np.full((block.queries, self.voters, self.labels), MISSING, np.int8)
        votes[:, places] = block.votes
        return DenseBlock(votes, missing=True)

    def _effective(self, block: Block, baseline: npt.NDArray[np.bool_]) -> tuple[Block, Counts]:
        unit = self.mechanism.surprise_unit
        if isinstance(block, SparseBlock):
            return _effective_sparse(block, self._left, unit, self.mechanism.name)
        assert isinstance(block, DenseBlock)
        votes, spent = effective_votes(block.votes, baseline, self._left, unit)
        return DenseBlock(votes, missing=False), spent


def effective_votes(
    votes: Votes, baseline: npt.NDArray[np.bool_], left: Counts, unit: str
) -> tuple[npt.NDArray[np.bool_], Counts]:
    """Return the votes that count, and what each voter spent on them.

    Who is missing counts as the baseline: vote by vote where votes are the unit; where ballots
    are, a ballot missing as a whole (a single missing vote is a no, or a ballot might be half the
    baseline and break the mechanism's own rule). A ballot with more surprises than its voter has
    left counts as the baseline as a whole; a later, smaller one may fit again.

    Parameters
    ----------
    votes, baseline, left
        (queries, voters, labels), (queries, labels), (voters,)
    unit
        ``"vote"``: each vote that departs from the baseline is a surprise; ``"ballot"``: each
        ballot that departs from it anywhere is one.
    """
    guess = np.asarray(baseline, np.bool_)[:, None, :]
    if votes.dtype == np.bool_:
        yes = votes
    else:
        absent = votes == MISSING
        if unit == "ballot":
            absent = absent.all(axis=2, keepdims=True)
        yes = np.where(absent, guess, votes == 1)
    departs = yes != guess
    count = departs.sum(axis=2) if unit == "vote" else departs.any(axis=2).astype(np.int64)
    keep = _affordable(count, left)
    spent = np.where(keep, count, 0).sum(axis=0)
    if keep.all():
        return np.asarray(yes), spent
    return np.where(keep[:, :, None], yes, guess), spent


def _affordable(count: Counts, left: Counts) -> npt.NDArray[np.bool_]:
    """Return which ballots fit, taken in order: (queries, voters)."""
    keep = np.ones(count.shape, np.bool_)
    for voter in np.flatnonzero(count.sum(axis=0) > left):
        keep[:, voter] = list(_in_turn(count[:, voter], int(left[voter])))
    return keep


def _in_turn(costs: npt.NDArray[Any], left: int) -> Iterator[bool]:
    for cost in costs.tolist():
        fits = cost <= left
        left -= cost if fits else 0
        yield fits


def _effective_sparse(
    block: SparseBlock, left: Counts, unit: str, name: str
) -> tuple[SparseBlock, Counts]:
    """Return the ballots that count; a silent voter is its own (zero) baseline."""
    size = block.votes.sum(axis=1)
    if unit == "vote":
        count = size
    else:
        # Saying "none of them" differs from saying nothing only where the empty set is a class.
        count = np.ones_like(size) if name == "powerset" else (size > 0).astype(np.int64)
    keep = np.ones(len(count), np.bool_)
    spent = np.bincount(block.voter, weights=count, minlength=block.voters).astype(np.int64)
    order = np.argsort(block.voter, kind="stable")  # within a voter, queries stay in order
    starts = np.searchsorted(block.voter[order], np.arange(block.voters + 1))
    for voter in np.flatnonzero(spent > left):
        rows = order[starts[voter] : starts[voter + 1]]
        keep[rows] = list(_in_turn(count[rows], int(left[voter])))
        spent[voter] = int(count[rows][keep[rows]].sum())
    return (
        SparseBlock(
            block.query[keep], block.voter[keep], block.votes[keep], block.queries, block.voters
        ),
        spent,
    )

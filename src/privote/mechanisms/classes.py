"""What Powerset and Plurality share: every ballot votes for one class, the noisiest count wins."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr

from ..accounting.pate2018 import theorem6
from ..accounting.renyi import Floats, Orders, check_orders
from ..accounting.worst_case import argmax_supremum
from ..entropy import Entropy
from ..errors import BallotError, positive
from ..votes.cube import BallotSource, Block
from .argmax import Contest, neighbour_costs
from .base import ABSTAIN, Labels, Mechanism, check_electorate


@dataclass(frozen=True)
class ClassTally:
    """Which classes got how many votes.

    Attributes
    ----------
    profiles
        (queries, width) counts of the classes with votes, descending, padded with 0.
    winners
        (queries, width) the class of each count, as a row of ``ballots``.
    ballots
        (classes seen, labels) bool.
    voter_class
        (speakers, 3): query, voter, and the place of the voter's class in its query's profile.
    """

    profiles: npt.NDArray[np.int64]
    winners: npt.NDArray[np.int64]
    ballots: npt.NDArray[np.bool_]
    voter_class: npt.NDArray[np.int64]
    voters: int
    silent: bool

    def contests(self) -> Iterator[tuple[tuple[int, ...], npt.NDArray[np.intp]]]:
        """Yield each distinct profile with the queries that have it."""
        distinct, inverse = np.unique(self.profiles, axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)
        order = np.argsort(inverse, kind="stable")
        ends = np.cumsum(np.bincount(inverse, minlength=len(distinct)))
        for row, rows in zip(distinct, np.split(order, ends[:-1]), strict=True):
            yield tuple(int(c) for c in row[row > 0]), rows


@dataclass(frozen=True, kw_only=True)
class ClassMechanism(Mechanism):
    """A mechanism in which each ballot is one vote for one of M classes.

    ``sigma`` is PATE's sigma_GNMax: the count of every class gets its own N(0, sigma^2).
    """

    sigma: float

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "sigma", positive("sigma", self.sigma))

    @abstractmethod
    def classes(self, labels: int) -> int:
        """Return M, the number of classes."""

    @abstractmethod
    def holding(self, labels: int) -> int:
        """Return how many of the classes hold one given label, exactly."""

    def _vote(
        self, block: Block
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Return (query, voter, ballot) of every vote for a class; refuse other ballots."""
        query, voter, cast = block.speakers()
        size = cast.sum(axis=1)
        over = np.flatnonzero(size > (block.labels if self.most_ones is None else self.most_ones))
        if len(over):
            at = int(over[0])
            raise BallotError(
                *self._refusal,
                sealed=f"voter {voter[at]} has {size[at]} positives on query "
                f"{block.start + query[at]}: labels {np.flatnonzero(cast[at]).tolist()}",
            )
        return query, voter, cast

    @property
    @abstractmethod
    def _refusal(self) -> tuple[str, ...]:
        """What is said of a ballot with too many positives: an argument and a rule, or a text."""

    @abstractmethod
    def _draw_unvoted(
        self, voted: npt.NDArray[np.bool_], labels: int, entropy: Entropy
    ) -> npt.NDArray[np.bool_]:
        """Draw a class uniformly among those without a vote."""

    def check(self, ballots: BallotSource) -> None:
        """Refuse ballots that are not a vote for one class."""
        for block in ballots.blocks():
            self._vote(block)

    def every_outcome(self, labels: int) -> Labels:
        """Return every class as a row of labels, then with a gate the row held back as a whole."""
        rows = self._every_class(labels)
        held = np.full((0 if self.gate is None else 1, labels), ABSTAIN, np.int8)
        return np.concatenate([rows, held])

    def _every_class(self, labels: int) -> Labels:
        """Return every class as a row of labels; only where there are few."""
        return self.every_ballot(labels)

    def gate_probs(self, tally: ClassTally) -> Floats:
        """Return the probability that each query is held back, and that it is answered."""
        if self.gate is None:
            return np.tile([0.0, 1.0], (len(tally.profiles), 1))
        return np.asarray(np.exp(self.gate.log_probs(tally.profiles[:, 0])))

    def _may_be_silent(self, block: Block) -> bool:
        return block.missing

    def tally(self, block: Block) -> ClassTally:
        """Count the classes of each query."""
        query, voter, cast = self._vote(block)
        packed = np.packbits(cast, axis=1)
        if len(cast):
            codes = np.ascontiguousarray(packed).view(f"V{packed.shape[1]}").reshape(-1)
            _, first, code = np.unique(codes, return_index=True, return_inverse=True)
        else:
            first, code = np.zeros(0, np.intp), np.zeros(0, np.intp)
        kinds = max(1, len(first))
        key, place, count = np.unique(
            query * kinds + code.reshape(-1), return_inverse=True, return_counts=True
        )
        run_query, run_class = key // kinds, key % kinds
        # Within a query the largest count first; ties in the order of the codes.
        order = np.lexsort((run_class, -count, run_query))
        starts = np.searchsorted(run_query[order], np.arange(block.queries))
        rank = np.empty(len(key), np.int64)
        rank[order] = np.arange(len(key)) - starts[run_query[order]]
        width = int(rank.max()) + 1 if len(rank) else 1
        profiles = np.zeros((block.queries, width), np.int64)
        winners = np.zeros_like(profiles)
        profiles[run_query, rank], winners[run_query, rank] = count, run_class
        return ClassTally(
            profiles,
            winners,
            np.asarray(cast[first]).reshape(-1, block.labels),
            np.stack([query, voter, rank[place.reshape(-1)]], axis=1),
            block.voters,
            self._may_be_silent(block),
        )

    def _contest(self, profile: tuple[int, ...], labels: int) -> Contest:
        return Contest(self.sigma, profile, self.classes(labels))

    def unanimous(self, voters: int, labels: int) -> float:
        """Return how often a label that every voter wants, and nothing else, is released as 1."""
        check_electorate(voters, labels)
        contest = self._contest((int(voters),), labels)
        log_hit = contest.win_log_probs()[0]
        if self.gate is not None:
            log_hit = log_hit + self.gate.log_probs(np.array(voters))[1]
        return min(1.0, float(np.exp(log_hit)))

    def win_log_probs(self, tally: ClassTally) -> Floats:
        """Return the log-probability of each voted class, then of *some* unvoted one.

        (queries, width + 1), -inf where there is no such class. Given that the query is answered.
        """
        queries, width = tally.profiles.shape
        table = np.full((queries, width + 1), -np.inf)
        for profile, rows in tally.contests():
            contest = self._contest(profile, tally.ballots.shape[1])
            levels, log_mult = contest.levels()
            wins = contest.win_log_probs()
            for place, count in enumerate(profile):
                table[rows, place] = wins[levels == count][0]
            if contest.unvoted:
                table[rows, width] = wins[-1] + log_mult[-1]
        return table

    def draw(self, tally: ClassTally, entropy: Entropy) -> Labels:
        """Draw the winning class of each query, or ABSTAIN: (queries, labels)."""
        table = self.win_log_probs(tally)
        labels = tally.ballots.shape[1]
        queries, width = tally.profiles.shape
        place = entropy.categorical(table)
        drawn = np.zeros((queries, labels), np.int8)
        voted = place < width
        drawn[voted] = tally.ballots[tally.winners[voted, place[voted]]]
        for row in np.flatnonzero(~voted):
            seen = tally.ballots[tally.winners[row][tally.profiles[row] > 0]]
            drawn[row] = self._draw_unvoted(seen, labels, entropy)
        if self.gate is not None:
            gate = self.gate.log_probs(tally.profiles[:, 0])
            drawn[~entropy.bernoulli(gate[:, 1], gate[:, 0])] = ABSTAIN
        return drawn

    def cell_probabilities(self, tally: ClassTally) -> Floats:
        """Return the probability of 0, 1 and ABSTAIN in each cell: (queries, labels, 3)."""
        one = self._chance_of_one(tally)
        abstain, answer = np.split(self.gate_probs(tally), 2, 1)
        zero = np.maximum(0.0, 1 - one)
        parts = zero * answer, one * answer, np.broadcast_to(abstain, one.shape)
        return np.stack(parts, axis=-1)

    def _chance_of_one(self, tally: ClassTally) -> Floats:
        """Return the probability of a 1 in each cell of an answered query: (queries, labels)."""
        wins = np.exp(self.win_log_probs(tally))
        labels = tally.ballots.shape[1]
        one = np.zeros((len(wins), labels))
        taken = np.zeros((len(wins), labels), np.int64)  # classes with votes that hold the label
        for place in range(tally.profiles.shape[1]):
            voted = tally.profiles[:, place] > 0
            cast = tally.ballots[tally.winners[voted, place]]
            one[voted] += wins[voted, place, None] * cast
            taken[voted] += cast
        seen = (tally.profiles > 0).sum(axis=1)[:, None]
        # Of the classes without a vote, the share that holds the label. There may be 2^5000: the
        # division is of exact integers, once for each pair of counts.
        everywhere, holding = self.classes(labels), self.holding(labels)
        wide = int(taken.max(initial=0)) + 1
        pairs, at = np.unique(seen * wide + taken, return_inverse=True)
        shares = [
            (holding - pair % wide) / max(everywhere - pair // wide, 1) for pair in pairs.tolist()
        ]
        return np.asarray(one + wins[:, -1:] * np.asarray(shares)[at.reshape(taken.shape)])

    def cost(self, tally: ClassTally, orders: Floats, bound: str) -> Floats:
        """Price each query: the worst move of any one ballot."""
        total = np.empty((len(tally.profiles), len(orders)))
        for profile, rows in tally.contests():
            contest = self._contest(profile, tally.ballots.shape[1])
            if bound == "pate2018":
                total[rows] = self._theorem6(contest, orders)
            else:
                costs = neighbour_costs(contest, self.gate, tally.silent, tuple(orders))
                total[rows] = costs.max(axis=(0, 1))
        return total

    def _theorem6(self, contest: Contest, orders: Floats) -> Floats:
        # Proposition 7 of PATE 2018: q <= sum over losing classes of Phi(-gap / (sqrt(2) sigma)).
        levels, log_mult = contest.levels()
        lose = np.log(np.maximum(np.exp(np.minimum(log_mult[0], 600.0)) - 1, 1e-300))
        first = np.where(np.arange(len(levels)) == 0, lose, log_mult)
        gap = (levels[0] - levels) / (2**0.5 * self.sigma)
        log_q = np.logaddexp.reduce(first + log_ndtr(-gap))
        cost = theorem6(log_q, self.sigma, orders)
        if self.gate is not None:
            gate = self.gate.log_probs(np.array(float(contest.top)))
            cost = cost + theorem6(gate.min(), 2**0.5 * self.gate.sigma, orders)
        return cost

    def cost_by_voter(self, block: Block, orders: Floats) -> Floats:
        """Price the block for each voter: the worst place its one vote could have been."""
        tally = self.tally(block)
        query, voter, place = tally.voter_class.T
        bill = np.zeros((tally.voters, 2, len(orders)))
        for profile, rows in tally.contests():
            contest = self._contest(profile, tally.ballots.shape[1])
            costs = neighbour_costs(contest, self.gate, tally.silent, tuple(orders))
            levels, _ = contest.levels()
            here = np.isin(query, rows)
            level_of = np.array([np.flatnonzero(levels == count)[0] for count in profile], np.int64)
            np.add.at(bill, voter[here], costs[level_of[place[here]]])
            if tally.silent:
                spoke = np.bincount(voter[here], minlength=tally.voters)
                bill += (len(rows) - spoke)[:, None, None] * costs[-1]
        return bill

    def worst_case_rdp(
        self, voters: int, labels: int, orders: Orders | None = None, bound: str = "exact"
    ) -> Floats:
        """Return what one query costs at most: one vote leaves one class and joins another."""
        self._check_bound(bound, self.worst_case_bounds)
        orders = check_orders(orders)
        check_electorate(voters, labels)
        vote = orders / self.sigma**2
        if bound == "exact":
            vote = _worst_move(self.sigma, tuple(orders))
        if self.gate is None:
            return np.array(vote)
        # The gate's check and the vote, one after the other; one noise on one count for the gate.
        gate = orders * 0.5 / self.gate.sigma**2
        return vote + gate


@lru_cache(maxsize=64)
def _worst_move(sigma: float, orders: tuple[float, ...]) -> Floats:
    worst = argmax_supremum(sigma, np.array(orders))
    worst.setflags(write=False)
    return worst

"""How many queries one budget answers, guarantee by guarantee, and by the paper's accounting.

Binary voting, 22 labels, epsilon=20, delta=1e-5 (weak, and what published figures use), for the
votes of 50 real teachers (tmc2007, embedded) and for made-up electorates of
50, 250 and 1,000 voters. Those need no data: the chance of a yes in each cell is drawn from
Beta(0.05, 12) in 86 % of the cells and from Beta(0.8, 0.8) in the others, which is about as divided
as tmc2007, and voters then vote on their own.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator

import gaussian
import numpy as np
import sanitize2018
from comparison import peer, row

import privote as pv
from privote.accounting import pld, sanitize
from privote.accounting.renyi import divergence
from privote.datasets import load_teacher_votes
from privote.guarantees.data_dependent import VoterLevels
from privote.mechanisms.cells import MarginGrid
from privote.planning import allowance_for, queries_for
from privote.votes.cube import DenseBlock

LABELS, EPSILON, DELTA = 22, 20.0, 1e-5
ORDERS = pv.DEFAULT_ORDERS
SIGMAS = (4, 7, 9, 12, 20)
BLOCK = 250  # queries made up at a time
STEP = 2_000  # queries between two counts that are kept

LEGEND = """\
paper's accounting  PATE 2018's bound, its orders, the conversion of 2017: to compare, not valid
worst case          unconditional; a public number. Gaussian: the same by the exact epsilon of the
                    noisy counts behind the labels
allowance           unconditional; queries until the first voter is out, and it goes on after that
sanitized           about these votes; published epsilon of at most 20 at the median draw
RDP, PLD            about these votes; sealed epsilon of at most 20: Rényi cost per query, by voter,
                    and privacy-loss distribution by voter
The last four are found by looking at these votes, to compare: in use the number is fixed before.
"""

HEADINGS = (
    ("paper's", "accounting"),
    ("worst", "case"),
    ("Gaus-", "sian"),
    ("allow-", "ance"),
    ("sani-", "tized"),
    ("RDP per", "query"),
    ("RDP by", "voter"),
    ("PLD by", "voter"),
)


class Votes:
    """Queries in order, each block made again when it is asked for; and sums that are kept."""

    def __init__(self, voters: int, real: np.ndarray | None = None, seed: int = 7) -> None:
        self.voters, self._real, self._seed = voters, real, seed
        self.queries = 10**9 if real is None else len(real)
        self._margins = [np.zeros((0, LABELS), np.int64)]
        self._busiest = np.zeros(voters, np.int64)
        self._first_out: list[np.ndarray] = []  # the most contributions of a voter after each query
        self._seen = 0
        self._kept: dict[int, np.ndarray] = {0: self._empty().counts}

    def block(self, start: int) -> np.ndarray:
        """Return (up to BLOCK queries, voters, LABELS) votes."""
        if self._real is not None:
            return self._real[start : start + BLOCK]
        rng = np.random.default_rng([self._seed, self.voters, start])
        divided = rng.random((BLOCK, LABELS)) < 0.14
        a, b = np.where(divided, 0.8, 0.05), np.where(divided, 0.8, 12.0)
        chance = rng.beta(a, b).astype(np.float32)
        return rng.random((BLOCK, self.voters, LABELS), np.float32) < chance[:, None, :]

    def _empty(self) -> VoterLevels:
        levels = VoterLevels.of(pv.BinaryVoting(sigma=1.0), _Shape(self.voters))
        assert levels is not None
        return levels

    def read(self, queries: int) -> None:
        """See to it that so many queries have been counted."""
        while self._seen < min(queries, self.queries):
            levels = self._empty()
            levels.counts += self._kept[max(self._kept)]
            for start in range(self._seen, self._seen + STEP, BLOCK):
                votes = self.block(start)
                levels.add(DenseBlock(votes, missing=False))
                self._margins.append(2 * votes.sum(axis=1, dtype=np.int64) - self.voters)
                said = self._busiest + np.cumsum(votes.sum(axis=2, dtype=np.int64), axis=0)
                self._first_out.append(said.max(axis=1))
                self._busiest = said[-1] if len(said) else self._busiest
                say(f"{self.voters} voters: counted {start + len(votes):,} queries")
            self._seen += STEP
            self._kept[self._seen] = levels.counts.astype(np.int32)

    def margins(self, queries: int) -> np.ndarray:
        """Return (queries, LABELS)."""
        self.read(queries)
        self._margins = [np.concatenate(self._margins)]
        return self._margins[0][:queries]

    def histogram(self, queries: int) -> np.ndarray:
        """Return (voters + 1,): how many cells have each count of yes-votes."""
        yes = (self.margins(queries).ravel() + self.voters) // 2
        return np.bincount(yes, minlength=self.voters + 1)

    def contributions(self, queries: int) -> np.ndarray:
        """Return the most yes-votes of any voter after each query: (queries,)."""
        self.read(queries)
        return np.concatenate(self._first_out)[:queries]

    def by_voter(self, mechanism: pv.BinaryVoting, queries: int) -> tuple[pld.Moves, np.ndarray]:
        """Return every voter's moves on the first queries, and how often it makes them."""
        self.read(queries)
        levels = VoterLevels.of(mechanism, _Shape(self.voters))
        assert levels is not None
        start = max(kept for kept in self._kept if kept <= queries)
        levels.counts += self._kept[start]
        while start < queries:
            votes = self.block(start)[: queries - start]
            levels.add(DenseBlock(votes, missing=False))
            start += BLOCK
        return levels.moves()


class _Shape:
    """Ballots of which only the size matters."""

    queries, labels, missing, sparse = 1, LABELS, False, False

    def __init__(self, voters: int) -> None:
        self.voters = voters

    def blocks(self) -> Iterator[DenseBlock]:
        return iter(())

    def head(self, queries: int) -> _Shape:
        del queries
        return self


def say(what: str) -> None:
    """Show progress on stderr, on one line, to whoever sits in front of a terminal."""
    if sys.stderr.isatty():
        print(f"\r{what:78s}", end="", file=sys.stderr, flush=True)


def last(fits: Callable[[int], bool], known: int, step: int, top: int) -> int:
    """Return a number that fits while the next does not, from one that is known to fit."""
    low, high = known, top + 1
    while high - low > 1:
        middle = min(low + step, high - 1) if high > top else (low + high) // 2
        if fits(middle):
            low, step = middle, 2 * step
        else:
            high = middle
    return low


def crossing(price: Callable[[int], float], low: int, top: int) -> int:
    """Return the last number whose price fits, if prices rise almost in line; ``low`` must fit."""
    here, high, there, nearer = price(low), top + 1, math.inf, False
    while high - low > 1:
        slope = here / max(low, 1) if there == math.inf else (there - here) / (high - low)
        guess = low + (EPSILON - here) / max(slope, 1e-9)
        middle = min(max(math.ceil(guess) if nearer else math.floor(guess), low + 1), high - 1)
        found = price(middle)
        nearer = found <= EPSILON
        if nearer:
            low, here = middle, found
        else:
            high, there = middle, found
    return low


class Row:
    """All counts of one electorate and one sigma."""

    def __init__(self, votes: Votes, sigma: float) -> None:
        self.votes, self.mechanism = votes, pv.BinaryVoting(sigma=float(sigma))
        n = votes.voters
        grid = MarginGrid(self.mechanism, n, False)
        self.costs = grid.costs(slice(None), ORDERS).T  # (orders, counts)

    def counts(self) -> Iterator[int]:
        """Yield the numbers of queries in the order of HEADINGS."""
        n, where = self.votes.voters, (self.votes.voters, LABELS, EPSILON, DELTA)
        yield self._per_query(self._theorem6(), sanitize2018.ORDERS, pv.epsilon_2017)
        yield queries_for(self.mechanism, *where)
        curve = self.mechanism.worst_case_rdp(n, LABELS, ORDERS, bound="gaussian")
        yield gaussian.largest_count(gaussian.shift_of(curve, ORDERS), EPSILON, DELTA)
        yield self._allowance(allowance_for(self.mechanism, *where))
        yield last(lambda m: self._sanitized(m) <= EPSILON, 0, 64, self.votes.queries)
        per_query = self._per_query(self.costs, ORDERS, pv.epsilon)
        yield per_query
        by_curve = last(self._curve_fits, per_query, max(1, per_query // 50), self.votes.queries)
        yield by_curve
        yield crossing(self._loss, by_curve, self.votes.queries)

    def _theorem6(self) -> np.ndarray:
        n = self.votes.voters
        ladder = np.tril(np.ones((n + 1, n), bool), -1)[:, :, None]  # one cell for each count
        return self.mechanism.rdp(ladder, sanitize2018.ORDERS, bound="pate2018").T

    def _per_query(self, costs: np.ndarray, orders: np.ndarray, convert: Callable) -> int:
        def fits(queries: int) -> bool:
            total = costs @ self.votes.histogram(queries)
            return float(convert(total, orders, DELTA)) <= EPSILON

        return last(fits, 0, 64, self.votes.queries)

    def _allowance(self, allowance: int) -> int:
        queries = STEP
        while queries < self.votes.queries and self.votes.contributions(queries)[-1] <= allowance:
            queries += STEP
        return int((self.votes.contributions(queries) <= allowance).sum())

    def _sanitized(self, queries: int) -> float:
        """Return what would be published at the median draw, Z = 0."""
        histogram = self.votes.histogram(queries)
        order = sanitize.public_order(self.costs, ORDERS, queries * LABELS, DELTA)
        row, beta = self.costs[list(ORDERS).index(order)], sanitize.default_beta(order)
        sigma_s, gamma = sanitize.SIGMA_S, sanitize.GAMMA
        sensitivity = sanitize.smooth_sensitivity(row, histogram, beta)
        upper = sanitize.sanitized_upper(float(histogram @ row), sensitivity, sigma_s, 0.0, gamma)
        price = sanitize.release_cost(order, beta, sigma_s, gamma)
        return sanitize.statement_epsilon(upper, price, order, DELTA)

    def _bills(self, queries: int) -> tuple[pld.Moves, np.ndarray, np.ndarray]:
        """Return moves, times, and (voters, 2, orders) Rényi costs, exact for the batch."""
        moves, times = self.votes.by_voter(self.mechanism, queries)
        ways = (moves, moves.reversed())
        return moves, times, np.stack([times @ divergence(*way, ORDERS) for way in ways], axis=1)

    def _curve_fits(self, queries: int) -> bool:
        bills = self._bills(queries)[2].reshape(-1, len(ORDERS))
        # Above every bill, then the bill that is largest at one order: one of them mostly decides.
        if pv.epsilon(bills.max(axis=0), None, DELTA) <= EPSILON:
            return True
        largest = bills[bills[:, np.searchsorted(ORDERS, 2.0)].argmax()]
        if pv.epsilon(largest, None, DELTA) > EPSILON:
            return False
        return float(np.max(pv.epsilon(bills, None, DELTA))) <= EPSILON

    def _loss(self, queries: int) -> float:
        say(f"{self.votes.voters} voters, {self.mechanism}: privacy loss of {queries:,} queries")
        moves, times = self.votes.by_voter(self.mechanism, queries)
        open_end = np.full((self.votes.voters, 2), np.inf)
        grid = pld.DISCRETIZATION * (1 if self.votes.voters < 1000 else 2)
        return pld.epsilon_by_voter_max(moves, times, open_end, DELTA, grid)


def show(title: str, votes: Votes) -> list[list[int]]:
    """Print one table; return its numbers."""
    print(title)
    for line in (0, 1):
        print("  sigma" if line else "       ", end="")
        print("".join(f"{heading[line]:>11s}" for heading in HEADINGS))
    rows = []
    for sigma in SIGMAS:
        row = Row(votes, sigma)
        numbers = []
        for heading, number in zip(HEADINGS, row.counts(), strict=True):
            say(f"{votes.voters} voters, sigma {sigma}: {' '.join(heading)} {number:,}")
            numbers.append(number)
        say("")
        print(f"  {sigma:5d}" + "".join(f"{number:11,d}" for number in numbers), flush=True)
        rows.append(numbers)
    print()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--voters", type=int, nargs="*", default=[50, 250, 1000])
    arguments = parser.parse_args()
    started = time.perf_counter()
    print(f"Queries answered, Binary voting, {LABELS} labels, epsilon={EPSILON:g}, delta={DELTA:g}")
    print(LEGEND)
    real = load_teacher_votes().votes
    rows = show("tmc2007, 50 real teachers, 4,000 queries at most", Votes(50, real))
    at7 = rows[SIGMAS.index(7)]
    print(f"At sigma 7: allowance / worst case = {at7[3] / at7[1]:.1f}, PLD by voter {at7[7]}\n")
    for voters in arguments.voters:
        show(f"made-up electorate, {voters:,} voters", Votes(voters))
    best = dict(zip((" ".join(h).strip() for h in HEADINGS), np.max(rows, axis=0), strict=True))
    # Both peers are formulas of others, computed by privote's own code on scipy.
    job = "queries at epsilon 20, tmc2007, best sigma of five:"
    noisy = peer("noisy counts, exact Gaussian", "scipy")
    row(f"{job} allowance", best["allow- ance"], best["Gaus- sian"], "queries", noisy, gain=True)
    paper = peer("PATE 2018's bound", "scipy")
    sealed = f"{job} by voter, sealed"
    row(sealed, best["PLD by voter"], best["paper's accounting"], "queries", paper, gain=True)
    say("")
    print(f"\r{time.perf_counter() - started:.0f} seconds", file=sys.stderr)


if __name__ == "__main__":
    main()

"""How many of given votes' queries a budget answers, guarantee by guarantee. For the owner's eyes.

Each count asks what the guardian asks when it answers: the budget's own filter, the rule by which
surprises are counted, the test that is proposed. All Rényi orders are priced, as the guardian does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..accounting import ptr
from ..accounting.renyi import check_orders
from ..accounting.renyi import epsilon as to_epsilon
from ..errors import BudgetError, InputError, UnavailableError
from ..guardian.allowance import check_baseline
from ..guardian.consensus import Levels, propose
from ..guardian.voter_bills import by_voter
from ..ledger import Budget
from ..mechanisms import Mechanism
from ..release import GUARANTEES
from ..votes.cube import Ballots, BallotSource, Block, Counts, DenseBlock, SparseBlock
from ..votes.surprises import effective
from .budget import allowance_for, room

Bools = npt.NDArray[np.bool_]

#: What can be counted: queries under each guarantee; at the published bound of PATE 2018 instead of
#: the exact cost; and by each voter's own exact bill, which is the exact cost of the batch.
COUNTS = (*GUARANTEES, "published", "by-voter")
#: What is counted unless told: without what takes long.
QUICK = ("allowance", "worst-case", "data-dependent", "published")

_PLENTY = np.iinfo(np.int64).max  # an allowance that never ends
_STEP = 64  # queries priced at a time: little is priced beyond what fits


def queries_that_fit(
    mechanism: Mechanism,
    votes: Any,
    epsilon: float,
    delta: float,
    *,
    counts: Sequence[str] = QUICK,
    baseline: npt.ArrayLike | None = None,
    rule: str | None = None,
) -> dict[str, int | None]:
    """Return how many of the first queries a budget answers; None where a count is not to be had.

    ``"allowance"``: until the first voter has run out; 0 if the budget buys not one surprise, which
    is a refusal. ``"worst-case"``: whatever the votes. ``"ptr"``: with so many these votes pass the
    test, 99 times in 100 (Binary). ``"data-dependent"``: by the exact cost of these votes, query by
    query; ``"published"``: the same by the bound of PATE 2018. ``"by-voter"``: by each voter's own
    exact bill.

    Parameters
    ----------
    mechanism
        E.g. ``BinaryVoting(sigma=7.0)``; sigma is PATE's sigma_GNMax.
    votes
        (queries, voters, labels) array, ballots or path.
    epsilon, delta, rule
        The budget, for replacing one voter's ballots on all queries; as in `queries_for`.
    counts
        Some of `COUNTS`.
    baseline
        (queries, labels) public guess, for an allowance; zeros by default.
    """
    budget = Budget(epsilon=epsilon, delta=delta, rule=rule)
    ballots = Ballots.of(votes)
    mechanism.check(ballots)
    guess = check_baseline(baseline, ballots, mechanism)
    for name in counts:
        if name not in COUNTS:
            raise InputError("counts", f"must be among {', '.join(COUNTS)}", name)
    return {name: _COUNTERS[name](mechanism, ballots, budget, guess) for name in counts}


def surprises(mechanism: Mechanism, ballots: BallotSource, guess: Bools) -> tuple[Counts, Counts]:
    """Return the surprises of the busiest voter after each query (queries,), and of all (voters,).

    As if no allowance ever ended. ``guess`` is the baseline (queries, labels).
    """
    cast = np.zeros(ballots.voters, np.int64)
    most = [
        _running(mechanism, block, rows, cast) for block, rows in counted(mechanism, ballots, guess)
    ]
    return np.asarray(np.maximum.accumulate(np.concatenate(most))), cast


def counted(
    mechanism: Mechanism, ballots: BallotSource, guess: Bools, allowance: int = _PLENTY
) -> Iterator[tuple[Block, Bools]]:
    """Yield the ballots that count if every voter has this allowance for life, and the baseline."""
    left, start = np.full(ballots.voters, allowance, np.int64), 0
    for block in ballots.blocks():
        rows = guess[start : start + block.queries]
        start += block.queries
        counts, spent, _ = effective(
            block,
            rows,
            left,
            unit=mechanism.surprise_unit,
            silence_is_zeros=mechanism.silence_is_zeros,
        )
        left = left - spent
        yield counts, rows


def _running(mechanism: Mechanism, block: Block, guess: Bools, cast: Counts) -> Counts:
    """Add a block's surprises to ``cast``; return the most any voter has cast by then: (queries,).

    Of a sparse block only those who speak are looked at, so a later query may show less.
    """
    single = mechanism.surprise_unit == "vote"
    if isinstance(block, SparseBlock):
        size = block.votes.sum(axis=1)
        spoke = size > 0 if mechanism.silence_is_zeros else np.ones_like(size)
        counts = size if single else spoke.astype(np.int64)
        order = np.argsort(block.query, kind="stable")
        ends = np.searchsorted(block.query[order], np.arange(block.queries + 1))
        most = np.zeros(block.queries, np.int64)
        for row in range(block.queries):
            here = order[ends[row] : ends[row + 1]]
            cast[block.voter[here]] += counts[here]  # at most one ballot a voter and query
            most[row] = cast[block.voter[here]].max(initial=0)
        return most
    assert isinstance(block, DenseBlock)
    departs = block.votes != guess[:, None, :]
    running = cast + np.cumsum(departs.sum(axis=2) if single else departs.any(axis=2), axis=0)
    cast[:] = running[-1]
    return np.asarray(running.max(axis=1))


# -- one guarantee each ----------------------------------------------------------------------------


def _allowance(mechanism: Mechanism, ballots: BallotSource, budget: Budget, guess: Bools) -> int:
    size = ballots.voters, ballots.labels, budget.epsilon, budget.delta
    allowance = allowance_for(mechanism, *size, rule=budget.rule)
    if allowance < 1:  # not a single surprise: refused, however quiet the voters are
        return 0
    return int(np.searchsorted(surprises(mechanism, ballots, guess)[0], allowance, side="right"))


def _worst_case(mechanism: Mechanism, ballots: BallotSource, budget: Budget, _: Bools) -> int:
    each = mechanism.worst_case_rdp(ballots.voters, ballots.labels)
    return room(mechanism, each, budget, ballots.queries)


def _ptr(mechanism: Mechanism, ballots: BallotSource, budget: Budget, _: Bools) -> int | None:
    if Levels.of(mechanism, ballots) is None:
        return None

    def passes(queries: int) -> bool:
        head = ballots.head(queries)
        levels = Levels.of(mechanism, head)
        assert levels is not None
        try:
            proposal = propose(levels, check_orders(None), head, budget)
        except BudgetError:
            return False
        for block in head.blocks():
            levels.add(mechanism.tally(block))
        table = levels.costs(np.array([proposal.order]))[0]
        distance = ptr.distance(table, levels.histogram, proposal.threshold, levels.reach)
        return distance >= proposal.depth

    return _last(passes, ballots.queries)


def _data_dependent(
    mechanism: Mechanism, ballots: BallotSource, budget: Budget, _: Bools, bound: str = "exact"
) -> int:
    orders = check_orders(None)
    total, answered = np.zeros(len(orders)), 0
    for block in ballots.blocks():
        for part in _parts(block):
            sums = total + np.cumsum(mechanism.cost(mechanism.tally(part), orders, bound), axis=0)
            fits = np.asarray(to_epsilon(sums, orders, budget.delta)) <= budget.epsilon
            if not fits.all():
                return answered + int(fits.argmin())
            total, answered = sums[-1], answered + len(sums)
    return answered


def _published(
    mechanism: Mechanism, ballots: BallotSource, budget: Budget, guess: Bools
) -> int | None:
    if "pate2018" not in mechanism.bounds:
        return None
    try:
        return _data_dependent(mechanism, ballots, budget, guess, "pate2018")
    except UnavailableError:  # it is proved for Gaussian noise
        return None


def _by_voter(mechanism: Mechanism, ballots: BallotSource, budget: Budget, guess: Bools) -> int:
    def fits(queries: int) -> bool:
        return by_voter(mechanism, ballots.head(queries), budget.delta).epsilon <= budget.epsilon

    # Nobody's bill is above the sum of exact costs.
    return _last(fits, ballots.queries, _data_dependent(mechanism, ballots, budget, guess))


_COUNTERS: dict[str, Callable[[Mechanism, BallotSource, Budget, Bools], int | None]] = {
    "allowance": _allowance,
    "worst-case": _worst_case,
    "ptr": _ptr,
    "data-dependent": _data_dependent,
    "published": _published,
    "by-voter": _by_voter,
}


def _last(fits: Callable[[int], bool], most: int, known: int = 0) -> int:
    """Return the last of ``known``..most that fits; steps from ``known`` double, then halve."""
    low, high, step = known, most + 1, max(1, known // 16)
    while high - low > 1:
        middle = min(low + step, high - 1) if high > most else (low + high) // 2
        if fits(middle):
            low, step = middle, 2 * step
        else:
            high = middle
    return low


def _parts(block: Block) -> Iterator[Block]:
    """Yield a dense block in small runs of queries; a sparse one as it is."""
    if not isinstance(block, DenseBlock):
        yield block
        return
    for start in range(0, block.queries, _STEP):
        rows = block.votes[start : start + _STEP]
        yield DenseBlock(rows, missing=block.missing, start=block.start + start)

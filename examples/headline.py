"""Headline numbers: how many real queries the same budget answers, by guarantee and accountant.

Votes: tmc2007, 50 teachers, 22 labels, 4,000 queries, embedded; epsilon=20,
delta=1e-5. A data-dependent count is for comparing accountants: in use the number of queries is
fixed before looking. All guarantees in one table, for more voters too:
benchmarks/bench_guarantees.py.

Run: python examples/headline.py
"""

import sys
from collections.abc import Callable

import numpy as np

import privote as pv
from privote.datasets import load_teacher_votes
from privote.planning import queries_for

EPSILON, DELTA = 20.0, 1e-5
ENOUGH = 1500  # no accountant below gets so far


def last(fits: Callable[[int], bool], top: int) -> int:
    """Return the largest m in 0..top that fits, if all smaller ones do."""
    low, high = 0, top
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def data_dependent(mechanism: pv.Mechanism, votes: np.ndarray, bound: str) -> int:
    """Return how many of the first queries fit, each priced on its own; reads only what it must."""
    spent, count, step = 0.0, 0, 100
    for start in range(0, len(votes), step):
        total = spent + np.cumsum(mechanism.rdp(votes[start : start + step], bound=bound), axis=0)
        fit = last(lambda m, t=total: pv.epsilon(t[m - 1], None, DELTA) <= EPSILON, len(total))
        spent, count = total[-1], count + fit
        if fit < len(total):
            break
    return count


def by_voter(mechanism: pv.Mechanism, votes: np.ndarray) -> int:
    """Return how many of the first queries fit, by the largest of the voters' own bills."""
    return last(lambda m: pv.bills(mechanism, votes[:m], DELTA).max() <= EPSILON, ENOUGH)


def losses(votes: np.ndarray, sigma: float, queries: int) -> str:
    """Return what a release keeps sealed: the exact cost of the batch by both accountants."""
    sealed = pv.label(
        votes,
        mechanism=pv.BinaryVoting(sigma=sigma),
        epsilon=EPSILON,
        delta=DELTA,
        guarantee="data-dependent",
        queries=queries,
    ).sealed
    return f"{sealed.epsilon_rdp:.2f} by rdp, {sealed.epsilon_pld:.2f} by pld"


def worst_case(mechanism: pv.Mechanism, votes: np.ndarray) -> int:
    """Return how many queries plain composition of the worst case allows."""
    return queries_for(mechanism, *votes.shape[1:], EPSILON, DELTA)


def allowance(mechanism: pv.Mechanism, votes: np.ndarray) -> tuple[int, int]:
    """Return the allowance, and how many queries pass before the first voter runs out."""
    electorate = pv.Electorate(
        mechanism=mechanism,
        voters=votes.shape[1],
        labels=votes.shape[2],
        epsilon=EPSILON,
        delta=DELTA,
    )
    contributions = np.cumsum(votes.sum(axis=2), axis=0).max(axis=1)
    return int(electorate.allowance), int((contributions <= electorate.allowance).sum())


def main() -> int:
    votes = load_teacher_votes().votes
    print(f"tmc2007: {votes.shape[0]} queries, {votes.shape[1]} voters, {votes.shape[2]} labels")
    print(f"Queries answered at epsilon={EPSILON:g}, delta={DELTA:g}, Binary voting:")
    print("                 data-dependent                  unconditional")
    print("  sigma   pate2018  exact  by voter   worst-case  allowance, first voter out")
    for sigma in (4, 7, 9, 12, 20):
        mechanism = pv.BinaryVoting(sigma=sigma)
        most, first_out = allowance(mechanism, votes)
        print(
            f"  {sigma:5d}   {data_dependent(mechanism, votes, 'pate2018'):8d}"
            f"  {data_dependent(mechanism, votes, 'exact'):5d}"
            f"  {by_voter(mechanism, votes):8d}   {worst_case(mechanism, votes):10d}"
            f"  {first_out:9d}  (V = {most})"
        )
    print(f"Sigma 7, 564 queries, the costliest voter: epsilon {losses(votes, 7.0, 564)}")
    print("Powerset voting on the first k labels, data-dependent:")
    for labels, sigma in ((5, 7), (11, 4), (20, 2)):
        some, mechanism = votes[:, :, :labels], pv.PowersetVoting(sigma=sigma)
        old, new = (data_dependent(mechanism, some, bound) for bound in ("pate2018", "exact"))
        print(f"  k={labels:2d} sigma={sigma}: pate2018 {old}, exact {new} ({new / old:.2f}x)")
    return 0


if __name__ == "__main__":
    sys.exit(main())

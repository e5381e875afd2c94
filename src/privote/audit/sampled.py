"""Sampled audit: draw real releases and bound epsilon from below by counting."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from ..accounting.renyi import Orders, check_delta, check_orders, epsilon, rounded_up
from ..errors import InputError, numbers, whole
from ..mechanisms import Mechanism

Ints = npt.NDArray[np.int64]

_CELLS = 1 << 24  # votes drawn from at a time


@dataclass(frozen=True)
class SampledReport:
    """What a sampled audit saw.

    Attributes
    ----------
    lower_bound
        With probability ``confidence`` the true epsilon at ``delta`` is at least this.
    stated
        The epsilon that the mechanism states for these votes.
    event
        The released label vectors that tell the two elections apart best.
    """

    mechanism: str
    draws: int
    delta: float
    confidence: float
    lower_bound: float
    stated: float
    event: tuple[tuple[int, ...], ...]

    @property
    def ok(self) -> bool:
        """True if the samples do not contradict the stated epsilon."""
        return self.lower_bound <= self.stated

    def summary(self) -> str:
        """Return the findings in one line."""
        return (
            f"{'ok' if self.ok else 'BROKEN'}: {self.mechanism}: epsilon >= "
            f"{self.lower_bound:.4f} ({100 * self.confidence:g} % confidence, {self.draws} draws "
            f"per side), stated {self.stated:.4f} at delta={rounded_up(self.delta)}"
        )


def sampled(
    mechanism: Mechanism,
    votes: npt.ArrayLike,
    neighbour_votes: npt.ArrayLike,
    *,
    draws: int = 200_000,
    delta: float = 1e-5,
    confidence: float = 0.95,
    orders: Orders | None = None,
    stated: float | None = None,
    seed: int | None = None,
) -> SampledReport:
    """Bound epsilon from below with draws of ``mechanism.release`` on two neighbouring elections.

    Half of the draws choose an event for each direction, the other half count it: a lower
    Clopper-Pearson limit on its probability in one election, an upper one in the other.

    Parameters
    ----------
    votes, neighbour_votes
        (queries, voters, labels), alike but for one voter.
    draws
        Releases of all queries, for each of the two elections.
    stated
        The epsilon to audit; by default what ``rdp_by_voter`` states for ``votes``.
    seed
        ``None`` draws from the secure source, as a real release does.
    """
    for name, cast in (("votes", votes), ("neighbour_votes", neighbour_votes)):
        numbers(name, cast)
    here, there = np.asarray(votes), np.asarray(neighbour_votes)
    if here.shape != there.shape or here.ndim != 3:
        rule = "votes and neighbour_votes must have the same shape (queries, voters, labels)"
        raise InputError(f"{rule}; got {here.shape} and {there.shape}")
    if len(np.unique(np.nonzero(here != there)[1])) > 1:
        raise InputError("votes and neighbour_votes must differ only in one voter's ballots")
    if not isinstance(mechanism, Mechanism):
        raise InputError("mechanism", "must be a privote mechanism", mechanism)
    whole("draws", draws, 2)
    if not 0 < confidence < 1:
        raise InputError("confidence", f"must lie strictly between 0 and 1, got {confidence}")
    check_delta(delta)
    if stated is None:
        curve = check_orders(orders)
        bill = mechanism.rdp_by_voter(here, curve).max(axis=(0, 1))
        stated = float(np.max(epsilon(bill, curve, delta)))
    counts, outcomes = _count(mechanism, (here, there), draws, seed)
    # Two directions, two limits each.
    risk = (1 - confidence) / 4
    best, event = 0.0, np.zeros(len(outcomes), np.bool_)
    for first, second in ((0, 1), (1, 0)):
        chosen = _choose(counts[first, 0], counts[second, 0], delta)
        size = draws - draws // 2
        low = _lower(int(counts[first, 1][chosen].sum()), size, risk) - delta
        high = 1 - _lower(size - int(counts[second, 1][chosen].sum()), size, risk)
        bound = math.log(low / high) if low > 0 else 0.0
        if bound > best:
            best, event = bound, chosen
    names = tuple(tuple(int(v) for v in row) for row in outcomes[event])
    return SampledReport(str(mechanism), draws, delta, confidence, best, stated, names)


def _count(
    mechanism: Mechanism, worlds: tuple[npt.NDArray[Any], ...], draws: int, seed: int | None
) -> tuple[Ints, npt.NDArray[np.int8]]:
    """Return (worlds, halves, outcomes) counts and the (outcomes, queries * labels) released."""
    drawn = [_draw(mechanism, votes, draws, seed, i) for i, votes in enumerate(worlds)]
    outcomes, which = np.unique(np.concatenate(drawn), axis=0, return_inverse=True)
    counts = np.zeros((len(worlds), 2, len(outcomes)), np.int64)
    for world, rows in enumerate(np.split(which.reshape(-1), len(worlds))):
        for half, part in enumerate((rows[: draws // 2], rows[draws // 2 :])):
            counts[world, half] = np.bincount(part, minlength=len(outcomes))
    return counts, outcomes


def _draw(
    mechanism: Mechanism, votes: npt.NDArray[Any], draws: int, seed: int | None, world: int
) -> npt.NDArray[np.int8]:
    """Release the same votes many times, as many queries of few releases."""
    queries, _, labels = votes.shape
    step = max(1, _CELLS // votes.size)
    parts = []
    for number, start in enumerate(range(0, draws, step)):
        size = min(step, draws - start)
        # One seed for both worlds would make their noise alike, and the test too kind.
        draw_seed = seed
        if seed is not None:
            draw_seed = int(np.random.SeedSequence([seed, world, number]).generate_state(1)[0])
        labelled = mechanism.release(np.tile(votes, (size, 1, 1)), seed=draw_seed)
        parts.append(labelled.reshape(size, queries * labels))
    return np.concatenate(parts)


def _choose(one: Ints, two: Ints, delta: float) -> npt.NDArray[np.bool_]:
    """Return the set of outcomes that looks likeliest to show a large epsilon.

    Outcomes in the order of their ratio; of the sets of first outcomes, the one with the largest
    ratio after two standard deviations are given away on both sides.
    """
    total = one.sum()
    order = np.argsort(-(one + 0.5) / (two + 0.5), kind="stable")
    p, q = np.cumsum(one[order]) / total, np.cumsum(two[order]) / total
    p = p - 2 * np.sqrt(p / total) - delta
    q = q + 2 * np.sqrt(q / total) + 4 / total
    last = int(np.argmax(np.where(p > 0, p, 0.0) / q))
    chosen = np.zeros(len(one), np.bool_)
    chosen[order[: last + 1]] = True
    return chosen


def _lower(hits: int, draws: int, risk: float) -> float:
    """Return the lower Clopper-Pearson limit of a probability."""
    return 0.0 if hits == 0 else float(betaincinv(hits, draws - hits + 1, risk))

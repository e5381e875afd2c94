"""PATE 2018's own way to publish a data-dependent epsilon, kept to compare with.

Papernot et al. 2018, Appendix B, as their public analysis computes it for GNMax: Theorem 6's cost
at the order that suits these votes best, its smooth sensitivity, a noise tuned on the same votes,
and Theorem 23's price. None of it is a valid bound: Theorem 6 covers one direction, Theorem 23 is
too small near the end of its range, and numbers tuned on the votes must not leave ("the results
cannot be released", as their code says too). So every figure here is sealed.

On the embedded votes of 50 teachers: python benchmarks/sanitize2018.py [--sigma 7 --queries 204]
"""

from __future__ import annotations

import argparse
import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import erfc, erfcinv, log_ndtr

from privote.accounting.pate2018 import theorem6
from privote.accounting.renyi import Floats, check_delta
from privote.accounting.sanitize import largest_beta, published_cost_2018, release_cost
from privote.datasets import load_teacher_votes
from privote.errors import InputError, positive

#: The orders their analysis tries: 2, 2.5, ... 100, and a hundred more up to 500.
ORDERS: Floats = np.concatenate([np.arange(2, 100.5, 0.5), np.geomspace(100, 500, 100)])
ORDERS.setflags(write=False)


class Sanitized2018(NamedTuple):
    """Their figures: epsilon goes from ``before`` to ``after``, give or take ``deviation``."""

    before: float
    after: float
    deviation: float
    order: float
    beta: float
    sigma_s: float
    sensitivity: float
    price: float
    true_price: float


def sanitized(histogram: npt.ArrayLike, sigma: float, delta: float) -> Sanitized2018:
    """Return what PATE 2018's procedure says about Binary votes. Not a valid bound; sealed.

    Epsilon is converted by the formula of 2017, as there. ``true_price`` is what the same noise
    costs in truth (`accounting.sanitize.release_cost`), infinite where it has no finite cost.

    Parameters
    ----------
    histogram
        (voters + 1,): how many cells have 0, 1, ... yes-votes; no vote is missing.
    sigma
        PATE's sigma_GNMax: noise on both counts of a label.
    """
    cells, sigma, delta = np.asarray(histogram), positive("sigma", sigma), check_delta(delta)
    if cells.ndim != 1 or len(cells) < 2 or cells.dtype.kind not in "iu" or not cells.any():
        raise InputError(
            "histogram", f"must count cells by yes-votes, got shape {cells.shape} of {cells.dtype}"
        )
    voters, seen = len(cells) - 1, np.flatnonzero(cells)
    log_q = log_ndtr(-np.abs(2 * seen - voters) / (math.sqrt(2) * sigma))
    totals = cells[seen] @ theorem6(log_q, sigma, ORDERS)
    place = int(np.argmin(totals - math.log(delta) / (ORDERS - 1)))
    order, cost = float(ORDERS[place]), float(totals[place])
    changes = np.zeros(voters)
    for count in seen:
        each = local_sensitivity([count, voters - count], voters, sigma, order)
        changes += cells[count] * each
    best = min(_tries(changes, order))
    _, price, beta, sigma_s, sensitivity = best
    before = cost - math.log(delta) / (order - 1)
    finite = beta < largest_beta(order)
    return Sanitized2018(
        before=before,
        after=before + price,
        deviation=sensitivity * sigma_s,
        order=order,
        beta=beta,
        sigma_s=sigma_s,
        sensitivity=sensitivity,
        price=price,
        true_price=release_cost(order, beta, sigma_s) if finite else math.inf,
    )


def _tries(changes: Floats, order: float) -> list[tuple[float, float, float, float, float]]:
    """Return, for their choices of beta: price + two deviations, then price and what made it."""
    made = []
    for beta in np.arange(0.3 / order, 0.495 / order, 0.01 / order).tolist():
        sensitivity = float((changes * np.exp(-beta * np.arange(len(changes)))).max())
        # The noise that makes order e^(2 beta)/sigma_s^2 + 2 S sigma_s smallest.
        sigma_s = (order * math.exp(2 * beta) / max(sensitivity, 1e-300)) ** (1 / 3)
        price = published_cost_2018(order, beta, sigma_s)
        made.append((price + 2 * sensitivity * sigma_s, price, beta, sigma_s, sensitivity))
    return made


def _open_price(minus_log_q: float, sigma: float, order: float) -> float:
    """Return Theorem 6's bound for one query, without its cap and conditions."""
    mu2 = sigma * math.sqrt(minus_log_q)
    cost1, cost2 = (mu2 + 1) / sigma**2, mu2 / sigma**2
    log_1q = math.log1p(-math.exp(-minus_log_q))
    log_a = log_1q - math.log1p(-math.exp((cost2 - minus_log_q) * (1 - 1 / mu2)))
    log_b = cost1 + minus_log_q / mu2
    return float(
        np.logaddexp(log_1q + (order - 1) * log_a, (order - 1) * log_b - minus_log_q) / (order - 1)
    )


def crossover(sigma: float, order: float) -> float:
    """Return -log q0: with less certainty than this Theorem 6 has no effect.

    Raises ``ValueError`` where it never has any.
    """
    grid = np.geomspace(1e-2, 5e3, 4000)
    cap = order / sigma**2
    helps = theorem6(-grid, sigma, np.array([order]))[:, 0] < cap
    if not helps.any():
        raise ValueError(f"Theorem 6 never helps at sigma={sigma:g}, order={order:g}")
    first = int(np.argmax(helps))
    low, high = float(grid[max(first - 1, 0)]), float(grid[first])
    for _ in range(60):
        middle = (low + high) / 2
        price = theorem6(np.array(-middle), sigma, np.array([order]))[0]
        low, high = (low, middle) if price < cap else (middle, high)
    return high


def local_sensitivity(counts: npt.ArrayLike, voters: int, sigma: float, order: float) -> Floats:
    """Return PATE 2018's bound on how much Theorem 6's cost can change, by distance: (voters,).

    Appendix B.4, Algorithms 3 to 5: with q the chance of another outcome than the likeliest, one
    vote moves q at most to B_U(q) or B_L(q); between B_L(q0) and q0 the sensitivity is at its
    plateau, and d votes are spent on walking there.
    """
    tally = np.sort(np.asarray(counts, np.float64))[::-1]
    others, cap = len(tally) - 1, order / sigma**2
    # Where the bound is known to hold; then where it meets the cap.
    certain = max((1 + 1 / sigma) ** 2, ((order - 0.99) / sigma) ** 2, 1 / sigma**2)
    edge = certain
    if _open_price(certain, sigma, order) > cap:
        far = 2 * certain
        while _open_price(far, sigma, order) > cap:
            far *= 1.5
        edge = float(brentq(lambda x: _open_price(x, sigma, order) - cap, certain, far))

    def price(q: float) -> float:
        # q0 itself, however rounded on the way back from B_L(q0), costs the cap.
        at_cap = q >= math.exp(-edge) * (1 - 1e-9)
        return cap if at_cap else _open_price(-math.log(q), sigma, order)

    def moved(q: float, votes: int) -> float:
        return float(min(1.0, others / 2 * erfc(erfcinv(2 * q / others) - votes / sigma)))

    def failing(at: Floats) -> float:
        return float(erfc((at[0] - at[1:]) / (2 * sigma)).sum() / 2)

    top = math.exp(-edge)
    plateau_from = moved(top, -1)

    def change(q: float) -> float:
        q = plateau_from if plateau_from <= q <= top else q
        here = price(q)
        return max(price(moved(q, 1)) - here, here - price(moved(q, -1)))

    result = np.full(voters, change(plateau_from))
    q = failing(tally)
    if plateau_from <= q <= top:
        return result
    outwards = q > top  # towards more agreement; else towards less
    result[0] = change(q)
    for distance in range(1, voters):
        if (q <= top or tally[1] <= 0) if outwards else q >= plateau_from:
            break
        step = 1 if outwards else -1
        tally[0], tally[1] = tally[0] + step, tally[1] - step
        tally[1:] = np.sort(tally[1:])[::-1]
        q = failing(tally)
        result[distance] = change(q)
    return result


def main() -> None:
    """Print the figures for the first queries of the embedded votes."""
    parser = argparse.ArgumentParser(description="PATE 2018's own sanitized figures: no bound.")
    parser.add_argument("--sigma", type=float, default=7.0)
    parser.add_argument("--queries", type=int, default=204)
    asked = parser.parse_args()
    votes = load_teacher_votes().votes[: asked.queries]
    counts = np.bincount(votes.sum(axis=1).ravel(), minlength=votes.shape[1] + 1)
    for name, value in sanitized(counts, asked.sigma, 1e-5)._asdict().items():
        print(f"{name:<14}{value:.6g}")


if __name__ == "__main__":
    main()

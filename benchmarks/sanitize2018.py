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
from scipy.special import log_ndtr

from privote.accounting.pate2018 import local_sensitivity, theorem6
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

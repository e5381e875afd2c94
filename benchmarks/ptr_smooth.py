"""Propose-test-release by the smooth sensitivity of the cost: a second test, to compare with.

The cost f of the batch is made noisy as if it were published (:mod:`privote.accounting.sanitize`),
and everything is released if the noisy number stays within the proposed bound F:

    pass if f + S sigma_s (Z + z_delta) <= F,      Z standard normal

If either neighbour costs at most F, the labels are (lambda, F)-close and the test follows from a
number that is (lambda, r)-close; if neither does, both pass with probability at most delta. So the
run is (epsilon, delta)-DP, with epsilon from F + r.

The distance test (:mod:`privote.accounting.ptr`) asks for less and answers more on every set of
votes tried here, so no release is made with this one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtri

from privote.accounting.renyi import Floats, Orders, check_orders, largest_curve, rounded_up
from privote.accounting.sanitize import (
    UNSURE,
    check_table,
    largest_beta,
    release_cost,
    smooth_sensitivity,
    statement_epsilon,
    z_value,
)
from privote.errors import InputError

_BETA_SHARES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
_SIGMAS = (0.25, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0)
_FINE = 10**6  # a made-up electorate has so many cells at every level


@dataclass(frozen=True, kw_only=True)
class SmoothProposal:
    """What is fixed before looking: all of it public. See :func:`pass_log_probs`."""

    order: float
    threshold: float
    beta: float
    sigma_s: float
    delta: float

    @property
    def price(self) -> float:
        """What the test itself costs at the order."""
        return release_cost(self.order, self.beta, self.sigma_s, self.delta)

    @property
    def epsilon(self) -> float:
        """The epsilon of the whole run, test included."""
        return statement_epsilon(self.threshold, self.price, self.order, self.delta)


def pass_log_probs(
    costs: npt.ArrayLike, histogram: npt.ArrayLike, proposal: SmoothProposal, reach: int = 1
) -> tuple[float, float]:
    """Return log Pr[fail], log Pr[pass] of these votes. Sealed.

    The run is (epsilon, delta)-DP with ``proposal.epsilon``. Let X, X' be neighbours. If either
    costs at most F, their labels are (order, F)-close, since costs are two-sided; the outcome of
    the test follows from a number that is (order, price)-close; together (order, F + price)-close.
    If both cost more, each passes with at most Pr[Z <= -z_delta] = delta, so any set of outcomes
    differs in probability by at most delta.

    Parameters
    ----------
    costs, histogram
        (levels,) cost of a cell, and number of cells, at each level, at ``proposal.order``.
    reach
        Levels that one ballot can move a cell by: 1 for counts, 2 for margins.
    """
    table, cells = check_table(costs, histogram)
    scale = proposal.sigma_s * smooth_sensitivity(table, cells, proposal.beta, reach)
    spare = proposal.threshold - float(cells @ table)
    if scale == 0.0:  # then no neighbour costs anything else
        return (-np.inf, 0.0) if spare >= 0 else (0.0, -np.inf)
    z = spare / scale - z_value(proposal.delta)
    return float(log_ndtr(-z)), float(log_ndtr(z))


def largest_queries(
    costs: npt.ArrayLike,
    orders: Orders,
    labels: int,
    budget: float,
    delta: float,
    *,
    unsure: float = UNSURE,
    pass_probability: float = 0.99,
    reach: int = 1,
) -> tuple[int, SmoothProposal]:
    """Return the most queries that a made-up electorate passes with, and what to propose for them.

    From public numbers alone: a share ``unsure`` of the cells has evenly spread counts, the others
    are unanimous, as for :func:`privote.accounting.ptr.largest_queries`.

    Parameters
    ----------
    costs
        (orders, levels) cost of a cell at each order and level.
    """
    orders, table = check_orders(orders), np.asarray(costs, np.float64)
    if table.ndim != 2 or len(table) != len(orders) or not (table >= 0).all():
        raise InputError(
            f"costs must be (orders, levels) for {len(orders)} orders, got shape {table.shape}"
        )
    most, best = -1.0, None
    margin = z_value(delta) + float(ndtri(pass_probability))
    for order, row in zip(orders.tolist(), table, strict=True):
        total = float(largest_curve(budget, np.array([order]), delta)[0]) * (1 - 1e-12)
        if total <= 0 or not np.isfinite(row).all():
            continue
        crowd = _made_up(row, unsure)
        each = float(crowd @ row) / crowd.sum()
        for share in _BETA_SHARES:
            beta = share * largest_beta(order)
            change = smooth_sensitivity(row, crowd, beta, reach) / crowd.sum()
            for sigma_s in _SIGMAS:
                threshold = total - release_cost(order, beta, sigma_s, delta)
                cells = threshold / max(each + change * sigma_s * margin, 1e-300)
                if threshold > 0 and cells > most:
                    most, best = cells, (order, threshold, beta, sigma_s)
    if best is None:
        raise InputError(
            f"no test fits in epsilon={rounded_up(budget)} at delta={rounded_up(delta)}: ask for "
            "more"
        )
    names = ("order", "threshold", "beta", "sigma_s")
    return int(min(most, 1e15)) // labels, SmoothProposal(
        **dict(zip(names, best, strict=True)), delta=delta
    )


def _made_up(row: Floats, unsure: float) -> npt.NDArray[np.int64]:
    """Return how many cells of a made-up electorate stand at each level."""
    crowd = np.full(len(row), round(_FINE * unsure), np.int64)
    crowd[0 if row[0] >= row[-1] else -1] += round(_FINE * len(row) * (1 - unsure))
    return crowd

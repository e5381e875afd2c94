"""How much a budget buys: the largest number of equal costs that fits, fixed before any vote.

Allowance (the theorem): a voter may cast at most V surprises in its life, and a ballot that needs
more than is left counts as the public baseline. On every history the changed voter's two effective
ballots then differ in at most V + V places, each costing at most g, the others nothing. The sum of
per-step costs is bounded on every history, which is a Rényi filter (Feldman and Zrnic 2021), so the
whole adaptive run costs at most 2 V g, however many queries are asked.
"""

from __future__ import annotations

import numpy as np

from .renyi import Floats, epsilon

MOST = 10**12  # a cost of zero buys no more than this
FACTOR = 2  # the true ballots' surprises and the replaced ones'


def largest_count(curve: Floats, orders: Floats, budget: float, delta: float) -> int:
    """Return the largest m with epsilon(m * curve) <= budget."""

    def fits(count: int) -> bool:
        return float(np.max(epsilon(count * curve, orders, delta))) <= budget

    if not fits(1):
        return 0
    high = 2
    while fits(high):
        if high >= MOST:
            return MOST
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low

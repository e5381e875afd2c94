"""Which Rényi orders settle a budget: so that slow mechanisms are not priced at all of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..accounting.allowance import largest_count
from ..accounting.renyi import Floats, best_order, check_orders
from ..accounting.renyi import epsilon as to_epsilon

Price = Callable[[Floats], Floats]  # from orders to the costs at them

_FIRST_STEP = 4  # from the expected best order to those it is compared with


def affordable_rate(budget: float, delta: float) -> float:
    """Return the largest rho such that a cost of rho * order, at all orders, fits the budget."""
    orders = check_orders(None)
    low, high = math.log(1e-15), math.log(1e6)
    for _ in range(40):
        middle = (low + high) / 2
        fits = float(np.max(to_epsilon(math.exp(middle) * orders, orders, delta))) <= budget
        low, high = (middle, high) if fits else (low, middle)
    return math.exp(low)


def orders_around(budget: float, delta: float, window: int) -> Floats:
    """Return the orders among which this budget is settled, whatever the mechanism.

    Costs here are close to rho * order, and for these the budget alone says which order is best;
    so many more are taken on either side. Leaving out orders can only overstate epsilon.
    """
    orders = check_orders(None)
    likely = best_order(affordable_rate(budget, delta) * orders, orders, delta)
    place = int(np.searchsorted(orders, likely))
    return orders[max(0, place - window) : place + window + 1]


class FewOrders:
    """Finds the order that settles a budget from a few of them, and starts there the next time.

    Epsilon has one valley over the orders. So an order that is better than both of its neighbours
    is the best of all, and the others need not be priced. Were it not, epsilon would be overstated,
    and never understated.
    """

    def __init__(self, epsilon: float, delta: float) -> None:
        self._budget, self._delta = epsilon, delta
        self._orders = check_orders(None)
        likely = best_order(affordable_rate(epsilon, delta) * self._orders, self._orders, delta)
        self._place, self._step = int(np.searchsorted(self._orders, likely)), _FIRST_STEP

    def largest(self, price: Price) -> int:
        """Return how many times ``price(orders)`` fits the budget."""

        def count(curve: Floats, few: Floats) -> int:
            return largest_count(curve, few, self._budget, self._delta)

        return count(*self._settled(price, count))

    def epsilon(self, price: Price, times: int) -> float:
        """Return the epsilon of so many times ``price(orders)``."""
        curve, few = self._settled(price, lambda *_: times)
        return float(np.max(to_epsilon(times * curve, few, self._delta)))

    def _settled(
        self, price: Price, times: Callable[[Floats, Floats], int]
    ) -> tuple[Floats, Floats]:
        """Return costs and orders among which is the best for so many times the price."""
        known: dict[int, float] = {}
        step, last = self._step, len(self._orders) - 1
        while True:
            near = {max(self._place - step, 0), self._place, min(self._place + step, last)}
            fresh = sorted(near - known.keys())
            if fresh:
                known |= dict(zip(fresh, price(self._orders[fresh]).tolist(), strict=True))
            places = sorted(known)
            few, curve = self._orders[places], np.array([known[i] for i in places])
            best = best_order(max(times(curve, few), 1) * curve, few, self._delta)
            place = places[int(np.searchsorted(few, best))]
            if place == self._place and step == 1:
                self._step = 1
                return curve, few
            step = step // 2 if place == self._place else 2 * step
            self._place = place

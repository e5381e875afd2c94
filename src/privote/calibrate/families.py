"""Which mechanisms a calibration tries: families that differ in their noise only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

from ..accounting.renyi import best_order, check_orders
from ..ballots import BallotSource
from ..errors import InputError, positive
from ..links import OptimalLink
from ..mechanisms import (
    MECHANISMS,
    BinaryVoting,
    Gate,
    Mechanism,
    PluralityVoting,
    PowersetVoting,
    TauVoting,
)
from ..mechanisms.cells import CellMechanism
from .orders import affordable_rate
from .sample import longest_ballot

_FINE, _COARSE = 1.25, 1.6  # from one sigma to the next; coarse where each takes seconds
_ORDER_STEPS = (0.8, 1.0, 1.25, 1.6)  # a link's order, relative to where the budget is settled
_TAUS = 6
_LEAST_TAU = 0.7
# Of the voters; a label's larger side is at least half of them, a class's may be anything.
_CELL_BARS, _CLASS_BARS = (0.6, 0.7, 0.8, 0.9), (0.3, 0.5, 0.7)
_GATE_NOISE = (1.0, 2.0)  # relative to sigma
_GOES_WITH = {"quotas": "binary", "taus": "tau", "norms": "tau", "max_positives": "powerset"}


@dataclass(frozen=True, kw_only=True)
class Family:
    """Mechanisms that count ballots alike and differ in sigma.

    Attributes
    ----------
    counting
        One of them, without a gate: it stands for how ballots are counted.
    make
        From sigma to the mechanism. A link has no sigma: it takes the cost per vote that Gaussian
        noise of this sigma has at the bar.
    gated
        Whether there is a gate.
    """

    counting: Mechanism
    make: Callable[[float], Mechanism]
    gated: bool = False


def neat(value: float) -> float:
    """Return the value to four digits: what is tried is what is printed."""
    return float(f"{value:.4g}")


@dataclass(frozen=True, kw_only=True)
class Space:
    """Where to search: a mechanism by its name, and what of it is free.

    Attributes
    ----------
    sigmas
        The sigmas to try; None for a logarithmic grid.
    link
        Binary: try optimal links as well as Gaussian noise; not with a bar of its own.
    quotas
        Binary: bars to try, as shares of the voters; None for one half.
    taus, norms
        Tau: bounds and norms; None for bounds up to the longest ballot, and for both norms.
    max_positives
        Powerset: as in :class:`privote.PowersetVoting`.
    """

    mechanism: str
    sigmas: tuple[float, ...] | None = None
    link: bool = True
    quotas: tuple[float, ...] | None = None
    taus: tuple[float, ...] | None = None
    norms: tuple[int, ...] | None = None
    max_positives: int | None = None

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            known = ", ".join(MECHANISMS)
            raise InputError(f"mechanism must be one of {known}, got {self.mechanism!r}")
        for name, owner in _GOES_WITH.items():
            if getattr(self, name) is not None and owner != self.mechanism:
                raise InputError(
                    f"{name} goes with mechanism {owner!r}, not with {self.mechanism!r}"
                )

    def families(self, ballots: BallotSource, epsilon: float, delta: float) -> list[Family]:
        """Return the families to try, without gates."""
        if self.mechanism == "binary":
            bars = (None,) if self.quotas is None else self.quotas
            orders = link_orders(epsilon, delta) if self.link and self.quotas is None else ()
            return [_gaussian(bar) for bar in bars] + [_linked(order) for order in orders]
        if self.mechanism == "tau":
            return [
                _clipped(tau, norm)
                for norm in self.norms or (2, 1)
                for tau in self.taus or _tau_grid(ballots, norm)
            ]
        if self.mechanism == "powerset":
            return [_powerset(self.max_positives)]
        return [
            Family(counting=PluralityVoting(sigma=1.0), make=lambda s: PluralityVoting(sigma=s))
        ]

    def grid(self, voters: int, epsilon: float, delta: float, *, coarse: bool) -> tuple[float, ...]:
        """Return the sigmas to try, in ascending order.

        By default from where the budget buys about one vote to where noise drowns all voters.
        """
        if self.sigmas is not None:
            return tuple(sorted(set(self.sigmas)))
        low = 0.5 / math.sqrt(affordable_rate(epsilon, delta))
        high = max(2.0 * voters, 4 * low)
        step = _COARSE if coarse else _FINE
        count = math.ceil(math.log(high / low) / math.log(step)) + 1
        return tuple(neat(s) for s in np.geomspace(low, high, count))


def several(name: str, values: Any) -> tuple[float, ...] | None:
    """Return one positive number, or several, as a tuple; None stays None."""
    if values is None:
        return None
    try:
        each = [values] if isinstance(values, Real) else list(values)
    except TypeError:
        each = []
    if not each:
        raise InputError(f"{name} must be a positive number or some of them, got {values!r}")
    return tuple(positive(name, value) for value in each)


def link_orders(epsilon: float, delta: float) -> tuple[float, ...]:
    """Return orders for an optimal link: around the one where this budget is settled."""
    orders = check_orders(None)
    likely = best_order(affordable_rate(epsilon, delta) * orders, orders, delta)
    return tuple(neat(1 + (likely - 1) * step) for step in _ORDER_STEPS)


def gates(family: Family, voters: int) -> list[Family]:
    """Return the family with gates: a bar T for each share of the voters, sigma_T by sigma."""
    bars = _CELL_BARS if isinstance(family.counting, CellMechanism) else _CLASS_BARS
    return [_gated(family, neat(share * voters), noise) for share in bars for noise in _GATE_NOISE]


def _gaussian(quota: float | None) -> Family:
    return Family(
        counting=BinaryVoting(sigma=1.0, quota=quota),
        make=lambda s: BinaryVoting(sigma=s, quota=quota),
    )


def _linked(order: float) -> Family:
    # At the bar a vote moves Pr[1] by 1/(sqrt(pi) sigma), which costs (2/pi) order / sigma^2.
    return Family(
        counting=BinaryVoting(sigma=1.0),
        make=lambda s: BinaryVoting(
            link=OptimalLink(cost=neat(2 / math.pi * order / s**2), order=order)
        ),
    )


def _clipped(tau: float, norm: int) -> Family:
    return Family(
        counting=TauVoting(sigma=1.0, tau=tau, norm=norm),
        make=lambda s: TauVoting(sigma=s, tau=tau, norm=norm),
    )


def _powerset(limit: int | None) -> Family:
    return Family(
        counting=PowersetVoting(sigma=1.0, max_positives=limit),
        make=lambda s: PowersetVoting(sigma=s, max_positives=limit),
    )


def _gated(family: Family, bar: float, noise: float) -> Family:
    def make(sigma: float) -> Mechanism:
        return replace(family.make(sigma), gate=Gate(threshold=bar, sigma=neat(noise * sigma)))

    return Family(counting=family.counting, make=make, gated=True)


def _tau_grid(ballots: BallotSource, norm: int) -> tuple[float, ...]:
    """Return bounds up to the norm of the longest ballot: beyond, nothing is clipped."""
    whole = float(max(longest_ballot(ballots), 1) ** (1 / norm))
    return tuple(neat(t) for t in np.geomspace(_LEAST_TAU, whole, _TAUS))

"""Rényi divergence between outcome distributions, the orders, and the way to (epsilon, delta).

The conversion is dp-accounting's (Canonne, Kamath and Steinke 2020, Proposition 12, through
``dp_accounting.rdp.compute_epsilon``); the 2017 formula (Mironov 2017, Proposition 3) is kept
under its own name, only to reproduce published figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, Context, Decimal
from numbers import Real

import numpy as np
import numpy.typing as npt

from ..errors import InputError, numbers

Floats = npt.NDArray[np.float64]
Orders = Sequence[float] | Floats

#: Rényi orders at which costs are computed: ``mechanism.rdp(votes, pv.DEFAULT_ORDERS)``. Dense
#: from 1.05 to 3, where large epsilons are settled; sparse up to 10,000, for epsilons near 0.01.
DEFAULT_ORDERS: Floats = np.concatenate(
    [
        np.arange(21, 60) / 20,  # 1.05, 1.10 ... 2.95
        np.arange(12, 24) / 4,  # 3.00, 3.25 ... 5.75
        np.arange(6, 16),
        [16, 18, 20, 24, 28, 32, 40, 48, 64, 80, 96, 128, 192, 256, 384, 512, 768],
        [1000, 1500, 2500, 5000, 10000],
    ]
).astype(np.float64)
DEFAULT_ORDERS.setflags(write=False)

#: An epsilon that was computed is multiplied by this, once, where it is computed and before it is
#: compared with a budget: floats may round it below its exact value, in the 10th digit or later.
UPWARDS = 1 + 1e-9

_SERIES_TERMS = 14  # of a series used for |x| <= 1/2: the next term is below 1e-16 of the sum


def check_orders(orders: Orders | None) -> Floats:
    """Return ``orders`` as a checked 1-D array; ``None`` means ``DEFAULT_ORDERS``."""
    if orders is None:
        return DEFAULT_ORDERS
    array: Floats = np.atleast_1d(numbers("orders", orders))
    if array.ndim != 1 or array.size == 0:
        raise InputError("orders", f"must be a non-empty 1-D sequence, got shape {array.shape}")
    if not (np.isfinite(array).all() and (array > 1).all()):
        bad = array[~(np.isfinite(array) & (array > 1))][0]
        raise InputError("orders", f"must be finite and above 1, got {bad}")
    return array


def _expm2(x: Floats, expm1: Floats) -> Floats:
    """Return e^x - 1 - x without cancellation, where e^x - 1 is known."""
    value = np.asarray(expm1 - x)
    near = np.nonzero(np.abs(x) <= 0.5)
    if near[0].size:
        small = x[near]
        tail = np.full_like(small, 1 / math.factorial(_SERIES_TERMS))
        for j in range(_SERIES_TERMS - 1, 1, -1):
            tail *= small
            tail += 1 / math.factorial(j)
        value[near] = small * small * tail
    return value


def _excess(ratio: Floats, order: Floats) -> Floats:
    """Return e^{ar} - 1 - a(e^r - 1) for log-ratio r and order a; inf where it overflows.

    This is Rényi's sum in the form of an f-divergence with a non-negative integrand, so a cost of
    1e-30 keeps its digits: nothing is lost in a sum that is almost 1.
    """
    scaled = np.asarray(order * ratio)
    high, low = np.asarray(np.expm1(scaled)), np.asarray(np.expm1(ratio))
    value = np.asarray(_expm2(scaled, high) - order * _expm2(ratio, low))
    if (ratio < -1.0).any():  # where x itself would be large, or infinite, and nothing cancels
        value = np.where(ratio < -1.0, high - order * low, value)
    # For |r| near 1e-161 the squares are subnormal, and their difference may round below 0.
    return np.maximum(value, 0.0)


def _log_sum_of_large(log_q: Floats, ratio: Floats, order: Floats) -> Floats:
    """Return log sum of q * excess over outcomes where e^{ar} overflows: all in logarithms."""
    small = _excess(np.minimum(ratio, 300.0 / order), order)
    # Beyond e^300 the other terms only matter through their ratio to e^{ar}.
    large = order * ratio + np.log1p(-order * np.exp(np.minimum((1 - order) * ratio, 0.0)))
    terms = np.where(order * ratio > 300.0, large, np.log(small))
    return np.asarray(np.logaddexp.reduce(log_q + terms, axis=-1))


def divergence(log_p: Floats, log_q: Floats, orders: Floats) -> Floats:
    """Return the Rényi divergence D_a(P || Q) for each order (Mironov 2017, Definition 3).

    Parameters
    ----------
    log_p, log_q
        Log-probabilities (..., outcomes), broadcast against each other. An outcome impossible
        under both (``-inf``) counts nothing.
    orders
        (orders,)

    Returns
    -------
    (..., orders)
    """
    return paired_divergence(log_p[..., None, :], log_q[..., None, :], orders)


def paired_divergence(log_p: Floats, log_q: Floats, orders: Floats) -> Floats:
    """Return D_a(P || Q) where each order has its own pair: (..., orders, outcomes) in."""
    order = orders[:, None]
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        ratio = np.asarray(log_p - log_q)
        # -inf minus -inf: impossible under both, counts nothing.
        ratio = np.where(np.isnan(ratio), 0.0, ratio)
        excess = (np.exp(log_q) * _excess(ratio, order)).sum(axis=-1)
        value = np.log1p(excess)
        far = np.nonzero(~np.isfinite(value) | (order * ratio > 600.0).any(axis=-1))
        if far[0].size:
            shape = (*value.shape, ratio.shape[-1])
            some_q, some_ratio = (np.broadcast_to(v, shape)[far] for v in (log_q, ratio))
            some_order = np.broadcast_to(orders, value.shape)[far][:, None]
            some_q = np.where(np.isneginf(some_q) & (some_ratio == 0.0), -np.inf, some_q)
            value[far] = np.logaddexp(0.0, _log_sum_of_large(some_q, some_ratio, some_order))
        value = np.where(np.isposinf(ratio).any(axis=-1), np.inf, value)
    return np.asarray(value / (orders - 1))


def two_sided(log_p: Floats, log_q: Floats, orders: Floats) -> Floats:
    """Return the larger of D_a(P || Q) and D_a(Q || P): (..., orders)."""
    return np.maximum(divergence(log_p, log_q, orders), divergence(log_q, log_p, orders))


def check_delta(delta: float) -> float:
    """Return ``delta`` if it is a probability strictly between 0 and 1."""
    # Compared before and after the cast: a fraction may round to 0 or 1.
    if not (isinstance(delta, Real) and 0 < delta < 1 and 0 < float(delta) < 1):
        raise InputError("delta", "must lie strictly between 0 and 1", delta)
    return float(delta)


def _check_curve(
    rdp: npt.ArrayLike, orders: Orders | None, *, one: bool = False
) -> tuple[Floats, Floats]:
    orders = check_orders(orders)
    curve = numbers("rdp", rdp)
    if one and curve.ndim != 1:  # a minimum over several would be the epsilon of the cheapest
        raise InputError("rdp", f"must be one curve (orders,), got shape {curve.shape}")
    if curve.ndim == 0 or curve.shape[-1] != len(orders):
        rule = f"must have one value per order on its last axis ({len(orders)})"
        raise InputError("rdp", f"{rule}, got shape {curve.shape}")
    if np.isnan(curve).any() or (curve < 0).any():
        raise InputError("rdp", "must not contain NaN or negative values")
    return curve, orders


def epsilon(rdp: npt.ArrayLike, orders: Orders | None, delta: float) -> float | Floats:
    """Convert a Rényi curve to epsilon with dp-accounting, rounded up by ``UPWARDS``.

    Parameters
    ----------
    rdp
        (orders,) or (..., orders): one curve, or many.
    orders
        (orders,), or ``None`` for ``DEFAULT_ORDERS``.
    delta
        Strictly between 0 and 1.

    Returns
    -------
    A float for one curve, an array of shape (...) for many.

    Examples
    --------
    >>> import privote as pv
    >>> curve = pv.BinaryVoting(sigma=7.0).worst_case_rdp(50, 20, pv.DEFAULT_ORDERS)
    >>> pv.epsilon(10 * curve, pv.DEFAULT_ORDERS, 1e-5) > 1  # of ten queries
    True
    """
    curve, orders = _check_curve(rdp, orders)
    delta = check_delta(delta)
    if curve.ndim == 1:
        return epsilon_at(curve, orders, delta)[0]
    flat = curve.reshape(-1, len(orders))
    return np.array([epsilon_at(row, orders, delta)[0] for row in flat]).reshape(curve.shape[:-1])


def rounded_up(value: float, digits: int = 6, *, places: int | None = None) -> str:
    """Return an epsilon, a delta or a cost as text that is never below it.

    Parameters
    ----------
    value
        What is said; rounded to the nearest it could be a promise that does not hold.
    digits
        How many digits count.
    places
        Digits after the point instead, with commas, as in a table; fewer than that are not cut off.
    """
    number = float(value)
    if not math.isfinite(number):
        return f"{number:g}"
    # The shortest decimal that is this float: 1e-5 stays 1e-05, though it is stored a little above.
    exact = Decimal(repr(number))
    if places is not None and (number == 0 or abs(number) >= 10.0**-places):
        step = Decimal(1).scaleb(-places)
        return f"{exact.quantize(step, ROUND_CEILING, Context(prec=400)):,f}"
    up = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(exact)
    return f"{float(up):.{digits}g}"


def best_order(rdp: npt.ArrayLike, orders: Orders | None, delta: float) -> float:
    """Return the order at which ``epsilon`` is attained."""
    curve, orders = _check_curve(rdp, orders, one=True)
    return epsilon_at(curve, orders, check_delta(delta))[1]


def epsilon_at(curve: Floats, orders: Floats, delta: float) -> tuple[float, float]:
    """Return the epsilon of one curve and the order it is attained at; nothing is checked again."""
    # Imported here: dp-accounting takes a second to load, and mechanisms do not need it.
    from dp_accounting.rdp import compute_epsilon

    finite = np.isfinite(curve)
    if not finite.any():
        return math.inf, float(orders[0])
    value, order = compute_epsilon(orders[finite], curve[finite], delta)
    return UPWARDS * float(value), float(order)


def largest_curve(budget: float, orders: Floats, delta: float) -> Floats:
    """Return how much a curve may cost at each order (orders,) and keep within an epsilon.

    The inverse of :func:`epsilon`, up to rounding: to be within at one order is enough.
    """
    # So little shifts the probability of any event by less than delta, at epsilon 0.
    free = -math.log1p(-(delta**2))
    limit = budget / UPWARDS - np.log1p(-1 / orders) + np.log(delta * orders) / (orders - 1)
    return np.where(orders > 1.01, np.maximum(limit, free), free)


def epsilon_2017(rdp: npt.ArrayLike, orders: Orders | None, delta: float) -> float:
    """Convert with the formula of 2017, ``min_a rdp(a) + log(1/delta)/(a-1)``.

    Looser than :func:`epsilon`; only to reproduce published figures (Mironov 2017, Prop. 3).

    Examples
    --------
    >>> import privote as pv
    >>> curve = pv.BinaryVoting(sigma=7.0).worst_case_rdp(50, 20, pv.DEFAULT_ORDERS)
    >>> bool(pv.epsilon_2017(curve, None, 1e-5) > pv.epsilon(curve, None, 1e-5))
    True
    """
    curve, orders = _check_curve(rdp, orders, one=True)
    return UPWARDS * float(np.min(curve - math.log(check_delta(delta)) / (orders - 1)))

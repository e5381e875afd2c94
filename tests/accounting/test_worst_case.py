"""Worst cases by search, against searches that leave nothing out."""

from __future__ import annotations

import numpy as np
import pytest

import privote as pv
from privote.accounting.renyi import divergence, two_sided
from privote.accounting.worst_case import _three_way, argmax_supremum
from privote.mechanisms.cells import costliest_move

ORDERS = np.array([1.05, 1.4, 4.3, 40.0])


@pytest.mark.parametrize(
    ("sigma", "voters", "shift", "gate"),
    [
        (2.0, 20, 2.0, None),
        (0.05, 40, 2.0, None),
        (500.0, 3, 0.3, None),
        # With a gate there are several humps, and the highest grid point may be on the wrong one.
        (4.303808374273923, 1, 0.2836484614888799, (-2.540058648816527, 226.48287095788274)),
        (1.7393523888282285, 286, 0.030012051518416606, (148.11960610031161, 0.9787016718018937)),
        (88.66932540953297, 1, 0.14347524795988734, (0.7378665790724277, 0.8864084112463264)),
        (7.0, 50, 2.0, (40.0, 3.0)),
        (7.0, 50, 2.0, (25.0, 0.2)),
        (7.0, 50, 1.0, (90.0, 5.0)),
    ],
)
def test_supremum_misses_nothing(
    sigma: float, voters: int, shift: float, gate: tuple[float, float] | None
) -> None:
    confidence = None if gate is None else pv.Gate(threshold=gate[0], sigma=gate[1])
    mech = pv.TauVoting(sigma=sigma, tau=1.0, gate=confidence)
    at = np.linspace(-voters, voters - shift, 60_001)
    if gate is not None:
        edges = [sign * (2 * gate[0] - voters) for sign in (-1, 1)]
        close = [
            e - off + gate[1] * np.linspace(-12, 12, 4001) for e in edges for off in (0, shift)
        ]
        at = np.clip(np.concatenate([at, *close]), -voters, voters - shift)
    true = np.zeros(len(ORDERS))
    for part in np.array_split(at, 8):
        here, there = mech.log_probs(part, voters), mech.log_probs(part + shift, voters)
        true = np.maximum(true, two_sided(here, there, ORDERS).max(axis=0))
    stated = costliest_move(mech, sigma, voters, shift, ORDERS)
    assert (stated >= true * (1 - 1e-12)).all()
    assert (stated <= true * (1 + 1e-3)).all()


@pytest.mark.parametrize("sigma", [0.1, 0.5, 2.0, 20.0])
def test_no_three_way_contest_costs_more_than_the_supremum(sigma: float) -> None:
    stated = argmax_supremum(sigma, ORDERS)
    assert (stated <= ORDERS / sigma**2 * (1 + 1e-12)).all()
    rng = np.random.default_rng(0)
    step = 1 / sigma
    for order, bound in zip(ORDERS, stated, strict=True):
        reach = 6 + 1.5 * min(order * step, 25)
        a, b = rng.uniform(-reach, reach, (2, 4000))
        here, there = _three_way(a, b), _three_way(a - step, b + step)
        cost = divergence(here, there, np.array([order])).max()
        assert cost <= bound
        if order * step < 25:  # beyond, the cap is stated
            assert cost >= 0.9 * bound, "and somebody comes close"

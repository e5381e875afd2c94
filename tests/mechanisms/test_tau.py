"""Tau: whole weights, and the costliest pair of ballots."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv
from privote.accounting.renyi import two_sided

ORDERS = np.array([1.5, 5.0, 32.0])


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("tau", [0.3, 1.0, 1.5])
def test_the_worst_case_covers_every_pair_of_ballots_at_real_tallies(norm: int, tau: float) -> None:
    """Each label at its dearest real tally, for all pairs of ballots: below what is stated."""
    voters, labels, sigma = 6, 4, 1.5
    mech = pv.TauVoting(sigma=sigma, tau=tau, norm=norm)
    weights = mech.weights(labels)

    def dearest(shift: float) -> np.ndarray:
        if shift == 0:
            return np.zeros(len(ORDERS))
        at = np.linspace(-voters, voters - 2 * shift, 4001)
        here, there = mech.log_probs(at, voters), mech.log_probs(at + 2 * shift, voters)
        return two_sided(here, there, ORDERS).max(axis=0)

    true = np.zeros(len(ORDERS))
    for s, t in itertools.product(range(labels + 1), repeat=2):
        for overlap in range(max(0, s + t - labels), min(s, t) + 1):
            cost = (
                (s - overlap) * dearest(weights[s])
                + (t - overlap) * dearest(weights[t])
                + overlap * dearest(abs(weights[s] - weights[t]))
            )
            true = np.maximum(true, cost)
    stated = mech.worst_case_rdp(voters, labels, ORDERS)
    assert (stated >= true * (1 - 1e-12)).all()
    assert (stated <= true * 1.1).all()


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("grid", [7, 64, 1000, 2**40])
def test_a_grid_rounds_weights_down_and_never_exceeds_the_norm(norm: int, grid: int) -> None:
    for tau in (0.7, 1.0, 1.8, 2.0, 3.0):
        whole = pv.TauVoting(sigma=1.0, tau=tau, norm=norm, grid=grid).grid_weights(4)
        real = pv.TauVoting(sigma=1.0, tau=tau, norm=norm).weights(4)
        np.testing.assert_array_less(real * grid - whole, 1 + 1e-9 * grid)
        for size, weight in enumerate(whole.tolist()):
            # In whole numbers and fractions: the bound holds without a rounding error.
            assert size * weight**norm <= (Fraction(tau) * grid) ** norm
            assert weight <= grid
        rounded = pv.TauVoting(sigma=1.0, tau=tau, norm=norm, grid=grid).weights(4)
        assert np.array_equal(rounded, whole / grid)


def test_grids_that_make_no_sense_are_refused() -> None:
    for bad in (0, 2.5, True):
        with refused("grid"):
            pv.TauVoting(sigma=1.0, tau=1.0, grid=bad)  # type: ignore[arg-type]
    with refused("grid"):
        pv.TauVoting(sigma=1.0, tau=1.0, grid=1).weights(2)
    with refused("grid"):
        pv.TauVoting(sigma=1.0, tau=1.0).grid_weights(2)

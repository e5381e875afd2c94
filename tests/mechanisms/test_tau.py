"""Tau: clipping, the ends of the range, and the costliest pair of ballots."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv
from privote.accounting.renyi import two_sided
from privote.votes import bits
from privote.votes.cube import DenseBlock

ORDERS = np.array([1.5, 5.0, 32.0])


def test_weights_by_hand() -> None:
    l2 = pv.TauVoting(sigma=1.0, tau=1.8).weights(5)
    np.testing.assert_allclose(l2, [0, 1, 1, 1, 0.9, 1.8 / 5**0.5])
    l1 = pv.TauVoting(sigma=1.0, tau=1.8, norm=1).weights(5)
    np.testing.assert_allclose(l1, [0, 1, 0.9, 0.6, 0.45, 0.36])


def test_no_clipping_is_binary() -> None:
    rng = np.random.default_rng(0)
    votes = rng.random((5, 7, 3)) < 0.5
    for gate in (None, pv.Gate(threshold=5, sigma=1.0)):
        tau = pv.TauVoting(sigma=2.0, tau=9.0, gate=gate)
        binary = pv.BinaryVoting(sigma=2.0, gate=gate)
        np.testing.assert_allclose(
            tau.rdp_by_voter(votes, ORDERS), binary.rdp_by_voter(votes, ORDERS), rtol=1e-9
        )
        np.testing.assert_allclose(
            tau.outcome_probabilities(votes), binary.outcome_probabilities(votes), rtol=1e-12
        )
        assert np.array_equal(tau.release(votes, seed=3), binary.release(votes, seed=3))


@pytest.mark.parametrize(("voters", "ones"), [(1, 1), (5, 1), (5, 5), (50, 1), (50, 50)], ids=str)
def test_clipped_moves_near_the_ends_are_priced(voters: int, ones: int) -> None:
    """Where a whole vote would leave the range a clipped one does not: it is not free."""
    votes = np.zeros((1, voters, 4), bool)
    votes[0, :ones] = True
    for norm in (1, 2):
        mech = pv.TauVoting(sigma=1.0, tau=1.0, norm=norm)
        true = mech.rdp_by_voter(votes, ORDERS).max(axis=(0, 1))
        assert (mech.rdp(votes, ORDERS)[0] >= true * (1 - 1e-12)).all()
        assert (true > 0).any()


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


def test_many_labels_round_up_and_never_down() -> None:
    few, many = (
        pv.TauVoting(sigma=3.0, tau=1.3).worst_case_rdp(40, labels, ORDERS) for labels in (64, 80)
    )
    assert (many >= few * (1 - 1e-9)).all()
    assert (many <= few * 1.35).all()


def test_refusals() -> None:
    with refused("norm", value=3):
        pv.TauVoting(sigma=1.0, tau=1.0, norm=3)
    with refused("tau"):
        pv.TauVoting(sigma=1.0, tau=0.0)


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


def test_a_grid_changes_nothing_where_weights_lie_on_it() -> None:
    rng = np.random.default_rng(3)
    votes = rng.random((5, 6, 4)) < 0.4
    plain = pv.TauVoting(sigma=2.0, tau=4.0, norm=1)
    gridded = pv.TauVoting(sigma=2.0, tau=4.0, norm=1, grid=4)
    assert np.array_equal(plain.rdp(votes, ORDERS), gridded.rdp(votes, ORDERS))
    assert plain.parameters().get("grid") is None
    assert gridded.parameters()["grid"] == 4
    assert "grid=4" in str(gridded)
    assert "grid" not in str(plain)


def test_a_coarse_grid_costs_no_more() -> None:
    for labels in (2, 5):
        real = pv.TauVoting(sigma=2.0, tau=1.2).worst_case_rdp(9, labels, ORDERS)
        for grid in (3, 20, 1000):
            mech = pv.TauVoting(sigma=2.0, tau=1.2, grid=grid)
            assert (mech.worst_case_rdp(9, labels, ORDERS) <= real * (1 + 1e-6)).all()


def test_grids_that_make_no_sense_are_refused() -> None:
    for bad in (0, 2.5, True):
        with refused("grid"):
            pv.TauVoting(sigma=1.0, tau=1.0, grid=bad)  # type: ignore[arg-type]
    with refused("grid"):
        pv.TauVoting(sigma=1.0, tau=1.0, grid=1).weights(2)
    with refused("grid"):
        pv.TauVoting(sigma=1.0, tau=1.0).grid_weights(2)


@pytest.mark.parametrize(
    ("shape", "piece"),
    [
        *itertools.product(
            [(1, 1, 1), (5, 7, 3), (3, 2, 40), (4, 0, 3), (3, 300, 5), (2, 9, 100)], [40, 1 << 19]
        ),
        ((2, 600, 700), 1 << 19),
    ],
)
def test_a_ballot_counts_by_its_size_whatever_the_order(
    shape: tuple[int, int, int], piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bits, "_PIECE", piece)
    votes = np.random.default_rng(0).random(shape) < 0.3
    weights = pv.TauVoting(sigma=1.0, tau=1.3).weights(shape[2])
    tally = DenseBlock(votes, missing=False).weighted(weights)
    by_hand = (votes * weights[votes.sum(axis=2)][:, :, None]).sum(axis=1)
    np.testing.assert_allclose(tally, by_hand, atol=1e-12)
    by_size = np.zeros(tally.shape)
    for size in range(shape[2] + 1):  # to the last bit: sizes in order, counts before weights
        by_size += weights[size] * (votes & (votes.sum(axis=2) == size)[:, :, None]).sum(axis=1)
    np.testing.assert_array_equal(tally, by_size)
    turned = DenseBlock(votes[:, ::-1], missing=False).weighted(weights)
    np.testing.assert_array_equal(tally, turned)

"""The guardian's noise is the mechanism's own distribution, in both tails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import chisquare

import privote as pv
from privote.accounting.renyi import divergence
from privote.capc.noise import _search, counted, gate_noise, vote_noise
from privote.entropy import Entropy

GATE = pv.Gate(threshold=4.2, sigma=1.1)
CASES: dict[str, tuple[Any, int]] = {
    "sigma 0.1, one voter": (pv.BinaryVoting(sigma=0.1), 1),
    "sigma 2": (pv.BinaryVoting(sigma=2.0), 7),
    "sigma 7, even": (pv.BinaryVoting(sigma=7.0), 50),
    "sigma 7, a chance of 1e-140": (pv.BinaryVoting(sigma=7.0), 255),
    "sigma 5, a chance of 1e-300": (pv.BinaryVoting(sigma=5.0), 262),
    "sigma 0.1, many": (pv.BinaryVoting(sigma=0.1), 40),
    "sigma 40, ten thousand": (pv.BinaryVoting(sigma=40.0), 10_000),
    "sigma ten thousand": (pv.BinaryVoting(sigma=1e4), 10_000),
    "quota": (pv.BinaryVoting(sigma=2.0, quota=0.3), 9),
    "false alarm": (pv.BinaryVoting(sigma=3.0, false_alarm=1e-4), 9),
    "tau": (pv.TauVoting(sigma=2.0, tau=1.3, grid=16), 5),
    "tau, fine": (pv.TauVoting(sigma=0.3, tau=1.3, grid=1024), 4),
    "gate": (pv.BinaryVoting(sigma=2.0, gate=GATE), 7),
    "gate, tau": (pv.TauVoting(sigma=2.0, tau=1.3, grid=7, gate=GATE), 6),
    "sharp gate": (pv.BinaryVoting(sigma=2.0, gate=pv.Gate(threshold=30, sigma=0.8)), 20),
}


def grid_of(mechanism: Any) -> int:
    return getattr(mechanism, "grid", None) or 1


def cumulative(
    log_probs: Callable[[Any], npt.NDArray[np.float64]], margins: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Return Pr[T > m], Pr[T <= m] of the search, by where it turns: (margins, 2).

    In the lower half T <= m up to a place x and not from there on; the chance is that of a place
    below x. x is looked for between neighbouring floats around what it should be, and must turn
    there.
    """
    low, high = int(margins[0]), int(margins[-1])
    wanted = np.exp(log_probs(margins))
    turn = np.minimum(1.0, 2 * wanted)  # the place at which the half's answer turns
    found = np.empty_like(turn)
    for column, coin in ((1, True), (0, False)):
        bar = turn[:, column]
        inside = np.nextafter(bar, 0.0)
        halves = np.full((len(margins), 1), coin)
        just_below = _search(log_probs, low, high, halves, inside[:, None])[:, 0] <= margins
        at = np.minimum(bar, np.nextafter(1.0, 0.0))
        just_at = _search(log_probs, low, high, halves, at[:, None])[:, 0] <= margins
        met = bar > 0  # what underflows never happens
        assert (just_below == coin)[met].all()
        assert (just_at != coin)[met & (bar < 1)].all()
        found[:, column] = bar / 2
    # From each side, the half that turns; the other half is all or nothing.
    return np.where(wanted <= 0.5, found, 1 - found[:, ::-1])


@pytest.mark.parametrize("name", CASES)
def test_every_margin_has_the_links_own_probability(name: str) -> None:
    mechanism, voters = CASES[name]
    grid = grid_of(mechanism)
    # Beyond the legal margins, too: there a wrong input is to be another bar.
    margins = np.arange(-voters * grid - 50, voters * grid + 51)

    def vote(at: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        return replace(mechanism, gate=None).log_probs(at if grid == 1 else at / grid, voters)

    np.testing.assert_allclose(cumulative(vote, margins), np.exp(vote(margins)), rtol=1e-12)
    if mechanism.gate is not None:
        sizes = np.arange(-50, voters * grid + 51)

        def gate(at: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
            return mechanism.gate.log_probs((voters + at / grid) / 2)

        legal = np.arange(voters * grid + 1)
        np.testing.assert_array_equal(gate(legal), mechanism.gate_log_probs(legal / grid, voters))

        np.testing.assert_allclose(cumulative(gate, sizes), np.exp(gate(sizes)), rtol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_drawn_noise_decides_as_often_as_the_mechanism(name: str) -> None:
    mechanism, voters = CASES[name]
    grid = grid_of(mechanism)
    rows, entropy = 20_000, Entropy(5)
    noise = vote_noise(counted(mechanism, 3).vote, voters, (rows,), entropy, grid)
    gate = (
        gate_noise(mechanism.gate, voters, (rows,), entropy, grid)
        if mechanism.gate is not None
        else None
    )
    for margin in np.unique([-voters * grid, -(voters * grid % 2), voters * grid]):
        label = (margin + noise >= 0).astype(int)
        if gate is not None:
            label[~((margin + gate >= 0) | (gate - margin >= 0))] = 2
        expected = np.exp(
            mechanism.log_probs(np.array(margin if grid == 1 else margin / grid), voters)
        )
        hits = np.bincount(label, minlength=len(expected))
        likely = expected * rows >= 5
        assert hits[~likely].sum() <= 30
        if likely.sum() > 1:
            total = hits[likely].sum()
            wanted = expected[likely] / expected[likely].sum() * total
            assert chisquare(hits[likely], wanted).pvalue > 1e-4


@pytest.mark.parametrize("name", [name for name in CASES if "tau" not in name])
def test_a_margin_that_is_wrong_by_a_known_amount_costs_no_more_than_another_bar(name: str) -> None:
    """The release at m + s is the link there; a changed vote moves it by 2, wherever s puts it.

    A ballot of tau voting moves many labels: its cost is not a vote's.
    """
    mechanism, voters = CASES[name]
    link = replace(mechanism, gate=None)
    orders, bound = pv.DEFAULT_ORDERS, pv.DEFAULT_ORDERS / mechanism.sigma**2
    worst = np.zeros(len(orders))
    for shift in (-voters - 3, -2, -1, 0, 1, 2, 5 * voters + 7):
        margins = np.arange(-min(voters, 200), min(voters, 200) - 1) + shift
        here, there = link.log_probs(margins, voters), link.log_probs(margins + 2, voters)
        for one, two in ((here, there), (there, here)):
            worst = np.maximum(worst, divergence(one, two, orders).max(axis=0))
    assert np.isfinite(worst).all()
    assert (worst <= bound * (1 + 1e-9)).all()

"""Worst cases of electorates and ballots that nobody could list: still upper bounds, and soon."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv
from privote.audit.exact import row_probabilities
from privote.audit.reference import Textbook
from privote.capc.noise import counted, with_grid
from privote.planning import forecast

ORDERS = np.array([1.5, 4.0, 32.0, 512.0])


@pytest.mark.parametrize("bar", [{}, {"quota": 0.3}, {"false_alarm": 0.01}])
@pytest.mark.parametrize("sigma", [0.7, 7.0, 500.0])
def test_binary_costs_the_same_however_many_vote(bar: dict[str, float], sigma: float) -> None:
    mechanism = pv.BinaryVoting(sigma=sigma, **bar)
    many = mechanism.worst_case_rdp(10**5, 20, ORDERS)
    most = mechanism.worst_case_rdp(10**12, 20, ORDERS)
    np.testing.assert_allclose(most, many, rtol=1e-4)
    assert (most <= mechanism.worst_case_rdp(10**12, 20, ORDERS, bound="gaussian")).all()
    assert (most >= mechanism.worst_case_rdp(1999, 20, ORDERS) * (1 - 1e-12)).all()


def test_a_gate_among_very_many_voters_costs_what_needs_no_search() -> None:
    mechanism = pv.BinaryVoting(sigma=7.0, gate=pv.Gate(threshold=6e11, sigma=30.0))
    np.testing.assert_array_equal(
        mechanism.worst_case_rdp(10**12, 3, ORDERS),
        mechanism.worst_case_rdp(10**12, 3, ORDERS, bound="gaussian"),
    )
    clipped = pv.TauVoting(sigma=7.0, tau=1.5, gate=pv.Gate(threshold=6e11, sigma=30.0))
    np.testing.assert_array_equal(
        clipped.worst_case_rdp(10**12, 3, ORDERS),
        clipped.worst_case_rdp(10**12, 3, ORDERS, bound="gaussian"),
    )


@pytest.mark.parametrize("norm", [1, 2])
def test_ballots_of_very_many_labels_have_the_gaussian_bound(norm: int) -> None:
    clipped = pv.TauVoting(sigma=7.0, tau=1.8, norm=norm)
    many = clipped.worst_case_rdp(1000, 1001, ORDERS)
    assert (many >= clipped.worst_case_rdp(1000, 60, ORDERS)).all()
    np.testing.assert_array_equal(many, clipped.worst_case_rdp(10**12, 10**12, ORDERS))
    assert counted(with_grid(clipped, 64), 3).weights[:2] == (0, 64)
    with refused("grid"):
        with_grid(clipped, 8).worst_case_rdp(1000, 10**9, ORDERS)
    with refused("grid"):
        counted(clipped, 3)


@pytest.mark.parametrize(
    "mechanism",
    [
        pv.BinaryVoting(sigma=7.0),
        pv.BinaryVoting(sigma=7.0, quota=0.6),
        pv.BinaryVoting(sigma=7.0, gate=pv.Gate(threshold=8, sigma=3.0)),
        pv.TauVoting(sigma=7.0, tau=0.8),
        pv.TauVoting(sigma=7.0, tau=0.8, norm=1, grid=64),
        pv.PowersetVoting(sigma=2.0),
        pv.PowersetVoting(sigma=4.0, max_positives=2, gate=pv.Gate(threshold=8, sigma=3.0)),
        pv.PluralityVoting(sigma=6.0, gate=pv.Gate(threshold=8, sigma=3.0)),
    ],
    ids=str,
)
def test_a_label_that_all_want_is_released_as_often_as_all_outcomes_say(
    mechanism: pv.Mechanism,
) -> None:
    votes = np.zeros((1, 12, 5), np.bool_)
    votes[:, :, 0] = True
    rows = Textbook(mechanism, 12, 5).outcomes
    chances = row_probabilities(mechanism.outcome_probabilities(votes), rows) @ (rows == 1)
    hit = chances[0, 0]
    assert 1 - forecast(mechanism, 12, 5)["missed"] == pytest.approx(hit, rel=1e-12)
    with refused("voters", pv.UnavailableError):  # it lists the ballots
        forecast(mechanism, 10**12, 20)


def test_sets_are_counted_exactly_or_not_at_all() -> None:
    few = pv.PowersetVoting(sigma=2.0, max_positives=3)
    assert few.classes(10) == 1 + 10 + 45 + 120
    assert few.classes(10**12) == sum(math.comb(10**12, size) for size in range(4))
    assert pv.PowersetVoting(sigma=2.0, max_positives=70).classes(70) == 2**70
    for mechanism in (
        pv.PowersetVoting(sigma=2.0),
        pv.PowersetVoting(sigma=2.0, max_positives=10**6),
    ):
        with refused("labels"):
            mechanism.classes(10**9)

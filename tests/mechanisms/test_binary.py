"""Binary: bars, gates, missing votes, and the same costs by every path."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

import privote as pv
from privote.mechanisms import binary as room
from privote.mechanisms import cells

ORDERS = np.array([1.5, 2.0, 32.0])


def test_probabilities_of_a_gated_cell_by_hand() -> None:
    mech = pv.BinaryVoting(sigma=2.0, gate=pv.Gate(threshold=4, sigma=1.5))
    votes = np.zeros((1, 6, 1), bool)
    votes[0, :5] = True
    yes, answer = norm.cdf((5 - 1) / (2**0.5 * 2.0)), norm.cdf((5 - 4) / 1.5)
    expected = [answer * (1 - yes), answer * yes, 1 - answer]
    np.testing.assert_allclose(mech.outcome_probabilities(votes)[0, 0], expected, rtol=1e-12)


def test_a_missing_vote_counts_for_neither_side_unless_there_is_a_bar() -> None:
    votes = np.array([[[1], [1], [0], [-1], [-1]]], np.int8)
    plain = pv.BinaryVoting(sigma=2.0).outcome_probabilities(votes)[0, 0, 1]
    assert plain == pytest.approx(norm.cdf(1 / (2**0.5 * 2.0)))
    # At a bar it has not said yes: two of five, bar at 2.5.
    quota = pv.BinaryVoting(sigma=2.0, quota=0.5).outcome_probabilities(votes)[0, 0, 1]
    assert quota == pytest.approx(norm.cdf(2**0.5 * (2 - 2.5) / 2.0))
    alarm = pv.BinaryVoting(sigma=2.0, false_alarm=0.05)
    silent = alarm.outcome_probabilities(np.full((1, 5, 1), -1, np.int8))[0, 0, 1]
    assert silent == pytest.approx(0.05)


@pytest.mark.parametrize("gate", [None, pv.Gate(threshold=300, sigma=20.0)])
@pytest.mark.parametrize("kind", [bool, np.int8])
def test_tabulated_and_computed_costs_agree(
    monkeypatch: pytest.MonkeyPatch, gate: pv.Gate | None, kind: type
) -> None:
    votes = (np.random.default_rng(0).random((6, 500, 3)) < 0.45).astype(kind)
    mech = pv.BinaryVoting(sigma=9.0, gate=gate)
    tabulated = mech.rdp(votes, ORDERS), mech.rdp_by_voter(votes, ORDERS)
    monkeypatch.setattr(cells, "_TABLE_VOTERS", 10)
    np.testing.assert_allclose(mech.rdp(votes, ORDERS), tabulated[0], rtol=1e-13)
    np.testing.assert_allclose(mech.rdp_by_voter(votes, ORDERS), tabulated[1], rtol=1e-13)


@pytest.mark.parametrize(
    "mech",
    [
        pv.BinaryVoting(sigma=0.3),
        pv.BinaryVoting(sigma=7.0, quota=0.1),
        pv.BinaryVoting(sigma=7.0, false_alarm=0.01),
        pv.BinaryVoting(sigma=7.0, gate=pv.Gate(threshold=40, sigma=3.0)),
        pv.BinaryVoting(sigma=7.0, gate=pv.Gate(threshold=10, sigma=0.3)),
    ],
    ids=str,
)
def test_scanned_and_searched_worst_cases_agree(
    mech: pv.BinaryVoting, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned = mech.worst_case_rdp(61, 1, ORDERS)
    monkeypatch.setattr(room, "_SCAN_VOTERS", 10)
    searched = mech.worst_case_rdp(61, 1, ORDERS)
    assert (searched >= scanned).all()  # real tallies include the whole ones
    # Between whole tallies the cost may be a little more, with a sharp gate a lot.
    assert (searched <= scanned * (4.0 if mech.gate or mech.sigma == 0.3 else 1.05)).all()

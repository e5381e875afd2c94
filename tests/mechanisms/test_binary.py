"""Binary: the same costs by every path."""

from __future__ import annotations

import numpy as np
import pytest

import privote as pv
from privote.mechanisms import binary as room
from privote.mechanisms import cells

ORDERS = np.array([1.5, 2.0, 32.0])


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
        pv.BinaryVoting(sigma=40.0, false_alarm=0.01),  # its bar is beyond all voters
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

"""Prices of consensus: a histogram of margins times a table is the whole bill."""

from __future__ import annotations

import numpy as np
import pytest

import privote as pv
from privote.guardian import consensus
from privote.guardian.consensus import Levels

ORDERS = np.array([1.5, 2.0, 16.0])


def levels(mechanism: pv.Mechanism, votes: np.ndarray) -> Levels:
    ballots = pv.Ballots.of(votes)
    found = Levels.of(mechanism, ballots)
    assert found is not None
    for block in ballots.blocks():
        found.add(mechanism.tally(block))
    return found


@pytest.mark.parametrize("kind", [bool, np.int8])
@pytest.mark.parametrize(
    "mechanism",
    [
        pv.BinaryVoting(sigma=2.0),
        pv.BinaryVoting(sigma=2.0, quota=0.3),
        pv.BinaryVoting(sigma=2.0, gate=pv.Gate(threshold=7, sigma=2.0)),
    ],
    ids=str,
)
def test_levels_add_up_to_the_bill(mechanism: pv.Mechanism, kind: type) -> None:
    votes = (np.random.default_rng(0).random((30, 9, 4)) < 0.4).astype(kind)
    if kind is np.int8:
        votes[np.random.default_rng(1).random(votes.shape) < 0.1] = -1
    found = levels(mechanism, votes)
    assert found.histogram.sum() == 30 * 4
    np.testing.assert_allclose(
        found.costs(ORDERS) @ found.histogram, mechanism.total_rdp(votes, ORDERS), rtol=1e-12
    )


def test_one_changed_ballot_moves_every_cell_by_one_level() -> None:
    # What the smooth sensitivity and the distance test rest on.
    rng = np.random.default_rng(2)
    for kind, reach in ((bool, 1), (np.int8, 2)):
        votes = (rng.random((20, 7, 3)) < 0.5).astype(kind)
        other = votes.copy()
        other[:, 0] = 1 - other[:, 0] if kind is np.int8 else ~other[:, 0]
        mechanism = pv.BinaryVoting(sigma=2.0)
        here, there = levels(mechanism, votes), levels(mechanism, other)
        assert here.reach == reach
        for below in range(len(here.histogram) - reach):
            assert there.histogram[: below + 1].sum() <= here.histogram[: below + reach + 1].sum()


def empty(voters: int, mechanism: pv.BinaryVoting) -> Levels:
    found = Levels.of(mechanism, pv.Ballots.of(np.zeros((1, voters, 1), bool)))
    assert found is not None
    return found


def test_costs_in_pieces_are_the_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = empty(40, pv.BinaryVoting(sigma=3.0))
    whole = levels.costs(pv.DEFAULT_ORDERS)
    monkeypatch.setattr(consensus, "_CHUNK", 7 * len(pv.DEFAULT_ORDERS))
    np.testing.assert_array_equal(levels.costs(pv.DEFAULT_ORDERS), whole)
    assert whole.shape == (len(pv.DEFAULT_ORDERS), 41)


def test_fewer_orders_for_long_tables_only() -> None:
    few = empty(12_000, pv.BinaryVoting(sigma=3.0)).few(pv.DEFAULT_ORDERS)
    assert few is pv.DEFAULT_ORDERS or np.array_equal(few, pv.DEFAULT_ORDERS)
    few = empty(100_000, pv.BinaryVoting(sigma=3.0)).few(pv.DEFAULT_ORDERS)
    assert 8 <= len(few) <= 16
    assert set(few) <= set(pv.DEFAULT_ORDERS)
    # Large epsilons are settled at low orders, small ones at high ones: both ends are there.
    assert few[0] < 1.5
    assert few[-1] > 500

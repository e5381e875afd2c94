"""Mechanisms of single votes: margins in few bits, and many voters."""

from __future__ import annotations

import numpy as np
import pytest
from tests.contracts.outside import LaplaceQuota
from tests.refusals import refused

import privote as pv
from privote.entropy import Entropy
from privote.mechanisms import cells as cells_room
from privote.mechanisms.cells import CellTally
from privote.votes.cube import DenseBlock

ORDERS = np.array([1.5, 4.0, 32.0])


def test_too_many_voters_to_look_at_are_refused_at_once() -> None:
    with refused(None, pv.UnavailableError):
        LaplaceQuota(sigma=2.0).worst_case_rdp(10**9, 1, ORDERS)


@pytest.mark.parametrize("voters", [1, 2, 63, 64, 65, 127, 128, 255, 256, 16_383, 16_384, 40_000])
@pytest.mark.parametrize("missing", [False, True])
def test_margins_are_held_in_few_bits_and_computed_in_many(voters: int, missing: bool) -> None:
    votes = np.zeros((3, voters, 1), np.int8 if missing else np.bool_)
    votes[1], votes[2, : voters // 2] = 1, 1
    tally = pv.BinaryVoting(sigma=2.0).tally(DenseBlock(votes, missing))
    assert tally.margins.dtype == np.int64
    assert tally.margins[:, 0].tolist() == [-voters, voters, 2 * (voters // 2) - voters]
    assert (tally.counted.itemsize == 1) == (voters < 64)
    assert (tally.counted + voters).min() >= 0  # a sum that must not wrap around


@pytest.mark.parametrize("cells", [20, 900])
def test_draws_do_not_tell_how_their_levels_were_found(
    cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mechanism = pv.BinaryVoting(sigma=40.0, gate=pv.Gate(threshold=400, sigma=30.0))
    margins = 2 * np.random.default_rng(0).integers(0, 601, (cells, 1)) - 600
    drawn = []
    for most in (1, 10**6):  # those that occur, unless cells are many; all
        monkeypatch.setattr(cells_room, "_TABLE_VOTERS", most)
        tally = CellTally(margins.astype(np.int16), 600, False)
        drawn.append(mechanism.draw(tally, Entropy(seed=3)).tolist())
    assert drawn[0] == drawn[1]
    assert {label for row in drawn[0] for label in row} == {0, 1, -1}

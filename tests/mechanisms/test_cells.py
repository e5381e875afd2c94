"""Mechanisms of single votes: prices that follow from the log-probabilities alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.special import log_ndtr
from tests.refusals import refused

import privote as pv
from privote.entropy import Entropy
from privote.mechanisms import cells as cells_room
from privote.mechanisms.cells import CellTally, Ladder
from privote.votes.cube import DenseBlock, PackedBlock

ORDERS = np.array([1.5, 4.0, 32.0])
GATE = pv.Gate(threshold=7, sigma=2.0)


@dataclass(frozen=True, kw_only=True)
class Plain(pv.VoteMechanism):
    """Binary voting with a quota, from nothing but its definition."""

    sigma: float
    quota: float

    def vote_log_probs(self, margins: Any, voters: int) -> Any:
        z = np.sqrt(2) * ((margins + voters) / 2 - self.quota * voters) / self.sigma
        return np.stack([log_ndtr(-z), log_ndtr(z)], axis=-1)


@pytest.mark.parametrize("kind", [bool, np.int8])
def test_it_is_binary_voting_if_it_says_the_same(kind: type) -> None:
    votes = (np.random.default_rng(0).random((20, 9, 3)) < 0.4).astype(kind)
    if kind is np.int8:
        votes[np.random.default_rng(1).random(votes.shape) < 0.1] = -1
    plain, binary = Plain(sigma=2.0, quota=0.3), pv.BinaryVoting(sigma=2.0, quota=0.3)
    for ask in ("rdp", "total_rdp", "rdp_by_voter"):
        mine, theirs = (getattr(each, ask)(votes, ORDERS) for each in (plain, binary))
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    assert np.array_equal(plain.release(votes, seed=3), binary.release(votes, seed=3))
    assert plain.unanimous(9, 3) == pytest.approx(binary.unanimous(9, 3))
    # Half a vote cannot go missing here, so the worst case may be a little below Binary's.
    mine, theirs = (each.worst_case_rdp(9, 3, ORDERS) for each in (plain, binary))
    assert (mine <= theirs * (1 + 1e-12)).all()
    assert (mine >= 0.9 * theirs).all()


def test_levels_are_counts_or_margins() -> None:
    binary = pv.BinaryVoting(sigma=2.0)
    counts, margins = binary.by_level(4, False), binary.by_level(4, True)
    assert isinstance(counts, Ladder)
    assert isinstance(margins, Ladder)
    assert counts.margins.tolist() == [-4, -2, 0, 2, 4]
    assert margins.margins.tolist() == list(range(-4, 5))
    assert (counts.reach, margins.reach) == (1, 2)
    for ladder in (counts, margins):
        assert ladder.places(ladder.margins).tolist() == list(range(len(ladder.margins)))


def test_too_many_voters_to_look_at_are_refused_at_once() -> None:
    with refused(None, pv.UnavailableError):
        Plain(sigma=2.0, quota=0.3).worst_case_rdp(10**9, 1, ORDERS)


@pytest.mark.parametrize("voters", [1, 2, 63, 64, 65, 127, 128, 255, 256, 16_383, 16_384, 40_000])
@pytest.mark.parametrize("missing", [False, True])
def test_margins_are_held_in_few_bits_and_computed_in_many(voters: int, missing: bool) -> None:
    votes = np.zeros((3, voters, 1), np.int8 if missing else np.bool_)
    votes[1], votes[2, : voters // 2] = 1, 1
    block = DenseBlock(votes, missing)
    for one in (block, PackedBlock(block.bits())):
        tally = pv.BinaryVoting(sigma=2.0).tally(one)
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

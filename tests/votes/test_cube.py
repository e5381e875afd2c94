"""Ballots: a cube that was made is a cube that was checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refused

import privote as pv
from privote.errors import BallotError
from privote.votes import cube as room
from privote.votes.cube import Ballots, DenseBlock, SparseBallots


def cube(seed: int = 0, shape: tuple[int, int, int] = (13, 5, 3)) -> np.ndarray:
    return np.random.default_rng(seed).random(shape) < 0.4


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int8, np.int64, np.float32, np.float64])
def test_votes_of_any_type_are_the_same_votes(kind: Any) -> None:
    votes = cube()
    ballots = Ballots.from_array(votes.astype(kind))
    assert ballots.shape == votes.shape
    assert np.array_equal(ballots.to_array() == 1, votes)
    # The type, which is public, decides whether a vote may be missing; the votes never do.
    assert ballots.missing == (np.dtype(kind).kind in "if")


@given(
    shape=st.tuples(st.integers(1, 20), st.integers(1, 5), st.integers(1, 5)),
    seed=st.integers(0, 999),
)
def test_packed_bits_come_back(shape: tuple[int, int, int], seed: int) -> None:
    votes = cube(seed, shape)
    ballots = Ballots.from_packed(np.packbits(votes), shape)
    assert np.array_equal(ballots.to_array(), votes)
    head = ballots.head(max(1, shape[0] // 2))
    assert np.array_equal(head.to_array(), votes[: head.queries])


@pytest.mark.parametrize("missing", [False, True])
def test_small_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch, missing: bool) -> None:
    votes: np.ndarray = cube(1, (50, 6, 4))
    if missing:
        votes = np.where(cube(2, votes.shape), -1, votes).astype(np.int8)
    mechanisms: list[pv.Mechanism] = [
        pv.BinaryVoting(sigma=2.0),
        pv.TauVoting(sigma=2.0, tau=1.1),
        pv.PowersetVoting(sigma=1.0),
    ]
    whole = [(m.rdp(votes, [2.0]), m.rdp_by_voter(votes, [2.0])) for m in mechanisms]
    monkeypatch.setattr(room, "_BLOCK_CELLS", 64)
    assert len(list(Ballots.from_array(votes).blocks())) > 3
    for mech, (rdp, bills) in zip(mechanisms, whole, strict=True):
        np.testing.assert_allclose(mech.rdp(votes, [2.0]), rdp, rtol=1e-12)
        np.testing.assert_allclose(mech.rdp_by_voter(votes, [2.0]), bills, rtol=1e-12)
        np.testing.assert_allclose(mech.total_rdp(votes, [2.0]), rdp.sum(axis=0), rtol=1e-12)


def test_a_query_with_very_many_labels_comes_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    votes = np.random.default_rng(0).random((11, 7, 24)) < 0.3
    monkeypatch.setattr(room, "_BLOCK_CELLS", 100)
    ballots = Ballots.from_packed(np.packbits(votes), votes.shape)
    blocks = list(ballots.blocks())
    assert [block.queries for block in blocks] == [1] * 11
    assert np.array_equal(np.concatenate([block.votes for block in blocks]), votes)
    odd = Ballots.from_packed(np.packbits(votes[:, :5, :23]), (11, 5, 23))  # 115 votes a query
    assert [block.queries for block in odd.blocks()] == [8, 3]


@pytest.mark.parametrize("shape", [(900, 9, 5), (999, 7, 8), (3, 700, 9), (40, 300, 3)])
@pytest.mark.parametrize("kind", [np.bool_, np.int8])
def test_sums_of_a_block_are_those_of_its_votes(shape: tuple[int, int, int], kind: Any) -> None:
    """However votes lie in memory: queries last, if there are many."""
    rng = np.random.default_rng(2)
    votes = rng.integers(-1 if kind is np.int8 else 0, 2, shape).astype(kind)
    block, yes = DenseBlock(votes, missing=kind is np.int8), votes == 1
    assert (block.votes.strides[0] == 1) == (shape[0] >= shape[2] and votes.size > 1 << 14)
    assert np.array_equal(block.votes, votes)
    for missing_is_no in (True, False):
        no = ~yes if missing_is_no else votes == 0
        margins = yes.sum(axis=1) - no.sum(axis=1)
        assert np.array_equal(block.margins(missing_is_no=missing_is_no), margins)
    weights = 1 / np.sqrt(np.maximum(1, np.arange(shape[2] + 1)))
    tally = (weights[yes.sum(axis=2)][:, :, None] * yes).sum(axis=1)
    assert block.weighted(weights) == pytest.approx(tally)
    # Whoever cast which ballot, the sum is the same to the last bit.
    other = DenseBlock(votes[:, ::-1].copy(), block.missing)
    assert block.weighted(weights).tolist() == other.weighted(weights).tolist()


@pytest.mark.parametrize("kind", [np.bool_, np.int8])
def test_sums_of_many_voters_do_not_wrap_around(kind: Any) -> None:
    for voters in (255, 256, 700):
        everyone = DenseBlock(np.ones((90, voters, 1), kind), missing=kind is np.int8)
        assert (everyone.margins(missing_is_no=False) == voters).all()


def test_thresholds() -> None:
    chances = np.random.default_rng(0).random((4, 3, 2))
    assert np.array_equal(Ballots.from_array(chances, threshold=0.3).to_array(), chances >= 0.3)
    each = Ballots.from_array(chances, threshold=[0.2, 0.9]).to_array()
    assert np.array_equal(each, chances >= np.array([0.2, 0.9]))
    with refused("threshold"):
        Ballots.of(Ballots.from_array(cube()), threshold=0.5)


def test_clip_keeps_the_first_ones_and_the_gaps() -> None:
    votes = np.array([[[1, 1, 1, 0], [-1, 1, 1, 1], [0, 0, 0, 1]]], np.int8)
    clipped = Ballots.from_array(votes).clip(2).to_array()
    assert clipped.tolist() == [[[1, 1, 0, 0], [-1, 1, 1, 0], [0, 0, 0, 1]]]
    mech = pv.PowersetVoting(sigma=1.0, max_positives=2)
    with refused("max_positives", BallotError):
        mech.rdp(votes)
    assert mech.rdp(Ballots.from_array(votes).clip(2), [2.0]).shape == (1, 1)


def test_sparse_ballots_are_checked() -> None:
    good: dict[str, Any] = {
        "query": [2, 0, 0],
        "voter": [1, 3, 0],
        "votes": np.eye(3, dtype=bool),
        "queries": 4,
        "voters": 5,
    }
    ballots = SparseBallots(**good)
    assert (ballots.queries, ballots.voters, ballots.labels) == (4, 5, 3)
    block = next(ballots.blocks())
    assert block.query.tolist() == [0, 0, 2]  # in order, whatever the order given
    assert block.voter.tolist() == [0, 3, 1]
    with refused("votes", BallotError):
        SparseBallots(**{**good, "votes": np.zeros(3, bool)})


def test_nobody_speaks_at_all() -> None:
    silent = SparseBallots(
        np.zeros(0, int), np.zeros(0, int), np.zeros((0, 3), bool), queries=2, voters=4
    )
    zeros = np.zeros((2, 4, 3), bool)
    for mech in (pv.BinaryVoting(sigma=1.0), pv.TauVoting(sigma=1.0, tau=1.0)):
        np.testing.assert_allclose(mech.rdp(silent, [2.0]), mech.rdp(zeros, [2.0]))
    for other in (pv.PluralityVoting(sigma=1.0), pv.PowersetVoting(sigma=1.0)):
        assert (other.rdp(silent, [2.0]) > 0).all()  # somebody may speak up
        assert other.release(silent, seed=0).shape == (2, 3)

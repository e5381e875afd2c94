"""Blocks of a release: cut by public sizes; however votes are cut and stored, one outcome."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.votes.test_arrays import write

import privote as pv
from privote.guarantees.allowance import SeatedBallots
from privote.votes import cube as room
from privote.votes.contributions import bound_votes
from privote.votes.cube import MISSING, Ballots, DenseBlock, SparseBallots

pytestmark = pytest.mark.filterwarnings("ignore::privote.PrivoteWarning")

MECHANISMS = {
    "binary": pv.BinaryVoting(sigma=1.0),
    "bar": pv.BinaryVoting(sigma=1.0, quota=0.3),
    "gate": pv.BinaryVoting(sigma=1.0, gate=pv.Gate(threshold=2, sigma=1.0)),
    "tau": pv.TauVoting(sigma=1.0, tau=1.2),
    "powerset": pv.PowersetVoting(sigma=1.0),
    "plurality": pv.PluralityVoting(sigma=1.0),
}
QUERIES, VOTERS, LABELS = 45, 4, 3
GUESS = np.eye(QUERIES, LABELS, dtype=bool)


def votes_of(kind: str, seed: int, *, missing: bool = False) -> np.ndarray:
    rng = np.random.default_rng(seed)
    votes = (rng.random((QUERIES, VOTERS, LABELS)) < 0.3).astype(np.int8)
    if kind == "plurality":
        votes *= np.cumsum(votes, axis=2) == 1
    if missing:
        votes[rng.random(votes.shape) < 0.1] = MISSING
        votes[rng.random(votes.shape[:2]) < 0.1] = MISSING
        return votes
    return votes.astype(bool)


def release(votes: Any, mechanism: Any, **more: Any) -> dict[str, Any]:
    """Return all that a run shows and seals, and what its ledger says."""
    with closing(pv.Ledger.in_memory()) as ledger:
        settings = {"epsilon": 80.0, "delta": 1e-5, "seed": 1, "ledger": ledger}
        found = pv.label(votes, mechanism=mechanism, **settings, **more)
        own = {"at": "", "digest": "", "account": "", "holder": "", "key": "", "terms": ""}
        entries = [{**entry, **own} for entry in ledger.published()]
        sealed = {n: getattr(found.sealed, n).tolist() for n in ("spent", "clipped")}
    return {"labels": found.labels.tolist(), "ledger": entries, **sealed}


EVERY = {"guarantee": "allowance", "baseline": GUESS}


@pytest.mark.parametrize("kind", MECHANISMS)
@pytest.mark.parametrize("missing", [False, True])
@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 999),
    lots=st.integers(1, 6),
    few=st.sampled_from([0, 1 << 14]),
    allowance=st.lists(st.integers(0, 40), min_size=VOTERS, max_size=VOTERS).filter(any),
)
def test_tallies_and_spending_are_those_of_the_definition(
    kind: str, missing: bool, seed: int, lots: int, few: int, allowance: list[int]
) -> None:
    """However votes are cut into blocks; voters run out on the way."""
    mechanism, votes = MECHANISMS[kind], votes_of(kind, seed, missing=missing)
    wanted, spent, turned_away = bound_votes(
        votes, GUESS, np.array(allowance), mechanism.contribution_unit
    )
    at_once = mechanism.tally(DenseBlock(wanted, missing=False))
    tallies: list[Any] = []
    drawn = type(mechanism).draw

    def draw(self: Any, tally: Any, entropy: Any) -> Any:
        tallies.append(rows_of(tally))
        return drawn(self, tally, entropy)

    with pytest.MonkeyPatch.context() as patch, closing(pv.Ledger.in_memory()) as ledger:
        patch.setattr(room, "_BLOCK_CELLS", lots * 8 * VOTERS * LABELS)
        patch.setattr(room, "_FEW", few)
        patch.setattr(type(mechanism), "draw", draw)
        size: dict[str, Any] = {"voters": VOTERS, "labels": LABELS, "epsilon": 1e4, "delta": 1e-5}
        electorate = pv.Electorate(
            mechanism=mechanism, **size, allowance=allowance, ledger=ledger, seed=1
        )
        found = electorate.answer(votes, GUESS)
    assert found.sealed.spent.tolist() == spent.tolist()
    assert found.sealed.clipped.tolist() == turned_away.tolist()
    assert len(tallies) == -(-QUERIES // (8 * lots))
    assert np.array_equal(np.concatenate(tallies), rows_of(at_once))


def rows_of(tally: Any) -> np.ndarray:
    """Return a tally query by query; of classes only how many have how many votes."""
    rows: np.ndarray = getattr(tally, "margins", None)
    if rows is None:
        rows = np.pad(tally.profiles, [(0, 0), (0, VOTERS - tally.profiles.shape[1])])
    return rows


@pytest.mark.parametrize(
    "kind", ["npy", "npz", "npz-packed", "parquet", "zarr1", "zarr7", "zarr45"]
)
@pytest.mark.parametrize("learnt", [False, True])
def test_votes_are_the_same_however_they_are_stored(
    kind: str, learnt: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_BLOCK_CELLS", 8 * VOTERS * LABELS)
    votes = votes_of("binary", 7)
    # Of the type that holds a missing vote, as Parquet does: what could be missing costs more.
    votes = votes.astype(np.int8) if kind == "parquet" else votes
    mechanism: Any = "auto" if learnt else MECHANISMS["binary"]
    path = stored(kind, tmp_path, votes)
    assert release(path, mechanism, **EVERY) == release(votes, mechanism, **EVERY)


def stored(kind: str, folder: Path, votes: np.ndarray) -> Path:
    """Write votes; in Zarr, with chunks that do not end where blocks do."""
    if not kind.startswith("zarr"):
        return write(kind, folder, votes)
    how: dict[str, Any] = {"dtype": votes.dtype, "config": {"write_empty_chunks": True}}
    how["chunks"] = (int(kind.removeprefix("zarr")), *votes.shape[1:])
    zarr.create_array(str(folder / "votes.zarr"), shape=votes.shape, **how)[:] = votes
    return folder / "votes.zarr"


def seated(ballots: Any, seats: np.ndarray, voters: int) -> list[Any]:
    nothing = np.zeros((ballots.queries, ballots.labels), bool)
    return [block for block, _ in SeatedBallots(ballots, voters, seats, nothing).blocks()]


def test_empty_seats_are_missing() -> None:
    votes = np.array([[[1, 0], [0, 1]]], np.int8)
    (full,) = seated(Ballots.from_array(votes), np.array([2, 0]), 3)
    assert isinstance(full, DenseBlock)
    assert full.votes.tolist() == [[[0, 1], [MISSING, MISSING], [1, 0]]]
    assert full.missing
    sparse = SparseBallots([0], [1], [[True]], queries=1, voters=2)
    (moved,) = seated(sparse, np.array([2, 0]), 3)
    assert moved.speakers()[1].tolist() == [0]


@given(queries=st.integers(1, 60), present=st.integers(1, 6), step=st.integers(40, 400))
def test_blocks_are_those_of_the_whole_electorate(queries: int, present: int, step: int) -> None:
    votes = np.random.default_rng(queries).random((queries, present, 2)) < 0.5
    everybody = np.zeros((queries, 6, 2), bool)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "_BLOCK_CELLS", step)
        places = np.arange(present)
        found = seated(Ballots.from_array(votes), places, 6)
        expected = [block.queries for block in Ballots.from_array(everybody).blocks()]
    assert [block.queries for block in found] == expected
    assert [block.start for block in found] == np.cumsum([0, *expected[:-1]]).tolist()
    joined = np.concatenate([block.votes for block in found])  # type: ignore[attr-defined]
    np.testing.assert_array_equal(joined[:, :present], votes)
    assert (joined[:, present:] == MISSING).all()

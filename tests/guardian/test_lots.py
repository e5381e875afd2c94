"""Lots: cut by public sizes, read again wherever they are counted."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privote import ballots as room
from privote.ballots import Ballots, SparseBallots
from privote.blocks import MISSING, DenseBlock
from privote.errors import BallotError
from privote.guardian.lots import Lot, Seating, carried, registered_blocks
from privote.votefiles import write_packed
from privote.workers import received


def test_empty_seats_are_missing() -> None:
    votes = np.array([[[1, 0], [0, 1]]], np.int8)
    (full,) = registered_blocks(Ballots.from_array(votes), np.array([2, 0]), 3)
    assert isinstance(full, DenseBlock)
    assert full.votes.tolist() == [[[0, 1], [MISSING, MISSING], [1, 0]]]
    assert full.missing
    sparse = SparseBallots([0], [1], [[True]], queries=1, voters=2)
    (moved,) = registered_blocks(sparse, np.array([2, 0]), 3)
    assert moved.speakers()[1].tolist() == [0]


@given(queries=st.integers(1, 60), present=st.integers(1, 6), step=st.integers(40, 400))
def test_blocks_are_those_of_the_whole_electorate(queries: int, present: int, step: int) -> None:
    votes = np.random.default_rng(queries).random((queries, present, 2)) < 0.5
    everybody = np.zeros((queries, 6, 2), bool)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "_BLOCK_CELLS", step)
        places = np.arange(present)
        blocks = list(registered_blocks(Ballots.from_array(votes), places, 6))
        expected = [block.queries for block in Ballots.from_array(everybody).blocks()]
    assert [block.queries for block in blocks] == expected
    assert [block.start for block in blocks] == np.cumsum([0, *expected[:-1]]).tolist()
    joined = np.concatenate([block.votes for block in blocks])  # type: ignore[attr-defined]
    np.testing.assert_array_equal(joined[:, :present], votes)
    assert (joined[:, present:] == MISSING).all()


VOTES = np.random.default_rng(0).random((40, 4, 2)) < 0.5


def rows(seating: Seating, lots: Any) -> list[Any]:
    found: list[Any] = [seating.block(lot) for lot in lots]
    assert [block.start for block in found] == [lot.start for lot in lots]
    return np.concatenate([block.votes for block in found]).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["npy", "npz", "zarr", "parquet"])
@given(sizes=st.lists(st.integers(1, 20), min_size=1))
def test_any_lot_can_be_read_again_anywhere(
    kind: str, sizes: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = stored(kind, tmp_path_factory.getbasetemp() / "lots")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "_BLOCK_CELLS", 16 * 8)
        ballots = Ballots.of(path)
        seating = Seating(ballots, None, 4)
        whole = list(seating.lots())
        assert [lot.queries for lot in whole] == [16, 16, 8]
        cuts = sorted({0, 40, *(int(cut) for cut in np.cumsum(sizes) if cut < 40)})
        parts = [Lot(a, b - a) for a, b in pairwise(cuts)]
        sent = seating.sent()
        assert sent is not None
        assert len(sent.data) < 4000
        for reader in (seating, received(sent)):
            assert rows(reader, whole) == rows(reader, parts) == VOTES.astype(int).tolist()


def stored(kind: str, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"votes.{kind}"
    if path.exists():
        return path
    if kind == "npy":
        np.save(path, VOTES)
    elif kind == "npz":
        write_packed(path, VOTES)
    elif kind == "parquet":
        query, voter = np.divmod(np.arange(40 * 4), 4)
        flat = VOTES.reshape(-1, 2)
        table = {"query": query, "voter": voter, "a": flat[:, 0], "b": flat[:, 1]}
        pq.write_table(pa.table(table), path, row_group_size=28)
    else:
        zarr = pytest.importorskip("zarr")
        store = zarr.create_array(str(path), shape=VOTES.shape, chunks=(7, 4, 2), dtype="bool")
        store[:] = VOTES
    return path


def test_a_lot_is_split_with_its_ballots() -> None:
    (block,) = Ballots.from_array(VOTES).blocks()
    for lot in (Lot(0, 40), Lot(0, 40, block)):
        first, rest = lot.split(15)
        assert (first.start, first.stop, rest.start, rest.stop) == (0, 15, 15, 40)
        assert (first.block is None) == (lot.block is None)
    assert first.block is not None
    assert first.block.queries == 15


def test_ballots_in_memory_go_along_instead() -> None:
    large = np.zeros((9000, 4, 2), bool)
    large[:40] = VOTES
    seating = Seating(Ballots.from_array(large), None, 4)
    assert seating.sent() is None
    sparse = SparseBallots([0], [1], [[True]], queries=1, voters=2)
    assert Seating(sparse, None, 2).sent() is None
    (lot,) = (carried(lot, seating) for lot in seating.lots())
    assert lot.block is not None
    assert lot.block.votes.tolist() == large.tolist()  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["npy", "zarr", "parquet"])
def test_a_file_that_changed_is_not_counted(kind: str, tmp_path: Path) -> None:
    path = stored(kind, tmp_path / "here")
    sent = Seating(Ballots.of(path), None, 4).sent()
    assert sent is not None
    metadata = path / "zarr.json" if kind == "zarr" else path
    metadata.write_bytes(metadata.read_bytes() + b" ")
    with pytest.raises(BallotError, match=rf"votes.{kind} is not the file here"):
        received(sent)
    # A library would take chunks that are not there for votes of no.
    metadata.unlink()
    with pytest.raises(BallotError, match=rf"votes.{kind} must be where every worker finds it"):
        received(sent)


def test_a_file_that_took_another_s_place_is_read_for_the_next_release(tmp_path: Path) -> None:
    """However like it looks from outside: a worker may still have the one before open."""
    path, kept = tmp_path / "votes.npy", []
    for votes in (VOTES, ~VOTES):
        np.save(tmp_path / "new.npy", votes)
        os.utime(tmp_path / "new.npy", (1e9, 1e9))
        os.replace(tmp_path / "new.npy", path)
        seating = Seating(Ballots.of(path), None, 4)
        sent = seating.sent()
        assert sent is not None
        kept.append(rows(received(sent), list(seating.lots())))
    assert kept == [VOTES.astype(int).tolist(), (~VOTES).astype(int).tolist()]


@pytest.mark.parametrize("where", ["here", "at a worker"])
def test_a_chunk_that_was_lost_is_not_counted_as_noes(where: str, tmp_path: Path) -> None:
    path = stored("zarr", tmp_path / "here")
    seating = Seating(Ballots.of(path), None, 4)
    sent = seating.sent()
    assert sent is not None
    (lot,) = seating.lots()
    next(file for file in sorted(path.rglob("c/*/*/*")) if file.is_file()).unlink()
    with pytest.raises(BallotError, match=r"votes.zarr is not what it was when it was checked"):
        (seating if where == "here" else received(sent)).block(lot)


@pytest.mark.parametrize("kind", ["zarr", "parquet"])
def test_what_is_in_this_memory_only_goes_along_instead(kind: str, tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    place = f"memory://{tmp_path.name}/votes.{kind}"
    fsspec.filesystem("memory").put(str(stored(kind, tmp_path / "here")), place, recursive=True)
    ballots = Ballots.of(place)
    assert Seating(ballots, None, 4).sent() is None
    assert ballots.to_array().astype(bool).tolist() == VOTES.tolist()  # type: ignore[attr-defined]


def test_names_stay_here(tmp_path: Path) -> None:
    path = stored("zarr", tmp_path / "here")
    zarr = pytest.importorskip("zarr")
    zarr.open_array(str(path)).attrs["voter_names"] = ["anna", "bob", "cleo", "dan"]
    ballots = Ballots.of(path)
    assert ballots.voter_names == ("anna", "bob", "cleo", "dan")  # type: ignore[attr-defined]
    sent = Seating(ballots, None, 4).sent()
    assert sent is not None
    assert b"anna" not in sent.data

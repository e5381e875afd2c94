"""Every votes file gives the same cube; broken ones are refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from tests.refusals import refused

import privote as pv
from privote.votes import arrays as votefiles


@pytest.fixture
def votes() -> np.ndarray:
    return np.random.default_rng(0).random((37, 5, 3)) < 0.3


def parquet(path: Path, votes: np.ndarray, **writing: Any) -> None:
    """Write a row a ballot; a missing vote is a null."""
    query, voter = (axis.reshape(-1) for axis in np.indices(votes.shape[:2]))
    cells = {f"label_{i}": votes[:, :, i].reshape(-1) for i in range(votes.shape[2])}
    labels = {name: pa.array(each, mask=each.astype(float) == -1) for name, each in cells.items()}
    pq.write_table(pa.table({"query": query, "voter": voter, **labels}), path, **writing)


def write(kind: str, folder: Path, votes: np.ndarray) -> Path:
    path = folder / f"votes.{kind.split('-')[0]}"
    if kind == "npy":
        np.save(path, votes)
    elif kind == "npz":
        np.savez(path, votes=votes)
    elif kind == "npz-compressed":
        np.savez_compressed(path, votes=votes)
    elif kind == "npz-packed":
        votefiles.write_packed(path, votes)
    elif kind == "parquet":
        parquet(path, votes, row_group_size=40)
    else:
        store: Any = zarr.open_group(str(path), mode="w") if kind == "zarr-group" else zarr
        name = "votes" if kind == "zarr-group" else str(path)
        how = {"dtype": votes.dtype, "chunks": (8, *votes.shape[1:])}
        store.create_array(name, shape=votes.shape, **how)[:] = votes
    return path


LAYOUTS: dict[str, dict[str, Any]] = {
    "2": {"zarr_format": 2},
    "2, slashes": {"zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": "/"}},
    "3": {"zarr_format": 3},
    "3, dots": {"zarr_format": 3, "chunk_key_encoding": {"name": "v2", "separator": "."}},
    "3, shards": {"zarr_format": 3, "shards": (16, 5, 3)},
}


def laid_out(path: Path, votes: np.ndarray, layout: str = "2", **how: Any) -> Any:
    """Write a Zarr array, each chunk of it unless told otherwise."""
    given = {"dtype": bool, "chunks": (8, 5, 3), "config": {"write_empty_chunks": True}}
    array = zarr.create_array(path, shape=votes.shape, **{**given, **LAYOUTS[layout], **how})
    array[:] = votes
    return array


SPARSE = {"write_empty_chunks": False}
KINDS = ["npy", "npz", "npz-compressed", "npz-packed", "zarr", "zarr-group", "parquet"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_the_same_cube_wherever_blocks_are_cut(
    kind: str, tmp_path: Path, votes: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(kind, tmp_path, votes)
    ballots = votefiles.read(path)
    assert ballots.shape == votes.shape
    np.testing.assert_array_equal(ballots.to_array(), votes)
    np.testing.assert_array_equal(ballots.head(11).to_array(), votes[:11])
    monkeypatch.setattr("privote.votes.cube._BLOCK_CELLS", 8 * 15)
    blocks = list(votefiles.read(path).blocks())
    assert [b.start for b in blocks] == [0, 8, 16, 24, 32]
    np.testing.assert_array_equal(np.concatenate([b.votes for b in blocks]), votes)


def test_packed_cannot_hold_missing(tmp_path: Path) -> None:
    with pytest.raises(pv.BallotError, match="packed bits cannot hold missing"):
        votefiles.write_packed(tmp_path / "v.npz", np.full((1, 2, 3), -1, np.int8))


COLUMNS = {"query": [0, 0, 1, 1], "voter": [0, 1, 0, 1], "a": [1, 0, 1, 0]}
BROKEN: dict[str, tuple[str, dict[str, Any]]] = {
    "name.npz": ("no array 'votes'; it has: ballots", {"ballots": np.zeros((1, 2, 3))}),
    "short.npz": ("must be 19 bytes", {"votes": np.zeros(3, np.uint8), "shape": [10, 5, 3]}),
    "shape.npz": ("must be 3 integers", {"votes": np.zeros(3, np.uint8), "shape": [10, 5]}),
    "columns.parquet": ("columns query and voter", {"query": [0], "a": [1]}),
    "unsorted.parquet": ("sorted by query", {**COLUMNS, "query": [0, 1, 0, 1]}),
    "twice.parquet": ("sorted by query", {**COLUMNS, "voter": [0, 0, 0, 1]}),
    "absent.parquet": ("every ballot", {name: c[:3] for name, c in COLUMNS.items()}),
    "late.parquet": ("every ballot", {name: c[1:] for name, c in COLUMNS.items()}),
    "null.parquet": ("every ballot", {**COLUMNS, "voter": [0, None, 0, 1]}),
    "none.parquet": (
        "columns query and voter",
        {name: [] for name in COLUMNS} | {"a": np.zeros(0)},
    ),
    "words.parquet": ("must hold 0, 1", {**COLUMNS, "a": ["x"] * 4}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused_by_name(name: str, tmp_path: Path) -> None:
    message, content = BROKEN[name]
    if name.endswith("npz"):
        np.savez(tmp_path / name, **content)
    else:
        pq.write_table(pa.table(content), tmp_path / name)
    with pytest.raises(pv.InputError) as caught:
        votefiles.read(tmp_path / name).check()
    assert message in str(caught.value)


def test_an_array_that_is_no_cube_is_refused(tmp_path: Path) -> None:
    zarr.create_array(str(tmp_path / "v.zarr"), shape=(3, 2), dtype="bool")
    with refused(kind=pv.InputError):
        votefiles.read(tmp_path / "v.zarr")


# -- behind a URL --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["zarr in store", "zarr-group in store", "zarr", "parquet", "npy"])
def test_votes_behind_a_url_are_the_same(
    kind: str, store: Any, tmp_path: Path, votes: np.ndarray
) -> None:
    path = write(kind.split()[0], tmp_path, votes)
    url = store.put(path) if kind.endswith("store") else f"file://{path}"
    np.testing.assert_array_equal(pv.Ballots.of(url).to_array(), votes)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["v.npy", "v.npz", "v.csv", "v.xls", "v"])
def test_other_files_are_of_this_machine(name: str) -> None:
    with refused("votes file"):
        pv.Ballots.of(f"s3://bucket/{name}")


def test_pyarrow_opens_a_url(
    tmp_path: Path, votes: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.fs as fs

    write("parquet", tmp_path, votes)

    class Uri(fs.FileSystem):  # type: ignore[misc]
        @staticmethod
        def from_uri(uri: str) -> Any:
            assert uri.startswith("s3://bucket/")
            return fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), uri[12:]

    monkeypatch.setattr(fs, "FileSystem", Uri)
    ballots = pv.Ballots.of("s3://bucket/votes.parquet")
    np.testing.assert_array_equal(ballots.to_array(), votes)  # type: ignore[attr-defined]
    with refused("votes file"):
        pv.Ballots.of("s3://bucket/none.parquet")


@pytest.mark.parametrize("good", [0, 1, 2, 5, 11])
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError("Forbidden"), "access is denied|Forbidden"),
        (TimeoutError("at https://me:hunter2@host?key=hunter2"), r"://\*\*\*@host"),
    ],
)
def test_a_store_that_refuses_is_one_sentence(
    good: int, error: Exception, message: str, store: Any, tmp_path: Path, votes: np.ndarray
) -> None:
    asked: list[str] = []

    def refuse(name: str) -> None:
        asked.append(name)
        if len(asked) > good:
            raise error

    url = store.put(write("zarr", tmp_path, votes))
    store.fails = refuse

    def read() -> None:
        while True:
            pv.Ballots.of(url).to_array()  # type: ignore[attr-defined]

    with pytest.raises(pv.InputError, match=message) as caught:
        read()
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_metadata_is_judged_again_when_it_is_opened(
    store: Any, tmp_path: Path, votes: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may say one thing to who asks first, and another to the library."""
    laid_out(tmp_path / "v.zarr", votes)
    url = store.put(tmp_path / "v.zarr")
    opened = zarr.open_array

    def changed(place: str, **how: Any) -> Any:
        facts = json.loads(store.system().cat_file(f"{url}/.zarray"))
        facts["filters"] = [{"id": "base64"}]
        store.system().pipe_file(f"{url}/.zarray", json.dumps(facts).encode())
        return opened(place, **how)

    monkeypatch.setattr(zarr, "open_array", changed)
    with pytest.raises(pv.BallotError, match=r"may be packed by .* got 'base64'"):
        pv.Ballots.of(url)


# -- names -------------------------------------------------------------------------------------


VOTERS, LABELS = [f"site {place}" for place in range(5)], ["x", "y", "z"]


@pytest.mark.parametrize("layout", ["2", "3"])
def test_a_zarr_array_has_names_in_its_attributes(
    layout: str, tmp_path: Path, votes: np.ndarray
) -> None:
    named = {"voter_names": VOTERS, "label_names": LABELS}
    laid_out(tmp_path / "v.zarr", votes, layout, chunks=(5, 2, 3), attributes=named)
    ballots = pv.Ballots.of(tmp_path / "v.zarr")
    assert (ballots.voter_names, ballots.label_names) == (tuple(VOTERS), tuple(LABELS))
    assert np.array_equal(ballots.to_array(), votes)


@pytest.mark.parametrize("names", [["a"], [["a"], ["b", "c"]], "all", {"a": 1}, [None, None]])
def test_names_that_are_none_are_refused(names: object, tmp_path: Path, votes: np.ndarray) -> None:
    laid_out(tmp_path / "v.zarr", votes, attributes={"voter_names": names})
    with refused(kind=pv.BallotError):
        pv.Ballots.of(tmp_path / "v.zarr")


def test_a_parquet_file_has_names_of_voters_in_its_metadata(
    tmp_path: Path, votes: np.ndarray
) -> None:
    path = write("parquet", tmp_path, votes)
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"voter_names": json.dumps(VOTERS)}), path)
    assert pv.Ballots.of(path).voter_names == tuple(VOTERS)
    pq.write_table(table.replace_schema_metadata({"voter_names": "[1"}), path)
    with refused(path.name, pv.BallotError):
        pv.Ballots.of(path)


# -- chunks of a Zarr array that are absent -------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_chunk_that_is_absent_is_refused(layout: str, tmp_path: Path, votes: np.ndarray) -> None:
    path, whole, sparse = tmp_path / "v.zarr", tmp_path / "whole.zarr", votes.copy()
    sparse[16:] = False  # also all of a shard, and of what is behind the last query of a chunk
    laid_out(path, sparse, layout, config=SPARSE)
    laid_out(whole, sparse, layout)
    assert np.array_equal(pv.Ballots.of(whole).to_array(), sparse)  # type: ignore[attr-defined]
    assert len([*path.rglob("*")]) < len([*whole.rglob("*")])
    with refused("v.zarr", pv.BallotError):
        pv.Ballots.of(path).check()


# -- rows of an array that stays in its file -----------------------------------------------------


@pytest.mark.parametrize("kind", ["zarr-group", "parquet"])
def test_the_first_wrong_vote_is_the_one_that_is_said(
    kind: str, votes: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privote.votes.cube._BLOCK_CELLS", 1)  # eight queries a block
    wrong = votes.astype(np.int8)
    wrong[[31, 12, 33], 2, 1] = 2
    with refused("votes[query 12, voter 2, label 1]", pv.BallotError) as error:
        votefiles.read(write(kind, tmp_path, wrong)).check()
    assert error.value.sealed in ("it is 2", "it is 2.0")


@pytest.mark.parametrize("queries", [37, 3])
def test_what_was_checked_is_what_is_counted(
    queries: int, votes: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privote.votes.cube._BLOCK_CELLS", 1)  # eight queries a block
    path = write("zarr", tmp_path, votes)
    ballots = votefiles.read(path).head(queries)
    ballots.check()
    next(file for file in sorted(path.rglob("c/*/*/*")) if file.is_file()).unlink()
    with refused("votes.zarr", pv.errors.BallotError):
        list(ballots.blocks())

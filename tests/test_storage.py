"""Folders here and behind URLs: one contract for all of them."""

from __future__ import annotations

import os
import pickle
import uuid
from pathlib import Path

import pytest

from privote.ballots import Ballots
from privote.errors import InputError
from privote.storage import Folder, as_place, is_url, name_of, open_binary


@pytest.fixture(params=["path", "file", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    if request.param == "path":
        return Folder(str(tmp_path / "votes"))
    pytest.importorskip("fsspec")
    if request.param == "file":
        return Folder(f"file://{tmp_path}/votes")
    return Folder(f"memory://{uuid.uuid4().hex}/votes")


def test_nothing_is_there_before_something_is_written(folder: Folder) -> None:
    assert not folder.exists()
    assert folder.sizes() == {}
    folder.remove()
    folder.remove("a")
    folder.sweep()
    assert not folder.exists()


def test_what_is_written_is_read(folder: Folder) -> None:
    folder.write("a", b"first")
    folder.write("a", b"second")
    folder.write("b", b"")
    (folder / "deep").write("c", b"123")
    (folder / "deep").mark("d")
    assert folder.read("a") == b"second"
    assert folder.sizes() == {"a": 6, "b": 0}
    assert (folder / "deep").sizes() == {"c": 3, "d": 0}
    assert folder.exists("a")
    assert folder.exists()
    assert not folder.exists("c")
    with open_binary(f"{folder.place}/a") as stream:
        stream.seek(3)
        assert stream.read() == b"ond"


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("s3://bucket/votes.zarr", "votes.zarr"),
        ("https://host/votes.npy?key=hunter2/x.npy", "votes.npy"),
        ("s3://me:hunter2@votes.zarr", "***@votes.zarr"),
        ("s3://me:hun/ter2@votes.zarr", "***@votes.zarr"),
        ("hunter2@votes?.csv", "hunter2@votes?.csv"),  # a path
    ],
)
def test_a_name_keeps_a_secret(place: str, name: str) -> None:
    assert name_of(place) == name


@pytest.mark.parametrize("scheme", ["file", "local"])
def test_a_url_of_this_machine_is_a_path(scheme: str, tmp_path: Path) -> None:
    """What is no file of its own is refused by its path: a pipe would wait for ever."""
    os.mkfifo(tmp_path / "votes.npy")
    (tmp_path / "votes.zarr").mkdir()
    os.mkfifo(tmp_path / "votes.zarr" / "zarr.json")
    assert as_place(f"{scheme}://{tmp_path}/votes.npy") == f"{tmp_path}/votes.npy"
    assert as_place(f"{scheme}://votes.npy") == str(Path("votes.npy").absolute())
    for name in ("votes.npy", "votes.zarr"):
        with pytest.raises(InputError, match="named pipe"):
            Ballots.of(f"{scheme}://{tmp_path}/{name}")


def test_removed(folder: Folder) -> None:
    folder.write("a", b"1")
    folder.write("b", b"1")
    folder.remove("a")
    assert folder.sizes() == {"b": 1}
    folder.remove()
    assert not folder.exists()


def test_a_finished_file_is_taken(folder: Folder, tmp_path: Path) -> None:
    folder.write("a", b"old")
    (tmp_path / "made").write_bytes(b"new")
    folder.take(tmp_path / "made", "a")
    assert folder.read("a") == b"new"


def test_a_folder_can_be_sent(folder: Folder) -> None:
    folder.write("a", b"1")
    assert pickle.loads(pickle.dumps(folder)).read("a") == b"1"


def test_what_a_killed_process_left_is_swept_away(tmp_path: Path) -> None:
    here = Folder(str(tmp_path))
    here.write("1.0.0", b"whole")
    (tmp_path / ".1.0.0.0123456789abcdef.part").write_bytes(b"ha")
    here.sweep()
    assert here.sizes() == {"1.0.0": 5}


def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Folder(str(tmp_path))
    here.write("a", b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InputError, match="cannot be reached: No space left on device"):
        here.write("a", b"new")
    assert here.sizes() == {"a": 3}
    assert here.read("a") == b"old"


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert as_place("votes.zarr") == str(tmp_path / "votes.zarr")
    assert as_place("s3://bucket/votes.zarr/") == "s3://bucket/votes.zarr"
    assert is_url("s3://bucket/votes.zarr")
    assert not is_url("C:/votes.zarr")
    with pytest.raises(InputError, match="output must be a path or a URL, got 3"):
        as_place(3, "output")


@pytest.mark.parametrize("place", ["nosuch://bucket/votes", "/proc/nobody/votes"])
def test_a_place_that_cannot_be_is_one_sentence(place: str) -> None:
    with pytest.raises(InputError, match=f"'{place}' cannot be reached"):
        Folder(place).write("a", b"1")

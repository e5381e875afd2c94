"""Places here and behind URLs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.refusals import refused

from privote.files import as_place, is_url, name_of
from privote.votes.cube import Ballots


@pytest.mark.parametrize(
    "url",
    [
        *("https://host/v.zarr?key=hunter2", "s3://me:hunter2@bucket/v.zarr", "s3://hunter2@b/v"),
        *("s3://me:hun/ter2@bucket/v.zarr", "zip://v.zarr::https://me:hunter2@host/v.zip"),
    ],
)
def test_a_url_that_may_hold_credentials_is_refused_and_not_repeated(url: str) -> None:
    for refuse in (lambda: as_place(url, "votes"), lambda: name_of(url, "votes")):
        with refused("votes") as caught:
            refuse()
        assert caught.value.argument == "votes"
        assert "ter2" not in str(caught.value)
    assert name_of("s3://bucket/votes.zarr") == "votes.zarr"
    assert name_of("hunter2@votes?.csv") == "hunter2@votes?.csv"  # a path


@pytest.mark.parametrize("scheme", ["file", "local"])
def test_a_url_of_this_machine_is_a_path(scheme: str, tmp_path: Path) -> None:
    assert as_place(f"{scheme}://{tmp_path}/votes.npy") == f"{tmp_path}/votes.npy"
    assert as_place(f"{scheme}://votes.npy") == str(Path("votes.npy").absolute())
    (tmp_path / "votes.zarr").mkdir()
    for name in ("votes.npy", "votes.zarr/zarr.json"):  # a pipe would wait for ever
        os.mkfifo(tmp_path / name)
        with refused("votes file"):
            Ballots.of(f"{scheme}://{tmp_path}/{name.removesuffix('/zarr.json')}")


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert as_place("votes.zarr") == str(tmp_path / "votes.zarr")
    assert as_place("s3://bucket/votes.zarr/") == "s3://bucket/votes.zarr"
    assert is_url("s3://bucket/votes.zarr")
    assert not is_url("C:/votes.zarr")
    assert not is_url("file:///votes.zarr")
    with refused("output", value=3):
        as_place(3, "output")

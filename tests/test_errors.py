from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from privote.errors import BallotError, ChargedError, InputError, PrivoteError, masked


def test_parts_are_data() -> None:
    error = InputError("sigma", "must be positive", -1)
    assert (error.argument, error.rule, error.shown) == ("sigma", "must be positive", "-1")
    assert InputError("no room").argument is None


@pytest.mark.parametrize(
    "error",
    [
        InputError("sigma", "must be positive", -1),
        BallotError("votes", "must be 0 or 1", sealed="voter 3"),
        ChargedError("no file was written", code="closed"),
    ],
)
def test_errors_come_whole_out_of_a_worker(error: PrivoteError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert vars(again) == vars(error)
    assert str(again) == str(error)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/votes.zarr", "s3://bucket/votes.zarr"),
        ("https://me:hunter2@host/v.npy", "https://***@host/v.npy"),
        ("https://me:hun/ter2@host:80/v.npy", "https://***@host:80/v.npy"),
        ("https://host/v.npy?X-Amz-Signature=hunter2", "https://host/v.npy?***"),
        ("s3:/me:hunter2@bucket/v.csv", "s3://***@bucket/v.csv"),  # as a path
        ("zip://v.npy::https://me:hunter2@host/v.zip?s=hunter2", "zip://***@host/v.zip?***"),
        ("votes?.csv", "votes?.csv"),
    ],
)
def test_no_message_repeats_what_a_url_keeps_secret(url: str, shown: str) -> None:
    assert masked(url) == shown
    for error in (
        InputError(f"{url!r} cannot be read"),
        InputError("votes", f"of {url} cannot be read"),
        InputError("votes", "must be a path", url),
    ):
        assert "hunter2" not in str(error) + str(error.shown)
        assert shown in str(error)


@pytest.mark.parametrize("mark", " '\"<>\t")
def test_a_secret_may_have_any_character(mark: str) -> None:
    for url in (f"s3://me:a{mark}hunter2@bucket/v.csv", f"s3://bucket/v.csv?key=a{mark}hunter2"):
        for value in (url, Path(url)):
            assert "hunter2" not in str(InputError("votes", "must be a file", value))

"""The keyed hash that sends records to parts: stable, fair, and blind to other records."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refused

from privote.datasets import keyed_parts
from privote.votes.names import identity

IDS = st.lists(st.integers(1 - 2**53, 2**53 - 1) | st.text().filter(identity), max_size=30)


def by_hand(name: Any, parts: int, key: bytes, purpose: bytes) -> int:
    """Return the part of one id, by its name, the key and the purpose alone."""
    mark, text = ("i" if identity(name).isdecimal() else "s"), identity(name)
    digest = blake2b((mark + text).encode(), key=key, person=purpose, digest_size=8).digest()
    return (int.from_bytes(digest, "big") * parts) >> 64


@given(
    ids=IDS,
    parts=st.integers(1, 1000),
    key=st.binary(min_size=1, max_size=64),
    purpose=st.sampled_from(["parts", "split", "here"]),
)
def test_a_part_is_blake2b_of_the_name(ids: list[Any], parts, key, purpose: str) -> None:
    found = keyed_parts(ids, parts, key=key, purpose=purpose)
    assert found.tolist() == [by_hand(name, parts, key, purpose.encode()) for name in ids]


def test_parts_are_those_of_every_other_machine() -> None:
    # Written down once: a change here would send every record of every user elsewhere.
    ids = ["patient00001", "patient00002", 17, "é"]
    assert keyed_parts(ids, 1000, key=b"key").tolist() == [845, 955, 733, 54]
    assert keyed_parts(ids, [0.5, 0.25, 0.25], key=b"key").tolist() == [2, 2, 1, 0]
    respelled = ["Patient00001 ", "PATIENT00002", 17.0, "017", np.str_("17"), "17.0"]
    assert keyed_parts(respelled, 1000, key=b"key").tolist() == [845, 955, *[733] * 4]
    four, shared = (keyed_parts(range(5000), parts, key=b"key") for parts in (4, [0.25] * 4))
    assert shared.tolist() == four.tolist()


@pytest.mark.parametrize(
    ("name", "value", "argument"),
    [
        *(("parts", value, "parts") for value in (0, True, [], [1.0, 0.0])),
        ("parts", [0.5, 0.6], None),
        *(("key", value, "key") for value in (b"", "text")),
        ("purpose", "p" * 17, "purpose"),
        *(("ids", value, "ids") for value in ("abc", np.zeros((2, 2), dtype=int))),
        *(
            ("ids", [1, value], "ids")
            for value in (2**60, 1e300, True, None, "\u200b", b"raw", [2])
        ),
    ],
)
def test_bad_input_is_named(name: str, value: Any, argument: str | None) -> None:
    with refused(argument):
        keyed_parts(**{"ids": [1, 2], "parts": 2, "key": b"key", name: value})

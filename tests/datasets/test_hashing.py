"""The keyed hash that sends records to parts: stable, fair, and blind to other records."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from tests.refusals import refused

from privote.datasets import keyed_parts

IDS = st.lists(st.integers() | st.text() | st.binary(), max_size=30)


def by_hand(kind: bytes, name: bytes, parts: int, key: bytes, purpose: bytes) -> int:
    digest = blake2b(kind + name, key=key, person=purpose, digest_size=8).digest()
    return (int.from_bytes(digest, "big") * parts) >> 64


@given(number=st.integers(), text=st.text(), parts=st.integers(1, 1000), key=st.binary(min_size=1))
def test_a_part_is_blake2b_of_kind_and_name(number: int, text: str, parts: int, key: bytes) -> None:
    key = key[:64]
    found = keyed_parts([number, text], parts, key=key, purpose="here")
    assert found.tolist() == [
        by_hand(b"i", str(number).encode(), parts, key, b"here"),
        by_hand(b"s", text.encode(), parts, key, b"here"),
    ]


def test_parts_are_those_of_every_other_machine() -> None:
    # Written down once: a change here would send every record of every user elsewhere.
    ids = ["patient00001", "patient00002", 17, b"raw", "é"]
    assert keyed_parts(ids, 1000, key=b"key").tolist() == [845, 955, 733, 226, 54]
    assert keyed_parts(ids, [0.5, 0.25, 0.25], key=b"key").tolist() == [2, 2, 1, 0, 0]


@given(ids=IDS, seed=st.integers(0, 2**32 - 1))
def test_order_and_company_do_not_matter(ids: list[Any], seed: int) -> None:
    parts = keyed_parts(ids, 7, key=b"key")
    order = np.random.default_rng(seed).permutation(len(ids))
    shuffled = keyed_parts([ids[i] for i in order], 7, key=b"key")
    assert shuffled.tolist() == parts[order].tolist()
    assert [int(keyed_parts([one], 7, key=b"key")[0]) for one in ids] == parts.tolist()


def test_numbers_texts_and_bytes_are_different_ids() -> None:
    numbers, texts, raw = (
        keyed_parts([kind(i) for i in range(100)], 1000, key=b"key")
        for kind in (int, str, lambda i: str(i).encode())
    )
    for one, two in [(numbers, texts), (numbers, raw), (texts, raw)]:
        assert (one == two).sum() < 5
    mixed = keyed_parts([7, "7", b"7"], 1000, key=b"key")
    assert mixed.tolist() == [numbers[7], texts[7], raw[7]]
    for dtype in (np.int64, np.int32, np.uint8, object, np.str_):  # in any width
        same = texts if dtype is np.str_ else numbers
        assert keyed_parts(np.arange(100).astype(dtype), 1000, key=b"key").tolist() == same.tolist()


@pytest.mark.parametrize("other", [{"key": b"yek"}, {"key": b"key", "purpose": "other"}])
def test_key_and_purpose_set_cuts_apart(other: dict[str, Any]) -> None:
    half = keyed_parts(range(4000), 2, key=b"key")
    assert abs((half == keyed_parts(range(4000), 2, **other)).mean() - 0.5) < 0.04


@pytest.mark.parametrize("parts", [50, [0.6, 0.3, 0.1], [1 / 3, 1 / 3, 1 / 3]])
def test_chances_are_as_asked(parts: int | list[float]) -> None:
    sizes = np.bincount(keyed_parts(range(50_000), parts, key=b"key"))
    chances = np.full(parts, 1 / parts) if isinstance(parts, int) else np.array(parts)
    assert chisquare(sizes, 50_000 * chances / chances.sum()).pvalue > 1e-3


def test_equal_shares_are_equal_parts() -> None:
    four, shared = (keyed_parts(range(5000), parts, key=b"key") for parts in (4, [0.25] * 4))
    assert shared.tolist() == four.tolist()
    assert keyed_parts(range(5), 1, key=b"key").tolist() == [0] * 5
    assert keyed_parts([], 4, key=b"key").shape == (0,)


@pytest.mark.parametrize(
    ("name", "value", "argument"),
    [
        *(("parts", value, "parts") for value in (0, True, [], [1.0, 0.0])),
        ("parts", [0.5, 0.6], None),
        *(("key", value, "key") for value in (b"", "text")),
        ("purpose", "p" * 17, "purpose"),
        *(("ids", value, "ids") for value in ("abc", np.zeros((2, 2), dtype=int))),
        ("ids", np.array(["2020-01-01"], dtype="datetime64[ns]"), "ids"),
        *(("ids", value, None) for value in ([1, 2.0], [True])),
    ],
)
def test_bad_input_is_named(name: str, value: Any, argument: str | None) -> None:
    with refused(argument):
        keyed_parts(**{"ids": [1, 2], "parts": 2, "key": b"key", name: value})

"""The layout of products: how many ciphertexts answer, and which chunks are safe."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privote.capc import programs as ballot
from privote.capc.programs import (
    SLOTS,
    BallotProgram,
    responses,
    single_response,
    single_response_rows,
)
from privote.errors import InputError


def most_rows(**sizes: int | None) -> int:
    return BallotProgram(rows=1, **sizes).most_rows  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        # Counted on the wire with spu 0.9.5 (see tests/contracts/test_secure_engine.py).
        ((5, 294, 6), 2),
        ((512, 64, 20), 2),
        ((100, 100, 1), 2),
        ((512, 3, 6), 2),
        ((256, 64, 64), 2),
        ((1024, 16, 16), 2),
        ((128, 64, 64), 1),
        ((256, 16, 16), 1),
    ],
)
def test_responses_as_on_the_wire(sizes: tuple[int, int, int], count: int) -> None:
    assert responses(*sizes) == count


def test_rows_within_one_polynomial_are_not_enough() -> None:
    assert 5 * 6 < SLOTS
    assert not single_response(5, 294, 6)


@pytest.mark.parametrize(
    ("labels", "hidden", "rows"), [(20, None, 256), (20, 64, 128), (6, None, 1024), (128, 20, 64)]
)
@pytest.mark.parametrize("features", [3, 294, 512])
def test_chunk_is_a_power_of_two(labels: int, hidden: int | None, rows: int, features: int) -> None:
    assert most_rows(features=features, labels=labels, hidden=hidden) == rows


@given(
    features=st.integers(1, 700),
    labels=st.integers(8, 60),
    hidden=st.none() | st.integers(8, 60),
    share=st.floats(0.001, 1.0),
)
def test_padded_rows_are_safe(features: int, labels: int, hidden: int | None, share: float) -> None:
    most = most_rows(features=features, labels=labels, hidden=hidden)
    rows = max(1, int(share * most))
    padded = BallotProgram(rows=rows, features=features, labels=labels, hidden=hidden).padded()
    assert rows <= padded.rows <= most
    products = [(features, labels)] if hidden is None else [(features, hidden), (hidden, labels)]
    for product in products:
        assert single_response(padded.rows, *product)


def test_padding_looks_at_few_numbers_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Safe numbers of rows may be hundreds apart, and each look costs a fraction of a second."""
    looks = []

    def counted(*sizes: int) -> bool:
        looks.append(sizes)
        return single_response(*sizes)

    monkeypatch.setattr(ballot, "single_response", counted)
    padded = BallotProgram(rows=1111, features=8, labels=3, hidden=3).padded()
    assert 1111 < padded.rows <= most_rows(features=8, labels=3, hidden=3)
    assert len(looks) < 30


def test_too_wide_for_any_chunk() -> None:
    with pytest.raises(InputError, match="fit one ciphertext"):
        single_response_rows(((4, SLOTS + 1),))

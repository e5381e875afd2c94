"""Which programs are refused, and which chunks are safe; what they compute: test_coalition."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privote.capc.programs import (
    SLOTS,
    AllowanceProgram,
    BallotProgram,
    DecisionProgram,
    program_of,
    responses,
    single_response,
    single_response_rows,
)
from privote.errors import InputError


def test_chunks_of_decisions_are_bounded() -> None:
    def allowance(parties: int, labels: int) -> int:
        return AllowanceProgram(rows=1, parties=parties, voters=parties, labels=labels).most_rows

    assert DecisionProgram(rows=1, labels=20).most_rows * 20 <= 1 << 15
    assert allowance(50, 20) * 20 * 50 <= 1 << 17
    assert allowance(1, 1) <= 1024
    assert allowance(1 << 10, 1 << 10) == 1


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


ONE = {"rows": 1, "parties": 1, "voters": 2, "labels": 2}
BALLOT = {"rows": 2, "features": 8, "labels": 2}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        *(("decision", {"rows": rows, "labels": 20}) for rows in (0, True, 2.5, 1 << 20)),
        ("ballot", {"rows": 512, "features": 8, "labels": 20}),
        ("ballot", {"rows": 1, "features": 4, "labels": SLOTS + 1}),
        *(("ballot", {**BALLOT, "weights": w}) for w in ([0, 1], [0, 1, -1], [0, 1, 1 << 50])),
        *(("allowance", {**ONE, "charged": charged}) for charged in ([1, 1], [-1], [1 << 50])),
        ("allowance", {**ONE, "grid": 1 << 50}),
    ],
)
def test_refused(name: str, parameters: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        program_of(name, parameters)


@given(features=st.integers(1, 700), labels=st.integers(8, 60), share=st.floats(0.001, 1.0))
def test_padded_rows_are_safe(features: int, labels: int, share: float) -> None:
    most = single_response_rows(features, labels)
    rows = max(1, int(share * most))
    padded = BallotProgram(rows=rows, features=features, labels=labels).padded()
    assert rows <= padded.rows <= most
    assert single_response(padded.rows, features, labels)
    assert not single_response(5, 294, 6), "rows within one polynomial are not enough"

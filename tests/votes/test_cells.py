"""Cells: the same from every type that a column may have had."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privote.errors import InputError
from privote.votes.cells import ODD, YesNo, canonical, day, is_gap, name_of, number, word

ZONE = datetime.timezone(datetime.timedelta(hours=5))
MISSING = (None, float("nan"), np.float32("nan"), pd.NA, pd.NaT, np.datetime64("NaT"), "", " \t")
ALIKE: dict[str, tuple[Any, ...]] = {
    "250": (250, 250.0, np.int8(-6) + 256, np.float32(250), Decimal("250.00"), "250", "250.00"),
    "250.1": (250.1, "250.10", " 250.1 ", Decimal("250.1"), np.float64(250.1)),
    "9.00719925474e+15": (2**53 + 1, float(2**53), str(2**53 + 1)),
    "7": (7, "007", "7.", "+7"),
    "1": (True, np.True_, "TRUE", "true", 1),
    "v27": ("V27", " v27"),
    "nb": ("NB", "nb"),
    "2024-01-31": (
        datetime.date(2024, 1, 31),
        datetime.datetime(2024, 1, 31, 13, 5, tzinfo=ZONE),
        pd.Timestamp("2024-01-31"),
        np.datetime64("2024-01-31T01:02:03", "ns"),
        "2024-01-31",
        "2024-01-31 00:00:00",
        "2024-01-31T10:00:00.5Z",
    ),
}


@pytest.mark.parametrize("kind", ALIKE)
def test_a_word_is_the_same_from_every_type(kind: str) -> None:
    assert {word(cell) for cell in ALIKE[kind]} == {kind}
    assert all(canonical(canonical(cell)) == canonical(cell) for cell in ALIKE[kind])


def test_gaps() -> None:
    assert all(map(is_gap, MISSING))
    assert [word(cell) for cell in MISSING] == [number(c) for c in MISSING] == [None] * 8
    assert [day(cell) for cell in MISSING] == [None] * 8
    assert [canonical("NA"), number("NA"), day("None"), word("NA")] == ["NA", None, None, None]
    assert not any(map(is_gap, (0, False, "NA", [], [None])))


def test_numbers_and_days() -> None:
    assert [number(c) for c in ("1.5", "1e3", True, "TRUE", 4)] == [1.5, 1000.0, 1.0, 1.0, 4.0]
    assert [day(cell) for cell in ALIKE["2024-01-31"]] == [19753.0] * 7
    assert day("31/01/2024", "%d/%m/%Y") == 19753.0
    for cell in ("1_000", "x", "1,5", "\u0661", "inf", 1e31, datetime.date(2024, 1, 31)):
        with pytest.raises(ValueError):  # noqa: PT011
            number(cell)
    for cell in ("31/01/2024", "20240131", 5, "2024-02-30"):
        with pytest.raises(ValueError):  # noqa: PT011
            day(cell)
    for cell in ([1], (1,), {}, {1}, np.zeros(2), b"1"):
        with pytest.raises(TypeError):
            canonical(cell)


def test_what_a_cell_says() -> None:
    says = YesNo()
    assert [
        says[cell] for cell in ("1", "Yes", " TRUE ", "y", "X", "\u2713", True, np.True_, 1.0)
    ] == [1] * 9
    assert [says[cell] for cell in ("0", "NO", "false", "n", False, 0, "0.0")] == [0] * 7
    gaps = ("", " ", "-", "NaN", "n/a", None, float("nan"), pd.NA, pd.NaT, np.float32("nan"), -1)
    assert [says[cell] for cell in (*gaps, "-1", "None")] == [-1] * 13
    assert [says[cell] for cell in ("maybe", 2, 0.5, b"1", "01")] == [ODD] * 5
    assert says.read([[1], "yes", None]).tolist() == [ODD, 1, -1]
    features = YesNo(ticks=False)
    assert [features[cell] for cell in ("x", "t", "f", "-", "none")] == [ODD] * 5
    assert [features[cell] for cell in ("yes", "No", "nan")] == [1, 0, -1]
    assert "maybe" not in says  # what strangers write is not kept


def test_what_a_name_is() -> None:
    assert [name_of(cell) for cell in (" a ", "'=b", 7, 7.0, np.int8(7), None, float("nan"))] == [
        "a", "=b", "7", "7", "7", "", "",
    ]  # fmt: skip
    for odd in (True, 2**53, 1e17):
        with pytest.raises(InputError):
            name_of(odd)

"""Sheets: the same cells and places from every source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.refusals import refused

import privote as pv
from privote.datasets.tables import raw_table
from privote.errors import InputError
from privote.votes.tables import (
    ODD,
    CSVFile,
    Sheet,
    YesNo,
    is_gap,
    name_of,
    open_sheet,
)


def whole(sheet: Sheet) -> tuple[list[int], list[list[Any]]]:
    blocks = list(sheet.blocks())
    places = [place for held, _ in blocks for place in held]
    columns = [[c for _, held in blocks for c in held[i]] for i in range(len(sheet.header))]
    return places, columns


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("rows", [1, 2, 100])
def test_lines_are_those_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, separator: str, rows: int
) -> None:
    text = 'a,b\n1,2\n\n"two\nlines",3\n , \n\n4,5'.replace(",", separator)
    (tmp_path / "t.csv").write_text(text)
    monkeypatch.setattr("privote.votes.tables._ROWS", rows)
    sheet = CSVFile(tmp_path / "t.csv")
    assert sheet.header == ("a", "b")
    places, columns = whole(sheet)
    assert places == [2, 4, 6, 8]
    assert columns == [["1", "two\nlines", " ", "4"], ["2", "3", " ", "5"]]
    assert sheet.where(4, "a") == "t.csv, line 4, column 'a'"
    assert whole(sheet) == (places, columns)  # as often as one likes


def test_a_tab_file_keeps_its_commas(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("a, b, c\td\n1\t2\n")
    assert CSVFile(tmp_path / "t.tsv").header == ("a, b, c", "d")


def test_sources_are_alike() -> None:
    columns = {"a": [1, 2], "b": ["x", None]}
    frame = pd.DataFrame(columns)
    for source in (columns, frame, [{"a": 1, "b": "x"}, {"a": 2}]):
        sheet = open_sheet(source, "it")
        assert sheet.header == ("a", "b")
        places, (a, b) = whole(sheet)
        assert (places, a, b[0]) == ([0, 1], [1, 2], "x")
        assert is_gap(b[1])
    with refused("it"):
        open_sheet({"a": [1], "b": [1, 2]}, "it")
    with refused("it"):
        open_sheet(5, "it")
    with pytest.raises(InputError, match="two columns are called '1'"):
        open_sheet(pd.DataFrame([[1, 2]], columns=[1, "1"]), "it")


@pytest.mark.parametrize("name", ["votes.xlsx", "votes.XLS", "votes.ods", "votes.txt"])
def test_a_spreadsheet_is_to_be_saved_as_csv(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"PK")
    with pytest.raises(pv.InputError) as caught:
        pv.Ballots.of(tmp_path / name)
    assert ("save the sheet as CSV first" in str(caught.value)) is (name != "votes.txt")
    with pytest.raises(pv.InputError) as caught:
        raw_table(tmp_path / name)
    assert ("save the sheet as CSV first" in str(caught.value)) is (name != "votes.txt")


def test_what_a_cell_says() -> None:
    says = YesNo()
    assert [says[cell] for cell in ("1", "Yes", " TRUE ", "y", "X", "✓", True, np.True_, 1.0)] == [
        1
    ] * 9
    assert [says[cell] for cell in ("0", "NO", "false", "n", False, 0, "0.0")] == [0] * 7
    gaps = ("", " ", "-", "NaN", "n/a", None, float("nan"), pd.NA, pd.NaT, np.float32("nan"), -1)
    assert [says[cell] for cell in (*gaps, "-1", "None")] == [-1] * 13
    assert [says[cell] for cell in ("maybe", 2, 0.5, b"1", "01")] == [ODD] * 5
    features = YesNo(ticks=False)
    assert [features[cell] for cell in ("x", "t", "f", "-", "none")] == [ODD] * 5
    assert [features[cell] for cell in ("yes", "No", "nan")] == [1, 0, -1]
    assert "maybe" not in says  # what strangers write is not kept


def test_what_a_name_is() -> None:
    assert [name_of(cell) for cell in (" a ", "'=b", 7, 7.0, np.int8(7), None, float("nan"))] == [
        "a", "=b", "7", "7", "7", "", "",
    ]  # fmt: skip

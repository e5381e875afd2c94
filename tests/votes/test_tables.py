"""Sheets: the same cells and places from every source."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.refusals import refused

import privote as pv
from privote.datasets.tables import raw_table
from privote.errors import InputError
from privote.votes import arrays as votefiles
from privote.votes.cells import is_gap
from privote.votes.tables import RawTable, open_table


def whole(sheet: RawTable) -> tuple[list[int], list[list[Any]]]:
    return sheet.places.tolist(), [cells.tolist() for cells in sheet.cells]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_lines_are_those_of_the_file(tmp_path: Path, separator: str) -> None:
    text = 'a,b\n1,2\n\n"two\nlines",3\n , \n\n4,5'.replace(",", separator)
    (tmp_path / "t.csv").write_text(text)
    sheet = open_table(tmp_path / "t.csv")
    assert sheet.header == ("a", "b")
    columns = [["1", "two\nlines", " ", "4"], ["2", "3", " ", "5"]]
    assert whole(sheet) == ([2, 4, 6, 8], columns)
    assert sheet.at(1, "a") == "t.csv, line 4, column 'a'"


def test_a_tab_file_keeps_its_commas(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("a, b, c\td\n1\t2\n")
    assert open_table(tmp_path / "t.tsv").header == ("a, b, c", "d")


def test_sources_are_alike(tmp_path: Path) -> None:
    columns = {"a": [1, 2], "b": ["x", None]}
    frame = pd.DataFrame(columns)
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    records = [{"a": 1, "b": "x"}, {"a": 2, "hiv": 1}]
    for source in (columns, frame, pa.table(columns), records, tmp_path / "t.parquet"):
        sheet = open_table(source, "it", columns=("a", "b"))
        assert sheet.header == ("a", "b")
        places, (a, b) = whole(sheet)
        assert (places, a, b[0]) == ([0, 1], [1, 2], "x")
        assert is_gap(b[1])
    for odd in ({"a": [1], "b": [1, 2]}, {"a": "xy"}, {1: [1], "1": [2]}, 5, [], [{}, 5], records):
        with refused("it"):
            open_table(odd, "it")
    with refused("it"):
        open_table(pd.DataFrame([[1, 2]], columns=[1, "1"]), "it")


@pytest.mark.parametrize("name", ["votes.xlsx", "votes.XLS", "votes.ods"])
def test_what_is_no_table_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"PK")
    for read in (pv.Ballots.of, raw_table):
        with refused(kind=InputError):
            read(tmp_path / name)


FORMS = {
    "a row a ballot": "query,voter,x,y\nq10,anna,yes,no\nq2,anna,1,\nq2,bob,0,TRUE\nq10,bob,,0\n",
    "semicolons": "voter;query;x;y\nbob;q10;NaN;0\nanna;q2;1;\nbob;q2;0;1\nanna;q10;1;0\n",
    "a mark and blanks": (
        "\ufeffquery, voter ,x,y\n\n q10 ,anna, 1 ,0\nq2,anna,1,\n,,,\nq2, bob,0,1\nq10,bob,-1,0\n"
    ),
}
CUBE = [[[1, -1], [0, 1]], [[1, 0], [-1, 0]]]  # q2, q10 by anna, bob by x, y


def sheet(folder: Path, text: str, name: str = "votes.csv", **options: Any) -> pv.Ballots:
    (folder / name).write_text(text, encoding="utf-8")
    return votefiles.read(folder / name, **options)


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_several_queries(form: str, tmp_path: Path) -> None:
    ballots = sheet(tmp_path, FORMS[form])
    assert ballots.to_array().tolist() == CUBE
    assert ballots.query_names == ("q2", "q10")  # by their names, not by their rows
    assert ballots.voter_names == ("anna", "bob")
    assert ballots.label_names == ("x", "y")
    assert ballots.missing
    assert "anna" not in repr(ballots)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize(
    ("text", "ballots", "voters"),
    [
        *(
            (f"{head},x,y\nbob,0,1\nanna,1,no\n", [[1, 0], [0, 1]], ("anna", "bob"))
            for head in ("", "voter", "Name", "id")
        ),
        ("voter;x;Gr\u00fcn\nann;x;\nbo;✓;-\n", [[1, -1], [1, -1]], ("ann", "bo")),
        ("x\ty\n0\t1\n1\t\n", [[0, 1], [1, -1]], None),
        ("x\n0\n1\n", [[0], [1]], None),
    ],
)
def test_one_query(
    tmp_path: Path, text: str, ballots: list[list[int]], voters: Any, encoding: str
) -> None:
    path = tmp_path / ("votes.tsv" if "\t" in text else "votes.csv")
    path.write_text(text, encoding=encoding)
    found: Any = pv.Ballots.of(path)
    assert found.to_array().tolist() == [ballots]
    assert (found.voter_names, found.query_names) == (voters, None)
    header = re.split("[,;\t]", text.partition("\n")[0])
    assert found.label_names == tuple(header[-len(ballots[0]) :])


def test_probabilities_with_a_threshold_a_label(tmp_path: Path) -> None:
    text = "id;x;y\n1;0,5;0\n2;0.2;1\n3;;1e-3\n"
    assert sheet(tmp_path, text, threshold=[0.4, 0.001]).to_array().tolist() == [
        [[1, 0], [0, 1], [-1, 1]]
    ]


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "query": [10, 2, 2, 10],
            "voter": ["anna", "anna", "bob", "bob"],
            "x": [True, True, False, None],
            "y": [0.0, np.nan, 1.0, 0.0],
        }
    )


def test_data_frames() -> None:
    arrow = pa.Table.from_pandas(frame(), preserve_index=False)
    mixed = frame().sample(frac=1)
    for given in (frame(), frame().set_index(["query", "voter"]), mixed, arrow):
        ballots: Any = pv.Ballots.of(given)
        assert ballots.to_array().tolist() == CUBE
        assert (ballots.query_names, ballots.voter_names) == (("2", "10"), ("anna", "bob"))
    index = pd.Index(["bob", "anna"], name="voter")
    wide = pd.DataFrame([[1, 0], [0, 1]], index=index, columns=["x", "y"])
    named: Any = pv.Ballots.of(wide)
    assert named.to_array().tolist() == [[[0, 1], [1, 0]]]
    assert named.voter_names == ("anna", "bob")
    soft: Any = pv.Ballots.of(wide * 0.5, threshold=0.5)
    assert soft.to_array().tolist() == [[[0, 1], [1, 0]]]
    with refused("votes, row 1, column 'y'", pv.BallotError):
        pv.Ballots.of(frame().assign(y=[0, 3, 1, 0]))


SOME = "query,voter,x\n1,a,1\n1,B,0\n02,A,1\n"


def test_ballots_may_be_missing_where_public_lists_name_everybody(tmp_path: Path) -> None:
    (tmp_path / "queries.txt").write_text("3\n2\n1\n")
    (tmp_path / "voters.csv").write_text("name,voter\nx,b\ny,a\nz,c\n")
    lists: dict[str, Any] = {
        "queries_from": tmp_path / "queries.txt",
        "voters_from": tmp_path / "voters.csv",
    }
    ballots = sheet(tmp_path, SOME, **lists)
    assert (ballots.query_names, ballots.voter_names) == (("3", "2", "1"), ("b", "a", "c"))
    assert ballots.to_array()[..., 0].tolist() == [[-1, -1, -1], [-1, 1, -1], [0, 1, -1]]
    one = sheet(tmp_path, "voter,x\nb,1\n", voters_from=["a", "b"])
    assert one.to_array().tolist() == [[[-1], [1]]]
    for name in lists:
        with refused(kind=InputError):
            sheet(tmp_path, SOME, **{name: lists[name]})  # one list alone
    with refused("queries_from", InputError):
        sheet(tmp_path, "voter,x\nb,1\n", queries_from=["1"])
    with refused("queries_from", InputError):
        sheet(tmp_path, SOME, **{**lists, "queries_from": ["1", "01"]})
    with refused("voters_from", InputError):
        pv.Ballots.of(np.zeros((1, 2, 1)), voters_from=["a", "b"])
    with refused("votes.csv, line 4, column 'query'", pv.BallotError) as error:
        sheet(tmp_path, SOME, **{**lists, "queries_from": ["1", "3"]})
    assert "02" not in str(error.value)


def test_types_of_columns_say_nothing(tmp_path: Path) -> None:
    whole = pd.DataFrame({"voter": ["a", "b"], "x": [1, 0], "y": [True, False]})
    gap = pd.DataFrame({"voter": ["a", "b", "c"], "x": [1, 0, None], "y": [True, False, None]})
    assert gap.x.dtype == np.float64
    for form in (whole, gap, pa.Table.from_pandas(gap), dict(gap)):
        ballots: Any = pv.Ballots.of(form, resolution=100)
        assert ballots.resolution == 1
        assert ballots.missing
        assert ballots.to_array()[0, :2].tolist() == [[1, 1], [0, 0]]
    soft: Any = pv.Ballots.of(whole, resolution=100, soft=True)
    assert soft.resolution == 100
    with refused("votes, row 0, column 'x'", pv.BallotError):
        pv.Ballots.of(whole.assign(x=[0.5, 0.0]))


def test_more_cells_than_a_file_can_tell_are_refused(tmp_path: Path) -> None:
    rows = "".join(f"q{i},v{i},1\nq{i},v{i + 1},1\n" for i in range(40_000))
    with refused("votes.csv"):
        sheet(tmp_path, "query,voter,x\n" + rows)


# -- names on their way to the release -------------------------------------------------------------

SETTINGS: dict[str, Any] = {
    "mechanism": pv.BinaryVoting(sigma=7.0),
    "epsilon": 8.0,
    "delta": 1e-5,
    "seed": 0,
    "guarantee": "allowance",
}


def big(queries: int = 6, voters: int = 20) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    query, voter = np.divmod(np.arange(queries * voters), voters)
    return pd.DataFrame(
        {
            "query": [f"case {q}" for q in query],
            "voter": [f"site {v}" for v in voter],
            **{name: rng.random(len(query)) < 0.2 for name in ("fever", "=cough")},
        }
    )


def test_names_travel_to_the_release_but_not_those_of_voters(tmp_path: Path) -> None:
    release, out = pv.label(big(), **SETTINGS), tmp_path / "out.npz"
    release.save(out)
    for one in (release, pv.Release.load(out)):
        assert one.label_names == ("fever", "=cough")
        assert one.query_names == tuple(f"case {q}" for q in range(6))
        assert "site" not in repr(one) + str(one.facts()) + one.statement() + one.summary()
    assert b"site" not in out.read_bytes()
    few = pv.label(big(), **{**SETTINGS, "queries": 2})
    assert few.query_names == ("case 0", "case 1")


def test_names_of_arrays(tmp_path: Path) -> None:
    votes = np.zeros((2, 3, 1), bool)
    names = {"voter_ids": ["a", "b", "c"], "label_names": ["x"], "query_names": [7, 8]}
    np.savez(tmp_path / "v.npz", votes=votes, **names)
    ballots = votefiles.read(tmp_path / "v.npz")
    assert ballots.head(1).query_names == ("7",)
    assert ballots.clip(1).voter_names == ("a", "b", "c")


SWAPPED = [(30, 1, 4), (2, 2001, 4), (40, 1000, 8), (50, 40, 1000)]
USUAL = [(1, 3000, 4), (400, 50, 20), (4000, 50, 1000), (2, 2, 2), (3, 100, 4), (40, 400, 8)]


@pytest.mark.parametrize("shape", [*SWAPPED, *USUAL])
def test_axes_that_look_swapped_are_a_warning(
    shape: tuple[int, ...], recwarn: pytest.WarningsRecorder
) -> None:
    pv.label(np.zeros(shape, bool), **SETTINGS)
    said = [one for one in recwarn if "are they in this order" in str(one.message)]
    assert bool(said) is (shape in SWAPPED)
    recwarn.clear()
    names = [f"v{n}" for n in range(shape[1])]  # say which axis is the voters'
    pv.label(np.zeros(shape, bool), voter_ids=names, **SETTINGS)
    named = [one for one in recwarn if "are they in this order" in str(one.message)]
    assert len(named) == (shape[1] == 1)


def test_a_first_line_that_reads_like_a_ballot_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "votes.csv"
    file.write_text("yes,no\n0,1\n1,1\n")
    with refused(None, pv.BallotError):
        pv.Ballots.of(file)
    file.write_text("voter,0,1\nanna,1,0\nbob,0,1\n")
    assert pv.Ballots.of(file).label_names == ("0", "1")

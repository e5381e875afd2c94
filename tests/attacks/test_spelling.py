"""What one cell does to the others through spelling, types and other libraries' words."""

from __future__ import annotations

import csv
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier

import privote as pv
from privote.datasets import Images
from privote.datasets.tables import raw_table
from privote.errors import InputError
from privote.learning.tables import TableEncoder
from privote.votes.names import identity
from privote.votes.tables import open_table


@pytest.mark.parametrize("spelled", ["q1", "Q1\u200b", "\uff311"])
def test_no_ballot_spells_or_orders_the_queries(tmp_path: Path, spelled: str) -> None:
    rows = [[f"Q{query}", f"v{voter}", 1] for query in (1, 2) for voter in range(9)]
    rows[0][0] = spelled
    with (tmp_path / "votes.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([["query", "voter", "flu"], *rows])
    votes = tmp_path / "votes.csv"
    with pytest.raises(InputError, match="spell"):
        pv.Ballots.of(votes)
    lists: Any = {"queries_from": ["Q1", "Q2"], "voters_from": [f"v{voter}" for voter in range(9)]}
    assert pv.Ballots.of(votes, **lists).query_names == ("Q1", "Q2")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("cells", "odd"),
    [
        (["10:30", "11:00"], "none"),
        (["0x1F", "0x2a"], "none"),
        (["2024-01-31T23:30:00-05:00", "2024-02-01T04:00:00+0530"], "none"),
        (["2024-01-31T23", "2024-02-02T10"], "none"),
        (["0.30000000000000004", "0.1"], "none"),
    ],
)
@pytest.mark.parametrize("library", ["pandas", "arrow"])
def test_a_type_that_one_cell_prevents_moves_no_other(
    cells: list[str], odd: str, library: str
) -> None:
    def read(texts: list[str]) -> Any:
        text = "c,k\n" + "".join(f"{cell},{row % 2}\n" for row, cell in enumerate(texts))
        if library == "pandas":
            return pytest.importorskip("pandas").read_csv(io.StringIO(text))
        return pytest.importorskip("pyarrow.csv").read_csv(io.BytesIO(text.encode()))

    encoder = TableEncoder().fit(raw_table(read(cells * 5), features=["c"]).X)
    before, after = (
        encoder.numbers(raw_table(read([*cells, last]), features=["c"]).X)[:-1]
        for last in (cells[0], odd)
    )
    assert before.tobytes() == after.tobytes()


@pytest.mark.parametrize(
    ("text", "typed"), [("1e5", 1e5), ("+5", 5), ("5.", 5.0), ("-0", 0), ("0x1F", 31)]
)
def test_a_name_is_the_same_whatever_its_column(text: str, typed: float) -> None:
    assert identity(text) == identity(typed) != ""


def test_a_name_that_its_column_writes_anew_is_refused() -> None:
    moment = np.datetime64("2024-01-31T10:30")
    assert [identity(name) for name in (1.5, moment, "1.50")] == ["", "", "1.50"]
    assert identity(np.datetime64("2024-01-31")) == identity("2024-01-31 00:00:00")


def test_what_arrow_says_of_a_cell_is_sealed() -> None:
    pa = pytest.importorskip("pyarrow")
    frame = pa.table({"born": pa.array([0, 98_765_432_100_000_000], pa.date64())})
    with pytest.raises(InputError) as refused:
        open_table(frame)
    assert "days" not in str(refused.value)


def test_no_picture_warns(tmp_path: Path) -> None:
    Image = pytest.importorskip("PIL.Image")
    picture = Image.new("P", (8, 8))
    picture.putpalette([0] * 768)
    picture.save(tmp_path / "a.png", transparency=b"\x00\x80")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Images(paths=[str(tmp_path / "a.png")], size=8)[:]


def test_no_teacher_warns_of_its_part() -> None:
    random = np.random.default_rng(0)
    X, public = random.normal(size=(80, 4)), random.normal(size=(20, 4))
    X[5] = [1e3, -1e3, 1e3, 1]
    teacher = MultiOutputClassifier(LogisticRegression(max_iter=2))
    model = pv.PATEClassifier(teacher, n_teachers=4, epsilon=8.0, delta=1e-5)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.fit(X, (X[:, :2] > 0).astype(int), public, seed=1)
    assert not [each for each in said if "converge" in str(each.message)]


@pytest.mark.parametrize("name", [["Ann"], ("Ann",), {"Ann": 1}, np.array(["Ann"])])
def test_a_voter_of_several_names_is_refused_as_any_cell_is(name: Any) -> None:
    with pytest.raises(InputError, match="row 1") as refused:
        pv.Ballots.of({"voter": ["Bo", name, "Cy"], "flu": [1, 0, 1]})
    assert "Ann" not in str(refused.value)

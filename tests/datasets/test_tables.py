"""Tables of features and labels, as users have them."""

import warnings

import numpy as np
import pandas as pd
import pytest
from tests.refusals import refused

from privote.datasets import RawTable, load_patients, pictures
from privote.datasets.tables import raw_table, table, write_table
from privote.errors import InputError, PrivoteWarning

CSV = "name,age,size,ill,tired,who\na,1,2.5,1,0,p\nb,3,4.5,0,,p\nc,5,6.5,-1,1,q\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(CSV)
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_of_numbers(file, tmp_path, kind):
    if kind == "parquet":
        csv, parquet = (pytest.importorskip(f"pyarrow.{name}") for name in ("csv", "parquet"))
        rows, file = csv.read_csv(file), tmp_path / "rows.parquet"
        parquet.write_table(rows, file)
    data = table(file, labels=["ill", "tired"], id_column="name", group_column="who")
    assert data.X.tolist() == [[1, 2.5], [3, 4.5], [5, 6.5]]
    assert data.Y.tolist() == [[1, 0], [0, -1], [-1, 1]]
    assert data.ids.tolist() == ["a", "b", "c"]
    assert data.groups.tolist() == ["p", "p", "q"]


def test_arrays_and_what_is_no_table(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, X=np.ones((4, 2)), Y=np.eye(4, 3, dtype=int), ids=np.arange(10, 14))
    data = table(path)
    assert data.label_names == ("label_0", "label_1", "label_2")
    assert data.ids.tolist() == [10, 11, 12, 13]
    np.savez(path, X=np.ones((4, 2)))
    assert table(path).Y.shape == (4, 0)
    for wrong in ({"Y": np.eye(4)}, {"X": np.ones(4)}):
        np.savez(path, **wrong)
        with pytest.raises(InputError, match=r"a\.npz"):
            table(path)
    with refused("file"):
        table(tmp_path / "a.csv")


@pytest.mark.parametrize(("text", "column"), [(CSV, "who"), (CSV.replace("2.5", "nan"), "size")])
def test_what_is_no_number_is_refused_by_place(tmp_path, text, column):
    (tmp_path / "bad.csv").write_text(text)
    with refused(f"bad.csv, line 2, column {column!r}"):
        table(tmp_path / "bad.csv", labels=["ill"], features=[column])


WORDS = "id,person,sex,since,flu,cold\n1,p,f,2024-01-31,yes,\n2,p,,2024-02-01,no,1\n3,q,m,,,0\n"
ROLES = {"labels": ["flu", "cold"], "id_column": "id", "group_column": "person"}


def test_words_dates_and_gaps_stay_what_they_are(tmp_path):
    (tmp_path / "rows.csv").write_text(WORDS)
    data = raw_table(tmp_path / "rows.csv", **ROLES)
    assert isinstance(data.X, RawTable)
    assert data.X.shape == (3, 2)
    assert data.X.columns["sex"].tolist() == ["f", "", "m"]
    assert data.Y.tolist() == [[1, -1], [0, 1], [-1, 0]]
    some = data.take([2])
    assert some.X.at(0, "sex") == "rows.csv, line 4, column 'sex'"
    assert some.X.columns["since"].tolist() == [""]
    frame = pd.read_csv(tmp_path / "rows.csv")
    for other in (frame, frame.to_dict("list"), frame.to_dict("records")):
        again = raw_table(other, features=["sex", "since"], **ROLES)
        assert again.Y.tolist() == data.Y.tolist()
        assert again.ids.tolist() == data.ids.tolist()
        assert again.X.at(0, "sex") == "table, row 0, column 'sex'"


@pytest.mark.parametrize("gap", [None, np.nan, pd.NaT, pd.NA, "", "NA"])
def test_a_gap_is_an_unknown_label_in_every_form(tmp_path, gap):
    rows = [{"x": 1, "flu": 1}, {"x": 2, "flu": gap}, {"x": 3}]
    pd.DataFrame(rows).to_csv(tmp_path / "rows.csv")
    for source in (rows, pd.DataFrame(rows), tmp_path / "rows.csv"):
        data = table(source, labels=["flu"], features=["x"])
        assert data.Y.tolist() == [[1], [-1], [-1]]
    np.savez(tmp_path / "rows.npz", X=np.ones((2, 1)), Y=[[1], [np.nan]])
    assert table(tmp_path / "rows.npz").Y.tolist() == [[1], [-1]]


def test_which_keys_occur_in_records_decides_nothing():
    rows = [{"x": 1, "flu": 1}, {"x": 2, "flu": 0, "hiv": 1, ("odd", "key"): 2, True: 3}]
    with refused("table"):
        table(rows, labels=["flu"])
    data = table(rows, labels=["flu"], features=["x"])
    assert data.feature_names == ("x",)
    with refused("table, row 1, column 'hiv'"):
        table(rows[::-1], labels=["flu"], features=["x", "hiv"])


@pytest.mark.parametrize("columns", [{"id_column": "who"}, {"group_column": "who"}])
def test_a_name_is_a_text_or_a_number_that_no_type_rounds(columns):
    for cell in ("", None, 2**60, 2.0**60, True, [1]):
        with refused("table, row 1, column 'who'"):
            table({"who": [7, cell], "x": [1, 2]}, features=["x"], **columns)
    whole = {"who": ["007", 7.0], "x": [1, 2]}
    if "id_column" in columns:
        with refused(None):
            table(whole, **columns)
    else:
        assert table(whole, **columns).groups.tolist() == ["7", "7"]


def test_names_of_private_pictures_stand_in_no_message(tmp_path):
    for name in ("ann.png", "bob.png"):
        (tmp_path / name).touch()
    for cells in (["ann.png"], ["ann.png", "zoe.png"], ["ann.png", "ann"]):
        with refused() as caught:
            pictures(tmp_path, {"file": cells, "flu": [1] * len(cells)})
        assert not any(name in str(caught.value) for name in ("ann", "bob", "zoe"))
        assert "n" in caught.value.sealed


def test_what_is_written_is_read(tmp_path):
    data = load_patients(60, seed=3)
    write_table(tmp_path / "p.csv", data)
    roles = {"labels": data.label_names, "id_column": "id", "group_column": "person"}
    again = raw_table(tmp_path / "p.csv", **roles)
    assert np.array_equal(again.Y, data.Y)
    assert again.ids.tolist() == data.ids.tolist()
    assert again.groups.tolist() == data.groups.tolist()
    for name, column in data.X.columns.items():
        assert again.X.columns[name].tolist() == column.tolist()


@pytest.mark.parametrize(
    ("column", "warned"),
    [
        *((name, True) for name in ("patient_id", "PatientID", "Last name")),
        *((name, False) for name in ("code", "age", "drug name")),  # whatever the cells are
    ],
)
def test_a_head_that_names_somebody_is_a_warning(column, warned):
    rows = {column: [f"A{i}" for i in range(30)], "x": ["1"] * 30}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        raw_table(rows)
        raw_table(rows, features=["x"])  # who says what a feature is means it
    assert [one.category for one in said] == [PrivoteWarning] * warned
    if warned:
        assert f"table: {column!r} looks like names" in str(said[0].message)

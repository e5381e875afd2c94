"""Tables of features and labels, as users have them."""

import numpy as np
import pytest

from privote.datasets.tables import table
from privote.errors import InputError

CSV = "name,age,size,ill,tired,who\na,1,2.5,1,0,p\nb,3,4.5,0,,p\nc,5,6.5,-1,1,q\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(CSV)
    return path


def test_csv(file):
    data = table(file, labels=["ill", "tired"], id_column="name", group_column="who")
    assert data.X.tolist() == [[1, 2.5], [3, 4.5], [5, 6.5]]
    assert data.Y.tolist() == [[1, 0], [0, -1], [-1, 1]]
    assert data.ids.tolist() == ["a", "b", "c"]
    assert data.groups.tolist() == ["p", "p", "q"]


def test_features_can_be_chosen(file):
    assert table(file, labels=["ill"], features=["size"]).X.shape == (3, 1)


def test_parquet_equals_csv(file, tmp_path):
    pytest.importorskip("pyarrow")
    from pyarrow import csv, parquet

    path = tmp_path / "rows.parquet"
    parquet.write_table(csv.read_csv(file), path)
    options = {"labels": ["ill", "tired"], "id_column": "name", "group_column": "who"}
    one, other = table(file, **options), table(path, **options)
    assert np.array_equal(one.X, other.X)
    assert np.array_equal(one.Y, other.Y)
    assert one.ids.tolist() == other.ids.tolist()


def test_npz(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, X=np.ones((4, 2)), Y=np.eye(4, 3, dtype=int), ids=np.arange(10, 14))
    data = table(path)
    assert data.label_names == ("label_0", "label_1", "label_2")
    assert data.ids.tolist() == [10, 11, 12, 13]
    np.savez(path, X=np.ones((4, 2)))
    assert table(path).Y.shape == (4, 0)


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        (CSV, {"labels": ["sick"]}, "no column 'sick'"),
        (
            CSV,
            {"labels": ["ill"], "features": ["who"]},
            "column 'who', row 0: a feature",
        ),
        (CSV.replace("-1", "2"), {"labels": ["ill"], "features": ["age"]}, "row 2: a label must"),
        (CSV.replace("2.5", "nan"), {"features": ["size"]}, "row 0: must be a finite"),
        ("a,b\n1\n", {}, "line 2: 1 values"),
        ("a,a\n1,2\n", {}, "two columns of one name"),
        ("", {}, "must have rows"),
        ("a\n", {}, "must have rows"),
    ],
)
def test_bad_tables_are_refused_by_place(tmp_path, text, options, words):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        table(path, **options)


def test_no_file_and_no_such_format(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        table(tmp_path / "a.csv")
    (tmp_path / "a.xls").write_text("")
    with pytest.raises(InputError, match="must end in"):
        table(tmp_path / "a.xls")
    (tmp_path / "a.npz").write_text("no")
    with pytest.raises(InputError, match="not a readable"):
        table(tmp_path / "a.npz")

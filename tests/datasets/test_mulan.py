"""ARFF as it is written in the wild, labels from the .xml; and the real files, if present."""

from __future__ import annotations

import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.io import arff as reference
from scipy.sparse import csr_array

from privote import datasets
from privote.datasets import mulan
from privote.datasets.mulan import read_arff
from privote.errors import InputError

Write = Callable[..., Path]

TOY = ["@relation toy", "@attribute x numeric", "@attribute y {0,1}", "@data"]
HEADER = (
    "@relation toy",
    "@attribute early {0,1}",
    "@attribute x numeric",
    "@attribute 'late one' {0,1}",
    "@attribute y numeric",
    "@data",
)
XML = (
    '<?xml version="1.0" encoding="utf-8"?>',
    '<labels xmlns="http://mulan.sourceforge.net/labels">',
    '<label name="late one"></label>',
    '<label name="early"></label>',
    "</labels>",
)


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        (["% by hand", "", *TOY, "1.5, 0", "% b", " -2e3 ,1 ", ""], [[1.5, 0.0], [-2000.0, 1.0]]),
        (["@RELATION t", "@ATTRIBUTE\tone\tREAL", "@attribute two INTEGER",
          "@attribute three{a,b}", "@DATA", "1,2,b"], [[1, 2, 1]]),
        (["@relation 'a toy'", r"@attribute 'it\'s, quoted' numeric",
          '@attribute "two words" {\'no never\',"yes"}', "@data", "'3',\"yes\"", "4,'no never'"],
         [[3, 1], [4, 0]]),
        ([*TOY, "?,1", "1, ?"], [[np.nan, 1], [1, np.nan]]),
        # Nominal numbers are themselves, words are places; a number may be written in another way.
        (["@relation t", "@attribute a {5,10}", "@attribute b {no,yes,5}", "@data", "10,5"],
         [[10, 2]]),
        ([*TOY, "3,1.0", "'4',1.0", "5,0"], [[3, 1], [4, 1], [5, 0]]),
        ([*TOY, "{0 1.5,1 1}", "{}", "{ 1 1 }", "{0 ?}"],
         [[1.5, 1], [0, 0], [0, 1], [np.nan, 0]]),
        # The first value of a list is what a sparse row omits.
        (["@relation t", "@attribute a {7,0}", "@attribute b real", "@data", "{1 5}", "{0 0}",
          "{}", "{0 ?}"], [[7, 5], [0, 0], [7, 0], [np.nan, 0]]),
    ],
)  # fmt: skip
def test_what_is_written_is_read(lines: list[str], rows: list[list[float]]) -> None:
    attributes, table = read_arff(lines, "toy.arff")
    np.testing.assert_array_equal(table, rows)
    assert attributes[0] in ("x", "one", "it's, quoted", "a")


@given(
    st.lists(
        st.tuples(
            st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["0", "1", "?"])
        ),
        min_size=1,
        max_size=20,
    )
)
def test_it_agrees_with_scipy_on_dense_files(rows: list[tuple[float, str]]) -> None:
    lines = [*TOY, *(f"{x!r},{y}" for x, y in rows)]
    _, found = read_arff(lines, "toy.arff")
    records, _ = reference.loadarff(StringIO("\n".join(lines)))
    np.testing.assert_array_equal(found[:, 0], records["x"])
    known = records["y"] != b"?"
    np.testing.assert_array_equal(found[known, 1], records["y"][known].astype(float))
    assert np.isnan(found[~known, 1]).all()


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (["hello"], 1),
        (["@relation t", "@attribute x numeric"], None),
        (["@relation t", "@data", "1"], 2),
        *((["@relation t", f"@attribute{rest}"], 2)
          for rest in ("", " x string", " x date", " x {a,,b}", " x {a")),
        *(([*TOY, "1,0", row], 6)
          for row in ("1", "1,0,", "1,2", "'4',0.5", "one,0", ",0", "5'3,0", "'3,0")),
        *(([*TOY, "{0 1}", row], 6) for row in
          ("1,0", "{0}", "{2 1}", "{-1 1}", "{0.5 1}", "{0 1,1}", "{0 1 1}", "{1 7}", "{0 1,0 2}")),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(lines: list[str], line: int | None) -> None:
    with pytest.raises(InputError) as caught:
        read_arff(lines, "toy.arff")
    assert line is None or f"toy.arff, line {line}:" in str(caught.value)


def test_labels_in_the_order_of_the_xml_and_the_rest_are_features(write: Write) -> None:
    write("toy.xml", *XML)
    data = datasets.open(f"mulan:{write('toy.arff', *HEADER, '1,2.5,0,3', '0,?,?,4')}")
    assert data.label_names == ("late one", "early")
    assert data.Y.tolist() == [[0, 1], [-1, 0]]
    assert data.feature_names == ("x", "y")
    assert (data.Y.dtype, data.X.dtype) == (np.int8, np.float32)
    np.testing.assert_array_equal(data.X, [[2.5, 3.0], [np.nan, 4.0]])
    assert data.ids.tolist() == ["toy:0", "toy:1"]
    assert data.groups is None


@pytest.mark.parametrize("name", ["toy-train.arff", "toy-test.arff", "toy.arff.gz"])
def test_the_xml_is_found_beside_the_file_or_given(write: Write, name: str) -> None:
    write("toy.xml", *XML)
    file = write(name, *HEADER, "1,2,0,3")
    assert mulan(file).label_names == ("late one", "early")
    nested = '<labels><label name="early"><label name="late one"/></label></labels>'
    assert mulan(file, write("else.xml", nested)).label_names == ("early", "late one")


@pytest.mark.parametrize("cells", [1 << 24, 3])
def test_a_sparse_file_is_the_same_data_as_the_dense_one(
    write: Write, monkeypatch: pytest.MonkeyPatch, cells: int
) -> None:
    monkeypatch.setattr(sys.modules["privote.datasets.mulan"], "_CELLS", cells)
    write("toy.xml", *XML)
    dense = mulan(write("toy.arff", *HEADER, "1,2.5,0,0", "0,0,1,4", "0,0,0,0"))
    data = mulan(write("toy-train.arff", *HEADER, "{0 1,1 2.5}", "{2 1,3 4}", "{}"))
    assert isinstance(data.X, csr_array) is (cells == 3)
    np.testing.assert_array_equal(data.X if cells > 3 else data.X.toarray(), dense.X)
    np.testing.assert_array_equal(data.Y, dense.Y)
    assert data.X.dtype == np.float32


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ('<label name="x"/></labels>', "'x' of record 0"),
        ('<label name="absent"/></labels>', "'absent'"),
        ("</labels>", "toy.xml"),
        ("", "toy.xml"),
    ],
)
def test_what_does_not_fit_is_named(write: Write, labels: str, message: str) -> None:
    write("toy.xml", f"<labels>{labels}")
    with pytest.raises(InputError, match=message):
        mulan(write("toy.arff", *HEADER, "1,2,0,3"))
    with pytest.raises(InputError, match=r"other\.xml.*http"):
        mulan(write("other-train.arff", *HEADER, "1,2,0,3"))
    with pytest.raises(InputError, match=r"nothing\.arff.*http"):
        mulan("nothing.arff")


@pytest.mark.parametrize(
    ("name", "shape", "labels", "cardinality"),
    [
        # Cardinality (labels per record) as the collection's own page lists it; scene as a whole.
        ("emotions", (593, 72), 6, 1.869),
        ("yeast", (2417, 103), 14, 4.237),
        ("tmc2007-500", (28596, 500), 22, 2.158),
        ("scene-train", (1211, 294), 6, None),
        ("scene-test", (1196, 294), 6, None),
    ],
)
def test_the_real_files(shared_data: Path, name: str, shape, labels: int, cardinality) -> None:
    data = mulan(shared_data / f"mulan_{name}.arff")
    assert data.X.shape == shape
    assert data.Y.shape == (shape[0], labels)
    assert set(np.unique(data.Y)) == {0, 1}
    assert name != "yeast" or data.label_names[3] == "Class6"  # the .xml has its own order
    if cardinality is not None:
        assert data.Y.sum(axis=1).mean() == pytest.approx(cardinality, abs=2e-3)

"""ARFF as it is written in the wild: dense, sparse, quoted, nominal, missing, commented."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.io import arff as reference

from privote.datasets.mulan import read_arff
from privote.errors import InputError

HEADER = ["@relation toy", "@attribute x numeric", "@attribute y {0,1}", "@data"]


def dense(*lines: str) -> list[list[float]]:
    table = read_arff(lines, "toy.arff")
    assert table.dense is not None
    return table.dense.tolist()


def sparse(*lines: str) -> tuple[int, list[tuple[int, int, float]]]:
    table = read_arff(lines, "toy.arff")
    assert table.entries is not None
    records, rows, columns, values = table.entries
    return records, list(zip(rows.tolist(), columns.tolist(), values.tolist(), strict=True))


def test_dense_rows_comments_and_blanks() -> None:
    lines = ["% made by hand", "", *HEADER, "1.5, 0", "% between", " -2e3 ,1 ", ""]
    assert dense(*lines) == [[1.5, 0.0], [-2000.0, 1.0]]


def test_keywords_in_capitals_tabs_and_types() -> None:
    lines = [
        "@RELATION toy",
        "@ATTRIBUTE\tone\tREAL",
        "@attribute two INTEGER",
        "@attribute three{a,b}",
        "@DATA",
        "1,2,b",
    ]
    assert dense(*lines) == [[1.0, 2.0, 1.0]]


def test_quoted_names_and_values() -> None:
    lines = [
        "@relation 'a toy'",
        r"@attribute 'it\'s, quoted' numeric",
        '@attribute "two words" {\'no, never\',"yes"}',
        "@data",
        "'3',\"yes\"",
        "4,'no, never'",
    ]
    table = read_arff(lines, "toy.arff")
    assert [attribute.name for attribute in table.attributes] == ["it's, quoted", "two words"]
    assert dense(*lines) == [[3.0, 1.0], [4.0, 0.0]]


def test_a_question_mark_is_missing_and_a_quoted_one_is_a_value() -> None:
    assert np.isnan(dense(*HEADER, "?,1")[0][0])
    assert np.isnan(dense(*HEADER, "1, ?")[0][1])
    odd = ["@relation toy", "@attribute x {'?',b}", "@data", "'?'", "?"]
    assert dense(*odd)[0] == [0.0]
    assert np.isnan(dense(*odd)[1][0])


def test_nominal_numbers_are_themselves_and_words_are_places() -> None:
    lines = ["@relation t", "@attribute a {5,10}", "@attribute b {no,yes,5}", "@data", "10,5"]
    assert dense(*lines) == [[10.0, 2.0]]


def test_a_nominal_number_may_be_written_in_another_way() -> None:
    assert dense(*HEADER, "3,1.0", "'4',1.0", "5,0") == [[3.0, 1.0], [4.0, 1.0], [5.0, 0.0]]
    with pytest.raises(InputError, match="'y'"):
        dense(*HEADER, "'4',0.5")


def test_sparse_rows() -> None:
    lines = [*HEADER, "{0 1.5,1 1}", "{}", "{ 1 1 }", "{0 ?}"]
    records, entries = sparse(*lines)
    assert records == 4
    assert entries[:3] == [(0, 0, 1.5), (0, 1, 1.0), (2, 1, 1.0)]
    assert entries[3][:2] == (3, 0)
    assert np.isnan(entries[3][2])


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
    from io import StringIO

    lines = [*HEADER, *(f"{x!r},{y}" for x, y in rows)]
    found = np.array(dense(*lines))
    records, _ = reference.loadarff(StringIO("\n".join(lines)))
    np.testing.assert_array_equal(found[:, 0], records["x"])
    known = records["y"] != b"?"
    np.testing.assert_array_equal(found[known, 1], records["y"][known].astype(float))
    assert np.isnan(found[~known, 1]).all()


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [*HEADER, *(f"{i},{i % 2}" for i in range(10))]
    whole = dense(*lines)
    rows = [*HEADER, *(f"{{0 {i}}}" if i % 3 else "{}" for i in range(10))]
    entries = sparse(*rows)
    monkeypatch.setattr(sys.modules["privote.datasets.mulan"], "_LINES", 3)
    assert dense(*lines) == whole
    assert sparse(*rows) == entries


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["hello"], "toy.arff, line 1: not ARFF: 'hello'"),
        (["@relation t", "@attribute x numeric"], "no @data line"),
        (["@relation t", "@data", "1"], "@data comes before any @attribute"),
        (["@relation t", "@attribute x string"], "attribute 'x' must be numeric or a list"),
        (["@relation t", "@attribute x date"], "attribute 'x' must be numeric or a list"),
        (["@relation t", "@attribute"], "an attribute needs a name and a type"),
        (["@relation t", "@attribute x {a,,b}"], "list of values of attribute 'x' is broken"),
        ([*HEADER, "% c", "1,0", "1"], "toy.arff, line 7: 1 values for 2 attributes"),
        ([*HEADER, "1,0,"], "line 5: 3 values for 2 attributes"),
        ([*HEADER, "1,0", "1,2"], "line 6: what stands there is no value of attribute 'y'"),
        ([*HEADER, "one,0"], "line 5: what stands there is no value of attribute 'x'"),
        ([*HEADER, ",0"], "line 5: what stands there is no value of attribute 'x'"),
        ([*HEADER, "5'3,0"], "line 5: a quote is not closed or stands within a value"),
        ([*HEADER, "{0 1}", "1,0"], "line 6: a sparse row must stand in braces"),
        ([*HEADER, "{0}"], "line 5: an entry must be an index and a value"),
        ([*HEADER, "{0 1 1}"], "line 5: an entry must be an index and a value"),
        ([*HEADER, "{2 1}"], "line 5: there is no attribute 2"),
        ([*HEADER, "{-1 1}"], "line 5: an entry must be an index and a value"),
        ([*HEADER, "{0.5 1}"], "line 5: an entry must be an index and a value"),
        ([*HEADER, "{1 7}"], "line 5: what stands there is no value of attribute 'y'"),
        ([*HEADER, "{0 1,0 2}"], "record 0 mentions attribute 0 twice"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(lines: list[str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_arff(lines, "toy.arff")
    assert message in str(caught.value)

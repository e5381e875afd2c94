"""Mulan's files: labels from the .xml, features from the rest; and the real ones, if present."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.io import arff as reference
from scipy.sparse import csr_array
from tests.refusals import refused

from privote.datasets import mulan
from privote.errors import InputError

Write = Callable[..., Path]

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


def test_labels_in_the_order_of_the_xml_and_the_rest_are_features(write: Write) -> None:
    write("toy.xml", *XML)
    data = mulan(write("toy.arff", *HEADER, "1,2.5,0,3", "0,?,?,4"))
    assert data.label_names == ("late one", "early")
    assert data.Y.tolist() == [[0, 1], [-1, 0]]
    assert data.feature_names == ("x", "y")
    assert data.Y.dtype == np.int8
    assert data.X.dtype == np.float32
    assert data.X[0].tolist() == [2.5, 3.0]
    assert np.isnan(data.X[1, 0])
    assert data.ids.tolist() == ["toy:0", "toy:1"]
    assert data.groups is None


@pytest.mark.parametrize("name", ["toy-train.arff", "toy-test.arff", "toy.arff.gz"])
def test_the_xml_is_found_beside_the_file(write: Write, name: str) -> None:
    write("toy.xml", *XML)
    assert mulan(write(name, *HEADER, "1,2,0,3")).label_names == ("late one", "early")


def test_an_xml_elsewhere_and_labels_within_labels(write: Write) -> None:
    xml = write(
        "else.xml", "<labels>", '<label name="early"><label name="late one"/></label>', "</labels>"
    )
    data = mulan(write("toy.arff", *HEADER, "1,2,0,3"), xml)
    assert data.label_names == ("early", "late one")


def test_a_sparse_file_is_the_same_data_as_the_dense_one(write: Write) -> None:
    write("toy.xml", *XML)
    dense = mulan(write("toy.arff", *HEADER, "1,2.5,0,0", "0,0,1,4", "0,0,0,0"))
    file = write("toy-train.arff", *HEADER, "{0 1,1 2.5}", "{2 1,3 4}", "{}")
    for how in (True, False, "auto"):
        data = mulan(file, sparse=how)
        assert isinstance(data.X, csr_array) is (how is True)
        X = data.X.toarray() if how is True else data.X
        np.testing.assert_array_equal(X, dense.X)
        np.testing.assert_array_equal(data.Y, dense.Y)
        assert X.dtype == np.float32
    back = mulan(write("toy.arff", *HEADER, "1,2.5,0,0"), sparse=True).X
    assert isinstance(back, csr_array)


def test_a_large_sparse_file_stays_sparse(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    write("toy.xml", *XML)
    file = write("toy.arff", *HEADER, "{0 1,1 2.5}", "{2 1}")
    monkeypatch.setattr(sys.modules["privote.datasets.mulan"], "_CELLS", 3)
    assert isinstance(mulan(file).X, csr_array)


def test_omitted_values_that_are_not_zero(write: Write) -> None:
    # The first value of a list is what a sparse row omits, for features and labels alike.
    header = ("@relation t", "@attribute a {7,0}", "@attribute b real", "@attribute early {1,0}")
    xml = write("labels.xml", '<labels><label name="early"/></labels>')
    file = write("toy.arff", *header, "@data", "{1 5}", "{0 0,2 0}", "{}", "{0 ?,2 ?}")
    data = mulan(file, xml)
    np.testing.assert_array_equal(data.X, [[7, 5], [0, 0], [7, 0], [np.nan, 0]])
    assert data.Y[:, 0].tolist() == [1, 0, 1, -1]
    assert mulan(file, xml, sparse=True).X.toarray()[:3].tolist() == data.X[:3].tolist()


@pytest.mark.parametrize(
    ("row", "xml", "message"),
    [
        ("5,2,0,3", XML, "what stands there is no value of attribute 'early'"),
        ("1,2,0,3", ('<labels><label name="x"/></labels>',), "'x' of record 0 is 2"),
        ("1,2,0,3", ('<labels><label name="absent"/></labels>',), "has no attribute 'absent'"),
        ("1,2,0,3", ("<labels></labels>",), "must name one or more different labels"),
        ("1,2,0,3", ("<labels>",), "is not XML"),
    ],
)
def test_what_does_not_fit_is_named(
    write: Write, row: str, xml: tuple[str, ...], message: str
) -> None:
    write("toy.xml", *xml)
    with pytest.raises(InputError, match=message):
        mulan(write("toy.arff", *HEADER, row))


def test_a_missing_file_says_where_to_get_it(write: Write, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"nothing\.arff is missing; the Mulan collection is at http"
    ):
        mulan(tmp_path / "nothing.arff")
    with pytest.raises(InputError, match=r"toy\.xml that names the labels is missing; the Mulan"):
        mulan(write("toy-train.arff", *HEADER, "1,2,0,3"))
    write("toy.xml", *XML)
    with refused("sparse"):
        mulan(write("toy.arff", *HEADER, "1,2,0,3"), sparse="no")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "shape", "labels", "cardinality"),
    [
        # Cardinality (labels per record) as the collection's own page lists it. It lists scene as
        # a whole; see the next test.
        ("emotions", (593, 72), 6, 1.869),
        ("yeast", (2417, 103), 14, 4.237),
        ("tmc2007-500", (28596, 500), 22, 2.158),
        ("scene-train", (1211, 294), 6, None),
        ("scene-test", (1196, 294), 6, None),
    ],
)
def test_the_real_files(
    shared_data: Path, name: str, shape: tuple[int, int], labels: int, cardinality: float | None
) -> None:
    data = mulan(shared_data / f"mulan_{name}.arff")
    assert data.X.shape == shape
    assert data.Y.shape == (shape[0], labels)
    assert set(np.unique(data.Y)) == {0, 1}
    if cardinality is not None:
        assert data.Y.sum(axis=1).mean() == pytest.approx(cardinality, abs=2e-3)


def test_the_two_parts_of_scene_together(shared_data: Path) -> None:
    parts = [mulan(shared_data / f"mulan_scene-{part}.arff") for part in ("train", "test")]
    Y = np.concatenate([part.Y for part in parts])
    assert Y.sum(axis=1).mean() == pytest.approx(1.074, abs=1e-3)
    assert parts[0].label_names == parts[1].label_names == (
        "Beach", "Sunset", "FallFoliage", "Field", "Mountain", "Urban",
    )  # fmt: skip


def test_yeast_is_what_scipy_reads(shared_data: Path) -> None:
    data = mulan(shared_data / "mulan_yeast.arff")
    records, meta = reference.loadarff(shared_data / "mulan_yeast.arff")
    table = {name: records[name].astype(float) for name in meta.names()}
    features = [name for name in meta.names() if name not in data.label_names]
    np.testing.assert_allclose(data.X, np.stack([table[n] for n in features], axis=1), rtol=1e-6)
    np.testing.assert_array_equal(data.Y, np.stack([table[n] for n in data.label_names], axis=1))
    # The .xml has its own order: the fourth label is Class6.
    assert data.label_names[3] == "Class6"


def test_tmc_row_by_row(shared_data: Path) -> None:
    data = mulan(shared_data / "mulan_tmc2007-500.arff")
    lines = (shared_data / "mulan_tmc2007-500.arff").read_text().partition("@data")[2].split("\n")
    rows = [line for line in lines if line.startswith("{")]
    for place in (0, 1, 9999, 28595):
        indices = [int(entry.split()[0]) for entry in rows[place][1:-1].split(",")]
        found = np.concatenate([np.flatnonzero(data.X[place]), 500 + np.flatnonzero(data.Y[place])])
        assert found.tolist() == sorted(indices)

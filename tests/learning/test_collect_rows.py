"""Public rows come the same from every format, wherever they are cut."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

from privote.errors import InputError
from privote.learning.collect import open_rows

ROWS = 23


def numbers() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(ROWS, 3))


def csv_of(array: np.ndarray) -> str:
    """Return a CSV file with what people put there: texts with breaks, gaps, blank lines."""
    lines = ["a,b,c,note,code"]
    for place, row in enumerate(array):
        cells = ",".join(map(repr, map(float, row)))
        lines.append(f'{cells},"line {place},\nand ""more"" ü",{place if place != 20 else "x1"}')
        lines += [""] * (place % 3)
    return "\n".join(lines) + "\n"


def write(kind: str, folder: Path, array: np.ndarray) -> Path:
    path = folder / f"rows{kind}"
    if kind == ".npy":
        np.save(path, array)
    elif kind == ".npz":
        np.savez(path, X=array)
    elif kind == ".csv":
        path.write_text(csv_of(array), encoding="utf-8-sig")
    elif kind == ".tsv":
        path.write_text(csv_of(array).replace(",", "\t"), encoding="utf-8")
    elif kind == ".zarr":
        zarr = pytest.importorskip("zarr")
        zarr.create_array(path, data=array, chunks=(4, 3))
    else:
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet as pq

        pq.write_table(pa.table({n: array[:, i] for i, n in enumerate("abc")}), path, 5)
    return path


def joined(path: Any, chunk: int) -> list[Any]:
    rows = open_rows(path)
    assert rows.count == ROWS
    parts = [rows.part(at, min(at + chunk, ROWS)) for at in range(0, ROWS, chunk)]
    return [pickle.loads(pickle.dumps(part)) for part in parts]  # as a worker gets them


@pytest.mark.parametrize("chunk", [1, 4, 7, 23])
@pytest.mark.parametrize("kind", [".npy", ".npz", ".zarr", ".csv", ".tsv", ".parquet"])
def test_the_same_rows_from_every_format(kind: str, chunk: int, tmp_path: Path) -> None:
    path = write(kind, tmp_path, numbers())
    tables = kind not in (".npy", ".npz", ".zarr")
    parts, model = joined(path, chunk), SimpleNamespace(feature_names=("a", "b", "c"))
    found = [part.for_model(model) if tables else part for part in parts]
    assert np.array_equal(np.concatenate(found), numbers())


def test_a_zarr_array_behind_a_url(store: Any, tmp_path: Path) -> None:
    url = store.put(write(".zarr", tmp_path, numbers()))
    assert np.array_equal(np.concatenate(joined(url, 4)), numbers())
    assert open_rows(url).digest == open_rows(tmp_path / "rows.zarr").digest
    rows = open_rows(url)

    def broken(name: str) -> None:
        raise ConnectionResetError("the other side went away")

    store.fails = broken
    for fails in (lambda: open_rows(url), lambda: rows.part(0, 4)):
        with refused("rows"):
            fails()


@pytest.mark.parametrize("chunk", [1, 4, 23])
def test_a_column_is_numbers_in_all_parts_or_in_none(chunk: int, tmp_path: Path) -> None:
    parts = [p.columns() for p in joined(write(".csv", tmp_path, numbers()), chunk)]
    assert {part["a"].dtype for part in parts} == {np.dtype(float)}
    assert {part["code"].dtype for part in parts} == {np.dtype(object)}  # row 20 has a word
    codes = [code for part in parts for code in part["code"]]
    assert codes == [str(place) if place != 20 else "x1" for place in range(ROWS)]
    notes = [note for part in parts for note in part["note"]]
    assert notes == [f'line {place},\nand "more" ü' for place in range(ROWS)]


def test_gaps_are_not_a_number(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    (tmp_path / "g.csv").write_text("a,b\n1,\n2,3\n,NA\n")
    pq.write_table(pa.table({"a": [1, 2, None], "b": [None, 3, None]}), tmp_path / "g.parquet", 1)
    for name in ("g.csv", "g.parquet"):
        rows = open_rows(tmp_path / name)
        found = [rows.part(at, at + 1).columns() for at in range(3)]
        assert {part[key].dtype for part in found for key in part} == {np.dtype(float)}
        assert [part["a"][0] for part in found[:2]] == [1, 2]
        assert np.isnan([found[2]["a"][0], found[0]["b"][0], found[2]["b"][0]]).all()


def test_frames_and_arrays(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": np.arange(ROWS), "w": ["x"] * ROWS})
    for held in (frame, {"a": np.arange(ROWS), "w": ["x"] * ROWS}):
        parts = joined(held, 5)
        assert np.concatenate([p.columns()["a"] for p in parts]).tolist() == [*range(ROWS)]
        assert parts[0].columns()["w"].tolist() == ["x"] * 5
    assert np.array_equal(np.concatenate(joined(numbers(), 5)), numbers())
    assert open_rows(numbers()).digest != open_rows(numbers() + 1).digest
    assert open_rows(frame).digest != open_rows(frame.replace("x", "y")).digest


@pytest.mark.parametrize("kind", [".npy", ".npz", ".zarr", ".csv", ".parquet"])
def test_a_digest_is_of_every_byte(kind: str, tmp_path: Path) -> None:
    first = open_rows(write(kind, tmp_path, numbers())).digest
    (tmp_path / "again").mkdir()
    assert open_rows(write(kind, tmp_path / "again", numbers())).digest == first
    other = numbers()
    other[-1, -1] += 1
    (tmp_path / "other").mkdir()
    assert open_rows(write(kind, tmp_path / "other", other)).digest != first


@pytest.mark.parametrize(
    ("name", "text", "argument"),
    [
        ("r.csv", "a,b\n1\n", None),
        ("r.csv", "a,a\n1,2\n", None),
        ("r.csv", "a,b\n", "rows"),
        ("r.csv", "", None),
        ("r.csv", 'a,b\n"1,2\n', None),
        ("r.npy", "x", None),
        ("r.parquet", "x", None),
        ("r.txt", "x", "rows"),
        (None, "", "rows"),
    ],
)
def test_refused(name: str | None, text: str, argument: str | None, tmp_path: Path) -> None:
    if name is not None:
        (tmp_path / name).write_text(text)
    with refused(argument):
        open_rows(tmp_path / (name or "none.npy"))


def test_a_model_of_numbers_refuses_words(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'note'"):
        joined(write(".csv", tmp_path, numbers()), 4)[0].for_model(None)

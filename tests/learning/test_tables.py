"""Tables into numbers: by public rows alone, row by row, and saved as plain values."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from tests.refusals import refused

from privote.datasets import load_patients
from privote.errors import InputError, PrivoteWarning
from privote.learning.tables import TableEncoder

PUBLIC = {
    "age": ["20", "40", "", "60"],
    "sex": ["f", "m", "F ", "f"],
    "smoker": ["yes", "no", "", "Yes"],
    "since": ["2024-01-01", "2024-07-01", "", "2025-01-01"],
    "same": ["x", "x", "x", "x"],
    "nothing": ["", "", "", ""],
}


def kinds_of(encoder: TableEncoder) -> dict[str, str]:
    """Return what is done with each column."""
    plain = encoder.to_plain()
    left = dict.fromkeys(plain["left_out"], "left out")
    return {facts["name"]: facts["kind"] for facts in plain["columns"]} | left


def names_of(encoder: TableEncoder) -> list[str]:
    """Return what the features are, in their order."""
    names: list[str] = []
    for facts in encoder.to_plain()["columns"]:
        ends = [f": {word}" for word in facts.get("known", ())] or [""]
        ends += [": other"] if facts["kind"] == "words" else []
        ends += [": sine", ": cosine"] if facts["kind"] == "date" else []
        ends += [": empty"] if facts["gaps"] else []
        names += [facts["name"] + end for end in ends]
    return names


def encoded(rows: Any) -> dict[str, list[float]]:
    """Return the features of one column by name, encoded by the public rows above."""
    encoder = TableEncoder().fit(PUBLIC)
    made = encoder.transform({**{name: [""] * 2 for name in PUBLIC}, **rows})
    assert made.dtype == np.float32
    return dict(zip(names_of(encoder), made.T.tolist(), strict=True))


def test_each_column_is_what_the_public_rows_say() -> None:
    encoder = TableEncoder().fit(PUBLIC)
    assert kinds_of(encoder) == {
        "age": "number",
        "sex": "words",
        "smoker": "yes or no",
        "since": "date",
        "same": "left out",
        "nothing": "left out",
    }
    assert encoder.transform(PUBLIC).shape == (4, 2 + 3 + 2 + 4)


def test_numbers_are_clipped_to_the_public_range() -> None:
    scale = np.std([20, 40, 60])
    made = encoded({"age": ["1000", " 30 "]})
    np.testing.assert_allclose(made["age"], [20 / scale, -10 / scale], rtol=1e-6)
    assert made["age: empty"] == [0, 0]
    gap = encoded({"age": ["", "40"]})
    assert gap["age"] == [0, 0]  # the public median
    assert gap["age: empty"] == [1, 0]


def test_a_word_that_is_not_public_is_other() -> None:
    made = encoded({"sex": ["M", "unheard of"]})
    assert (made["sex: m"], made["sex: f"], made["sex: other"]) == ([1, 0], [0, 0], [0, 1])
    assert encoded({"sex": ["", None]})["sex: other"] == [0, 0]
    assert encoded({"smoker": ["TRUE", "n"]})["smoker"] == [1, -1]


def test_dates_of_all_kinds() -> None:
    made = encoded({"since": ["2024-01-01T12:00", "1999-12-31"]})
    assert made["since"][0] == made["since"][1]  # to the day, and the rest is clipped
    objects = encoded({"since": [datetime.date(2024, 7, 1), pd.Timestamp("2024-07-01")]})
    assert objects["since"][0] == objects["since"][1]
    frame = pd.DataFrame({"day": pd.to_datetime(["2024-01-01", None, "2024-07-01"])})
    assert kinds_of(TableEncoder().fit(frame)) == {"day": "date"}
    for days in (["31.12.2023", "01.02.2024"], ["12/31/2023", "02/01/2024"]):
        assert kinds_of(TableEncoder().fit({"day": days})) == {"day": "date"}
    with pytest.warns(PrivoteWarning, match="day and month"):
        TableEncoder().fit({"day": ["03/04/2023", "02/01/2024"]})


def test_texts_are_words_by_weight() -> None:
    notes = [f"fever and cough since day {i % 7}" for i in range(9)] + ["no cough, fever is gone"]
    encoder = TableEncoder().fit({"notes": notes})
    assert kinds_of(encoder) == {"notes": "text"}
    made = encoder.transform({"notes": ["since when? and FEVER?", "", "unheard"]})
    assert sp.issparse(made)
    assert made.dtype == np.float32
    np.testing.assert_allclose(np.sqrt((made.toarray() ** 2).sum(axis=1)), [1, 0, 0], rtol=1e-6)
    found = [names_of(encoder)[i] for i in made.toarray()[0].nonzero()[0]]
    assert found == ["notes: and", "notes: since"]  # fever is in every public row


def test_a_column_that_names_somebody_is_left_out() -> None:
    rows = {"name": [f"Anna {i}" for i in range(30)], "x": list(range(30))}
    assert kinds_of(TableEncoder().fit(rows)) == {"x": "number", "name": "left out"}


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        *(("age", cell) for cell in ("old", "1_0", "inf", 10**400)),
        ("smoker", "maybe"),
        ("since", "31.12.2024"),
        ("sex", ["f"]),
    ],
)
def test_a_cell_of_another_kind_is_for_the_owner_alone(column: str, cell: Any) -> None:
    with refused(f"rows, row 1, column {column!r}") as caught:
        encoded({column: ["", cell]})
    assert str(cell)[:40] in caught.value.sealed
    assert str(cell) not in str(caught.value)


def test_it_is_saved_as_plain_values() -> None:
    data = load_patients(300).split(private=0.5, public=0.5)
    encoder = TableEncoder().fit(data.public.X)
    text = json.dumps(encoder.to_plain(), allow_nan=False)
    again = TableEncoder.from_plain(json.loads(text))
    assert again.to_plain() == encoder.to_plain()
    one, other = (each.transform(data.private.X) for each in (encoder, again))
    assert one.shape == (len(data.private), len(names_of(encoder)))
    assert abs(one - other).max() == 0


def broken(**changes: Any) -> dict[str, Any]:
    plain = TableEncoder().fit(PUBLIC).to_plain()
    plain["columns"][0] |= changes
    return plain


@pytest.mark.parametrize(
    "plain",
    [
        {},
        None,
        [],
        {**broken(), "form": 1},
        {**broken(), "columns": []},
        {**broken(), "columns": broken()["columns"] * 2},
        broken(kind="os.system"),
        broken(scale=0.0),
        broken(low=float("nan")),
        broken(middle="1"),
        broken(name=5),
    ],
)
def test_what_is_no_saved_encoder_is_refused(plain: Any) -> None:
    with pytest.raises(InputError):
        TableEncoder.from_plain(plain)


def test_what_cannot_be_encoded_is_said() -> None:
    with pytest.raises(InputError, match="public rows"):
        TableEncoder().transform(PUBLIC)
    with pytest.raises(InputError, match="got 1"):
        TableEncoder().fit({"x": [1]})
    with pytest.raises(InputError, match="'x'"):
        TableEncoder().fit({"x": [1, 1]})
    with pytest.raises(InputError, match=r"'sex'; .*'age'"):
        TableEncoder().fit(PUBLIC).transform({"age": [1]})


# -- forms -----------------------------------------------------------------------------------------

KINDS = {
    "code": ["250", "V27", "401", "250"],
    "day": ["2024-01-01", "2024-02-01", "2024-03-01", "2024-03-01"],
    "size": ["1", "2.5", "4", "3"],
    "flag": ["True", "False", "True", "True"],
}
PRIVATE = {
    "code": ["250", "401", "250", "401"],
    "day": ["2024-01-31", "2024-02-28", "2024-03-01", "2024-02-01"],
    "size": ["1", "2", "3", "2"],
    "flag": ["True", "False", "False", "True"],
}


def forms(cells: dict[str, list[str]], folder: Path) -> dict[str, Any]:
    """Return a table in every form in which people have it."""
    file = folder / "rows.csv"
    pd.DataFrame(cells).to_csv(file, index=False)
    frame = pd.read_csv(file, parse_dates=["day"])
    frame.to_parquet(folder / "rows.parquet")
    return {
        "file": file,
        "frame": frame,
        "nullable": frame.convert_dtypes(),
        "arrays": {name: frame[name].to_numpy() for name in frame},
        "lists": {name: np.array(frame[name].tolist()) for name in frame},
        "parquet": folder / "rows.parquet",
        "records": frame.to_dict("records"),
    }


def test_a_table_is_the_same_in_every_form(tmp_path: Path) -> None:
    encoder = TableEncoder().fit(KINDS)
    assert [*kinds_of(encoder).values()] == ["words", "date", "number", "yes or no"]
    expected = encoder.transform(PRIVATE)
    for form, rows in forms(PRIVATE, tmp_path).items():
        np.testing.assert_array_equal(encoder.transform(rows), expected, err_msg=form)

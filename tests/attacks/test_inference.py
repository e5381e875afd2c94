"""What is inferred is a statistic: every reader, every kind of column, one odd record.

One record of a table gets a gap, a fraction, a time of day, a strange text, a new key. Whatever is
made of any other record, and whatever is published besides noise, must not change by a bit; or the
table is refused by a rule that looks at that record alone, which shows by refusing it without the
others, too. No refusal quotes it.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from tests.attacks.conftest import Outcome

import privote as pv
from privote.datasets.tables import raw_table
from privote.learning.tables import TableEncoder
from privote.polls import read

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
Columns = Mapping[str, list[Any]]
Form = Callable[[Columns, Path], Any]

pytestmark = pytest.mark.filterwarnings("ignore")

# -- the forms of a table, as people make them -----------------------------------------------------

NUMBER = count()


def new(folder: Path, suffix: str) -> Path:
    return folder / f"table{next(NUMBER)}{suffix}"


def typed(columns: Columns) -> Columns:
    """Return columns as Arrow has types for: floats, or texts, where it has none for all cells."""

    def cells(column: list[Any]) -> list[Any]:
        moments = [c.astype("M8[us]").item() if isinstance(c, np.datetime64) else c for c in column]
        there = [None if pd.isna(cell) else cell for cell in moments]
        kinds = {type(cell) for cell in there if cell is not None}
        if not kinds <= {int, float, bool}:
            return [None if c is None else str(c) for c in there] if len(kinds) > 1 else there
        try:
            pa.array(column)
        except (pa.ArrowException, OverflowError):
            return [None if cell is None else float(cell) for cell in column]
        return column

    return {name: cells(column) for name, column in columns.items()}


def array(cells: list[Any]) -> Any:
    """Return cells as numpy has them, texts where there is one; "nan" is nobody's text."""
    if any(isinstance(cell, np.datetime64) for cell in cells):
        days = all(isinstance(cell, np.datetime64 | datetime) for cell in cells)
        return np.array(cells, "M8" if days else object)  # one time of day changes the unit of all
    texts = any(isinstance(cell, str) for cell in cells)
    return np.array([None if texts and cell != cell else cell for cell in cells])


def nullable(columns: Columns, folder: Path) -> pd.DataFrame:
    frame = pd.DataFrame(columns)
    try:
        return frame.convert_dtypes()
    except OverflowError:  # pandas has no such type for huge numbers
        return frame


def separated(columns: Columns, folder: Path, suffix: str = ".csv") -> Path:
    file = new(folder, suffix)
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream, delimiter="\t" if suffix == ".tsv" else ",")
        writer.writerows([list(columns), *zip(*columns.values(), strict=True)])  # None is empty
    return file


def parquet(table: Any, folder: Path) -> Path:
    file = new(folder, ".parquet")
    pq.write_table(table, file)
    return file


def records(columns: Columns, folder: Path) -> list[dict[str, Any]]:
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def sparse(columns: Columns, folder: Path) -> list[dict[str, Any]]:
    """Return records without the keys of empty cells."""
    full = records(columns, folder)
    return [{key: cell for key, cell in row.items() if cell is not None} for row in full]


FORMS: dict[str, Form] = {
    "csv": separated,
    "tsv": lambda columns, folder: separated(columns, folder, ".tsv"),
    "parquet": lambda columns, folder: parquet(pa.table(typed(columns)), folder),
    "pandas parquet": lambda columns, folder: parquet(
        pa.Table.from_pandas(pd.DataFrame(typed(columns))), folder
    ),
    "pandas": lambda columns, _: pd.DataFrame(columns),
    "pandas csv": lambda columns, folder: pd.read_csv(separated(columns, folder)),
    "pandas nullable": nullable,
    "pandas categorical": lambda columns, _: pd.DataFrame(columns).astype("category"),
    "arrow": lambda columns, _: pa.table(typed(columns)),
    "arrow dictionaries": lambda columns, _: pa.table(
        {name: pa.array(cells).dictionary_encode() for name, cells in typed(columns).items()}
    ),
    "polars": lambda columns, _: pytest.importorskip("polars").DataFrame(columns, strict=False),
    "lists": lambda columns, _: dict(columns),
    "arrays": lambda columns, _: {name: array(cells) for name, cells in columns.items()},
    "records": records,
    "sparse records": sparse,
}
LISTS = ("records", "sparse records")

# -- the kinds of columns, and what one record has instead -----------------------------------------

DAYS = [date(2021, 3, 1) + timedelta(37 * n) for n in range(6)]
TEXTS = ["pain in the left knee", "no pain at all now", "left knee is swollen again"]
LONG = 900_000_000_000_207_008  # as the codes of SNOMED; beyond what a float tells apart

#: Public cells, and private ones.
KINDS: dict[str, tuple[list[Any], list[Any]]] = {
    "numbers": ([0.5, 1.25, 7.0], [0.75, 3.0, 0.5, 6.5]),
    "whole numbers": ([1, 2, 17], [3, 1, 12, 2]),
    "long numbers": ([LONG, LONG + 900, 5], [LONG + 1, LONG + 3, LONG, 5]),
    "words": (["flu", "asthma", "none"], ["asthma", "flu", "none", "flu"]),
    "codes": (["V27", 250, 401], [250, 401, 250, 401]),
    "codes as texts": (["V27", "007", "250.00"], ["007", "250.00", "007", "250.00"]),
    "long codes": (["V27", LONG, 10 * LONG], [LONG, 10 * LONG, LONG, 10 * LONG]),
    "bools": ([True, False, True], [False, True, True, False]),
    "yes or no": (["yes", "no", "yes"], ["no", "yes", "yes", "no"]),
    "dates": (DAYS[:3], DAYS[1:5]),
    "moments": ([*map(np.datetime64, DAYS[:3])], [*map(np.datetime64, DAYS[1:5])]),
    "dates as texts": ([*map(str, DAYS[:3])], [*map(str, DAYS[1:5])]),
    "free text": (TEXTS, [TEXTS[1], TEXTS[0], "a swollen left knee", TEXTS[2]]),
}
#: What the first record has instead.
ODD: dict[str, Any] = {
    "a gap": None,
    "NaN": float("nan"),
    "a fraction": 1.5,
    "a share": 0.5,
    "a time of day": datetime(2021, 4, 7, 13, 37),
    "a time of day in a text": "2021-04-07 13:37",
    "a strange text": "HIV positive, J. Smith",
    "a code": "V27",
    "NA": "NA",
    "a bool": True,
    "a long integer": 2**53 + 1,
    "a longer integer": 10**25,
    "an extra option": "Ada;Zoe",
}
View = Callable[[Columns], Any]


def broken(view: View, before: Columns, after: Columns) -> str | None:
    """Return what is wrong with a table whose first record changed, None if nothing is.

    ``view`` returns what must stay the same: of all records but the first, and of all together.
    """
    there = view(before)
    try:
        here = view(after)
    except pv.PrivoteError as error:
        if any(part in str(error) for part in ("Smith", "hiv", "Zoe")):
            return "the refusal quotes the record"
        view(first(before))
        try:
            view(first(after))
        except pv.PrivoteError:
            return None
        return "is refused in company, and not alone"
    except Exception as error:
        return f"{type(error).__name__}, which is not ours"
    return None if here == there else "others changed"


def first(columns: Columns) -> Columns:
    """Return the first record."""
    return {name: cells[:1] for name, cells in columns.items()}


def walk(view: View, columns: Columns, name: str) -> Iterator[str | None]:
    """Yield what is wrong with each odd cell of the first record."""
    for what, cell in ODD.items():
        found = broken(view, columns, {**columns, name: [cell, *columns[name][1:]]})
        yield found and f"{name}: {what}: {found}"


# -- records: encodings, labels, names -------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_one_cell_changes_no_other_row(
    form: str, kind: str, tmp_path: Path, outcome: Outcome
) -> None:
    public, private = KINDS[kind]
    encoder = TableEncoder().fit(FORMS[form]({"x": [1, 2, 3] * 3, kind: public * 3}, tmp_path))
    assert len(encoder.columns_) == 2

    def view(columns: Columns) -> Any:
        rows = encoder.transform(FORMS[form](columns, tmp_path))
        rows = rows.toarray() if sp.issparse(rows) else rows
        return rows[1:].tobytes(), encoder.feature_names_

    found = walk(view, {"x": [1, 3, 2, 1], kind: private}, kind)
    outcome.of(f"one cell among {kind} in {form}", found)


#: What stands in columns that are no features, by the argument that names them.
NAMED: dict[str, tuple[str, list[Any]]] = {
    "labels": ("labels", [1, 0, 1, 0]),
    "labels of bools": ("labels", [True, False, True, False]),
    "labels of words": ("labels", ["yes", "no", "yes", "no"]),
    "ids": ("id_column", [17, 4, 12, 3]),
    "ids of texts": ("id_column", ["17", "004", "12", "3"]),
    "groups": ("group_column", [1, 2, 2, 1]),
    "groups of texts": ("group_column", ["1", "02", "02", "01"]),
}


@pytest.mark.parametrize("kind", NAMED)
@pytest.mark.parametrize("form", FORMS)
def test_one_cell_changes_no_other_label_or_name(
    form: str, kind: str, tmp_path: Path, outcome: Outcome
) -> None:
    argument, cells = NAMED[kind]
    how: dict[str, Any] = {argument: [kind] if argument == "labels" else kind}

    def view(columns: Columns) -> Any:
        data = raw_table(FORMS[form](columns, tmp_path), features=["x"], **how)
        parts = (data.Y, data.ids, data.groups)
        return [None if part is None else part[1:].tolist() for part in parts], data.label_names

    found = walk(view, {"x": [1, 3, 2, 1], kind: cells}, kind)
    outcome.of(f"one cell among {kind} in {form}", found)


# -- what an estimator publishes -------------------------------------------------------------------

TRAINED = ("whole numbers", "codes")


def published(method: str, rows: Any, public: Any) -> Any:
    """Return everything besides what was drawn."""
    steps = {"steps": 2} if method == "gradients" else {}
    model = pv.PrivateClassifier(method, epsilon=1.0, settings=steps)
    model.fit(rows, ["ill"], public, seed=1)
    facts = {key: value for key, value in model.privacy_.items() if key != "drawn"}
    made: Any = model.encoder_
    scales = [np.asarray(getattr(model.student_, name)).tolist() for name in ("mean_", "scale_")]
    return made.to_plain(), model.label_names_, facts, scales


@pytest.mark.parametrize(
    ("method", "form"), [*(("moments", form) for form in FORMS), ("gradients", "pandas")]
)
def test_one_cell_changes_nothing_that_a_training_publishes(
    method: str, form: str, tmp_path: Path, outcome: Outcome
) -> None:
    made, table = FORMS[form], {name: KINDS[name][1] * 3 for name in TRAINED}
    public = made({name: KINDS[name][0] * 4 for name in TRAINED}, tmp_path)

    def view(columns: Columns) -> Any:
        return published(method, made(columns, tmp_path), public)

    table["ill"] = [1, 0] * 6
    found = [each for name in table for each in walk(view, table, name)]
    outcome.of(f"what {method} publish of {form}", found)


@pytest.mark.parametrize("pool", ["with the key", "without it"])
def test_one_key_of_one_record_is_not_published(
    pool: str, tmp_path: Path, outcome: Outcome
) -> None:
    rows = records({"x": KINDS["numbers"][1] * 3, "ill": [1, 0] * 6}, tmp_path)
    public = {"x": KINDS["numbers"][0] * 4} | (
        {"hiv": ["yes", "no", "no"] * 4} if pool == "with the key" else {}
    )

    def view(columns: Columns) -> Any:
        return published("moments", columns["rows"], records(public, tmp_path))

    odd = [{"hiv": "yes", **rows[0]}, *rows[1:]]
    outcome.of(f"one key, public rows {pool}", [broken(view, {"rows": rows}, {"rows": odd})])


def test_one_more_record_is_not_promised_where_their_number_decides() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(400, 30)), (rng.random((400, 2)) < 0.4).astype(int)
    pool, seen = rng.normal(size=(200, 30)), []
    for size in (400, 399):
        model = pv.PrivateClassifier("teachers", epsilon=4.0)
        seen.append(model.fit(X[:size], Y[:size], pool).privacy_)
    most, fewest = seen
    assert most["voters"] == fewest["voters"] or "more or fewer" not in most["protects"]


# -- votes -----------------------------------------------------------------------------------------

BALLOTS: dict[str, list[Any]] = {
    "query": ["q1"] * 3 + ["q2"] * 3 + ["q3"] * 3,
    "voter": ["ann", "bob", "cy"] * 3,
    "fever": [1, 0, 1, 0, 0, 1, 1, 1, 0],
    "cough": [0, 0, 1, 1, 0, 0, 1, 0, 1],
}
COUNTED = {"query": [0] * 3 + [1] * 3 + [2] * 3, "voter": [0, 1, 2] * 3}  # as Parquet has them
VOTES: dict[str, tuple[Callable[[int], Any], bool | None]] = {
    **{kind.__name__: (kind, None) for kind in (int, bool, float, str)},
    "probabilities": (lambda vote: 0.25 + vote / 2, True),
    "whole probabilities": (int, True),
}


def seen_votes(table: Any, **how: Any) -> Any:
    """Return all of the votes but the first voter's, and the facts about them."""
    made: Any = pv.Ballots.of(table, steps=100, **how)
    names = made.query_names, made.voter_names, made.label_names
    return made.steps, made.missing, names, made.to_array()[:, 1:].tolist()


@pytest.mark.parametrize("kind", VOTES)
@pytest.mark.parametrize("form", [form for form in FORMS if form not in LISTS])
def test_one_vote_changes_no_other(form: str, kind: str, tmp_path: Path, outcome: Outcome) -> None:
    if kind == "str" and "parquet" in form:
        pytest.skip("votes in Parquet are numbers or bools")
    written, soft = VOTES[kind]
    table = BALLOTS | (COUNTED if "parquet" in form else {})
    table |= {label: [*map(written, table[label])] for label in ("fever", "cough")}

    def view(columns: Columns) -> Any:
        return seen_votes(FORMS[form](columns, tmp_path), soft=soft)

    outcome.of(f"one vote of {kind} in {form}", walk(view, table, "fever"))


LISTED = {"queries_from": ["q1", "q2", "q3"], "voters_from": ["ann", "bob", "cy"]}
#: Which rows a voter leaves out, and the query of a row that only this voter adds.
ABSENT: dict[str, tuple[list[int], str | None]] = {
    "a ballot without a row": ([0], None),
    "a voter without a ballot": ([0, 3, 6], None),
    "a query of one voter": ([], "q0"),
}


@pytest.mark.parametrize("what", ABSENT)
@pytest.mark.parametrize("form", [f for f in FORMS if f not in LISTS and "parquet" not in f])
def test_which_queries_and_voters_there_are_is_listed(
    form: str, what: str, tmp_path: Path, outcome: Outcome
) -> None:
    absent, query = ABSENT[what]
    row = [] if query is None else [(query, "ann", 1, 0)]
    kept = [row for at, row in enumerate(zip(*BALLOTS.values(), strict=True)) if at not in absent]
    rest = dict(zip(BALLOTS, map(list, zip(*row, *kept, strict=True)), strict=True))

    def view(columns: Columns) -> Any:
        return seen_votes(FORMS[form](columns, tmp_path), **LISTED)

    if what != "a voter without a ballot":  # how many there are is public
        with pytest.raises(pv.PrivoteError):
            seen_votes(FORMS[form](rest, tmp_path))
    outcome.of(f"{what} in {form}", [broken(view, BALLOTS, rest)])


# -- polls -----------------------------------------------------------------------------------------

OPTIONS = ["Ada", "Bo", "Cy"]
MARKS = [[1, 0, 1, 1], [0, 0, 1, 0], [0, 1, 0, 1]]
POLLS: dict[str, tuple[Columns, dict[str, Any]]] = {
    **{
        kind: (
            {name: [*map(written, marks)] for name, marks in zip(OPTIONS, MARKS, strict=True)},
            how,
        )
        for kind, written, how in (
            ("approvals", int, {}),
            ("bools", bool, {}),
            ("words", ["no", "yes"].__getitem__, {}),
            ("points", [0, 3].__getitem__, {"each": 5}),
        )
    },
    "lists": ({"Picks": ["Ada;Bo", "Bo", "Cy", "Ada;Cy"]}, {"column": "Picks"}),
}


@pytest.mark.parametrize("kind", POLLS)
@pytest.mark.parametrize("form", FORMS)
def test_one_ballot_changes_no_other(
    form: str, kind: str, tmp_path: Path, outcome: Outcome
) -> None:
    marks, how = POLLS[kind]
    table = {"voter": [4, 2, 7, 5], **marks}

    def view(columns: Columns) -> Any:
        everybody, one = (
            read(FORMS[form](part, tmp_path), options=OPTIONS, voter="voter", **how)
            for part in (columns, first(columns))
        )
        others = everybody.tally.counts - one.tally.counts
        return everybody.options, everybody.rule, everybody.size, everybody.notes, others.tolist()

    found = [*walk(view, table, next(iter(marks))), *walk(view, table, "voter")]
    outcome.of(f"one ballot of {kind} in {form}", found)


def test_one_write_in_is_no_option(tmp_path: Path, outcome: Outcome) -> None:
    rows = records({"voter": [4, 2, 7], "Ada": [1, 0, 1], "Bo": [0, 1, 1]}, tmp_path)

    def view(columns: Columns) -> Any:
        made = read(columns["rows"], options=OPTIONS[:2], voter="voter")
        return made.options, made.rule, made.size, made.notes

    odd = [{"Zoe": 1, **rows[0]}, *rows[1:]]
    with pytest.raises(pv.PrivoteError):
        read(odd)
    outcome.of("a write-in", [broken(view, {"rows": rows}, {"rows": odd})])

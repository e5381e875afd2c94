"""What is inferred is a statistic: every reader, every kind of column, one odd record.

One record of a table gets a gap, a fraction, a time of day, a strange text, a new key. Whatever is
made of any other record, and whatever is published besides noise, must not change by a bit; or the
table is refused by a rule that looks at that record alone, which shows by refusing it without the
others, too. No refusal quotes it.
"""

from __future__ import annotations

import csv
import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.neural_network import MLPClassifier
from tests.attacks.conftest import Outcome
from typer.testing import CliRunner

import privote as pv
from privote.cli import app
from privote.datasets import Images
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
    "polars": lambda columns, _: pytest.importorskip("polars").DataFrame(
        typed(columns), strict=False
    ),
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
    "a number beyond floats": "1e400",
    "an extra option": "Ada;Zoe",
}
View = Callable[[Columns], Any]  # of all records but the first, and of all together
Made = Callable[[Columns], Any]


def judge(view: View, before: Columns) -> Callable[[Columns], str | None]:
    """Return what says what is wrong with a table whose first record changed, None if nothing."""
    there = view(before)

    def broken(after: Columns) -> str | None:
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

    return broken


def first(columns: Columns) -> Columns:
    """Return the first record."""
    return {name: cells[:1] for name, cells in columns.items()}


# -- what is read, and what must stay --------------------------------------------------------------


def encoded(kind: str, made: Made) -> View:
    encoder = TableEncoder().fit(made({"x": [1, 2, 3] * 3, kind: KINDS[kind][0] * 3}))
    plain = encoder.to_plain()
    assert len(plain["columns"]) + len(plain["left_out"]) == 2

    def view(columns: Columns) -> Any:
        rows = encoder.transform(made(columns))
        rows = rows.toarray() if sp.issparse(rows) else rows
        return rows[1:].tobytes(), rows.shape

    return view


def named(argument: str, kind: str, made: Made) -> View:
    how: dict[str, Any] = {argument: [kind] if argument == "labels" else kind}

    def view(columns: Columns) -> Any:
        data = raw_table(made(columns), features=["x"], **how)
        parts = (data.Y, data.ids, data.groups)
        return [None if part is None else part[1:].tolist() for part in parts], data.label_names

    return view


def trained(method: str, made: Made) -> View:
    public = made({name: KINDS[name][0] * 4 for name in TRAINED})
    return lambda columns: published(method, made(columns), public)


def published(method: str, rows: Any, public: Any) -> Any:
    """Return everything besides what was drawn."""
    steps = {"steps": 2} if method == "gradients" else {}
    model = pv.PrivateClassifier(method, epsilon=1.0, settings=steps)
    model.fit(rows, ["ill"], public, seed=1)
    facts = replace(model.guarantee_, drawn="", made_at="", text=None)
    encoder: Any = model.encoder_
    scales = [np.asarray(getattr(model.student_, name)).tolist() for name in ("mean_", "scale_")]
    return encoder.to_plain(), model.label_names_, facts, scales


def votes(soft: bool | None, made: Made, **how: Any) -> View:
    def view(columns: Columns) -> Any:
        ballots: Any = pv.Ballots.of(made(columns), resolution=100, soft=soft, **how)
        names = ballots.query_names, ballots.voter_names, ballots.label_names
        return ballots.resolution, ballots.missing, names, ballots.to_array()[:, 1:].tolist()

    return view


def counted(how: Mapping[str, Any], made: Made) -> View:
    def view(columns: Columns) -> Any:
        everybody, one = (
            read(made(part), options=OPTIONS, voter="voter", **how)
            for part in (columns, first(columns))
        )
        others = everybody.counts - one.counts
        return everybody.options, everybody.size, everybody.notes, others.tolist()

    return view


def shown(verb: str, flags: str, made: Made) -> View:
    """Return what the command line says besides what was drawn."""
    public = made({name: KINDS[name][0] * 4 for name in TRAINED})
    to, lists = public.with_name("to"), ""
    for axis, names in LISTED.items():
        public.with_name(axis).write_text("\n".join(names))
        lists += f" --{'queries' if axis == 'query' else 'voters'}-from {public.with_name(axis)}"
    words = [*verb.split(), *flags.format(public=public, to=to, lists=lists).split()]
    words += ["--epsilon=1", "--delta=1e-6", "--seed=1", "--json"]
    words += [] if verb == "poll" else ["--force"]

    def view(columns: Columns) -> Any:
        file = made(columns).replace(to.with_suffix(".data.csv"))  # what it is called is public
        done = CliRunner().invoke(app, [*words, str(file)])
        assert done.exit_code in (0, 2), done.output
        if done.exit_code == 2:
            raise pv.InputError(done.output)
        # A digest is of what was drawn, and the minute goes on.
        facts = json.loads(re.sub(r"[0-9a-f]{64}|[\d-]{10} \d\d:\d\d UTC", "", done.stdout))
        rows = to.with_suffix(".csv").read_text().split() if "label" in verb else []
        names = [row.partition(",")[0] for row in rows]
        return {name: facts[name] for name in {*facts} - {"winners", "uncertain"}}, names

    return view


TRAINED = ("whole numbers", "codes")
FRAMES = [form for form in FORMS if form not in LISTS]
NAMED: dict[str, tuple[str, list[Any]]] = {
    "labels": ("labels", [1, 0, 1, 0]),
    "labels of bools": ("labels", [True, False, True, False]),
    "labels of words": ("labels", ["yes", "no", "yes", "no"]),
    "ids": ("id_column", [17, 4, 12, 3]),
    "ids of texts": ("id_column", ["17", "004", "12", "3"]),
    "groups": ("group_column", [1, 2, 2, 1]),
    "groups of texts": ("group_column", ["1", "02", "02", "01"]),
}
RECORDS = {name: KINDS[name][1] * 3 for name in TRAINED} | {"ill": [1, 0] * 6}
VOTES: dict[str, tuple[Callable[[int], Any], bool | None]] = {
    **{kind.__name__: (kind, None) for kind in (int, bool, float, str)},
    "nothing": (lambda vote: None, None),
    "probabilities": (lambda vote: 0.25 + vote / 2, True),
    "whole probabilities": (int, True),
}
LISTED = {"query": ["q1", "q2", "q3"], "voter": ["ann", "bob", "cy"]}
BALLOTS: dict[str, list[Any]] = {
    **{"query": np.repeat(LISTED["query"], 3).tolist(), "voter": LISTED["voter"] * 3},
    **{"fever": [1, 0, 1, 0, 0, 1, 1, 1, 0], "cough": [0, 0, 1, 1, 0, 0, 1, 0, 1]},
}
COUNTED = {"query": [0] * 3 + [1] * 3 + [2] * 3, "voter": [0, 1, 2] * 3}  # as Parquet has them
OPTIONS = ["Ada", "Bo", "Cy"]
MARKS = {"Ada": [1, 0, 1, 1], "Bo": [0, 0, 1, 0], "Cy": [0, 1, 0, 1]}
PICKS = {"voter": [4, 2, 7, 5], "Picks": ["Ada;Bo", "Bo", "Cy", "Ada;Cy"]}
POLLS: dict[str, tuple[Callable[[int], Any], dict[str, Any]]] = {
    "approvals": (int, {}),
    "bools": (bool, {}),
    "words": (["no", "yes"].__getitem__, {}),
    "points": ([0, 3].__getitem__, {"each": 5}),
}
CHANCES = BALLOTS | {"fever": [0.25 + vote / 2 for vote in BALLOTS["fever"]]}
VERBS: dict[str, tuple[str, Columns, Sequence[str]]] = {
    "label": ("{lists} --mechanism binary --sigma 7 --output {to}.csv", BALLOTS, ["fever"]),
    "label --soft": ("{lists} --anyway --output {to}.csv", CHANCES, ["fever"]),
    "poll": ("--column Picks --options Ada,Bo,Cy --duplicates first", PICKS, [*PICKS]),
    "train": ("--labels ill --public {public} --output {to} --method moments", RECORDS, TRAINED),
}
#: By name: forms, a table, the columns in which its first record is odd, and how it is read.
CASES: dict[str, tuple[Sequence[str], Columns, Sequence[str], Callable[[Made], View]]] = {
    "what moments publish": (
        ("csv", "pandas csv", "parquet", "polars", "sparse records"),
        *(RECORDS, TRAINED, partial(trained, "moments")),
    ),
    "what gradients publish": (["pandas"], RECORDS, TRAINED, partial(trained, "gradients")),
    "one label": (["csv", "pandas"], {"fever": [1, 0, 1]}, ["fever"], partial(votes, None)),
    "a poll of lists": ([*FORMS], PICKS, [*PICKS], partial(counted, {"column": "Picks"})),
}
for kind, (_, cells) in KINDS.items():
    CASES[kind] = [*FORMS], {"x": [1, 3, 2, 1], kind: cells}, [kind], partial(encoded, kind)
for kind, (argument, cells) in NAMED.items():
    look = partial(named, argument, kind)
    CASES[kind] = [*FORMS], {"x": [1, 3, 2, 1], kind: cells}, [kind], look
for kind, (written, soft) in VOTES.items():
    table = BALLOTS | COUNTED | {"fever": [*map(written, BALLOTS["fever"])]}
    held = [form for form in FRAMES if kind != "str" or "parquet" not in form]
    CASES[f"votes of {kind}"] = held, table, ["fever"], partial(votes, soft)
for kind, (written, how) in POLLS.items():
    table = {"voter": [4, 2, 7, 5]} | {name: [*map(written, row)] for name, row in MARKS.items()}
    CASES[f"a poll of {kind}"] = [*FORMS], table, ["Ada", "voter"], partial(counted, how)
for verb, (flags, table, odd) in VERBS.items():
    CASES[f"privote {verb}"] = ["csv"], table, odd, partial(shown, verb, flags)


@pytest.mark.parametrize(("case", "form"), [(name, f) for name in CASES for f in CASES[name][0]])
def test_one_cell_changes_nothing_else(
    case: str, form: str, tmp_path: Path, outcome: Outcome
) -> None:
    _, table, names, look = CASES[case]
    broken = judge(look(lambda columns: FORMS[form](columns, tmp_path)), table)
    found = {
        f"{name}: {what}": broken({**table, name: [cell, *table[name][1:]]})
        for name in names
        for what, cell in ODD.items()
    }
    outcome.of(f"one cell: {case} in {form}", [why and (what, why) for what, why in found.items()])


#: Which rows a voter leaves out, and the query of a row that only this voter adds.
ABSENT: dict[str, tuple[list[int], str | None]] = {
    "a ballot without a row": ([0], None),
    "a voter without a ballot": ([0, 3, 6], None),
    "a query of one voter": ([], "q0"),
}


@pytest.mark.parametrize("what", ABSENT)
@pytest.mark.parametrize("form", [form for form in FRAMES if "parquet" not in form])
def test_which_queries_and_voters_there_are_is_listed(
    form: str, what: str, tmp_path: Path, outcome: Outcome
) -> None:
    absent, query = ABSENT[what]
    row = [] if query is None else [(query, "ann", 1, 0)]
    kept = [row for at, row in enumerate(zip(*BALLOTS.values(), strict=True)) if at not in absent]
    rest = dict(zip(BALLOTS, map(list, zip(*row, *kept, strict=True)), strict=True))

    def made(columns: Columns) -> Any:
        return FORMS[form](columns, tmp_path)

    if what != "a voter without a ballot":  # how many there are is public
        with pytest.raises(pv.PrivoteError):
            votes(None, made)(rest)
    view = votes(None, made, queries_from=LISTED["query"], voters_from=LISTED["voter"])
    outcome.of(f"{what} in {form}", [judge(view, BALLOTS)(rest)])


# -- keys of one record ----------------------------------------------------------------------------


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
    outcome.of(f"one key, public rows {pool}", [judge(view, {"rows": rows})({"rows": odd})])


def test_one_write_in_is_no_option(tmp_path: Path, outcome: Outcome) -> None:
    rows = records({"voter": [4, 2, 7], "Ada": [1, 0, 1], "Bo": [0, 1, 1]}, tmp_path)

    def view(columns: Columns) -> Any:
        poll = read(columns["rows"], options=OPTIONS[:2], voter="voter")
        return poll.options, poll.size, poll.notes

    odd = [{"Zoe": 1, **rows[0]}, *rows[1:]]
    with pytest.raises(pv.PrivoteError):
        read(odd)
    outcome.of("a write-in", [judge(view, {"rows": rows})({"rows": odd})])


# -- numbers of records, moments beyond Python, warnings -------------------------------------------


def test_one_more_record_is_not_promised_where_their_number_decides() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(400, 30)), (rng.random((400, 2)) < 0.4).astype(int)
    pool, seen = rng.normal(size=(200, 30)), []
    for size in (400, 399):
        model = pv.PrivateClassifier("teachers", epsilon=4.0)
        seen.append(model.fit(X[:size], Y[:size], pool).guarantee_)
    most, fewest = seen
    assert most.voters == fewest.voters or "more or fewer" not in most.protects


def test_a_moment_that_python_has_no_type_for_is_not_quoted(tmp_path: Path) -> None:
    far, days = np.array([2**30, 5], "M8[D]"), pa.array([2**30, 5], pa.date32())
    table = pa.table({"x": [1, 2], "day": days})
    for source in (table, parquet(table, tmp_path), {"x": [1, 2], "day": far}):
        with pytest.raises(pv.InputError) as refused:
            raw_table(source, labels=["day"], features=["x"])
        assert str(2**30) not in str(refused.value)
    moments = pd.DataFrame({"x": [1, 2], "name": np.array(["30000-01-01", "2021-03-01"], "M8[s]")})
    assert raw_table(moments, id_column="name").ids.tolist()[1] == "2021-03-01"


def test_no_warning_tells_of_private_rows(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """Not that a fit did not converge or overflowed, nor what is odd about a picture."""
    Image = pytest.importorskip("PIL.Image")
    warnings.simplefilter("always")
    rng = np.random.default_rng(0)
    X, pool = rng.normal(size=(60, 4)), rng.normal(size=(20, 4))
    Y = (X[:, :2] > 0).astype(int)
    for odd, teacher in ((X[0, 0], MLPClassifier(max_iter=1)), (1e308, None)):
        X[0] = odd
        pv.PATEClassifier(teacher, n_teachers=2, epsilon=8.0).fit(X, Y, pool, seed=1)
    exif = Image.Exif()
    exif[0x0112], exif[0x9286] = 6, "a comment" * 10
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg", exif=exif.tobytes()[:-30])
    Images(paths=[str(tmp_path / "a.jpg")])[:]
    assert {each.category for each in recwarn} <= {pv.PrivoteWarning}

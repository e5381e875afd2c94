"""Malformed tables and votes files: each error names file, line, column and rule; none charges.

No message quotes a cell of a private row: it may end up in a log, or with whoever helps.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from privote.cli import app

Content = str | bytes
BUDGET = ("--epsilon", "8", "--delta", "1e-5", "--ledger", "ledger.db")

# What is in bad.csv, and what must be said of it.
VOTES: dict[str, tuple[Content, str]] = {
    "nothing": ("", "bad.csv, line 1: must be a header"),
    "blank lines only": ("\n\n\n", "bad.csv, line 1: must be a header"),
    "a header only": ("query,voter,x\n", "bad.csv has a header and no rows"),
    "no voters": ("query,x\n1,1\n", "'query' and must then have a column 'voter'; it has: 'query'"),
    "no labels": ("query,voter\n1,a\n", "must have one column a label, it has: 'query', 'voter'"),
    "one name twice": ("query,voter,x,x\n1,a,1,0\n", "line 1: columns 3 and 4 are both called 'x'"),
    "a column without a name": ("query,voter,x,\n1,a,1,0\n", "line 1: column 4 has no name"),
    "a word": (
        "query,voter,x\n1,a,1\n1,b,maybe\n",
        "bad.csv, line 3, column 'x' must be a vote: 1, 0, yes, no, true, false or empty (missing)",
    ),
    "a two": ("query,voter,x,y\n1,a,1,2\n", "bad.csv, line 2, column 'y' must be a vote"),
    "minus two": ("voter,x\na,-2\nb,1\n", "line 2, column 'x' must be a vote"),
    "infinity": ("voter,x\na,1\nb,inf\n", "line 3, column 'x' must be a vote"),
    "a formula": ("voter,x\na,1\nb,=1+0\n", "line 3, column 'x' must be a vote"),
    "a probability": (
        "query,voter,x\n1,a,0.7\n",
        "line 2, column 'x' must be a vote: 1, 0, yes, no, true, false or empty (missing); if "
        "these are probabilities, give --threshold",
    ),
    "no header": (
        "anna,1,1,0\nbob,0,1,0\n",
        "line 1: columns 2 and 3 are both called the same; the first line reads like a row",
    ),
    "a row too short": ("query,voter,x\n1,a\n", "line 2: 2 values under a header of 3"),
    "a row too long": ("query,voter,x\n1,a,1\n1,b,1,1\n", "line 3: 4 values under a header of 3"),
    "commas below semicolons": ("query;voter;x\n1,a,1\n", "line 2: 1 values under a header of 3"),
    "two ballots": (
        "query,voter,x\n1,a,1\n1,b,1\n\n1,a,0\n",
        "bad.csv, line 2 and line 5: a voter must cast one ballot on one query",
    ),
    "two ballots by one name": (
        "query,voter,x\n1,a,1\n1,b,1\n1, a ,0\n",
        "line 2 and line 4: a voter must cast one ballot on one query",
    ),
    "two ballots on the only query": (
        "name,x\nanna,1\nbob,0\nanna,0\n",
        "line 2 and line 4: a voter must cast one ballot",
    ),
    "no voter": ("query,voter,x\n1,a,1\n1,,1\n", "line 3, column 'voter' must name the voter"),
    "no voter anywhere": ("query,voter,x\n1,,\n2,,\n", "bad.csv names no voter"),
    "no query": ("query,voter,x\n1,a,1\n,b,1\n", "line 3, column 'query' must name the query"),
    "a query of one voter": (
        "query,voter,x\n1,a,1\n1,b,1\n2,b,1\n",
        "line 4, column 'query' must be named by two voters or more, and this one is by one",
    ),
    "a row a vote": (
        "query,voter,label,vote\n1,a,x,1\n1,b,x,0\n",
        "must have one column a label, and none called 'label'",
    ),
    "an open quote": ('query,voter,x\n1,a,1\n1,"b,1\n', "line 3: cannot be read: unexpected end"),
    "a quote inside": ('query,voter,x\n1,"a"b,1\n', "line 2: cannot be read: ',' expected after"),
    "Latin-1": (
        "query,voter,x\n1,a,1\n1,\xe9,1\n".encode("latin-1"),
        "bad.csv must be text in UTF-8",
    ),
    "UTF-16": ("query,voter,x\n1,a,\ud83d\n".encode("utf-16", "surrogatepass"), "in UTF-16"),
    "bytes": (b"\x89PNG\r\n\x1a\n\x00\xff", "must be text in UTF-8"),
    "a huge cell": ("query,voter,x\n1,a," + "1" * 200_000, "line 2: cannot be read: field larger"),
}
SOFT: dict[str, tuple[Content, str]] = {
    "above one": (
        "voter,x\na,0.5\nb,1.5\n",
        "bad.csv, line 3, column 'x' must be a probability from 0 to 1, or empty (missing)",
    ),
    "below zero": ("voter,x\na,-0.1\nb,1\n", "line 2, column 'x' must be a probability"),
    "a word": ("voter,x\na,yes\nb,1\n", "must be a probability from 0 to 1, or empty (missing)"),
    "minus one": ("voter,x\na,-1\nb,1\n", "line 2, column 'x' must be a probability"),
    "digits in groups": ("voter,x\na,0_1\nb,1\n", "line 2, column 'x' must be a probability"),
}
TABLES: dict[str, tuple[Content, str]] = {
    "nothing": ("", "bad.csv, line 1: must be a header"),
    "a header only": ("id,who,age,flu\n", "bad.csv must have rows and columns of features"),
    "no features": ("id,who,flu\n1,p,1\n", "bad.csv must have rows and columns of features"),
    "no such label": ("id,who,age\n1,p,5\n", "bad.csv has no column 'flu'; it has 'id', 'who'"),
    "no header": (
        "17,anna,53,ill\n18,bob,54,well\n",
        "bad.csv has no column 'flu'; it has 4 others, but the first line reads like a row",
    ),
    "no such person": ("id,age,flu\n1,5,1\n", "bad.csv has no column 'who'"),
    "no such id": ("who,age,flu\n1,5,1\n", "bad.csv has no column 'id'"),
    "one name twice": (
        "id,who,age,age,flu\n1,p,1,2,1\n",
        "line 1: columns 3 and 4 are both called",
    ),
    "a column without a name": ("id,who,,flu\n1,p,1,1\n", "line 1: column 3 has no name"),
    "a label that is none": (
        "id,who,age,flu\n1,p,5,1\n2,p,6,ill\n",
        "bad.csv, line 3, column 'flu' must be a label: 1, 0, yes, no, true, false or empty "
        "(unknown)",
    ),
    "a label of two": ("id,who,age,flu\n1,p,5,2\n", "line 2, column 'flu' must be a label"),
    "a label of a half": ("id,who,age,flu\n1,p,5,0.5\n", "line 2, column 'flu' must be a label"),
    "nobody": (
        "id,who,age,flu\n1,p,5,1\n2, ,6,1\n",
        "bad.csv, line 3, column 'who' must name the person this record belongs to, and is empty",
    ),
    "no id": ("id,who,age,flu\n,p,5,1\n", "line 2, column 'id' must name the record, and is empty"),
    "an id twice": (
        "id,who,age,flu\n7,p,5,1\n8,p,5,1\n7,q,6,1\n",
        "bad.csv, line 2, column 'id' and line 4: ids must differ",
    ),
    "a row too short": ("id,who,age,flu\n1,p,5\n", "line 2: 3 values under a header of 4"),
    "a row too long": ("id,who,age,flu\n1,p,5,1,1\n", "line 2: 5 values under a header of 4"),
    "an open quote": ('id,who,age,flu\n1,"p,5,1\n', "line 2: cannot be read: unexpected end"),
    "Latin-1": ("id,who,age,flu\n1,\xe9,5,1\n".encode("latin-1"), "must be text in UTF-8"),
    "infinity": ("id,who,age,flu\n1,p,inf,1\n", "line 2, column 'age' must be"),
    "beyond floats": ("id,who,age,flu\n1,p,1e300,1\n", "line 2, column 'age' must be"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a ledger that has entries, and public rows; no test here changes it."""
    place = tmp_path_factory.mktemp("bad")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        np.save("good.npy", np.zeros((4, 20, 2), bool))
        settings = ("--mechanism", "binary", "--sigma", "9", "--output", "good.csv")
        done = CliRunner().invoke(app, ["label", "good.npy", *BUDGET, *settings])
    assert done.exit_code == 0, done.stderr
    (place / "public.csv").write_text("age\n1\n2\n3\n")
    return place


@pytest.fixture
def folder(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


def refused(folder: Path, content: Content, *words: str) -> str:
    """Run a verb on a bad file; return what it says, once nothing has changed."""
    file = folder / "bad.csv"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    before = (folder / "ledger.db").read_bytes(), sorted(path.name for path in folder.iterdir())
    done = CliRunner().invoke(app, [*words, *BUDGET])
    assert done.exit_code == 2, (done.stdout, done.stderr)
    after = (folder / "ledger.db").read_bytes(), sorted(path.name for path in folder.iterdir())
    assert before == after
    *warnings, error = done.stderr.splitlines()
    assert all(line.startswith("warning: ") for line in warnings)
    assert error.startswith("error: ")
    said = {*re.findall(r"'([^']*)'", error), *re.findall(r"[\w.=+-]{2,}", error)}
    assert not said & (private_cells(content) - {"yes"})  # which the rule on votes names
    return str(error)


def private_cells(content: Content) -> set[str]:
    """Return what stands in rows; in the header, too, where it is a row in truth."""
    text = content if isinstance(content, str) else content.decode("latin-1")
    header, *rows = [re.split("[,;]", line) for line in text.splitlines()] or [[]]
    private = {cell.strip().strip('"') for row in rows for cell in row}
    return private | set(header) if "1" in header or "17" in header else private - set(header)


def label(folder: Path, content: Content, *more: Any) -> str:
    settings = ("--mechanism", "binary", "--sigma", "9", "--output", "labels.csv")
    return refused(folder, content, "label", "bad.csv", *settings, *map(str, more))


@pytest.fixture(autouse=True)
def _usual_cells() -> Iterator[None]:
    """Other libraries lift Python's limit on cells for the whole process."""
    before = csv.field_size_limit(131_072)
    yield
    csv.field_size_limit(before)


@pytest.mark.parametrize("case", VOTES)
def test_votes(folder: Path, case: str) -> None:
    content, message = VOTES[case]
    assert message in label(folder, content)


@pytest.mark.parametrize("case", SOFT)
def test_probabilities(folder: Path, case: str) -> None:
    content, message = SOFT[case]
    assert message in label(folder, content, "--threshold", 0.5)


@pytest.mark.parametrize("case", TABLES)
def test_tables(folder: Path, case: str) -> None:
    content, message = TABLES[case]
    roles = ("--labels", "flu", "--id-column", "id", "--group-column", "who")
    words = ("train", "bad.csv", "--public", "public.csv", *roles, "--output", "run")
    assert message in refused(folder, content, *words)


def test_the_owner_sees_the_cell_on_request(folder: Path) -> None:
    content, _ = TABLES["a label that is none"]
    (folder / "bad.csv").write_bytes(content.encode() if isinstance(content, str) else content)
    words = ("train", "bad.csv", "--public", "public.csv", "--labels", "flu", "--output", "run")
    done = CliRunner().invoke(app, [*words, *BUDGET, "--show-sealed"])
    assert done.stderr.splitlines()[-1] == "for the owner's eyes: the cell is 'ill'"

"""Malformed tables and votes files: each error names file, line, column and rule; none charges.

No message quotes a cell of a private row: it may end up in a log, or with whoever helps.
"""

from __future__ import annotations

import csv
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from privote.cli import app

Content = str | bytes
BUDGET = ("--epsilon", "8", "--delta", "1e-5", "--ledger", "ledger.db")

# What is in bad.csv, and which place must be named.
VOTES: dict[str, tuple[Content, str]] = {
    "nothing": ("", "bad.csv, line 1: "),
    "blank lines only": ("\n\n\n", "bad.csv, line 1: "),
    "a header only": ("query,voter,x\n", "bad.csv "),
    "no voters": ("query,x\n1,1\n", "'voter'"),
    "no labels": ("query,voter\n1,a\n", "'query', 'voter'"),
    "one name twice": ("query,voter,x,x\n1,a,1,0\n", "line 1: columns 3 and 4 "),
    "a column without a name": ("query,voter,x,\n1,a,1,0\n", "line 1: column 4 "),
    "a word": ("query,voter,x\n1,a,1\n1,b,maybe\n", "bad.csv, line 3, column 'x'"),
    "a two": ("query,voter,x,y\n1,a,1,2\n", "bad.csv, line 2, column 'y'"),
    "minus two": ("voter,x\na,-2\nb,1\n", "line 2, column 'x'"),
    "infinity": ("voter,x\na,1\nb,inf\n", "line 3, column 'x'"),
    "a formula": ("voter,x\na,1\nb,=1+0\n", "line 3, column 'x'"),
    "a probability": ("query,voter,x\n1,a,0.7\n", "--threshold"),
    "no header": ("anna,1,1,0\nbob,0,1,0\n", "line 1: columns 2 and 3 "),
    "a row too short": ("query,voter,x\n1,a\n", "line 2: 2 values "),
    "a row too long": ("query,voter,x\n1,a,1\n1,b,1,1\n", "line 3: 4 values "),
    "commas below semicolons": ("query;voter;x\n1,a,1\n", "line 2: 1 values "),
    "two ballots": ("query,voter,x\n1,a,1\n1,b,1\n\n1,a,0\n", "bad.csv, line 2 and line 5: "),
    "two by one name": ("query,voter,x\n1,a,1\n1,b,1\n1, a ,0\n", "line 2 and line 4: "),
    "two on the only query": ("name,x\nanna,1\nbob,0\nanna,0\n", "line 2 and line 4: "),
    "no voter": ("query,voter,x\n1,a,1\n1,,1\n", "line 3, column 'voter'"),
    "no voter anywhere": ("query,voter,x\n,,\n", "bad.csv names no voter"),
    "no query": ("query,voter,x\n1,a,1\n,b,1\n", "line 3, column 'query'"),
    "a query of one voter": ("query,voter,x\n1,a,1\n1,b,1\n2,b,1\n", "bad.csv has no row"),
    "a row a vote": ("query,voter,label,vote\n1,a,x,1\n1,b,x,0\n", "'label'"),
    "an open quote": ('query,voter,x\n1,a,1\n1,"b,1\n', "line 3: "),
    "a quote inside": ('query,voter,x\n1,"a"b,1\n', "line 2: "),
    "Latin-1": ("query,voter,x\n1,a,1\n1,\xe9,1\n".encode("latin-1"), "UTF-8"),
    "UTF-16": ("query,voter,x\n1,a,\ud83d\n".encode("utf-16", "surrogatepass"), "UTF-16"),
    "bytes": (b"\x89PNG\r\n\x1a\n\x00\xff", "UTF-8"),
    "a huge cell": ("query,voter,x\n1,a," + "1" * 200_000, "line 2: "),
}
SOFT: dict[str, tuple[Content, str]] = {
    "above one": ("voter,x\na,0.5\nb,1.5\n", "bad.csv, line 3, column 'x'"),
    "below zero": ("voter,x\na,-0.1\nb,1\n", "line 2, column 'x'"),
    "a word": ("voter,x\na,yes\nb,1\n", "line 2, column 'x'"),
    "digits in groups": ("voter,x\na,0_1\nb,1\n", "line 2, column 'x'"),
}
TABLES: dict[str, tuple[Content, str]] = {
    "a header only": ("id,who,age,flu\n", "bad.csv "),
    "no features": ("id,who,flu\n1,p,1\n", "bad.csv "),
    "no such label": ("id,who,age\n1,p,5\n", "'flu'"),
    "no header": ("17,anna,53,ill\n18,bob,54,well\n", "'flu'; it has 4 others"),
    "no such person": ("id,age,flu\n1,5,1\n", "'who'"),
    "no such id": ("who,age,flu\n1,5,1\n", "'id'"),
    "a label that is none": ("id,who,age,flu\n1,p,5,1\n2,p,6,ill\n", "line 3, column 'flu'"),
    "a label of two": ("id,who,age,flu\n1,p,5,2\n", "line 2, column 'flu'"),
    "a label of a half": ("id,who,age,flu\n1,p,5,0.5\n", "line 2, column 'flu'"),
    "nobody": ("id,who,age,flu\n1,p,5,1\n2, ,6,1\n", "line 3, column 'who'"),
    "no id": ("id,who,age,flu\n,p,5,1\n", "line 2, column 'id'"),
    "an id twice": ("id,who,age,flu\n7,p,5,1\n8,p,5,1\n7,q,6,1\n", "column 'id' and line 4: "),
    "a row too short": ("id,who,age,flu\n1,p,5\n", "line 2: 3 values "),
    "infinity": ("id,who,age,flu\n1,p,inf,1\n", "line 2, column 'age'"),
    "beyond floats": ("id,who,age,flu\n1,p,1e300,1\n", "line 2, column 'age'"),
}
LABEL = ("label", "bad.csv", "--mechanism", "binary", "--sigma", "9", "--output", "labels.csv")
TRAIN = ("train", "bad.csv", "--public", "public.csv", "--labels", "flu", "--output", "run")


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
def folder(made: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(made)
    before = csv.field_size_limit(131_072)  # which other libraries lift for the whole process
    yield made
    csv.field_size_limit(before)


def entries(folder: Path) -> tuple[list[str], list[str]]:
    """Return all that the ledger holds, and which files there are but for SQLite's own."""
    with closing(sqlite3.connect(folder / "ledger.db")) as ledger:
        names = (path.name for path in folder.iterdir())
        return [*ledger.iterdump()], sorted(n for n in names if not n.endswith(("-wal", "-shm")))


def refused(folder: Path, content: Content, *words: str) -> str:
    """Run a verb on a bad file; return what it says, once nothing has changed."""
    file = folder / "bad.csv"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    before = entries(folder)
    done = CliRunner().invoke(app, [*words, *BUDGET])
    assert done.exit_code == 2, (done.stdout, done.stderr)
    assert entries(folder) == before
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


@pytest.mark.parametrize("case", VOTES)
def test_votes(folder: Path, case: str) -> None:
    content, place = VOTES[case]
    assert place in refused(folder, content, *LABEL)


@pytest.mark.parametrize("case", SOFT)
def test_probabilities(folder: Path, case: str) -> None:
    content, place = SOFT[case]
    assert place in refused(folder, content, *LABEL, "--threshold", "0.5")


@pytest.mark.parametrize("case", TABLES)
def test_tables(folder: Path, case: str) -> None:
    content, place = TABLES[case]
    assert place in refused(folder, content, *TRAIN, "--id-column", "id", "--group-column", "who")


def test_the_owner_sees_the_cell_on_request(folder: Path) -> None:
    (folder / "bad.csv").write_text(str(TABLES["a label that is none"][0]))
    done = CliRunner().invoke(app, [*TRAIN, *BUDGET, "--show-sealed"])
    assert done.stderr.splitlines()[-1] == "for the owner's eyes: the cell is 'ill'"

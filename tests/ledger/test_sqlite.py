"""One way to open, check, lock and write an SQLite file, whoever keeps something in it."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest
from tests.refusals import refused

from privote.errors import LedgerError
from privote.ledger.store import Format, SQLiteFile

FORM = Format(
    name="list",
    number=2,
    tables={"things": "CREATE TABLE things (name TEXT PRIMARY KEY)"},
    earlier="which had no names",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "list.db"


def add(file: SQLiteFile, name: str) -> None:
    with file.transaction():
        file.run("INSERT INTO things VALUES (?)", name)


def test_what_is_written_is_there_for_the_next_one(path: Path) -> None:
    file = SQLiteFile(path, FORM)
    add(file, "a")
    assert path.stat().st_mode & 0o077 == 0
    assert file.run("PRAGMA synchronous") == [(2,)], "a commit is on disk when it returns"
    assert SQLiteFile(path, FORM).run("SELECT name FROM things") == [("a",)]
    assert SQLiteFile(path, FORM, readonly=True).run("SELECT name FROM things") == [("a",)]


def test_a_file_that_was_closed_says_so(path: Path) -> None:
    file = SQLiteFile(path, FORM)
    file.close()
    with refused(None, LedgerError):
        add(file, "a")
    with refused(None, LedgerError):
        file.run("SELECT name FROM things")


@pytest.mark.parametrize("readonly", [True, False])
def test_what_is_not_ours_is_refused_and_left_as_it_is(path: Path, readonly: bool) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE others (name TEXT)")
    before = path.read_bytes()
    with refused(None, LedgerError):
        SQLiteFile(path, FORM, readonly=readonly)
    assert path.read_bytes() == before
    path.write_text("not a database, but long enough to look like one" * 30)
    with pytest.raises(LedgerError, match=r"list '.*' cannot be opened"):
        SQLiteFile(path, FORM, readonly=readonly)


@pytest.mark.parametrize(
    ("number", "said"), [(1, "has format 1, .*: which had no names"), (3, "newer privote")]
)
def test_another_format_is_refused_in_one_sentence(path: Path, number: int, said: str) -> None:
    SQLiteFile(path, FORM).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version={number}")
    for readonly in (True, False):
        with pytest.raises(LedgerError, match=said):
            SQLiteFile(path, FORM, readonly=readonly)


@pytest.mark.parametrize("how", ["removed", "replaced", "replaced meanwhile"])
def test_a_file_that_was_swapped_takes_nothing(path: Path, how: str) -> None:
    file = SQLiteFile(path, FORM)
    other = SQLiteFile(path.with_name("other.db"), FORM)
    other.close()

    def swap() -> None:
        if how == "removed":
            path.unlink()
        else:
            os.replace(path.with_name("other.db"), path)

    if how == "replaced meanwhile":
        with refused(None, LedgerError), file.transaction():
            swap()
    else:
        swap()
    for _ in range(2):
        with refused(None, LedgerError):
            add(file, "a")
    assert file.run("SELECT name FROM things") == []

"""Where a ledger lies: what is new, what is in use, what was erased; and no password in sight."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.ledger.conftest import enter
from tests.refusals import refused

import privote as pv
from privote.ledger import Location
from privote.ledger.chain import Anchor, Chain
from privote.ledger.postgres import PostgresStore
from privote.ledger.store import START

SECRET = "hunter2-and-more"


def beside(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def files(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


# -- addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://clerk:{SECRET}@db.example:5433,two.example/ledger",
        f"postgresql://clerk:{SECRET}@db.example:5433/ledger",
        f"postgres://clerk:{SECRET}@db.example:5433/ledger?sslmode=require",
        f"postgresql+psycopg://db.example:5433/ledger?user=clerk&password={SECRET}",
    ],
)
def test_an_address_is_shown_without_user_and_password(address: str, tmp_path: Path) -> None:
    place = Location.of(address, tmp_path / "site")
    other = ",two.example" if "two" in address else ""
    assert place.shown == f"postgresql://db.example:5433{other}/ledger"
    assert SECRET not in repr(place)
    assert place.key == tmp_path / "site.key"


BAD: dict[str, tuple[Any, Any, str]] = {
    "no local name": (f"postgresql://u:{SECRET}@h/d", None, "beside"),
    "another database": (f"mysql://u:{SECRET}@h/d", None, "ledger"),
    "an address as a path": (Path(f"postgresql://u:{SECRET}@h/d"), "site", "ledger"),
    "port a word": (f"postgresql://u:{SECRET}@h:port/d", "site", "ledger"),
    "a file with beside": ("ledger.db", "site", "beside"),
    "an @ in a password": (f"postgresql://u:p@{SECRET}@h/d", "site", "ledger"),
    "beside a number": (f"postgresql://u:{SECRET}@h/d", 7, "beside"),
    "a null byte": ("a\0b", None, "ledger"),
    "keywords": (f"host=127.0.0.1 port=1 password={SECRET}", None, "ledger"),
    "keywords with beside": (f"PASSWORD = '{SECRET}' host=h", "site", "ledger"),
    "keywords as a path": (Path(f" sslmode=require password={SECRET}"), None, "ledger"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_places_are_refused_without_repeating_a_password(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given, local, argument = BAD[name]
    with refused(argument) as caught:
        pv.Ledger.open(given, beside=local)
    assert SECRET not in str(caught.value)
    assert files(tmp_path) == []


def test_a_refused_database_leaves_nothing_behind(tmp_path: Path) -> None:
    pytest.importorskip("psycopg", reason="the extra [postgres] is not installed")
    address = f"postgresql://clerk:{SECRET}@127.0.0.1:1/none"
    with refused(None, pv.LedgerError) as caught:
        enter(Location.of(address, tmp_path / "site"))
    assert SECRET not in str(caught.value)
    assert files(tmp_path) == []


@pytest.mark.parametrize("secret", ["e", SECRET])
def test_an_error_that_repeats_a_password_is_not_repeated(secret: str) -> None:
    """Crossed out in a message, one letter would be told by the gaps."""
    store = object.__new__(PostgresStore)
    store._secret = secret
    assert store._say(ValueError(f"no such user:{secret}@h\nmore")) == "ValueError"
    assert store._say(ValueError("no us")) == "no us"


# -- erased ledgers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lost", [("",), ("", ".head"), ("", ".key"), (".head",), (".key",)], ids=" ".join
)
def test_a_ledger_of_which_a_part_was_deleted_is_an_erased_record(
    path: Path, lost: tuple[str, ...]
) -> None:
    enter(path)
    for end in lost:
        beside(path, end).unlink()
    left = files(path.parent)
    for create in (True, False):
        with refused(None, pv.LedgerError):
            pv.Ledger.open(path, create=create)
    assert files(path.parent) == left  # nothing was made in its place


@pytest.mark.parametrize("named", [True, False])
def test_an_emptied_file_is_refused_also_with_the_key_in_the_environment(
    path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    if named:
        monkeypatch.setenv("PRIVOTE_LEDGER_KEY", "ab" * 32)
    enter(path)
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "DROP TRIGGER entries_remain; DELETE FROM sealed; DELETE FROM entries;"
        )
    beside(path, ".head").unlink()
    with refused(None, pv.LedgerError):
        enter(path)


# -- making one ------------------------------------------------------------------------------------


@pytest.mark.parametrize("anchored", [True, False])
def test_a_crash_while_it_was_made_is_finished_by_the_next(path: Path, anchored: bool) -> None:
    pv.Ledger.open(path).close()
    beside(path, ".key").unlink()  # the key comes last
    if not anchored:
        beside(path, ".head").unlink()
    with refused(None, pv.LedgerError):
        pv.Ledger.open(path, readonly=True)
    enter(path)
    assert pv.Ledger.open(path, readonly=True).verify().ok
    beside(path, ".key").unlink()
    with refused(None, pv.LedgerError):
        pv.Ledger.open(path, readonly=True)


def test_an_anchor_that_knows_of_entries_forbids_a_new_key(path: Path) -> None:
    pv.Ledger.open(path).close()
    beside(path, ".key").unlink()
    Anchor(beside(path, ".head"), Chain()).write((0, START), (3, "c" * 64))
    with refused(None, pv.LedgerError):
        pv.Ledger.open(path)


def test_looking_makes_nothing(path: Path) -> None:
    with refused(None, pv.LedgerError):
        pv.Ledger.open(path, create=False)
    assert files(path.parent) == []
    path.write_bytes(b"")
    with refused(None, pv.LedgerError):
        pv.Ledger.open(path, create=False)
    assert path.read_bytes() == b""
    assert files(path.parent) == [path.name]


# -- PostgreSQL ------------------------------------------------------------------------------------


def test_a_database_in_use_is_not_adopted_without_its_key(
    place: Location, database: str, tmp_path: Path
) -> None:
    enter(place)
    with refused(None, pv.LedgerError):
        pv.Ledger.open(database, beside=tmp_path / "other")
    assert files(tmp_path) == ["site.head", "site.key"]


def test_an_emptied_database_is_rolled_back(place: Location) -> None:
    import psycopg

    enter(place)
    with psycopg.connect(place.address) as connection:
        connection.execute("DROP TABLE sealed, entries, meta CASCADE")
        connection.execute("DROP FUNCTION stay CASCADE")
    with pytest.raises(pv.LedgerError, match="rolled back"):
        pv.Ledger.open(place)
    place.head.unlink()
    with refused(None, pv.LedgerError):
        pv.Ledger.open(place)

"""Where a ledger lies: what is new, what is in use, what was erased; and no password in sight."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.ledger.conftest import label
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
    "no local name": (f"postgresql://u:{SECRET}@h/d", None, "beside must name a local file"),
    "another database": (f"mysql://u:{SECRET}@h/d", None, "got a 'mysql' address"),
    "an address as a path": (Path(f"postgresql://u:{SECRET}@h/d"), "site", "address as a path"),
    "port a word": (f"postgresql://u:{SECRET}@h:port/d", "site", "address that can be read"),
    "a file with beside": ("ledger.db", "site", "beside needs a ledger in PostgreSQL"),
    "an @ in a password": (f"postgresql://u:p@{SECRET}@h/d", "site", "have %40 for an @"),
    "nothing": ("", None, "ledger must be a path or an address, got ''"),
    "a number": (7, None, "ledger must be a path or an address, got 7"),
    "beside a number": (f"postgresql://u:{SECRET}@h/d", 7, "beside must be a path"),
    "a null byte": ("a\0b", None, "ledger must be a path"),
    "a folder": (".", None, "is a folder"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_places_are_refused_without_repeating_a_password(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given, local, message = BAD[name]
    with pytest.raises(pv.InputError) as caught:
        pv.Ledger.open(given, beside=local)
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)
    assert files(tmp_path) == []


def test_a_refused_database_leaves_nothing_behind(tmp_path: Path) -> None:
    pytest.importorskip("psycopg", reason="the extra [postgres] is not installed")
    address = f"postgresql://clerk:{SECRET}@127.0.0.1:1/none"
    with refused(None, pv.LedgerError) as caught:
        label(Location.of(address, tmp_path / "site"))
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
    ("lost", "found"),
    [
        (("",), "gone, but its anchor is there"),
        (("", ".head"), "gone, but its key is there"),
        (("", ".key"), "gone, but its anchor is there"),
    ],
)
def test_a_ledger_that_was_deleted_is_an_erased_record(
    path: Path, lost: tuple[str, ...], found: str
) -> None:
    label(path)
    for end in lost:
        beside(path, end).unlink()
    left = files(path.parent)
    for create in (True, False):
        with pytest.raises(pv.LedgerError, match=found) as caught:
            pv.Ledger.open(path, create=create)
        assert "restore it from a backup" in str(caught.value)
    assert files(path.parent) == left  # nothing was made in its place


def test_key_or_anchor_alone_missing_is_said(path: Path) -> None:
    label(path)
    kept = beside(path, ".head").read_text()
    beside(path, ".head").unlink()
    with pytest.raises(pv.LedgerError, match=r"anchor 'ledger\.db\.head' is missing"):
        pv.Ledger.open(path)
    beside(path, ".head").write_text(kept)
    beside(path, ".key").unlink()
    with pytest.raises(pv.LedgerError, match=r"key 'ledger\.db\.key' is missing"):
        pv.Ledger.open(path)


@pytest.mark.parametrize("named", [True, False])
def test_an_emptied_file_is_refused_also_with_the_key_in_the_environment(
    path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    if named:
        monkeypatch.setenv("PRIVOTE_LEDGER_KEY", "ab" * 32)
    label(path)
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "DROP TRIGGER entries_remain; DELETE FROM sealed; DELETE FROM entries;"
        )
    beside(path, ".head").unlink()
    with refused(None, pv.LedgerError):
        label(path)


# -- making one ------------------------------------------------------------------------------------


@pytest.mark.parametrize("anchored", [True, False])
def test_a_crash_while_it_was_made_is_finished_by_the_next(path: Path, anchored: bool) -> None:
    pv.Ledger.open(path).close()
    beside(path, ".key").unlink()  # the key comes last
    if not anchored:
        beside(path, ".head").unlink()
    with refused(None, pv.LedgerError):
        pv.Ledger.open(path, readonly=True)
    label(path)
    assert pv.Ledger.open(path, readonly=True).verify().ok
    beside(path, ".key").unlink()
    with refused(None, pv.LedgerError):
        pv.Ledger.open(path, readonly=True)


def test_an_anchor_that_knows_of_entries_forbids_a_new_key(path: Path) -> None:
    pv.Ledger.open(path).close()
    beside(path, ".key").unlink()
    Anchor(beside(path, ".head"), Chain()).write((0, START), (3, "c" * 64))
    with pytest.raises(pv.LedgerError, match=r"key 'ledger\.db\.key' is missing"):
        pv.Ledger.open(path)


def test_opened_by_many_at_once_it_is_made_once(path: Path) -> None:
    seen: list[Any] = []

    def use(number: int) -> None:
        try:
            ledger = pv.Ledger.open(path)
            ledger.set_budget(pv.Budget(epsilon=1.0, delta=1e-5), dataset=f"d{number}")
            ledger.close()
        except BaseException as error:
            seen.append(error)

    runners = [threading.Thread(target=use, args=(number,)) for number in range(8)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    assert not seen
    ledger = pv.Ledger.open(path, create=False)
    assert ledger.verify().ok
    assert len(ledger.published()) == 8


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


def test_a_database_in_use_is_not_adopted_without_its_key(database: str, tmp_path: Path) -> None:
    label(Location.of(database, tmp_path / "site"))
    with pytest.raises(pv.LedgerError, match=r"key 'other\.key' is missing.*as beside"):
        pv.Ledger.open(database, beside=tmp_path / "other")
    assert files(tmp_path) == ["site.head", "site.key"]


def test_an_emptied_database_is_rolled_back(database: str, tmp_path: Path) -> None:
    import psycopg

    label(Location.of(database, tmp_path / "site"))
    with psycopg.connect(database) as connection:
        connection.execute("DROP TABLE sealed, entries, meta CASCADE")
        connection.execute("DROP FUNCTION stay CASCADE")
    with pytest.raises(pv.LedgerError, match="rolled back"):
        pv.Ledger.open(database, beside=tmp_path / "site")
    (tmp_path / "site.head").unlink()
    with refused(None, pv.LedgerError):
        pv.Ledger.open(database, beside=tmp_path / "site")


def test_looking_at_an_empty_database_makes_no_table(database: str, tmp_path: Path) -> None:
    import psycopg

    with refused(None, pv.LedgerError):
        pv.Ledger.open(database, beside=tmp_path / "site", create=False)
    chain = Chain()
    Anchor(tmp_path / "site.head", chain).write((0, START))
    chain.keep(tmp_path / "site.key")
    with refused(None, pv.LedgerError):
        pv.Ledger.open(database, beside=tmp_path / "site", create=False)
    with psycopg.connect(database) as connection:
        made = connection.execute("SELECT 1 FROM pg_tables WHERE schemaname = 'public'")
        assert made.fetchall() == []

"""The drill: a ledger is backed up while it is in use, lost, restored, and used again."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.ledger.conftest import enter, entries
from tests.refusals import refused

import privote as pv
from privote.ledger import Location
from privote.ledger.backup import read_backup
from privote.ledger.chain import KEY_VARIABLE, Anchor, Chain

SPAWN = multiprocessing.get_context("spawn")


def back_up(path: Path, name: str = "ledger.backup") -> Path:
    with pv.Ledger.at(path) as ledger:
        ledger.backup(path.with_name(name))
    return path.with_name(name)


def put_back(file: Path, place: Path | Location) -> int:
    """Restore a backup; return how many entries there are then: one more."""
    found = pv.Ledger.restore(file, place)
    assert found.ok, found.problems
    return found.entries


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def lose(path: Path, *ends: str) -> None:
    for end in ends or ("", ".key", ".head"):
        path.with_name(path.name + end).unlink()


@pytest.fixture
def backup(path: Path) -> Path:
    """Return the backup of a ledger with three entries."""
    enter(path, 3)
    return back_up(path)


def _enter_for_good(path: str, began: Any) -> None:
    with pv.Ledger.at(path) as ledger:
        began.set()
        while True:
            enter(ledger)
            time.sleep(0.005)  # or nobody else gets its turn


def test_the_drill(path: Path, tmp_path: Path) -> None:
    enter(path)
    began = SPAWN.Event()
    other = SPAWN.Process(target=_enter_for_good, args=(str(path), began))
    other.start()
    try:
        assert began.wait(60)
        backups = [back_up(path, f"{number}.backup") for number in range(3)]
    finally:
        other.kill()
        other.join()
    sizes = []
    for number, file in enumerate(backups):
        assert file.stat().st_mode & 0o077 == 0
        whole = contents(tmp_path)
        found = read_backup(file).verification
        assert found.ok
        assert contents(tmp_path) == whole  # to look at one writes nothing
        fresh = tmp_path / f"fresh{number}"
        fresh.mkdir()
        place = fresh / "ledger.db"
        sizes.append(put_back(file, place))
        assert sizes[-1] == found.entries + 1
        assert sorted(os.listdir(fresh)) == ["ledger.db", "ledger.db.head", "ledger.db.key"]
        for made in fresh.iterdir():
            assert made.stat().st_mode & 0o077 == 0
        pv.Ledger.open(place).close()
        assert entries(place) == sizes[-1]
    assert sizes == sorted(sizes)


@pytest.mark.parametrize("lost", [("",), ("", ".key")])
def test_a_restore_over_a_ledger_that_knows_more_is_refused(
    path: Path, backup: Path, lost: tuple[str, ...]
) -> None:
    enter(path)
    lose(path, *lost)
    left = contents(path.parent)
    with refused(None, pv.LedgerError):
        put_back(backup, path)
    assert contents(path.parent) == left


def test_a_pending_entry_counts_as_known(path: Path, backup: Path) -> None:
    """A crash between anchor and commit: nobody knows any more whether it was charged."""
    anchor = Anchor(path.with_name("ledger.db.head"), Chain.of(path.with_name("ledger.db.key")))
    ((head,), _) = anchor.read()
    anchor.write(head, (head[0] + 1, "0" * 64))
    lose(path, "")
    with refused(None, pv.LedgerError):
        put_back(backup, path)


@pytest.mark.parametrize("left", [(), (".key",), (".head",), (".key", ".head")])
def test_what_is_left_of_the_same_ledger_fits(
    path: Path, backup: Path, left: tuple[str, ...]
) -> None:
    lose(path, *({"", ".key", ".head"} - {*left}))
    assert put_back(backup, path) == entries(path) == 4


@pytest.mark.parametrize("end", ["", "-journal", ".key", ".head"])
def test_what_is_left_of_another_ledger_is_not_replaced(path: Path, backup: Path, end: str) -> None:
    other = path.with_name("other.db")
    enter(other)
    lose(path)
    theirs, left = other.with_name(other.name + end), path.with_name(path.name + end)
    left.write_bytes(theirs.read_bytes() if theirs.exists() else b"theirs")
    left.chmod(0o600)
    before = contents(path.parent)
    with refused(None, pv.LedgerError):
        put_back(backup, path)
    assert contents(path.parent) == before


def test_a_key_of_the_environment_is_neither_beside_the_ledger_nor_in_the_backup(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "ab" * 32)
    enter(path)
    backup, again = back_up(path), path.with_name("again.db")
    assert not path.with_name("ledger.db.key").exists()
    assert b"ab" * 32 not in backup.read_bytes()
    monkeypatch.delenv(KEY_VARIABLE)
    for bad in ("short", "cd" * 32, None):  # no key, and another one, under which no digest fits
        if bad:
            monkeypatch.setenv(KEY_VARIABLE, bad)
        for refuse in (lambda: pv.Ledger.open(path), lambda: put_back(backup, again)):
            with refused(None, pv.LedgerError):
                refuse()
        monkeypatch.delenv(KEY_VARIABLE, raising=False)
    monkeypatch.setenv(KEY_VARIABLE, "ab" * 32)
    assert not read_backup(backup).own_key
    assert put_back(backup, again) == 2
    assert not again.with_name("again.db.key").exists()


def test_postgresql_goes_to_a_file_and_back(place: Location, server: Any, path: Path) -> None:
    enter(place, 2)
    backup = path.with_name("a.backup")
    with closing(pv.Ledger.open(place)) as ledger:
        ledger.backup(backup)
    other = Location.of(place.address or "", path.with_name("else"))
    with refused(None, pv.LedgerError):  # its own database has entries
        put_back(backup, other)
    assert not other.key.exists()
    assert put_back(backup, path) == 3
    name = f"again_{os.urandom(4).hex()}"
    server.execute(f"CREATE DATABASE {name}")
    again = Location.of(f"{server.address}/{name}", path.with_name("again"))
    assert put_back(backup, again) == entries(again) == 3


def test_a_restore_that_was_killed_still_knows_what_it_restored(path: Path, backup: Path) -> None:
    """Its anchor is there without entries: an older backup, or a fork, is refused as before."""
    enter(path)
    later = back_up(path, "later.backup")
    lose(path)
    put_back(later, path)
    fork = path.with_name("fork.db")
    put_back(backup, fork)
    lose(path, "")  # as if it had been killed just before
    for file in (backup, back_up(fork, "forked.backup")):
        with refused(None, pv.LedgerError):
            put_back(file, path)
    assert put_back(later, path) == 5


# -- backups that were changed ---------------------------------------------------------------------

ALTERED = {
    "an entry less": "DROP TRIGGER entries_remain; DELETE FROM entries WHERE number = 3; "
    "CREATE TRIGGER entries_remain BEFORE DELETE ON entries "
    "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END",
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON entries BEGIN SELECT RAISE(IGNORE); END",
    "a table": "CREATE TABLE t (name TEXT)",
    "another ledger's key": f"UPDATE backup SET key = '{'ab' * 32}'",
    "a short key": "UPDATE backup SET key = 'ab'",
    "a key that is none": "UPDATE backup SET key = x'00ff'",
    "a forged time": 'UPDATE backup SET anchor = replace(anchor, \'"backup":"\', \'"backup":"9\')',
    "no anchor": "UPDATE backup SET anchor = ''",
    "two anchors": "INSERT INTO backup SELECT * FROM backup",
    "no facts": "DELETE FROM backup",
    "another format": "PRAGMA user_version = 77",
}


@pytest.mark.parametrize("name", ALTERED)
def test_an_altered_backup_is_refused(path: Path, backup: Path, name: str) -> None:
    lose(path)
    with closing(sqlite3.connect(backup)) as connection:
        connection.executescript(ALTERED[name])
    with suppress(pv.LedgerError):
        assert not read_backup(backup).verification.ok
    with refused(None, pv.LedgerError):
        put_back(backup, path)
    assert os.listdir(path.parent) == ["ledger.backup"]


def test_other_files_are_no_backups(path: Path, backup: Path) -> None:
    for content in (b"", b"no database" * 1000, backup.read_bytes()[:5000]):
        backup.write_bytes(content)
        with refused(None, pv.LedgerError):
            read_backup(backup)
    with closing(pv.Ledger.open(path)), refused("backup"):  # its locks would be lost
        read_backup(path)
    for file in (path, path.with_name("none")):
        with refused(kind=pv.PrivoteError):
            read_backup(file)


def test_a_backup_that_others_can_read_is_said(backup: Path) -> None:
    backup.chmod(0o644)
    with pytest.warns(pv.errors.PrivoteWarning, match="chmod 600"):
        read_backup(backup)

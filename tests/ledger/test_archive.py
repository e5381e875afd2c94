"""The drill: a ledger is backed up while it is charged, lost, put back, and charged again."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.ledger.conftest import label
from tests.refusals import refused

import privote as pv
from privote.ledger import Location
from privote.ledger.chain import KEY_VARIABLE

SPAWN = multiprocessing.get_context("spawn")
RICH = pv.Budget(epsilon=1e6, delta=1e-5)


def back_up(path: Path, name: str = "ledger.backup") -> Path:
    with closing(pv.Ledger.open(path)) as ledger:
        ledger.backup(path.with_name(name))
    return path.with_name(name)


@pytest.fixture
def backup(path: Path) -> Path:
    """Return the backup of a ledger with three entries: a budget, a charge, its outcome."""
    label(path)
    return back_up(path)


def lose(path: Path, *ends: str) -> None:
    for end in ends or ("", ".key", ".head"):
        path.with_name(path.name + end).unlink()


def _charge_for_good(path: str, began: Any) -> None:
    ledger = pv.Ledger.open(path)
    began.set()
    while True:
        ledger.set_budget(RICH, dataset=f"d{time.monotonic_ns()}")


def test_the_drill(path: Path, tmp_path: Path) -> None:
    label(path)
    began = SPAWN.Event()
    other = SPAWN.Process(target=_charge_for_good, args=(str(path), began))
    other.start()
    try:
        assert began.wait(60)
        backups = [tmp_path / f"{number}.backup" for number in range(3)]
        for file in backups:
            ledger = pv.Ledger.open(path, readonly=True)
            assert ledger.backup(file)
            ledger.close()
            assert file.stat().st_mode & 0o077 == 0
    finally:
        other.kill()
        other.join()
    standing = pv.Ledger.open(path).standing()[0]
    sizes = []
    for number, file in enumerate(backups):
        fresh = tmp_path / f"fresh{number}"
        fresh.mkdir()
        found = pv.Ledger.restore(file, fresh / "ledger.db")
        assert found.ok
        sizes.append(found.entries)
        assert sorted(os.listdir(fresh)) == ["ledger.db", "ledger.db.head", "ledger.db.key"]
        for each in fresh.iterdir():
            assert each.stat().st_mode & 0o077 == 0
        ledger = pv.Ledger.open(fresh / "ledger.db")
        assert ledger.standing()[0] == standing  # what was spent is spent
        assert [each["entry"] for each in ledger.restored] == [found.entries]
        label(ledger)
        assert ledger.verify().entries == found.entries + 2
        assert len(ledger.restored) == 1  # for good
        ledger.close()
    assert sizes == sorted(sizes)


@pytest.mark.parametrize("lost", [("",), ("", ".key")])
def test_a_restore_over_a_ledger_that_knows_more_is_refused(
    path: Path, backup: Path, lost: tuple[str, ...]
) -> None:
    label(path)
    lose(path, *lost)
    left = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    with pytest.raises(pv.LedgerError, match="entry 5"):
        pv.Ledger.restore(backup, path)
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == left


def test_a_pending_charge_counts_as_known(path: Path, backup: Path) -> None:
    """A crash between anchor and commit: whether it was charged, nobody knows any more."""
    ledger = pv.Ledger.open(path)
    anchor, head = ledger._anchor, ledger.reading().head
    assert anchor is not None
    anchor.write(head, (head[0] + 1, "0" * 64))
    ledger.close()
    lose(path, "")
    with pytest.raises(pv.LedgerError, match="entry 4"):
        pv.Ledger.restore(backup, path)


@pytest.mark.parametrize("left", [(), (".key",), (".head",), (".key", ".head")])
def test_what_is_left_of_the_same_ledger_fits(
    path: Path, backup: Path, left: tuple[str, ...]
) -> None:
    lose(path, *({"", ".key", ".head"} - {*left}))
    assert pv.Ledger.restore(backup, path).ok
    label(path)
    assert pv.Ledger.open(path).verify().ok


@pytest.mark.parametrize("end", ["", "-wal", "-journal", ".key", ".head"])
def test_what_is_left_of_another_ledger_is_not_replaced(path: Path, backup: Path, end: str) -> None:
    other = path.with_name("other.db")
    label(other)
    lose(path)
    theirs = other.with_name(other.name + end)
    left = path.with_name(path.name + end)
    left.write_bytes(theirs.read_bytes() if theirs.exists() else b"theirs")
    left.chmod(0o600)
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    with refused(None, pv.LedgerError):
        pv.Ledger.restore(backup, path)
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


def test_a_key_of_the_environment_is_neither_beside_the_ledger_nor_in_the_archive(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "ab" * 32)
    label(path)
    assert not path.with_name("ledger.db.key").exists()
    assert pv.Ledger.open(path).verify().ok
    backup, again = back_up(path), path.with_name("again.db")
    assert b"ab" * 32 not in backup.read_bytes()
    for bad in ("short", "cd" * 32, None):  # no key, and another one, under which no digest fits
        monkeypatch.delenv(KEY_VARIABLE)
        if bad:
            monkeypatch.setenv(KEY_VARIABLE, bad)
        for refuse in (lambda: pv.Ledger.open(path), lambda: pv.Ledger.restore(backup, again)):
            with refused(None, pv.LedgerError):
                refuse()
    monkeypatch.setenv(KEY_VARIABLE, "ab" * 32)
    assert pv.Ledger.restore(backup, again).ok
    assert not path.with_name("again.db.key").exists()


def test_postgresql_goes_to_a_file_and_back(place: Location, server: Any, path: Path) -> None:
    label(place)
    backup = path.with_name("a.backup")
    pv.Ledger.open(place).backup(backup)
    other = Location.of(place.address or "", path.with_name("else"))
    with refused(None, pv.LedgerError):  # its own database has entries
        pv.Ledger.restore(backup, other)
    assert not other.key.exists()
    assert pv.Ledger.restore(backup, path).ok
    name = f"again_{os.urandom(4).hex()}"
    server.execute(f"CREATE DATABASE {name}")
    again = Location.of(f"{server.address}/{name}", path.with_name("again"))
    assert pv.Ledger.restore(backup, again).ok
    label(again)
    assert pv.Ledger.open(again, readonly=True).verify().entries == 6


# -- who charged, with which version ---------------------------------------------------------------


def test_a_charge_says_who_and_with_what(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "clerk")
    label(path)
    names = [f"voter {i}" for i in range(10)]
    label(path, dataset="named", guarantee="allowance", voter_ids=names)
    ledger = pv.Ledger.open(path)
    plain, named = (e for e in ledger.published() if e["kind"] == "charge")
    assert (plain["version"], plain["user"]) == (pv.__version__, "clerk")
    assert plain["host"]
    assert named["version"] == pv.__version__
    assert not {"user", "host"} & named.keys()  # whoever runs it may be a voter with a name
    sealed = [json.loads(row.sealed) for row in ledger._store.rows() if row.sealed]
    assert [each["user"] for each in sealed if "roll" in each] == ["clerk"]


def test_a_restore_that_was_killed_still_knows_what_it_put_back(path: Path, backup: Path) -> None:
    """Its anchor is there without entries: an older backup, or a fork, is refused as before."""
    label(path)
    later = back_up(path, "later.backup")
    lose(path)
    pv.Ledger.restore(later, path)
    fork = path.with_name("fork.db")
    pv.Ledger.restore(backup, fork)
    label(fork)
    lose(path, "")  # as if it had been killed just before
    for file in (backup, back_up(fork, "forked.backup")):
        with refused(None, pv.LedgerError):
            pv.Ledger.restore(file, path)
        assert not path.exists()
    assert pv.Ledger.restore(later, path).entries == 6

"""Whoever operates a ledger: odd files in its place, a server turned against it, its backups."""

from __future__ import annotations

import json
import multiprocessing
import os
import sqlite3
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.attacks.conftest import Outcome, scaled
from tests.ledger.conftest import label

import privote as pv
from privote.ledger.store import FORMAT, SQLiteStore

SPAWN = multiprocessing.get_context("spawn")


# -- files in the place of a ledger's --------------------------------------------------------------

FLEETING = [
    ":memory:",
    "file::memory:",
    "file:ledger.db?mode=memory",
    "FILE:ledger.db?cache=shared&mode=memory",
    "ledger.db?mode=memory",
    "./:memory:",
]


def test_a_ledger_that_is_not_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome
) -> None:
    """It released labels, and forgot the charge, though a ledger was named."""
    monkeypatch.chdir(tmp_path)
    through = 0
    for name in FLEETING:
        with suppress(pv.InputError):
            label(name)
            through += 1
    assert os.listdir(tmp_path) == []
    outcome("a ledger in memory", len(FLEETING), through)


def test_a_process_that_goes_elsewhere_writes_to_the_same_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    ledger = pv.Ledger.open("ledger.db")
    label(ledger)
    monkeypatch.chdir(tmp_path / "there")
    label(ledger)
    ledger.close()
    assert os.listdir(tmp_path / "there") == []
    assert pv.Ledger.open(tmp_path / "here" / "ledger.db", readonly=True).verify().entries == 5


def _label_or_say(path: str, readonly: bool, said: Any) -> None:
    try:
        if readonly:
            pv.Ledger.open(path, readonly=True).close()
        else:
            label(path)
        said.put("through")
    except pv.LedgerError as error:
        said.put(str(error))


ODD = [
    *(
        (end, kind, look)
        for end in ("", ".head", ".key")
        for kind in ("pipe", "device")
        for look in (False, True)
    ),
    (".head.new", "pipe", False),
]


@pytest.mark.parametrize(("end", "kind", "readonly"), ODD)
def test_a_pipe_or_a_device_in_the_place_of_a_file(
    path: Path, end: str, kind: str, readonly: bool, outcome: Outcome
) -> None:
    """It waited for ever, or read a device without end."""
    label(path)
    place = path.with_name(path.name + end)
    place.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to("/dev/zero")
    said = SPAWN.Queue()
    process = SPAWN.Process(target=_label_or_say, args=(str(path), readonly, said))
    process.start()
    process.join(20)
    hung = process.is_alive()
    process.kill()
    process.join()
    outcome(f"a {kind} as {end or 'database'}", 1, int(hung or said.get(timeout=5) == "through"))


def test_a_database_with_two_names(path: Path, outcome: Outcome) -> None:
    """SQLite's log has the name it was opened by: a charge under one is missing under the other."""
    label(path)
    other = path.with_name("other.db")
    os.link(path, other)
    for end in (".key", ".head"):
        other.with_name(other.name + end).write_bytes(path.with_name(path.name + end).read_bytes())
        other.with_name(other.name + end).chmod(0o600)
    through = 0
    for name in (path, other):
        for readonly in (False, True):
            with suppress(pv.LedgerError):
                pv.Ledger.open(name, readonly=readonly).close()
                through += 1
    outcome("a database with two names", 4, through)
    other.unlink()
    label(path)


def test_another_name_while_it_is_open(path: Path) -> None:
    ledger = pv.Ledger.open(path)
    label(ledger)
    os.link(path, path.with_name("other.db"))
    with pytest.raises(pv.LedgerError, match="hard links"):
        label(ledger)


# -- a PostgreSQL server that was turned against its ledger ----------------------------------------

_STAY = "CREATE TRIGGER entries_stay BEFORE UPDATE OR DELETE ON entries FOR EACH ROW "
TURNED = {
    "unlogged entries": ["DROP TABLE sealed", "ALTER TABLE entries SET UNLOGGED"],
    "unlogged sealed": ["ALTER TABLE sealed SET UNLOGGED"],
    "unlogged meta": ["ALTER TABLE meta SET UNLOGGED"],
    "a trigger with a condition": [
        "DROP TRIGGER entries_stay ON entries",
        _STAY + "WHEN (false) EXECUTE FUNCTION stay()",
    ],
    "a trigger of one column": [
        "DROP TRIGGER entries_stay ON entries",
        _STAY.replace("UPDATE", "UPDATE OF at") + "EXECUTE FUNCTION stay()",
    ],
    "no trigger": ["ALTER TABLE entries DISABLE TRIGGER entries_remain"],
    "no internal triggers": ["ALTER TABLE sealed DISABLE TRIGGER ALL"],
    "no primary key": ["ALTER TABLE entries DROP CONSTRAINT entries_pkey CASCADE"],
    "no primary key of what is sealed": ["ALTER TABLE sealed DROP CONSTRAINT sealed_pkey"],
    "no foreign key": ["ALTER TABLE sealed DROP CONSTRAINT sealed_number_fkey"],
    "a foreign key that holds for new rows": [
        "ALTER TABLE sealed DROP CONSTRAINT sealed_number_fkey",
        "ALTER TABLE sealed ADD FOREIGN KEY (number) REFERENCES entries (number) NOT VALID",
    ],
    "no check": ["ALTER TABLE entries DROP CONSTRAINT entries_number_check"],
    "sessions of this database": ["ALTER DATABASE {name} SET session_replication_role = replica"],
    "sessions of another role": [
        "ALTER ROLE clerk_{name} IN DATABASE {name} SET session_replication_role = replica"
    ],
}


@pytest.mark.parametrize("turn", TURNED)
def test_a_server_that_was_turned(
    database: str, tmp_path: Path, turn: str, outcome: Outcome
) -> None:
    import psycopg

    place, name = tmp_path / "site", database.rpartition("/")[2]
    ledger = pv.Ledger.open(database, beside=place)
    label(ledger)
    assert ledger.verify().problems == ()
    ledger.close()
    statements = [text.format(name=name) for text in TURNED[turn]]
    with psycopg.connect(database, autocommit=True) as connection:
        if "clerk" in statements[0]:
            connection.execute(f"CREATE ROLE clerk_{name}")
        for statement in statements:
            connection.execute(statement)
    if "DROP TABLE" in statements[0]:  # what is referred to cannot be unlogged alone
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(
                "CREATE UNLOGGED TABLE sealed (number BIGINT PRIMARY KEY REFERENCES entries "
                "(number), body TEXT NOT NULL)"
            )
    found = pv.Ledger.open(database, beside=place, readonly=True).verify()
    outcome(f"PostgreSQL with {turn}", 1, int(found.ok))
    due = (
        "is gone",
        "does not belong",
        *(["sealed part"] if "DROP TABLE" in statements[0] else []),
    )
    assert all(any(words in text for words in due) for text in found.problems), found.problems


# -- backups ---------------------------------------------------------------------------------------


def backed_up(path: Path) -> Path:
    """Return the backup of a ledger with two entries; the ledger is gone."""
    label(path)
    ledger = pv.Ledger.open(path)
    ledger.backup(path.with_name("ledger.backup"))
    ledger.close()
    for end in ("", ".key", ".head"):
        path.with_name(path.name + end).unlink()
    return path.with_name("ledger.backup")


def rewritten(backup: Path, change: Any) -> None:
    """Write an archive anew, with its members as ``change`` has them."""
    with zipfile.ZipFile(backup) as file:
        members = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(backup, "w") as file:
        for name, content in change(members).items():
            info = name if isinstance(name, zipfile.ZipInfo) else zipfile.ZipInfo(name)
            file.writestr(info, content)


def linked(members: dict[str, bytes]) -> dict[Any, bytes]:
    link = zipfile.ZipInfo("ledger.db.key")
    link.external_attr = 0o120777 << 16
    return {link: b"/etc/passwd", **{k: v for k, v in members.items() if k != "ledger.db.key"}}


def bomb(members: dict[str, bytes]) -> dict[Any, bytes]:
    large = zipfile.ZipInfo("ledger.db")
    large.compress_type = zipfile.ZIP_DEFLATED
    return {**{k: v for k, v in members.items() if k != "ledger.db"}, large: bytes(1 << 28)}


def of_another(members: dict[str, bytes]) -> dict[Any, bytes]:
    return {**members, "ledger.db.key": b"ab" * 32}


def cut_off(members: dict[str, bytes]) -> dict[Any, bytes]:
    """Take away the last entry, which only the anchor knows of."""
    with SQLiteStore.unpacked(members["ledger.db"])._connection as connection:
        connection.executescript("DROP TRIGGER entries_remain; DELETE FROM entries WHERE number=2")
        connection.execute(FORMAT.triggers["entries_remain"])
        return {**members, "ledger.db": connection.serialize()}


def with_trigger(members: dict[str, bytes]) -> dict[Any, bytes]:
    with SQLiteStore.unpacked(members["ledger.db"])._connection as connection:
        connection.execute(
            "CREATE TRIGGER t AFTER INSERT ON entries BEGIN SELECT RAISE(IGNORE); END"
        )
        return {**members, "ledger.db": connection.serialize()}


def forged_time(members: dict[str, bytes]) -> dict[Any, bytes]:
    anchor = json.loads(members["ledger.db.head"])
    return {**members, "ledger.db.head": json.dumps({**anchor, "backup": "2099-01-01"}).encode()}


def other_format(members: dict[str, bytes]) -> dict[Any, bytes]:
    manifest = {**json.loads(members["manifest.json"]), "format": 7, "version": "9.1"}
    return {**members, "manifest.json": json.dumps(manifest).encode()}


HOSTILE: dict[str, Any] = {
    "an absolute path": lambda members: {**members, "/tmp/privote-owned": b"x"},
    "a path that climbs": lambda members: {**members, "../../owned": b"x"},
    "a link": linked,
    "a bomb": bomb,
    "huge facts": lambda members: {**members, "manifest.json": b" " * (1 << 20) + b"{}"},
    "deep facts": lambda members: {**members, "manifest.json": b"[" * 60_000},
    "no anchor": lambda members: {k: v for k, v in members.items() if not k.endswith("head")},
    "another ledger's key": of_another,
    "a short key": lambda members: {**members, "ledger.db.key": b"ab"},
    "an entry less": cut_off,
    "a trigger": with_trigger,
    "a forged time": forged_time,
    "no database": lambda members: {**members, "ledger.db": b"not one" * 1000},
    "another format": other_format,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive(path: Path, name: str, outcome: Outcome) -> None:
    backup = backed_up(path)
    rewritten(backup, HOSTILE[name])
    started, through = time.monotonic(), 0
    with suppress(pv.InputError, pv.LedgerError):
        pv.Ledger.restore(backup, path)
        through = 1
    assert time.monotonic() - started < 10
    assert os.listdir(path.parent) == ["ledger.backup"]
    assert not Path("/tmp/privote-owned").exists()
    outcome(f"a backup with {name}", 1, through)


def test_damaged_archives(path: Path, outcome: Outcome) -> None:
    backup = backed_up(path)
    whole, random = backup.read_bytes(), np.random.default_rng(0)
    tried, through = scaled(60, 2_000), 0
    for number in range(tried):
        data = bytearray(whole)
        if number % 3:
            for place in random.integers(0, len(data), 1 + number % 5):
                data[place] ^= 1 << int(random.integers(8))
        else:
            del data[int(random.integers(len(data))) :]
        backup.write_bytes(data)
        try:  # anything but privote's own errors ends the test
            found = pv.Ledger.restore(backup, path)
            through += not found.ok or found.entries != 4
        except (pv.InputError, pv.LedgerError):
            pass
        for end in ("", ".key", ".head"):
            path.with_name(path.name + end).unlink(missing_ok=True)
        through += os.listdir(path.parent) != ["ledger.backup"]
    outcome("damaged backups", tried, through)


def test_an_archive_that_others_can_read_is_said(path: Path) -> None:
    backup = backed_up(path)
    backup.chmod(0o644)
    with pytest.warns(pv.errors.PrivoteWarning, match="chmod 600"):
        pv.Ledger.restore(backup, path)


def _restore_and_die(backup: str, path: str, calls: int) -> None:
    """Put a backup back, and die at one of the moments at which the disk changes."""
    left = calls

    def dying(done: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os._exit(9)
            return done(*arguments, **options)

        return call

    for name in ("open", "fsync", "replace", "link", "unlink"):
        setattr(os, name, dying(getattr(os, name)))
    pv.Ledger.restore(backup, path)


def test_a_restore_that_is_killed(path: Path, outcome: Outcome) -> None:
    """There is a whole ledger that says it was restored, or none, and then it can be repeated."""
    backup, tried, through, code = backed_up(path), 0, 0, 9
    while code == 9:
        tried += 1
        process = SPAWN.Process(target=_restore_and_die, args=(str(backup), str(path), tried))
        process.start()
        process.join()
        code = process.exitcode or 0
        assert code in (0, 9)
        whole = False
        if path.exists() or path.with_name("ledger.db.key").exists():
            with suppress(pv.LedgerError):
                label(path)
                whole = len(pv.Ledger.open(path).restored) == 1
                through += not whole  # a fresh budget
        if not whole:
            assert pv.Ledger.restore(backup, path).ok
        label(path)
        through += not pv.Ledger.open(path).verify().ok
        for file in path.parent.iterdir():
            if file != backup:
                file.unlink()
    outcome("a restore that is killed", tried, through)


def test_a_broken_ledger_is_not_backed_up(path: Path, outcome: Outcome) -> None:
    label(path)
    ledger = pv.Ledger.open(path)
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "DROP TRIGGER entries_stay; UPDATE entries SET body = replace(body, '8.0', '9.0')"
        )
    with pytest.raises(pv.LedgerError, match="broken"):
        ledger.backup(path.with_name("ledger.backup"))
    outcome("a backup of a broken ledger", 1, int(path.with_name("ledger.backup").exists()))

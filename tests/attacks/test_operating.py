"""Whoever operates a ledger: odd files in its place, a server turned against it, its backups."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
import zipfile
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.attacks.conftest import Outcome, accepted, damaged, in_a_child, scaled
from tests.ledger.conftest import label

import privote as pv
from privote.ledger.store import FORMAT, SQLiteStore

Change = Callable[[dict[str, bytes]], dict[Any, bytes]]


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
    found = [accepted(pv.InputError, label, name) for name in FLEETING]
    assert os.listdir(tmp_path) == []
    outcome.of("a ledger in memory", found)


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


ODD = [*product(("", ".head", ".key"), ("pipe", "device"), (False, True))]


@pytest.mark.parametrize(("end", "kind", "readonly"), [*ODD, (".head.new", "pipe", False)])
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

    def job() -> int:
        signal.alarm(20)
        if readonly:
            return accepted(pv.LedgerError, pv.Ledger.open, path, readonly=True)
        return accepted(pv.LedgerError, label, path)

    outcome(f"a {kind} as {end or 'database'}", 1, in_a_child(job) != 0)


def test_a_database_with_two_names(path: Path, outcome: Outcome) -> None:
    """SQLite's log has the name it was opened by: a charge under one is missing under the other."""
    ledger, other = pv.Ledger.open(path), path.with_name("other.db")
    label(ledger)
    os.link(path, other)
    with pytest.raises(pv.LedgerError, match="hard links"):
        label(ledger)
    ledger.close()
    for end in (".key", ".head"):
        other.with_name(other.name + end).write_bytes(path.with_name(path.name + end).read_bytes())
        other.with_name(other.name + end).chmod(0o600)
    found = [
        accepted(pv.LedgerError, pv.Ledger.open, name, readonly=readonly)
        for name, readonly in product((path, other), (False, True))
    ]
    outcome.of("a database with two names", found)
    other.unlink()
    label(path)


# -- a PostgreSQL server that was turned against its ledger ----------------------------------------

# Rows that are charged and not there: by a rule, by a trigger, and after all is said.
DROPPED = {
    "a rule": ["CREATE RULE t AS ON INSERT TO entries DO INSTEAD NOTHING"],
    "a trigger": [
        "CREATE FUNCTION drop_it() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RETURN NULL; END $$",
        "CREATE TRIGGER t BEFORE INSERT ON entries FOR EACH ROW EXECUTE FUNCTION drop_it()",
    ],
    "a deferred trigger": [
        "CREATE FUNCTION undo_it() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN DELETE FROM sealed; DELETE FROM entries WHERE number = NEW.number; "
        "RETURN NULL; END $$",
        "ALTER TABLE entries DISABLE TRIGGER entries_stay",
        "CREATE CONSTRAINT TRIGGER t AFTER INSERT ON entries DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION undo_it()",
    ],
}
_STAY = "CREATE TRIGGER entries_stay BEFORE UPDATE OR DELETE ON entries FOR EACH ROW "
TURNED = {
    **DROPPED,
    "unlogged entries": [  # what is referred to cannot be unlogged alone
        "DROP TABLE sealed",
        "ALTER TABLE entries SET UNLOGGED",
        "CREATE UNLOGGED TABLE sealed (number BIGINT PRIMARY KEY REFERENCES entries (number), "
        "body TEXT NOT NULL)",
    ],
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
        "CREATE ROLE clerk_{name}",
        "ALTER ROLE clerk_{name} IN DATABASE {name} SET session_replication_role = replica",
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
    with psycopg.connect(database, autocommit=True) as connection:
        for statement in TURNED[turn]:
            connection.execute(statement.format(name=name))
    found = pv.Ledger.open(database, beside=place, readonly=True).verify()
    outcome(f"PostgreSQL with {turn}", 1, int(found.ok))
    if turn in DROPPED:

        def release(guarantee: str) -> None:
            ledger = pv.Ledger.open(database, beside=place)
            label(ledger, guarantee=guarantee, dataset=guarantee, queries=2)

        every = ("allowance", "worst-case", "data-dependent")
        released = [accepted(pv.LedgerError, release, guarantee) for guarantee in every]
        outcome.of(f"PostgreSQL drops rows by {turn}", released)
    due = ("is gone", "does not belong", *["sealed part"] * (turn == "unlogged entries"))
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


def rewritten(backup: Path, change: Change) -> None:
    """Write an archive anew, with its members as ``change`` has them."""
    with zipfile.ZipFile(backup) as file:
        members = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(backup, "w") as file:
        for name, content in change(members).items():
            info = name if isinstance(name, zipfile.ZipInfo) else zipfile.ZipInfo(name)
            file.writestr(info, content)


def replaced(name: str, content: bytes, **attributes: int) -> Change:
    """Put another member in the place of one."""
    info = zipfile.ZipInfo(name)
    for attribute, value in attributes.items():
        setattr(info, attribute, value)
    return lambda members: {**{k: v for k, v in members.items() if k != name}, info: content}


def altered(*statements: str) -> Change:
    """Run statements in the database of an archive."""

    def change(members: dict[str, bytes]) -> dict[Any, bytes]:
        with closing(SQLiteStore.unpacked(members["ledger.db"])) as store:
            for statement in statements:
                store.run(statement)
            return {**members, "ledger.db": store.packed()}

    return change


def restated(name: str, **facts: object) -> Change:
    """Change facts of a member."""
    return lambda members: {
        **members,
        name: json.dumps({**json.loads(members[name]), **facts}).encode(),
    }


HOSTILE: dict[str, Change] = {
    "an absolute path": lambda members: {**members, "/tmp/privote-owned": b"x"},
    "a path that climbs": lambda members: {**members, "../../owned": b"x"},
    "a link": replaced("ledger.db.key", b"/etc/passwd", external_attr=0o120777 << 16),
    "a bomb": replaced("ledger.db", bytes(1 << 28), compress_type=zipfile.ZIP_DEFLATED),
    "huge facts": replaced("manifest.json", b" " * (1 << 20) + b"{}"),
    "deep facts": replaced("manifest.json", b"[" * 60_000),
    "no anchor": lambda members: {k: v for k, v in members.items() if not k.endswith("head")},
    "another ledger's key": replaced("ledger.db.key", b"ab" * 32),
    "a short key": replaced("ledger.db.key", b"ab"),
    "an entry less": altered(  # the last one, which only the anchor knows of
        "DROP TRIGGER entries_remain",
        "DELETE FROM entries WHERE number=2",
        FORMAT.triggers["entries_remain"],
    ),
    "a trigger": altered(
        "CREATE TRIGGER t AFTER INSERT ON entries BEGIN SELECT RAISE(IGNORE); END"
    ),
    "a forged time": restated("ledger.db.head", backup="2099-01-01"),
    "no database": replaced("ledger.db", b"not one" * 1000),
    "another format": restated("manifest.json", format=7, version="9.1"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive(path: Path, name: str, outcome: Outcome) -> None:
    backup = backed_up(path)
    rewritten(backup, HOSTILE[name])
    started = time.monotonic()
    restored = accepted((pv.InputError, pv.LedgerError), pv.Ledger.restore, backup, path)
    assert time.monotonic() - started < 10
    assert os.listdir(path.parent) == ["ledger.backup"]
    assert not Path("/tmp/privote-owned").exists()
    outcome(f"a backup with {name}", 1, restored)


def test_damaged_archives(path: Path, outcome: Outcome) -> None:
    backup = backed_up(path)
    whole, rng, found = backup.read_bytes(), np.random.default_rng(0), []
    for _ in range(scaled(60, 2_000)):
        backup.write_bytes(damaged(whole, rng))
        changed = False
        with suppress(pv.InputError, pv.LedgerError):  # anything else ends the test
            restored = pv.Ledger.restore(backup, path)
            changed = not restored.ok or restored.entries != 4
        for end in ("", ".key", ".head"):
            path.with_name(path.name + end).unlink(missing_ok=True)
        found.append(changed or os.listdir(path.parent) != ["ledger.backup"])
    outcome.of("damaged backups", found)


def test_an_archive_that_others_can_read_is_said(path: Path) -> None:
    backup = backed_up(path)
    backup.chmod(0o644)
    with pytest.warns(pv.errors.PrivoteWarning, match="chmod 600"):
        pv.Ledger.restore(backup, path)


def test_a_restore_that_is_killed(path: Path, outcome: Outcome) -> None:
    """There is a whole ledger that says it was restored, or none, and then it can be repeated."""
    backup, tried, through, code = backed_up(path), 0, 0, 9

    def restore_and_die() -> int:
        """Put a backup back, and die at one of the moments at which the disk changes."""
        moments = iter(range(tried, 0, -1))

        def dying(done: Any) -> Any:
            def call(*arguments: Any, **options: Any) -> Any:
                return os._exit(9) if next(moments) == 1 else done(*arguments, **options)

            return call

        for name in ("open", "fsync", "replace", "link", "unlink"):
            setattr(os, name, dying(getattr(os, name)))
        pv.Ledger.restore(backup, path)
        return 0

    while code == 9:
        tried += 1
        code = in_a_child(restore_and_die)
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

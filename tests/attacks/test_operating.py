"""Whoever operates a ledger: odd files in its place, a server turned against it, its backups."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.attacks.conftest import Outcome, accepted, damaged, in_a_child, scaled
from tests.ledger.conftest import enter, entries

import privote as pv

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
    found = [accepted(pv.InputError, enter, name) for name in FLEETING]
    assert os.listdir(tmp_path) == []
    outcome.of("a ledger in memory", found)


def test_a_process_that_goes_elsewhere_writes_to_the_same_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    ledger = pv.Ledger.open("ledger.db")
    enter(ledger)
    monkeypatch.chdir(tmp_path / "there")
    enter(ledger)
    ledger.close()
    assert os.listdir(tmp_path / "there") == []
    assert entries(tmp_path / "here" / "ledger.db") == 2


ODD = [*product(("", ".head", ".key"), ("pipe", "device"), (False, True))]


@pytest.mark.parametrize(("end", "kind", "readonly"), ODD)
def test_a_pipe_or_a_device_in_the_place_of_a_file(
    path: Path, end: str, kind: str, readonly: bool, outcome: Outcome
) -> None:
    """It waited for ever, or read a device without end."""
    enter(path)
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
        return accepted(pv.LedgerError, enter, path)

    outcome(f"a {kind} as {end or 'database'}", 1, in_a_child(job) != 0)


def test_a_database_with_two_names(path: Path, outcome: Outcome) -> None:
    """SQLite's log has the name it was opened by: a charge under one is missing under the other."""
    ledger, other = pv.Ledger.open(path), path.with_name("other.db")
    enter(ledger)
    os.link(path, other)
    with pytest.raises(pv.LedgerError, match="hard links"):
        enter(ledger)
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
    enter(path)


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
    enter(ledger)
    assert ledger.verify().problems == ()
    ledger.close()
    with psycopg.connect(database, autocommit=True) as connection:
        for statement in TURNED[turn]:
            connection.execute(statement.format(name=name))
    found = pv.Ledger.open(database, beside=place, readonly=True).verify()
    outcome(f"PostgreSQL with {turn}", 1, int(found.ok))
    if turn in DROPPED:

        def release() -> None:
            enter(pv.Ledger.open(database, beside=place))

        outcome(f"PostgreSQL drops rows by {turn}", 1, accepted(pv.LedgerError, release))
    due = ("is gone", "does not belong")
    assert all(any(words in text for words in due) for text in found.problems), found.problems


# -- backups ---------------------------------------------------------------------------------------


def backed_up(path: Path) -> Path:
    """Return the backup of a ledger with three entries; the ledger is gone."""
    with pv.Ledger.at(path) as ledger:
        enter(ledger, 3)
        ledger.backup(path.with_name("ledger.backup"))
    for end in ("", ".key", ".head"):
        path.with_name(path.name + end).unlink()
    return path.with_name("ledger.backup")


def test_damaged_backups(path: Path, outcome: Outcome) -> None:
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
        pv.Ledger.restore(backup, path, replace=tried % 2 == 0)
        return 0

    while code == 9:
        tried += 1
        code = in_a_child(restore_and_die)
        assert code in (0, 9)
        whole = False
        if path.exists() or path.with_name("ledger.db.key").exists():
            with suppress(pv.LedgerError):
                whole = entries(path) in (4, 5)
                through += not whole  # a fresh budget
        if not whole:
            assert pv.Ledger.restore(backup, path).ok
        through += entries(path) not in (4, 5)
        for file in path.parent.iterdir():
            if file != backup:
                file.unlink()
    outcome("a restore that is killed", tried, through)


def test_a_broken_ledger_is_not_backed_up(path: Path, outcome: Outcome) -> None:
    enter(path)
    ledger = pv.Ledger.open(path)
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "DROP TRIGGER entries_stay; UPDATE entries SET body = replace(body, '8.0', '9.0')"
        )
    with pytest.raises(pv.LedgerError, match="broken"):
        ledger.backup(path.with_name("ledger.backup"))
    outcome("a backup of a broken ledger", 1, int(path.with_name("ledger.backup").exists()))

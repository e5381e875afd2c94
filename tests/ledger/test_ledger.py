"""The ledger: budgets hold over runs and processes, nothing leaves uncharged, edits are found."""

from __future__ import annotations

import copy
import errno
import multiprocessing
import os
import pickle
import random
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.ledger.conftest import VOTES, charged, label, own_files
from tests.refusals import refused

import privote as pv
from privote.ledger.store import TRIGGERS

MECHANISM = pv.BinaryVoting(sigma=5.0)
ALLOWANCE: dict[str, Any] = {"queries": None, "guarantee": "allowance"}
pytestmark = pytest.mark.filterwarnings("ignore::privote.PrivoteWarning")


def test_allowance_is_charged_once_and_goes_on(path: Path) -> None:
    for _ in range(3):
        release = label(path, **ALLOWANCE)
    entries = pv.Ledger.open(path).published()
    assert [e["kind"] for e in entries] == [
        "budget",
        "charge",
        *["reserve", "commit", "deliver"] * 3,
    ]
    together = label(None, np.concatenate([VOTES] * 3), **ALLOWANCE)
    np.testing.assert_array_equal(release.sealed.spent, together.sealed.spent)
    assert release.guarantee.allowance == together.guarantee.allowance
    # Each of these would need an allowance of its own, and there is not enough left.
    other = {**ALLOWANCE, "mechanism": pv.BinaryVoting(sigma=4.0)}
    for more in (other, {**ALLOWANCE, "seed": 1}, {**ALLOWANCE, "epsilon": 7.9}):
        with refused(None, pv.BudgetError):
            label(path, **more)
    label(path, **other, dataset="another")


def test_refuses_to_be_copied_or_pickled(path: Path) -> None:
    ledger = pv.Ledger.open(path)
    sizes = {"voters": 2, "labels": 2, "epsilon": 1.0, "delta": 1e-5}
    electorate = pv.Electorate(mechanism=pv.BinaryVoting(sigma=90.0), **sizes)
    for thing in (ledger, electorate):
        for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot be copied or pickled"):
                attempt(thing)


def edits(path: Path) -> Iterator[str]:
    """Yield changes behind the ledger's back: of each text, and of each entry as a whole."""
    rng = random.Random(0)
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT * FROM entries").fetchall()
    for number, *texts in rows:
        for column, text in zip(("at", "body", "digest"), texts, strict=True):
            for place in rng.sample(range(len(text)), 3):
                new = text[:place] + ("2" if text[place] == "1" else "1") + text[place + 1 :]
                yield f"UPDATE entries SET {column}='{new}' WHERE number={number}"
        yield f"DELETE FROM entries WHERE number={number}"
        yield f"DELETE FROM entries WHERE number>={number}"
        yield f"INSERT INTO entries SELECT 99, at, body, digest FROM entries WHERE number={number}"
        other, move = number % len(rows) + 1, "UPDATE entries SET number={} WHERE number={};"
        swap = move.format(98, number) + move.format(number, other) + move.format(other, 98)
        yield f"PRAGMA foreign_keys=OFF; {swap}"
    yield "UPDATE sealed SET body='{\"spent\":[]}' WHERE number=(SELECT min(number) FROM sealed)"
    yield "DELETE FROM sealed WHERE number=(SELECT min(number) FROM sealed)"


def test_verify_finds_every_edit(path: Path, tmp_path: Path) -> None:
    for start in range(3):
        label(path, VOTES[start : start + 10], **ALLOWANCE)
    changes = [*edits(path), *range(1, path.stat().st_size, 5000)]
    for number, change in enumerate(changes):
        copied = tmp_path / f"{number}.db"
        for end in ("", ".key", ".head"):
            shutil.copy(f"{path}{end}", f"{copied}{end}")
        if isinstance(change, int):
            with open(copied, "r+b") as stream:
                stream.truncate(change)
        else:
            with closing(sqlite3.connect(copied)) as connection:
                connection.executescript("DROP TRIGGER entries_stay; DROP TRIGGER entries_remain")
                connection.executescript(change)
                connection.executescript(";".join(TRIGGERS.values()))  # or these are missed
        with suppress(pv.LedgerError):
            assert not pv.Ledger.open(copied).verify().ok, change


def test_an_entry_of_a_fork_does_not_fit_in(path: Path, tmp_path: Path) -> None:
    label(path)
    fork = tmp_path / "fork.db"
    for end in ("", ".key", ".head"):
        shutil.copy(f"{path}{end}", f"{fork}{end}")
    for place, queries in ((path, 2), (fork, 1), (path, 1)):
        label(place, queries=queries)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            f"ATTACH '{fork}' AS fork; DROP TRIGGER entries_stay;"
            "UPDATE entries SET (at, body, digest) = (SELECT at, body, digest FROM fork.entries f "
            "  WHERE f.number = entries.number) WHERE number = (SELECT min(e.number) FROM entries e"
            "  JOIN fork.entries f USING (number) WHERE e.digest != f.digest);"
            + TRIGGERS["entries_stay"]
        )
    assert not pv.Ledger.open(path).verify().ok


def test_an_anchor_that_may_not_last_releases_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pv.Ledger.open(path).close()
    sync = os.fsync

    def fails(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EIO, "Input/output error")
        sync(file)

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(pv.LedgerError, match="anchor"):
        label(path)


# -- several processes -----------------------------------------------------------------------------


def _spend(place: Any, start: Any, answered: Any) -> None:
    """Answer single queries until the budget refuses; the ledger may be new to everybody."""
    start.wait(60)
    # Of its own: a process cannot begin what another has not finished.
    mechanism = pv.BinaryVoting(sigma=8.0 + os.getpid() * 1e-12)
    with closing(pv.Ledger.open(place)) as ledger:
        count = label(ledger, mechanism=mechanism).answered
        start.wait(60)  # each has had one: from here on whoever comes first
        try:
            while True:
                count += label(ledger, mechanism=mechanism).answered
        except pv.BudgetError:
            answered.put(count)


@pytest.mark.parametrize("kind", ["file", "database", "own anchors"])
def test_processes_never_overspend_together(
    request: pytest.FixtureRequest, path: Path, kind: str
) -> None:
    place = path if kind == "file" else request.getfixturevalue("place")
    places = [place] * (4 if kind == "file" else 2)
    if kind == "own anchors":
        pv.Ledger.open(place).close()
        places[1] = own_files(place, "other")
    context = multiprocessing.get_context("spawn")
    start, answered = context.Barrier(len(places)), context.Queue()
    running = [context.Process(target=_spend, args=(each, start, answered)) for each in places]
    for process in running:
        process.start()
    counts = [answered.get(timeout=120) for _ in running]
    for process in running:
        process.join(60)
    assert min(counts) > 0
    pinned = pv.Budget(epsilon=10.0, delta=1e-5).filter
    (each,) = pv.BinaryVoting(sigma=8.0).worst_case_rdp(10, 3, [pinned.order])
    assert sum(counts) == charged(place) == pinned.fitting(0.0, float(each), 999)


# -- what an attacker would try --------------------------------------------------------------------


def test_a_secret_follows_from_the_key_alone_and_is_never_written(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(pv.Ledger.open(path)) as first:
        found = {(p, d): first.secret(p, d) for p in ("partition", "other") for d in ("a", "b")}
    assert len(set(found.values())) == 4
    assert all(len(secret) == 32 for secret in found.values())
    with closing(pv.Ledger.open(path)) as again:
        assert {at: again.secret(*at) for at in found} == found
        assert again.published() == []
        with refused("dataset"):
            again.secret("partition", " ")
    assert pv.Ledger.in_memory().secret("partition", "a") != found["partition", "a"]
    for file in tmp_path.iterdir():
        assert not any(secret in file.read_bytes() for secret in found.values())
        assert not any(secret.hex().encode() in file.read_bytes() for secret in found.values())

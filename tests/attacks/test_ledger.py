"""Attacks on the ledger: rows that are dropped, charges that refund, threads, forks, readers."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import shutil
import sqlite3
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.attacks.conftest import Outcome, accepted, in_a_child, scaled

import privote as pv
from privote.ledger import Budget, Request
from privote.ledger.store import TRIGGERS

VOTES = np.random.default_rng(0).random((40, 12, 3)) < 0.2
MECHANISM = pv.BinaryVoting(sigma=6.0)
SPAWN = multiprocessing.get_context("spawn")
GUARANTEES = ("allowance", "worst-case", "data-dependent")


def label(ledger: Any, **changes: Any) -> pv.Release:
    arguments: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5, "mechanism": MECHANISM}
    return pv.label(VOTES[:2], ledger=ledger, queries=2, **{**arguments, **changes})


# -- rows that the database drops ------------------------------------------------------------------

DROPS = {
    "every row": "CREATE TRIGGER t BEFORE INSERT ON entries BEGIN SELECT RAISE(IGNORE); END",
    "charges": "CREATE TRIGGER t BEFORE INSERT ON entries WHEN NEW.body LIKE '%\"charge\"%' "
    "BEGIN SELECT RAISE(IGNORE); END",
    "commits": "CREATE TRIGGER t BEFORE INSERT ON entries WHEN NEW.body LIKE '%\"commit\"%' "
    "BEGIN SELECT RAISE(IGNORE); END",
    "sealed parts": "CREATE TRIGGER t BEFORE INSERT ON sealed BEGIN SELECT RAISE(IGNORE); END",
    "afterwards": "DROP TRIGGER entries_remain; CREATE TRIGGER t AFTER INSERT ON entries "
    "BEGIN DELETE FROM entries WHERE number = NEW.number; END",
    "rewritten": "DROP TRIGGER entries_stay; CREATE TRIGGER t AFTER INSERT ON entries "
    "BEGIN UPDATE entries SET body = '{}' WHERE number = NEW.number; END",
}


@pytest.mark.parametrize("drop", DROPS)
def test_sqlite_rows_that_are_dropped(tmp_path: Path, drop: str, outcome: Outcome) -> None:
    found = []
    for guarantee in GUARANTEES:
        path = tmp_path / f"{guarantee}.db"
        label(path, dataset="before")
        with sqlite3.connect(path) as connection:
            connection.executescript(DROPS[drop])
        refusals = (pv.LedgerError, pv.ChargedError)
        found.append(accepted(refusals, label, path, guarantee=guarantee))
        problems = pv.Ledger.open(path, readonly=True).verify().problems
        assert any("'t' does not belong" in problem for problem in problems)
        taken = re.findall(r"DROP TRIGGER (\w+)", DROPS[drop])
        assert {f"{name!r} is gone" for name in taken} <= {*problems}
    outcome.of(f"SQLite trigger drops {drop}", found)


# -- charges that are none -------------------------------------------------------------------------


def test_no_curve_that_refunds_is_stored(path: Path, outcome: Outcome) -> None:
    ledger, orders, cost = pv.Ledger.open(path), pv.DEFAULT_ORDERS, Budget(epsilon=1.0, delta=1e-5)
    nothing = {"dataset": "d", "budget": 8.0, "cost": cost, "guarantee": "poll", "terms": {}}
    curves: list[Any] = [-orders, orders * np.nan, orders[::-1], orders[1:], ["1"]]
    found = [
        accepted(pv.InputError, ledger.reserve, Request(price=lambda _, c=c: c, **nothing))
        for c in curves
    ]
    assert ledger.published() == []
    outcome.of("curves that refund", found)


# -- threads and forks -----------------------------------------------------------------------------


def _ledgers(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> pv.Ledger:
    if kind == "memory":
        return pv.Ledger.in_memory()
    if kind == "sqlite":
        return pv.Ledger.open(tmp_path / "threads.db")
    return pv.Ledger.open(request.getfixturevalue("database"), beside=tmp_path / "site")


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
def test_threads_on_one_ledger(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, outcome: Outcome
) -> None:
    ledger, times = _ledgers(request, tmp_path, kind), scaled(6, 60)
    ledger.set_budget(pv.Budget(epsilon=30.0, delta=1e-5), dataset="default")

    def work(thread: int) -> int:
        answered, mechanism = 0, pv.BinaryVoting(sigma=6 + thread / 8)  # a run of its own
        for _ in range(times):
            try:
                answered += label(ledger, guarantee="worst-case", mechanism=mechanism).answered
            except pv.BudgetError:
                break
        return answered

    with ThreadPoolExecutor(4) as pool:
        answered = sum(pool.map(work, range(4)))
    charged = 2 * sum(e["kind"] == "charge" for e in ledger.published())
    assert ledger.verify().ok
    assert ledger.standing()[0]["used"] <= 30
    assert answered > 8
    outcome(f"four threads on one ledger ({kind})", answered, abs(answered - charged))


def test_threads_on_one_electorate(outcome: Outcome) -> None:
    electorate = pv.Electorate(
        mechanism=MECHANISM, voters=12, labels=3, epsilon=8.0, delta=1e-5, allowance=20
    )
    votes = np.ones((1, 12, 3), bool)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: electorate.answer(votes), range(scaled(24, 200))))
    assert electorate.answered == scaled(24, 200)
    over = int((electorate.sealed.spent > 20).sum())
    outcome("four threads on one electorate", scaled(24, 200), over)


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forks_of_one_ledger(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, outcome: Outcome
) -> None:
    ledger = _ledgers(request, tmp_path, kind)
    electorate = pv.Electorate(
        mechanism=MECHANISM, voters=12, labels=3, epsilon=8.0, delta=1e-5, ledger=ledger
    )
    electorate.answer(VOTES[:1])
    jobs: list[Any] = [lambda: electorate.answer(VOTES[1:2])] * 4 + [ledger.verify, ledger.standing]
    said = [in_a_child(lambda job=job: accepted(pv.LedgerError, job)) for job in jobs]
    electorate.answer(VOTES[2:3])  # the parent's connection still is its own
    outcome.of(f"forks of one electorate ({kind})", said)


# -- verify, while others write, and on read-only media --------------------------------------------


def _keep_writing(path: str, until: Any) -> None:
    ledger = pv.Ledger.open(path)
    number = 0
    while not until.is_set():
        number += 1
        ledger.set_budget(pv.Budget(epsilon=1.0, delta=1e-5), dataset=f"{os.getpid()} {number}")


def test_verify_does_not_cry_wolf(tmp_path: Path, outcome: Outcome) -> None:
    wrong: list[object] = []
    for number in range(scaled(1, 10)):  # a new ledger each time: verify reads all of it
        path = tmp_path / f"{number}.db"
        stays = pv.Ledger.open(path)
        until = SPAWN.Event()
        writers = [SPAWN.Process(target=_keep_writing, args=(str(path), until)) for _ in range(2)]
        for writer in writers:
            writer.start()
        for _ in range(75):
            wrong.append(stays.verify().problems)
            with closing(pv.Ledger.open(path, readonly=True)) as ledger:
                wrong.append(ledger.verify().problems)
        until.set()
        for writer in writers:
            writer.join(60)
            assert writer.exitcode == 0
    outcome.of("verify while two processes write", wrong)


@pytest.mark.parametrize("crashed", [False, True])
def test_verify_on_read_only_media(path: Path, crashed: bool) -> None:
    if os.getuid() != 0:
        pytest.skip("becomes another user, who may not write, and so needs to be root")
    open_still = pv.Ledger.open(path)
    label(open_still)
    if not crashed:
        open_still.close()
    with tempfile.TemporaryDirectory() as folder:
        medium = Path(folder)
        for file in path.parent.glob("ledger.db*"):
            shutil.copy(file, medium)
        for file in (medium, *medium.iterdir()):
            file.chmod(0o755 if file.is_dir() else 0o644)
        before = sorted((file.name, file.read_bytes()) for file in medium.iterdir())

        def job() -> int:
            os.setuid(65534)
            ledger = pv.Ledger.open(medium / "ledger.db", readonly=True)
            seen = ledger.verify().ok, len(ledger.published()), ledger.standing()[0]["epsilon"]
            return seen != (True, 5, 8.0)

        assert in_a_child(job) == 0
        assert sorted((file.name, file.read_bytes()) for file in medium.iterdir()) == before


def content_with(path: Path, **how: Any) -> bool:
    """Return whether a ledger can be opened, and verify finds nothing."""
    try:
        return pv.Ledger.open(path, **how).verify().ok
    except pv.LedgerError:
        return False


def test_damaged_files_say_so(path: Path, tmp_path: Path, outcome: Outcome) -> None:
    label(path)
    rng, found = np.random.default_rng(0), []
    anchor = path.with_name("ledger.db.head").read_bytes()
    bad = [b"", b"[]", b"null", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"head":1,"mark":2}']
    bad += [anchor.replace(b'"mark"', b'"mask"'), anchor.replace(b'"head":[', b'"head":[[],')]
    bad += [json.dumps({**json.loads(anchor), "mark": None}).encode()]
    for place in rng.integers(len(anchor), size=scaled(40, 2000)):
        bad.append(anchor[:place] + rng.bytes(1) + anchor[place + 1 :])
    for content in bad:
        if content == anchor:
            continue
        path.with_name("ledger.db.head").write_bytes(content)
        found += [content_with(path, readonly=True), content_with(path)]
    outcome.of("damaged anchors", found)


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE entries SET body = x'00ff' WHERE number = 2",
        "UPDATE entries SET digest = 7 WHERE number = 2",
        "UPDATE entries SET at = CAST(x'ff' AS TEXT) WHERE number = 2",
        "UPDATE sealed SET body = x'00'",
    ],
)
def test_blobs_for_text_say_so(path: Path, edit: str) -> None:
    label(path)
    again = TRIGGERS["entries_stay"]
    with sqlite3.connect(path) as connection:
        connection.executescript(f"DROP TRIGGER entries_stay; {edit}; {again};")
    assert not content_with(path, readonly=True)
    with pytest.raises(pv.LedgerError):
        label(path)


@pytest.mark.parametrize("opened", ["before", "after"])
def test_a_file_in_the_place_of_an_open_one(path: Path, opened: str, outcome: Outcome) -> None:
    """Whoever has the old file open, and whoever opens the new one, share one budget."""
    rich = pv.Budget(epsilon=8.0, delta=1e-5)
    first = pv.Ledger.open(path)
    first.set_budget(rich, dataset="default")
    with sqlite3.connect(path) as here, sqlite3.connect(path.with_name("copy.db")) as there:
        here.backup(there)
    os.replace(path.with_name("copy.db"), path)
    ledgers = [first, path if opened == "after" else pv.Ledger.open(path)]
    # Two queries with so little noise take more than half of the budget.
    asked: dict[str, Any] = {"guarantee": "worst-case", "mechanism": pv.BinaryVoting(sigma=2.0)}
    spent = sum(accepted(pv.LedgerError, label, ledger, **asked) for ledger in ledgers)
    assert spent >= 1
    outcome(f"another file in the ledger's place, opened {opened}", 1, spent - 1)
    with pytest.raises(pv.LedgerError, match="moved or replaced while it was open"):
        label(first, **asked)
    assert pv.Ledger.open(path).verify().ok


def test_entries_that_are_put_back_under_an_open_ledger(path: Path) -> None:
    ledger = pv.Ledger.open(path)
    ledger.set_budget(pv.Budget(epsilon=8.0, delta=1e-5), dataset="default")
    anchor = path.with_name("ledger.db.head").read_bytes()
    label(ledger)
    path.with_name("ledger.db.head").write_bytes(anchor)
    with sqlite3.connect(path) as connection:
        connection.executescript("DROP TRIGGER entries_remain; DELETE FROM sealed; ")
        connection.execute("DELETE FROM entries WHERE number > 1")
    with pytest.raises(pv.LedgerError, match="rolled back"):
        label(ledger, dataset="another")


def test_an_interrupt_at_any_line_leaves_a_ledger_that_works(path: Path, outcome: Outcome) -> None:
    at = stuck = 0
    while True:
        at, lines = at + 1, [0]

        def local(frame: Any, event: str, _: Any, lines: Any = lines, at: int = at) -> Any:
            lines[0] += event == "line"
            if lines[0] == at and event == "line":
                raise KeyboardInterrupt
            return local

        def traced(frame: Any, event: str, _: Any) -> Any:
            return local if frame.f_code.co_name == "transaction" else None

        ledger, before = pv.Ledger.open(path), sys.gettrace()
        sys.settrace(traced)
        try:
            ledger.set_budget(pv.Budget(epsilon=8.0, delta=1e-5), dataset=f"set {at}")
        except KeyboardInterrupt:
            pass
        else:
            break
        finally:
            sys.settrace(before)
        budget = pv.Budget(epsilon=8.0, delta=1e-5)
        stuck += not accepted(pv.LedgerError, ledger.set_budget, budget, dataset="after")
        ledger.close()
    assert pv.Ledger.open(path).verify().ok
    outcome("an interrupt inside a transaction", at - 1, stuck)


def test_killed_writers_leave_no_pile(path: Path) -> None:
    never = SPAWN.Event()
    for _ in range(scaled(3, 20)):
        child = SPAWN.Process(target=_keep_writing, args=(str(path), never))
        child.start()
        while not path.with_name("ledger.db.head").exists():
            pass
        child.join(0.3)
        child.kill()
        child.join()
    assert pv.Ledger.open(path).verify().ok
    names = {file.name for file in path.parent.iterdir()}
    known = {f"ledger.db{end}" for end in ("", ".key", ".head", "-journal")}
    known |= {f".ledger.db.part{end}" for end in (".key", ".head")}  # written over, not piled up
    assert names <= known

"""The ledger: budgets hold over runs and processes, nothing leaves uncharged, edits are found."""

from __future__ import annotations

import copy
import json
import multiprocessing
import os
import pickle
import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv

VOTES = np.random.default_rng(0).random((200, 20, 3)) < 0.2
MECHANISM = pv.BinaryVoting(sigma=5.0)


def label(path: Path, votes: np.ndarray = VOTES, **changes: Any) -> pv.Release:
    arguments: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5, "mechanism": MECHANISM}
    if "guarantee" not in changes:
        arguments |= {"guarantee": "allowance"}
    return pv.label(votes, ledger=path, **{**arguments, **changes})


def fitting(epsilon: float) -> int:
    asked: dict[str, Any] = {"mechanism": MECHANISM, "guarantee": "worst-case"}
    return pv.label(VOTES, epsilon=epsilon, delta=1e-5, **asked).answered


def test_worst_case_budget_holds_over_runs(path: Path) -> None:
    whole = fitting(8.0)
    first = label(path, guarantee="worst-case", queries=3)
    rest = label(path, guarantee="worst-case")
    assert first.answered + rest.answered == whole
    with pytest.raises(pv.BudgetError, match=r"allows 0 more queries"):
        label(path, guarantee="worst-case")
    assert pv.Ledger.open(path).verify().ok


def test_allowance_is_charged_once_and_goes_on(path: Path) -> None:
    for _ in range(3):
        release = label(path)
    entries = pv.Ledger.open(path).published()
    assert [e["kind"] for e in entries] == ["budget", "charge", *["answer", "outcome"] * 3]
    twice = np.concatenate([VOTES] * 3)
    together = pv.label(
        twice,
        mechanism=MECHANISM,
        epsilon=8.0,
        delta=1e-5,
        guarantee="allowance",
    )
    np.testing.assert_array_equal(release.sealed.spent, together.sealed.spent)
    assert release.allowance == together.allowance
    # The budget is used up by the allowance: nothing else fits the same data set.
    with pytest.raises(pv.BudgetError):
        label(path, guarantee="worst-case")
    with pytest.raises(pv.BudgetError):
        label(path, mechanism=pv.BinaryVoting(sigma=4.0))
    label(path, mechanism=pv.BinaryVoting(sigma=4.0), dataset="another")


def test_budget_once_set_stays(path: Path) -> None:
    label(path, guarantee="worst-case", queries=1)
    with pytest.raises(pv.BudgetError, match="epsilon=8, delta=1e-05, shared at order 4 and stays"):
        label(path, epsilon=9.0, guarantee="worst-case", queries=1)


def test_consumer_has_a_budget_of_its_own(path: Path) -> None:
    ledger = pv.Ledger.open(path)
    ledger.set_budget(pv.Budget(epsilon=8.0, delta=1e-5), dataset="default")
    ledger.set_budget(pv.Budget(epsilon=4.0, delta=1e-5), dataset="default", consumer="lab")
    ledger.close()
    small = label(path, guarantee="worst-case", consumer="lab").answered
    rest = label(path, guarantee="worst-case").answered
    whole = fitting(8.0)
    assert small == fitting(4.0)
    assert small + rest == whole


def test_kinds_of_guarantee_do_not_mix_on_one_data_set(path: Path) -> None:
    label(path, guarantee="worst-case", queries=1)
    with refused(None, pv.BudgetError):
        label(path, guarantee="data-dependent", queries=5)
    label(path, guarantee="data-dependent", queries=5, dataset="study")


def test_published_view_and_file_names_hold_nothing_sealed(path: Path) -> None:
    release = label(path, guarantee="data-dependent", queries=50)
    label(path, dataset="other")
    text = json.dumps(pv.Ledger.open(path).published())
    for value in release.sealed.rdp[::10]:
        assert repr(float(value)) not in text
    for word in ("spent", "refused", "roll", "seal"):
        assert word not in text


def test_refuses_to_be_copied_or_pickled(path: Path) -> None:
    ledger = pv.Ledger.open(path)
    guardian = pv.Guardian(MECHANISM, pv.Budget(epsilon=1.0, delta=1e-5), ledger)
    sizes = {"voters": 2, "labels": 2, "epsilon": 1.0, "delta": 1e-5}
    electorate = pv.Electorate(mechanism=pv.BinaryVoting(sigma=90.0), **sizes)
    for thing in (ledger, guardian, electorate):
        for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot be copied or pickled"):
                attempt(thing)


# -- tampering -------------------------------------------------------------------------------------


def tamper(copied: Path, rng: random.Random) -> str:
    """Make one random change behind the ledger's back."""
    kind = rng.choice(["edit", "remove", "swap", "insert", "sealed", "unseal", "truncate", "tail"])
    if kind == "truncate":
        with open(copied, "r+b") as stream:
            stream.truncate(rng.randrange(1, copied.stat().st_size))
        return kind
    connection = sqlite3.connect(copied)
    for trigger in ("entries_stay", "entries_remain"):
        connection.execute(f"DROP TRIGGER {trigger}")
    count = connection.execute("SELECT max(number) FROM entries").fetchone()[0]
    at = rng.randint(1, count)
    if kind == "edit":
        column = rng.choice(["at", "body", "digest"])
        text = connection.execute(f"SELECT {column} FROM entries WHERE number=?", (at,)).fetchone()[
            0
        ]
        place = rng.randrange(len(text))
        new = text[:place] + ("1" if text[place] != "1" else "2") + text[place + 1 :]
        connection.execute(f"UPDATE entries SET {column}=? WHERE number=?", (new, at))
    elif kind == "remove":
        connection.execute("DELETE FROM entries WHERE number=?", (at,))
    elif kind == "tail":
        connection.execute("DELETE FROM entries WHERE number>=?", (at,))
    elif kind == "insert":
        connection.execute(
            "INSERT INTO entries SELECT ?, at, body, digest FROM entries WHERE number=?",
            (count + 1, at),
        )
    elif kind == "swap":
        other = at % count + 1
        for old, new in ((at, -1), (other, at), (-1, other)):
            connection.execute("PRAGMA ignore_check_constraints=ON")
            connection.execute("UPDATE entries SET number=? WHERE number=?", (new, old))
    else:
        number = connection.execute("SELECT min(number) FROM sealed").fetchone()[0]
        if kind == "sealed":
            connection.execute("UPDATE sealed SET body='{\"spent\":[]}' WHERE number=?", (number,))
        else:
            connection.execute("DELETE FROM sealed WHERE number=?", (number,))
    connection.commit()
    connection.close()
    return kind


def test_verify_finds_every_edit(path: Path, tmp_path: Path) -> None:
    for start in range(5):
        label(path, VOTES[start : start + 10])
    rng = random.Random(0)
    undetected = []
    for trial in range(500):
        folder = tmp_path / f"t{trial}"
        folder.mkdir()
        for end in ("", ".key", ".head"):
            shutil.copy(f"{path}{end}", folder / f"ledger.db{end}")
        kind = tamper(folder / "ledger.db", rng)
        try:
            found = not pv.Ledger.open(folder / "ledger.db").verify().ok
        except pv.LedgerError:
            found = True
        if not found:
            undetected.append(kind)
        shutil.rmtree(folder)
    assert not undetected


# -- several processes -----------------------------------------------------------------------------


def race(path: str, queue: Any) -> None:
    answered = 0
    for _ in range(4):
        try:
            answered += label(Path(path), VOTES[:1], guarantee="worst-case").answered
        except pv.BudgetError:
            break
    queue.put(answered)


def test_eight_processes_never_overspend_together(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    label(path, VOTES[:1], guarantee="worst-case")
    runners = [context.Process(target=race, args=(str(path), queue)) for _ in range(8)]
    for runner in runners:
        runner.start()
    answered = sum(queue.get(timeout=120) for _ in runners)
    for runner in runners:
        runner.join(timeout=60)
        assert runner.exitcode == 0
    ledger = pv.Ledger.open(path)
    charged = sum(e["queries"] for e in ledger.published() if e["kind"] == "charge")
    assert charged == answered + 1 <= fitting(8.0)
    assert ledger.verify().ok


def test_environment_key(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVOTE_LEDGER_KEY", os.urandom(32).hex())
    label(path)
    assert not path.with_name(path.name + ".key").exists()
    assert pv.Ledger.open(path).verify().ok
    for bad in ("short", "00" * 32):  # no key, and another one, under which no digest fits
        monkeypatch.setenv("PRIVOTE_LEDGER_KEY", bad)
        with pytest.raises(pv.LedgerError):
            pv.Ledger.open(path)


# -- what an attacker would try --------------------------------------------------------------------


def test_orders_belong_to_a_data_set() -> None:
    ledger = pv.Ledger.in_memory()
    budget = pv.Budget(epsilon=400.0, delta=1e-5)
    near, far = np.linspace(1.02, 1.1, 20), np.linspace(5, 40, 20)
    first = pv.Guardian(MECHANISM, budget, ledger, guarantee="worst-case", dataset="a", orders=near)
    used = first.release(VOTES[:50]).epsilon
    other = pv.Guardian(MECHANISM, budget, ledger, guarantee="ptr", dataset="b", orders=far)
    other.release(np.zeros((2, 20, 3), bool), queries=2)
    assert ledger.standing()[0]["used"] == pytest.approx(used)
    again = pv.Guardian(MECHANISM, budget, ledger, guarantee="worst-case", dataset="a", orders=far)
    with refused("orders"):
        again.release(VOTES[:1])


def test_simulated_and_real_runs_do_not_share_an_allowance(path: Path) -> None:
    label(path, seed=1)
    with pytest.raises(pv.BudgetError):
        label(path)


def test_a_secret_follows_from_the_key_alone_and_is_never_written(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    first = pv.Ledger.open(path)
    found = {(p, d): first.secret(p, d) for p in ("partition", "other") for d in ("a", "b")}
    assert len(set(found.values())) == 4
    assert all(len(secret) == 32 for secret in found.values())
    first.close()
    again = pv.Ledger.open(path)
    assert {at: again.secret(*at) for at in found} == found
    assert again.published() == []
    assert pv.Ledger.in_memory().secret("partition", "a") != found["partition", "a"]
    with refused("dataset"):
        again.secret("partition", " ")
    again.close()
    for file in tmp_path.iterdir():
        assert not any(secret in file.read_bytes() for secret in found.values())
        assert not any(secret.hex().encode() in file.read_bytes() for secret in found.values())

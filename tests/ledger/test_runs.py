"""Reserve, draw, commit, deliver: what each state allows, and what a resumed run does.

The conditions under which drawing again is free (ACCOUNTING, section 20) have a test each, by
number: 1 to 4 and 6 here, 1 for every verb in ``tests/attacks/test_before_commit.py``, 5 in
``tests/attacks/test_copies.py``, 7 in ``tests/capc/test_crashes.py``, 8 in ``test_stores.py``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv
from privote.accounting.renyi import DEFAULT_ORDERS
from privote.errors import ChargedError, CompleteError, StorageError
from privote.ledger import Budget, Outbox, Outcome, Request, Run
from privote.ledger.store import LostError

COST = Budget(epsilon=2.0, delta=1e-5)
NUMBERS = np.arange(6, dtype=np.int64).reshape(3, 2)
OUTCOME = Outcome(arrays={"outcome": NUMBERS}, facts={"about": 1}, statement="It is so.")


def asked(**changes: Any) -> Request:
    facts: dict[str, Any] = {
        "dataset": "ward",
        "budget": 8.0,
        "cost": COST,
        "guarantee": "allowance",
        "terms": {"queries": 3},
        "price": lambda epsilon: 0.01 * epsilon * DEFAULT_ORDERS,
        "layout": {"outcome": (np.int64, (3, 2))},
    }
    return Request(**{**facts, **changes})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def kinds(place: Path) -> list[str]:
    with closing(pv.Ledger.open(place)) as ledger:
        return [entry["kind"] for entry in ledger.published()]


def status(place: Path) -> list[str]:
    with closing(pv.Ledger.open(place)) as ledger:
        return [run.status for run in ledger.state.runs.values()]


def reserve(place: Path, **how: Any) -> Run:
    return pv.Ledger.open(place).reserve(asked(), **how)


def outboxes(place: Path) -> list[Path]:
    return [*place.parent.glob("*.outbox")]


# -- the way of a run --


def test_a_run_is_charged_then_drawn_then_committed_then_delivered(place: Path) -> None:
    ledger = pv.Ledger.open(place)
    with ledger.reserve(asked()) as run:
        assert [e["kind"] for e in ledger.published()] == ["budget", "charge", "reserve"]
        (outbox,) = outboxes(place)
        size = outbox.stat().st_size
        assert size == asked().size
        assert outbox.stat().st_mode & 0o077 == 0
        run.commit(OUTCOME, queries=3)
        assert outbox.stat().st_size == size
        assert ledger.state.runs[run.number].status == "committed"
        run.deliver({"labels.csv": "12"})
    assert ledger.state.runs[run.number].status == "delivered"
    assert not outboxes(place)
    assert [finding.what for finding in ledger.check("12")] == ["file 'labels.csv'"]
    assert [finding.what for finding in ledger.check(OUTCOME.drawn)] == ["outcome"]
    assert ledger.check("34") == []


def test_nothing_that_was_drawn_is_in_the_published_view(place: Path) -> None:
    ledger = pv.Ledger.open(place)
    with ledger.reserve(asked()) as run:
        run.commit(OUTCOME, spending=(np.array([1, 2]), np.array([0, 1])))
        run.deliver({"labels.csv": "12"})
    text = str(ledger.published())
    for word in ("drawn", "statement", "spent", "clipped", "files", "12'", "host", "user"):
        assert word not in text


def test_reserved_it_is_taken_over_and_drawn_afresh(place: Path) -> None:
    first = reserve(place)
    with refused(None, pv.BudgetError):  # by somebody who did not say resume: nothing is charged
        reserve(place)
    second = reserve(place, resume=True)
    assert (second.number, second.outcome) == (first.number, None)
    (outbox,) = outboxes(place)
    assert [box.run for box in pv.Ledger.open(place).outboxes()] == [second.number]
    assert Outbox(place, second.number, second._holder).path == outbox
    with refused(None, ChargedError) as caught:  # the one that was thought dead commits nothing
        first.commit(OUTCOME)
    assert caught.value.code in ("taken", "charged")
    second.commit(OUTCOME)
    second.deliver()
    assert kinds(place).count("charge") == kinds(place).count("commit") == 1


def test_condition_4_committed_it_is_delivered_after_an_entry_of_its_own(place: Path) -> None:
    first = reserve(place)
    first.commit(OUTCOME)
    second = reserve(place, resume=True)
    assert second.outcome is not None
    np.testing.assert_array_equal(second.outcome.arrays["outcome"], NUMBERS)
    assert (second.outcome.facts, second.outcome.statement) == ({"about": 1}, "It is so.")
    # Durable before it is delivered: were the commit lost after all, this entry would be, too.
    assert kinds(place)[-1] == "takeover"
    second.deliver()
    first.deliver()  # the same, and late
    assert kinds(place).count("deliver") == 1


def test_delivered_it_is_complete(tmp_path: Path, place: Path) -> None:
    output = tmp_path / "labels.csv"
    request = asked(output=str(output))
    with pv.Ledger.open(place).reserve(request) as run:
        run.commit(OUTCOME)
        output.write_text("1")
        run.deliver()
    before = kinds(place)
    with refused(None, CompleteError) as complete:
        pv.Ledger.open(place).reserve(request, resume=True)
    assert complete.value.exit_code == 0
    output.unlink()
    with refused("resume"):
        pv.Ledger.open(place).reserve(request, resume=True)
    assert kinds(place) == before


def test_committed_elsewhere_it_is_never_drawn_again(place: Path) -> None:
    reserve(place).commit(OUTCOME)
    for outbox in outboxes(place):
        outbox.rename(outbox.with_suffix(".moved"))
    before = kinds(place)
    with refused(None, ChargedError) as caught:
        reserve(place, resume=True)
    assert (caught.value.code, caught.value.exit_code) == ("elsewhere", 6)
    assert os.uname().nodename in str(caught.value)
    assert kinds(place) == before


@pytest.mark.parametrize("edit", [b'"about": 1', b"It is so", b"\5"], ids=str)
def test_an_outbox_that_was_edited_is_not_delivered(place: Path, edit: bytes) -> None:
    reserve(place).commit(OUTCOME)
    (outbox,) = outboxes(place)
    content = outbox.read_bytes()
    assert edit in content
    outbox.write_bytes(content.replace(edit, edit[:-1] + b"7"))
    with refused(None, ChargedError) as caught:
        reserve(place, resume=True)
    assert caught.value.code == "elsewhere"


@pytest.mark.parametrize("error", [ValueError("J. S."), pv.InputError("votes", "x"), MemoryError()])
def test_condition_1_a_failure_before_the_commit_closes_it(place: Path, error: Exception) -> None:
    with refused(None, ChargedError) as caught, reserve(place):
        raise error
    assert caught.value.code == "closed"
    assert "J. S." not in str(caught.value)  # what another library says may be a vote
    assert status(place) == ["failed"]
    assert not outboxes(place)
    with refused(None, ChargedError) as again:
        reserve(place, resume=True)
    assert (again.value.code, again.value.exit_code) == ("closed", 6)
    assert kinds(place).count("charge") == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)])
def test_condition_1_an_interrupt_leaves_it_open(place: Path, error: BaseException) -> None:
    with pytest.raises(type(error)), reserve(place):
        raise error
    assert status(place) == ["open"]
    reserve(place, resume=True).commit(OUTCOME)


def test_condition_6_a_failure_after_the_commit_leaves_it_to_be_delivered(place: Path) -> None:
    with refused(None, ChargedError) as caught, reserve(place) as run:
        run.commit(OUTCOME)
        raise OSError(28, "No space left on device")
    assert (caught.value.code, caught.value.exit_code) == ("charged", 6)
    assert status(place) == ["committed"]
    assert reserve(place, resume=True).outcome is not None


# -- what fails on the way --


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


def test_condition_2_a_disk_without_room_is_found_before_the_charge(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", failing(OSError(28, "No space left on device")))
    with refused(None, StorageError) as caught:
        reserve(place)
    assert caught.value.exit_code == 7
    assert kinds(place) == []
    assert not outboxes(place)


def test_where_space_cannot_be_allocated_it_is_written(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", failing(OSError(95, "not supported")))
    with reserve(place) as run:
        (outbox,) = outboxes(place)
        assert outbox.stat().st_size == asked().size
        assert outbox.stat().st_blocks * 512 >= asked().size
        run.commit(OUTCOME)
        run.deliver()


@pytest.mark.parametrize("broken", ["write", "append"])
def test_a_disk_that_fails_at_the_commit_leaves_it_open(
    place: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    run = reserve(place)
    with monkeypatch.context() as patch, refused(None, ChargedError) as caught, run:
        if broken == "write":
            patch.setattr(Outbox, "write", failing(OSError(5, "Input/output error")))
        else:
            patch.setattr(type(run.ledger), "append", failing(LostError("gone")))
        run.commit(OUTCOME)
    assert caught.value.code == "charged"
    assert status(place) == ["open"]
    assert reserve(place, resume=True).outcome is None


def test_condition_1_where_a_failure_cannot_be_recorded_nothing_is_said_of_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = reserve(place)
    monkeypatch.setattr(type(run.ledger), "append", failing(LostError("gone")))
    with pytest.raises(ChargedError) as caught, run:
        raise ValueError("a vote of J. Smith")
    seen, error = "", caught.value
    while error is not None:
        seen, error = f"{seen}{error}", error.__cause__ or error.__context__  # type: ignore[assignment]
    assert "Smith" not in seen
    monkeypatch.undo()
    assert status(place) == ["open"]


def test_outboxes_of_nobody_are_swept(place: Path) -> None:
    first = reserve(place)
    first.commit(OUTCOME)
    stray, other = (
        Outbox(file, 99, "ab" * 8).path for file in (place, place.parent / "ledger.db.x")
    )
    for path in (stray, other):
        path.write_bytes(b"0")
    pv.Ledger.open(place).reserve(asked(terms={"queries": 4}))
    assert not stray.exists()
    assert other.exists()  # of another ledger
    assert len(outboxes(place)) == 3  # one is committed, one is open


# -- takeovers, and ends --


def test_condition_3_of_all_who_hold_a_run_the_last_one_commits(place: Path) -> None:
    ledger, first = pv.Ledger.open(place), reserve(place)
    runs = [first, *(ledger.reserve(asked(), resume=True) for _ in range(4))]
    done = list[Run]()

    def work(run: Run) -> None:
        try:
            run.commit(OUTCOME)
            done.append(run)
        except ChargedError:
            pass

    threads = [threading.Thread(target=work, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [runs[-1]]
    assert kinds(place).count("commit") == 1


def test_the_owner_can_end_an_open_run(place: Path) -> None:
    run = reserve(place)
    ledger = pv.Ledger.open(place)
    ledger.abandon(run.number)
    assert status(place) == ["abandoned"]
    for number in (run.number, 77):
        with refused("run"):
            ledger.abandon(number)
    with refused(None, ChargedError):
        run.commit(OUTCOME)
    assert reserve(place).number != run.number  # a new run, and a new charge
    assert kinds(place).count("charge") == 2

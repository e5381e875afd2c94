"""Allowances follow names over runs, and whose ballots were clipped is on record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv
from privote.errors import MissingExtraError
from privote.ledger.chain import canonical
from privote.votes.names import voter_names

NAMES = ["north", "east", "south", "west"]
MECHANISM = pv.BinaryVoting(sigma=5.0)


def cube(*yes: int, queries: int = 1) -> np.ndarray:
    """Return votes where voter i says yes to its first ``yes[i]`` of three labels."""
    return np.repeat((np.arange(3) < np.array(yes)[:, None])[None], queries, axis=0)


def label(ledger: Any, votes: np.ndarray, names: Any = NAMES, **changes: Any) -> pv.Release:
    arguments: dict[str, Any] = {"mechanism": MECHANISM, "epsilon": 8.0, "delta": 1e-5}
    if "guarantee" not in changes:
        arguments |= {"guarantee": "allowance"}
    return pv.label(votes, ledger=ledger, voter_ids=names, **{**arguments, **changes})


def electorate(ledger: Any, **changes: Any) -> pv.Electorate:
    facts: dict[str, Any] = {"mechanism": MECHANISM, "voters": 4, "labels": 3, "epsilon": 8.0}
    return pv.Electorate(
        **{**facts, "delta": 1e-5, "voter_ids": NAMES, "ledger": ledger, **changes}
    )


@pytest.fixture
def ledger() -> pv.Ledger:
    return pv.Ledger.in_memory()


# -- names -----------------------------------------------------------------------------------------


def test_a_batch_may_lack_voters(ledger: pv.Ledger) -> None:
    whole = label(ledger, cube(1, 1, 1, 1))
    part = label(ledger, cube(2, 3), ["south", "east"])
    assert part.sealed.spent.tolist() == [3, 4]  # of the voters named, in their order
    assert part.sealed.allowance.tolist() == [whole.guarantee.allowance] * 2
    assert part.guarantee.voters == whole.guarantee.voters == 4
    assert part.epsilon == whole.epsilon
    assert label(ledger, cube(0, 0, 0, 0)).sealed.spent.tolist() == [1, 4, 3, 1]
    (charge,) = (entry for entry in ledger.published() if entry["kind"] == "charge")
    assert charge["allowance"] == whole.guarantee.allowance
    contribution = MECHANISM.contribution_rdp(4, 3)
    assert pv.epsilon(2 * charge["allowance"] * contribution, None, 1e-5) == whole.epsilon


def test_who_is_absent_leaves_no_trace(ledger: pv.Ledger) -> None:
    views = []
    for names in (NAMES, NAMES[:3], NAMES[:1]):
        label(ledger, cube(*[0] * len(names), queries=20), names)
        entries = ledger.published()[-2:]
        own = {"number": 0, "at": "", "digest": "", "holder": "", "run": 0}
        views.append([{**entry, **own} for entry in entries])
    assert views[0] == views[1] == views[2]


def test_a_voter_is_known_by_its_name_however_it_is_typed(ledger: pv.Ledger) -> None:
    label(ledger, cube(3, 0, 1, 0))
    again = label(ledger, cube(0, 2, 0, 0), ["WEST", " North", "e\u200bast", "south\u00a0"])
    assert again.sealed.spent.tolist() == [0, 5, 0, 1]
    assert [e["kind"] for e in ledger.published()].count("charge") == 1
    before = ledger.published()
    for name in ("north ", "NORTH", "no\u200brth", "\uff4eorth"):
        with refused("voter_ids"):
            label(ledger, cube(1, 1, 1, 1), ["north", name, "south", "west"])
    assert ledger.published() == before


def test_an_electorate_is_resumed_as_a_whole(ledger: pv.Ledger) -> None:
    arguments: dict[str, Any] = {
        "mechanism": MECHANISM,
        "labels": 3,
        "epsilon": 8.0,
        "delta": 1e-5,
        "ledger": ledger,
    }
    first = pv.Electorate(voters=4, voter_ids=NAMES, allowance=[9, 8, 7, 6], **arguments)
    first.answer(cube(0, 0, 0, 3))
    again = pv.Electorate(voters=4, voter_ids=NAMES[::-1], **arguments)
    assert again.sealed.spent.tolist() == [3, 0, 0, 0]
    assert again.allowance == (6, 7, 8, 9)
    # With fewer voters its own epsilon would be worked out for too small an electorate.
    with refused("voters"):
        pv.Electorate(voters=2, voter_ids=NAMES[:2], **arguments)


def test_an_allowance_stays(ledger: pv.Ledger) -> None:
    electorate(ledger, allowance=[3, 4, 5, 6]).answer(cube(1, 1, 1, 1))
    for other in (3, [3, 4, 5, 7]):
        with refused(None, pv.BudgetError):
            electorate(ledger, allowance=other)
    with refused("allowance"):
        electorate(ledger, allowance=[3, 4])


def test_no_name_is_written_down(tmp_path: Path) -> None:
    for names in (NAMES, NAMES[::-1]):
        label(tmp_path / "ledger.db", cube(1, 1, 1, 1), names)
    for file in tmp_path.iterdir():
        assert not any(name.encode() in file.read_bytes() for name in NAMES)


# -- clipped ballots ---


def test_clipped_ballots_are_resumed_from_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    for turn in range(3):
        ledger = pv.Ledger.open(path)
        sealed = electorate(ledger, allowance=3).answer(cube(3, 2, 0, 0)).sealed
        assert sealed.clipped.tolist() == [turn, turn, 0, 0]
        text = json.dumps(ledger.published())
        ledger.close()
    for word in ("clipped", "spent", "roll", "seal"):
        assert f'"{word}"' not in text


def test_what_is_clipped_shows_nowhere_unasked(ledger: pv.Ledger, tmp_path: Path) -> None:
    views = []
    for name, yes in (("quiet", 0), ("loud", 3)):
        door = electorate(ledger, dataset=name, allowance=4)
        release = door.answer(cube(yes, yes, yes, yes, queries=1234))
        release.save(tmp_path / "saved.npz")
        loaded = pv.Release.load(tmp_path / "saved.npz")
        assert not vars(loaded.sealed)
        text = "\n".join([release.statement(), repr((release, release.sealed, door))])
        lines = [
            line for line in text.splitlines() if "digest" not in line and "data set" not in line
        ]
        views.append([lines, loaded.facts().keys(), ledger.published()[-2].keys()])
    assert views[0] == views[1]  # whatever was clipped, what shows is the same
    assert release.sealed.clipped.tolist() == [1233] * 4


def test_a_sealed_roll_that_was_edited_is_found(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "ledger.db"
    label(path, cube(1, 1, 1, 1))
    with sqlite3.connect(path) as connection:
        connection.execute(
            "UPDATE sealed SET body=? WHERE number=2", (canonical({"roll": ["0" * 32] * 4}),)
        )
    with pytest.raises(pv.LedgerError, match="sealed part of entry 2"):
        label(path, cube(1, 1, 1, 1))


# -- the order of things ---------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", ["allowance", "worst-case"])
def test_the_charge_is_written_before_anything_is_drawn(ledger: pv.Ledger, guarantee: str) -> None:
    seen = []

    class Watched(pv.BinaryVoting):
        def draw(self, tally: Any, entropy: Any) -> Any:
            seen.append([e["kind"] for e in ledger.published()])
            return super().draw(tally, entropy)

    pv.label(
        np.zeros((2, 20, 3), bool),
        mechanism=Watched(sigma=5.0),
        epsilon=20.0,
        delta=1e-5,
        guarantee=guarantee,
        queries=2,
        ledger=ledger,
    )
    assert seen
    assert all("charge" in kinds for kinds in seen)


# -- after the charge ------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", ["allowance", "worst-case"])
@pytest.mark.parametrize(
    "error",
    [
        pv.InputError("votes file", "'s3://bucket/votes.parquet' cannot be reached"),
        MissingExtraError("reading Zarr needs the extra [files]"),
    ],
)
def test_whatever_keeps_votes_from_being_read_after_the_charge_says_that_it_is_charged(
    guarantee: str, error: Exception, tmp_path: Path
) -> None:
    """It raises what elsewhere means that nothing was charged."""

    ledger = pv.Ledger.open(tmp_path / "ledger.db")

    def rows(start: int, stop: int) -> Any:
        if any(entry["kind"] == "reserve" for entry in ledger.published()):
            raise error
        return cube(1, 1, 0, 0, queries=2)[start:stop]

    ballots = pv.Ballots((2, 4, 3), rows, missing=False)
    with refused(None, pv.ChargedError) as caught:
        label(ledger, ballots, None, guarantee=guarantee, queries=2)  # type: ignore[arg-type]
    assert caught.value.__cause__ is error
    assert caught.value.code == "closed"


# -- names ---


@pytest.mark.parametrize("names", [["7", "8"], [7, 8], np.array([7, 8]), np.array(["7", "8"])])
def test_a_name_is_the_same_however_it_is_typed(names: Any) -> None:
    assert voter_names(names, 2) == ["7", "8"]


BAD: dict[str, Any] = {
    "a set": {"a", "b"},
    "a dict": {"a": 0, "b": 1},
    "a generator": (name for name in "ab"),
    "a number": 2,
    "too few": ["a"],
    "twice": ["a", "a"],
    "twice as text and number": [1, "1"],
    "twice but for case and spaces": ["a", "A "],
    "empty": ["a", ""],
    "blank": [" ", "b"],
    "nothing": ["a", None],
    "a float": [1.0, 2.0],
    "not a number": [float("nan"), "b"],
    "a truth": [True, False],
    "bytes": [b"a", b"b"],
    "nested": [["a"], ["b"]],
}


@pytest.mark.parametrize("name", BAD)
def test_names_that_do_not_tell_voters_apart_are_refused(name: str) -> None:
    with refused("voter_ids"):
        voter_names(BAD[name], 2)


def test_a_batch_is_placed_by_name(ledger: pv.Ledger) -> None:
    door = electorate(ledger)
    door.answer(cube(3, 1), voter_ids=["west", "north"])
    assert door.sealed.spent.tolist() == [1, 0, 0, 3]
    for votes, names in ((cube(1, 1), ["north", "z"]), (cube(1, 1, 1), ["north", "east"])):
        with refused("voter_ids"):
            door.answer(votes, voter_ids=names)
    with refused("votes"):
        door.answer(cube(1, 1))
    with refused(None):
        electorate(pv.Ledger.in_memory(), voter_ids=None).answer(cube(1, 1, 1), voter_ids="abc")

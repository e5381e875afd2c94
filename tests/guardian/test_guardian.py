"""The door: allowances follow names over runs, and whose ballots were refused is on record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv
from privote.errors import MissingExtraError
from privote.guardian.allowance import seats, seats_in_batch
from privote.ledger.chain import canonical
from privote.votes import cube as room

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


def guardian(ledger: Any, **changes: Any) -> pv.Guardian:
    budget = pv.Budget(epsilon=8.0, delta=1e-5)
    return pv.Guardian(MECHANISM, budget, ledger, **{"voter_ids": NAMES, **changes})


@pytest.fixture
def ledger() -> pv.Ledger:
    return pv.Ledger.in_memory()


# -- names -----------------------------------------------------------------------------------------


def test_a_batch_may_lack_voters(ledger: pv.Ledger) -> None:
    whole = label(ledger, cube(1, 1, 1, 1))
    part = label(ledger, cube(2, 3), ["south", "east"])
    assert part.sealed.spent.tolist() == [3, 4]  # of the voters named, in their order
    assert part.sealed.allowance.tolist() == [whole.allowance] * 2
    assert (part.voters, part.epsilon) == (whole.voters, whole.epsilon) == (4, whole.epsilon)
    assert label(ledger, cube(0, 0, 0, 0)).sealed.spent.tolist() == [1, 4, 3, 1]
    (charge,) = (entry for entry in ledger.published() if entry["kind"] == "charge")
    contribution = MECHANISM.contribution_rdp(4, 3, charge["orders"])
    np.testing.assert_allclose(charge["rdp"], 2 * whole.allowance * contribution)


def test_the_worst_case_is_charged_for_every_query(ledger: pv.Ledger) -> None:
    release = label(ledger, cube(1, 0, 2, 3, queries=8), None, guarantee="worst-case")
    assert release.answered > 1
    (charge,) = (entry for entry in ledger.published() if entry["kind"] == "charge")
    each = MECHANISM.worst_case_rdp(4, 3, charge["orders"])
    np.testing.assert_allclose(charge["rdp"], release.answered * each)


def test_who_is_absent_leaves_no_trace(ledger: pv.Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_BLOCK_CELLS", 8 * 4 * 3)
    views = []
    for names in (NAMES, NAMES[:3], NAMES[:1]):
        label(ledger, cube(*[0] * len(names), queries=20), names)
        answers = [e for e in ledger.published() if e["kind"] == "answer"]
        views.append([{**e, "number": 0, "at": "", "digest": ""} for e in answers[-3:]])
        assert sum(e["queries"] for e in answers[-3:]) == 20
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


def test_rolls_from_before_names_were_folded_stay_valid(
    ledger: pv.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, now = ["North", "east", "EAST", "west"], pv.Ledger.name_voter
    with monkeypatch.context() as past:  # what an earlier version entered
        past.setattr(pv.Ledger, "name_voter", lambda self, name: (now(self, name)[1],) * 2)
        past.setattr("privote.guardian.allowance.folded", str)
        label(ledger, cube(1, 2, 3, 0), names)
    part = label(ledger, cube(1, 1, 1), ["west", "EAST", "North"])
    assert part.sealed.spent.tolist() == [1, 4, 2]
    assert label(ledger, cube(1), ["east"]).sealed.spent.tolist() == [3]
    assert [e["kind"] for e in ledger.published()].count("charge") == 1
    with pytest.raises(pv.InputError):  # such a roll knows a name as it was typed
        label(ledger, cube(1, 1), ["west", "NORTH"])


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
    guardian(ledger, allowance=[3, 4, 5, 6]).release(cube(1, 1, 1, 1))
    guardian(ledger, allowance=[6, 3], voter_ids=["west", "north"]).release(cube(1, 1))
    for other in (3, [3, 4, 5, 7]):
        with refused(None, pv.BudgetError):
            guardian(ledger, allowance=other).release(cube(1, 1, 1, 1))
    with refused("allowance"):
        guardian(ledger, allowance=[3, 4]).release(cube(1, 1, 1, 1))


def test_no_name_is_written_down(tmp_path: Path) -> None:
    for names in (NAMES, NAMES[::-1]):
        label(tmp_path / "ledger.db", cube(1, 1, 1, 1), names)
    for file in tmp_path.iterdir():
        assert not any(name.encode() in file.read_bytes() for name in NAMES)


# -- refused ballots -------------------------------------------------------------------------------


def test_refused_ballots_are_resumed_from_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    for turn in range(3):
        with guardian(path, allowance=3) as door:
            sealed = door.release(cube(3, 2, 0, 0)).sealed
        assert sealed.refused.tolist() == [turn, turn, 0, 0]
    text = json.dumps(pv.Ledger.open(path).published())
    for word in ("refused", "spent", "roll", "seal"):
        assert f'"{word}"' not in text


def test_what_is_refused_shows_nowhere_unasked(ledger: pv.Ledger, tmp_path: Path) -> None:
    views, digests = [], ("ledger", "dataset", "made", "drawn", "sha256", "digest")
    for name, yes in (("quiet", 0), ("loud", 3)):
        door = guardian(ledger, dataset=name, allowance=4)
        release = door.release(cube(yes, yes, yes, yes, queries=1234))
        release.save(tmp_path / "saved.npz")
        loaded = pv.Release.load(tmp_path / "saved.npz")
        assert not vars(loaded.sealed)
        views.append(
            [
                {n: v for n, v in loaded.facts().items() if n not in digests},
                release.summary(),
                repr((release, release.sealed, door.budget)),
                [e for e in ledger.published() if e["dataset"] == name][-1].keys(),
            ]
        )
    assert views[0] == views[1]  # whatever was refused, what shows is the same
    assert release.sealed.refused.tolist() == [1233] * 4


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


# -- whom it protects ------------------------------------------------------------------------------


def test_a_release_says_whom_it_protects(ledger: pv.Ledger, tmp_path: Path) -> None:
    person = "a person, with all their records"
    release = guardian(ledger, protects=person).release(cube(1, 0, 0, 0))
    assert release.protects == release.facts()["protects"] == person
    for text in (release.summary(), release.statement()):
        assert person in text
    release.save(tmp_path / "release.npz")
    assert pv.Release.load(tmp_path / "release.npz").protects == person
    assert [entry.get("protects") for entry in ledger.published()] == [None, *[person] * 3]


def test_a_data_set_keeps_to_who_is_protected(ledger: pv.Ledger) -> None:
    """Costs of releases that protect a person, and of others that protect a record, do not add."""
    label(ledger, cube(3, 0, 1, 0))
    entries = ledger.last_entry()
    with refused(None, pv.BudgetError):
        guardian(ledger, protects="a record").release(cube(2, 0, 0, 0))
    assert ledger.last_entry() == entries


@pytest.mark.parametrize("value", ["", "  ", "two\nlines", None, 3])
def test_whom_it_protects_is_one_line(ledger: pv.Ledger, value: Any) -> None:
    with refused("protects"):
        guardian(ledger, protects=value)
    assert ledger.published() == []


def test_what_is_charged_is_what_is_drawn(ledger: pv.Ledger) -> None:
    """Whatever somebody does to the guardian's attributes."""
    door = guardian(ledger)
    door.mechanism, door.guarantee = pv.BinaryVoting(sigma=0.1), "worst-case"
    door.budget = pv.Budget(epsilon=1e5, delta=0.1)
    release = door.release(cube(1, 1, 1, 1))
    plain = guardian(pv.Ledger.in_memory()).release(cube(1, 1, 1, 1))
    for name in ("mechanism", "guarantee", "budget", "delta", "allowance"):
        assert getattr(release, name) == getattr(plain, name)


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
    guarantee: str, error: Exception, ledger: pv.Ledger
) -> None:
    """It raises what elsewhere means that nothing was charged."""

    def rows(start: int, stop: int) -> Any:
        if any(entry["kind"] == "charge" for entry in ledger.published()):
            raise error
        return cube(1, 1, 0, 0, queries=2)[start:stop]

    ballots = pv.Ballots((2, 4, 3), rows, missing=False)
    with refused(None, pv.ChargedError) as caught:
        label(ledger, ballots, None, guarantee=guarantee, queries=2)  # type: ignore[arg-type]
    assert caught.value.__cause__ is error
    assert str(error) in str(caught.value)


# -- seats -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [["7", "8"], [7, 8], np.array([7, 8]), np.array(["7", "8"])])
def test_a_name_is_the_same_however_it_is_typed(names: Any) -> None:
    assert seats(names, 2) == {"7": 0, "8": 1}


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
        seats(BAD[name], 2)


def test_a_batch_is_placed_by_name() -> None:
    registered = seats("abc")
    assert seats_in_batch(registered, 3, None) is None
    found = seats_in_batch(registered, 2, ["c", "a"])
    assert found is not None
    assert found.tolist() == [2, 0]
    for voters, given_ids in ((2, ["a", "z"]), (3, ["a", "b"])):
        with refused("voter_ids"):
            seats_in_batch(registered, voters, given_ids)
    with refused("votes"):
        seats_in_batch(registered, 2, None)
    with refused(None):
        seats_in_batch(None, 3, "abc")

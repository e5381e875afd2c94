"""Drafts: released labels are durable before anything else happens to them."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv
from privote.errors import ChargedError, InputError
from privote.files import Draft, beside, complete
from privote.guardian import Accounts, Guardian
from privote.labelling import KeptReleases

RNG = np.random.default_rng(0)
VOTES = RNG.random((30, 20, 4)) < 0.2
ASKED = {"mechanism": pv.BinaryVoting(sigma=7.0), "epsilon": 8.0, "delta": 1e-5}


def broken(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("guarantee", ["auto", "allowance", "worst-case", "data-dependent"])
def test_what_could_not_be_saved_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarantee: str
) -> None:
    path = tmp_path / "labels.npz"
    asked = {**ASKED, "guarantee": guarantee, "output": path, "ledger": tmp_path / "a.ledger"}
    if guarantee == "auto":  # tallies
        asked["mechanism"] = "auto"
    if guarantee == "data-dependent":
        asked["queries"] = 20
    with monkeypatch.context() as patch:
        patch.setattr(pv.Release, "save", broken)
        with refused(None, ChargedError) as told:
            pv.label(VOTES, **asked)
    assert told.value.exit_code == 6
    assert told.value.draft == beside(path)
    assert not path.exists()
    with pytest.raises(InputError, match="resume=True"):  # what was paid for is not thrown away
        pv.label(VOTES, **asked)
    with refused("resume"):
        pv.label(VOTES, **{**asked, "epsilon": 9.0}, resume=True)
    monkeypatch.setattr(Guardian, "release", broken)  # nothing is drawn or charged again
    release = pv.label(None, **asked, resume=True)
    assert release.answered <= 30
    assert pv.Release.load(path).facts() == release.facts()
    assert not beside(path).exists()


def test_each_part_is_kept_before_the_next_is_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privote.votes.cube._BLOCK_CELLS", 20 * 4 * 8)  # eight queries a block
    path, ledger, kept, real = tmp_path / "labels.npz", tmp_path / "a.ledger", [], KeptReleases.keep

    def stop(self: KeptReleases, release: pv.Release) -> None:
        if len(kept) == 2:
            raise KeyboardInterrupt
        real(self, release)
        kept.append(release.labels)

    asked = {**ASKED, "guarantee": "allowance", "output": path, "ledger": ledger}
    with monkeypatch.context() as patch:
        patch.setattr(KeptReleases, "keep", stop)
        with pytest.raises(KeyboardInterrupt, match="the run did not finish"):
            pv.label(VOTES, **asked)
    before = spending(ledger)
    release = pv.label(VOTES, **asked, resume=True)
    np.testing.assert_array_equal(release.labels[:16], np.concatenate(kept))
    assert release.so_far == release.answered == 30
    # The third block was entered before its labels could be kept: it is not entered again.
    assert [number for number, _ in before] == [8, 8, 8]
    assert spending(ledger)[:3] == before
    assert [number for number, _ in spending(ledger)] == [8, 8, 8, 6]
    whole = pv.label(VOTES, **{**asked, "output": None, "ledger": tmp_path / "b.ledger"})
    assert spending(tmp_path / "b.ledger") == spending(ledger)
    assert (whole.epsilon, whole.allowance) == (release.epsilon, release.allowance)


def spending(ledger: Path) -> list[tuple[int, str]]:
    """Return how many queries each answer entered, and what it took: sealed."""
    with closing(sqlite3.connect(ledger)) as base:
        rows = base.execute(
            "select e.body, s.body from entries e left join sealed s using (number)"
        )
        entries = [(json.loads(body), hidden) for body, hidden in rows]
    assert sum(body["kind"] == "charge" for body, _ in entries) == 1
    return [(body["queries"], hidden) for body, hidden in entries if body["kind"] == "answer"]


def test_another_charge_is_not_resumed(tmp_path: Path) -> None:
    """A claim pays for what it was charged for, and for nothing that costs more."""
    orders, path = pv.DEFAULT_ORDERS, tmp_path / "a.draft"
    budget = pv.Budget(epsilon=8.0, delta=1e-5)
    with closing(pv.Ledger.open(tmp_path / "a.ledger")) as book:
        given: dict[str, Any] = {"ledger": book, "budget": budget}
        given |= {"dataset": "d", "stamp": {"guarantee": "test"}}
        with Draft(path, {}) as draft:
            Accounts(**given, draft=draft).charge(orders * 0.01)
        assert path.exists()
        with Draft(path, {}, resume=True) as draft:
            accounts = Accounts(**given, draft=draft)
            accounts.charge(orders * 0.01)
            with pytest.raises(InputError) as caught:
                accounts.charge(orders * 0.011)
            draft.keep(b"drawn")
            accounts.charge(orders * 0.02)  # the next thing to be paid for
            draft.finish()
        assert caught.value.argument == "resume"
        assert len([each for each in book.published() if each["kind"] == "charge"]) == 2


def test_a_place_that_cannot_be_written_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = tmp_path / "a.ledger"
    (tmp_path / "there.npz").write_text("mine")
    (tmp_path / "link.npz").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder.npz").mkdir()
    places = ("there.npz", "there.npz/a.npz", "link.npz", "folder.npz", "no/folder.npz", "a.csv")
    for name in places:
        with refused("output"):
            pv.label(VOTES, **ASKED, ledger=ledger, output=tmp_path / name)
    with refused("resume"):
        pv.label(VOTES, **ASKED, ledger=ledger, output=tmp_path / "a.npz", resume=True)
    monkeypatch.setattr(os, "posix_fallocate", broken)  # room is taken before the charge
    with refused("output"):
        pv.label(VOTES, **ASKED, ledger=ledger, output=tmp_path / "a.npz")
    assert {file.name for file in tmp_path.iterdir()} == {"there.npz", "link.npz", "folder.npz"}


def test_a_torn_end_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "a.draft"
    with Draft(path, {}) as draft:
        start = path.read_bytes()
        draft.keep(b"drawn")
    whole = path.read_bytes()
    frame = whole[len(start) :]
    parts = (frame[:3], frame[:-1], frame.replace(b"drawn", b"drown"), b"\0" * 100, b"part x y\n")
    for torn in (*parts, frame.replace(b" 5 ", b" 4 "), b"\n" + frame, b"[" * 100_000 + b"\n"):
        path.write_bytes(whole + torn)
        with Draft(path, {}, resume=True) as draft:
            assert (draft.read(), draft.read()) == (b"drawn", None)
            draft.keep(b"more\n")
        with Draft(path, {}, resume=True) as draft:
            assert (draft.read(), draft.read(), draft.read()) == (b"drawn", b"more\n", None)
            draft.finish()
        path.write_bytes(whole)


def test_one_part_takes_the_place_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.draft"
    with Draft(path, {}) as draft:
        draft.note(b"public")
        claim = draft.claim
        draft.keep(b"first")
        for step in range(3):
            draft.keep(b"%d" % step, instead=True)
            with refused("output"):
                Draft(path, {}, resume=True)
        monkeypatch.setattr(Path, "replace", broken)  # the disk is full, or the process dies here
        with pytest.raises(ChargedError):
            draft.keep(b"lost", instead=True)
    monkeypatch.undo()
    with Draft(path, {}, resume=True) as draft:
        assert draft.read() == b"public"
        assert draft.claim == claim
        assert (draft.read(), draft.read()) == (b"2", None)
        draft.finish()
    assert not list(tmp_path.iterdir())


def test_who_is_done_leaves_the_next_run_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.draft"
    with Draft(path, {}) as first:
        with refused("output"):  # one place is for one run
            Draft(path, {})
        first.keep(b"drawn")
        first.finish()
        following = Draft(path, {})
        following.keep(b"drawn")
    with following:
        assert Path(path).exists()
    with Draft(path, {}, resume=True) as draft:
        assert draft.read() == b"drawn"


@pytest.mark.parametrize("resume", [False, True])
def test_a_pipe_is_no_draft(tmp_path: Path, resume: bool) -> None:
    os.mkfifo(tmp_path / "a.draft")
    with refused("output"):
        Draft(tmp_path / "a.draft", {}, resume=resume)


def test_what_a_dead_process_left_is_used_again(tmp_path: Path) -> None:
    (tmp_path / ".a.part.txt").write_text("half of something that was much longer")
    with complete(tmp_path / "a.txt", force=False) as part:
        part.write_text("whole")
    assert (tmp_path / "a.txt").read_text() == "whole"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]
    with refused("output"), complete(tmp_path / "a.txt", force=False) as part:
        part.write_text("other")
    with complete(tmp_path / "a.txt", force=False) as part:  # the same is what was wanted
        part.write_text("whole")


@pytest.mark.parametrize(
    ("voters", "guarantee"),
    [("teachers", "allowance"), ("teachers", "worst-case"), ("neighbours", "allowance")],
)
def test_a_student_can_be_trained_on_labels_that_were_paid_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, voters: str, guarantee: str
) -> None:
    X, public = RNG.normal(size=(300, 3)), RNG.normal(size=(60, 3))
    Y = (X[:, :2] > 0.3).astype(np.int8)
    settings = {"voters": voters, "guarantee": guarantee, "n_teachers": 10, "epsilon": 8.0}
    # Each with a ledger: without one a budget is exclusive, and its allowance another.
    plain = pv.PATEClassifier(**settings)
    plain.fit(X, Y, public, ledger=tmp_path / "b.ledger", seed=3)
    path, ledger = tmp_path / "a.draft", tmp_path / "a.ledger"
    pate = pv.PATEClassifier(**settings)
    with monkeypatch.context() as patch:
        patch.setattr("privote.learning.pate.train_student", broken)
        with refused(None, ChargedError):
            pate.fit(X, Y, public, draft=path, ledger=ledger, seed=3)
    monkeypatch.setattr(Guardian, "release", broken)
    pate.fit(X, Y, public, draft=path, ledger=ledger, seed=3, resume=True)
    np.testing.assert_array_equal(pate.public_rows_, plain.public_rows_)
    np.testing.assert_array_equal(pate.release_.labels, plain.release_.labels)
    np.testing.assert_allclose(pate.predict_proba(public), plain.predict_proba(public))
    assert pate.privacy_["epsilon"] == plain.privacy_["epsilon"]
    assert pate.release_.forecast == plain.release_.forecast


@pytest.mark.parametrize("guarantee", ["allowance", "worst-case"])
@pytest.mark.parametrize("good", [0, 2])
def test_a_store_that_fails_in_the_middle_keeps_what_was_drawn(
    guarantee: str, good: int, store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zarr = pytest.importorskip("zarr")
    monkeypatch.setattr("privote.votes.cube._BLOCK_CELLS", 20 * 4 * 8)  # eight queries a block
    cube = zarr.create_array(tmp_path / "v.zarr", shape=VOTES.shape, chunks=(8, 20, 4), dtype=bool)
    cube[:] = VOTES
    url, chunks = store.put(tmp_path / "v.zarr"), []

    def fail(name: str) -> None:
        if "/c/" in name:
            chunks.append(name)
            if len(chunks) > 4 + good:  # four are read to be checked, before anything is charged
                raise ConnectionResetError(f"Connection reset: {url}?key=hunter2")

    store.fails = fail
    path, ledger = tmp_path / "labels.npz", tmp_path / "a.ledger"
    asked = ASKED | {"guarantee": guarantee, "mechanism": pv.BinaryVoting(sigma=30.0)}
    asked |= {"queries": 24, "seed": 1}
    with refused(None, ChargedError) as caught:
        pv.label(url, **asked, output=path, ledger=ledger)
    assert "Connection reset" in str(caught.value)
    assert str(caught.value).count("charged") == 1
    assert "hunter2" not in str(caught.value)
    store.fails = lambda name: None
    whole = pv.label(VOTES, **asked, ledger=tmp_path / "b.ledger")
    with closing(pv.Ledger.open(ledger)) as a, closing(pv.Ledger.open(tmp_path / "b.ledger")) as b:
        assert a.standing() == b.standing()
    assert caught.value.draft == beside(path)
    kept = pv.label(url, **asked, output=path, ledger=ledger, resume=True)
    np.testing.assert_array_equal(kept.labels[: 8 * good], whole.labels[: 8 * good])
    assert kept.answered == 24
    with closing(pv.Ledger.open(ledger)) as a, closing(pv.Ledger.open(tmp_path / "b.ledger")) as b:
        assert a.standing() == b.standing()
        charges = [entry for entry in a.published() if entry["kind"] == "charge"]
        assert len(charges) == 1
    assert not beside(path).exists()


@pytest.mark.parametrize("mechanism", ["auto", pv.BinaryVoting(sigma=30.0)], ids=str)
def test_without_a_ledger_kept_parts_took_what_they_took_whatever_the_votes_are_now(
    mechanism: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a voter whose first ballots are edited away would have its allowance twice."""
    votes = np.ones((40, 20, 4), bool)
    monkeypatch.setattr("privote.votes.cube._BLOCK_CELLS", 20 * 4 * 8)  # eight queries a block
    path, blocks = tmp_path / "labels.npz", []
    asked = {**ASKED, "mechanism": mechanism, "guarantee": "allowance", "seed": 1, "output": path}
    kind = pv.TallyVoting if mechanism == "auto" else pv.BinaryVoting
    draw = kind.draw

    def dies(self: Any, tally: Any, entropy: Any) -> Any:
        blocks.append(tally)
        if len(blocks) == 3:
            raise OSError("killed")
        return draw(self, tally, entropy)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "draw", dies)
        with pytest.raises(ChargedError):
            pv.label(votes, **asked)
    assert beside(path).stat().st_mode & 0o077 == 0
    edited = votes.copy()
    edited[:16] = False  # what was released of them came from the first votes
    release = pv.label(edited, **asked, resume=True)
    assert release.answered == 40
    again = pv.label(votes, **{**asked, "output": None})
    np.testing.assert_array_equal(release.sealed.spent, again.sealed.spent)
    assert (release.sealed.spent <= release.allowance).all()

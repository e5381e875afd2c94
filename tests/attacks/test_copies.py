"""Copies of drafts: one charge pays for one draw, whichever copy of a draft is resumed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from privote.ledger.records import DIFFERS, RELEASED
from tests.attacks.conftest import (
    Killed,
    Outcome,
    accepted,
    check,
    differing,
    dying_at,
    full,
    write_poll,
)

import privote as pv
from privote.errors import ChargedError, DrawnError
from privote.files import Draft
from privote.learning import PrivateClassifier, save_student

RNG = np.random.default_rng(0)
VOTES = RNG.random((12, 20, 3)) < 0.3
X = RNG.normal(size=(60, 3))
Y = (X[:, :2] > 0.3).astype(np.int8)
PUBLIC = RNG.normal(size=(16, 3))
QUERIES = {"allowance": None, "worst-case": None, "data-dependent": 6}
Run = Callable[..., Any]

pytestmark = pytest.mark.filterwarnings("ignore::privote.PrivoteWarning")


def _label(guarantee: str) -> Run:
    asked: dict[str, Any] = {"mechanism": pv.BinaryVoting(sigma=7.0), "guarantee": guarantee}
    asked |= {"epsilon": 8.0, "delta": 1e-5, "queries": QUERIES[guarantee], "force": True}

    def run(folder: Path, *, votes: Any = VOTES, **more: Any) -> Any:
        more = {"ledger": folder / "a.ledger", "output": folder / "out.npz", **more}
        return pv.label(votes, **asked, **more).labels

    return run


def _poll(folder: Path, **more: Any) -> Any:
    asked = {"epsilon": 1.0, "delta": 1e-6, "seats": 1, "shares": True, "people": "club"}
    more |= {"ledger": folder / "a.ledger", "output": folder / "out.npz.json", "force": True}
    made = pv.poll(write_poll(folder), **asked, **more)
    assert made.shares is not None
    return np.array(sorted(share.count for share in made.shares))


def _train(method: str, **settings: Any) -> Run:
    def run(folder: Path, **more: Any) -> Any:
        more = {"ledger": folder / "a.ledger", "draft": folder / "draft", **more}
        model = PrivateClassifier(method, 8.0, 1e-5, settings=settings).fit(X, Y, PUBLIC, **more)
        found = model.privacy_
        save_student(folder / "out.student", model.student_, label_names=["a", "b"], privacy=found)
        facts = {**model.promise_.facts(), "promise": model.promise_.facts()}
        (folder / "out.json").write_text(json.dumps(facts, default=str))
        (folder / "out.txt").write_text(model.promise_.statement() + "\n")
        (folder / "draft").unlink()
        return getattr(model.promise_, "labels", np.array(found["drawn"]))

    return run


TEACHERS = {"n_teachers": 20, "queries": 12, "mechanism": pv.BinaryVoting(sigma=7.0)}
CASES: dict[str, tuple[Run, str]] = {
    **{f"label-{each}": (_label(each), ".out.npz.draft") for each in QUERIES},
    "poll": (_poll, ".out.npz.json.draft"),
    "gradients": (_train("gradients", steps=4), "draft"),
    "moments": (_train("moments"), "draft"),
    "neighbours": (_train("neighbours"), "draft"),
    "teachers": (_train("teachers", **TEACHERS), "draft"),
    "dpsgd": (_train("dpsgd", steps=4, sample_rate=0.5), "draft"),
}
LABELS = ["label-allowance", "label-worst-case"]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep often: a few queries a block, and every noisy step."""
    monkeypatch.setattr("privote.votes.cube._BLOCK_CELLS", 20 * 3 * 4)
    for pause in ("_PAUSE", "_SELDOM"):
        monkeypatch.setattr(f"privote.learning.direct.training.{pause}", 0.0)


def _stages(case: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the draft after each write of a run that dies before it records what was drawn."""
    run, name = CASES[case]
    copies, write, folder = list[bytes](), Draft._write, folder / "first"
    folder.mkdir()

    def copying(self: Draft, *parts: Any, **how: Any) -> None:
        write(self, *parts, **how)
        copies.append(self.path.read_bytes())

    with monkeypatch.context() as patch:
        patch.setattr(Draft, "_write", copying)
        patch.setattr(pv.Ledger, "append", dying_at("outcome"))
        with pytest.raises(Killed):
            run(folder)
    assert (folder / name).read_bytes() == copies[-1]
    return copies


def _tried(run: Run, folder: Path, name: str, copy: bytes, **how: Any) -> Any:
    """Resume a copy; return what came of it, None where it is refused."""
    (folder / name).write_bytes(copy)
    with suppress(DrawnError):
        return run(folder, resume=True, **how)


@pytest.mark.parametrize("case", CASES)
def test_copies_of_a_draft_are_drawn_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome, case: str
) -> None:
    if case == "dpsgd":
        pytest.importorskip("opacus")
    run, name = CASES[case]
    copies = _stages(case, tmp_path, monkeypatch)
    through = tried = 0
    places = [*range(len(copies))]
    for place in places if full() else {0, len(copies) // 2, len(copies) - 1}:
        # A copy of an earlier stage goes first; then the draft itself, the copy again, another.
        folder = tmp_path / f"{place}"
        shutil.copytree(tmp_path / "first", folder)
        order = [copies[place], copies[-1], copies[place], copies[0]]
        found = [_tried(run, folder, name, copy) for copy in order]
        if case.startswith("label"):
            found.append(_tried(run, folder, name, copies[-1], votes=None))
        made = [each for each in found if each is not None]
        assert made  # whoever comes first gets it
        through += any(not np.array_equal(made[0], each) for each in made)
        tried += len(found)
    outcome(f"copies of a draft, resumed one after the other: {case}", tried, through)


@pytest.mark.parametrize("case", LABELS)
def test_a_copy_that_was_finished_without_votes_ends_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome, case: str
) -> None:
    (run, name), found = CASES[case], []
    copies = _stages(case, tmp_path, monkeypatch)
    parts = [copy for copy in copies if copy.count(b"\npart ")]
    for place, copy in enumerate(parts[:-1]):
        folder = tmp_path / f"{place}"
        shutil.copytree(tmp_path / "first", folder)
        one = _tried(run, folder, name, copy, votes=None)
        found.append(one is not None and _tried(run, folder, name, copies[0]) is not None)
    outcome.of(f"drawn anew after a copy was finished: {case}", found)


@pytest.mark.parametrize("case", [*LABELS, "gradients", "moments", "teachers"])
def test_what_a_ledger_paid_for_is_not_resumed_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome, case: str
) -> None:
    (run, name), found = CASES[case], []
    for copy in _stages(case, tmp_path, monkeypatch):
        if b"\ncharge 0 " in copy:
            (tmp_path / name).write_bytes(copy)
            found.append(accepted(ChargedError, run, tmp_path, resume=True, ledger=None))
    outcome.of(f"resumed without the ledger that was charged: {case}", found)


# -- what a ledger says of polls and trainings -----------------------------------------------------


@pytest.mark.parametrize("case", ["poll", "gradients", "moments", "teachers"])
def test_statements_of_polls_and_trainings_are_checked(
    tmp_path: Path, outcome: Outcome, case: str
) -> None:
    run, ledger = CASES[case][0], tmp_path / "a.ledger"
    run(tmp_path)
    file = tmp_path / ("out.npz.json" if case == "poll" else "out.json")
    files = [file] if case == "poll" else [file, tmp_path / "out.txt", tmp_path / "out.student"]
    for each in files:
        assert check(each, ledger)["status"] == RELEASED, (each, check(each, ledger))
    facts, found = json.loads(file.read_text()), []
    forged = {"epsilon": 0.01, "delta": 1e-9, "simulated": True, "winners": ["Cy"]}
    forged |= {"noise_multiplier": 99.0, "voters": 5, "shares": [], "drawn": ["0" * 64]}
    for name in forged.keys() & facts.keys():
        false = {**facts, name: forged[name]}
        if "promise" in false:
            false["promise"] = {**false["promise"], name: forged[name]}
        file.write_text(json.dumps(false))
        said = check(file, ledger)
        assert said["status"] == DIFFERS, said
        found.append(name not in differing(said))
    outcome.of(f"a forged fact that a ledger vouches for: {case}", found)


def test_weights_that_were_changed(tmp_path: Path) -> None:
    model = PrivateClassifier("gradients", 8.0, 1e-5, settings={"steps": 3})
    model.fit(X, Y, PUBLIC, ledger=tmp_path / "a.ledger")
    model.student_.coef_ = model.student_.coef_ + 1e-9
    save_student(
        tmp_path / "out.student", model.student_, label_names=["a", "b"], privacy=model.privacy_
    )
    assert differing(check(tmp_path / "out.student", tmp_path / "a.ledger")) == {"weights"}

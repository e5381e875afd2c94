"""Voters of every kind answer alike, and what is no answer is refused."""

from __future__ import annotations

import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.refusals import refused

import privote as pv
from privote.errors import InputError
from privote.learning import LinearStudent, save_student
from privote.learning.collect import (
    Grid,
    Voter,
    _answer,
    _loaded,
    _Task,
    check_answer,
    open_rows,
    open_voters,
)
from privote.votes.arrays import Folder

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3))
Y = (X @ RNG.normal(size=(3, 2)) > 0.2).astype(int)


def forest(seed: int = 0) -> RandomForestClassifier:
    return RandomForestClassifier(3, random_state=seed).fit(X, Y)


def saved(folder: Path, model: Any, name: str = "north.joblib") -> tuple[Voter, ...]:
    joblib.dump(model, folder / name, compress=3)
    return open_voters([folder / name])


def ask(
    voters: tuple[Voter, ...], place: int, rows: Any, bar: Any = None, labels: Any = None
) -> Any:
    """Ask one of the voters as a worker does, which gets them by pickle."""
    voters = pickle.loads(pickle.dumps(voters)) if voters[place].place else voters
    model = _loaded(voters)[place] if voters[place].place else voters[place].function
    grid = Grid(queries=len(X), voters=1, labels=2, chunk=len(X), group=1)
    task = _Task(Folder("v.zarr"), "", grid, (0, 0), voters, rows, labels, bar)
    return _answer(model, voters[place].name, task)


# -- what models say ---------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".joblib", ".pkl", ".pickle"])
def test_a_saved_model_predicts_or_gives_probabilities(suffix: str, tmp_path: Path) -> None:
    model = forest()
    voters = saved(tmp_path, model, f"north{suffix}")
    assert [voter.name for voter in voters] == ["north"]
    assert np.array_equal(ask(voters, 0, X), model.predict(X))
    chance = np.stack([part[:, 1] for part in model.predict_proba(X)], axis=1)
    assert np.array_equal(ask(voters, 0, X, 0.5), chance)


def test_students_know_their_labels(tmp_path: Path) -> None:
    student = LinearStudent().fit(X, Y)
    for name in ("a", "b"):
        save_student(tmp_path / f"{name}.student", student, label_names=["flu", "cold"])
    voters, output = open_voters(tmp_path), tmp_path / "v.zarr"
    assert np.array_equal(ask(voters, 1, X), student.predict(X))
    assert np.array_equal(ask(voters, 1, X, 0.5), student.predict_proba(X))
    assert pv.collect_votes(tmp_path, X, output).label_names == ("flu", "cold")
    save_student(tmp_path / "b.student", student, label_names=["cold", "flu"])
    with pytest.raises(pv.BallotError, match=r"'b' \(b\.student\)"):
        pv.collect_votes(tmp_path, X, output, force=True)


def test_rows_of_a_table_come_as_a_model_learnt_them(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame.assign(note="words").to_csv(tmp_path / "rows.csv", index=False)
    table = open_rows(tmp_path / "rows.csv").part(0, len(X))
    learner = make_pipeline(StandardScaler(), MultiOutputClassifier(LogisticRegression()))
    named = learner.fit(frame[["c", "a"]], Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # scikit-learn warns of rows without names
        votes = ask(saved(tmp_path, named), 0, table)
    assert np.array_equal(votes, named.predict(frame[["c", "a"]]))
    student = LinearStudent().fit(frame[["c", "a"]].to_numpy(), Y)
    names: dict[str, Any] = {"label_names": ["x", "y"], "feature_names": ["c", "a"]}
    save_student(tmp_path / "s.student", student, **names)
    votes = ask(open_voters(tmp_path / "s.student"), 0, table)
    assert np.array_equal(votes, student.predict(frame[["c", "a"]].to_numpy()))
    with pytest.raises(InputError, match="'note'"):
        ask(saved(tmp_path, forest()), 0, table)


def test_a_function_gets_the_voter_and_rows(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("a,w\n1,x\n2,y\n")
    rows = open_rows(tmp_path / "r.csv")
    seen: list[Any] = []
    voters = open_voters(lambda voter, part: seen.append((voter, part)), ("anna", "bob"))
    ask(voters, 1, rows.part(0, 2))
    ask(voters, 0, X)
    assert seen[0][0] == "bob"
    assert seen[0][1]["a"].tolist() == [1.0, 2.0]
    assert seen[0][1]["w"].tolist() == ["x", "y"]
    assert seen[1][1] is X


def test_a_function_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ask_by_name.py").write_text("def vote(voter, rows):\n    return rows\nn = 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")  # so that what is added is gone afterwards
    voters = open_voters("ask_by_name:vote", ["a"])
    assert ask(voters, 0, X) is X
    assert voters[0].digest.startswith("ask_by_name:vote ")
    (tmp_path / "ask_by_name.py").write_text("def vote(voter, rows):\n    return 1 - rows\n")
    assert open_voters("ask_by_name:vote", ["a"])[0].digest != voters[0].digest
    for name in ("ask_by_name:n", "ask_by_name:nobody", "no_such_module:f"):
        with refused("voters"):
            open_voters(name, ["a"])


# -- who they are ------------------------------------------------------------------------------


def test_a_folder_in_the_order_of_names(tmp_path: Path) -> None:
    for name in ("site 10.joblib", "site 2.joblib", "notes.txt"):
        (tmp_path / name).write_bytes(b"")

    def names(*given: Any) -> list[str]:
        return [voter.name for voter in open_voters(*given)]

    assert names(tmp_path) == ["site 2", "site 10"]
    assert names([tmp_path / "site 10.joblib", tmp_path])[0] == "site 10"
    assert names(tmp_path, ["a", "b"]) == ["a", "b"]
    with refused("names"):
        names(os.fspath(tmp_path), ["a"])


def test_a_model_that_changed_or_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    voters = saved(tmp_path, forest())
    joblib.dump(forest(1), tmp_path / "north.joblib")
    with pytest.raises(InputError, match=r"'north' \(north\.joblib\)"):
        ask(voters, 0, X)
    (tmp_path / "north.pkl").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"'north' \(north\.pkl\)"):
        ask(open_voters(tmp_path / "north.pkl"), 0, X)


@pytest.mark.parametrize(
    ("argument", "voters"),
    [
        ("names", lambda voter, rows: rows),
        ("voters", []),
        ("voters", "model.onnx"),
        ("voters", "nobody.joblib"),
        ("voters", "."),
        ("voters", {"a": 1}),
        ("voters", [1, "a.joblib"]),
        ("voters", forest()),
    ],
)
def test_refused(
    argument: str, voters: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with refused(argument):
        open_voters(voters)


# -- what is an answer -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "labels"),
    [
        (np.array([[1, 0], [0, 1]]), 2),
        (np.array([[True, False], [False, True]]), 2),
        ([[1.0, 0.0], [0.0, 1.0]], 2),
        (np.array([1, 0]), 1),
    ],
)
def test_votes_in_every_type(said: Any, labels: int) -> None:
    found = check_answer(said, 0, 2, labels, None)
    assert found.dtype == bool
    assert np.array_equal(found, np.asarray(said).reshape(2, labels) == 1)


@pytest.mark.parametrize(
    ("said", "bar"),
    [
        (np.zeros((2, 3)), None),
        (np.zeros(2), None),
        (np.array([["a", "b"]] * 2), None),
        (None, None),
        (np.array([[0, 1], [1, -1]]), None),
        (np.array([[0, np.nan], [1, 1]]), None),
        (np.array([[0, np.nan], [1, 1]]), 0.5),
        (np.array([[0, 1.5], [1, 1]]), 0.5),
    ],
)
def test_what_is_no_answer_is_refused(said: Any, bar: Any) -> None:
    with refused(kind=pv.BallotError):
        check_answer(said, 10, 2, 2, bar)


def test_what_a_model_answered_is_in_no_message() -> None:
    with refused(kind=pv.BallotError) as caught:
        check_answer(np.array([[0, 0.6875], [1, 1]]), 10, 2, 2, None)
    assert "0.6875" not in str(caught.value)
    assert "query 10, label 1" in str(caught.value)
    assert caught.value.sealed == "it is 0.6875"

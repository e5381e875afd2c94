"""Votes are collected once each, whoever does the work and whatever dies meanwhile."""

from __future__ import annotations

import os
import pickle
import tracemalloc
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import joblib
import numpy as np
import pandas as pd
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
from privote.learning import collect as collect_room
from privote.learning.collect import open_rows, open_voters
from privote.learning.workers import WorkerLostError

zarr = pytest.importorskip("zarr")

ROWS, LABELS = 50, 3
NAMES = ("anna", "bob", "cleo", "dan", "eve")


def public() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(ROWS, 4))


def vote(voter: str, rows: Any) -> np.ndarray:
    """Say something that depends on the voter and on the rows, and on nothing else."""
    shift = NAMES.index(voter) / 5
    return np.stack([np.sin(17 * rows[:, label] + shift) > 0.3 for label in range(LABELS)], axis=1)


def truth() -> np.ndarray:
    return np.stack([vote(name, public()) for name in NAMES], axis=1)


def collect(output: Any, voters: Any = vote, rows: Any = None, **how: Any) -> Any:
    given = {"labels": ["x", "y", "z"], "names": NAMES, "chunk": 16, **how}
    return pv.collect_votes(voters, public() if rows is None else rows, output, **given)


def read(output: Any) -> np.ndarray:
    return pv.Ballots.of(output).to_array()


def held(folder: Path) -> dict[str, bytes]:
    """Return every chunk of a Zarr array."""
    files = (file for file in folder.rglob("c/*/*/0"))
    return {f.relative_to(folder).as_posix(): f.read_bytes() for f in files}


def everything(folder: Path) -> dict[str, bytes]:
    """Return every file of a Zarr array."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return {f.relative_to(folder).as_posix(): f.read_bytes() for f in files}


# -- what comes out ----------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two voters share a chunk, and the last have one of its own."""
    monkeypatch.setattr(collect_room, "_GROUP", 2)


@pytest.mark.parametrize("chunk", [1, 7, 16, 50, 1000, None])
def test_votes_are_what_voters_said(chunk: int | None, tmp_path: Path) -> None:
    output, told = tmp_path / "votes.zarr", []
    found = collect(output, chunk=chunk, progress=lambda *at: told.append(at))
    assert told == [(done, found.chunks) for done in range(1, found.chunks + 1)]
    assert (found.queries, found.voters, found.labels) == (ROWS, len(NAMES), LABELS)
    ballots = pv.Ballots.of(output)
    assert np.array_equal(ballots.to_array(), truth())
    assert ballots.voter_names == NAMES
    assert ballots.label_names == ("x", "y", "z")
    assert {file.name for file in tmp_path.iterdir()} == {output.name}
    assert np.array_equal(zarr.open_array(output, mode="r")[:], truth())


@pytest.mark.parametrize("bar", [0.4, [0.2, 0.4, 0.6]])
def test_probabilities_become_votes(bar: Any, tmp_path: Path) -> None:
    def chance(voter: str, rows: Any) -> Any:
        """Some are the very bar, which is a yes."""
        return (np.sin(17 * rows[:, :LABELS] + NAMES.index(voter)) / 2 + 0.5).round(1)

    collect(tmp_path / "v.zarr", chance, threshold=bar)
    said = np.stack([chance(name, public()) for name in NAMES], axis=1)
    assert np.array_equal(read(tmp_path / "v.zarr"), said >= np.array(bar))


@pytest.mark.parametrize("scheme", ["path", "file", "failing"])
def test_what_is_finished_stays_until_told_otherwise(
    scheme: str, store: Any, tmp_path: Path
) -> None:
    folder = {"path": tmp_path, "file": f"file://{tmp_path}", "failing": store.url}[scheme]
    place = f"{folder}/votes.zarr"
    collect(place)
    with refused("output"):
        collect(place)
    assert collect(place, resume=True).done_before == 12
    assert np.array_equal(read(place), truth())
    collect(place, lambda voter, rows: ~vote(voter, rows), force=True)
    assert np.array_equal(read(place), ~truth())


# -- who does the work -------------------------------------------------------------------------

_MODULE = """
import os, signal
import numpy as np
NAMES = ("anna", "bob", "cleo", "dan", "eve")
def dies_once(voter, rows):
    if voter == "dan":
        try:
            os.close(os.open({mark!r}, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    shift = NAMES.index(voter) / 5
    return np.stack([np.sin(17 * rows[:, k] + shift) > 0.3 for k in range(3)], axis=1)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder, where modules are found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")  # so that what is added is gone afterwards
    return tmp_path


@pytest.mark.parametrize("backend", ["loky", "dask"])
def test_a_worker_that_is_killed_changes_no_vote(
    backend: str, here: Path, request: pytest.FixtureRequest
) -> None:
    """Dask asks another one; elsewhere the run stops, and is resumed."""
    if backend == "dask":
        client = pytest.importorskip("distributed").Client(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        )
        request.addfinalizer(client.close)
    module = f"voters_{uuid.uuid4().hex}"
    (here / f"{module}.py").write_text(_MODULE.format(mark=str(here / "mark")))
    np.save(here / "rows.npy", public())
    collect(here / "one.zarr", rows=here / "rows.npy")
    given = here / "two.zarr", f"{module}:dies_once", here / "rows.npy"
    how: dict[str, Any] = {"backend": backend, "workers": 2}
    if backend == "dask":
        collect(*given, **how)
    else:
        with pytest.raises(WorkerLostError):
            collect(*given, **how)
        with refused(kind=pv.BallotError):
            read(here / "two.zarr")
        collect(*given, **how, resume=(here / "two.zarr").exists())
    assert (here / "mark").exists()
    assert held(here / "two.zarr") == held(here / "one.zarr")
    assert np.array_equal(read(here / "two.zarr"), truth())


# -- what dies, and goes on --------------------------------------------------------------------


def test_a_chunk_that_was_lost_after_all_is_made_again(tmp_path: Path) -> None:
    """Also where the voters answer otherwise than they did; one that is damaged cannot be read."""
    output, said = tmp_path / "v.zarr", [False]

    def moody(voter: str, rows: Any) -> Any:
        return vote(voter, rows) ^ said[0]

    collect(output, moody)
    before, chunk = everything(output), output / "c/1/1/0"
    for damage in (b"", chunk.read_bytes()[:-1], bytes([chunk.read_bytes()[0] ^ 4])):
        chunk.write_bytes(damage)
        with refused(kind=pv.BallotError):
            read(output)
        chunk.unlink()
        with refused(kind=pv.BallotError):
            read(output)
        assert collect(output, moody, resume=True).done_before == 11
        assert everything(output) == before
    (output / "c/2/0/0").unlink()
    said[0] = True
    assert collect(output, moody, resume=True).done_before == 11
    assert (read(output)[32:48, :2] != truth()[32:48, :2]).all()


def test_a_run_whose_place_another_one_took_writes_no_more(tmp_path: Path) -> None:
    output = tmp_path / "v.zarr"

    def take(done: int, _: int) -> None:
        if done == 1:
            collect(output, lambda voter, rows: ~vote(voter, rows), force=True)

    with refused("output"):
        collect(output, progress=take)
    assert np.array_equal(read(output), ~truth())


# -- what changed meanwhile --------------------------------------------------------------------


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """Begin to collect, and break off."""

    def interrupt(done: int, _: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect(tmp_path / "v.zarr", progress=interrupt)
    return tmp_path / "v.zarr"


@pytest.mark.parametrize(
    ("argument", "how"),
    [
        ("labels", {"labels": ["x", "y", "w"]}),
        ("threshold", {"threshold": 0.5}),
        ("chunk", {"chunk": 8}),
        ("voters", {"names": ["a", "b", "c", "d", "e"]}),
        ("voters", {"voters": lambda voter, rows: vote(voter, rows)}),
        ("voters", {"names": NAMES[:4]}),
        ("rows", {"rows": public() + 1}),
        ("resume", {"force": True}),
        ("output", {"resume": False}),
    ],
)
def test_other_settings_are_refused(argument: str, how: dict[str, Any], begun: Path) -> None:
    before = held(begun)
    with refused(argument):
        collect(begun, **{"resume": True, **how})
    assert held(begun) == before


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "bar", "sealed"),
    [
        (lambda said: said[:-1], None, False),
        (lambda said: said[:, 0], None, False),
        (lambda said: said.astype(str), None, False),
        (lambda said: None, None, False),
        (lambda said: said.missing, None, False),
        (lambda said: said * -1, None, True),
        (lambda said: said * np.nan, None, True),
        (lambda said: said * np.nan, 0.5, True),
        (lambda said: said * 1.6875, 0.5, True),
        (lambda said: said * 0.6875, None, True),
    ],
)
def test_a_voter_that_errs_is_named_and_what_it_said_is_not(
    wrong: Callable[[Any], Any], bar: Any, sealed: bool, tmp_path: Path
) -> None:
    def vote_wrongly(voter: str, rows: Any) -> Any:
        said = vote(voter, rows)
        late = np.array_equal(rows, public()[16:32])
        return wrong(said) if voter == "cleo" and late else said

    output = tmp_path / "v.zarr"
    with pytest.raises(pv.BallotError, match="'cleo' on queries 16 to 31") as caught:
        collect(output, vote_wrongly, threshold=bar)
    assert (caught.value.sealed is not None) == sealed
    assert "6875" not in str(caught.value)
    assert len(held(output)) == 5
    with refused(kind=pv.BallotError):
        read(output)
    collect(output, force=True)
    assert np.array_equal(read(output), truth())


BAD: dict[str, tuple[Any, ...]] = {
    "labels": (None, "abc", 0),
    "threshold": (2, [0.1, 0.2]),
    "chunk": (0,),
    "backend": ("spark",),
    "output": ("v.npy", "s3://me:hunter2@bucket/v.zarr"),
    "rows": ("s3://me:hunter2@bucket/rows.zarr", "s3://bucket/rows.npy"),
    "voters": ("s3://bucket/north.joblib",),
    "names": (None,),
}


@pytest.mark.parametrize(
    ("argument", "how"),
    [
        *((argument, {argument: bad}) for argument in BAD for bad in BAD[argument]),
        *((None, {argument: ["a", "a"]}) for argument in ("labels", "names")),
        *(
            ("voters", {"voters": bad, "names": None})
            for bad in (3, [], "model.onnx", "nobody.joblib", ".", {"a": 1}, [1, "a.joblib"])
        ),
    ],
)
def test_refused(argument: str | None, how: dict[str, Any], here: Path) -> None:
    with refused(argument):
        collect(**{"output": here / "v.zarr", **how})
    assert not [*here.iterdir()]


def test_places_that_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file.zarr").write_text("x")
    with refused("output"):
        collect(tmp_path / "file.zarr", force=True)
    for name in ("precious", ".zattrs"):
        (tmp_path / name / "mine.zarr").mkdir(parents=True)
        (tmp_path / name / "mine.zarr" / name).write_text("x")
        for how in ({"force": True}, {"resume": True}):
            with refused("output"):
                collect(tmp_path / name / "mine.zarr", **how)
        assert (tmp_path / name / "mine.zarr" / name).read_text() == "x"
    zarr.create_array(tmp_path / "v.zarr", shape=(1,), dtype=bool).attrs["privote"] = {"format": 99}
    with pytest.raises(pv.InputError, match=r"format 99,.* format 3"):
        collect(tmp_path / "v.zarr", resume=True)


@pytest.mark.parametrize("kind", [".npy", ".npz", ".zarr"])
def test_rows_that_change_meanwhile_are_said(kind: str, tmp_path: Path) -> None:
    """What was asked about other rows than the attributes say is no votes."""
    file = write(kind, tmp_path, public())

    def change(voter: str, rows: Any) -> Any:
        if voter == "eve":
            write(kind, tmp_path, public() + 1)
        return vote(voter, rows)

    with refused("rows"):
        collect(tmp_path / "v.zarr", change, file)
    with refused(kind=pv.BallotError):
        read(tmp_path / "v.zarr")


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    rows = np.lib.format.open_memmap(tmp_path / "rows.npy", "w+", np.float32, (600_000, 32))
    rows[::1000] = 1
    rows.flush()
    tracemalloc.start()
    collect(tmp_path / "v.zarr", rows=tmp_path / "rows.npy", chunk=None)
    most = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    assert most < 40  # MiB; the rows are 73, and a chunk of them at most 16


# -- rows --------------------------------------------------------------------------------------


def write(kind: str, folder: Path, array: np.ndarray) -> Path:
    path = folder / f"rows{kind}"
    table = pd.DataFrame(array, columns=list("abcd"))
    if kind == ".npy":
        np.save(path, array)
    elif kind == ".npz":
        np.savez(path, X=array)
    elif kind == ".zarr":
        zarr.create_array(path, data=array, chunks=(4, 3), overwrite=True)
    elif kind == ".parquet":
        pytest.importorskip("pyarrow")
        table.to_parquet(path, row_group_size=5)
    else:
        table.to_csv(path, sep="\t" if kind == ".tsv" else ",", index=False)
    return path


def parts(path: Any, chunk: int) -> list[Any]:
    rows = open_rows(path)
    assert rows.count == ROWS
    some = [rows.part(at, min(at + chunk, ROWS)) for at in range(0, ROWS, chunk)]
    return [pickle.loads(pickle.dumps(part)) for part in some]  # as a worker gets them


@pytest.mark.parametrize("chunk", [1, 7, ROWS])
@pytest.mark.parametrize("kind", [".npy", ".npz", ".zarr", ".csv", ".tsv", ".parquet"])
def test_the_same_rows_from_every_format(kind: str, chunk: int, tmp_path: Path) -> None:
    found, model = parts(write(kind, tmp_path, public()), chunk), SimpleNamespace()
    if kind not in (".npy", ".npz", ".zarr"):
        found = [part.for_model(model) for part in found]
    # A long decimal of a table is read to 15 digits, as any type of its column would have it.
    np.testing.assert_allclose(np.concatenate(found), public(), rtol=1e-14, atol=0)


def test_a_zarr_array_behind_a_url(store: Any, tmp_path: Path) -> None:
    url = store.put(write(".zarr", tmp_path, public()))
    assert np.array_equal(np.concatenate(parts(url, 4)), public())
    assert open_rows(url).digest == open_rows(tmp_path / "rows.zarr").digest


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_is_numbers_and_gaps_in_all_parts_or_in_none(kind: str, tmp_path: Path) -> None:
    table = pd.DataFrame({"a": [1, 2, None], "b": [None, 3, None], "code": ["1", "x1", "3"]})
    if kind == "csv":
        table.to_csv(tmp_path / "r.csv", index=False)
    else:
        pytest.importorskip("pyarrow")
        table.to_parquet(tmp_path / "r.parquet", row_group_size=1)
    rows = open_rows(tmp_path / f"r.{kind}")
    found = [rows.part(at, at + 1).columns for at in range(3)]
    assert {part[name].dtype for part in found for name in "ab"} == {np.dtype(float)}
    assert [part["a"][0] for part in found[:2]] == [1, 2]
    assert np.isnan([found[2]["a"][0], found[0]["b"][0], found[2]["b"][0]]).all()
    assert [part["code"].tolist() for part in found] == [["1"], ["x1"], ["3"]]


@pytest.mark.parametrize(
    ("name", "make", "argument"),
    [
        ("r.csv", lambda file: file.write_text("a,b\n"), "rows"),
        ("r.csv", lambda file: file.write_text("a,b\n1\n"), None),
        ("r.npy", lambda file: file.write_text("x"), "r.npy"),
        ("r.npz", lambda file: np.savez(file, features=public()), "rows"),
        ("r.doc", lambda file: file.touch(), "rows"),
        ("none.npy", lambda file: None, "rows"),
    ],
)
def test_rows_that_are_refused(
    name: str, make: Callable[[Path], Any], argument: str | None, tmp_path: Path
) -> None:
    make(tmp_path / name)
    with refused(argument):
        open_rows(tmp_path / name)


# -- what models say ---------------------------------------------------------------------------

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3))
Y = (X @ RNG.normal(size=(3, 2)) > 0.2).astype(int)


def forest(seed: int = 0) -> RandomForestClassifier:
    return RandomForestClassifier(3, random_state=seed).fit(X, Y)


def asked(model: Path, rows: Any, **how: Any) -> np.ndarray:
    """Return what a saved model says: (rows, labels)."""
    output = model.parent / "v.zarr"
    pv.collect_votes(model, rows, output, labels=2, force=True, chunk=30, **how)
    return read(output)[:, 0]


@pytest.mark.parametrize("suffix", [".joblib", ".pkl", ".pickle"])
def test_a_saved_model_predicts_or_gives_probabilities(suffix: str, tmp_path: Path) -> None:
    model, file = forest(), tmp_path / f"north{suffix}"
    joblib.dump(model, file, compress=3)
    assert np.array_equal(asked(file, X), model.predict(X))
    assert pv.Ballots.of(tmp_path / "v.zarr").voter_names == ("north",)
    chance = np.stack([part[:, 1] for part in model.predict_proba(X)], axis=1)
    assert np.array_equal(asked(file, X, threshold=0.3), chance >= 0.3)


def test_students_know_their_labels(tmp_path: Path) -> None:
    student, output = LinearStudent().fit(X, Y), tmp_path / "v.zarr"
    for name in ("a", "b"):
        save_student(tmp_path / f"{name}.student", student, label_names=["flu", "cold"])
    assert np.array_equal(asked(tmp_path / "b.student", X), student.predict(X))
    chance = student.predict_proba(X)
    assert np.array_equal(asked(tmp_path / "b.student", X, threshold=0.2), chance >= 0.2)
    found = pv.collect_votes(tmp_path, X, output, force=True)
    assert found.label_names == ("flu", "cold")
    save_student(tmp_path / "b.student", student, label_names=["cold", "flu"])
    with pytest.raises(pv.BallotError, match=r"'b' \(b\.student\)"):
        pv.collect_votes(tmp_path, X, output, force=True)


def test_rows_of_a_table_come_as_a_model_learnt_them(tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    table, some = frame.assign(note="words"), frame[["c", "a"]]
    learner = make_pipeline(StandardScaler(), MultiOutputClassifier(LogisticRegression()))
    joblib.dump(learner.fit(some, Y), tmp_path / "named.joblib")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # scikit-learn warns of rows without names
        assert np.array_equal(asked(tmp_path / "named.joblib", table), learner.predict(some))
    student = LinearStudent().fit(some.to_numpy(), Y)
    names: dict[str, Any] = {"label_names": ["x", "y"], "feature_names": ["c", "a"]}
    save_student(tmp_path / "s.student", student, **names)
    votes = asked(tmp_path / "s.student", table)
    assert np.array_equal(votes, student.predict(some.to_numpy()))
    joblib.dump(forest(), tmp_path / "plain.joblib")
    with pytest.raises(pv.BallotError, match="'note'"):
        asked(tmp_path / "plain.joblib", table)


def test_a_function_by_name(here: Path) -> None:
    (here / "ask_by_name.py").write_text("def vote(voter, rows):\n    return rows > 1\nn = 3\n")
    voters = open_voters("ask_by_name:vote", ["a"])
    assert np.array_equal(voters[0].function("a", X), X > 1)
    assert voters[0].digest.startswith("ask_by_name:vote ")
    (here / "ask_by_name.py").write_text("def vote(voter, rows):\n    return rows > 2\n")
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
    joblib.dump(forest(), tmp_path / "north.joblib")
    (voter,) = open_voters(tmp_path)
    joblib.dump(forest(1), tmp_path / "north.joblib")
    with pytest.raises(InputError, match=r"'north' \(north\.joblib\)"):
        voter.load()
    (tmp_path / "north.pkl").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"'north' \(north\.pkl\)"):
        open_voters(tmp_path / "north.pkl")[0].load()

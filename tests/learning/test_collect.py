"""Votes are collected once each, whoever does the work and whatever dies meanwhile."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
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
from privote.learning import collect as collect_room
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
from privote.learning.workers import WorkerLostError
from privote.votes.arrays import Folder

pytest.importorskip("zarr")

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
    given = {"labels": ["x", "y", "z"], "names": NAMES, "chunk": 16, "group": 2, **how}
    return pv.collect_votes(voters, public() if rows is None else rows, output, **given)


def read(output: Any) -> np.ndarray:
    return pv.Ballots.of(output).to_array()


def held(folder: Path) -> dict[str, bytes]:
    """Return every chunk of a Zarr array."""
    return {f.relative_to(folder).as_posix(): f.read_bytes() for f in folder.rglob("*.0")}


def everything(folder: Path) -> dict[str, bytes]:
    """Return every file of a Zarr array."""
    return {f.relative_to(folder).as_posix(): f.read_bytes() for f in folder.rglob("*")}


# -- what comes out ----------------------------------------------------------------------------


@pytest.mark.parametrize(("chunk", "group"), [(1, 5), (7, 2), (16, 1), (50, 2), (1000, 5)])
def test_votes_are_what_voters_said(chunk: int, group: int, tmp_path: Path) -> None:
    output = tmp_path / "votes.zarr"
    found = collect(output, chunk=chunk, group=group)
    assert (found.queries, found.voters, found.labels) == (ROWS, len(NAMES), LABELS)
    ballots = pv.Ballots.of(output)
    assert np.array_equal(ballots.to_array(), truth())
    assert ballots.voter_names == NAMES
    assert ballots.label_names == ("x", "y", "z")
    assert {file.name for file in tmp_path.iterdir()} == {output.name}


def test_zarr_holds_packed_bits(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    collect(tmp_path / "v.zarr", labels=3, progress=lambda *at: told.append(at))
    assert told == [(done, 12) for done in range(1, 13)]
    assert pv.Ballots.of(tmp_path / "v.zarr").label_names is None
    chunks = held(tmp_path / "v.zarr")
    assert len(chunks) == 4 * 3
    assert {len(data) for data in chunks.values()} == {4 + 1 + 16 * 2 * LABELS // 8}
    assert not pv.Ballots.of(tmp_path / "v.zarr").missing
    import zarr

    assert np.array_equal(zarr.open_array(tmp_path / "v.zarr", mode="r")[:], truth())


def test_probabilities_become_votes(tmp_path: Path) -> None:
    output = tmp_path / "v.zarr"
    for bar in (0.4, [0.2, 0.4, 0.6]):
        chance = {name: np.random.default_rng(ord(name[0])).random((ROWS, 3)) for name in NAMES}
        place = {tuple(row): at for at, row in enumerate(public())}

        def say(voter: str, rows: Any, chance: Any = chance, place: Any = place) -> Any:
            return chance[voter][[place[tuple(row)] for row in rows]]

        collect(output, say, threshold=bar, force=True)
        assert np.array_equal(read(output), np.stack([*chance.values()], axis=1) >= np.array(bar))


@pytest.mark.parametrize("scheme", ["file", "failing"])
def test_behind_a_url(scheme: str, store: Any, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/votes.zarr" if scheme == "file" else f"{store.url}/votes.zarr"
    collect(url)
    assert collect(url, resume=True).done_before == 12
    assert np.array_equal(read(url), truth())
    collect(url, lambda voter, rows: ~vote(voter, rows), force=True)
    assert np.array_equal(read(url), ~truth())


@pytest.mark.parametrize("url", ["s3://me:hunter2@bucket/v.zarr", "s3://bucket/v.zarr?hunter2"])
def test_a_url_with_credentials_is_refused_and_not_repeated(url: str, tmp_path: Path) -> None:
    for given in ({"output": url}, {"output": tmp_path / "v.zarr", "rows": url}):
        with refused([*given][-1]) as caught:
            collect(**given)
        assert "hunter2" not in str(caught.value)
    for given in ({"voters": "s3://bucket/north.joblib"}, {"rows": "s3://bucket/rows.npy"}):
        with refused(next(iter(given))):
            collect(tmp_path / "v.zarr", **given)
    assert [*tmp_path.iterdir()] == []


# -- who does the work -------------------------------------------------------------------------

_MODULE = """
import os, signal
import numpy as np
NAMES = ("anna", "bob", "cleo", "dan", "eve")
def plain(voter, rows):
    shift = NAMES.index(voter) / 5
    return np.stack([np.sin(17 * rows[:, k] + shift) > 0.3 for k in range(3)], axis=1)
def dies_once(voter, rows):
    if voter == "dan":
        try:
            os.close(os.open({mark!r}, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    return plain(voter, rows)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a module of functions that kill their process, into the folder where one works."""
    name = f"voters_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(_MODULE.format(mark=str(tmp_path / "mark")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")  # so that what is added is gone afterwards
    return name


@pytest.mark.parametrize("backend", ["loky", "dask", pytest.param("ray", marks=pytest.mark.slow)])
def test_a_worker_that_is_killed_changes_no_vote(backend: str, module: str, tmp_path: Path) -> None:
    """Dask asks another one; elsewhere the run stops, and is resumed."""
    pytest.importorskip({"loky": "joblib", "dask": "distributed"}.get(backend, backend))
    np.save(tmp_path / "rows.npy", public())
    collect(tmp_path / "one.zarr", f"{module}:plain", tmp_path / "rows.npy")
    given = tmp_path / "two.zarr", f"{module}:dies_once", tmp_path / "rows.npy"
    how: dict[str, Any] = {"backend": backend, "workers": 2}
    if backend == "dask":
        collect(*given, **how)
    else:
        with pytest.raises(WorkerLostError):
            collect(*given, **how)
        with refused(kind=pv.BallotError):
            read(tmp_path / "two.zarr")
        collect(*given, **how, resume=(tmp_path / "two.zarr").exists())
    assert (tmp_path / "mark").exists()
    assert held(tmp_path / "two.zarr") == held(tmp_path / "one.zarr")
    assert np.array_equal(read(tmp_path / "two.zarr"), truth())


def test_a_place_that_loses_what_is_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Folder.write
    kept = (".zattrs", ".zarray")
    monkeypatch.setattr(
        Folder, "write", lambda self, name, data: name in kept and write(self, name, data)
    )
    with refused("output"):
        collect(tmp_path / "v.zarr")


# -- what dies, and goes on --------------------------------------------------------------------


def test_a_chunk_that_was_lost_after_all_is_made_again(tmp_path: Path) -> None:
    """Also where the voters answer otherwise than they did."""
    output, said = tmp_path / "v.zarr", [False]

    def moody(voter: str, rows: Any) -> Any:
        return vote(voter, rows) ^ said[0]

    collect(output, moody)
    before = everything(output)
    for damage in (
        Path.unlink,
        lambda file: file.write_bytes(file.read_bytes()[:-1]),
        lambda file: file.write_bytes(bytes([file.read_bytes()[0] ^ 4]) + file.read_bytes()[1:]),
    ):
        damage(output / "1.1.0")
        with refused(kind=pv.BallotError):
            read(output)
        assert collect(output, moody, resume=True).done_before == 11
        assert everything(output) == before
    (output / "2.0.0").unlink()
    said[0] = True
    assert collect(output, moody, resume=True).done_before == 11
    assert (read(output)[32:48, :2] != truth()[32:48, :2]).all()


def test_a_worker_of_another_run_writes_nothing(tmp_path: Path) -> None:
    """A worker that outlives its run finds another one there, or the finished votes."""
    output, late = tmp_path / "v.zarr", []
    stale: list[Any] = []
    real = collect_room._cast

    def keep(task: Any) -> None:
        stale.append(task)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collect_room, "_cast", keep)
        with pytest.raises(KeyboardInterrupt):
            collect(output, lambda voter, rows: ~vote(voter, rows))

    def vote_meanwhile(voter: str, rows: Any) -> Any:
        try:
            real(stale[0])
        except pv.InputError as error:
            late.append(error.argument)
        return vote(voter, rows)

    collect(output, vote_meanwhile, force=True)
    with refused("output"):
        real(stale[0])
    assert late == ["output"] * 20
    assert np.array_equal(read(output), truth())


def test_what_is_finished_stays(tmp_path: Path) -> None:
    output = tmp_path / "v.zarr"
    collect(output)
    with refused("output"):
        collect(output)
    found = collect(output, resume=True)
    assert (found.done_before, found.chunks) == (12, 12)
    with refused("rows"):
        collect(output, resume=True, rows=public() + 1)
    collect(output, rows=public() + 1, force=True)
    assert not np.array_equal(read(output), truth())


# -- what changed meanwhile --------------------------------------------------------------------


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """Begin to collect from five models and a file of rows, and break off."""
    (tmp_path / "models").mkdir()
    X = np.random.default_rng(1).normal(size=(90, 4))
    for seed, name in enumerate(NAMES):
        model = RandomForestClassifier(3, random_state=seed).fit(X, X[:, :3] > 0.1)
        joblib.dump(model, tmp_path / "models" / f"{name}.joblib")
    np.save(tmp_path / "rows.npy", public())

    def interrupt(done: int, _: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        again(tmp_path, progress=interrupt)
    return tmp_path


def again(folder: Path, **how: Any) -> Any:
    given: dict[str, Any] = {"labels": ["x", "y", "z"], "chunk": 16, "group": 2, **how}
    voters = given.pop("voters", folder / "models")
    return pv.collect_votes(voters, folder / "rows.npy", folder / "v.zarr", **given)


@pytest.mark.parametrize(
    ("argument", "how"),
    [
        ("labels", {"labels": ["x", "y", "w"]}),
        ("threshold", {"threshold": 0.5}),
        ("chunk", {"chunk": 8}),
        ("group", {"group": 5}),
        ("voters", {"names": ["a", "b", "c", "d", "e"]}),
        ("voters", {"voters": vote, "names": NAMES}),
        ("voters", {"voters": vote, "names": NAMES[:4]}),
        ("resume", {"force": True}),
        ("output", {"resume": False}),
    ],
)
def test_other_settings_are_refused(argument: str, how: dict[str, Any], begun: Path) -> None:
    before = held(begun / "v.zarr")
    with refused(argument):
        again(begun, **{"resume": True, **how})
    assert held(begun / "v.zarr") == before


def test_cut_as_before_unless_told(begun: Path) -> None:
    given: dict[str, Any] = {"labels": ["x", "y", "z"], "resume": True}
    found = pv.collect_votes(begun / "models", begun / "rows.npy", begun / "v.zarr", **given)
    assert 0 < found.done_before < 12
    assert len(held(begun / "v.zarr")) == 12


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "sealed"),
    [
        (lambda said: said[:-1], False),
        (lambda said: said * 2, True),
        (lambda said: said.missing, False),
    ],
)
def test_a_voter_that_errs_is_named(
    wrong: Callable[[Any], Any], sealed: bool, tmp_path: Path
) -> None:
    def vote_wrongly(voter: str, rows: Any) -> Any:
        said = vote(voter, rows)
        late = np.array_equal(rows, public()[16:32])
        return wrong(said) if voter == "cleo" and late else said

    output = tmp_path / "v.zarr"
    with pytest.raises(pv.BallotError, match="'cleo' on queries 16 to 31") as caught:
        collect(output, vote_wrongly)
    assert (caught.value.sealed is not None) == sealed
    assert len(held(output)) == 5
    assert not (output / ".zarray").exists()
    collect(output, force=True)
    assert np.array_equal(read(output), truth())


def test_a_first_chunk_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with refused(kind=pv.BallotError):
        collect(tmp_path / "v.zarr", labels=2)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("argument", "how"),
    [
        ("labels", {"labels": None}),
        (None, {"labels": ["a", "a"]}),
        ("labels", {"labels": "abc"}),
        ("labels", {"labels": 0}),
        (None, {"names": ["a", "a"]}),
        ("threshold", {"threshold": 2}),
        ("threshold", {"threshold": [0.1, 0.2]}),
        ("chunk", {"chunk": 0}),
        ("group", {"group": -1}),
        ("backend", {"backend": "spark"}),
        ("voters", {"voters": 3, "names": None}),
    ],
)
def test_refused(argument: str | None, how: dict[str, Any], tmp_path: Path) -> None:
    with refused(argument):
        collect(tmp_path / "v.zarr", **how)


def test_places_that_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file.zarr").write_text("x")
    for name in ("v.npy", "file.zarr"):
        with refused("output"):
            collect(tmp_path / name, force=True)
    for name in ("precious", ".zattrs"):
        (tmp_path / name / "mine.zarr").mkdir(parents=True)
        (tmp_path / name / "mine.zarr" / name).write_text("x")
        for how in ({"force": True}, {"resume": True}):
            with refused("output"):
                collect(tmp_path / name / "mine.zarr", **how)
        assert (tmp_path / name / "mine.zarr" / name).read_text() == "x"
    Folder(str(tmp_path / "v.zarr")).write(".zattrs", b'{"privote": {"format": 99}}')
    with pytest.raises(pv.InputError, match=r"format 99,.* format 2"):
        collect(tmp_path / "v.zarr", resume=True)


def test_attributes_hold_the_digests_of_a_bounded_number_of_chunks(tmp_path: Path) -> None:
    rows = np.zeros((500_000, 1))
    with refused("chunk", value=1):
        pv.collect_votes(vote, rows, tmp_path / "v.zarr", labels=1, names=["a"], chunk=1)


@pytest.mark.parametrize("kind", [".npy", ".npz", ".zarr"])
def test_rows_that_change_meanwhile_are_said(kind: str, tmp_path: Path) -> None:
    """What was asked about other rows than the attributes say is no votes."""
    file = tmp_path / f"rows{kind}"

    def change(voter: str, rows: Any) -> Any:
        if voter == "eve":
            write_rows(file, public() + 1)
        return vote(voter, rows)

    write_rows(file, public())
    with refused("rows"):
        collect(tmp_path / "v.zarr", change, file)
    with refused(kind=pv.BallotError):
        read(tmp_path / "v.zarr")


def write_rows(file: Path, rows: np.ndarray) -> None:
    import zarr

    if file.suffix == ".zarr":
        zarr.open_array(file, mode="w", shape=rows.shape, dtype=float)[:] = rows
    else:
        np.save(file, rows) if file.suffix == ".npy" else np.savez(file, X=rows)


# -- memory ------------------------------------------------------------------------------------

_LARGE = """
import resource, sys
import numpy as np
import privote as pv
def vote(voter, rows):
    return rows[:, :5] > float(voter)
names = [str(place / 20) for place in range(20)]
pv.collect_votes(vote, sys.argv[1], sys.argv[2], labels=5, names=names)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    used = []
    for place, rows in enumerate((20_000, 600_000)):
        file = tmp_path / f"{place}.npy"
        array = np.lib.format.open_memmap(file, "w+", np.float32, (rows, 32))
        array[::1000] = 1
        array.flush()
        done = subprocess.run(
            [sys.executable, "-c", _LARGE, str(file), str(tmp_path / f"{place}.zarr")],
            capture_output=True,
            text=True,
            check=True,
            timeout=240,
        )
        used.append(int(done.stdout))
    assert used[1] < used[0] + 100, used  # MiB; the rows alone are 73, the votes 57 as bytes


LINES = 23


def numbers() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(LINES, 3))


def csv_of(array: np.ndarray) -> str:
    """Return a CSV file with what people put there: texts with breaks, gaps, blank lines."""
    lines = ["a,b,c,note,code"]
    for place, row in enumerate(array):
        cells = ",".join(map(repr, map(float, row)))
        lines.append(f'{cells},"line {place},\nand ""more"" ü",{place if place != 20 else "x1"}')
        lines += [""] * (place % 3)
    return "\n".join(lines) + "\n"


def write(kind: str, folder: Path, array: np.ndarray) -> Path:
    path = folder / f"rows{kind}"
    if kind == ".npy":
        np.save(path, array)
    elif kind == ".npz":
        np.savez(path, X=array)
    elif kind == ".csv":
        path.write_text(csv_of(array), encoding="utf-8-sig")
    elif kind == ".tsv":
        path.write_text(csv_of(array).replace(",", "\t"), encoding="utf-8")
    elif kind == ".zarr":
        zarr = pytest.importorskip("zarr")
        zarr.create_array(path, data=array, chunks=(4, 3))
    else:
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet as pq

        pq.write_table(pa.table({n: array[:, i] for i, n in enumerate("abc")}), path, 5)
    return path


def joined(path: Any, chunk: int) -> list[Any]:
    rows = open_rows(path)
    assert rows.count == LINES
    parts = [rows.part(at, min(at + chunk, LINES)) for at in range(0, LINES, chunk)]
    return [pickle.loads(pickle.dumps(part)) for part in parts]  # as a worker gets them


@pytest.mark.parametrize("chunk", [1, 4, 7, 23])
@pytest.mark.parametrize("kind", [".npy", ".npz", ".zarr", ".csv", ".tsv", ".parquet"])
def test_the_same_rows_from_every_format(kind: str, chunk: int, tmp_path: Path) -> None:
    path = write(kind, tmp_path, numbers())
    tables = kind not in (".npy", ".npz", ".zarr")
    parts, model = joined(path, chunk), SimpleNamespace(feature_names=("a", "b", "c"))
    found = [part.for_model(model) if tables else part for part in parts]
    assert np.array_equal(np.concatenate(found), numbers())


def test_a_zarr_array_behind_a_url(store: Any, tmp_path: Path) -> None:
    url = store.put(write(".zarr", tmp_path, numbers()))
    assert np.array_equal(np.concatenate(joined(url, 4)), numbers())
    assert open_rows(url).digest == open_rows(tmp_path / "rows.zarr").digest
    rows = open_rows(url)

    def broken(name: str) -> None:
        raise ConnectionResetError("the other side went away")

    store.fails = broken
    for fails in (lambda: open_rows(url), lambda: rows.part(0, 4)):
        with refused("rows"):
            fails()


@pytest.mark.parametrize("chunk", [1, 4, 23])
def test_a_column_is_numbers_in_all_parts_or_in_none(chunk: int, tmp_path: Path) -> None:
    parts = [p.columns() for p in joined(write(".csv", tmp_path, numbers()), chunk)]
    assert {part["a"].dtype for part in parts} == {np.dtype(float)}
    assert {part["code"].dtype for part in parts} == {np.dtype(object)}  # row 20 has a word
    codes = [code for part in parts for code in part["code"]]
    assert codes == [str(place) if place != 20 else "x1" for place in range(LINES)]
    notes = [note for part in parts for note in part["note"]]
    assert notes == [f'line {place},\nand "more" ü' for place in range(LINES)]


def test_gaps_are_not_a_number(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    (tmp_path / "g.csv").write_text("a,b\n1,\n2,3\n,NA\n")
    pq.write_table(pa.table({"a": [1, 2, None], "b": [None, 3, None]}), tmp_path / "g.parquet", 1)
    for name in ("g.csv", "g.parquet"):
        rows = open_rows(tmp_path / name)
        found = [rows.part(at, at + 1).columns() for at in range(3)]
        assert {part[key].dtype for part in found for key in part} == {np.dtype(float)}
        assert [part["a"][0] for part in found[:2]] == [1, 2]
        assert np.isnan([found[2]["a"][0], found[0]["b"][0], found[2]["b"][0]]).all()


@pytest.mark.parametrize("kind", [".npy", ".npz", ".zarr", ".csv", ".parquet"])
def test_a_digest_is_of_every_byte(kind: str, tmp_path: Path) -> None:
    first = open_rows(write(kind, tmp_path, numbers())).digest
    (tmp_path / "again").mkdir()
    assert open_rows(write(kind, tmp_path / "again", numbers())).digest == first
    other = numbers()
    other[-1, -1] += 1
    (tmp_path / "other").mkdir()
    assert open_rows(write(kind, tmp_path / "other", other)).digest != first


@pytest.mark.parametrize(
    ("name", "text", "argument"),
    [
        ("r.csv", "a,b\n1\n", None),
        ("r.csv", "a,a\n1,2\n", None),
        ("r.csv", "a,b\n", "rows"),
        ("r.csv", "", None),
        ("r.csv", 'a,b\n"1,2\n', None),
        ("r.npy", "x", None),
        ("r.parquet", "x", None),
        ("r.txt", "x", "rows"),
        (None, "", "rows"),
    ],
)
def test_rows_that_are_refused(
    name: str | None, text: str, argument: str | None, tmp_path: Path
) -> None:
    if name is not None:
        (tmp_path / name).write_text(text)
    with refused(argument):
        open_rows(tmp_path / (name or "none.npy"))


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
def test_voters_that_are_refused(
    argument: str, voters: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with refused(argument):
        open_voters(voters)


# -- what is an answer -------------------------------------------------------------------------


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
        (np.array([[0, 1.6875], [1, 1]]), 0.5),
        (np.array([[0, 0.6875], [1, 1]]), None),
    ],
)
def test_what_is_no_answer_is_refused(said: Any, bar: Any) -> None:
    with refused(kind=pv.BallotError) as caught:
        check_answer(said, 10, 2, 2, bar)
    assert "6875" not in str(caught.value)  # what a model answered is private
    assert ("6875" in str(caught.value.sealed)) is ("6875" in str(said))

"""Votes are collected once each, whoever does the work and whatever dies meanwhile."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from tests.refusals import refused

import privote as pv
from privote.learning import collect as collect_room
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
    collect(tmp_path / "v.zarr", labels=3)
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


@pytest.mark.parametrize(("voters", "group"), [(1, 1), (32, 32), (33, 17), (50, 25), (100, 25)])
def test_groups_of_voters_are_alike(voters: int, group: int, tmp_path: Path) -> None:
    """Every group but the last is as large as this one: padding takes room."""
    names = [str(place) for place in range(voters)]
    how: dict[str, Any] = {"labels": 1, "names": names}
    pv.collect_votes(lambda _, rows: rows[:, 0] > 0, public(), tmp_path / "v.zarr", **how)
    import zarr

    assert zarr.open_array(tmp_path / "v.zarr", mode="r").chunks == (50, group, 1)


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    collect(tmp_path / "v.zarr", progress=lambda *at: told.append(at))
    assert told == [(done, 12) for done in range(1, 13)]


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


def test_a_changed_model_is_refused_by_name(begun: Path) -> None:
    X = np.random.default_rng(2).normal(size=(90, 4))
    joblib.dump(RandomForestClassifier(3).fit(X, X[:, :3] > 0), begun / "models" / "bob.joblib")
    with refused("voters"):
        again(begun, resume=True)


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


def fail_late(voter: str, rows: Any) -> Any:
    if voter == "cleo":
        raise OSError("the line is dead")
    return ~vote(voter, rows)


def test_what_was_begun_behind_a_link_is_not_taken_for_new(tmp_path: Path) -> None:
    output, moved = tmp_path / "v.zarr", tmp_path / "large disk.zarr"
    with refused(kind=pv.BallotError):
        collect(moved, fail_late)
    output.symlink_to(moved.name)
    collect(output, force=True)
    assert np.array_equal(read(output), truth())
    assert output.is_symlink()


def test_chunks_that_cannot_be_removed_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refused(kind=pv.BallotError):
        collect(tmp_path / "v.zarr", fail_late)
    monkeypatch.setattr("shutil.rmtree", lambda *args, **more: None)
    with refused("output"):
        collect(tmp_path / "v.zarr", force=True)


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

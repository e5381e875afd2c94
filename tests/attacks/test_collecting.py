"""Attacks on collected votes: a run that dies, and chunks of a Zarr array that get lost.

zarr reads a chunk that is absent as its fill value, which are votes of no. So whoever loses a file
of a Zarr array changes votes, and nobody would see it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier
from tests.attacks.conftest import Outcome, scaled

import privote as pv

zarr = pytest.importorskip("zarr")

METADATA = ("zarr.json", ".zarray", ".zattrs")
# Imports once, then one process a run, which counts its calls inside privote and may end at one.
DRIVER = """
import json, os, sys
import privote.cli, privote.cli.output, privote.cli.train, privote.learning.collect

def run(words, at):
    calls = 0
    def count(frame, event, argument):
        nonlocal calls
        if event == "call" and "/privote/" in frame.f_code.co_filename:
            calls += 1
            if calls == at:
                os.kill(os.getpid(), 9)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    code = 0
    sys.setprofile(count)
    try:
        privote.cli.app(words)
    except SystemExit as leaving:
        code = leaving.code or 0
    sys.setprofile(None)
    with open("calls", "w") as stream:
        stream.write(str(calls))
    os._exit(code)

for line in sys.stdin:
    child = os.fork()
    if not child:
        run(*json.loads(line))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Runs:
    """Runs of privote, each in a process of its own that may be made to die."""

    def __init__(self, folder: Path) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        command = [sys.executable, "-c", DRIVER]
        self._process = subprocess.Popen(command, cwd=folder, **pipes)

    def go(self, *words: object, at: int = 0) -> int:
        """Return the exit code of a run, which is ended at one of its calls inside privote."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([[*map(str, words)], at]), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)


def everything(folder: Path) -> dict[str, bytes]:
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


@pytest.fixture
def models(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    (tmp_path / "models").mkdir()
    for site in range(6):
        X = rng.normal(size=(60, 4))
        tree = DecisionTreeClassifier(max_depth=4, random_state=0).fit(X, X[:, :3] > 0.2)
        joblib.dump(tree, tmp_path / "models" / f"site {site}.joblib")
    np.save(tmp_path / "rows.npy", rng.normal(size=(120, 4)))
    return tmp_path


def test_votes_survive_a_kill(models: Path, outcome: Outcome) -> None:
    """At calls spread over the whole run; every fourth run has workers, which outlive it."""
    runs = Runs(models)
    words = ("votes", models / "rows.npy", models / "models", "--labels", "a,b,c")
    words += ("--chunk", 16, "--group", 2, "--output")
    lost: list[int] = []
    try:
        assert runs.go(*words, models / "whole.zarr") == 0
        whole, calls = everything(models / "whole.zarr"), int((models / "calls").read_text())
        kills = scaled(3, 40)
        for number, at in enumerate(np.linspace(1, calls, kills + 2)[1:-1].astype(int).tolist()):
            output = models / f"{number}.zarr"
            more = ("--workers", 2) if number % 4 == 3 else ()
            assert runs.go(*words, output, *more, at=at) in (-9, 0)  # workers make calls, too
            if runs.go(*words, output, "--resume") != 0 or everything(output) != whole:
                lost.append(at)
    finally:
        runs.close()
    outcome("votes that are collected, killed and resumed", kills, len(lost))


LAYOUTS: dict[str, Any] = {
    "Zarr 2": {"zarr_format": 2},
    "Zarr 3": {"zarr_format": 3},
    "Zarr 3, shards": {"zarr_format": 3, "shards": (8, 6, 3)},
    "privote votes": None,
}


def _foreign(path: Path, layout: str) -> None:
    """Write votes as others do, with every chunk."""
    votes = np.random.default_rng(1).random((24, 6, 3)) < 0.4
    given = {"chunks": (4, 3, 3), "dtype": bool, **LAYOUTS[layout]}
    config = {"write_empty_chunks": True}
    zarr.create_array(path, shape=votes.shape, config=config, **given)[:] = votes


def _collected(path: Path, models: Path) -> None:
    how: dict[str, Any] = {"labels": 3, "chunk": 20, "group": 3}
    pv.collect_votes(models / "models", models / "rows.npy", path, **how)


def _chunks(path: Path) -> list[Path]:
    found = (file for file in path.rglob("*") if file.is_file() and file.name not in METADATA)
    return sorted(found)


def _damages(chunks: list[Path], *, changed: bool) -> Iterator[Callable[[], Any]]:
    """Yield ways to lose votes: each chunk; where digests tell, chunks that others replace, too."""
    for chunk in chunks:
        yield chunk.unlink
    yield lambda: [chunk.unlink() for chunk in chunks]
    if changed:
        for one, two in pairwise(chunks):
            yield lambda one=one, two=two: shutil.copy(one, two)
        attributes = chunks[0].parent / ".zattrs"  # names of voters, and the digests themselves
        yield attributes.unlink
        yield lambda: attributes.write_text("{}")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_chunk_that_is_lost_is_never_counted(layout: str, models: Path, outcome: Outcome) -> None:
    """Nothing is charged, nothing is released; once it is back the votes are read again."""
    path, kept = models / "v.zarr", models / "kept.zarr"
    ours = LAYOUTS[layout] is None
    _collected(kept, models) if ours else _foreign(kept, layout)
    tried = through = 0
    budget: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5, "mechanism": pv.BinaryVoting(sigma=2)}
    for number in range(sum(1 for _ in _damages(_chunks(kept), changed=ours))):
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(kept, path)
        [*_damages(_chunks(path), changed=ours)][number]()
        if everything(path) == everything(kept):
            continue  # two chunks were the same
        tried += 1
        ledger, output = models / f"{number}.db", models / f"{number}.npz"
        try:
            pv.label(path, **budget, ledger=ledger, output=output)
            through += 1
        except pv.BallotError:
            through += ledger.exists() or output.exists()
    outcome(f"a chunk that was lost, {layout}", tried, through)
    assert pv.label(kept, **budget).answered > 0

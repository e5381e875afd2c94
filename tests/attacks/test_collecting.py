"""Attacks on collected votes: a run that dies, and chunks of a Zarr array that get lost.

zarr reads a chunk that is absent as its fill value, which are votes of no. So whoever loses a file
of a Zarr array changes votes, and nobody would see it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier
from tests.attacks.conftest import Outcome, scaled
from tests.attacks.test_outputs import Runs

import privote as pv

zarr = pytest.importorskip("zarr")

METADATA = ("zarr.json", ".zarray", ".zattrs")


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
        code, log = runs.go(*words, models / "whole.zarr")
        assert code == 0, log
        whole, calls = everything(models / "whole.zarr"), json.loads(_calls(runs))[0]
        kills = scaled(3, 40)
        for number, at in enumerate(np.linspace(1, calls, kills + 2)[1:-1].astype(int).tolist()):
            output = models / f"{number}.zarr"
            more = ("--workers", 2) if number % 4 == 3 else ()
            code, _ = runs.go(*words, output, *more, at=at)
            assert code in (-9, 0)  # with workers it makes fewer calls itself
            code, log = runs.go(*words, output, "--resume")
            if code != 0 or everything(output) != whole:
                lost.append(at)
    finally:
        runs.close()
    outcome("votes that are collected, killed and resumed", kills, len(lost))


def _calls(runs: Runs) -> str:
    return (runs.folder / "driver.calls").read_text()


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

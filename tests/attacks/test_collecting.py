"""Attacks on collected votes: a run that dies, and chunks of a Zarr array that get lost.

zarr reads a chunk that is absent as its fill value, which are votes of no. So whoever loses a file
of a Zarr array changes votes, and nobody would see it.
"""

from __future__ import annotations

import os
import shutil
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier
from tests.attacks.conftest import Outcome, in_a_child
from tests.refusals import refused

import privote as pv

zarr = pytest.importorskip("zarr")

METADATA = ("zarr.json", ".zarray", ".zattrs")
LocalStore = zarr.storage.LocalStore


def everything(folder: Path) -> dict[str, bytes]:
    every = (file for file in sorted(folder.rglob("*")) if file.is_file())
    files = [file for file in every if file.suffix != ".partial"]  # nobody reads them
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


def killed_at(step: int, work: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run work in a process that dies in the middle of its so-manieth change to the disk.

    Returns whether it came so far.
    """
    changes = 0

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def change(self: Any, *given: Any, **more: Any) -> Any:
            nonlocal changes
            changes += 1
            if changes == step:
                if len(given) > 1:  # half of it is written
                    part = Path(self.root, f"{given[0]}.{uuid.uuid4().hex}.partial")
                    part.parent.mkdir(parents=True, exist_ok=True)
                    part.write_bytes(b"half")
                os.kill(os.getpid(), signal.SIGKILL)
            return real(self, *given, **more)

        return change

    def job() -> int:
        signal.alarm(60)
        for name in ("set", "delete_dir"):
            monkeypatch.setattr(LocalStore, name, dying(getattr(LocalStore, name)))
        work()
        return 0

    return in_a_child(job) == -signal.SIGKILL


def test_votes_survive_a_kill(
    models: Path, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every change to the disk; nobody reads what is half there, or is asked again."""
    whole, lost = models / "whole.zarr", []
    _collected(whole, models)
    for step in count(1):
        output = models / f"{step}.zarr"
        if not killed_at(step, lambda: _collected(output, models), monkeypatch):  # noqa: B023
            break
        chunks = len(_chunks(output)) if output.exists() else 0
        if output.exists() and chunks < len(_chunks(whole)):
            with refused(kind=pv.InputError):
                pv.Ballots.of(output).check()
        done = _collected(output, models, resume=output.exists()).done_before
        lost.append(done > chunks or everything(output) != everything(whole))
    assert len(lost) > 6  # the attributes, six chunks, and the end
    outcome.of("votes that are collected, killed and resumed", lost)


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


def _collected(path: Path, models: Path, **more: Any) -> Any:
    how: dict[str, Any] = {"labels": 3, "chunk": 20, **more}
    return pv.collect_votes(models / "models", models / "rows.npy", path, **how)


def _chunks(path: Path) -> list[Path]:
    files = (file for file in path.rglob("*") if file.is_file() and file.suffix != ".partial")
    return sorted(file for file in files if file.name not in METADATA)


def _damages(chunks: list[Path]) -> Iterator[Callable[[], Any]]:
    """Yield ways to lose votes: each chunk, and all of them."""
    for chunk in chunks:
        yield chunk.unlink
    yield lambda: [chunk.unlink() for chunk in chunks]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_chunk_that_is_lost_is_never_counted(layout: str, models: Path, outcome: Outcome) -> None:
    """Nothing is charged, nothing is released; once it is back the votes are read again."""
    path, kept = models / "v.zarr", models / "kept.zarr"
    _collected(kept, models) if LAYOUTS[layout] is None else _foreign(kept, layout)
    found = []
    budget: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5, "mechanism": pv.BinaryVoting(sigma=2)}
    for number in range(sum(1 for _ in _damages(_chunks(kept)))):
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(kept, path)
        [*_damages(_chunks(path))][number]()
        ledger = models / f"{number}.db"
        with refused(kind=pv.BallotError):
            pv.label(path, **budget, ledger=ledger)
        with closing(pv.Ledger.open(ledger)) as book:
            found.append(bool(book.published()))
    outcome.of(f"a chunk that was lost, {layout}", found)
    assert pv.label(kept, **budget).answered > 0

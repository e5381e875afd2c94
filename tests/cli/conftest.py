"""A small file of votes, and a command line to run on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from typer.testing import CliRunner

from privote.cli import app

Run = Callable[..., Any]


def invoke(*arguments: object) -> Any:
    """Run ``privote`` with these arguments, where the test is."""
    return CliRunner().invoke(app, [str(part) for part in arguments])


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs ``privote`` with these arguments, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    # Words must not be broken where a test looks for them.
    monkeypatch.setenv("COLUMNS", "200")

    return invoke


@pytest.fixture
def votes() -> npt.NDArray[np.bool_]:
    """Return (12 queries, 20 voters, 4 labels): most agree, a few stray."""
    rng = np.random.default_rng(5)
    truth = rng.random((12, 1, 4)) < 0.3
    stray = rng.random((12, 20, 4)) < 0.1
    return np.asarray(truth ^ stray)


@pytest.fixture
def votes_file(tmp_path: Path, votes: npt.NDArray[np.bool_]) -> Path:
    path = tmp_path / "votes.npy"
    np.save(path, votes)
    return path


def write_rows(folder: Path, **sizes: int) -> Path:
    """Write tables of visits, two a person, with features a, b, c and labels flu and cold."""
    rng = np.random.default_rng(0)
    for name, rows in sizes.items():
        X = rng.normal(size=(rows, 3))
        Y = (X[:, :2] + 0.2 * rng.normal(size=(rows, 2)) > 0.4).astype(int)
        lines = [
            ",".join(map(str, (f"v{i}", f"p{i // 2}", *x.tolist(), *y.tolist())))
            for i, (x, y) in enumerate(zip(X, Y, strict=True))
        ]
        (folder / f"{name}.csv").write_text("\n".join(["visit,who,a,b,c,flu,cold", *lines]))
    return folder

"""A short profile of `make faults`: nothing gets out uncharged, whatever happens."""

from __future__ import annotations

import errno
import importlib.util
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import REPOSITORY

import privote as pv


def script() -> Any:
    """Load the script from its file: other packages bring a `benchmarks` of their own."""
    spec = importlib.util.spec_from_file_location("faults", REPOSITORY / "benchmarks/faults.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_killed_anywhere_nothing_is_uncharged() -> None:
    seen = script().kill_at_random(kills=25, seed=1)
    assert seen["violations"] == 0
    assert seen["releases"] > 3
    assert seen["entries"] >= seen["releases"]


@pytest.mark.parametrize("limit", ["full disk", "read-only"])
def test_ledger_that_cannot_grow_releases_nothing(limit: str) -> None:
    refused, said = script().starve(limit)
    assert refused, said


def test_an_anchor_that_may_not_last_releases_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    votes, ledger, sync = np.zeros((2, 20, 2), bool), tmp_path / "l.db", os.fsync
    pv.Ledger.open(ledger).close()

    def fails(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EIO, "Input/output error")
        sync(file)

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(pv.LedgerError, match="anchor"):
        pv.label(votes, epsilon=8.0, delta=1e-5, ledger=ledger)

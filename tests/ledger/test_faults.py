"""A short profile of `make faults`: nothing gets out uncharged, whatever happens."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from tests.conftest import REPOSITORY


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

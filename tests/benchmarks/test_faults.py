"""A short profile of `make faults`: nothing gets out uncharged, whatever happens."""

from __future__ import annotations

import faults
import pytest


def test_killed_anywhere_nothing_is_uncharged() -> None:
    seen = faults.kill_at_random(kills=25, seed=1)
    assert seen["violations"] == 0
    assert seen["releases"] > 3
    assert seen["entries"] >= seen["releases"]


@pytest.mark.parametrize("limit", ["full disk", "read-only"])
def test_ledger_that_cannot_grow_releases_nothing(limit: str) -> None:
    refused, said = faults.starve(limit)
    assert refused, said

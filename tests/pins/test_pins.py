"""Seeded outcomes and prices stay as they are, whatever is rebuilt around them."""

from __future__ import annotations

import json

import pytest

from . import cases

KEPT = json.loads(cases.FILE.read_text())


@pytest.mark.parametrize("mechanism", cases.MECHANISMS)
def test_results_are_those_that_were_kept(mechanism: str) -> None:
    kept = {name: digest for name, digest in KEPT.items() if name.split()[0] == mechanism}
    assert kept
    assert cases.measure(mechanism) == kept

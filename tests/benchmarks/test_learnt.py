"""Learnt allowances: no pair of electorates exceeds the budget, and wrong ways are caught."""

from __future__ import annotations

import pytest
from learnt import PLANS, WRONG, learnt


@pytest.mark.parametrize("plan", PLANS)
def test_no_pair_exceeds_the_budget(plan: str) -> None:
    report = learnt(plan, 60, seed=1000)
    assert report.ok, report.summary()
    assert report.branches > 150
    assert 0.5 < report.ratio <= 1  # an audit that comes nowhere near shows nothing


@pytest.mark.parametrize(("plan", "seed"), [*zip(WRONG, (6, 87), strict=True)])
def test_what_is_wrong_is_caught(plan: str, seed: int) -> None:
    report = learnt(plan, 1, seed=seed)
    assert report.broken == (seed,)
    assert "BROKEN" in report.summary()

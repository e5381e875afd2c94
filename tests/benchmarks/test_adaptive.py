"""The adaptive audit: two allowances are enough, one is not."""

from __future__ import annotations

from typing import Any

import adaptive as room
import numpy as np
import pytest
from adaptive import adaptive
from tests.contracts.cases import MECHANISMS as EVERY

import privote as pv
from privote.votes.contributions import bound_votes

MECHANISMS: list[tuple[pv.Mechanism, int]] = [
    (pv.BinaryVoting(sigma=2.0), 2),
    (pv.BinaryVoting(sigma=2.0, gate=pv.Gate(threshold=2, sigma=1.0)), 1),
    (pv.TauVoting(sigma=1.0, tau=1.1), 2),
    (pv.PluralityVoting(sigma=1.0), 2),
    (pv.PowersetVoting(sigma=1.0, max_positives=1), 2),
]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("allowance", [1, 2])
def test_no_adaptive_run_costs_more_than_two_allowances(name: str, allowance: int) -> None:
    mech = EVERY[name]
    report = adaptive(
        mech, 3, 1 if mech.gate else 2, allowance=allowance, queries=3, runs=12, seed=100
    )
    assert report.ok, report.summary()


@pytest.mark.parametrize(("mechanism", "labels"), MECHANISMS, ids=str)
def test_one_allowance_instead_of_two_is_caught(mechanism: pv.Mechanism, labels: int) -> None:
    report = adaptive(mechanism, 3, labels, runs=60, factor=1)
    assert report.broken
    assert not report.ok
    assert "BROKEN" in report.summary()
    again = adaptive(mechanism, 3, labels, runs=1, seed=report.broken[0], factor=1)
    assert again.broken == report.broken[:1], "a broken run can be repeated by its seed"


def test_two_allowances_are_all_used_by_somebody() -> None:
    report = adaptive(pv.BinaryVoting(sigma=2.0), 3, 2, runs=200)
    assert report.ok
    assert report.ratio == pytest.approx(1.0, abs=1e-6), "the bound is attained: it is tight"


def generous(
    votes: Any, baseline: Any, left: Any, unit: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # never runs out
    counted, spent, refused = bound_votes(votes, baseline, left + 100, unit)
    return counted, np.minimum(spent, left), refused


def test_a_rule_that_lets_voters_overspend_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "bound_votes", generous)
    report = adaptive(pv.BinaryVoting(sigma=2.0), 3, 2, runs=60)
    assert report.unlike
    assert report.broken
    assert not report.ok

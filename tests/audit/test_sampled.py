"""The sampled audit: a lower bound on epsilon from real releases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv
from privote import audit

HERE = np.zeros((1, 5, 2), bool)
HERE[0, :2] = True
THERE = HERE.copy()
THERE[0, 2] = True


def test_the_lower_bound_is_below_the_truth_and_not_far() -> None:
    mech = pv.BinaryVoting(sigma=2.0)
    p, q = (mech.outcome_probabilities(votes)[0] for votes in (HERE, THERE))
    truth = np.abs(np.log(p / q).T).sum(axis=1).max()  # both labels agree on the same side
    report = audit.sampled(mech, HERE, THERE, draws=100_000, seed=1)
    assert report.ok
    assert 0.9 * truth < report.lower_bound <= truth
    assert "ok" in report.summary()


def test_an_epsilon_that_is_too_small_is_caught() -> None:
    report = audit.sampled(
        pv.BinaryVoting(sigma=2.0), HERE, THERE, draws=50_000, stated=0.8, seed=1
    )
    assert not report.ok
    assert "BROKEN" in report.summary()


def test_a_real_release_is_drawn_without_a_seed() -> None:
    mech = pv.BinaryVoting(sigma=1.0, gate=pv.Gate(threshold=3, sigma=1.0))
    one, two = (audit.sampled(mech, HERE, THERE, draws=4000) for _ in range(2))
    assert one.ok
    assert one.lower_bound != two.lower_bound


def test_confidence_is_kept() -> None:
    """Of many audits of the true epsilon few may find more than it."""
    mech = pv.BinaryVoting(sigma=3.0)
    here, there = HERE[:, :, :1], THERE[:, :, :1]
    p, q = (mech.outcome_probabilities(votes)[0, 0] for votes in (here, there))
    truth = float(np.abs(np.log(p / q)).max())
    above = sum(
        audit.sampled(
            mech, here, there, draws=2000, confidence=0.8, stated=truth, seed=seed
        ).lower_bound
        > truth
        for seed in range(200)
    )
    assert above <= 45  # 40 expected at most; the limits are conservative


@pytest.mark.parametrize(
    ("bad", "argument"),
    [
        ({"neighbour_votes": HERE[:, :4]}, None),
        ({"neighbour_votes": ~HERE}, None),
        ({"draws": 1}, "draws"),
        ({"confidence": 1.0}, "confidence"),
        ({"delta": 0.0}, "delta"),
    ],
)
def test_refusals(bad: dict[str, Any], argument: str | None) -> None:
    arguments: dict[str, Any] = {"votes": HERE, "neighbour_votes": THERE, **bad}
    with refused(argument):
        audit.sampled(pv.BinaryVoting(sigma=1.0), **arguments)

"""The adversary over a ledger: beats the wrong rule, and not the right one."""

from __future__ import annotations

import pytest
from policies import Game, Poll, Step, at_the_door, by_the_best_order, policies

import privote as pv


def steered(order: float | None = None) -> tuple[pv.Budget, Poll, list[list[Step]]]:
    """Return the shortest known way to steer a budget that settles at each history's best order."""
    sigmas = (3.5, 2.55, 2.45, 2.05, 1.9, 0.6)
    first = [Step(pv.BinaryVoting(sigma=7.0), "worst-case", 9)]
    then = [Step(pv.BinaryVoting(sigma=sigma), "worst-case") for sigma in sigmas]
    budget = pv.Budget(epsilon=8.0, delta=1e-5, order=order)
    return budget, Poll(voters=3, yes=0), [first, then]


def test_the_best_order_of_each_history_is_too_good_to_be_true() -> None:
    found = Game(*steered(), by_the_best_order).best()
    assert found == pytest.approx(1.254e-5, rel=0.005)  # by enumeration, elsewhere


@pytest.mark.parametrize("order", [None, 3.0, 8.0])
def test_a_pinned_order_keeps_its_promise(order: float | None) -> None:
    game = Game(*steered(order), at_the_door)
    found = game.best()
    assert 0 < found <= 1e-5
    if order is None:
        assert found <= 3e-6


def test_random_policies() -> None:
    report = policies(8, seed=100)
    assert report.ok, report.summary()
    assert report.histories > 1000
    assert 0 < report.ratio <= 1
    assert "8 best policies" in report.summary()


def test_random_policies_catch_the_wrong_rule() -> None:
    report = policies(1, seed=350, admit=by_the_best_order)
    assert not report.ok
    assert "seeds (350,)" in report.summary()

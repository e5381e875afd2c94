"""When to stop: decided on public numbers and released labels, and in time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import privote as pv
from privote.ledger.totals import Earlier
from privote.planning import Pace

NARROW = pv.BinaryVoting(sigma=12.0)


def test_a_first_batch_is_one_on_which_nobody_can_run_out() -> None:
    pace = Pace(mechanism=NARROW, labels=12)
    pace.start(60, 138, Earlier())
    none = np.zeros((0, 12), np.int8)
    assert pace.more(none, none.astype(bool)) == 138 // 12
    known = Pace(mechanism=NARROW, labels=12, yes=0.02)
    known.start(60, 138, Earlier())
    assert known.more(none, none.astype(bool)) > 2 * (138 // 12)


def test_noise_that_hides_everything_is_paced_by_the_stated_share() -> None:
    flat = pv.BinaryVoting(sigma=1000.0)
    pace = Pace(mechanism=flat, labels=12, yes=0.1)
    pace.start(60, 100, Earlier())
    done = 0
    while more := pace.more(np.zeros((done, 12), np.int8), np.zeros((done, 12), bool)):
        done += more
    assert done == pv.planning.forecast(flat, 60, 12, allowance=100, yes=0.1).lasts


def test_a_round_uses_its_part_of_what_earlier_ones_left() -> None:
    def first(earlier: Earlier, **given: Any) -> tuple[int, int]:
        pace, done = Pace(mechanism=NARROW, labels=12, anew=True, **given), 0
        pace.start(60, 1200, earlier)
        labels = np.zeros((2000, 12), np.int8)
        labels[:, :2] = 1
        while more := pace.more(labels[:done], np.zeros((done, 12), bool)):
            done += more
        return pace._allowance, done

    whole, all_of_it = first(Earlier())
    half, part = first(Earlier(), rounds=2)
    assert (whole, half) == (1200, 600)
    assert 100 < part < all_of_it / 2
    # Two departures a query were released before: more than twice as many surprises are gone.
    rest, fewer = first(Earlier(queries=200, told=200, departed=400))
    assert 1200 - 1.56 * 600 < rest < 1200 - 400
    assert fewer < all_of_it - 200
    assert first(Earlier(queries=900, told=900, departed=1800)) == (pytest.approx(-2000, rel=1), 0)

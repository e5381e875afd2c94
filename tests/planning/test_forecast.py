"""A forecast reads public numbers only."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import privote as pv
from privote.planning import allowance_for, forecast
from privote.planning.chances import cell_probabilities
from privote.release import forecast_in_words

VOTERS, LABELS = 60, 12


@pytest.mark.parametrize(
    "mechanism",
    [
        pv.BinaryVoting(sigma=15.0),
        pv.BinaryVoting(sigma=15.0, quota=0.3),
        pv.TauVoting(sigma=15.0, tau=1.8),
        pv.PowersetVoting(sigma=4.0),
        pv.PluralityVoting(sigma=15.0),
    ],
)
def test_chances_are_the_mechanisms_own(mechanism: pv.Mechanism) -> None:
    found = forecast(mechanism, VOTERS, LABELS)
    votes = np.zeros((1, VOTERS, LABELS), bool)

    def one() -> float:
        tally = mechanism.tally(next(pv.Ballots.of(votes).blocks()))
        return float(cell_probabilities(mechanism, tally)[0, 0, 1])

    assert found["false_alarm"] == pytest.approx(one(), abs=1e-9)
    for count, enough in ((round(found["share_needed"] * VOTERS), True), (0, False)):
        votes[0, :, 0] = np.arange(VOTERS) < count
        assert (one() >= 0.95) is enough
    votes[0, :, 0] = True
    assert found["missed"] == pytest.approx(1 - one(), abs=1e-9)


def test_warnings() -> None:
    quiet, loud = (forecast(pv.BinaryVoting(sigma=s), VOTERS, LABELS) for s in (10.0, 37.0))
    assert quiet["warnings"] == []
    assert "95 %" in forecast_in_words(quiet)
    assert loud["share_needed"] is None
    assert (round(loud["missed"], 2), round(loud["false_alarm"], 2)) == (0.13, 0.13)
    assert len(loud["warnings"]) == 2
    assert json.loads(json.dumps(loud)) == loud


@pytest.mark.parametrize(
    ("mechanism", "mean"),
    [
        (pv.BinaryVoting(sigma=12.0), 0.1 * LABELS),
        (pv.TauVoting(sigma=12.0, tau=1.8), 1 - 0.9**LABELS),  # a whole ballot is one contribution
    ],
)
def test_how_long_an_allowance_lasts(mechanism: pv.Mechanism, mean: float) -> None:
    """The busiest voter, at a tenth of yes among all votes; never less than a yes to everything."""
    allowance = allowance_for(mechanism, VOTERS, LABELS, 8.0, 1e-5)
    short = forecast(mechanism, VOTERS, LABELS, allowance=allowance, asked=10**6)
    busiest = math.floor(allowance / (1.56 * mean))
    every = allowance // (LABELS if mechanism.contribution_unit == "vote" else 1)
    assert short["lasts"] == max(busiest, every)
    assert len(short["warnings"]) == 1
    assert f"{short['lasts']:,} of 1,000,000 queries" in short["warnings"][0]
    enough = {"allowance": allowance, "asked": short["lasts"]}
    assert forecast(mechanism, VOTERS, LABELS, **enough)["warnings"] == []


def test_an_allowance_is_not_judged_where_a_baseline_guides_or_few_are_near() -> None:
    votes = np.random.default_rng(0).random((300, 20, 4)) < 0.3
    budget = {"epsilon": 8.0, "delta": 1e-5, "seed": 1, "guarantee": "allowance"}
    mechanism = pv.BinaryVoting(sigma=5.0)
    with pytest.warns(pv.PrivoteWarning, match="the allowance lasts"):
        plain = pv.label(votes, mechanism=mechanism, **budget)
    assert plain.forecast["lasts"] < 300
    guided = pv.label(votes, mechanism=mechanism, baseline=np.eye(4)[[0] * 300], **budget)
    assert guided.forecast["lasts"] is None

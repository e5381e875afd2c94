"""A forecast reads public numbers and released labels, and errs on the safe side."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import privote as pv
from privote.forecast import Forecast, forecast
from privote.planning import allowance_for

VOTERS, LABELS = 60, 12


def electorate(yes: float, agreement: float = 0.8) -> tuple[np.ndarray, np.ndarray]:
    """Return votes and what is wanted, as the model of an electorate has it."""
    rng = np.random.default_rng(0)
    wanted = rng.random((300, LABELS)) < yes
    strays = (1 - agreement) * yes / (1 - yes)
    chance = np.where(wanted, agreement, strays)[:, None, :]
    return rng.random((300, VOTERS, LABELS)) < chance, wanted


def lasts(mechanism: pv.Mechanism, allowance: int, released: np.ndarray, **more: Any) -> int | None:
    return forecast(mechanism, VOTERS, LABELS, allowance=allowance, released=released, **more).lasts


@pytest.mark.parametrize(
    "mechanism",
    [
        pv.BinaryVoting(sigma=15.0),
        pv.BinaryVoting(sigma=15.0, quota=0.3),
        pv.BinaryVoting(link=pv.OptimalLink(cost=0.01, order=4.0)),
        pv.TauVoting(sigma=15.0, tau=1.8),
        pv.PowersetVoting(sigma=4.0),
        pv.PluralityVoting(sigma=15.0),
    ],
)
def test_chances_are_the_mechanisms_own(mechanism: pv.Mechanism) -> None:
    found = forecast(mechanism, VOTERS, LABELS)
    votes = np.zeros((1, VOTERS, LABELS), bool)
    none = mechanism.cell_probabilities(mechanism.tally(next(pv.Ballots.of(votes).blocks())))
    assert found.false_alarm == pytest.approx(float(none[0, 0, 1]), abs=1e-9)
    assert found.missed == pytest.approx(1 - mechanism.unanimous(VOTERS, LABELS))
    assert found.share_needed is not None
    for count, enough in ((round(found.share_needed * VOTERS), True), (0, False)):
        votes[0, :, 0] = np.arange(VOTERS) < count
        some = mechanism.cell_probabilities(mechanism.tally(next(pv.Ballots.of(votes).blocks())))
        assert (some[0, 0, 1] >= 0.95) is np.bool_(enough)


def test_warnings() -> None:
    assert forecast(pv.BinaryVoting(sigma=10.0), VOTERS, LABELS).warnings == ()
    loud = forecast(pv.BinaryVoting(sigma=37.0), VOTERS, LABELS)
    assert loud.share_needed is None
    assert (round(loud.missed, 2), round(loud.false_alarm, 2)) == (0.13, 0.13)
    assert len(loud.warnings) == 2
    mechanism = pv.BinaryVoting(sigma=12.0)
    short = forecast(mechanism, VOTERS, LABELS, allowance=138, yes=0.18, asked=400)
    assert short.lasts == 40
    assert "40 of 400 queries" in short.warnings[0]
    none = forecast(mechanism, VOTERS, LABELS, allowance=1, yes=0.9, asked=5)
    assert none.lasts == 0
    assert "less than one of 5 queries" in none.warnings[0]
    assert any("less than one query." in line for line in none.lines())


def test_facts_are_json_and_come_back() -> None:
    found = forecast(pv.BinaryVoting(sigma=37.0), VOTERS, LABELS, allowance=99, yes=0.1)
    assert Forecast.of_facts(json.loads(json.dumps(found.facts()))) == found
    assert found.lines()[-2:] == found.warnings


@pytest.mark.parametrize("sigma", [12.0, 20.0, 33.0])
@pytest.mark.parametrize("yes", [0.05, 0.18, 0.4])
@pytest.mark.parametrize("agreement", [0.7, 0.95])
def test_released_labels_say_when_voters_run_out(
    sigma: float, yes: float, agreement: float
) -> None:
    mechanism = pv.BinaryVoting(sigma=sigma)
    votes, _ = electorate(yes, agreement)
    allowance = allowance_for(mechanism, VOTERS, LABELS, 8.0, 1e-5)
    # In later queries, whoever has used it up is silent; so are released labels, and that must not
    # make the allowance last longer.
    spent = np.cumsum(votes.sum(axis=2), axis=0) > allowance
    released = mechanism.release(np.where(spent[:, :, None], False, votes), seed=1)
    told = lasts(mechanism, allowance, released)
    assert told is not None
    # Before a voter with the mean number of yes-votes has run out, and not long before.
    mean = allowance / votes.sum(axis=2).mean()
    assert 0.25 * min(mean, 300) <= told <= max(1.05 * mean, allowance / LABELS + 1)


def test_agreeing_with_a_baseline_is_free() -> None:
    mechanism = pv.BinaryVoting(sigma=12.0)
    votes, wanted = electorate(0.3)
    released = mechanism.release(votes, seed=1)
    plain = lasts(mechanism, 5000, released)
    guided = lasts(mechanism, 5000, released, baseline=wanted)
    assert plain is not None
    assert guided is not None
    assert guided > 1.5 * plain


def test_what_does_not_tell_is_not_told() -> None:
    labels = np.ones((5, LABELS), np.int8)
    found = forecast(pv.BinaryVoting(sigma=900.0), VOTERS, LABELS, allowance=10**6, released=labels)
    assert (found.lasts, found.yes, found.yes_from) == (None, None, None)
    held = np.full((50, LABELS), pv.ABSTAIN, np.int8)
    assert lasts(pv.BinaryVoting(sigma=12.0), 1000, held) is None
    assert lasts(pv.BinaryVoting(sigma=12.0), 1000, labels, near=0.1) is None


def test_whole_ballots_are_one_surprise_each() -> None:
    labels = np.zeros((100, LABELS), np.int8)
    labels[:, 0] = 1
    told = lasts(pv.TauVoting(sigma=20.0, tau=1.8), 1000, labels)
    assert told is not None
    assert 800 <= told <= 1200  # whatever else a ballot holds


def test_what_was_released_before_is_gone_from_the_allowance() -> None:
    mechanism, labels = pv.BinaryVoting(sigma=12.0), np.zeros((100, LABELS), np.int8)
    labels[:, 0] = 1
    fresh = lasts(mechanism, 1000, labels)
    assert fresh is not None
    # As often before: all in all it lasts as long. Twice as often: less long; and used up: not.
    for departed, least, most in ((200, 0.85, 1.05), (400, 0.5, 0.85), (2000, 0.0, 0.32)):
        told = lasts(mechanism, 1000, labels, before=200, departed=departed)
        assert told is not None
        assert least * fresh <= told <= most * fresh
    silent = lasts(mechanism, 1000, np.zeros_like(labels), before=200, departed=2000)
    assert silent is not None
    assert silent <= 200  # those who say nothing any more do not make it last
    assert lasts(mechanism, 1000, labels, before=200) == fresh  # taken to be alike

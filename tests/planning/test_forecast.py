from __future__ import annotations

import json

import numpy as np
import pytest

import privote as pv
from privote.forecast import Forecast
from privote.ledger.totals import Earlier
from privote.planning import allowance_for, forecast
from privote.planning.forecast import Crowd

VOTERS, LABELS = 60, 12


def queries_left(
    mechanism: pv.Mechanism,
    voters: int,
    allowance: int,
    released: np.ndarray,
    *,
    baseline: np.ndarray | None = None,
    yes: float | None = None,
) -> int | None:
    guess = np.zeros(released.shape, np.bool_) if baseline is None else baseline
    return Crowd(mechanism, voters, released.shape[1]).left(allowance, released, guess, yes)


def electorate(
    yes: float, agreement: float = 0.8, queries: int = 300, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return votes and what is wanted, as the model of an electorate has it."""
    rng = np.random.default_rng(seed)
    wanted = rng.random((queries, LABELS)) < yes
    strays = (1 - agreement) * yes / (1 - yes)
    chance = np.where(wanted, agreement, strays)[:, None, :]
    return rng.random((queries, VOTERS, LABELS)) < chance, wanted


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
    assert "13% of the labels that every voter wants are missed" in loud.warnings[0]
    assert "13% of the labels that nobody wants are released" in loud.warnings[1]
    short = forecast(
        pv.BinaryVoting(sigma=12.0), VOTERS, LABELS, allowance=138, yes=0.18, asked=400
    )
    assert short.lasts == 40
    assert short.warnings == (
        "The allowance should last for 40 of 400 queries: from then on voters run out, and labels "
        "fall to the baseline: 0, unless you gave another.",
    )


def test_an_allowance_of_less_than_a_query_is_called_that() -> None:
    mechanism = pv.BinaryVoting(sigma=12.0)
    none = forecast(mechanism, VOTERS, LABELS, allowance=1, yes=0.9, asked=5)
    assert none.lasts == 0
    assert none.warnings[0].startswith(
        "The allowance should last for less than one of 5 queries: in the first voters run out"
    )
    assert any("should last for less than one query." in line for line in none.lines())


def test_facts_are_json_and_come_back() -> None:
    found = forecast(pv.BinaryVoting(sigma=37.0), VOTERS, LABELS, allowance=99, yes=0.1)
    assert Forecast.of_facts(json.loads(json.dumps(found.facts()))) == found
    assert any("yeses that nobody shared" in line for line in found.lines())
    assert found.lines()[-2:] == found.warnings


@pytest.mark.parametrize("sigma", [12.0, 20.0, 33.0])
@pytest.mark.parametrize("yes", [0.05, 0.18, 0.4])
@pytest.mark.parametrize("agreement", [0.7, 0.95])
def test_released_labels_say_when_to_stop(sigma: float, yes: float, agreement: float) -> None:
    mechanism = pv.BinaryVoting(sigma=sigma)
    votes, _ = electorate(yes, agreement)
    allowance = allowance_for(mechanism, VOTERS, LABELS, 8.0, 1e-5)
    released = mechanism.release(votes, seed=1)
    mean = votes.sum(axis=2).mean()
    for seen in (20, 100, 300):
        left = queries_left(mechanism, VOTERS, allowance, released[:seen])
        assert left is not None
        # Never beyond what a voter with the mean number of yes-votes has, and not far below.
        assert left == 0 or seen + left <= allowance / mean
        if seen == 300:
            assert left == 0 or seen + left >= 0.25 * allowance / mean


@pytest.mark.parametrize("yes", [0.18, 0.4, 0.5])
def test_rows_of_voters_who_ran_out_do_not_stretch_the_forecast(yes: float) -> None:
    mechanism = pv.BinaryVoting(sigma=15.0)
    votes, _ = electorate(yes, 0.9)
    allowance = allowance_for(mechanism, VOTERS, LABELS, 8.0, 1e-5)
    spent = np.cumsum(votes.sum(axis=2), axis=0) > allowance
    first = int(spent.any(axis=1).argmax())  # the first query on which somebody has run out
    assert 0 < first < 200
    silent = np.where(spent[:, :, None], False, votes)
    found = forecast(
        mechanism, VOTERS, LABELS, allowance=allowance, released=mechanism.release(silent, seed=1)
    )
    assert found.lasts is not None
    assert found.lasts <= first
    assert found.yes is not None
    assert found.yes >= 0.9 * votes.mean()


def test_a_stated_share_steadies_a_first_batch() -> None:
    mechanism = pv.BinaryVoting(sigma=12.0)
    few, many = np.zeros((5, 1), np.int8), np.zeros((5000, 1), np.int8)
    alone = queries_left(mechanism, VOTERS, 138, few)
    stated = queries_left(mechanism, VOTERS, 138, few, yes=0.02)
    assert alone is not None
    assert stated is not None
    assert stated > 5 * alone
    seen = queries_left(mechanism, VOTERS, 10**6, many)
    outvoted = queries_left(mechanism, VOTERS, 10**6, many, yes=0.5)
    assert seen is not None
    assert outvoted is not None
    assert outvoted > 10**7


def test_agreeing_with_a_baseline_is_free() -> None:
    mechanism = pv.BinaryVoting(sigma=12.0)
    votes, wanted = electorate(0.3)
    released = mechanism.release(votes, seed=1)
    plain = queries_left(mechanism, VOTERS, 5000, released)
    guided = queries_left(mechanism, VOTERS, 5000, released, baseline=wanted)
    assert plain is not None
    assert guided is not None
    assert guided > 1.5 * plain


def test_too_much_noise_tells_nothing() -> None:
    labels = np.ones((5, LABELS), np.int8)
    assert queries_left(pv.BinaryVoting(sigma=900.0), VOTERS, 10**6, labels) is None
    found = forecast(pv.BinaryVoting(sigma=900.0), VOTERS, LABELS, allowance=10**6, released=labels)
    assert found.lasts is None
    assert found.yes_from is None


def test_labels_held_back_tell_nothing() -> None:
    mechanism = pv.BinaryVoting(sigma=12.0)
    labels = np.full((50, LABELS), pv.ABSTAIN, np.int8)
    assert queries_left(mechanism, VOTERS, 1000, labels) is None


def test_whole_ballots_are_one_surprise_each() -> None:
    mechanism = pv.TauVoting(sigma=20.0, tau=1.8)
    labels = np.zeros((100, LABELS), np.int8)
    labels[:, 0] = 1
    left = queries_left(mechanism, VOTERS, 1000, labels)
    assert left is not None
    assert 800 <= left <= 1000


@pytest.mark.parametrize(
    ("released", "baseline", "message"),
    [
        (np.zeros(5, np.int8), None, "released must have the shape"),
        (np.zeros((0, 5), np.int8), None, "released must have the shape"),
        (np.full((5, 5), 2), None, "released must hold 1, 0 and -1"),
        (np.zeros((5, 5), np.int8), np.zeros((4, 5)), "baseline must have the shape"),
    ],
)
def test_bad_input(released: np.ndarray, baseline: np.ndarray | None, message: str) -> None:
    with pytest.raises(pv.InputError, match=message):
        forecast(pv.BinaryVoting(sigma=5.0), 50, 5, released=released, baseline=baseline)


def test_a_mechanism_of_ones_own_needs_no_hash() -> None:
    class Unhashable(pv.BinaryVoting):
        __hash__ = None  # type: ignore[assignment]

    plain, own = (
        forecast(kind(sigma=15.0), VOTERS, LABELS) for kind in (pv.BinaryVoting, Unhashable)
    )
    assert own == plain


def test_what_was_released_before_is_gone_from_the_allowance() -> None:
    mechanism, labels = pv.BinaryVoting(sigma=12.0), np.zeros((100, LABELS), np.int8)
    labels[:, 0] = 1
    fresh = forecast(mechanism, VOTERS, LABELS, allowance=1000, released=labels)
    # The same pace before: all in all it lasts as long. Twice the pace before: less long.
    for departed, least, most in ((200, 0.85, 1.05), (400, 0.5, 0.85)):
        before = Earlier(queries=200, told=200, departed=departed)
        found = forecast(mechanism, VOTERS, LABELS, allowance=1000, released=labels, earlier=before)
        assert found.answered == 300
        assert fresh.lasts is not None
        assert found.lasts is not None
        assert least * fresh.lasts <= found.lasts <= most * fresh.lasts
    untold = forecast(
        mechanism, VOTERS, LABELS, allowance=1000, released=labels, earlier=Earlier(queries=200)
    )
    assert untold.lasts == fresh.lasts  # taken to be like those that are known

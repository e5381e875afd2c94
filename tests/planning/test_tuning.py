"""Tuning: counts as real releases have them, quality as outcomes are drawn, the best is taken."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.refusals import refused

import privote as pv
from privote import planning
from privote.planning.tuning import Quality, Trial, noise_free, quality, quality_of
from privote.votes.cube import Ballots

EPSILON, DELTA = 4.0, 1e-5
BUDGET: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA}
GATE = pv.Gate(threshold=12, sigma=4)
MECHANISMS: dict[str, pv.Mechanism] = {
    "binary": pv.BinaryVoting(sigma=5.0),
    "bar": pv.BinaryVoting(sigma=5.0, quota=0.3),
    "gated": pv.BinaryVoting(sigma=5.0, gate=GATE),
    "tau": pv.TauVoting(sigma=5.0, tau=1.2),
    "powerset": pv.PowersetVoting(sigma=3.0),
    "plurality": pv.PluralityVoting(sigma=3.0),
}
BINARY = MECHANISMS["binary"]


def votes_for(mechanism: pv.Mechanism, queries: int, voters: int = 15) -> npt.NDArray[np.bool_]:
    """Return votes on 3 labels: most voters agree, some stray."""
    rng = np.random.default_rng(3)
    if mechanism.name == "plurality":
        return np.eye(3, dtype=bool)[rng.choice(3, (queries, voters), p=[0.8, 0.1, 0.1])]
    truth = rng.random((queries, 1, 3)) < 0.3
    return np.asarray(truth ^ (rng.random((queries, voters, 3)) < 0.12))


@pytest.fixture(scope="module")
def votes() -> npt.NDArray[np.bool_]:
    return votes_for(BINARY, 60)


def majority(votes: npt.NDArray[Any]) -> npt.NDArray[np.int8]:
    return np.asarray(2 * votes.sum(axis=1) > votes.shape[1]).astype(np.int8)


def count(mechanism: pv.Mechanism, votes: Any, epsilon: float, name: str) -> int:
    return planning.queries_that_fit(mechanism, votes, epsilon, DELTA)[name]


# -- how many queries fit: what a plan says is what a release does ---------------------------------


@pytest.mark.parametrize("epsilon", [0.05, 4.0], ids=["V = 0", "some"])
@pytest.mark.parametrize("name", MECHANISMS)
def test_an_allowance_lasts_as_long_as_planned(name: str, epsilon: float) -> None:
    mechanism = MECHANISMS[name]
    votes = votes_for(mechanism, 60)
    run = {"mechanism": mechanism, "epsilon": epsilon, "delta": DELTA, "seed": 1}
    run |= {"guarantee": "allowance"}
    planned = count(mechanism, votes, epsilon, "allowance")
    allowance = planning.allowance_for(mechanism, 15, 3, epsilon, DELTA)
    if epsilon < 1:
        assert (planned, allowance) == (0, 0)
        with refused(None, pv.BudgetError):
            pv.label(votes, **run)
        return
    assert 0 < planned < len(votes)
    for queries, somebody_is_out in ((planned, False), (planned + 1, True)):
        release = pv.label(votes[:queries], **run)
        assert release.allowance == allowance
        assert bool(release.sealed.refused.any()) is somebody_is_out


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_worst_case_and_sealed_prices_are_those_of_the_release(name: str) -> None:
    mechanism = MECHANISMS[name]
    votes = votes_for(mechanism, 90)
    run: dict[str, Any] = {"mechanism": mechanism, **BUDGET, "seed": 1}
    planned = count(mechanism, votes, EPSILON, "worst-case")
    assert planned == planning.queries_for(mechanism, 15, 3, EPSILON, DELTA)
    assert pv.label(votes, guarantee="worst-case", **run).answered == planned < 90
    assert count(mechanism, votes[:2], EPSILON, "worst-case") == 2
    planned = count(mechanism, votes, EPSILON, "data-dependent")
    assert 0 < planned <= 90
    for queries, fits in ((planned, True), (planned + 1, False))[: 1 + (planned < 90)]:
        release = pv.label(votes, guarantee="data-dependent", queries=queries, **run)
        assert (release.sealed.epsilon <= EPSILON) is fits


# -- how good labels are: equal to enumeration and to what is drawn --------------------------------


def by_cells(one: Any, answered: Any, wanted: npt.NDArray[np.int8]) -> dict[str, float]:
    """Return the measure the long way: cell by cell."""
    answered = np.broadcast_to(answered, wanted.shape)
    yes, no = wanted == 1, wanted == 0
    misses, alarms = (answered - one)[yes].sum(), one[no].sum()
    return {
        "wrong": (misses + alarms) / answered[yes | no].sum(),
        "missed": misses / answered[yes].sum(),
        "false_alarm": alarms / answered[no].sum(),
        "answered": answered[yes | no].mean(),
    }


@pytest.mark.parametrize("gate", [None, GATE], ids=["open", "gated"])
@pytest.mark.parametrize(
    "mechanism",
    [
        pv.BinaryVoting(sigma=2.0),
        pv.TauVoting(sigma=2.0, tau=1.5, norm=1),
        pv.PowersetVoting(sigma=1.5, max_positives=2),
        pv.PowersetVoting(sigma=1.5),
        pv.PluralityVoting(sigma=1.5),
    ],
    ids=str,
)
def test_labels_are_wrong_as_all_outcomes_say(mechanism: Any, gate: pv.Gate | None) -> None:
    mechanism = type(mechanism)(**{**vars(mechanism), "gate": gate})
    votes = votes_for(mechanism, 30)
    if mechanism.most_ones == 2:
        votes = Ballots.from_array(votes).clip(2).to_array()
    rng = np.random.default_rng(1)
    wanted = (rng.random((30, 3)) < 0.4).astype(np.int8)
    wanted[rng.random((30, 3)) < 0.1] = -1
    rows, chances = mechanism.every_outcome(3), mechanism.joint_probabilities(votes)
    expected = by_cells(chances @ (rows == 1), chances @ (rows != -1), wanted)
    found = asdict(quality(mechanism, Ballots.of(votes), wanted))
    assert found == pytest.approx(expected, rel=1e-9)


class Undisclosed(pv.BinaryVoting):
    """A mechanism that does not say its probabilities: they are seen from its draws."""

    cell_probabilities = pv.Mechanism.cell_probabilities


@pytest.mark.parametrize(
    "mechanism", [pv.PowersetVoting(sigma=1.0, gate=GATE), Undisclosed(sigma=3.0)], ids=str
)
def test_draws_are_wrong_as_often_as_said(mechanism: pv.Mechanism) -> None:
    votes, repeats = votes_for(mechanism, 12), 300
    wanted = noise_free(mechanism, Ballots.of(votes))
    found = quality(mechanism, Ballots.of(votes), wanted)
    drawn = mechanism.release(np.concatenate([votes] * repeats), seed=999)
    seen = quality_of(drawn, np.concatenate([wanted] * repeats))
    # Cells of a query may hang together, so a query counts as one draw.
    slack = 4 * np.sqrt(0.25 / (12 * repeats)) * (2 if isinstance(mechanism, Undisclosed) else 1)
    assert abs(found.wrong - seen.wrong) < slack
    assert abs(found.answered - seen.answered) < slack


def test_what_is_wanted_without_noise() -> None:
    votes = np.array([[[1, 1, 0], [1, 1, 0], [1, 0, 0], [0, 0, 1]]], bool)

    def wanted(mechanism: pv.Mechanism, votes: Any = votes) -> list[int]:
        return list(noise_free(mechanism, Ballots.of(votes))[0].astype(int))

    assert wanted(pv.BinaryVoting(sigma=9.0)) == [1, 0, 0]  # two of four are a tie, not a majority
    assert wanted(pv.BinaryVoting(sigma=9.0, quota=0.3)) == [1, 1, 0]
    # Clipped, no label would have half of the voters: whole ballots are what is wanted.
    assert wanted(pv.TauVoting(sigma=9.0, tau=0.5)) == [1, 0, 0]
    assert wanted(pv.PowersetVoting(sigma=9.0)) == [1, 0, 0]
    plural = np.eye(4, dtype=bool)[[[0, 0, 1, 2, 3]]]
    assert wanted(pv.PluralityVoting(sigma=1.0), plural) == [1, 0, 0, 0]
    assert wanted(pv.PluralityVoting(sigma=1.0), np.zeros((1, 3, 2), bool)) == [0, 0]


# -- which to take ---------------------------------------------------------------------------------


def noises(*sigmas: float) -> list[pv.Mechanism]:
    return [pv.BinaryVoting(sigma=sigma) for sigma in sigmas]


@pytest.mark.parametrize("guarantee", ["allowance", "worst-case", "data-dependent"])
@pytest.mark.parametrize("drop", [0.2, 0.05, 0.015])
def test_the_chosen_one_is_the_best_of_the_grid(votes: Any, guarantee: str, drop: float) -> None:
    tried = noises(1.5, 3.0, 4.0, 6.0, 9.0, 14.0)
    chosen = planning.tune(votes, tried, **BUDGET, guarantee=guarantee, drop=drop).chosen
    best = (0, 0.0)
    for mechanism in tried:
        one = mechanism.outcome_probabilities(votes)[..., 1]
        wrong = float(np.where(majority(votes) == 1, 1 - one, one).mean())
        if wrong <= drop:
            best = max(best, (count(mechanism, votes, EPSILON, guarantee), -wrong))
    assert (chosen is None) == (best[0] == 0)
    if chosen is not None:
        assert (chosen.fits[guarantee], -chosen.quality.wrong) == pytest.approx(best)


def trial(sigma: float, queries: int, wrong: float, answered: float = 1.0) -> Trial:
    return Trial(
        mechanism=pv.BinaryVoting(sigma=sigma),
        fits={"allowance": queries},
        quality=Quality(wrong=wrong, missed=0.1, false_alarm=0.0, answered=answered),
        noise_free=Quality(wrong=0.1, missed=0.1, false_alarm=0.1),
    )


@pytest.mark.parametrize(("drop", "sigma"), [(0.0, 4), (0.02, 2), (0.2, 3)])
def test_most_labels_that_are_still_good_are_chosen(drop: float, sigma: float) -> None:
    some = trial(1, 5, 0.1), trial(2, 20, 0.11), trial(3, 40, 0.2), trial(4, 30, 0.1, answered=0.5)
    size = {"against": "truth", "queries": 99, "voters": 9, "labels": 4}
    chosen = planning.Tuning(trials=some, **size, **BUDGET, drop=drop).chosen
    assert chosen is not None
    assert chosen.mechanism == pv.BinaryVoting(sigma=sigma)
    for bad in (trial(1, 0, 0.1), trial(1, 9, 0.5), trial(1, 9, math.nan, answered=0.0)):
        assert planning.Tuning(trials=[bad], **size, **BUDGET).chosen is None


def test_grids() -> None:
    sigmas = [each.parameters()["sigma"] for each in planning.candidates("sigma", BINARY, 15, 3)]
    assert sigmas == sorted(sigmas)
    assert sigmas[0] < 15 / 20 < 15 < sigmas[-1]
    for norm in (1, 2):
        tau = pv.TauVoting(sigma=5.0, tau=1.0, norm=norm)
        taus = [each.parameters()["tau"] for each in planning.candidates("tau", tau, 15, 9)]
        assert (taus[0], taus[-1]) == (1, 9 ** (1 / norm))  # up to no clipping
    with refused("mechanism"):
        planning.candidates("tau", BINARY, 15, 3)


def test_mechanisms_side_by_side(votes: Any) -> None:
    tuning = planning.tune(votes, planning.variants(15, 3.0), **BUDGET)
    names = [each.mechanism.name for each in tuning.trials]
    assert names[:4] == ["binary", "tau", "tau", "powerset"]
    assert list(tuning.left_out) == ["plurality (sigma=3)"]
    assert {each.mechanism.parameters().get("sigma", 3.0) for each in tuning.trials} == {3.0}


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("delta", {"delta": 1.0}),
        ("truth", {"truth": np.zeros((3, 3))}),
        ("truth", {"truth": np.full((60, 3), 2)}),
        ("mechanisms", {"mechanisms": [pv.PluralityVoting(sigma=1.0)]}),
        ("mechanisms", {"mechanisms": []}),
    ],
)
def test_bad_arguments(votes: Any, argument: str, changes: dict[str, Any]) -> None:
    with refused(argument):
        planning.tune(votes, **{"mechanisms": [BINARY], **BUDGET, **changes})

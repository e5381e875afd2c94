"""Tuning: counts as real releases have them, quality as outcomes are drawn, the best is taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.refusals import refused

import privote as pv
from privote.audit.exact import book_of, row_probabilities
from privote.planning.tuning import Trial, tune

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


def only(mechanism: Any, votes: Any, truth: Any = None, **how: Any) -> Trial:
    """Return the one trial of a mechanism as it is."""
    settings = {"sigma": [mechanism.sigma]}
    _, (trial,) = tune(votes, mechanism, truth, **{**BUDGET, "settings": settings, **how})
    assert trial.mechanism == mechanism
    return trial


# -- how many queries fit: what is counted is what a release does ----------------------------------


@pytest.mark.parametrize("epsilon", [0.05, 4.0], ids=["V = 0", "some"])
@pytest.mark.parametrize("name", MECHANISMS)
def test_an_allowance_lasts_as_long_as_counted(name: str, epsilon: float) -> None:
    mechanism = MECHANISMS[name]
    votes = votes_for(mechanism, 60)
    run = {"mechanism": mechanism, "epsilon": epsilon, "delta": DELTA, "seed": 1}
    run |= {"guarantee": "allowance"}
    fit = only(mechanism, votes, epsilon=epsilon).queries
    if epsilon < 1:
        assert fit == 0
        with refused(None, pv.BudgetError):
            pv.label(votes, **run)
        return
    assert 0 < fit < len(votes)
    for queries, somebody_is_out in ((fit, False), (fit + 1, True)):
        release = pv.label(votes[:queries], **run)
        assert bool(release.sealed.clipped.any()) is somebody_is_out


# -- how good labels are: equal to enumeration -----------------------------------------------------


@pytest.mark.parametrize("gate", [None, GATE], ids=["open", "gated"])
@pytest.mark.parametrize(
    "mechanism",
    [
        pv.BinaryVoting(sigma=2.0),
        pv.TauVoting(sigma=2.0, tau=1.5, norm=1),
        pv.PowersetVoting(sigma=1.5, max_positives=2),
        pv.PluralityVoting(sigma=1.5),
    ],
    ids=str,
)
def test_labels_are_wrong_as_all_outcomes_say(mechanism: Any, gate: pv.Gate | None) -> None:
    mechanism = replace(mechanism, gate=gate)
    votes = votes_for(mechanism, 30)
    if mechanism.max_positives == 2:
        votes = pv.Ballots.from_array(votes).clip(2).to_array()
    rng = np.random.default_rng(1)
    wanted = (rng.random((30, 3)) < 0.4).astype(np.int8)
    wanted[rng.random((30, 3)) < 0.1] = -1
    rows = book_of(mechanism, 15, 3).outcomes
    chances = row_probabilities(mechanism.outcome_probabilities(votes), rows)
    one, answered = chances @ (rows == 1), chances @ (rows != -1)
    bad, known = np.where(wanted == 1, answered - one, one), wanted != -1
    answered = np.broadcast_to(answered, wanted.shape)
    trial = only(mechanism, votes, wanted)
    assert trial.wrong == pytest.approx(bad[known].sum() / answered[known].sum(), rel=1e-9)
    by_label = (bad * known).sum(axis=0) / (answered * known).sum(axis=0)
    assert trial.wrong_by_label == pytest.approx(by_label, rel=1e-9)
    assert trial.answered == pytest.approx(answered[known].mean(), rel=1e-9)


def test_without_a_truth_labels_are_compared_with_the_votes_without_noise() -> None:
    votes = np.array([[[1, 1, 0], [1, 1, 0], [1, 0, 0], [0, 0, 1]]], bool)
    for mechanism, wanted in (
        (pv.BinaryVoting(sigma=0.01), [1, 0, 0]),  # two of four are a tie, not a majority
        (pv.BinaryVoting(sigma=0.01, quota=0.3), [1, 1, 0]),
    ):
        same = only(mechanism, votes, [wanted])
        assert (same.noise_free, only(mechanism, votes).noise_free) == (0, 0)
        assert only(mechanism, votes, [[1 - one for one in wanted]]).noise_free == 1


# -- which to take ---------------------------------------------------------------------------------


@pytest.mark.parametrize("drop", [0.2, 0.015])
def test_the_best_answers_most_labels_that_are_still_good(drop: float) -> None:
    votes, sigmas = votes_for(BINARY, 60), [1.5, 4.0, 9.0, 14.0]
    best, trials = tune(votes, BINARY, settings={"sigma": sigmas}, **BUDGET, drop=drop)
    assert [trial.mechanism for trial in trials] == [pv.BinaryVoting(sigma=s) for s in sigmas]
    majority = 2 * votes.sum(axis=1) > votes.shape[1]
    most = (0, 0.0)
    for trial in trials:
        one = trial.mechanism.outcome_probabilities(votes)[..., 1]
        wrong = float(np.where(majority, 1 - one, one).mean())
        if wrong <= drop:
            most = max(most, (trial.queries, -wrong))
    assert (best is None) == (most[0] == 0)
    if best is not None:
        assert (best.queries, -best.wrong) == pytest.approx(most)


def test_every_combination_is_tried() -> None:
    gated = pv.TauVoting(sigma=5.0, tau=1.2, gate=GATE)
    settings = {"tau": [1.0, 2.0], "gate_threshold": [8.0, 12.0], "gate_sigma": [2.0, 4.0]}
    _, trials = tune(votes_for(BINARY, 5), gated, **BUDGET, settings=settings)
    tried = {(t.mechanism.tau, t.mechanism.gate.threshold, t.mechanism.gate.sigma) for t in trials}  # type: ignore[attr-defined]
    assert len(tried) == len(trials) == 8


def test_each_label_gets_the_threshold_that_suits_it() -> None:
    rng = np.random.default_rng(0)
    truth = rng.random((40, 2)) < 0.5
    low, high = [0.2, 0.6], [0.4, 0.8]  # of one label all chances are low, of the other high
    chances = np.where(truth, high, low)[:, None] + rng.normal(0, 0.05, (40, 15, 2))
    settings = {"sigma": [2.0, 3.0], "threshold": [0.3, 0.5, 0.7]}
    best, trials = tune(chances.clip(0, 1), BINARY, truth, **BUDGET, settings=settings)
    assert len(trials) == 7
    assert best is trials[-1]
    assert best.threshold == (0.3, 0.7)
    assert best.wrong < 0.05 < min(trial.wrong for trial in trials[:-1])


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("delta", {"delta": 1.0}),
        ("drop", {"drop": 2}),
        ("truth", {"truth": np.zeros((3, 3))}),
        ("truth", {"settings": {"threshold": [0.5]}}),
        *(("settings", {"settings": bad}) for bad in ({}, {"tau": [1.0]}, {"gate_sigma": [1.0]})),
        ("settings", {"settings": {"noise": [1.0]}}),
    ],
)
def test_bad_arguments(argument: str, changes: dict[str, Any]) -> None:
    asked = {"settings": {"sigma": [5.0]}, **BUDGET, **changes}
    with refused(argument):
        tune(votes_for(BINARY, 60), BINARY, **asked)

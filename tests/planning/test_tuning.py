"""Tuning: trials equal brute force and real runs; the choice is the best there is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.refusals import refused

import privote as pv
from privote import planning
from privote.votes.cube import Ballots

EPSILON, DELTA = 4.0, 1e-5
BUDGET: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA}
BINARY = pv.BinaryVoting(sigma=5.0)


@pytest.fixture(scope="module")
def votes() -> npt.NDArray[np.bool_]:
    """Return (60 queries, 15 voters, 3 labels): most agree, some stray."""
    rng = np.random.default_rng(3)
    wanted = rng.random((60, 1, 3)) < 0.3
    return np.asarray(wanted ^ (rng.random((60, 15, 3)) < 0.12))


def majority(votes: npt.NDArray[Any]) -> npt.NDArray[np.int8]:
    return np.asarray(2 * votes.sum(axis=1) > votes.shape[1]).astype(np.int8)


@pytest.fixture(scope="module")
def truth(votes: npt.NDArray[np.bool_]) -> npt.NDArray[np.int8]:
    rng = np.random.default_rng(4)
    known = np.where(rng.random((60, 3)) < 0.1, 1 - majority(votes), majority(votes))
    known[rng.random((60, 3)) < 0.05] = -1
    return known.astype(np.int8)


def noises(*sigmas: float) -> list[pv.Mechanism]:
    return [pv.BinaryVoting(sigma=sigma) for sigma in sigmas]


def test_noise_answers_more_and_worse(votes: Any, truth: Any) -> None:
    calls: list[tuple[int, int]] = []
    tuning = planning.tune(
        votes, noises(3, 6, 12, 24), truth, **BUDGET, progress=lambda *step: calls.append(step)
    )
    assert calls == [(0, 4), (1, 4), (2, 4), (3, 4)]
    worst = [trial.fits["worst-case"] or 0 for trial in tuning.trials]
    wrong = [trial.quality.wrong for trial in tuning.trials]
    assert worst == sorted(worst)
    assert worst[0] < worst[-1]
    assert wrong == sorted(wrong)
    assert tuning.against == "truth"
    assert tuning.trials[0].noise_free == planning.quality_of(majority(votes), truth)


def test_each_trial_is_what_the_counter_and_the_measure_say(votes: Any, truth: Any) -> None:
    gated = pv.BinaryVoting(sigma=5.0, gate=pv.Gate(threshold=12, sigma=4))
    mechanisms = [BINARY, gated, pv.TauVoting(sigma=5.0, tau=1.2), pv.TallyVoting(sigma=3.0)]
    for trial in planning.tune(votes, mechanisms, truth, **BUDGET).trials:
        assert trial.fits == planning.queries_that_fit(trial.mechanism, votes, EPSILON, DELTA)
        assert trial.quality == planning.quality(trial.mechanism, Ballots.of(votes), truth)


def test_without_truth_the_majority_is_the_reference(votes: Any) -> None:
    tuning = planning.tune(votes, noises(0.01), **BUDGET)
    assert tuning.against == "noise-free majority"
    assert tuning.trials[0].noise_free.wrong == 0
    assert tuning.trials[0].quality.wrong == pytest.approx(0)


def test_whatever_is_found_says_that_it_is_not_private(votes: Any) -> None:
    facts = planning.tune(votes, noises(5, 9), **BUDGET).facts()
    assert next(iter(facts)) == "note"
    assert facts["note"] == planning.NOT_PRIVATE
    assert facts["private"] is False
    assert facts["trials"][1]["parameters"] == {"mechanism": "binary", "sigma": 9.0}


@pytest.mark.parametrize("guarantee", ["allowance", "worst-case", "data-dependent"])
@pytest.mark.parametrize("drop", [0.2, 0.05, 0.015])
def test_the_chosen_one_is_the_best_of_the_grid(votes: Any, guarantee: str, drop: float) -> None:
    tried = noises(1.5, 3.0, 4.0, 6.0, 9.0, 14.0)
    chosen = planning.tune(votes, tried, **BUDGET, guarantee=guarantee, drop=drop).chosen
    best = (0, 0.0)
    for mechanism in tried:
        one = mechanism.outcome_probabilities(votes)[..., 1]
        wrong = float(np.where(majority(votes) == 1, 1 - one, one).mean())
        queries = planning.queries_that_fit(mechanism, votes, EPSILON, DELTA)[guarantee]
        if wrong <= drop:
            best = max(best, (queries or 0, -wrong))
    assert (chosen is None) == (best[0] == 0)
    if chosen is not None:
        assert (chosen.fits[guarantee], -chosen.quality.wrong) == pytest.approx(best)


def trial(sigma: float, queries: int, wrong: float, answered: float = 1.0) -> planning.Trial:
    return planning.Trial(
        mechanism=pv.BinaryVoting(sigma=sigma),
        fits={"allowance": queries},
        quality=planning.Quality(wrong=wrong, missed=0.1, false_alarm=0.0, answered=answered),
        noise_free=planning.Quality(wrong=0.1, missed=0.1, false_alarm=0.1),
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


def test_the_chosen_mechanism_releases_what_was_said(votes: Any) -> None:
    grid = planning.candidates("sigma", BINARY, 15, 3)
    chosen = planning.tune(votes, grid, **BUDGET, drop=0.05).chosen
    assert chosen is not None
    queries = chosen.fits["allowance"]
    release = pv.label(
        votes[:queries], mechanism=chosen.mechanism, guarantee="allowance", seed=0, **BUDGET
    )
    assert release.sealed.spent.sum() == votes[:queries].sum()


def test_grids() -> None:
    sigmas = [each.parameters()["sigma"] for each in planning.candidates("sigma", BINARY, 15, 3)]
    assert sigmas == sorted(sigmas)
    assert sigmas[0] < 15 / 20 < 15 < sigmas[-1]
    for norm in (1, 2):
        tau = pv.TauVoting(sigma=5.0, tau=1.0, norm=norm)
        taus = [each.parameters()["tau"] for each in planning.candidates("tau", tau, 15, 9)]
        assert taus[0] == 1
        assert taus[-1] == 9 ** (1 / norm)  # no clipping
    link = pv.BinaryVoting(link=pv.OptimalLink(cost=1.0, order=4.0))
    (same,) = planning.candidates("sigma", link, 15, 3, [5.0])
    assert isinstance(same, pv.BinaryVoting)
    assert same.link is not None
    # At the bar, and at its own order, a vote costs about as much as with that sigma.
    at = same.link.cost / BINARY.surprise_rdp(15, 3, [4.0])[0]
    assert at == pytest.approx(1.0, rel=0.15)
    with refused("mechanism"):
        planning.candidates("tau", BINARY, 15, 3)


def test_mechanisms_side_by_side(votes: Any) -> None:
    tuning = planning.tune(votes, planning.variants(15, EPSILON, DELTA, 3.0), **BUDGET)
    names = [each.mechanism.name for each in tuning.trials]
    assert names == ["binary", "binary", "tau", "tau", "powerset"]
    assert list(tuning.left_out) == ["plurality (sigma=3)"]
    assert {each.mechanism.parameters().get("sigma", 3.0) for each in tuning.trials} == {3.0}
    for each in tuning.trials:
        exact, published = each.fits["data-dependent"], each.fits["published"]
        assert exact is not None
        assert published is None or published <= exact


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("epsilon", {"epsilon": 0}),
        ("delta", {"delta": 1.0}),
        ("guarantee", {"guarantee": "hope"}),
        ("drop", {"drop": -1}),
        ("truth", {"truth": np.zeros((3, 3))}),
        ("baseline", {"baseline": np.zeros((5, 3))}),
        ("mechanisms", {"mechanisms": [pv.PluralityVoting(sigma=1.0)]}),
        ("mechanisms", {"mechanisms": []}),
    ],
)
def test_bad_arguments(votes: Any, argument: str, changes: dict[str, Any]) -> None:
    with refused(argument):
        planning.tune(votes, **{"mechanisms": [BINARY], **BUDGET, **changes})

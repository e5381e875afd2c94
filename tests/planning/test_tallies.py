"""A plan: what public numbers say of labels, and how near that is to labels of real votes."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv
from privote.accounting.allowance import gaussian_delta, learning_epsilon, mu_of_budget, settled
from privote.datasets import load_teacher_votes
from privote.planning import Plan, outlook, tallies
from privote.posterior import posterior

SIZE: dict[str, Any] = {"voters": 60, "labels": 20, "epsilon": 8.0, "delta": 1e-5}


def plan(**numbers: Any) -> Plan:
    return pv.plan(**{**SIZE, "queries": 400, "yes": 0.05, **numbers})


def test_noise_is_what_learning_leaves() -> None:
    need, epsilon0 = 0.05 * 400 * 20, learning_epsilon(settled(8.0, 1e-5)[1], 60)
    planned = plan()
    assert planned.learns
    assert need <= planned.allowance <= 1.25 * need * 1.08
    mu = math.sqrt(2 * planned.allowance) / planned.sigma
    assert mu == pytest.approx(mu_of_budget(8.0, 1e-5, epsilon0))
    assert gaussian_delta(mu, 8.0) < 1e-5  # the learning costs something, too
    assert planned.noise_per_voter == planned.sigma / 60


@pytest.mark.parametrize(("voters", "epsilon"), [(60, 8.0), (250, 2.0), (12, 1.0)])
@pytest.mark.parametrize("yes", [0.02, 0.2])
def test_the_noise_of_releases_lies_in_the_range(voters: int, epsilon: float, yes: float) -> None:
    rng = np.random.default_rng(7)
    size = {"voters": voters, "labels": 20, "queries": 400, "epsilon": epsilon, "delta": 1e-5}
    expected = outlook(**size)
    for seed in range(3):
        votes = rng.random((400, voters, 20)) < yes
        release = pv.label(votes, epsilon=epsilon, delta=1e-5, anyway=True, seed=seed)
        sigma = release.guarantee.mechanism["sigma"]
        # Voters are alike but for chance, by which the learnt allowance may miss the mean need.
        assert 0.97 * expected.sigma_low <= sigma <= 1.03 * expected.sigma_high
    assert expected.drowned is (voters == 12)
    assert ("at least the number of voters" in str(expected)) is expected.drowned
    assert "pilot" in str(expected)


@pytest.mark.parametrize("kind", tallies.VOTERS)
def test_quality_is_that_of_drawn_tallies(kind: str) -> None:
    rng = np.random.default_rng(1)
    planned = plan(voters=60, labels=12, queries=3000, yes=0.08)
    falls, divided = tallies.VOTERS[kind]
    share, many = tallies.label_shares(12, 0.08, falls)
    assert many.tolist() == [1.0] * 12
    assert share.mean() == pytest.approx(0.08)
    true = rng.binomial(60, rng.beta(divided * share, divided * (1 - share), (3000, 12)))
    released = np.rint(true + planned.sigma * rng.standard_normal(true.shape)).astype(np.int64)
    ones = posterior(released, sigma=planned.sigma, voters=60).labels("likely")
    f1 = 2 * (ones & (true > 30)).sum() / (ones.sum() + (true > 30).sum())
    assert planned.quality[kind]["f1"] == pytest.approx(f1, abs=0.06)


def test_the_range_goes_from_clear_to_unclear_voters() -> None:
    for numbers in ({}, {"voters": 250}, {"epsilon": 3.0, "labels": 15, "yes": 0.08}):
        clear, middling, unclear = (each["f1"] for each in plan(**numbers).quality.values())
        assert clear > middling > unclear or unclear == 0
    # Sixty models whose labels are all rare had an F1 of .05 here.
    wide = plan(voters=60, labels=15, queries=500, epsilon=3.0, yes=0.08).quality
    assert wide["unclear"]["f1"] < 0.05 < wide["clear"]["f1"]


@pytest.mark.parametrize(
    "numbers",
    [
        {"voters": 1, "labels": 1, "queries": 1},
        {"voters": 100_000, "labels": 1000, "queries": 1_000_000},
        {"voters": 10**7, "labels": 10**6, "queries": 10**7, "epsilon": 0.1},
        {"yes": 1e-9},
        {"yes": 0.5},
        {"yes": 0.999},
        {"epsilon": 500.0},
        {"epsilon": 0.01},
    ],
)
def test_any_numbers_give_a_plan(numbers: dict[str, Any]) -> None:
    planned = plan(**numbers)
    for quality in planned.quality.values():
        assert all(0 <= value <= 1 + 1e-9 for value in quality.values())
    assert planned.sigma > 0
    json.dumps(planned.facts())


@pytest.mark.parametrize(
    ("numbers", "argument"),
    [
        ({"yes": 0.0}, "yes"),
        ({"yes": math.nan}, "yes"),
        ({"labels": 1.5}, "labels"),
        ({"queries": -1}, "queries"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
    ],
)
def test_bad_numbers(numbers: dict[str, Any], argument: str) -> None:
    with refused(argument):
        plan(**numbers)


# -- beside labels of real votes -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tmc2007", "tmc2007-250", "voc2012"])
def test_labels_of_real_votes_are_within_the_range(name: str) -> None:
    every = load_teacher_votes(name).votes
    for queries in (300, 1000):
        votes = every[np.random.default_rng(0).permutation(len(every))[:queries]]
        wanted = votes.sum(axis=1) > votes.shape[1] / 2
        for epsilon in (8.0, 4.0, 2.0, 1.0):
            release = pv.label(votes, epsilon=epsilon, delta=1e-5, anyway=True, seed=0)
            planned = plan(
                voters=votes.shape[1],
                labels=votes.shape[2],
                queries=queries,
                epsilon=epsilon,
                yes=float(votes.mean()),
            )
            assert 0.75 < planned.sigma / release.guarantee.mechanism["sigma"] < 1.35
            ones = release.labels == 1
            f1 = 2 * (ones & wanted).sum() / max(1, ones.sum() + wanted.sum())
            clear, middling, unclear = (each["f1"] for each in planned.quality.values())
            print(
                f"{name} {queries} {epsilon:g}: {f1:.2f}, {unclear:.2f} {middling:.2f} {clear:.2f}"
            )
            assert unclear - 0.05 <= f1 <= clear + 0.1

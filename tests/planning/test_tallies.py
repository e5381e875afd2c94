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
from privote.deciding import posterior
from privote.planning import Plan, tallies

SIZE: dict[str, Any] = {"voters": 60, "labels": 20, "epsilon": 8.0, "delta": 1e-5}


def plan(**numbers: Any) -> Plan:
    return pv.plan(**{**SIZE, "queries": 400, "yes": 0.05, **numbers})


def test_noise_is_what_learning_leaves() -> None:
    found = plan()
    assert found.learns
    need = 0.05 * 400 * 20
    assert need <= found.allowance <= 1.25 * need * 1.08
    order, rho = settled(8.0, 1e-5)
    epsilon0 = learning_epsilon(rho, 60)
    mu = math.sqrt(2 * found.allowance) / found.sigma
    assert mu == pytest.approx(mu_of_budget(8.0, 1e-5, epsilon0))
    assert gaussian_delta(mu, 8.0) < 1e-5  # the learning costs something, too
    shared = plan(shared=True)
    mu = math.sqrt(2 * shared.allowance) / shared.sigma
    assert order * (mu**2 / 2 + epsilon0**2 / 8) == pytest.approx(order * rho)
    assert 0.9 < found.sigma / shared.sigma < 0.95
    assert found.noise_per_voter == found.sigma / 60


def test_quality_is_that_of_drawn_tallies() -> None:
    rng = np.random.default_rng(1)
    size = tallies.Size(voters=60, labels=12, queries=3000, yes=0.08)
    found = plan(voters=60, labels=12, queries=3000, yes=0.08)
    share, many = size.shares()
    assert many.tolist() == [1.0] * 12
    assert share.mean() == pytest.approx(0.08)
    assert (np.diff(share) < 0).all()
    chance = rng.beta(0.6 * share, 0.6 * (1 - share), (3000, 12))
    true = rng.binomial(60, chance)
    released = np.rint(true + found.sigma * rng.standard_normal(true.shape)).astype(np.int64)
    said = posterior(released, sigma=found.sigma, voters=60)
    assert found.wanted == pytest.approx((true > 30).sum(), rel=0.1)
    for by, quality in (("likely", found.quality), ("f1", found.quality_by_f1)):
        ones, wanted = said.labels(released, by), true > 30
        f1 = 2 * (ones & wanted).sum() / (ones.sum() + wanted.sum())
        assert quality["f1"] == pytest.approx(f1, abs=0.04)
    assert found.quality_by_f1["f1"] >= found.quality["f1"] - 0.01


@pytest.mark.parametrize("shared", [False, True])
def test_what_is_needed_is_enough_and_not_much_more(shared: bool) -> None:
    found = plan(shared=shared)
    assert found.quality["f1"] < found.target
    for name, many in found.needed.items():
        assert many is not None
        enough = plan(shared=shared, **{name: many})
        assert enough.quality["f1"] >= found.target - 0.02
        short = {"voters": 0.85, "queries": 1.3, "epsilon": 0.85}[name] * many
        less = plan(shared=shared, **{name: short if name == "epsilon" else int(short)})
        assert less.quality["f1"] < found.target
    assert "this should be enough" in found.changes[-1]
    assert plan(voters=400).needed == {}


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
    found = plan(**numbers)
    for quality in (found.quality, found.quality_by_f1):
        assert all(0 <= value <= 1 + 1e-9 for value in quality.values())
    assert found.sigma > 0
    if found.wanted < 0.5:
        assert found.needed == {}
        assert "no label at all" in found.changes[0]
    json.dumps(found.facts())


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
def test_real_votes_are_about_as_good_as_planned(name: str) -> None:
    # F1 was off by .07 on average, at most .24 too low (tmc2007-250 at 1) and .11 too high.
    every, errors = load_teacher_votes(name).votes, []
    for queries in (300, 1000):
        votes = every[np.random.default_rng(0).permutation(len(every))[:queries]]
        wanted = votes.sum(axis=1) > votes.shape[1] / 2
        for epsilon in (8.0, 4.0, 2.0, 1.0):
            release = pv.label(votes, epsilon=epsilon, delta=1e-5, seed=0)
            found = plan(
                voters=votes.shape[1],
                labels=votes.shape[2],
                queries=queries,
                epsilon=epsilon,
                yes=float(votes.mean()),
            )
            assert 0.75 < found.sigma / release.mechanism["sigma"] < 1.35
            for by, quality in (("likely", found.quality), ("f1", found.quality_by_f1)):
                ones = pv.decide(release, by=by).labels == 1
                f1 = 2 * (ones & wanted).sum() / max(1, ones.sum() + wanted.sum())
                errors.append(quality["f1"] - f1)
                print(f"{name} {queries} {epsilon:g} {by}: {f1:.2f}, planned {quality['f1']:.2f}")
                assert epsilon < 4 or abs(errors[-1]) < 0.2
    assert np.abs(errors).mean() < 0.15
    assert np.max(errors) < 0.2  # too high

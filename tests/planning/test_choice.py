"""Settings that nobody named: by public numbers, and the same again where an allowance goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privote as pv

BUDGET: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5}


def votes(queries: int, voters: int, labels: int, yes: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    truth = rng.random((queries, 1, labels)) < yes
    return rng.random((queries, voters, labels)) < np.where(truth, 0.95, 0.005)


def test_a_mechanism_that_is_not_named_is_the_advised_one() -> None:
    release = pv.label(votes(50, 60, 12, 0.1), **BUDGET, seed=0)
    advice = pv.advise(voters=60, labels=12, queries=50, **BUDGET)
    assert release.mechanism == advice.mechanism.parameters()
    assert release.guarantee == advice.guarantee
    assert "so 0.1 of all votes was taken" in release.reasons[0]  # nobody stated a share of yes
    assert release.reasons[1 : 1 + len(advice.reasons)] == advice.reasons
    assert release.forecast is not None
    assert release.forecast.missed == pytest.approx(advice.missed)


def test_one_query_with_dense_ballots_takes_the_worst_case() -> None:
    ballots = np.zeros((1, 500, 5), bool)
    for place, count in enumerate((274, 200, 180, 150, 100)):
        ballots[0, :count, place] = True
    tries = [pv.label(ballots, epsilon=1.0, delta=1e-5, yes=0.4, seed=s) for s in range(40)]
    assert {one.guarantee for one in tries} == {"worst-case"}
    assert np.mean([one.labels[0, 0] for one in tries]) >= 0.9


def test_fewer_queries_where_all_would_need_too_much_noise() -> None:
    many = votes(3000, 40, 12, 0.2)
    with pytest.warns(pv.PrivoteWarning, match="is enough for all 3,000 queries"):
        release = pv.label(many, **BUDGET, yes=0.2, seed=0)
    assert release.answered < release.asked == 3000
    assert release.forecast is not None
    assert release.forecast.missed <= 0.1
    with pytest.warns(pv.PrivoteWarning, match="of the labels that every voter wants are missed"):
        every = pv.label(many, **BUDGET, yes=0.2, queries="all", seed=0)
    assert every.answered == 3000
    with pytest.raises(pv.BudgetError, match=r"^Nothing is released, and nothing charged\. No num"):
        pv.label(many[:, :2], epsilon=0.1, delta=1e-5)


def test_an_allowance_goes_on_with_its_own_settings(tmp_path: Path) -> None:
    run = {**BUDGET, "ledger": tmp_path / "l.db"}
    first = pv.label(votes(20, 60, 12, 0.1), **run, yes=0.05)
    assert first.guarantee == "allowance"
    again = pv.label(votes(5, 60, 12, 0.1, seed=1), **run)  # advice alone would be another
    assert again.mechanism == first.mechanism
    assert again.so_far == 25
    assert "goes on with it" in again.reasons[0]
    kinds = [entry["kind"] for entry in pv.Ledger.open(tmp_path / "l.db").published()]
    assert kinds.count("charge") == 1
    with pytest.raises(pv.BudgetError, match="No number of queries can be answered well"):
        pv.label(votes(5, 7, 12, 0.1), **run)  # other voters, and hardly anything is left
    assert again.left is not None
    assert again.left < 0.1


def test_a_budget_that_is_spent_is_refused_before_anything_else(tmp_path: Path) -> None:
    ledger, mechanism = tmp_path / "l.db", pv.BinaryVoting(sigma=9.0)
    few = votes(3, 60, 12, 0.1)
    pv.label(few, **BUDGET, mechanism=mechanism, guarantee="ptr", queries=3, ledger=ledger)
    with pytest.raises(pv.BudgetError, match="nothing is left of the budget"):
        pv.label(few, **BUDGET, ledger=ledger)


def test_advice_is_for_what_is_left(tmp_path: Path) -> None:
    ledger, few = tmp_path / "l.db", votes(3, 60, 12, 0.1)
    worst = {"guarantee": "worst-case", "mechanism": pv.BinaryVoting(sigma=40.0)}
    pv.label(few, **BUDGET, **worst, ledger=ledger, queries=3)
    release = pv.label(votes(100, 60, 12, 0.1), **BUDGET, ledger=ledger, yes=0.1)
    fresh = pv.label(votes(100, 60, 12, 0.1), **BUDGET, yes=0.1)
    assert release.answered > 50
    assert release.mechanism["sigma"] > fresh.mechanism["sigma"]
    assert pv.Ledger.open(ledger).standing()[0]["used"] <= 8.0


def test_a_named_mechanism_takes_the_better_guarantee(tmp_path: Path) -> None:
    short, dense = votes(200, 60, 20, 0.05), votes(3, 60, 2, 0.5)
    binary = pv.BinaryVoting(sigma=20.0)
    assert pv.label(short, **BUDGET, mechanism=binary, yes=0.05).guarantee == "allowance"
    assert pv.label(dense, **BUDGET, mechanism=binary, yes=0.5).guarantee == "worst-case"
    named = pv.label(
        dense, **BUDGET, mechanism=binary, yes=0.5, voter_ids=[f"v{n}" for n in range(60)]
    )
    assert named.guarantee == "allowance"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"mechanism": "binary"}, r"mechanism must be auto or .*, such as BinaryVoting\(sig"),
        ({"guarantee": "ptr", "queries": 3}, "mechanism must be given with"),
        ({"queries": "most"}, "queries must be a number, all, or nothing"),
        ({"mechanism": pv.BinaryVoting(sigma=9.0), "quality": 0.2}, "quality goes with"),
        ({"yes": 1.5}, "yes must lie strictly between 0 and 1"),
    ],
)
def test_bad_settings_charge_nothing(setting: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(pv.InputError, match=said):
        pv.label(votes(5, 10, 3, 0.1), **BUDGET, **setting, ledger=tmp_path / "l.db")
    assert not (tmp_path / "l.db").exists()


def test_what_is_to_be_expected_is_saved_and_said(tmp_path: Path) -> None:
    release = pv.label(votes(30, 60, 12, 0.1), **BUDGET, output=tmp_path / "r.npz")
    again = pv.Release.load(tmp_path / "r.npz")
    assert again.forecast == release.forecast
    assert again.reasons == release.reasons
    for text in (release.summary(), release.statement()):
        assert "every voter wants is missed with probability" in text
    facts = {**release.facts(), "format": 1}
    with pytest.raises(ValueError, match="has format 1"):
        pv.Release.of_facts(release.labels, facts)


@pytest.mark.filterwarnings("ignore::privote.PrivoteWarning")
def test_much_noise_by_choice_is_told_what_the_budget_could_buy() -> None:
    loud = pv.label(votes(40, 40, 6, 0.1), **BUDGET, mechanism=pv.BinaryVoting(sigma=200.0))
    assert loud.answered == 40
    assert any("Another budget of this size is enough for" in why for why in loud.reasons)


@pytest.mark.filterwarnings("ignore::privote.PrivoteWarning")
def test_what_would_be_enough_says_if_it_goes_by_released_labels() -> None:
    stopped = pv.label(votes(120, 30, 6, 0.5), **BUDGET)
    assert stopped.answered < 120
    place = [why.startswith("What follows goes by released") for why in stopped.reasons].index(True)
    assert "is enough for" in " ".join(stopped.reasons[place + 1 :])
    stated = pv.label(votes(120, 30, 6, 0.5), **BUDGET, yes=0.5)
    assert not any("goes by released" in why for why in stated.reasons)

from __future__ import annotations

import json
from typing import Any

import pytest

import privote as pv
from privote.planning import (
    Outlook,
    allowance_for,
    queries_for,
    queries_until_out,
    sigma_for,
    unanimous_miss,
)

SIZE: dict[str, Any] = {"voters": 60, "labels": 12, "epsilon": 8.0, "delta": 1e-5}


def advise(**numbers: Any) -> pv.planning.Advice:
    return pv.advise(**{**SIZE, "queries": 400, "yes": 0.18, **numbers})


def test_the_default_policy_in_figures() -> None:
    # 60 voters, 12 labels, 18 % yes, the busiest 1.56 times as much: 3.37 surprises a query.
    busiest = 1.56 * 12 * 0.18
    allowance = {"guarantee": "allowance", "surprises_per_query": busiest}

    def binary(sigma: float) -> pv.BinaryVoting:
        return pv.BinaryVoting(sigma=sigma)

    for queries, sigma, missed in ((400, 37.4, 0.13), (311, 33.0, 0.10)):
        found = sigma_for(binary, **SIZE, wanted=queries, **allowance)
        assert found == pytest.approx(sigma, abs=0.1)
        assert unanimous_miss(binary(found), 60, 12) == pytest.approx(missed, abs=0.005)
    short = binary(12.0)
    assert queries_until_out(short, 12, allowance_for(short, **SIZE), busiest) in (40, 41)
    advice = advise()
    assert advice.guarantee == "allowance"
    assert advice.mechanism == binary(33.1)
    assert advice.queries == 313
    assert advice.missed <= 0.1
    assert advice.false_alarm <= 0.1


def test_counts_are_what_the_guardian_says() -> None:
    for numbers in (
        {},
        {"rule": "shared"},
        {"voters": 700, "queries": 5000, "yes": 0.05},
        {"voters": 30, "labels": 4, "yes": 0.45, "queries": 9},
        {"yes": 0.15, "most_ones": 3, "queries": 3},
    ):
        advice = advise(**numbers)
        size = {name: {**SIZE, **numbers}.get(name) for name in ("voters", "labels")}
        budget = {"epsilon": 8.0, "delta": 1e-5, "rule": numbers.get("rule")}
        if advice.guarantee == "allowance":
            assert advice.allowance == allowance_for(advice.mechanism, **size, **budget)
            assert advice.outlook.surprises(advice.queries) <= advice.allowance
        else:
            assert advice.allowance is None
            assert advice.lasts == queries_for(advice.mechanism, **size, **budget)
        assert advice.queries <= advice.lasts


def test_fewer_queries_only_where_quality_asks_for_it() -> None:
    assert advise(quality=0.2).queries == 400
    assert advise(voters=600).queries == 400
    few = advise(quality=0.02)
    assert few.queries < advise().queries
    assert few.missed <= 0.02


@pytest.mark.parametrize("yes", [0.01, 0.03, 0.07])
def test_false_labels_do_not_outnumber_the_wanted_ones(yes: float) -> None:
    for quality in (0.1, 0.02):
        advice = advise(yes=yes, queries=100_000, quality=quality)
        assert advice.good
        assert advice.queries < 100_000
        assert advice.missed <= quality
        assert advice.false_alarm * (1 - yes) <= 5 * quality * yes * 1.001
    careless = advise(yes=yes, queries=100_000, quality=None)
    assert careless.queries == 100_000
    assert careless.false_alarm > advice.false_alarm


def test_many_voters_can_afford_the_worst_case() -> None:
    advice = advise(voters=5000)
    assert advice.guarantee == "worst-case"
    assert advice.missed < 1e-9
    assert any("nobody can run out" in reason for reason in advice.reasons)


def test_dense_ballots_and_single_queries_take_the_worst_case() -> None:
    assert advise(yes=0.45).guarantee == "worst-case"
    assert advise(yes=0.18, labels=1, queries=1).guarantee == "worst-case"
    assert advise(yes=0.02).guarantee == "allowance"


def test_a_bar_where_voters_are_cautious() -> None:
    advice = advise(voters=500, agreement=0.35)
    quota = advice.mechanism.parameters()["quota"]
    assert advice.outlook.strays() < quota < 0.35
    plain = Outlook(voters=500, labels=12, yes=0.18, agreement=0.35).chances(
        pv.BinaryVoting(sigma=advice.mechanism.parameters()["sigma"])
    )
    here = next(each for each in advice.expected if each.agreement == 0.35)
    assert here.missed + here.false_alarm < plain.missed + plain.false_alarm - 0.2
    assert any("the bar stands between them" in reason for reason in advice.reasons)
    assert "quota" not in advise().mechanism.parameters()


def test_where_noise_is_cheap_there_is_a_reserve() -> None:
    advice = advise(voters=5000, labels=100, yes=0.05)
    assert advice.guarantee == "allowance"
    assert advice.queries == 400
    assert advice.lasts > 800
    assert advice.missed < 1e-6
    assert any("a reserve" in reason for reason in advice.reasons)


def test_what_is_needed_is_enough_and_no_more() -> None:
    advice = advise()
    assert advice.target == 0.1
    needed = advice.needed
    assert advise(epsilon=needed["epsilon"]).queries == 400
    assert advise(epsilon=0.98 * needed["epsilon"]).queries < 400
    assert advise(voters=needed["voters"]).queries == 400
    assert advise(voters=needed["voters"] - 2).queries < 400
    assert advise(labels=needed["labels"]).queries == 400
    assert advise(labels=needed["labels"] + 1).queries < 400
    assert len(advice.changes) == 3


def test_where_all_is_answered_it_says_what_is_better() -> None:
    advice = advise(queries=100)
    assert advice.queries == 100
    assert advice.target == 0.01
    assert advise(queries=100, voters=advice.needed["voters"]).missed <= 0.0101
    assert advise(queries=100, voters=6000).needed == {}


def test_hopeless_numbers_are_said_to_be() -> None:
    advice = advise(voters=5, epsilon=0.1)
    assert not advice.good
    assert advice.queries == 1
    assert "No number of queries can be answered well" in advice.reasons[0]  # before what suits


def test_levels_of_agreement_get_better() -> None:
    advice = advise(agreement=0.75)
    levels = [each.agreement for each in advice.expected]
    assert levels == sorted(levels)
    assert 0.75 in levels
    assert [each.missed for each in advice.expected] == sorted(
        (each.missed for each in advice.expected), reverse=True
    )
    assert advice.expected[-1].missed == pytest.approx(advice.missed)
    assert advice.expected[-1].false_alarm == pytest.approx(advice.false_alarm)


def test_facts_are_json() -> None:
    facts = json.loads(json.dumps(advise().facts()))
    assert facts["mechanism"] == {"mechanism": "binary", "sigma": 33.1}
    assert facts["queries"] == 313
    assert facts["yes"] == 0.18
    assert facts["voters"] == 60
    assert len(facts["expected"]) == 6


@pytest.mark.parametrize(
    "numbers",
    [
        {"voters": 1, "labels": 1, "queries": 1, "epsilon": 0.01},
        {"voters": 3, "labels": 1, "queries": 1, "epsilon": 1000.0},
        {"voters": 10**12, "queries": 10**9},
        {"voters": 10_000, "labels": 1000, "queries": 10**5, "yes": 1e-6},
        {"yes": 0.97},
    ],
)
def test_any_numbers(numbers: dict[str, Any]) -> None:
    advice = advise(**numbers)
    assert 1 <= advice.queries <= advice.asked
    assert 0 <= advice.precision <= 1
    assert advice.reasons


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"queries": 0}, "queries must be an integer of at least 1, got 0"),
        ({"queries": 10**12}, "queries times labels must be at most"),
        ({"quality": 0.5}, "quality must lie strictly between 0 and 1/2, got 0.5"),
        ({"epsilon": 0}, "epsilon must be finite and positive"),
        ({"rule": "own"}, "rule must be one of"),
    ],
)
def test_bad_numbers(numbers: dict[str, Any], message: str) -> None:
    with pytest.raises(pv.InputError, match=message):
        advise(**numbers)

"""A poll, start to end: charged before it is drawn, and nothing said that was not paid for."""

from __future__ import annotations

import json
import pickle
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv
from privote.errors import BudgetError, ChargedError, InputError
from privote.ledger import Standing
from privote.polls import PollResult

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
# 600 ballots on five options: 0.8, 0.6, 0.4, 0.2 and 0.05 of the voters.
VOTES = np.random.default_rng(0).random((600, 5)) < [0.8, 0.6, 0.4, 0.2, 0.05]
BALLOTS = {"voter": [f"v{place}" for place in range(600)]}
BALLOTS |= {
    name: VOTES[:, place].tolist() for place, name in enumerate(("Ada", "Bo", "Cy", "Di", "Ed"))
}


@pytest.fixture
def charged(tmp_path: Path) -> dict[str, Any]:
    return {**BUDGET, "dataset": "club", "ledger": tmp_path / "ledger.db"}


@pytest.mark.parametrize(
    ("source", "more", "winners", "mechanism"),
    [
        (BALLOTS, {}, 2, "binary"),
        (BALLOTS, {"seats": 1}, 1, "top-m"),
        ("pabulib_Poland_Lodz_2020_Zlotno.pb", {"epsilon": 20.0}, 4, "counts"),  # there is money
        ("preflib_00026-00000004.cat", {"seats": 1, "epsilon": 2.0}, 1, "top-m"),
    ],
)
def test_winners_come_out_as_they_were(request, source, more, winners, mechanism) -> None:
    if isinstance(source, str):
        source = request.getfixturevalue("shared_data") / source
    result = pv.poll(source, **BUDGET | more, seed=1)
    assert result.winners == result.sealed.winners
    assert len(result.winners) == winners
    assert result.plan.mechanism.facts()["mechanism"] == mechanism
    assert result.epsilon <= more.get("epsilon", 1.0)


@pytest.mark.parametrize("mechanism", ["auto", "counts"])
@pytest.mark.parametrize("seats", [None, 2])
def test_without_shares_nothing_of_the_counts_leaves(mechanism: str, seats: int | None) -> None:
    result = pv.poll(BALLOTS, **BUDGET, mechanism=mechanism, seats=seats, seed=1)
    facts = result.facts()
    assert result.shares is None
    assert not {"shares", "calls", "interval", "apart", "counts"} & set(facts)
    told = json.dumps(facts) + result.summary() + result.statement() + repr(result)
    for count in result.sealed.counts.tolist():
        assert f" {count}" not in told.replace(",", " ")
    assert "sealed" not in repr(result)
    kept = pickle.loads(pickle.dumps(result))
    assert (kept.winners, vars(kept.sealed)) == (result.winners, {})
    assert repr(result.sealed) == "<sealed>"


def test_shares_have_intervals_and_calls() -> None:
    result = pv.poll(BALLOTS, shares=True, **BUDGET, seed=3)
    assert result.shares is not None
    assert [share.option for share in result.shares] == ["Ada", "Bo", "Cy", "Di", "Ed"]
    for share in result.shares:
        assert 0 <= share.low <= share.share <= share.high <= 1
    assert [share.call for share in result.shares] == ["above", "above", *["below"] * 3]
    assert [call.decided for call in result.calls] == [True] * 4
    assert result.plan.apart is not None
    assert result.plan.interval is not None
    assert result.plan.apart < 2 * result.plan.interval
    assert result.plan.interval == result.plan.gap  # from the bar
    by_seats = pv.poll(BALLOTS, seats=2, shares=True, **BUDGET, seed=3)
    assert by_seats.plan.apart == by_seats.plan.gap  # winners from losers


def test_intervals_and_calls_hold_as_often_as_promised() -> None:
    runs, ballots = 120, pv.polls.read(BALLOTS)
    true = dict(zip(ballots.options, ballots.counts, strict=True))
    covered = called = 0
    for seed in range(runs):
        result = pv.poll(ballots, shares=True, epsilon=0.2, delta=1e-6, seed=seed)
        assert result.shares is not None
        covered += all(
            share.low * 600 - 1e-9 <= true[share.option] <= share.high * 600 + 1e-9
            for share in result.shares
        )
        called += all(true[call.above] > true[call.below] for call in result.calls if call.decided)
    assert min(covered, called) >= 0.88 * runs  # 0.95, less three standard deviations


def test_a_poll_that_chance_decides_says_so() -> None:
    for source, epsilon in (
        ({"voter": ["a", "b"], "Ada": [1, 1], "Bo": [0, 1]}, 1.0),
        (BALLOTS, 0.05),
    ):
        with pytest.warns(pv.PrivoteWarning, match="winners are random"):
            result = pv.poll(source, epsilon=epsilon, delta=1e-6)
        assert result.plan.chance
        assert result.uncertain == result.winners
    assert 300 < result.plan.gap < 600  # less than there are voters, more than half of them
    assert pv.poll(BALLOTS, **BUDGET, seed=0).plan.chance is None


@pytest.mark.parametrize("yes", [0, 150])  # nobody approves anything; a tie
def test_noise_is_no_winner_where_what_was_drawn_tells(yes: int) -> None:
    tie = {"voter": range(300), "Ada": [1] * yes + [0] * (300 - yes)}
    tie["Bo"] = tie["Ada"]
    told = pv.poll(tie, seats=1, mechanism="counts", **BUDGET, seed=1)
    assert told.shares is None
    assert told.uncertain == told.winners == tuple(told.facts()["uncertain"])
    bare = pv.poll(tie, seats=1, mechanism="top-m", **BUDGET)
    assert (bare.uncertain, bare.facts()["uncertain"]) == ((), None)
    assert (told.plan.judges, bare.plan.judges) == (True, False)
    assert bare.sealed.ties == told.sealed.ties == ("Ada", "Bo")
    assert pv.poll(BALLOTS, seats=1, mechanism="counts", **BUDGET).uncertain == ()


def test_whose_ballot_is_protected_is_said_as_far_as_it_is_known() -> None:
    named = pv.poll(BALLOTS, **BUDGET)
    nameless = pv.poll({name: BALLOTS[name] for name in ("Ada", "Bo")}, **BUDGET)
    for result, roll in ((named, "voter"), (nameless, None)):
        assert result.facts()["roll"] == result.roll == roll
        assert ("a person's ballot" in result.guarantee.protects) is (roll is not None)
        assert ("a ballot" in result.guarantee.protects) is (roll is None)


QUESTIONS = {"voter": range(600), "Q1": ["Ada"] * 400 + ["Bo"] * 200, "Q2": ["Bo;Cy"] * 600}
ASKED = {"column": ["Q1", "Q2"], "options": {"Q1": ["Ada", "Bo"], "Q2": ["Ada", "Bo", "Cy"]}}


@pytest.mark.parametrize(
    ("more", "mechanism", "won"),
    [
        ({}, "binary", ["Ada", "Bo Cy"]),
        ({"seats": 1, "most": 2}, "top-m", ["Ada", "Bo|Cy"]),
        ({"seats": 1, "shares": True}, "counts", ["Ada", "Bo|Cy"]),
    ],
)
def test_several_questions_are_one_charge(charged: dict[str, Any], more, mechanism, won) -> None:
    result = pv.poll(QUESTIONS, **charged, **ASKED, **more, seed=2)
    assert result.plan.mechanism.facts()["mechanism"] == mechanism
    assert result.plan.size.questions == (2, 3)
    for (question, part), names, expected in zip(
        result.by_question(), ASKED["options"].values(), won, strict=True
    ):
        assert " ".join(part.winners) in expected.split("|")
        assert part.options == tuple(names)
        assert result.facts()["questions"][question]["winners"] == list(part.winners)
        assert {f"{question}: {name}" for name in part.winners} <= set(result.winners)
        assert part.shares is None or len(part.shares) == len(part.calls) + 1 == len(names)
    assert "all questions together" in result.statement()
    assert result.epsilon <= 1.0
    assert result.guarantee.standing is not None
    assert result.guarantee.standing.entry == 3
    with refused("seats"):
        pv.poll(QUESTIONS, **BUDGET, **ASKED, seats=2)


def test_a_seed_is_said_and_noise_is_fresh_without() -> None:
    one, two = (pv.poll(BALLOTS, shares=True, **BUDGET) for _ in range(2))
    assert one.facts()["shares"] != two.facts()["shares"]
    assert one.facts()["digest"] != two.facts()["digest"]
    seeded = [pv.poll(BALLOTS, shares=True, **BUDGET, seed=5) for _ in range(2)]
    assert seeded[0].facts()["shares"] == seeded[1].facts()["shares"]
    assert "protects nobody" in seeded[0].statement()
    assert "protects nobody" not in one.statement()
    assert (one.guarantee.simulated, seeded[0].guarantee.simulated) == (False, True)


def standing(result: PollResult) -> Standing:
    assert result.guarantee.standing is not None
    return result.guarantee.standing


def test_polls_of_the_same_people_add_up(charged: dict[str, Any]) -> None:
    first = standing(pv.poll(BALLOTS, **charged | {"epsilon": 0.5}, budget=1.3))
    assert (first.dataset, first.budget, first.runs, first.total) == ("club", 1.3, 1, 0.5)
    second = standing(pv.poll(BALLOTS, **charged | {"epsilon": 0.5}, seats=2))
    assert first.share is not None
    assert second.share is not None
    assert second.total is not None
    assert first.share < second.share < 1
    assert 0.5 < second.total <= 1.3
    with refused(None, BudgetError) as caught:
        pv.poll(BALLOTS, **charged | {"epsilon": 1.2})
    fits = float(re.findall(r"one run at epsilon ([\d.]+) or", str(caught.value))[0])
    assert pv.poll(BALLOTS, **charged | {"epsilon": fits})
    assert pv.poll(BALLOTS, **BUDGET).guarantee.standing is None


@pytest.mark.parametrize("more", [{}, {"seats": 1}, {"shares": True}])
def test_a_poll_may_take_a_whole_budget_once(charged: dict[str, Any], more) -> None:
    with pytest.warns(pv.PrivoteWarning, match="nothing will be left"):
        result = pv.poll(BALLOTS, **charged, **more)
    assert (standing(result).share, standing(result).total) == (1.0, 1.0)
    alone = pv.poll(BALLOTS, **BUDGET, **more)
    assert result.plan.mechanism == alone.plan.mechanism  # the same noise
    for again in (more, {"budget": 5.0}, {"epsilon": 0.1}):
        with refused(None, BudgetError):
            pv.poll(BALLOTS, **charged | again)
    with pytest.warns(pv.PrivoteWarning):
        assert pv.poll(BALLOTS, **charged | {"dataset": "others"})


def test_bad_input_charges_nothing(charged: dict[str, Any], tmp_path: Path) -> None:
    settings = ({"seats": 9}, {"quota": 2.0}, {"seats": 1, "quota": 0.5}, {"mechanism": "luck"})
    for bad in (*settings, {"most": 1}, {"options": ["Ada", "Eve"]}, {"seed": -1}, {"budget": -1}):
        with pytest.raises(InputError):
            pv.poll(BALLOTS, **charged, **bad)
    with refused("budget"):
        pv.poll(BALLOTS, **BUDGET, budget=2.0)
    assert not list(tmp_path.iterdir())


def test_what_was_drawn_is_resumed(
    charged: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("privote.polls.mechanisms.NoisyBits.draw", lambda *_: 1 / 0)
        with refused(None, ChargedError) as caught:
            pv.poll(BALLOTS, **charged | {"dataset": "others"})
    assert caught.value.code == "closed"
    with refused(None, BudgetError):  # charged before it is drawn
        pv.poll(BALLOTS, **charged | {"dataset": "others"})
    asked = {**charged, "shares": True}
    with monkeypatch.context() as crash:
        crash.setattr(import_module("privote.polls.poll"), "result_of", lambda *_: 1 / 0)
        with refused(None, ChargedError) as caught:
            pv.poll(BALLOTS, **asked)
    assert caught.value.code == "charged"
    with refused(None, BudgetError):  # not again
        pv.poll(BALLOTS, **asked)
    result = pv.poll(BALLOTS, **asked, resume=True)
    assert standing(result).share == 1

"""A poll, start to end: charged before it is drawn, and nothing said that was not paid for."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv
from privote.errors import BudgetError, ChargedError, InputError
from privote.polls.poll import UNCOUNTED

BUDGET = {"epsilon": 1.0, "delta": 1e-6}


@pytest.fixture
def ballots(tmp_path: Path) -> Path:
    """Return 600 ballots on five options: 0.8, 0.6, 0.4, 0.2 and 0.05 of the voters."""
    rng = np.random.default_rng(0)
    votes = rng.random((600, 5)) < [0.8, 0.6, 0.4, 0.2, 0.05]
    rows = [f"v{place}," + ",".join(map(str, row.astype(int))) for place, row in enumerate(votes)]
    path = tmp_path / "poll.csv"
    path.write_text("voter,Ada,Bo,Cy,Di,Ed\n" + "\n".join(rows) + "\n")
    return path


def test_winners_by_quota_and_by_seats(ballots: Path) -> None:
    by_quota = pv.poll(ballots, **BUDGET)
    assert by_quota.winners == ("Ada", "Bo")
    assert by_quota.plan.mechanism.facts()["mechanism"] == "binary"
    by_seats = pv.poll(ballots, seats=1, **BUDGET)
    assert by_seats.winners == ("Ada",)
    assert by_seats.plan.mechanism.facts()["mechanism"] == "top-m"
    for result in (by_quota, by_seats):
        assert result.epsilon <= 1.0
        assert not result.simulated


def test_without_shares_nothing_of_the_counts_leaves(ballots: Path) -> None:
    for more in ({}, {"seats": 2}, {"mechanism": "counts"}, {"mechanism": "counts", "seats": 2}):
        result = pv.poll(ballots, **BUDGET, **more, seed=1)
        facts = result.facts()
        assert result.shares is None
        assert not {"shares", "calls", "interval", "apart", "counts"} & set(facts)
        told = json.dumps(facts) + result.summary() + result.statement() + repr(result)
        for count in result.sealed.counts.tolist():
            assert f" {count}" not in told.replace(",", " ")
    assert "sealed" not in repr(result)


def test_shares_have_intervals_and_calls(ballots: Path) -> None:
    result = pv.poll(ballots, shares=True, **BUDGET, seed=3)
    assert result.shares is not None
    assert [share.option for share in result.shares] == ["Ada", "Bo", "Cy", "Di", "Ed"]
    true = dict(zip(result.options, result.sealed.counts / 600, strict=True))
    for share in result.shares:
        assert 0 <= share.low <= share.share <= share.high <= 1
        assert share.low <= true[share.option] <= share.high
    assert [share.call for share in result.shares] == ["above", "above", *["below"] * 3]
    assert [call.decided for call in result.calls] == [True] * 4
    assert result.apart is not None
    assert result.plan.interval is not None
    assert result.apart < 2 * result.plan.interval


def test_shares_and_winners_have_one_gap(ballots: Path) -> None:
    by_seats = pv.poll(ballots, seats=2, shares=True, **BUDGET, seed=3)
    assert by_seats.apart == by_seats.plan.gap
    assert f"options that are {by_seats.apart:,} votes apart" in by_seats.decides()
    by_quota = pv.poll(ballots, shares=True, **BUDGET, seed=3)
    assert by_quota.plan.interval == by_quota.plan.gap
    assert f"that are {by_quota.plan.interval:,} votes from the bar" in by_quota.decides()
    reason = pv.poll(ballots, seats=1, **BUDGET, seed=3).plan.reason
    assert "votes" not in reason  # no second number of votes beside the one that is promised


def test_a_poll_that_chance_decides_says_so(ballots: Path) -> None:
    for source, epsilon in (({"voter": "ab", "Ada": "11", "Bo": "01"}, 1.0), (ballots, 0.05)):
        with pytest.warns(pv.PrivoteWarning, match="Chance decides"):
            result = pv.poll(source, epsilon=epsilon, delta=1e-6)
        assert result.plan.chance
    assert 300 < result.plan.gap < 600  # less than there are voters, more than half of them
    assert pv.poll(ballots, **BUDGET, seed=0).plan.chance is None


def test_what_a_ledger_takes_from_a_poll_is_said(ballots: Path, tmp_path: Path) -> None:
    alone = pv.poll(ballots, seats=1, **BUDGET)
    counted = pv.poll(ballots, seats=1, **BUDGET, people="club", ledger=tmp_path / "a.db")
    assert counted.plan.gap > alone.plan.gap
    assert "with a ledger" not in alone.brief()
    assert "without a ledger, epsilon 1 takes less noise" in counted.brief()["with a ledger"]


def test_intervals_and_calls_hold_as_often_as_promised(ballots: Path) -> None:
    runs = 120
    covered = called = 0
    for seed in range(runs):
        result = pv.poll(ballots, shares=True, epsilon=0.2, delta=1e-6, seed=seed)
        true = dict(zip(result.options, result.sealed.counts, strict=True))
        assert result.shares is not None
        covered += all(
            share.low * 600 - 1e-9 <= true[share.option] <= share.high * 600 + 1e-9
            for share in result.shares
        )
        called += all(true[call.above] > true[call.below] for call in result.calls if call.decided)
    assert covered >= 0.88 * runs  # 0.95, less three standard deviations
    assert called >= 0.88 * runs


def test_a_seed_is_said_and_noise_is_fresh_without(ballots: Path) -> None:
    one, two = (pv.poll(ballots, shares=True, **BUDGET) for _ in range(2))
    assert one.facts()["shares"] != two.facts()["shares"]
    assert one.digest != two.digest
    seeded = [pv.poll(ballots, shares=True, **BUDGET, seed=5) for _ in range(2)]
    assert seeded[0].facts() == seeded[1].facts()
    assert "protects nobody" in seeded[0].statement()
    assert "protects nobody" not in one.statement()


@pytest.mark.filterwarnings("ignore:an epsilon of")
@pytest.mark.parametrize(("epsilon", "times"), [(1.0, "2.7"), (8.0, "2,9"), (1000.0, "e^epsilon")])
def test_the_statement_says_how_much_an_epsilon_lets_through(ballots, epsilon, times) -> None:
    said = pv.poll(ballots, epsilon=epsilon, delta=1e-6).statement()
    assert f"no outcome becomes more than {times}" in said


def test_polls_of_the_same_people_add_up(ballots: Path, tmp_path: Path) -> None:
    place = {"people": "club", "ledger": tmp_path / "ledger.db"}
    first = pv.poll(ballots, **BUDGET, **place, budget=1.3)
    assert "charged to the budget of 'club'" in first.statement()
    assert UNCOUNTED not in first.statement()
    assert first.budget is not None
    assert first.budget["epsilon"] == 1.3
    second = pv.poll(ballots, epsilon=0.6, delta=1e-6, seats=2, **place)
    assert second.budget is not None
    assert first.budget["used"] < second.budget["used"] <= 1.3
    with refused(None, BudgetError):
        pv.poll(ballots, **BUDGET, **place)
    assert UNCOUNTED in pv.poll(ballots, **BUDGET).statement()


@pytest.mark.parametrize("more", [{}, {"seats": 2}, {"shares": True}])
def test_a_poll_may_take_a_whole_budget_once(ballots: Path, tmp_path: Path, more) -> None:
    place = {"people": "club", "ledger": tmp_path / "ledger.db"}
    result = pv.poll(ballots, **BUDGET, **place, **more)
    assert result.budget is not None
    assert 0.99 < result.budget["used"] <= 1.0
    for again in (more, {"budget": 5.0}):
        with refused(None, BudgetError):
            pv.poll(ballots, **BUDGET, **place, **again)
    assert pv.poll(ballots, **BUDGET, people="others", ledger=place["ledger"])


def test_it_is_charged_before_it_is_drawn(
    ballots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = {"people": "club", "ledger": tmp_path / "ledger.db"}

    def broken(*_: object) -> None:
        raise RuntimeError("the noise ran out")

    monkeypatch.setattr("privote.mechanisms.polls.NoisyBits.draw", broken)
    with pytest.raises(RuntimeError):
        pv.poll(ballots, **BUDGET, **place)
    monkeypatch.undo()
    with pytest.raises(BudgetError):
        pv.poll(ballots, **BUDGET, **place)


def test_bad_input_charges_nothing(ballots: Path, tmp_path: Path) -> None:
    place = {"people": "club", "ledger": tmp_path / "ledger.db"}
    settings = ({"seats": 9}, {"quota": 2.0}, {"seats": 1, "quota": 0.5}, {"mechanism": "luck"})
    for bad in (*settings, {"most": 1}, {"options": ["Ada", "Eve"]}, {"seed": -1}, {"budget": -1}):
        with pytest.raises(InputError):
            pv.poll(ballots, **BUDGET, **place, **bad)
    for alone in ({"people": "club"}, {"budget": 2.0}, {"ledger": tmp_path / "other.db"}):
        with pytest.raises(InputError, match="ledger"):
            pv.poll(ballots, **BUDGET, **alone)
    assert not (tmp_path / "ledger.db").exists()
    assert not (tmp_path / "other.db").exists()
    result = pv.poll(ballots, **BUDGET, **place)
    assert result.ledger is not None
    assert result.ledger["entry"] == 3  # the budget, the charge, the outcome


def test_greedy_is_the_rule_where_there_is_money(tmp_path: Path) -> None:
    text = "META\nkey;value\nbudget;10\nvote_type;approval\nmax_length;1\nPROJECTS\n"
    text += "project_id;cost;name\n1;6;Trees\n2;5;Bench\n3;4;Swing\nVOTES\nvoter_id;vote\n"
    text += "".join(f"{v};{1 if v < 400 else 2 if v < 650 else 3}\n" for v in range(800))
    path = tmp_path / "x.pb"
    path.write_text(text)
    result = pv.poll(path, **BUDGET)
    assert result.winners == ("Trees", "Swing")
    assert "greedy" in result.plan.outcome.describe()
    assert pv.poll(path, **BUDGET, seats=2).winners == ("Trees", "Bench")


def test_real_polls_come_out_as_they_were(shared_data: Path) -> None:
    for name, more in (
        ("pabulib_Poland_Lodz_2020_Zlotno.pb", {"epsilon": 20.0}),
        ("preflib_00026-00000004.cat", {"seats": 1, "epsilon": 2.0}),
    ):
        result = pv.poll(shared_data / name, delta=1e-6, seed=1, **more)
        assert result.winners == result.sealed.winners


def test_what_was_drawn_is_kept_and_resumed(
    ballots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "poll.json"
    asked = {**BUDGET, "shares": True, "output": file}
    asked |= {"people": "club", "ledger": tmp_path / "ledger.db"}
    with monkeypatch.context() as crash:
        crash.setattr(sys.modules["privote.polls.poll"], "_recorded", lambda *_: 1 / 0)
        with refused(None, ChargedError):
            pv.poll(ballots, **asked)
    assert not file.exists()
    other = {"voter": "ab", "Eve": "10", "Bo": "01"}
    with refused(None, ChargedError), pytest.warns(pv.PrivoteWarning):
        pv.poll(other, **asked, resume=True)
    result = pv.poll(ballots, **asked, resume=True)
    assert json.loads(file.read_text()) == json.loads(result.json())
    assert result.budget is not None
    assert result.budget["used"] <= 1

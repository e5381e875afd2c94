"""The page of a poll: what was paid for and nothing else; the owner's view apart."""

from __future__ import annotations

import re

import pytest

import privote as pv
from privote.polls.planning import poll_plans
from privote.report.polls import UNCOUNTED, owner_view, plan_rows, poll_page

BUDGET = {"epsilon": 1.0, "delta": 1e-6}


BALLOTS = {"voter": list(range(577))}
BALLOTS |= {
    name: [place < yes for place in range(577)]
    for name, yes in (("<b>Ada</b>", 431), ("Bo", 317), ("Cy", 209))
}


@pytest.mark.parametrize("more", [{}, {"seats": 2}, {"mechanism": "counts"}])
def test_winners_alone_show_no_counts_and_the_owners_view_does(more) -> None:
    result = pv.poll(BALLOTS, **BUDGET, **more)
    page, owner = poll_page(result), owner_view(result)
    for count in (431, 317, 209):
        assert str(count) not in re.sub("[0-9a-f]{64}", "", page)  # digests may hold any digits
        assert str(count) in owner
    for words in ('class="bar"', "Shares", "winners are random", "<b>Ada", 'class="number">1</th>'):
        assert words not in page
    for words in (UNCOUNTED, result.facts()["digest"], "&lt;b&gt;Ada"):
        assert words in page
    assert ("in the poll&#39;s order" in page) is (len(result.winners) > 1)
    assert "Not for publication" in owner


def test_shares_are_bars_with_intervals_calls_and_ranks() -> None:
    page = poll_page(pv.poll(BALLOTS, shares=True, **BUDGET, seed=1))
    assert "in the poll&#39;s order" not in page
    assert page.count('class="bar"') == 3
    ranked = 'class="number">1</th>'
    for words in (
        ranked,
        "decided",
        "protects nobody",
        ">above the quota, ahead of the next<",
        ">not above the quota<",
        "epsilon",
    ):
        assert words in page


@pytest.mark.filterwarnings("ignore:winners are random")
@pytest.mark.parametrize("rule", [{"seats": 1}, {"quota": 0.6}])
def test_uncertain_winners_are_marked_where_they_are_named(rule) -> None:
    for epsilon, many in ((1.0, 0), (0.01, None)):
        result = pv.poll(BALLOTS, shares=True, epsilon=epsilon, delta=1e-6, seed=1, **rule)
        many = len(result.winners) if many is None else many
        assert len(result.uncertain) == many == poll_page(result).count('"mark care"')
        assert result.brief()["winners"].count("(uncertain)") == many
        assert poll_page(result).count("too close to call") == 1
    assert pv.poll(BALLOTS, **BUDGET, seats=1).uncertain == ()  # no counts, no verdict


def test_each_question_has_its_own_winners_and_shares() -> None:
    rows = {"Email": range(300), "Colour?": ["Red"] * 300, "Day?": ["Mon;Tue"] * 300}
    options = {"Colour?": ["Red", "Blue"], "Day?": ["Mon", "Tue", "Wed"]}
    asked = {"column": list(options), "options": options, "seats": 1, "seed": 1, **BUDGET}
    page = poll_page(pv.poll(rows, shares=True, **asked))
    for words in ("Colour?: Winners", "Day?: Winners", "Day?: Shares", "Who voted is public"):
        assert words in page
    assert page.count('class="bar"') == 5
    assert "Day?: Shares" not in poll_page(pv.poll(rows, **asked))


@pytest.mark.filterwarnings("ignore:winners are random")
def test_many_options_stay_on_one_sheet() -> None:
    many = {"voter": ["a", "b"]} | {f"option {place}": [1, 0] for place in range(80)}
    page = poll_page(pv.poll(many, shares=True, **BUDGET, seed=1))
    assert page.count('class="bar"') == 25
    assert "55 more options" in page
    assert 'class="sheet"' in page


@pytest.mark.parametrize("each", [1, 3])
def test_a_plan_has_a_row_an_epsilon(each: int) -> None:
    epsilons, plans = poll_plans(500, 6, epsilon=1.0, delta=1e-6, each=each, seats=2)
    rows = plan_rows(epsilons, plans)
    assert [float(row["epsilon"]) for row in rows] == list(epsilons)
    for row, plan in zip(rows, plans["winners"], strict=True):
        assert row["winners: decides"].startswith(f"{plan.gap:,.0f} ")
        assert ("points" in row["intervals"]) is (each > 1)

"""The page of a poll: what was paid for and nothing else; the owner's view apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.refusals import refused

import privote as pv
from privote.planning.polls import poll_plans
from privote.polls.poll import UNCOUNTED
from privote.report.polls import owner_view, pages, plan_rows, poll_page, write_pages

BUDGET = {"epsilon": 1.0, "delta": 1e-6}


@pytest.fixture
def ballots(tmp_path: Path) -> Path:
    rows = "".join(
        f"v{place},{place < 431:d},{place < 317:d},{place < 209:d}\n" for place in range(577)
    )
    path = tmp_path / "poll.csv"
    path.write_text("voter,<b>Ada</b>,Bo,Cy\n" + rows)
    return path


def test_winners_alone_show_no_counts(ballots: Path) -> None:
    for more in ({}, {"seats": 2}, {"mechanism": "counts"}):
        result = pv.poll(ballots, **BUDGET, **more)
        page = poll_page(result)
        assert 'class="bar"' not in page
        assert "Shares" not in page
        for count in (431, 317, 209):
            assert str(count) not in page.replace(result.digest, "")
        assert UNCOUNTED in page
        assert "Chance decides" not in page
        assert result.digest in page
        assert "&lt;b&gt;Ada" in page
        assert "<b>Ada" not in page


def test_shares_are_bars_with_intervals_and_calls_and_ranks(ballots: Path) -> None:
    unranked, number = "In the poll&#x27;s order", 'class="number">1</th>'
    page = poll_page(pv.poll(ballots, seats=2, **BUDGET))
    assert unranked in page
    assert number not in page
    ranked = poll_page(pv.poll(ballots, shares=True, **BUDGET, seed=1))
    assert unranked not in ranked
    assert ranked.count('class="bar"') == 3
    for words in (number, "decided", "protects nobody", ">above<", ">not above<", "epsilon"):
        assert words in ranked


def test_many_options_stay_on_one_sheet(tmp_path: Path) -> None:
    names = [f"option {place}" for place in range(80)]
    path = tmp_path / "many.csv"
    path.write_text(",".join(["voter", *names]) + "\n" + "a" + ",1" * 80 + "\nb" + ",0" * 80 + "\n")
    page = poll_page(pv.poll(path, shares=True, **BUDGET, seed=1))
    assert page.count('class="bar"') == 25
    assert "55 more options" in page
    assert 'class="sheet"' in page


def test_the_owners_view_is_marked(ballots: Path) -> None:
    page = owner_view(pv.poll(ballots, **BUDGET))
    for words in ("431", "Not for publication", "owner"):
        assert words in page


def test_the_folder_is_claimed_before_and_complete_after(ballots: Path, tmp_path: Path) -> None:
    place = tmp_path / "page"
    files = pages(place)
    assert not place.exists()
    place.mkdir()
    result = pv.poll(ballots, **BUDGET)
    write_pages(files, result)
    assert {file.name for file in place.iterdir()} == {"poll.html", "poll.json"}
    assert json.loads((place / "poll.json").read_text()) == json.loads(json.dumps(result.facts()))
    with refused("output"):
        pages(place)
    (place / "poll.html").write_text("mine")  # made meanwhile
    with refused("output"):
        write_pages(files, result)
    write_pages(pages(place, owner=True, force=True), result, force=True)
    assert (tmp_path / "page-owner.html").stat().st_mode & 0o077 == 0
    assert {file.name for file in place.iterdir()} == {"poll.html", "poll.json"}  # to publish
    assert "431" not in (place / "poll.html").read_text().replace(result.digest, "")


@pytest.mark.parametrize("each", [1, 3])
def test_a_plan_has_a_row_an_epsilon(each: int) -> None:
    epsilons, plans = poll_plans(500, 6, epsilon=1.0, delta=1e-6, each=each, seats=2)
    rows = plan_rows(epsilons, plans)
    assert [float(row["epsilon"]) for row in rows] == list(epsilons)
    for row, plan in zip(rows, plans["winners"], strict=True):
        assert row["winners: decides"].startswith(f"{plan.gap:,.0f} ")
        assert ("points" in row["intervals"]) is (each > 1)

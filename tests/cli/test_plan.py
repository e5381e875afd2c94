from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cli.conftest import Run

import privote as pv
from privote.calibrate import queries_for

WHERE = ("--voters", 50, "--labels", 20, "--epsilon", 8, "--delta", 1e-5)
BINARY = ("--mechanism", "binary")


def test_says_what_a_budget_buys(run: Run) -> None:
    done = run("plan", *BINARY, "--sigma", 7, *WHERE, "--surprises-per-query", 2)
    assert done.exit_code == 0, done.stderr
    assert "4 queries, whatever the votes" in done.stdout
    assert "46 surprises a voter" in done.stdout
    assert "23 queries for a voter with 2 surprises a query" in done.stdout
    assert "may be published" in done.stdout


def test_json(run: Run) -> None:
    numbers = json.loads(run("plan", *BINARY, "--sigma", 7, *WHERE, "--json").stdout)
    assert numbers["worst_case_queries"] == 4
    assert numbers["allowance"] == 46
    assert numbers["allowance_counts"] == "votes"
    assert "queries_until_out" not in numbers
    assert 0 < numbers["missed"] < 1e-5


@pytest.mark.parametrize("surprises", [None, 2])
def test_wanted_finds_a_sigma_that_does(run: Run, surprises: int | None) -> None:
    more = () if surprises is None else ("--surprises-per-query", surprises)
    call = ("plan", *BINARY, *WHERE, "--wanted", 500, *more, "--json")
    numbers = json.loads(run(*call).stdout)
    sigma = numbers["mechanism"]["sigma"]
    if surprises is None:
        assert numbers["worst_case_queries"] >= 500
        assert queries_for(pv.BinaryVoting(sigma=0.99 * sigma), 50, 20, 8.0, 1e-5) < 500
    else:
        assert numbers["queries_until_out"] == 500
        assert numbers["worst_case_queries"] == 100
    assert numbers["wanted"] == 500


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--mechanism", "binary"), "--sigma"),
        (("--mechanism", "binary", "--sigma", 7, "--wanted", 5), "--wanted solves for sigma"),
        (("--mechanism", "binary", "--wanted", 0), "wanted must be an integer of at least 1"),
        (
            ("--mechanism", "powerset", "--sigma", 7, "--surprises-per-query", 2),
            "surprises_per_query must be at most 1 for powerset, which counts whole ballots; got 2",
        ),
        (("--mechanism", "binary", "--sigma", 7, "--voters", 0), "voters must be an integer"),
    ],
)
def test_bad_arguments(run: Run, flags: tuple[Any, ...], message: str) -> None:
    done = run("plan", *WHERE, *flags)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_an_impossible_budget_is_exit_code_3(run: Run) -> None:
    tiny = ("--voters", 50, "--labels", 20, "--epsilon", 1e-6, "--delta", 1e-12)
    done = run("plan", *BINARY, *tiny, "--wanted", 10)
    assert done.exit_code == 3
    assert "no sigma" in done.stderr

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cli.conftest import Run

import privote as pv
from privote import planning
from privote.planning import queries_for

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
            "--surprises-per-query must be at most 1 for powerset, which counts whole ballots",
        ),
        (("--mechanism", "binary", "--sigma", 7, "--voters", 0), "voters must be an integer"),
        (("--mechanism", "tau", "--sigma", 7), "--tau must be given for mechanism 'tau'"),
        (("--mechanism", "tau", "--wanted", 5), "--sigma or --tau must be given with --wanted"),
        (
            ("--mechanism", "tau", "--sigma", 7, "--tau", 1, "--wanted", 5),
            "--wanted solves for sigma, or for tau given sigma: leave out --tau",
        ),
    ],
)
def test_bad_arguments(run: Run, flags: tuple[Any, ...], message: str) -> None:
    done = run("plan", *WHERE, *flags)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_a_budget_that_buys_no_surprise_is_called_a_refusal(run: Run) -> None:
    tiny = ("--voters", 20, "--labels", 3, "--epsilon", 0.01, "--delta", 1e-5)
    done = run("plan", *BINARY, "--sigma", 1, *tiny)
    assert "refused: the budget buys not one surprise a voter" in done.stdout
    assert json.loads(run("plan", *BINARY, "--sigma", 1, *tiny, "--json").stdout)["allowance"] == 0


def test_a_shared_budget_buys_what_a_ledger_says(run: Run) -> None:
    call = ("plan", *BINARY, "--sigma", 7, *WHERE, "--rule", "shared")
    numbers = json.loads(run(*call, "--json").stdout)
    size = {"voters": 50, "labels": 20, "epsilon": 8.0, "delta": 1e-5, "rule": "shared"}
    assert numbers["allowance"] == planning.allowance_for(pv.BinaryVoting(sigma=7.0), **size)
    assert numbers["worst_case_queries"] == queries_for(pv.BinaryVoting(sigma=7.0), **size)
    refused = run("plan", *BINARY, *WHERE, "--wanted", 9, "--rule", "shared")
    assert refused.exit_code == 2
    assert "--wanted is solved for an exclusive budget" in refused.stderr


def test_an_impossible_budget_is_exit_code_3(run: Run) -> None:
    tiny = ("--voters", 50, "--labels", 20, "--epsilon", 1e-6, "--delta", 1e-12)
    done = run("plan", *BINARY, *tiny, "--wanted", 10)
    assert done.exit_code == 3
    assert "no sigma" in done.stderr


TAU = ("--mechanism", "tau", "--voters", 50, "--labels", 2, "--epsilon", 8, "--delta", 1e-5)


def test_wanted_finds_the_largest_tau_for_a_sigma(run: Run) -> None:
    done = run("plan", *TAU, "--sigma", 9, "--wanted", 80, "--json")
    assert done.exit_code == 0, done.stderr
    numbers = json.loads(done.stdout)
    assert numbers["worst_case_queries"] >= 80
    assert numbers["mechanism"]["sigma"] == 9
    tau = numbers["mechanism"]["tau"]
    more = pv.TauVoting(sigma=9.0, tau=1.01 * tau)
    assert queries_for(more, 50, 2, 8.0, 1e-5) < 80


ADVICE = ("--voters", 60, "--labels", 12, "--epsilon", 8, "--delta", 1e-5, "--queries", 400)


def test_advises_where_no_mechanism_is_given(run: Run) -> None:
    done = run("plan", *ADVICE, "--yes", 0.18)
    assert done.exit_code == 0, done.stderr
    assert "binary (sigma=33.1)" in done.stdout
    assert "313 of 400" in done.stdout
    assert "80% of the voters (as stated)" in done.stdout
    assert "- Ballots are short (2.16 of 12 labels on average)" in done.stdout
    assert "With 68 voters this epsilon is enough" in done.stdout
    assert "may be published" in done.stdout


def test_advice_as_json_is_the_librarys(run: Run) -> None:
    more = ("--yes", 0.1, "--agreement", 0.9, "--most-ones", 4, "--rule", "shared")
    numbers = json.loads(run("plan", *ADVICE, *more, "--json").stdout)
    size = {"voters": 60, "labels": 12, "epsilon": 8.0, "delta": 1e-5, "queries": 400}
    advice = pv.advise(**size, yes=0.1, agreement=0.9, most_ones=4, rule="shared")
    assert numbers == json.loads(json.dumps(advice.facts()))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "--queries must be given for advice"),
        (("--queries", 9, "--wanted", 5), "--wanted and --surprises-per-query go with --mechanism"),
        (("--queries", 9, "--sigma", 5), "--sigma goes with --mechanism"),
        (("--queries", 9, "--yes", 2), "--yes must lie strictly between 0 and 1, got 2"),
        (("--queries", 9, "--agreement", 0.05), "--agreement must lie above --yes (0.1)"),
        ((*BINARY, "--sigma", 7, "--yes", 0.1), "--yes, --agreement and --most-ones go without"),
    ],
)
def test_bad_questions_for_advice(run: Run, flags: tuple[Any, ...], message: str) -> None:
    done = run("plan", *WHERE, *flags)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""

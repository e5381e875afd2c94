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
        (("--mechanism", "tau", "--wanted", 5), "--tau must be given for mechanism 'tau'"),
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


PLAN = ("--voters", 50, "--labels", 20, "--epsilon", 8, "--delta", 1e-5, "--queries", 400)


def test_says_what_to_expect_where_no_mechanism_is_given(run: Run) -> None:
    done = run("plan", *PLAN, "--yes", 0.03)
    assert done.exit_code == 0, done.stderr
    found = pv.plan(voters=50, labels=20, epsilon=8.0, delta=1e-5, queries=400, yes=0.03)
    assert f"F1 {found.quality['f1']:.2f} (precision" in done.stdout
    assert f"{found.sigma:.3g} votes on a tally of 50" in done.stdout
    assert "learnt from the votes" in done.stdout
    assert f"this should be enough: {found.needed['voters']} voters" in done.stdout
    assert "may be published" in done.stdout


def test_a_plan_as_json_is_the_librarys(run: Run) -> None:
    numbers = json.loads(run("plan", *PLAN, "--rule", "shared", "--json").stdout)
    size = {"voters": 50, "labels": 20, "epsilon": 8.0, "delta": 1e-5, "queries": 400}
    assert numbers == json.loads(json.dumps(pv.plan(**size, yes=0.1, rule="shared").facts()))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "--queries must be given"),
        (("--queries", 9, "--wanted", 5), "--wanted and --surprises-per-query go with --mechanism"),
        (("--queries", 9, "--sigma", 5), "--sigma goes with --mechanism"),
        (("--queries", 9, "--yes", 2), "--yes must lie strictly between 0 and 1, got 2"),
        ((*BINARY, "--sigma", 7, "--yes", 0.1), "--queries and --yes go without --mechanism"),
    ],
)
def test_bad_questions_without_a_mechanism(run: Run, flags: tuple[Any, ...], message: str) -> None:
    done = run("plan", *WHERE, *flags)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""

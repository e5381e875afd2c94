from __future__ import annotations

import json

from tests.cli.conftest import Run

import privote as pv
from privote import planning
from privote.planning import queries_for

WHERE = ("--voters", 50, "--labels", 20, "--epsilon", 8, "--delta", 1e-5)
BINARY = ("--mechanism", "binary")


def test_says_what_a_budget_buys(run: Run) -> None:
    done = run("plan", *BINARY, "--sigma", 7, *WHERE)
    assert done.exit_code == 0, done.stderr
    assert "4 queries" in done.stdout
    assert "46 surprises" in done.stdout
    assert "may be published" in done.stdout


def test_a_budget_that_buys_no_surprise_is_called_a_refusal(run: Run) -> None:
    tiny = ("--voters", 20, "--labels", 3, "--epsilon", 0.01, "--delta", 1e-5)
    done = run("plan", *BINARY, "--sigma", 1, *tiny)
    assert "refused" in done.stdout
    assert json.loads(run("plan", *BINARY, "--sigma", 1, *tiny, "--json").stdout)["allowance"] == 0


def test_a_shared_budget_buys_what_a_ledger_says(run: Run) -> None:
    call = ("plan", *BINARY, "--sigma", 7, *WHERE, "--rule", "shared")
    numbers = json.loads(run(*call, "--json").stdout)
    size = {"voters": 50, "labels": 20, "epsilon": 8.0, "delta": 1e-5, "rule": "shared"}
    assert numbers["allowance"] == planning.allowance_for(pv.BinaryVoting(sigma=7.0), **size)
    assert numbers["worst_case_queries"] == queries_for(pv.BinaryVoting(sigma=7.0), **size)


PLAN = ("--voters", 50, "--labels", 20, "--epsilon", 8, "--delta", 1e-5, "--queries", 400)


def test_says_what_to_expect_where_no_mechanism_is_given(run: Run) -> None:
    done = run("plan", *PLAN, "--yes", 0.03)
    assert done.exit_code == 0, done.stderr
    found = pv.plan(voters=50, labels=20, epsilon=8.0, delta=1e-5, queries=400, yes=0.03)
    assert f"F1 {found.quality['f1']:.2f} (precision" in done.stdout
    assert f"{found.sigma:.3g} votes on a tally of 50" in done.stdout
    assert "learnt from the votes" in done.stdout
    assert f"{found.needed['voters']} voters" in done.stdout
    assert "may be published" in done.stdout


def test_a_plan_as_json_is_the_librarys(run: Run) -> None:
    numbers = json.loads(run("plan", *PLAN, "--rule", "shared", "--json").stdout)
    size = {"voters": 50, "labels": 20, "epsilon": 8.0, "delta": 1e-5, "queries": 400}
    assert numbers == json.loads(json.dumps(pv.plan(**size, yes=0.1, rule="shared").facts()))

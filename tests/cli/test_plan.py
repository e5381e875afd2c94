from __future__ import annotations

import json
import re

from tests.cli.conftest import Run

import privote as pv
from privote import planning
from privote.planning import queries_for

WHERE = ("--voters", 50, "--labels", 20, "--epsilon", 8, "--delta", 1e-5)
BINARY = ("--mechanism", "binary")


def test_says_what_a_budget_buys_as_the_library_does(run: Run) -> None:
    call = ("plan", *BINARY, "--sigma", 7, *WHERE)
    numbers = json.loads(run(*call, "--json").stdout)
    size = {"voters": 50, "labels": 20, "epsilon": 8.0, "delta": 1e-5}
    assert numbers["allowance"] == planning.allowance_for(pv.BinaryVoting(sigma=7.0), **size)
    assert numbers["worst_case_queries"] == queries_for(pv.BinaryVoting(sigma=7.0), **size)
    shown = run(*call).stdout
    assert f"{numbers['worst_case_queries']} queries" in shown
    assert f"{numbers['allowance']} contributions" in shown


def test_says_what_to_expect_where_no_mechanism_is_given(run: Run) -> None:
    call = ("plan", *WHERE, "--queries", 400, "--yes", 0.03)
    size = {"voters": 50, "labels": 20, "epsilon": 8.0, "delta": 1e-5, "queries": 400}
    found = pv.plan(**size, yes=0.03)
    assert json.loads(run(*call, "--json").stdout) == json.loads(json.dumps(found.facts()))
    shown = run(*call).stdout
    for kind, quality in found.quality.items():
        assert re.search(rf"{kind} voters +F1 {quality['f1']:.2f} ", shown)
    assert f"{found.sigma:.3g} votes on a tally of 50" in shown

"""Attacks on a coalition by sites that learn, deviate or err."""

from __future__ import annotations

import numpy as np
import pytest
from tests.attacks.conftest import Outcome
from tests.capc.coalitions import identity, simulation, terms_of

import privote as pv
from privote.cli.capc_output import facts_of, statement

# Voters, sigma, querying sites, and what the last of them is shown to see at least of a site's data
# (delta = 1e-5) if sites that answer it have learnt from what the first ones received: ACCOUNTING,
# section 11.
LEARNT = [(20, 8.0, 3, 11.29), (10, 4.0, 5, 8.63)]


def test_stated_epsilon_covers_what_sites_learnt_from_others(outcome: Outcome) -> None:
    tried = through = 0
    for voters, sigma, askers, least in LEARNT:
        terms = terms_of(
            pv.BinaryVoting(sigma=sigma),
            parties=voters,
            labels=1,
            queriers=tuple(f"q{n}" for n in range(askers)),
            guarantee="allowance",
            epsilon=20.0,
        )
        run = simulation(terms, np.ones((2, voters, 1)))
        for querier in terms.queriers:
            answers = run.ask_rows(querier, identity(2, 4))
            facts = facts_of(terms, querier, answers, stamp="")
            tried += 1
            through += min(answers.epsilon, facts["epsilon"]) < least
            assert "epsilon 20 at delta 1e-05" in statement(facts)
    outcome("querying site sees more than the epsilon stated to it", tried, through)


@pytest.mark.parametrize("guarantee", ["allowance", "worst-case"])
def test_a_statement_has_no_smaller_epsilon_than_the_budget(guarantee: str) -> None:
    terms = terms_of(queriers=("q0", "q1"), guarantee=guarantee, epsilon=200.0)
    answers = simulation(terms, np.ones((2, 3, 2))).ask_rows("q0", identity(2, 4))
    said = statement(facts_of(terms, "q0", answers, stamp=""))
    numbers = [word for line in said.splitlines() for word in line.split("epsilon ")[1:]]
    assert [float(text.split()[0]) for text in numbers] == [200.0]

"""Attacks on a coalition by sites that learn, deviate or err."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest
from tests.attacks.conftest import Outcome, scaled
from tests.capc.coalitions import identity, simulation, terms_of

import privote as pv
from privote.capc.coalition import Letter
from privote.capc.messages import Masks, decode, encode
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


def test_masks_that_are_off_by_one_leave_no_outcome_certain(outcome: Outcome) -> None:
    """A wrong mask moves the margin by 2: that must be the link with another bar, no more."""
    queries, tried, through = scaled(2000, 50_000), 0, 0
    for vote, off in ((1, 1), (0, -1)):
        terms = terms_of(
            labels=1, features=1, most_queries=queries, epsilon=1e7, bits=1, timeout=60.0
        )

        def post(letter: Letter, off: int = off) -> list[Letter]:
            message = decode(letter.data)
            if not isinstance(message, Masks) or letter.sender[0] != "p0":
                return [letter]
            wrong = replace(message, masks=message.masks + off)
            return [Letter(letter.sender, letter.to, encode(wrong))]

        run = simulation(terms, np.full((1, 3, 1), vote), post=post)
        labels = run.ask_rows("q0", np.ones((queries, 1), np.int64)).labels
        rare = np.exp(terms.cells.log_probs(np.array(5), 3)[0])
        seen = int((labels != vote).sum())
        tried, through = tried + 1, through + (seen == 0)
        assert binomtest(seen, queries, rare).pvalue > 1e-6 or seen == 0
    outcome("masks off by one make a label certain", tried, through)

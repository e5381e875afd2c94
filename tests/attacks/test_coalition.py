"""Attacks on a coalition by sites that learn, deviate or err."""

from __future__ import annotations

import re

import msgspec
import numpy as np
import pytest
from scipy.stats import binomtest
from tests.attacks.conftest import Outcome, scaled
from tests.capc.coalitions import altered, identity, models_for, simulation, terms_of

import privote as pv
from privote.capc.charges import Prices
from privote.capc.messages import Masks
from privote.capc.terms import Terms

# Voters, sigma, querying sites, and what the last of them is shown to see at least of a site's data
# (delta = 1e-5) if sites that answer it have learnt from what the first ones received: ACCOUNTING,
# section 11.
LEARNT = [
    ("allowance", 20, 8.0, 3, 11.29),
    ("allowance", 10, 4.0, 5, 8.63),
    ("worst-case", 10, 40.0, 2, 20.0),  # whatever was learnt: the whole budget
]


def test_stated_epsilon_covers_what_sites_learnt_from_others(outcome: Outcome) -> None:
    found = []
    for guarantee, voters, sigma, askers, least in LEARNT:
        terms = terms_of(
            pv.BinaryVoting(sigma=sigma),
            parties=voters,
            labels=1,
            queriers=tuple(f"q{n}" for n in range(askers)),
            guarantee=guarantee,
            epsilon=20.0,
        )
        run = simulation(terms, np.ones((2, voters, 1)))
        for querier in terms.queriers:
            answers = run.ask(querier, identity(2, 4))
            said = re.findall(r"epsilon:? (\d\S*)", answers.guarantee.statement(), re.IGNORECASE)
            found.append(min(map(float, said)) < least)
            assert said == ["20"]  # and no other
    outcome.of("querying site sees more than the epsilon stated to it", found)


def test_masks_that_are_off_by_one_leave_no_outcome_certain(outcome: Outcome) -> None:
    """A wrong mask moves the margin by 2: that must be the link with another bar, no more."""
    queries, found = scaled(2000, 50_000), []
    for vote, off in ((1, 1), (0, -1)):
        terms = terms_of(
            labels=1, features=1, most_queries=queries, epsilon=1e7, bound=1.0, bits=1, timeout=60.0
        )

        def wrong(message: Masks, off: int = off) -> Masks:
            facts = (message.terms, message.run, message.querier, message.queries)
            return Masks(*facts, message.masks + off)

        post = altered(Masks, "p0", wrong)
        run = simulation(terms, np.full((1, 3, 1), vote), post=post)
        labels = run.ask("q0", np.ones((queries, 1), np.int64)).labels
        rare = np.exp(terms.mechanism.log_probs(np.array(5), 3)[0])
        seen = int((labels != vote).sum())
        found.append(seen == 0)
        assert binomtest(seen, queries, rare).pvalue > 1e-6 or seen == 0
    outcome.of("masks off by one make a label certain", found)


def loud(labels: int) -> tuple[Terms, int]:
    """Return terms with next to no noise, and how many contributions they allow."""
    terms = terms_of(
        pv.BinaryVoting(sigma=0.3), labels=labels, guarantee="allowance", epsilon=900.0
    )
    (allowance,) = set(Prices(terms).allowances("q0").values())
    return terms, allowance


def test_a_smaller_ballot_does_not_slip_in_after_a_voter_ran_out(outcome: Outcome) -> None:
    """Whoever is once over stays over, in later batches too."""
    terms, allowance = loud(labels=4)
    run = simulation(terms, np.ones((1, 3, 4)))
    last = allowance // 4 + 1
    for turn in range(last):  # the last of these ballots needs more than is left
        run.ask("q0", identity(1, 4, turn))
    few = models_for(terms, np.tile([1, 0, 0, 0], (1, 3, 1)))
    run.models = few
    for party in terms.parties:
        run.start(party)
    assert allowance % 4 != 0, "something is left that a single yes would fit"
    turns = range(last, last + scaled(5, 50))
    found = [run.ask("q0", identity(1, 4, turn)).labels.any() for turn in turns]
    outcome.of("a smaller ballot slips in after its voter ran out", found)


def test_counts_raised_by_a_querying_site_are_nobodys(outcome: Outcome) -> None:
    """More than was charged, or so little that it wraps: then the site counts as the baseline."""
    found = []
    for edit in (10**6, 2**62, 2**63 - 1, -(2**63) + 3, 2**40):
        terms, allowance = loud(labels=4)
        run = simulation(terms, np.ones((1, 3, 4)))
        for turn in range(allowance // 4 + 1):
            run.ask("q0", identity(1, 4, turn))
        batches = run.journal("q0")._batches
        last = max(batches, key=lambda batch: batches[batch].version)
        raised = {party: (half + edit) % 2**64 for party, half in batches[last].half.items()}
        batches[last] = msgspec.structs.replace(batches[last], half=raised)
        found.append(run.ask("q0", identity(1, 4, 999)).labels.any())
    outcome.of("a querying site raises what is left above what was charged", found)


@pytest.mark.parametrize("guarantee", ["allowance", "worst-case"])
def test_a_guardian_that_sees_labels_does_not_see_tallies(guarantee: str, outcome: Outcome) -> None:
    """With its own noise in hand it could tell every label of a known tally beforehand."""
    queries = scaled(2000, 20_000)
    told = {}
    for noise in ("guardian", "sites"):
        sizes = {"labels": 1, "features": 1, "most_queries": queries, "bound": 1.0, "bits": 1}
        terms = terms_of(guarantee=guarantee, epsilon=1e9, noise=noise, **sizes)
        run = simulation(terms, np.array([[[1], [1], [0]]]), seed=2)
        labels = run.ask("q0", np.ones((queries, 1), np.int64)).labels
        # The guardian's inputs, and the tally it suspects.
        own = run.recorder.guardian_input("vote")
        told[noise] = float(np.mean((terms.counted.steps * 1 + own >= 0) == (labels == 1)))
    assert told["guardian"] == 1.0, "this is what it can do where it draws the noise"
    through = int(abs(told["sites"] - 0.5) > 4 * 0.5 / queries**0.5)
    outcome("the guardian tells labels from a tally and its noise", queries, through * queries)

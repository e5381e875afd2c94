"""Noise from the sites: nobody knows the sum, and what is released is what is priced."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import chisquare
from tests.capc.coalitions import Observed, identity, models_for, simulation, terms_of, votes_of
from tests.refusals import refused

import privote as pv
from privote.accounting.renyi import divergence
from privote.capc.charges import Charges, Prices
from privote.capc.coalition import Letter
from privote.capc.messages import ANSWERING, GUARDIAN, QUERYING, Masks, Willing, decode, encode
from privote.capc.noise import SharedNoise
from privote.capc.roles import Received
from privote.capc.statements import facts_of, statement
from privote.capc.terms import Terms
from privote.links import skellam
from privote.votes.cube import Ballots

GATE = pv.Gate(threshold=4.0, sigma=1.5)
MECHANISMS: dict[str, pv.BinaryVoting] = {
    "plain": pv.BinaryVoting(sigma=2.0),
    "gate": pv.BinaryVoting(sigma=2.0, gate=GATE),
    "quota": pv.BinaryVoting(sigma=3.0, quota=0.3),
    "false alarm": pv.BinaryVoting(sigma=2.0, false_alarm=0.02),
}


def shared(name: str = "plain", **more: Any) -> Terms:
    return terms_of(MECHANISMS[name], noise="sites", **more)


def expected(terms: Terms, votes: npt.NDArray[np.int8]) -> npt.NDArray[np.float64]:
    """Return the outcome probabilities of one query: (labels, 2 or 3)."""
    assert isinstance(terms.mechanism, pv.BinaryVoting)
    assert terms.shared is not None
    (block,) = Ballots.of(votes).blocks()
    tally = terms.mechanism.tally(block)
    noise, margins, voters = terms.shared.without(0), tally.margins, tally.voters
    probs = np.exp(noise.links[0].log_probs(margins, voters))
    if noise.gate is not None:
        bar = noise.bars(voters)[1]
        held = skellam(noise.links[1].unknown(voters), noise.steps * np.abs(margins) - bar)
        gate = np.exp(held)
        probs = np.concatenate([probs * gate[..., 1:], gate[..., :1]], axis=-1)
    return np.asarray(probs)[0]


# -- what is released ------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", ["worst-case", "allowance"])
@pytest.mark.parametrize("missing", [0, 2])
@pytest.mark.parametrize("name", MECHANISMS)
def test_many_runs_follow_the_pmf_of_the_shares(name: str, missing: int, guarantee: str) -> None:
    queries = 3000
    ballots = np.random.default_rng(8).integers(0, 2, (1, 5, 3))
    terms = shared(
        name,
        parties=5,
        labels=3,
        features=1,
        guarantee=guarantee,
        epsilon=1e6,
        most_queries=queries,
    )
    run = simulation(terms, ballots, seed=13)
    for party in range(5 - missing, 5):
        run.kill((f"p{party}", ANSWERING))
    answers = run.ask("q0", np.ones((queries, 1), np.int64))
    assert len(answers.parties) == 5 - missing
    cube = votes_of(terms, ballots, answers.parties)
    if guarantee == "allowance":
        cube = np.maximum(cube, 0)  # the baseline
    for label, wanted in enumerate(expected(terms, cube)):
        outcomes = [0, 1] + ([-1] if terms.mechanism.gate is not None else [])
        hits = np.array([(answers.labels[:, label] == o).sum() for o in outcomes])
        assert chisquare(hits, wanted * queries).pvalue > 1e-4


# -- who knows what --------------------------------------------------------------------------------


def halves(run: Observed, batch: str) -> dict[str, npt.NDArray[np.int64]]:
    """Return, by party, its share as the two halves add up to it."""
    found: dict[str, npt.NDArray[np.int64]] = {}
    labels = len(run.terms.labels)
    for seat in (("pg", GUARDIAN), ("q0", QUERYING)):
        for event in run.seen[seat]:
            message = event.message if isinstance(event, Received) else None
            if isinstance(message, Masks) and message.batch == batch:
                found[event.sender] = found.get(event.sender, 0) + message.masks[:, labels:]
            if isinstance(message, Willing) and message.batch == batch:
                found[event.sender] = found.get(event.sender, 0) + message.noise
    return found


def test_either_half_is_uniform_and_both_are_the_share() -> None:
    terms = shared(features=1, most_queries=4000, epsilon=1e6)
    run = simulation(terms, np.ones((1, 3, 2)), seed=None)
    answers = run.ask("q0", np.ones((4000, 1), np.int64))
    for seat, kind in ((("pg", GUARDIAN), Masks), (("q0", QUERYING), Willing)):
        for event in run.seen[seat]:
            if isinstance(event, Received) and isinstance(event.message, kind):
                half = event.message.masks if kind is Masks else event.message.noise
                words = half[:, -2:].copy().view(np.uint64).reshape(-1)
                for shift in (0, 28, 56):
                    low = (words >> np.uint64(shift)) & np.uint64(255)
                    assert chisquare(np.bincount(low.astype(int), minlength=256)).pvalue > 1e-9
    assert terms.shared is not None
    (link,) = terms.shared.links
    for share in halves(run, answers.batch).values():
        spread = (2 * link.share(3)) ** 0.5
        assert np.abs(share).max() < 8 * spread
        assert share.std() == pytest.approx(spread, rel=0.05)


def test_a_site_counts_only_if_both_halves_are_there() -> None:
    """Its masks are lost: neither its votes nor either half of its noise may enter."""
    terms = shared(parties=4, labels=1, features=1, most_queries=2000, epsilon=1e6)

    def post(letter: Letter) -> list[Letter]:
        lost = decode(letter.data).kind == "masks" and letter.sender[0] == "p3"
        return [] if lost else [letter]

    ballots = np.array([[[1], [1], [0], [0]]])
    run = simulation(terms, ballots, post=post)
    answers = run.ask("q0", np.ones((2000, 1), np.int64))
    assert answers.parties == ("p0", "p1", "p2")
    wanted = expected(terms, votes_of(terms, ballots, answers.parties))[0]
    hits = np.bincount(answers.labels[:, 0], minlength=2)
    assert chisquare(hits, wanted * 2000).pvalue > 1e-4


@pytest.mark.parametrize("fault", ["none", "short"])
def test_a_site_without_its_half_is_left_out(fault: str) -> None:
    terms = shared(parties=3, features=8)

    def post(letter: Letter) -> list[Letter]:
        message = decode(letter.data)
        if not isinstance(message, Willing) or letter.sender[0] != "p2":
            return [letter]
        assert message.noise is not None
        noise = None if fault == "none" else message.noise[:-1]
        wrong = Willing(message.batch, noise)
        return [Letter(letter.sender, letter.to, encode(wrong))]

    answers = simulation(terms, np.ones((8, 3, 2)), post=post).ask("q0", identity(8, 8))
    assert answers.left_out == {"p2": "its noise does not match the terms"}


# -- what it costs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("voters", [2, 3, 10])
def test_no_neighbour_costs_more_than_is_charged_wherever_known_shares_put_the_bar(
    name: str, voters: int
) -> None:
    """An answering site knows its own share x of the vote and y of the gate: all are enumerated."""
    noise, orders = SharedNoise.of(MECHANISMS[name], 1), np.array([1.5, 4.0, 18.0, 64.0])
    charged = noise.surprise_rdp(voters, 1, orders)
    worst = np.zeros(len(orders))
    margins = np.arange(-voters, voters + 1)
    means = [link.unknown(voters) for link in noise.links]
    bars, steps = noise.bars(voters), noise.steps
    for x in range(-300, 301, 20):
        for y in range(-120, 121, 20) if len(means) > 1 else (0,):
            vote = skellam(means[0], steps * margins - bars[0] + x)
            logs = vote
            if len(means) > 1:
                gate = skellam(means[1], steps * np.abs(margins) - bars[1] + y)
                logs = np.concatenate([vote + gate[:, 1:], gate[:, :1]], axis=1)
            for shift in (1, 2):
                for one, two in ((logs[shift:], logs[:-shift]), (logs[:-shift], logs[shift:])):
                    worst = np.maximum(worst, divergence(one, two, orders).max(axis=0))
    assert (worst <= charged).all()
    # Not by much, either, where the costliest bar is among those.
    assert (worst[:2] >= (0.98 if len(means) == 1 else 0.75) * charged[:2]).all()


def test_less_noise_remains_the_more_shares_are_known() -> None:
    terms = shared(parties=6, guarantee="allowance", epsilon=20.0)
    prices = Prices(terms)
    found = [prices.if_known("q0", known) for known in (0, 1, 2, 3, 5)]
    assert found == sorted(found)
    assert found[1] <= 20.0 < found[2]
    assert np.isinf(prices.if_known("q0", 6))
    assert terms.shared is not None
    assert terms.shared.without(3).sigma(6) == pytest.approx(2.0 * (3 / 5) ** 0.5)


@pytest.mark.parametrize("guarantee", ["worst-case", "allowance"])
def test_what_remains_covers_those_who_ask_with_fewer_voters(guarantee: str) -> None:
    """p0 asks the three others; whoever knows two of their shares knows more than of q0's four."""
    terms = shared(parties=4, queriers=("q0", "p0"), guarantee=guarantee, epsilon=50.0)
    charges, orders = Charges(terms, pv.Ledger.in_memory()), pv.DEFAULT_ORDERS
    noise = terms.shared
    assert noise is not None
    told = noise.without(2)
    total = np.zeros(len(orders))
    if guarantee == "allowance":
        for asker in terms.queriers:
            charges.take(asker, 1, "a" * 32)
            each = told.surprise_rdp(len(terms.voters(asker)), 2, orders)
            total += 2 * charges.prices.allowance("p1") * each
    else:
        with suppress(pv.BudgetError):
            for _ in range(1000):
                charges.take("p0", 1, "a" * 32)
                total += told.worst_case_rdp(3, 2, orders)
    found = charges.prices.if_known("q0", 2)
    assert float(pv.epsilon(total, orders, 1e-5)) <= found < 100
    assert found == pytest.approx(charges.prices.if_known("p0", 2))
    assert np.isinf(charges.prices.if_known("q0", 3))  # all that p0's electorate has


def test_a_statement_says_where_no_noise_is_left_among_fewer_voters() -> None:
    terms = shared(parties=3, features=8, queriers=("q0", "p0"), epsilon=100.0)
    answers = simulation(terms, np.ones((8, 3, 2))).ask("q0", identity(8, 8))
    facts = facts_of(terms, "q0", answers)
    assert facts["noise_if_known"] == {"2": {"sigma": 1.414, "epsilon": None}}
    assert "sigma 1.414, no epsilon" in statement(facts)


def test_what_is_charged_is_the_shares_price() -> None:
    terms = shared(parties=4, labels=2)
    noise = terms.shared
    assert noise is not None
    prices = Prices(terms)
    np.testing.assert_array_equal(prices.each("q0"), 2 * noise.surprise_rdp(4, 1))


# -- terms and statements --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mechanism",
    [
        pv.TauVoting(sigma=2.0, tau=1.3, grid=32),
        pv.BinaryVoting(link=pv.OptimalLink(cost=0.3, order=3.0)),
    ],
)
def test_what_has_no_shares_keeps_the_guardians_noise(mechanism: pv.Mechanism) -> None:
    with pytest.raises(pv.errors.UnavailableError, match="use 'guardian'"):
        terms_of(mechanism, noise="sites")
    assert terms_of(mechanism).noise == "guardian"
    with refused("noise", value="both"):
        terms_of(noise="both")
    with pytest.raises(pv.InputError, match="sigma must be at most"):
        terms_of(pv.BinaryVoting(sigma=1e5), noise="sites")


def test_a_statement_says_who_knows_the_noise() -> None:
    for noise, missing, wanted in (
        ("guardian", 0, "no guarantee against the guardian"),
        ("sites", 0, "each of the 5 answering sites draws a share"),
        ("sites", 2, "sigma 1.73"),
    ):
        terms = terms_of(parties=5, features=8, noise=noise, epsilon=100.0)
        run = Observed(terms, models_for(terms, np.ones((8, 5, 2))), seed=1)
        for party in range(5 - missing, 5):
            run.kill((f"p{party}", ANSWERING))
        answers = run.ask("q0", identity(8, 8))
        assert wanted in statement(facts_of(terms, "q0", answers))

"""Noise from the sites: nobody knows the sum, and what is released is what is priced."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import ive
from scipy.stats import chisquare, poisson
from tests.capc.coalitions import altered, identity, simulation, terms_of

import privote as pv
from privote.accounting.gaussian import GaussianLink
from privote.accounting.renyi import divergence
from privote.capc.charges import Prices
from privote.capc.messages import BallotsReady, Decide, Masks
from privote.capc.noise import SharedNoise, line_supremum, skellam, skellam_table
from privote.capc.terms import Terms
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
    assert terms.counted.shared is not None
    (block,) = Ballots.of(votes).blocks()
    tally = terms.mechanism.tally(block)
    noise, margins, voters = terms.counted.shared.without(0), tally.margins, tally.voters
    means, bars = noise.unknown(voters), noise.bars(voters)
    probs = np.exp(skellam(means[0], noise.steps * margins - bars[0]))
    if noise.gate is not None:
        gate = np.exp(skellam(means[1], noise.steps * np.abs(margins) - bars[1]))
        probs = np.concatenate([probs * gate[..., 1:], gate[..., :1]], axis=-1)
    return np.asarray(probs)[0]


# -- what is released ------------------------------------------------------------------------------


def without_p4(decide: Decide) -> Decide:
    return Decide(decide.terms, decide.run, decide.parties[:4])


FAULTS: dict[str, tuple[int, Any]] = {  # how many are left, and what is done to letters
    "none": (5, None),
    "two are dead": (3, None),
    "masks are lost": (4, altered(Masks, "p4", lambda _: None)),
    "share is lost": (4, altered(Decide, "q0", without_p4)),
}


@pytest.mark.parametrize("guarantee", ["worst-case", "allowance"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", MECHANISMS)
def test_many_runs_follow_the_pmf_of_the_shares(name: str, fault: str, guarantee: str) -> None:
    """Neither the votes of a site nor a half of its noise may enter without the other half."""
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
    present, post = FAULTS[fault]
    run = simulation(terms, ballots, seed=13, post=post)
    for party in ("p3", "p4") if fault == "two are dead" else ():
        run.kill(party)
    answers = run.ask("q0", np.ones((queries, 1), np.int64))
    assert len(answers.parties) == present
    there = np.isin(terms.parties, answers.parties)[:, None]
    cube = np.where(there, ballots, 0 if guarantee == "allowance" else -1).astype(np.int8)
    for label, wanted in enumerate(expected(terms, cube)):
        outcomes = [0, 1] + ([-1] if terms.mechanism.gate is not None else [])
        hits = np.array([(answers.labels[:, label] == o).sum() for o in outcomes])
        assert chisquare(hits, wanted * queries).pvalue > 1e-4


# -- who knows what --------------------------------------------------------------------------------


def test_either_half_is_uniform_and_both_are_the_share() -> None:
    terms = shared(features=1, most_queries=4000, epsilon=1e6)
    run = simulation(terms, np.ones((1, 3, 2)), seed=None)
    run.ask("q0", np.ones((4000, 1), np.int64))
    masks = {site: message.masks for site, message in run.said(Masks)}
    noise = {site: message.noise for site, message in run.said(BallotsReady)}
    assert terms.counted.shared is not None
    spread = (2 * terms.counted.shared.shares(3)[0]) ** 0.5
    for party in terms.parties:
        guardians, queriers = masks[party][:, 2:], noise[party]
        assert queriers is not None
        for half in (guardians, queriers):
            words = half.copy().view(np.uint64).reshape(-1)
            for shift in (0, 28, 56):
                low = (words >> np.uint64(shift)) & np.uint64(255)
                assert chisquare(np.bincount(low.astype(int), minlength=256)).pvalue > 1e-9
        share = guardians + queriers
        assert np.abs(share).max() < 8 * spread
        assert share.std() == pytest.approx(spread, rel=0.05)


@pytest.mark.parametrize("rows", [0, 7])
def test_a_site_without_its_half_is_left_out(rows: int) -> None:
    def short(ready: BallotsReady) -> BallotsReady:
        assert ready.noise is not None
        return BallotsReady(ready.noise[:rows] if rows else None)

    post = altered(BallotsReady, "p2", short)
    run = simulation(shared(features=8), np.ones((8, 3, 2)), post=post)
    answers = run.ask("q0", identity(8, 8))
    assert answers.left_out == {"p2": "its noise does not match the terms"}


# -- what it costs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("voters", [2, 3, 10])
def test_no_neighbour_costs_more_than_is_charged_wherever_known_shares_put_the_bar(
    name: str, voters: int
) -> None:
    """An answering site knows its own share x of the vote and y of the gate: all are enumerated."""
    noise, orders = SharedNoise.of(MECHANISMS[name], 1), np.array([1.5, 4.0, 18.0, 64.0])
    charged = noise.contribution_rdp(voters, 1, orders)
    worst = np.zeros(len(orders))
    margins = np.arange(-voters, voters + 1)
    means = noise.unknown(voters)
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
    noise = shared(parties=6).counted.shared
    assert noise is not None
    assert noise.without(3).sigma(6) == pytest.approx(2.0 * (3 / 5) ** 0.5)
    prices = [noise.without(known).contribution_rdp(6, 1)[9] for known in range(7)]
    assert prices == sorted(prices)
    assert np.isinf(prices[6])


def test_what_is_charged_is_the_shares_price() -> None:
    terms = shared(parties=4, labels=2)
    assert terms.counted.shared is not None
    np.testing.assert_array_equal(
        Prices(terms).each("q0"), 2 * terms.counted.shared.contribution_rdp(4, 1)
    )


@pytest.mark.parametrize(
    ("noise", "missing", "wanted"),
    [
        ("guardian", 0, "no guarantee against the guardian"),
        ("sites", 0, "each of the 5 answering sites draws a share"),
        ("sites", 2, "knows 2 shares, a sigma of 1.732 remains"),
    ],
)
def test_a_statement_says_who_knows_the_noise(noise: str, missing: int, wanted: str) -> None:
    terms = terms_of(parties=5, features=8, noise=noise, epsilon=100.0)
    run = simulation(terms, np.ones((8, 5, 2)))
    for party in range(5 - missing, 5):
        run.kill(f"p{party}")
    answers = run.ask("q0", identity(8, 8))
    assert wanted in answers.guarantee.statement()


# -- a difference of two Poissons ------------------------------------------------------------------


@pytest.mark.parametrize("mean", [0.01, 0.7, 5.0, 64.0, 4000.0])
def test_skellam_is_a_difference_of_poissons(mean: float) -> None:
    """Against the pmf of two Poissons, convolved; and deep in the tail against Bessel functions."""
    table = np.exp(skellam_table(mean, 500))
    np.testing.assert_allclose(table.sum(axis=1), 1.0, rtol=1e-12)
    counts = np.arange(int(mean + 12 * mean**0.5 + 40))
    each = poisson.pmf(counts, mean)
    pmf = np.convolve(each, each[::-1])
    values = np.arange(-counts[-1], counts[-1] + 1)
    for at in (-30, -3, -1, 0, 1, 2, 45):
        wanted = pmf[values >= -at].sum()
        assert table[500 + at, 1] == pytest.approx(wanted, rel=1e-9, abs=1e-13)
    if mean >= 0.7:
        k = np.arange(1, 60)
        found = np.diff(table[500 - k[-1] : 501, 1])[::-1]  # Pr[S = k - 1]
        np.testing.assert_allclose(found, ive(k - 1, 2 * mean), rtol=1e-6)


def test_shares_of_noise_carry_the_stated_sigma_without_one_of_them() -> None:
    """Variance 2 sigma^2 on the margin: PATE's two counts with N(0, sigma^2) each."""
    noise = SharedNoise(vote=GaussianLink(sigma=7.0))
    for voters in (2, 3, 50):
        (mean,) = noise.unknown(voters)
        assert 2 * mean / noise.steps**2 == pytest.approx(2 * 7.0**2)
        margins = np.arange(-60, 61)
        gauss = noise.vote.log_probs(margins, voters)
        shared = skellam(mean, noise.steps * margins - noise.bars(voters)[0])
        np.testing.assert_allclose(np.exp(shared), np.exp(gauss), atol=0.003)


def test_on_a_line_every_place_is_looked_at() -> None:
    """Against all places, one by one; a table too short for an order prices it at infinity."""
    table, shift, orders = skellam_table(60.0, 900), 6, np.array([1.05, 2.0, 9.0, 60.0])
    here, there = table[:-shift], table[shift:]
    brute = np.maximum(
        divergence(here, there, orders).max(axis=0), divergence(there, here, orders).max(axis=0)
    )
    found = line_supremum(table, shift, 120**0.5, orders)
    np.testing.assert_allclose(found, brute, rtol=2e-6)
    assert (found >= brute).all()
    assert np.isinf(line_supremum(skellam_table(60.0, 100), shift, 120**0.5, np.array([900.0])))

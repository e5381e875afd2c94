"""Prices of consensus: a histogram of margins times a table is the whole bill."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from scipy.special import ndtri
from tests.refusals import refused

import privote as pv
from privote.accounting import sanitize as rules
from privote.accounting.renyi import divergence
from privote.entropy import Entropy
from privote.guarantees import Later, Sealed
from privote.guarantees import data_dependent as consensus
from privote.guarantees.data_dependent import MarginHistogram

ORDERS = np.array([1.5, 2.0, 16.0])


def levels(mechanism: pv.Mechanism, votes: np.ndarray) -> MarginHistogram:
    ballots = pv.Ballots.of(votes)
    found = MarginHistogram.of(mechanism, ballots)
    assert found is not None
    for block in ballots.blocks():
        found.add(mechanism.tally(block))
    return found


@pytest.mark.parametrize("kind", [bool, np.int8])
@pytest.mark.parametrize(
    "mechanism",
    [
        pv.BinaryVoting(sigma=2.0),
        pv.BinaryVoting(sigma=2.0, quota=0.3),
        pv.BinaryVoting(sigma=2.0, gate=pv.Gate(threshold=7, sigma=2.0)),
    ],
    ids=str,
)
def test_levels_add_up_to_the_bill(
    mechanism: pv.Mechanism, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privote.votes.cube._BLOCK_CELLS", 8 * 9 * 4)  # four blocks
    votes = (np.random.default_rng(0).random((30, 9, 4)) < 0.4).astype(kind)
    if kind is np.int8:
        votes[np.random.default_rng(1).random(votes.shape) < 0.1] = -1
    found = levels(mechanism, votes)
    assert found.histogram.sum() == 30 * 4
    np.testing.assert_allclose(
        found.costs(ORDERS) @ found.histogram, mechanism.total_rdp(votes, ORDERS), rtol=1e-12
    )


def test_one_changed_ballot_moves_every_cell_by_one_level() -> None:
    # What the smooth sensitivity rests on.
    rng = np.random.default_rng(2)
    for kind, max_shift in ((bool, 1), (np.int8, 2)):
        votes = (rng.random((20, 7, 3)) < 0.5).astype(kind)
        other = votes.copy()
        other[:, 0] = 1 - other[:, 0] if kind is np.int8 else ~other[:, 0]
        mechanism = pv.BinaryVoting(sigma=2.0)
        here, there = levels(mechanism, votes), levels(mechanism, other)
        assert here.grid.max_shift == max_shift
        for below in range(len(here.histogram) - max_shift):
            assert (
                there.histogram[: below + 1].sum() <= here.histogram[: below + max_shift + 1].sum()
            )


@pytest.mark.parametrize(("kind", "max_shift"), [(bool, 1), (np.int8, 2)])
def test_what_leaves_follows_from_the_levels_and_the_reach(kind: type, max_shift: int) -> None:
    """The published number, put together from its parts."""
    votes = (np.random.default_rng(3).random((40, 30, 3)) < 0.2).astype(kind)
    found = levels(pv.BinaryVoting(sigma=4.0), votes)
    shown, terms = consensus.sanitize(found, pv.DEFAULT_ORDERS, DELTA, Entropy(5))
    order = terms.order
    table = found.costs(np.array([order]))[0]
    cost = float(found.histogram @ table)
    scale = rules.smooth_sensitivity(table, found.histogram, terms.beta, max_shift)
    drawn = float(ndtri(Entropy(5).uniform(1)[0]))
    upper = rules.sanitized_upper(cost, scale, terms.sigma_s, drawn, terms.gamma)
    assert shown == rules.statement_epsilon(upper, terms.price, order, DELTA)


def empty(voters: int, mechanism: pv.BinaryVoting) -> MarginHistogram:
    found = MarginHistogram.of(mechanism, pv.Ballots.of(np.zeros((1, voters, 1), bool)))
    assert found is not None
    return found


def test_costs_in_pieces_are_the_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = empty(40, pv.BinaryVoting(sigma=3.0))
    whole = levels.costs(pv.DEFAULT_ORDERS)
    monkeypatch.setattr(consensus, "_CHUNK", 7 * len(pv.DEFAULT_ORDERS))
    np.testing.assert_array_equal(levels.costs(pv.DEFAULT_ORDERS), whole)
    assert whole.shape == (len(pv.DEFAULT_ORDERS), 41)


# -- bills of voters -------------------------------------------------------------------------------

DELTA = 1e-5
GATE = pv.Gate(threshold=12, sigma=2.0)
BINARY = [
    pv.BinaryVoting(sigma=4.0),
    pv.BinaryVoting(sigma=4.0, quota=0.3),
    pv.BinaryVoting(sigma=4.0, gate=GATE),
]
OTHERS = [
    pv.TauVoting(sigma=4.0, tau=1.5),
    pv.PowersetVoting(sigma=4.0),
]


@pytest.fixture
def votes() -> np.ndarray:
    rng = np.random.default_rng(0)
    common = rng.random((30, 1, 4)) < 0.2
    return common ^ (rng.random((30, 20, 4)) < 0.1)


@pytest.mark.parametrize("mechanism", BINARY, ids=str)
def test_moves_of_complete_votes_are_the_exact_curve(
    mechanism: pv.BinaryVoting, votes: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each voter flips everything: the same list of cells, priced by the other accountant."""
    monkeypatch.setattr("privote.votes.cube._BLOCK_CELLS", 8 * 20 * 4)  # four blocks
    found = consensus.voter_moves(mechanism, votes)
    assert found is not None
    moves, times = found
    assert (times.sum(axis=1) == 30 * 4).all()
    curves = [times @ divergence(*way, pv.DEFAULT_ORDERS) for way in (moves, moves.reversed())]
    np.testing.assert_allclose(np.stack(curves, axis=1), mechanism.rdp_by_voter(votes), rtol=1e-9)


@pytest.mark.parametrize("mechanism", BINARY, ids=str)
def test_sealed_names_the_better_accountant(mechanism: pv.BinaryVoting, votes: np.ndarray) -> None:
    release = pv.label(
        votes, mechanism=mechanism, epsilon=8.0, delta=DELTA, guarantee="data-dependent", queries=25
    )
    sealed = release.sealed
    assert sealed.accountant == "pld"
    assert sealed.epsilon_by_voter == sealed.epsilon_pld < sealed.epsilon_rdp <= sealed.epsilon
    assert sealed.epsilon_rdp == pv.bills(mechanism, votes[:25], DELTA).max()
    by_loss = pv.bills(mechanism, votes[:25], DELTA, accountant="pld")
    assert sealed.epsilon_pld == pytest.approx(by_loss.max(), rel=1e-5)
    assert sealed.bills("pld") == pytest.approx(by_loss)
    shown = "\n".join([release.summary(), release.statement(), str(release.facts()), repr(sealed)])
    for number in (sealed.epsilon_by_voter, sealed.epsilon_rdp):
        for digits in range(3, 8):
            assert f"{number:.{digits}g}" not in shown


@pytest.mark.parametrize("mechanism", OTHERS, ids=str)
def test_other_mechanisms_have_the_curve_only(mechanism: pv.Mechanism, votes: np.ndarray) -> None:
    release = pv.label(
        votes, mechanism=mechanism, epsilon=8.0, delta=DELTA, guarantee="data-dependent", queries=9
    )
    assert release.sealed.accountant == "rdp"
    assert release.sealed.epsilon_pld is None
    assert release.sealed.epsilon_by_voter == release.sealed.epsilon_rdp
    assert pv.bills(mechanism, votes[:9], DELTA, accountant="smaller") == pytest.approx(
        pv.bills(mechanism, votes[:9], DELTA)
    )
    with refused(None, pv.UnavailableError):
        pv.bills(mechanism, votes, DELTA, accountant="pld")
    with refused("accountant"):
        pv.bills(mechanism, votes, DELTA, accountant="gdp")


def test_too_many_voters_have_the_curve_only() -> None:
    query, voter = np.repeat(np.arange(4), 3), np.arange(12)
    ballots = pv.SparseBallots(query, voter, np.ones((12, 2), bool), queries=4, voters=50_000)
    mechanism = pv.BinaryVoting(sigma=4.0, false_alarm=0.01)
    assert consensus.voter_moves(mechanism, ballots) is None
    found = consensus.VoterLevels.of(mechanism, pv.Ballots.of(np.zeros((1, 2800, 1), bool)))
    assert found is not None
    with refused(None, pv.UnavailableError):
        pv.bills(mechanism, ballots, DELTA, accountant="pld")


def test_what_is_sealed_and_not_yet_worked_out_stays_here() -> None:
    sealed = Sealed(now=1.0, then=Later(lambda: 2.0))
    assert (sealed.now, sealed.then) == (1.0, 2.0)
    assert repr(sealed) == repr(Later(lambda: 2.0)) == "<sealed>"
    for back in (pickle.loads(pickle.dumps(sealed)), copy.deepcopy(sealed)):
        with pytest.raises(AttributeError, match="no sealed number 'then'"):
            _ = back.then
    with pytest.raises(AttributeError, match="available: now, then"):
        _ = sealed.other

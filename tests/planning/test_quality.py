"""The measure of quality: equal to cell by cell, to enumeration, and to what is drawn."""

from __future__ import annotations

import math
from dataclasses import asdict
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refused

import privote as pv
from privote import planning
from privote.planning.tuning import check_truth
from privote.votes.cube import Ballots, SparseBallots

GATE = pv.Gate(threshold=5, sigma=2.0)
CELLS = [
    pv.BinaryVoting(sigma=2.0),
    pv.BinaryVoting(sigma=2.0, quota=0.3),
    pv.BinaryVoting(link=pv.OptimalLink(cost=0.3, order=3.0)),
    pv.BinaryVoting(sigma=2.0, gate=GATE),
    pv.TauVoting(sigma=2.0, tau=1.2),
    pv.TauVoting(sigma=2.0, tau=1.5, norm=1, gate=GATE),
]


def votes_of(queries: int = 30, voters: int = 7, labels: int = 3, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    truth = rng.random((queries, 1, labels)) < 0.4
    return truth ^ (rng.random((queries, voters, labels)) < 0.25)


def wanted_of(queries: int = 30, labels: int = 3) -> npt.NDArray[np.int8]:
    """Return what should be released, a few cells unknown."""
    rng = np.random.default_rng(1)
    wanted = (rng.random((queries, labels)) < 0.4).astype(np.int8)
    wanted[rng.random((queries, labels)) < 0.1] = -1
    return wanted


def measured(mechanism: pv.Mechanism, votes: Any, wanted: Any) -> dict[str, float]:
    return asdict(planning.quality(mechanism, Ballots.of(votes), wanted))


def by_cells(one: Any, answered: Any, wanted: npt.NDArray[np.int8]) -> dict[str, float]:
    """Return the measure the long way: cell by cell."""
    answered = np.broadcast_to(answered, wanted.shape)
    yes, no = wanted == 1, wanted == 0
    misses, alarms = (answered - one)[yes].sum(), one[no].sum()
    return {
        "wrong": (misses + alarms) / answered[yes | no].sum(),
        "missed": misses / answered[yes].sum(),
        "false_alarm": alarms / answered[no].sum(),
        "answered": answered[yes | no].mean(),
    }


@pytest.mark.parametrize("mechanism", CELLS, ids=str)
def test_cells_are_wrong_as_their_outcomes_say(mechanism: Any) -> None:
    votes, wanted = votes_of(), wanted_of()
    chances = mechanism.outcome_probabilities(votes)
    expected = by_cells(chances[..., 1], chances[..., :2].sum(axis=-1), wanted)
    assert measured(mechanism, votes, wanted) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("limit", [None, 2])
@pytest.mark.parametrize("gate", [None, GATE])
def test_powerset_is_wrong_as_all_its_sets_say(limit: int | None, gate: pv.Gate | None) -> None:
    votes = Ballots.from_array(votes_of(seed=3)).clip(2).to_array()
    wanted = wanted_of()
    mechanism = pv.PowersetVoting(sigma=1.5, max_positives=limit, gate=gate)
    one, answered = np.zeros((30, 3)), np.zeros((30, 1))
    sets = [s for s in product((0, 1), repeat=3) if limit is None or sum(s) <= limit]
    for row, chances in enumerate(mechanism.outcome_probabilities(votes)):
        named = {tuple(np.flatnonzero(s).tolist()): np.array(s) for s in sets}
        unvoted = [name for name in named if name not in chances]
        for name, members in named.items():
            chance = chances.get(name, chances["unvoted"] / max(len(unvoted), 1))
            one[row] += chance * members
            answered[row] += chance
    assert measured(mechanism, votes, wanted) == pytest.approx(by_cells(one, answered, wanted))


@pytest.mark.parametrize("gate", [None, GATE])
def test_plurality_is_wrong_as_its_labels_say(gate: pv.Gate | None) -> None:
    rng = np.random.default_rng(5)
    votes = np.eye(4, dtype=bool)[rng.choice(4, (30, 7), p=[0.6, 0.2, 0.15, 0.05])]
    votes[:, 0] = False  # one who is silent
    wanted = wanted_of(labels=4)
    mechanism = pv.PluralityVoting(sigma=1.5, gate=gate)
    chances = mechanism.outcome_probabilities(votes)
    answered = chances[:, :4].sum(axis=1, keepdims=True)
    expected = by_cells(chances[:, :4], answered, wanted)
    assert measured(mechanism, votes, wanted) == pytest.approx(expected)


class Undisclosed(pv.BinaryVoting):
    """A mechanism that does not say its probabilities: they are seen from its draws."""

    cell_probabilities = pv.Mechanism.cell_probabilities


@pytest.mark.parametrize(
    "mechanism",
    [
        pv.BinaryVoting(sigma=3.0),
        pv.TauVoting(sigma=2.0, tau=1.2, gate=GATE),
        pv.PowersetVoting(sigma=1.0, gate=GATE),
        pv.PowersetVoting(sigma=1.0, max_positives=3),
        Undisclosed(sigma=3.0),
    ],
    ids=str,
)
def test_draws_are_wrong_as_often_as_said(mechanism: pv.Mechanism) -> None:
    votes, repeats = votes_of(queries=12), 300
    wanted = planning.noise_free(mechanism, Ballots.of(votes))
    found = planning.quality(mechanism, Ballots.of(votes), wanted)
    drawn = mechanism.release(np.concatenate([votes] * repeats), seed=999)
    seen = planning.quality_of(drawn, np.concatenate([wanted] * repeats))
    # Cells of a query may hang together, so a query counts as one draw.
    slack = 4 * np.sqrt(0.25 / (12 * repeats)) * (2 if isinstance(mechanism, Undisclosed) else 1)
    assert abs(found.wrong - seen.wrong) < slack
    assert abs(found.answered - seen.answered) < slack


@given(data=st.data(), queries=st.integers(1, 8), labels=st.integers(1, 3))
def test_given_labels_are_measured_as_accuracy_and_recall(
    data: Any, queries: int, labels: int
) -> None:
    def table() -> npt.NDArray[np.int8]:
        cells = st.lists(st.sampled_from((-1, 0, 1)), min_size=labels, max_size=labels)
        return np.array(data.draw(st.lists(cells, min_size=queries, max_size=queries)), np.int8)

    truth, answers = table(), table()
    found = planning.quality_of(answers, truth)
    both = (truth != -1) & (answers != -1)
    for value, cells in (
        (found.wrong, both),
        (found.missed, both & (truth == 1)),
        (found.false_alarm, both & (truth == 0)),
    ):
        if cells.any():
            assert value == pytest.approx((answers != truth)[cells].mean())
        else:
            assert math.isnan(value)


def test_blocks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    votes, wanted = votes_of(queries=40), wanted_of(40)
    for mechanism in (*CELLS, pv.PowersetVoting(sigma=1.0)):
        whole = measured(mechanism, votes, wanted)
        with monkeypatch.context() as small:
            small.setattr("privote.votes.cube._BLOCK_CELLS", 1)
            assert len(list(Ballots.of(votes).blocks())) == 5
            assert measured(mechanism, votes, wanted) == pytest.approx(whole)


def test_sparse_ballots_are_measured_as_dense_ones() -> None:
    votes, wanted = votes_of(voters=6), wanted_of()
    query, voter = np.nonzero(np.ones(votes.shape[:2]))
    sparse = SparseBallots(query, voter, votes[query, voter], queries=30, voters=6)
    for mechanism in CELLS:
        found = planning.quality(mechanism, sparse, wanted)
        assert asdict(found) == pytest.approx(measured(mechanism, votes, wanted))


def test_what_is_wanted_without_noise() -> None:
    votes = np.array([[[1, 1, 0], [1, 1, 0], [1, 0, 0], [0, 0, 1]]], bool)

    def wanted(mechanism: pv.Mechanism, votes: Any = votes) -> list[int]:
        return list(planning.noise_free(mechanism, Ballots.of(votes))[0].astype(int))

    assert wanted(pv.BinaryVoting(sigma=9.0)) == [1, 0, 0]  # two of four are a tie, not a majority
    assert wanted(pv.BinaryVoting(sigma=9.0, quota=0.3)) == [1, 1, 0]
    # Clipped, no label would have half of the voters: whole ballots are what is wanted.
    assert wanted(pv.TauVoting(sigma=9.0, tau=0.5)) == [1, 0, 0]
    assert wanted(pv.PowersetVoting(sigma=9.0)) == [1, 0, 0]
    plural = np.eye(4, dtype=bool)[[[0, 0, 1, 2, 3]]]
    assert wanted(pv.PluralityVoting(sigma=1.0), plural) == [1, 0, 0, 0]
    assert wanted(pv.PluralityVoting(sigma=1.0), np.zeros((1, 3, 2), bool)) == [0, 0]


@given(sigma=st.floats(0.3, 50), more=st.floats(1.0, 4.0))
def test_noise_never_helps_to_meet_the_noise_free_outcome(sigma: float, more: float) -> None:
    ballots = Ballots.of(votes_of())
    wanted = planning.noise_free(pv.BinaryVoting(sigma=1.0), ballots)
    less, much = (
        asdict(planning.quality(pv.BinaryVoting(sigma=s), ballots, wanted))
        for s in (sigma, sigma * more)
    )
    for name in ("wrong", "missed", "false_alarm"):
        assert much[name] >= less[name] - 1e-12


@pytest.mark.parametrize(
    "mechanism", [*CELLS, pv.PowersetVoting(sigma=3.0), pv.PluralityVoting(sigma=3.0)], ids=str
)
def test_another_noise_is_the_same_mechanism_otherwise(mechanism: pv.Mechanism) -> None:
    same, other = mechanism.parameters(), mechanism.with_noise(4.0).parameters()
    for known in (same, other):
        known.pop("sigma", None)
        known.get("link", {}).pop("cost", None)
    assert other == same
    assert type(mechanism.with_noise(4.0)) is type(mechanism)
    quiet = mechanism.with_noise(1.0).worst_case_rdp(20, 3, [2.0])
    assert quiet > mechanism.with_noise(4.0).worst_case_rdp(20, 3, [2.0])


@pytest.mark.parametrize("truth", [np.zeros((30, 4), bool), np.full((30, 3), 2)])
def test_bad_truth(truth: Any) -> None:
    with refused("truth"):
        check_truth(truth, 30, 3)

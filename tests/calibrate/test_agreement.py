from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import privote as pv
from privote.ballots import Ballots, SparseBallots
from privote.calibrate.agreement import Agreement, check_measure, scorer
from privote.calibrate.sample import Sample, Wanted

GATE = pv.Gate(threshold=5, sigma=2.0)


def votes_of(queries: int = 30, voters: int = 7, labels: int = 3, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    truth = rng.random((queries, 1, labels)) < 0.4
    return truth ^ (rng.random((queries, voters, labels)) < 0.25)


def sample_of(votes: Any, *, allowance: bool = False) -> Sample:
    ballots = Ballots.of(votes)
    guess = np.zeros((ballots.queries, ballots.labels), bool) if allowance else None
    return Sample(ballots=ballots, guess=guess)


def scored(mechanism: pv.Mechanism, votes: Any, want: Any, **how: Any) -> Agreement:
    return scorer(sample_of(votes, **how), mechanism, want)(mechanism)


def by_cells(one: Any, answered: Any, want: npt.NDArray[np.bool_], measure: str) -> Any:
    """Return utility and share answered the long way: cell by cell."""
    answered = np.broadcast_to(answered, want.shape)
    right = np.where(want, one, answered - one)
    sides = {"agreement": [want | ~want], "agreement_on_yes": [want], "balanced": [want, ~want]}
    utility = [right[side].sum() / answered[side].sum() for side in sides[measure]]
    share = [answered[side].mean() for side in sides[measure]]
    return np.mean(utility), np.mean(share)


@pytest.mark.parametrize("measure", ["agreement", "agreement_on_yes", "balanced"])
@pytest.mark.parametrize(
    "mechanism",
    [
        pv.BinaryVoting(sigma=2.0),
        pv.BinaryVoting(sigma=2.0, quota=0.3),
        pv.BinaryVoting(link=pv.OptimalLink(cost=0.3, order=3.0)),
        pv.BinaryVoting(sigma=2.0, gate=GATE),
        pv.TauVoting(sigma=2.0, tau=1.2),
        pv.TauVoting(sigma=2.0, tau=1.5, norm=1, gate=GATE),
    ],
    ids=str,
)
def test_cells_agree_as_their_outcomes_say(mechanism: Any, measure: str) -> None:
    votes = votes_of()
    want = np.random.default_rng(1).random((30, 3)) < 0.4
    chances = mechanism.outcome_probabilities(votes)
    expected = by_cells(chances[..., 1], chances[..., :2].sum(axis=-1), want, measure)
    assert scored(mechanism, votes, want).measured(measure) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("limit", [None, 2])
@pytest.mark.parametrize("gate", [None, GATE])
def test_powerset_agrees_as_all_its_sets_say(limit: int | None, gate: pv.Gate | None) -> None:
    votes = Ballots.from_array(votes_of(seed=3)).clip(2).to_array()
    want = np.random.default_rng(1).random((30, 3)) < 0.4
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
    for measure in ("agreement", "agreement_on_yes", "balanced"):
        expected = by_cells(one, answered, want, measure)
        assert scored(mechanism, votes, want).measured(measure) == pytest.approx(expected)


@pytest.mark.parametrize("gate", [None, GATE])
def test_plurality_agrees_as_its_labels_say(gate: pv.Gate | None) -> None:
    rng = np.random.default_rng(5)
    votes = np.eye(4, dtype=bool)[rng.choice(4, (30, 7), p=[0.6, 0.2, 0.15, 0.05])]
    votes[:, 0] = False  # one who is silent
    want = rng.random((30, 4)) < 0.3
    mechanism = pv.PluralityVoting(sigma=1.5, gate=gate)
    chances = mechanism.outcome_probabilities(votes)
    answered = chances[:, :4].sum(axis=1, keepdims=True)
    for measure in ("agreement", "balanced"):
        expected = by_cells(chances[:, :4], answered, want, measure)
        assert scored(mechanism, votes, want).measured(measure) == pytest.approx(expected)


@pytest.mark.parametrize(
    "mechanism",
    [
        pv.BinaryVoting(sigma=3.0),
        pv.TauVoting(sigma=2.0, tau=1.2, gate=GATE),
        pv.PowersetVoting(sigma=1.0, gate=GATE),
    ],
    ids=str,
)
def test_draws_agree_as_often_as_said(mechanism: pv.Mechanism) -> None:
    votes = votes_of(queries=12)
    want = Wanted(sample_of(votes))(mechanism)
    utility, answered = scored(mechanism, votes, want).measured("agreement")
    repeats = 300
    drawn = mechanism.release(np.concatenate([votes] * repeats), seed=0)
    spoke = drawn != pv.ABSTAIN
    right = (drawn == np.concatenate([want] * repeats))[spoke].mean()
    # Cells of a query may hang together, so a query counts as one draw.
    assert abs(right - utility) < 4 * np.sqrt(0.25 / (12 * repeats))
    assert abs(spoke.mean() - answered) < 4 * np.sqrt(0.25 / (12 * repeats))


def test_blocks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    votes = votes_of(queries=40)
    want = np.random.default_rng(1).random((40, 3)) < 0.4
    for mechanism in (
        pv.BinaryVoting(sigma=2.0),
        pv.TauVoting(sigma=2.0, tau=1.2),
        pv.PowersetVoting(sigma=1.0),
    ):
        whole = scored(mechanism, votes, want).measured("balanced")
        with monkeypatch.context() as small:
            small.setattr("privote.ballots._BLOCK_CELLS", 1)
            assert len(list(Ballots.of(votes).blocks())) == 5
            assert scored(mechanism, votes, want).measured("balanced") == pytest.approx(whole)


def test_who_has_run_out_counts_as_the_baseline() -> None:
    votes = votes_of(queries=20)
    mechanism = pv.BinaryVoting(sigma=2.0)
    want = np.random.default_rng(1).random((20, 3)) < 0.4
    left = votes.copy()
    for voter in range(7):
        spent = 0
        for query in range(20):
            count = int(votes[query, voter].sum())
            if spent + count > 6:
                left[query, voter] = False
            else:
                spent += count
    assert (left != votes).any()
    found = scorer(sample_of(votes, allowance=True), mechanism, want, allowance=6)(mechanism)
    assert found.measured("balanced") == pytest.approx(
        scored(mechanism, left, want).measured("balanced")
    )


def test_a_missing_vote_counts_as_the_guarantee_says() -> None:
    votes = votes_of().astype(np.int8)
    votes[:, :3] = -1
    want = np.random.default_rng(1).random((30, 3)) < 0.4
    mechanism = pv.BinaryVoting(sigma=2.0)
    chances = mechanism.outcome_probabilities(votes)[..., 1]
    assert scored(mechanism, votes, want).measured("agreement")[0] == pytest.approx(
        by_cells(chances, np.ones((30, 1)), want, "agreement")[0]
    )
    # Under an allowance who is missing counts as the baseline, here a no.
    chances = mechanism.outcome_probabilities(votes == 1)[..., 1]
    assert scored(mechanism, votes, want, allowance=True).measured("agreement")[0] == pytest.approx(
        by_cells(chances, np.ones((30, 1)), want, "agreement")[0]
    )


def test_sparse_ballots_agree_as_dense_ones() -> None:
    votes = votes_of(voters=6)
    query, voter = np.nonzero(np.ones(votes.shape[:2]))
    sparse = SparseBallots(query, voter, votes[query, voter], queries=30, voters=6)
    want = np.random.default_rng(1).random((30, 3)) < 0.4
    for mechanism in (pv.BinaryVoting(sigma=2.0), pv.TauVoting(sigma=2.0, tau=1.2)):
        for allowance in (False, True):
            assert scored(mechanism, sparse, want, allowance=allowance).measured(
                "balanced"
            ) == pytest.approx(scored(mechanism, votes, want).measured("balanced"))
            dense, few = sample_of(votes, allowance=True), sample_of(sparse, allowance=True)
            assert (dense.busiest(mechanism) == few.busiest(mechanism)).all()


def test_what_is_wanted_without_noise() -> None:
    votes = np.array([[[1, 1, 0], [1, 1, 0], [1, 0, 0], [0, 0, 1]]], bool)
    sample = sample_of(votes)

    def wanted(mechanism: pv.Mechanism) -> list[int]:
        return Wanted(sample)(mechanism)[0].astype(int).tolist()

    assert wanted(pv.BinaryVoting(sigma=9.0)) == [1, 0, 0]  # two of four are a tie, not a majority
    assert wanted(pv.BinaryVoting(sigma=9.0, quota=0.3)) == [1, 1, 0]
    # Clipped, no label would have half of the voters: whole ballots are what is wanted.
    assert wanted(pv.TauVoting(sigma=9.0, tau=0.5)) == [1, 0, 0]
    assert wanted(pv.PowersetVoting(sigma=9.0)) == [1, 1, 0]
    silent = sample_of(np.zeros((2, 3, 2), bool))
    assert not Wanted(silent)(pv.PluralityVoting(sigma=1.0)).any()


@given(
    sigma=st.floats(0.3, 50),
    more=st.floats(1.0, 4.0),
    measure=st.sampled_from(["agreement", "agreement_on_yes", "balanced"]),
)
def test_noise_never_helps_to_meet_the_noise_free_outcome(
    sigma: float, more: float, measure: str
) -> None:
    votes = votes_of()
    score = scorer(
        sample_of(votes),
        pv.BinaryVoting(sigma=1.0),
        Wanted(sample_of(votes))(pv.BinaryVoting(sigma=1.0)),
    )
    less, _ = score(pv.BinaryVoting(sigma=sigma)).measured(measure)
    assert score(pv.BinaryVoting(sigma=sigma * more)).measured(measure)[0] <= less + 1e-12


@pytest.mark.parametrize(
    ("measure", "want", "message"),
    [
        ("accuracy", np.eye(2, dtype=bool), "measure must be one of agreement, agreement_on_yes"),
        ("balanced", np.zeros((2, 2), bool), "needs cells that should be 1, and there are none"),
        ("agreement_on_yes", np.zeros((2, 2), bool), "needs cells that should be 1"),
        ("balanced", np.ones((2, 2), bool), "needs cells that should be 0, and there are none"),
    ],
)
def test_measures_that_cannot_be_taken(measure: str, want: Any, message: str) -> None:
    with pytest.raises(pv.InputError, match=message):
        check_measure(measure, want)


@pytest.mark.parametrize(
    ("truth", "message"),
    [
        (np.zeros((30, 4), bool), r"truth must be \(queries, labels\) = \(30, 3\), got shape"),
        (np.full((30, 3), 2), "truth must hold 0 and 1 only"),
    ],
)
def test_bad_truth(truth: Any, message: str) -> None:
    with pytest.raises(pv.InputError, match=message):
        Wanted(sample_of(votes_of()), truth)

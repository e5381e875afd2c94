"""The student that knows how its labels were drawn."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import check_grad
from scipy.special import expit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from tests.refusals import refused

import privote as pv
from privote.learning.neighbours.ballots import NeighbourBallots
from privote.learning.neighbours.labelling import NeighbourStudent, _Evidence

RECORDS, POOL, LABELS, FEATURES = 4000, 300, 3, 6
MECHANISM = pv.BinaryVoting(sigma=12.0, false_alarm=0.05)
RULE = np.random.default_rng(9).normal(size=(FEATURES, LABELS)) * 3


def task(seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """Return private rows, their labels, public rows, and the chances of every public row."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(RECORDS + POOL, FEATURES))
    chance = expit(rows @ RULE - 3)
    labels = rng.random(chance.shape) < chance
    return rows[:RECORDS], labels[:RECORDS], rows[RECORDS:], chance[RECORDS:]


def test_circles_are_the_public_rows_near_a_query() -> None:
    private, labels, public, _ = task()
    shares = [0.02, 0.1, 0.02]
    votes = NeighbourBallots(private, labels, public, shares, radius="query").take([4, 1, 4])
    circles = votes.circles()
    assert circles.queries == 3
    assert circles.voters == RECORDS
    pool = NeighbourBallots(public, np.ones((POOL, LABELS)), public, shares, radius="query")
    cube = np.zeros((3, POOL, LABELS))
    for block in pool.take([4, 1, 4]).blocks():
        cube[block.query, block.voter] = block.votes
    for label in range(LABELS):
        near = circles.near[circles.radius_of[label]].toarray()
        np.testing.assert_array_equal(near, cube[:, :, label])
    other = NeighbourBallots(private[:7] + 9, labels[:7], public, shares, radius="query")
    for mine, theirs in zip(circles.near, other.take([4, 1, 4]).circles().near, strict=True):
        np.testing.assert_array_equal(mine.toarray(), theirs.toarray())


def test_the_slope_is_that_of_the_likelihood() -> None:
    private, labels, public, _ = task()
    votes = NeighbourBallots(private, labels, public, [0.02, 0.3, 0.02]).head(40)
    released = MECHANISM.release(votes, seed=1)
    released[0, 0] = pv.ABSTAIN
    lesson = _Evidence.of(votes.circles(), [released, 1 - np.abs(released)], MECHANISM)
    shape = (POOL, LABELS)
    start = np.random.default_rng(0).uniform(0.05, 0.4, shape).reshape(-1)
    error = check_grad(
        lambda flat: lesson.likelihood(flat.reshape(shape))[0].sum(),
        lambda flat: lesson.likelihood(flat.reshape(shape))[1].reshape(-1),
        start,
        seed=0,
        direction="random",
    )
    size = np.linalg.norm(lesson.likelihood(start.reshape(shape))[1])
    assert error < 1e-4 * size


def test_finds_the_rule_behind_blurred_and_noisy_labels() -> None:
    """A plain student learns what would be released; this one, what is true."""
    private, labels, public, chance = task()
    votes = NeighbourBallots(private, labels, public, 0.1, radius="query")
    released = [
        pv.label(
            votes,
            mechanism=MECHANISM,
            epsilon=8.0,
            delta=1e-5,
            guarantee="allowance",
            seed=turn,
        ).labels
        for turn in range(2)
    ]
    student = NeighbourStudent(MECHANISM, C=1.0)
    student.fit(sparse.csr_array(public), [(votes.circles(), each) for each in released])
    plain = np.stack(
        [
            LogisticRegression()
            .fit(np.tile(public, (2, 1)), np.concatenate(released)[:, label])
            .predict_proba(public)[:, 1]
            for label in range(LABELS)
        ],
        axis=1,
    )
    own = student.predict_proba(public)
    assert np.abs(own - chance).mean() < 0.5 * np.abs(plain - chance).mean()
    assert np.abs(own - chance).mean() < 0.13
    np.testing.assert_array_equal(student.predict(public), own > 0.5)
    assert student.coef_.shape == (LABELS, FEATURES)


def test_carries_nothing_private() -> None:
    private, labels, public, _ = task()
    votes = NeighbourBallots(private, labels, public, 0.1)
    student = NeighbourStudent(MECHANISM, max_iter=3)
    student.fit(public, [(votes.circles(), MECHANISM.release(votes, seed=0))])
    again = pickle.loads(pickle.dumps(student))
    assert set(vars(again)) == {
        "mechanism", "C", "max_iter", "coef_", "intercept_", "classes_", "n_features_in_"
    }  # fmt: skip
    assert clone(student).get_params()["max_iter"] == 3


def test_bad_input() -> None:
    private, labels, public, _ = task()
    votes = NeighbourBallots(private, labels, public, 0.1)
    circles, released = votes.circles(), np.zeros((POOL, LABELS), np.int8)
    with pytest.raises(pv.InputError, match=r"labels of a batch must be \(300, 3\)"):
        NeighbourStudent(MECHANISM).fit(public, [(circles, released[:5])])
    with refused("batches"):
        NeighbourStudent(MECHANISM).fit(public[:5], [(circles, released)])
    with refused("batches"):
        NeighbourStudent(MECHANISM).fit(public, [])
    with pytest.raises(pv.InputError, match="BinaryVoting with a sigma"):
        NeighbourStudent(pv.TauVoting(sigma=1.0, tau=1.0)).fit(public, [(circles, released)])
    with refused("C"):
        NeighbourStudent(MECHANISM, C=0.0).fit(public, [(circles, released)])

"""Probabilities into votes: every rule, in memory and in blocks, for each teacher alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refused

from privote.learning import Teachers, cast, train
from privote.learning.teachers import partition, top_votes


def data(records: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(records, 6)).astype(np.float32)
    return X, (X @ rng.normal(size=(6, 3)) > [0, 2, 4]).astype(np.int8)


POOL = np.random.default_rng(1).normal(size=(203, 6)).astype(np.float32)


@pytest.fixture(scope="module")
def teachers() -> Teachers:
    X, Y = data()
    return train(None, X, Y, partition(400, 5, key=0), 5)


@pytest.fixture(scope="module")
def answers(teachers: Teachers) -> np.ndarray:
    return np.concatenate(list(teachers.predict_proba(POOL)))


def test_by_prevalence_each_teacher_says_yes_as_often_as_its_part_did(
    teachers: Teachers, answers: np.ndarray
) -> None:
    votes = cast(teachers, POOL)
    assert np.array_equal(votes.sum(axis=0), np.floor(teachers.prevalence * 203 + 0.5))
    voices = answers.reshape(203, 15).T
    assert np.array_equal(votes, top_votes(voices, teachers.prevalence, (5, 3)))
    assert np.array_equal(cast(teachers, POOL, block=64), votes)


@pytest.mark.parametrize("rule", [0.5, 0, [0.1, 0.5, 0.9]])
def test_at_a_threshold_or_above_it_is_a_yes(
    teachers: Teachers, answers: np.ndarray, rule: Any
) -> None:
    assert np.array_equal(cast(teachers, POOL, rule), answers >= np.float32(rule))
    # One row at a time may round the last bit of a probability another way, so whole blocks.
    assert np.array_equal(cast(teachers, POOL, rule, block=64), answers >= np.float32(rule))


@pytest.mark.parametrize(
    "rule", ["best", 1.5, [0.5, np.nan, 0.5], [0.5, 0.5], np.zeros((5, 3)), ["a", "b", "c"], None]
)
def test_rules_that_are_refused(teachers: Teachers, rule: Any) -> None:
    with refused("threshold"):
        cast(teachers, POOL, rule)


def test_a_pool_without_rows_is_refused(teachers: Teachers) -> None:
    with refused("X_public"):
        cast(teachers, POOL[:0])


def top_share(scores: Any, share: Any) -> Any:
    """Return the votes on scores (queries, teachers, labels)."""
    return top_votes(scores.reshape(len(scores), -1).T, share, scores.shape[1:])


@given(
    queries=st.integers(1, 40),
    levels=st.integers(1, 50),
    share=st.floats(0, 1),
    seed=st.integers(0, 1000),
)
def test_exactly_the_share_and_the_likeliest(
    queries: int, levels: int, share: float, seed: int
) -> None:
    scores = np.random.default_rng(seed).integers(0, levels, (queries, 3, 2)) / levels
    votes = top_share(scores, np.full((3, 2), share))
    assert (votes.sum(axis=0) == int(np.floor(share * queries + 0.5))).all()
    for teacher, label in np.ndindex(3, 2):
        yes = scores[votes[:, teacher, label], teacher, label]
        no = scores[~votes[:, teacher, label], teacher, label]
        if len(yes) and len(no):
            assert yes.min() >= no.max()


def test_teachers_without_an_opinion_do_not_agree() -> None:
    votes = top_share(np.zeros((1000, 50, 2)), np.full((50, 2), 0.3))
    assert (votes.sum(axis=0) == 300).all()
    # Of 50 teachers 15 say yes on average, with a standard deviation of 3.2.
    tally = votes.sum(axis=1)
    assert tally.max() < 32
    assert 2.7 < tally.std() < 3.8

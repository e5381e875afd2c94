"""Yes to the top share: so many, the likeliest, and ties without looking at anybody else."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from privote.learning.teachers.votes import top_votes


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
        yes, no = scores[votes[:, teacher, label], teacher, label], None
        no = scores[~votes[:, teacher, label], teacher, label]
        if len(yes) and len(no):
            assert yes.min() >= no.max()


@given(seed=st.integers(0, 1000))
def test_a_teachers_votes_do_not_depend_on_another(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 4, (30, 3, 2)) / 4
    share = rng.random((3, 2))
    votes = top_share(scores, share)
    scores[:, 1], share[1] = rng.random((30, 2)), rng.random(2)
    assert np.array_equal(top_share(scores, share)[:, [0, 2]], votes[:, [0, 2]])


def test_teachers_without_an_opinion_do_not_agree() -> None:
    votes = top_share(np.zeros((1000, 50, 2)), np.full((50, 2), 0.3))
    assert (votes.sum(axis=0) == 300).all()
    # Of 50 teachers 15 say yes on average, with a standard deviation of 3.2.
    tally = votes.sum(axis=1)
    assert tally.max() < 32
    assert 2.7 < tally.std() < 3.8

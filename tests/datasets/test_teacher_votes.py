"""The embedded votes are there, whole, and what `privote label` reads."""

from __future__ import annotations

import numpy as np
import pytest

import privote as pv
from privote.datasets import TEACHER_VOTES, load_teacher_votes


def test_they_are_votes_of_fifty_teachers() -> None:
    real = load_teacher_votes()
    assert real.votes.shape == (4000, 50, 22)
    assert real.truth.shape == (4000, 22)
    assert real.votes.mean() == pytest.approx(0.0705, abs=1e-4)
    assert (real.votes == real.truth[:, None]).mean() == pytest.approx(0.9254, abs=1e-4)
    with pytest.raises(ValueError, match="read-only"):
        real.votes[0, 0, 0] = True


def test_the_file_is_a_votes_file() -> None:
    read = pv.votes.read(TEACHER_VOTES).to_array()
    np.testing.assert_array_equal(read, load_teacher_votes().votes)

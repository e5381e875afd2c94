"""The embedded votes are there, whole, and what `privote label` reads."""

from __future__ import annotations

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv
from privote.datasets import TEACHER_VOTES, load_teacher_votes


@pytest.mark.parametrize(
    ("name", "shape", "yes", "right"),
    [
        ("tmc2007", (4000, 50, 22), 0.0705, 0.9254),
        ("tmc2007-250", (1000, 250, 22), 0.0535, 0.9176),
        ("voc2012", (5823, 50, 20), 0.0292, 0.9486),
    ],
)
def test_they_are_votes_of_real_teachers(
    name: str, shape: tuple[int, int, int], yes: float, right: float
) -> None:
    real = load_teacher_votes(name)
    assert real.votes.shape == shape
    assert real.truth.shape == (shape[0], shape[2])
    assert real.votes.mean() == pytest.approx(yes, abs=1e-4)
    assert (real.votes == real.truth[:, None]).mean() == pytest.approx(right, abs=1e-4)
    with pytest.raises(ValueError, match="read-only"):
        real.votes[0, 0, 0] = True
    read = pv.votes.read(TEACHER_VOTES[name])
    np.testing.assert_array_equal(read.to_array(), real.votes)
    assert read.label_names == real.label_names
    assert read.query_names == real.query_names
    assert name != "voc2012" or real.label_names[14] == "person"


def test_other_names_are_refused() -> None:
    with refused("name", value="imagenet"):
        load_teacher_votes("imagenet")

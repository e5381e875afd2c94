"""The simulation of many machines: exact where nothing is random, and no chunk is forgotten."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scale


def job(**changes: Any) -> Any:
    small = {"queries": 10**6, "voters": 100, "labels": 10, "machines": 5, "chunks": 200}
    calm = {"spread": 0.0, "slow": 0.0, "between_failures": math.inf}
    return scale.Cluster(**{**small, **calm, **changes})


def test_without_faults_it_takes_what_arithmetic_says() -> None:
    costs = scale.Costs(byte=1e-9, vote=1e-6, label=1e-12, charge=0.0)
    whole, found = job(), scale.simulated(job(), costs)
    once = scale.arithmetic(whole, costs)["count votes, once"]
    assert found.surprises == pytest.approx(once)
    assert found.labels == pytest.approx(2 * once, rel=1e-3)
    assert (found.lost, found.copied > 0) == (0, True)  # the last chunks, while cores are idle


@pytest.mark.parametrize("copies", [True, False])
def test_every_chunk_is_done_whatever_fails(copies: bool) -> None:
    hard = job(spread=0.5, slow=0.1, between_failures=40.0, repair=5.0, copies=copies)
    stage = scale.Stage(hard, 1.0, np.random.default_rng(3))
    done = stage.run(7.0)
    assert np.isfinite(done).all()
    assert done.min() > 7.0
    assert stage.lost > 0
    again = scale.Stage(hard, 1.0, np.random.default_rng(3)).run(7.0)
    np.testing.assert_array_equal(done, again)

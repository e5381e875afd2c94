"""What every test can use: hypothesis profiles, and the real data if it is on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, settings

from privote.datasets import load_teacher_votes

REPOSITORY = Path(__file__).resolve().parent.parent

# Choose with `pytest --hypothesis-profile=full`. No deadline: a busy machine is not a defect.
# The short profile tries the same examples every time, so that a change that did not break
# anything is never blamed; the full one looks for new ones.
settings.register_profile(
    "short",
    deadline=None,
    max_examples=25,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "full",
    deadline=None,
    max_examples=500,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("short")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real data sets: ``$PRIVOTE_SHARED/data``, or ``../shared/data``."""
    named = os.environ.get("PRIVOTE_SHARED")
    folder = (Path(named) if named else REPOSITORY.parent / "shared") / "data"
    if folder.is_dir():
        return folder
    if named:
        pytest.fail(f"PRIVOTE_SHARED is {named!r}, but there is no folder {folder}")
    pytest.skip("the real data is absent: put it at ../shared or name its place in PRIVOTE_SHARED")


@pytest.fixture(scope="session")
def tmc_votes() -> npt.NDArray[np.bool_]:
    """Return real votes, (4000 queries, 50 voters, 22 labels), read-only."""
    return load_teacher_votes().votes


@pytest.fixture(scope="session")
def tmc_truth() -> npt.NDArray[np.bool_]:
    """Return the true labels behind ``tmc_votes``, (4000 queries, 22 labels), read-only."""
    return load_teacher_votes().truth

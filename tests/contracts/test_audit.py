"""Every mechanism passes the audit, short profile; `make audit` runs the full one."""

from __future__ import annotations

import numpy as np
import pytest
from tests.contracts.cases import MECHANISMS

from privote import audit

every_mechanism = pytest.mark.parametrize("name", MECHANISMS)


@every_mechanism
@pytest.mark.parametrize(("voters", "labels"), [(1, 1), (1, 3), (2, 3), (5, 3), (8, 2)])
def test_no_neighbour_costs_more_than_stated(name: str, voters: int, labels: int) -> None:
    report = audit.exact(MECHANISMS[name], voters, labels, elections=28, seed=voters)
    assert report.ok, report.summary()
    assert report.tight, report.summary()


@every_mechanism
@pytest.mark.parametrize(("voters", "labels"), [(1, 1), (2, 2), (4, 3), (7, 2)])
def test_no_missing_neighbour_costs_more_than_stated(name: str, voters: int, labels: int) -> None:
    report = audit.exact(MECHANISMS[name], voters, labels, elections=28, missing=True, seed=voters)
    assert report.ok, report.summary()


@pytest.mark.parametrize("name", ["binary", "binary gate", "tau l2", "plurality gate", "powerset"])
def test_samples_do_not_contradict_what_is_stated(name: str) -> None:
    mech = MECHANISMS[name]
    here = [[[1, 0, 0]] * 3 + [[0, 1, 0]] * 3]
    there = [[[1, 0, 0]] * 2 + [[0, 1, 0]] * 4]
    report = audit.sampled(
        mech,
        np.array(here, bool),
        np.array(there, bool),
        draws=20_000,
        seed=5,
    )
    assert report.ok, report.summary()
    assert report.lower_bound > 0, "a test without power"

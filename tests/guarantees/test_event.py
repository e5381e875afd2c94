"""A charge as dp_accounting's accountants take it: never cheaper than what is stated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dp_accounting import UnsupportedEventError, pld, rdp

import privote as pv

VOTES = np.random.default_rng(0).random((300, 60, 4)) < 0.2
RENYI = pv.DEFAULT_ORDERS.tolist()


@pytest.mark.parametrize(
    ("terms", "accountant"),
    [
        ({}, rdp.RdpAccountant(RENYI)),
        ({"mechanism": pv.TallyVoting(sigma=90.0)}, None),
        ({"seed": 1}, rdp.RdpAccountant(RENYI)),
    ],
    ids=["learnt", "named", "simulated"],
)
def test_labels(terms: dict[str, Any], accountant: Any) -> None:
    guarantee = pv.label(VOTES, epsilon=8.0, delta=1e-5, **terms).guarantee
    if accountant is None:
        with pytest.raises(UnsupportedEventError):
            pld.PLDAccountant().compose(guarantee.event())
        return
    cost = accountant.compose(guarantee.event()).get_epsilon(1e-5)
    assert cost >= guarantee.epsilon * (1 - 1e-9)
    assert cost < 1.25 * guarantee.epsilon or guarantee.simulated


def test_a_model() -> None:
    rng = np.random.default_rng(0)
    X, public = rng.normal(size=(2, 400, 4))
    model = pv.PrivateClassifier("moments", epsilon=4.0, delta=1e-5)
    model.fit(X, (X > 0).astype(int), public)
    guarantee = model.guarantee_
    cost = pld.PLDAccountant().compose(guarantee.event()).get_epsilon(1e-5)
    assert guarantee.epsilon <= cost * (1 + 1e-6) < 1.01 * guarantee.epsilon

"""What a notebook shows of a result: its facts, and nothing sealed."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import pytest

import privote as pv

BUDGET: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5}
RNG = np.random.default_rng(0)
VOTES = RNG.random((60, 50, 6)) < RNG.choice([0.05, 0.9], (60, 1, 6))
BALLOTS = {"voter": range(577), "<Ada>": [at < 431 for at in range(577)], "Bo": [False] * 577}
X, Y = RNG.normal(size=(400, 3)), RNG.integers(0, 2, (400, 2))


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    binary = pv.BinaryVoting(sigma=30.0)
    exact = {"guarantee": "data-dependent", "queries": 60, "mechanism": binary}
    return {
        "release": pv.label(VOTES, **BUDGET),
        "sealed": pv.label(VOTES, **exact, epsilon=80.0, delta=1e-5),
        "plan": pv.plan(voters=50, labels=6, queries=60, **BUDGET),
        "poll": pv.poll(BALLOTS, **BUDGET, shares=True),
        "pate": pv.PATEClassifier(n_teachers=20, **BUDGET).fit(X[:200], Y[:200], X[200:]),
    }


@pytest.mark.filterwarnings("ignore::privote.errors.PrivoteWarning")
def test_what_is_said_in_brief(made: dict[str, Any]) -> None:
    for result in made.values():
        shown = result._repr_mimebundle_()["text/html"]
        for name, text in result.brief().items():
            assert f">{escape(name)}</th>" in shown
            assert escape(text) in shown


def test_nothing_sealed_is_shown(made: dict[str, Any]) -> None:
    release = made["sealed"]
    exact = f"{release.sealed.epsilon:.3g}"
    assert release.epsilon is None or exact not in f"{release.epsilon:.3g}"
    assert exact not in release._repr_html_()
    alone = pv.poll(BALLOTS, **BUDGET)
    assert "431" not in alone._repr_html_()
    assert "&lt;Ada&gt;" in made["poll"]._repr_html_()
    assert "not fitted" in pv.PATEClassifier()._repr_html_()

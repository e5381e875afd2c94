"""Small versions of what is measured about dependent labels."""

from __future__ import annotations

import numpy as np
from experiments.paper import questions


def test_gated_answers_more_queries_within_the_same_budget() -> None:
    rng = np.random.default_rng(0)
    truth = rng.random((200, 5)) < 0.4
    truth[:, 1:] &= truth[:, :1]
    votes = truth[:, None] ^ (rng.random((200, 30, 5)) < 0.05)
    found = questions.in_worst_case(votes, truth, 6.0, 0)
    queries = {name: row["queries"] for name, row in found.items()}
    assert queries["gated"] > 1.5 * queries["every label"]
    assert queries["more noise"] == queries["gated"]
    assert found["more noise"]["sigma"] > 6.0
    assert found["every label, same queries"]["epsilon"] > questions.EPSILON
    good = {name: row["BAC"] for name, row in found.items()}
    assert good["gated"] > good["indicator only, same queries"]
    every, gated = questions.until_one_runs_out(votes, 6.0, 0)
    assert gated >= every


def test_a_family_has_an_indicator_that_the_others_imply() -> None:
    rng = np.random.default_rng(1)
    truth = rng.random((2000, 12)) < 0.2
    truth[:, [5, 7, 8, 9]] &= rng.random((2000, 4)) < 0.4  # or it would be there in most queries
    truth[:, 3] |= truth[:, [5, 7, 8, 9]].any(axis=1)
    chosen = questions.family(truth)
    assert chosen[0] == 3
    assert set(chosen[1:]) == {5, 7, 8, 9}

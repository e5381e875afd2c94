from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import privote as pv
from privote.planning import Outlook


def outlook(**numbers: Any) -> Outlook:
    return Outlook(**{"voters": 60, "labels": 12, "yes": 0.18, **numbers})


def test_yes_votes_add_up_to_the_stated_share() -> None:
    for agreement in (0.2, 0.5, 0.8, 1.0):
        there = outlook(agreement=agreement)
        assert 0.18 * agreement + 0.82 * there.strays() == pytest.approx(0.18)


def test_agreement_has_a_default_above_any_share_of_yes() -> None:
    assert outlook().level == 0.8
    assert outlook(yes=0.9).level == pytest.approx(0.95)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"yes": 0}, "yes must be finite and positive, got 0"),
        ({"yes": 1.0}, "yes must lie strictly between 0 and 1, got 1.0"),
        ({"agreement": 0.1}, "agreement must lie above yes"),
        ({"agreement": 1.1}, "agreement must lie above yes"),
        ({"busiest": 0.9}, "busiest must be at least 1"),
        ({"most_ones": 2}, "yes must be at most 0.167"),
        ({"voters": 0}, "voters must be an integer"),
    ],
)
def test_bad_numbers(numbers: dict[str, Any], message: str) -> None:
    with pytest.raises(pv.InputError, match=message):
        outlook(**numbers)


@given(
    labels=st.integers(1, 100),
    yes=st.floats(0.001, 0.95),
    allowance=st.integers(0, 10**6),
)
def test_an_allowance_lasts_as_long_as_surprises_fit(
    labels: int, yes: float, allowance: int
) -> None:
    there = Outlook(voters=50, labels=labels, yes=yes)
    lasts = there.lasts(allowance)
    assert there.surprises(lasts) <= allowance if lasts else there.surprises(1) > allowance
    assert there.surprises(lasts + 1) > allowance
    about = float(there.lasting(np.array([float(allowance)]))[0])
    assert abs(about - lasts) <= 1.0 + 2.0 / (labels * yes)


def test_few_queries_have_room_for_chance() -> None:
    # On one query the busiest of many voters has more than its mean of 1 yes-vote.
    there = Outlook(voters=1000, labels=10, yes=0.1, busiest=1.0)
    votes = np.random.default_rng(0).random((1000, 10)) < 0.1
    assert np.mean(votes.sum(axis=1) <= there.surprises(1)) > 0.98
    assert Outlook(voters=9, labels=10, yes=0.1, most_ones=2).surprises(1) == 2


@pytest.mark.parametrize("voters", [7, 60, 20_000])
def test_chances_are_those_of_drawn_votes(voters: int) -> None:
    there = Outlook(voters=voters, labels=1, yes=0.3, agreement=0.6)
    mechanism = pv.BinaryVoting(sigma=0.3 * voters, quota=0.4)
    rng = np.random.default_rng(1)
    for share, expected in zip(
        (0.6, there.strays()),
        (1 - there.chances(mechanism).missed, there.chances(mechanism).false_alarm),
        strict=True,
    ):
        counts = rng.binomial(voters, share, 4000)
        drawn = np.exp(mechanism.log_probs(2 * counts - voters, voters))[:, 1].mean()
        assert drawn == pytest.approx(expected, abs=0.01)

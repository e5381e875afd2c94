"""One person gives way to another, and two voters change; or has more records than another.

Every person of a small election is placed in every way, so costs are enumerated, not sampled.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.utils import check_random_state
from tests.attacks.conftest import Outcome, scaled

import privote as pv
from privote.accounting.renyi import divergence
from privote.learning.gradients import clipped_sum
from privote.learning.teachers import partition

TEACHERS, OTHERS, LABELS, QUERIES = 3, 3, 2, 2
ORDERS = np.array([2.0, 8.0, 32.0])
RNG = np.random.default_rng(0)
MECHANISM = pv.BinaryVoting(sigma=1.0)

Floats = npt.NDArray[np.float64]
Content = tuple[int, ...]

PEOPLE: list[Content] = list(product((0, 1), repeat=LABELS))
REST: tuple[Content, ...] = ((1, 0), (0, 1), (1, 1))
SEEN = np.array(list(product((0, 1), repeat=QUERIES * LABELS))).reshape(-1, QUERIES, LABELS)


def outcomes(rest: tuple[int, ...], place: int, person: Content) -> Floats:
    """Return log Pr of all that may be released, given where the others and one person are.

    A teacher votes by the parity of its part, label by label: whoever comes or goes may change it.
    """
    votes = np.zeros((TEACHERS, LABELS), int)
    np.add.at(votes, [*rest, place], [*REST, person])
    margins = 2 * (votes % 2).sum(axis=0) - TEACHERS
    each = MECHANISM.log_probs(margins, TEACHERS)  # (labels, 2)
    return np.asarray(each[np.arange(LABELS), SEEN].sum(axis=(1, 2)))


def mixed(rest: tuple[int, ...], person: Content) -> Floats:
    """Return the same to whoever knows where the others are, but not the key: any place will do."""
    every = [outcomes(rest, place, person) for place in range(TEACHERS)]
    return np.asarray(np.logaddexp.reduce(every, axis=0) - np.log(TEACHERS))


def two_sided(log_p: Floats, log_q: Floats) -> Floats:
    return np.maximum(divergence(log_p, log_q, ORDERS), divergence(log_q, log_p, ORDERS))


def stated() -> Floats:
    return QUERIES * MECHANISM.worst_case_rdp(TEACHERS, LABELS, ORDERS)


def test_another_person_is_one_voter_under_a_secret_key(outcome: Outcome) -> None:
    changes = list(product(product(range(TEACHERS), repeat=OTHERS), PEOPLE, PEOPLE))
    costs = [two_sided(mixed(rest, old), mixed(rest, new)) for rest, old, new in changes]
    assert max(cost.max() for cost in costs) > 0
    found = [(cost > stated()).any() for cost in costs]
    outcome.of("another person, under a secret key", found)


def test_another_person_is_two_voters_under_a_known_key() -> None:
    # So a simulation's key does not claim this change.
    worst = same = np.zeros(len(ORDERS))
    for *rest, old, new in product(range(TEACHERS), repeat=OTHERS + 2):
        for one, other in product(PEOPLE, PEOPLE):
            cost = two_sided(outcomes(rest, old, one), outcomes(rest, new, other))
            worst = np.maximum(worst, cost)
            if old == new:
                same = np.maximum(same, cost)
    assert (worst > 1.3 * stated()).all()
    assert (same <= stated()).all()


def test_parts_cannot_be_worked_out_from_the_random_state(
    outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    import privote.learning.pate as room

    seen: list[Any] = []
    monkeypatch.setattr(
        room, "partition", lambda *a, **k: seen.append(partition(*a, **k)) or seen[-1]
    )
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(200, 2)), rng.integers(0, 2, (200, 1))
    setting = {"n_teachers": 20, "queries": 2, "mechanism": pv.BinaryVoting(sigma=20.0)}
    found = []
    for state in range(scaled(3, 50)):
        pv.PATEClassifier(**setting, random_state=state).fit(X, Y, X[:5])
        random = check_random_state(state)
        guesses = [random.bytes(32), state, b"random state %d" % state, b"known key %d" % state]
        matches = [(partition(200, 20, key=key) == seen[-1]).mean() for key in guesses]
        found.append(max(matches) > 0.5)
    outcome.of("parts worked out from random_state", found)


# -- how many records a person has: no bit follows from it -----------------------


@pytest.mark.parametrize("labels", [2, 9, 20])
def test_the_norm_of_a_lone_person_is_the_one_it_has_among_others(monkeypatch, labels):
    from privote.learning import gradients as linear

    rows, weights = RNG.normal(size=(40, 6)), RNG.normal(size=(6, labels))
    truth, norms, real = RNG.integers(0, 2, (40, labels)).astype(np.int8), [], np.maximum
    found = []
    monkeypatch.setattr(np, "maximum", lambda a, b: norms.append(a) or real(a, b))
    for values, persons in ((1 << 22, 20), (1, 1)):  # all at once, or one by one
        monkeypatch.setattr(linear, "_VALUES", values)
        clipped_sum(rows, truth, weights, 0.1, 1.0, np.full(20, 2))
        found.append([each.tobytes() for each in norms if np.shape(each) == (persons,)])
        norms.clear()
    assert b"".join(found[0]) == b"".join(found[1])

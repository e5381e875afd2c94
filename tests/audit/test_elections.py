"""Elections for the audit: of every kind, allowed by the mechanism, repeatable."""

from __future__ import annotations

import numpy as np
import pytest

import privote as pv
from privote.audit.exact import random_elections
from privote.audit.textbook import Textbook

STYLES = 7


def drawn(book: Textbook, elections: int = 70, seed: int = 0) -> np.ndarray:
    return random_elections(book, elections, np.random.default_rng(seed))


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(
    "mechanism",
    [
        pv.BinaryVoting(sigma=2.0),
        pv.PluralityVoting(sigma=2.0),
        pv.PowersetVoting(sigma=2.0, max_positives=1),
    ],
    ids=str,
)
def test_every_ballot_is_one_the_mechanism_takes(mechanism: pv.Mechanism, missing: bool) -> None:
    book = Textbook(mechanism, 6, 3, missing=missing)
    cast = drawn(book)
    assert cast.shape == (70, 6)
    assert (cast >= 0).all()
    assert (cast < len(book.ballots)).all()
    votes = book.ballots[cast]
    mechanism.check(pv.Ballots.from_array(votes))
    assert (votes == -1).any() == missing


def test_some_are_unanimous_some_are_tied() -> None:
    book = Textbook(pv.BinaryVoting(sigma=2.0), 6, 3)
    cast = drawn(book)
    assert all(len(set(row)) == 1 for row in cast[1::STYLES].tolist())
    assert all(len(set(row)) <= 2 for row in cast[2::STYLES].tolist())  # one against all
    margins = 2 * book.ballots[cast[3::STYLES]].sum(axis=1) - 6
    assert (margins == 0).all()  # a ballot and its opposite, evenly
    assert len({tuple(row) for row in cast[0::STYLES].tolist()}) > 5


def test_a_seed_repeats_them() -> None:
    book = Textbook(pv.BinaryVoting(sigma=2.0), 4, 2)
    assert np.array_equal(drawn(book, seed=3), drawn(book, seed=3))
    assert not np.array_equal(drawn(book, seed=3), drawn(book, seed=4))

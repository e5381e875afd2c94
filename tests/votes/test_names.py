"""Names: their natural order, and one for everything on an axis."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refused

from privote.errors import BallotError
from privote.votes.names import check_names, folded, in_order, listed


def test_numbers_in_names_count_by_size() -> None:
    assert in_order(["q10", "q2", "Q1", "q1b", "q1"]) == ["Q1", "q1", "q1b", "q2", "q10"]
    assert in_order(["10", "9", "007", "x", "1" * 5000]) == ["007", "9", "10", "1" * 5000, "x"]


@given(st.sets(st.text(), max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_names_is_of_the_names_alone(names: set[str], random: object) -> None:
    mixed = sorted(names)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert in_order(mixed) == in_order(names)


def test_names_must_fit_the_axes() -> None:
    assert check_names(["a", "b"], 2, "query") == ("a", "b")
    assert check_names(None, 2, "query") is None
    for wrong in (["a", "b", "c"], ["x", "x"], ["x", ""]):
        with refused(None, BallotError):
            check_names(wrong, 2, "label")
    assert listed(np.array([3, 4]), "x") == ("3", "4")
    with refused(None, BallotError):  # neither texts nor integers
        listed(np.zeros(2), "x")


def test_a_voter_has_one_name_however_it_is_typed() -> None:
    assert check_names(["A", "a"], 2, "query")
    for other in ("ANNA", "anna ", "an\u200bna", "\uff41nna"):
        with refused(None, BallotError):
            check_names(["anna", other], 2, "voter")


@given(st.text())
def test_folding_twice_is_folding_once(name: str) -> None:
    assert folded(folded(name)) == folded(name)
    assert folded(f" {name}\u200b\u00a0") == folded(name)


def test_names_that_nearly_are_one() -> None:
    assert folded("  Ward\u00a0 3\ufeff") == folded("ward 3") == "ward 3"
    assert folded("e\u200d\u0301") == folded("\u00e9")
    assert folded("Stra\u00dfe") == folded("STRASSE")
    assert folded("\u200b \u3164") == ""

"""Who sits where: names follow voters, and who is absent leaves no trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

from privote.guardian.accounts import plain
from privote.guardian.allowance import (
    check_allowance,
    seats,
    seats_in_batch,
)


@pytest.mark.parametrize("names", [["7", "8"], [7, 8], np.array([7, 8]), np.array(["7", "8"])])
def test_a_name_is_the_same_however_it_is_typed(names: Any) -> None:
    assert seats(names, 2) == {"7": 0, "8": 1}


BAD: dict[str, Any] = {
    "a set": {"a", "b"},
    "a dict": {"a": 0, "b": 1},
    "a generator": (name for name in "ab"),
    "a number": 2,
    "too few": ["a"],
    "twice": ["a", "a"],
    "twice as text and number": [1, "1"],
    "empty": ["a", ""],
    "blank": [" ", "b"],
    "nothing": ["a", None],
    "a float": [1.0, 2.0],
    "not a number": [float("nan"), "b"],
    "a truth": [True, False],
    "bytes": [b"a", b"b"],
    "nested": [["a"], ["b"]],
}


@pytest.mark.parametrize("name", BAD)
def test_names_that_do_not_tell_voters_apart_are_refused(name: str) -> None:
    with refused("voter_ids"):
        seats(BAD[name], 2)


def test_a_batch_is_placed_by_name() -> None:
    registered = seats("abc")
    assert seats_in_batch(registered, 3, None) is None
    found = seats_in_batch(registered, 2, ["c", "a"])
    assert found is not None
    assert found.tolist() == [2, 0]
    for voters, given_ids in ((2, ["a", "z"]), (3, ["a", "b"])):
        with refused("voter_ids"):
            seats_in_batch(registered, voters, given_ids)
    with refused("votes"):
        seats_in_batch(registered, 2, None)
    with refused(None):
        seats_in_batch(None, 3, "abc")


def test_allowances_are_shown_as_plainly_as_they_are() -> None:
    for wanted, shown in ((4, 4), ([4, 4, 4], 4), ([1, 2, 3], (1, 2, 3))):
        each = check_allowance(wanted, 3)
        assert each is not None
        assert each.shape == (3,)
        assert plain(each) == shown

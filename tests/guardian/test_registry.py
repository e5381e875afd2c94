"""Who sits where: names follow voters, and who is absent leaves no trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

from privote.errors import InputError
from privote.guardian.accounts import plain
from privote.guardian.allowance import (
    check_allowance,
    seats,
    seats_in_batch,
)


@pytest.mark.parametrize("names", [["7", "8"], [7, 8], np.array([7, 8]), np.array(["7", "8"])])
def test_a_name_is_the_same_however_it_is_typed(names: Any) -> None:
    assert seats(names, 2) == {"7": 0, "8": 1}


BAD: dict[str, tuple[Any, str]] = {
    "a set": ({"a", "b"}, "must be a sequence"),
    "a dict": ({"a": 0, "b": 1}, "must be a sequence"),
    "a generator": ((name for name in "ab"), "must be a sequence"),
    "a number": (2, "must be a sequence"),
    "too few": (["a"], "2 different names, got 1"),
    "twice": (["a", "a"], "voters 0 and 1 have one"),
    "twice as text and number": ([1, "1"], "voters 0 and 1 have one"),
    "empty": (["a", ""], "voter 1 has an empty one"),
    "blank": ([" ", "b"], "voter 0 has an empty one"),
    "nothing": (["a", None], "voter 1 has NoneType"),
    "a float": ([1.0, 2.0], "voter 0 has float"),
    "not a number": ([float("nan"), "b"], "voter 0 has float"),
    "a truth": ([True, False], "voter 0 has bool"),
    "bytes": ([b"a", b"b"], "voter 0 has bytes"),
    "nested": ([["a"], ["b"]], "voter 0 has"),
}


@pytest.mark.parametrize("name", BAD)
def test_names_that_do_not_tell_voters_apart_are_refused(name: str) -> None:
    names, message = BAD[name]
    with pytest.raises(InputError) as caught:
        seats(names, 2)
    assert "voter_ids must" in str(caught.value)
    assert message in str(caught.value)


def test_a_batch_is_placed_by_name() -> None:
    registered = seats("abc")
    assert seats_in_batch(None, 3, None) is None
    assert seats_in_batch(registered, 3, None) is None
    found = seats_in_batch(registered, 2, ["c", "a"])
    assert found is not None
    assert found.tolist() == [2, 0]
    for voters, given_ids, message in (
        (2, None, "must have 3 voters, got 2"),
        (2, ["a", "z"], "must name registered voters, and voter 1 is not"),
        (3, ["a", "b"], "3 different names, got 2"),
    ):
        with pytest.raises(InputError, match=message):
            seats_in_batch(registered, voters, given_ids)
    with pytest.raises(InputError, match="registered without names"):
        seats_in_batch(None, 3, "abc")


@pytest.mark.parametrize(
    "wanted", [-1, 1.5, True, "5", [1, 2], [[1]], [1, [2]], [1, -2, 3], np.nan, [None] * 3]
)
def test_an_allowance_is_one_integer_or_one_a_voter(wanted: Any) -> None:
    with refused("allowance"):
        check_allowance(wanted, 3)


def test_allowances_are_shown_as_plainly_as_they_are() -> None:
    assert check_allowance(None, 3) is None
    for wanted, shown in ((4, 4), ([4, 4, 4], 4), ([1, 2, 3], (1, 2, 3))):
        each = check_allowance(wanted, 3)
        assert each is not None
        assert each.shape == (3,)
        assert plain(each) == shown

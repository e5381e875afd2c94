"""Data sets by name and place."""

from __future__ import annotations

import numpy as np
import pytest
from tests.refusals import refused

from privote import datasets


def test_scenes_keep_their_own_sides() -> None:
    sizes = {"private": 30, "public": 20, "test": 10}
    split, made = datasets.open("scenes", **sizes).split(), datasets.load_scenes(**sizes)
    for side in sizes:
        np.testing.assert_array_equal(getattr(split, side).X, getattr(made, f"X_{side}"))
        np.testing.assert_array_equal(getattr(split, side).Y, getattr(made, f"Y_{side}"))
    assert split.private.ids.tolist() == made.ids_private.tolist()


@pytest.mark.parametrize("name", ["nonsense", "nonsense:here", "mulan", "voc2012:", "scenes:here"])
def test_what_cannot_be_opened_is_named(name: str) -> None:
    with refused("data", value=name):
        datasets.open(name)
    with refused("views"):
        datasets.open("scenes", views=4)

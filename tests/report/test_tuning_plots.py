"""Curves of tuning: well-formed, named, sealed where they must be, nothing drawn of nothing."""

from __future__ import annotations

import math
from typing import Any
from xml.etree import ElementTree

import pytest

from privote.errors import InputError
from privote.report.canvas import PALETTE, SEALED
from privote.report.plots import by_parameter

CURVES = {"worst case": {3: 4, 7: 18}, "allowance": {7: 123, 3: 20}}


def words(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [e.text or "" for e in root.iter() if e.tag.endswith("}text")]


def curves(**changes: Any) -> str:
    given = {"title": "Tuned", "parameter": "sigma", "quantity": "queries answered", **changes}
    return by_parameter(given.pop("series", CURVES), **given)


def test_curves_name_lines_axes_and_ends() -> None:
    svg = curves(references={"no gate": 50})
    shown = words(svg)
    for word in ("Tuned", "sigma", "queries answered", "worst case", "allowance", "no gate"):
        assert word in shown
    label = ElementTree.fromstring(svg).get("aria-label", "")
    assert "allowance: 20 at 3, 123 at 7" in label
    assert curves() == curves()


def test_figures_of_merit_are_written_out_and_keep_their_digits() -> None:
    svg = curves(series={"l2": {1.0: 0.5, 2.0: 0.625}, "l1": {1.0: math.nan}}, quantity="BAC")
    assert "balanced accuracy (BAC)" in words(svg)
    assert "l1" not in words(svg)  # nothing to draw
    assert "l2: 0.500 at 1, 0.625 at 2" in ElementTree.fromstring(svg).get("aria-label", "")


@pytest.mark.parametrize("sealed", [True, False])
def test_sealed_drawings_say_so(sealed: bool) -> None:
    assert (SEALED in curves(sealed=sealed)) is sealed


def test_what_cannot_be_drawn_is_refused() -> None:
    many = {str(i): {1: 1} for i in range(len(PALETTE) + 1)}
    for series in ({}, {"a": {}}, {"a": {1: math.nan}}, many, {"a": {1: math.inf}}):
        with pytest.raises(InputError, match="series"):
            curves(series=series)
    with pytest.raises(InputError, match="references"):
        curves(references={"x": math.nan})

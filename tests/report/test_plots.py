"""Figures: well-formed, labelled, legible in light and dark, and honest about what is sealed."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.refusals import refused

from privote.errors import MissingExtraError
from privote.report import OWNER_ONLY, answered_by_guarantee
from privote.report.plots import PALETTE, SEALED, Panel, by_parameter, by_probability, side_by_side

PARTS = {"decided 1": [0, 0, 3, 40], "decided 0": [1200, 31, 2, 0]}
ANSWERED = {"allowance": 988, "worst-case": 153, "data-dependent": 1429}
SERIES = {"paper": {4: 143, 9: 225, 20: 89}, "exact": {20: 384, 4: 253, 9: 562}}

DRAWINGS: dict[str, Callable[[], str]] = {
    "guarantee": lambda: answered_by_guarantee(ANSWERED, title="Answers & more at $5 and $6"),
    "parts": lambda: by_probability(PARTS, title="Sure & not", axis="probability"),
    "sigma": lambda: by_parameter(SERIES, title="S", parameter="sigma", quantity="queries"),
}


def words(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [e.text or "" for e in root.iter() if e.tag.endswith("}text")]


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_figure_is_whole_alone_and_for_every_reader(name: str) -> None:
    svg = DRAWINGS[name]()
    assert svg == DRAWINGS[name]()
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.get("width") == "700"
    assert root.get("role") == "img"
    assert len(root.get("aria-label", "")) > 40
    for namespace in ("http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"):
        svg = svg.replace(namespace, "")
    for foreign in ("http", "<image", "<script", "<metadata", "DOCTYPE", "dc:date"):
        assert foreign not in svg
    assert "prefers-color-scheme:dark" in svg
    assert 'class="ground"' in svg
    for stand_in in ("#010203", "#fdfcfb", "#000000"):
        assert stand_in not in svg
    texts = [e for e in root.iter() if e.tag.endswith("}text")]
    assert texts
    assert all("fill: currentColor" in e.get("style", "") for e in texts)


def test_sealed_bars_are_hatched_and_say_so() -> None:
    plain = answered_by_guarantee(ANSWERED, title="T")
    hidden = answered_by_guarantee(ANSWERED, title="T", sealed=["data-dependent"])
    assert SEALED in hidden
    assert OWNER_ONLY in words(hidden)
    assert "<pattern" in hidden
    assert SEALED not in plain
    assert OWNER_ONLY not in words(plain)


def test_the_users_own_settings_neither_matter_nor_change() -> None:
    import matplotlib

    before = DRAWINGS["sigma"]()
    with matplotlib.rc_context({"font.size": 40, "lines.linewidth": 9}):
        assert DRAWINGS["sigma"]() == before
        assert matplotlib.rcParams["font.size"] == 40


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("ground", ["#ffffff", "#161b22"])
@pytest.mark.parametrize("colour", PALETTE)
def test_colours_stand_out_in_light_and_dark(colour: str, ground: str) -> None:
    # WCAG 2.2, success criterion 1.4.11: 3 to 1 for graphics.
    one, two = sorted((luminance(colour), luminance(ground)), reverse=True)
    assert (one + 0.05) / (two + 0.05) >= 3.0


@pytest.mark.parametrize("name", DRAWINGS)
def test_without_matplotlib_the_extra_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"privote\[report\]"):
        DRAWINGS[name]()


def test_a_histogram_of_two_parts_says_both_without_colour() -> None:
    svg = DRAWINGS["parts"]()
    assert {"decided 1", "decided 0", "1,000"} <= set(words(svg))
    assert "pattern" in svg  # the hatch
    assert "decided 1: 0, 0, 3, 40; decided 0: 1,200, 31, 2, 0" in svg


# -- panels: one look for a name on the whole sheet, published points, logarithms -----------------

LEFT = Panel(
    title="Left",
    parameter="labels",
    quantity="queries answered",
    series={"Binary, paper": {1: 900, 20: 100}, "Binary, exact": {1: 990, 20: 400}},
)
RIGHT = replace(LEFT, title="Right", series={"Tau, exact": {1: 5, 20: 7}})


def test_a_name_has_one_place_in_the_legend_of_all_panels() -> None:
    svg = side_by_side([LEFT, replace(LEFT, title="Right")])
    shown = words(svg)
    assert shown.count("Binary, paper") == shown.count("Binary, exact") == 1
    assert {"Left", "Right"} <= set(shown)
    assert shown.count("labels") == 2
    label = ElementTree.fromstring(svg).get("aria-label", "")
    assert "Left. queries answered against labels." in label
    assert "Binary, exact: 990 at 1, 400 at 20" in label


def test_names_in_pairs_share_colours_and_dashes() -> None:
    svg = side_by_side([LEFT, RIGHT], paired=True)
    shown = words(svg)
    assert [shown.count(one) for one in ("Binary", "Tau", "paper", "exact")] == [1, 1, 1, 1]
    assert "Binary, paper" not in shown
    assert PALETTE[1].lower() in svg.lower()  # Tau's
    assert PALETTE[2].lower() not in svg.lower()
    assert PALETTE[2].lower() in side_by_side([LEFT, RIGHT]).lower()


def test_published_points_choices_and_references_are_named() -> None:
    told = replace(
        LEFT,
        points={"Binary, as published": {20: 427}},
        choices={"chosen": 9},
        references={"all": 1000},
    )
    for paired, name in ((False, "Binary, as published"), (True, "as published")):
        shown = words(side_by_side([told], paired=paired))
        assert {name, "chosen", "all"} <= set(shown)
    assert side_by_side([told]) == side_by_side([told])


def test_a_logarithmic_axis_has_powers_and_leaves_out_what_it_cannot_show() -> None:
    series = {"cost": {1: 1e-6, 2: 1.0, 3: 0.0}, "nothing": {1: 0.0}}
    svg = side_by_side([replace(LEFT, series=series, log=True)])
    assert "10⁻⁴" in words(svg)
    assert "nothing" not in words(svg)
    assert "0 at 3" not in ElementTree.fromstring(svg).get("aria-label", "")
    close = replace(LEFT, series={"n": {1: 120, 2: 900}}, log=True)
    assert {"200", "500"} <= set(words(side_by_side([close])))


def test_panels_without_numbers_or_with_too_many_lines_are_refused() -> None:
    with refused("panels"):
        side_by_side([])
    for series in ({}, {"a": {1: math.nan}}, {str(n): {1: 2} for n in range(7)}):
        with refused("series"):
            side_by_side([replace(LEFT, series=series)])


# -- curves of tuning -----------------------------------------------------------------------------

CURVES = {"worst case": {3: 4, 7: 18}, "allowance": {7: 123, 3: 20}}


def curves(**changes: Any) -> str:
    given = {"title": "Tuned", "parameter": "sigma", "quantity": "queries answered", **changes}
    return by_parameter(given.pop("series", CURVES), **given)


@pytest.mark.parametrize("sealed", [True, False])
def test_sealed_drawings_say_so(sealed: bool) -> None:
    assert (SEALED in curves(sealed=sealed)) is sealed

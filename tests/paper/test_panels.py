"""Panels: one look for a name on the whole sheet, published points, logarithms."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from experiments.paper.panels import Panel, side_by_side
from tests.report.test_plots import words

from privote.report.plots import PALETTE

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

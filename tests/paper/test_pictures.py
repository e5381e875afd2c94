"""How claims are drawn: on the paper's axes, with its published points, and with its names."""

from __future__ import annotations

import json
from xml.etree import ElementTree

from experiments.paper import pictures
from experiments.paper.claims import BY_KEY
from experiments.paper.kinds import Measured, Plot
from experiments.paper.runner import KEPT
from experiments.paper.telling import tables, worded


def words(svg: str) -> set[str]:
    root = ElementTree.fromstring(svg)
    return {e.text or "" for e in root.iter() if e.tag.endswith("}text")}


def drawn(key: str, measured: Measured) -> str:
    draw = pictures.drawing(key, measured)
    assert draw is not None
    return str(draw())


def test_only_claims_are_drawn_in_a_way_of_their_own() -> None:
    assert {*pictures._OWN, *pictures._PAIRED, *pictures._TABLES} <= set(BY_KEY)


def test_logarithms_become_an_axis() -> None:
    plot = Plot(title="T", x="sigma", y="log10 of the cost", series={"bound": {1: -6.0, 2: 0.0}})
    shown = words(drawn("thm:pate-rdp-bound", Measured(plots=[plot])))
    assert {"10⁻⁴", "σ", "cost"} <= shown
    assert not any("log10" in word for word in shown)


def test_lines_end_where_rounding_hides_the_cost() -> None:
    line = {50: -2.0, 100: -9.0, 200: -16.0}
    plot = Plot(title="T", x="voters", y="log10 of the cost", series={"Binary, exact": line})
    assert sorted(pictures._panel(plot).series["Binary, exact"]) == [50, 100]
    plain = Plot(title="T", x="voters", y="cost", series={"Binary, exact": line})
    assert sorted(pictures._panel(plain).series["Binary, exact"]) == [50, 100, 200]


def test_published_points_stand_beside_what_is_measured_with_the_papers_sigma() -> None:
    rows = [
        {"labels": k, "mechanism": kind, "with it, paper's accounting": f"{n} [{n}, {n}]"}
        for k, n in ((1, 5000), (20, 300))
        for kind in ("Binary", "Powerset")
    ]
    series = {f"{kind}, paper": {1: 4000.0, 20: 200.0} for kind in ("Binary", "Powerset")}
    plot = Plot(title="T", x="labels", y="queries answered", series=series)
    svg = drawn("tab:powerset-binary-pate-pascal", Measured(rows=rows, plots=[plot]))
    assert {"as published", "paper's accounting and σ", "Binary", "Powerset"} <= words(svg)
    said = ElementTree.fromstring(svg).get("aria-label", "")
    assert "Binary, paper's accounting and σ: 5,000 at 1, 300 at 20" in said


def test_published_numbers_are_those_of_the_claims() -> None:
    said = BY_KEY["tab:powerset-binary-pate-pascal"].paper
    for k in (3, 8, 14, 20):
        assert f"{k} labels" in said or f" {k} " in said
        assert f"{pictures.VOC_BINARY[k]}/{pictures.VOC_POWERSET[k]}" in said
    said = BY_KEY["tab:powerset-binary-pate-cxpert"].paper
    for k in (2, 5, 9, 11):
        assert f"{pictures.CHEST_BINARY[k]}/{pictures.CHEST_POWERSET[k]}" in said


def test_what_a_full_run_left_can_be_drawn() -> None:
    kept = json.loads((KEPT / "images.contest.json").read_text(encoding="utf-8"))
    svg = drawn("tab:compare-dpsgd-pate", Measured.of(kept["measured"]))
    assert {"Networks that learn to see", "Linear models, public features"} <= words(svg)


def test_a_table_that_the_paper_has_no_plot_of_has_none() -> None:
    assert pictures.drawing("prop:gap", Measured(rows=[{"a": 1}])) is None


def test_tables_are_worded_for_readers() -> None:
    assert worded("voc, sigma 7 of padchest-like") == "VOC, σ 7 of ten voters"
    rows = [
        {"votes": "voc", "sigma": 7.0, "BAC": "7 [7, 7]"},
        {"votes": "tmc2007", "sigma": 9.0, "BAC": "0.6 [0.5, 0.7]"},
        {"votes": "all", "mean": 0.5},
    ]
    assert tables(rows) == [
        [
            {"votes": "VOC", "σ": 7, "BAC": "7"},
            {"votes": "tmc2007", "σ": 9, "BAC": "0.6 [0.5, 0.7]"},
        ],
        [{"votes": "all", "mean": 0.5}],
    ]

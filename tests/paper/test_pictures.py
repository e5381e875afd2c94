"""How claims are drawn: on the paper's axes, with its published points, and with its names."""

from __future__ import annotations

import json
from xml.etree import ElementTree

from experiments.paper import pictures
from experiments.paper.claims import BY_KEY
from experiments.paper.kinds import Measured, Plot
from experiments.paper.runner import KEPT


def words(svg: str) -> set[str]:
    root = ElementTree.fromstring(svg)
    return {e.text or "" for e in root.iter() if e.tag.endswith("}text")}


def drawn(key: str, measured: Measured) -> str:
    draw = pictures.drawing(key, measured)
    assert draw is not None
    return str(draw())


def test_logarithms_become_an_axis() -> None:
    plot = Plot(title="T", x="sigma", y="log10 of the cost", series={"bound": {1: -6.0, 2: 0.0}})
    shown = words(drawn("thm:pate-rdp-bound", Measured(plots=[plot])))
    assert {"10⁻⁴", "σ", "cost"} <= shown
    assert not any("log10" in word for word in shown)


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

"""How claims are drawn: on the paper's axes, with its published points, and with its names."""

from __future__ import annotations

from experiments.paper import pictures
from experiments.paper.claims import BY_KEY
from experiments.paper.kinds import Measured, Plot
from tests.report.test_plots import words


def drawn(key: str, measured: Measured) -> str:
    draw = pictures.drawing(key, measured)
    assert draw is not None
    return str(draw())


def test_logarithms_become_an_axis() -> None:
    plot = Plot(title="T", x="sigma", y="log10 of the cost", series={"bound": {1: -6.0, 2: 0.0}})
    shown = words(drawn("thm:pate-rdp-bound", Measured(plots=[plot])))
    assert {"10⁻⁴", "σ", "cost"} <= {*shown}
    assert not any("log10" in word for word in shown)


def test_published_points_stand_beside_what_is_measured_with_the_papers_sigma() -> None:
    lines = {kind: {1: 4000.0, 20: 200.0} for kind in ("Binary", "Powerset")}
    plots = [Plot(title=t, x="labels", y="queries answered", series=lines) for t in ("A", "B")]
    svg = drawn("tab:powerset-binary-pate-pascal", Measured(plots=plots))
    assert {"Binary, as published", "Powerset, as published", "Binary", "Powerset"} <= {*words(svg)}


def test_published_numbers_are_those_of_the_claims() -> None:
    said = BY_KEY["tab:powerset-binary-pate-pascal"].paper
    for k in (3, 8, 14, 20):
        assert f"{k} labels" in said or f" {k} " in said
        assert f"{pictures.VOC_BINARY[k]}/{pictures.VOC_POWERSET[k]}" in said
    said = BY_KEY["tab:powerset-binary-pate-cxpert"].paper
    for k in (2, 5, 9, 11):
        assert f"{pictures.CHEST_BINARY[k]}/{pictures.CHEST_POWERSET[k]}" in said

"""Figures: well-formed, labelled, legible in light and dark, and honest about what is sealed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from privote.errors import MissingExtraError
from privote.report import bars
from privote.report.plots import by_probability

PARTS = {"decided 1": [0, 0, 3, 40], "decided 0": [1200, 31, 2, 0]}
ANSWERED = {"allowance": 988, "worst-case": 153, "data-dependent": 1429}

DRAWINGS: dict[str, Callable[[], str]] = {
    "bars": lambda: bars(ANSWERED, title="Answers & more at $5 and $6", axis="queries"),
    "parts": lambda: by_probability(PARTS, title="Sure & not", axis="probability"),
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


@pytest.mark.parametrize("name", DRAWINGS)
def test_without_matplotlib_the_extra_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"privote\[report\]"):
        DRAWINGS[name]()


def test_what_a_figure_says_needs_no_colour() -> None:
    parts, answers = DRAWINGS["parts"](), DRAWINGS["bars"]()
    assert {"decided 1", "decided 0", "1,000"} <= set(words(parts))
    assert "pattern" in parts  # the hatch
    assert "decided 1: 0, 0, 3, 40; decided 0: 1,200, 31, 2, 0" in parts
    assert {"988", "1,429", "allowance"} <= set(words(answers))

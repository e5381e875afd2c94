"""Figures: well-formed, labelled, legible in light and dark, and honest about what is sealed."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from privote.errors import InputError, MissingExtraError
from privote.report import OWNER_ONLY, answered_by_guarantee
from privote.report.canvas import PALETTE, SEALED
from privote.report.plots import by_parameter, in_parts

PARTS = {"allowance": {"true": 150, "not true": 250}, "ptr": {"true": 40, "not true": 0}}
ANSWERED = {"allowance": 988, "worst-case": 153, "data-dependent": 1429}
SERIES = {"paper": {4: 143, 9: 225, 20: 89}, "exact": {20: 384, 4: 253, 9: 562}}

DRAWINGS: dict[str, Callable[[], str]] = {
    "guarantee": lambda: answered_by_guarantee(ANSWERED, title="Answers & more at $5 and $6"),
    "parts": lambda: in_parts(PARTS, title="Released & not", axis="labels released"),
    "sigma": lambda: by_parameter(SERIES, title="S", parameter="sigma", quantity="queries"),
}


def words(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [e.text or "" for e in root.iter() if e.tag.endswith("}text")]


@pytest.mark.parametrize("name", DRAWINGS)
def test_is_xml_of_700_pixels_with_a_sentence_for_the_blind(name: str) -> None:
    root = ElementTree.fromstring(DRAWINGS[name]())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.get("width") == "700"
    assert root.get("role") == "img"
    assert len(root.get("aria-label", "")) > 40


@pytest.mark.parametrize("name", DRAWINGS)
def test_loads_nothing_and_has_no_date(name: str) -> None:
    svg = DRAWINGS[name]()
    for namespace in ("http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"):
        svg = svg.replace(namespace, "")
    for foreign in ("http", "<image", "<script", "<metadata", "DOCTYPE", "dc:date"):
        assert foreign not in svg


@pytest.mark.parametrize("name", DRAWINGS)
def test_the_same_numbers_give_the_same_file(name: str) -> None:
    assert DRAWINGS[name]() == DRAWINGS[name]()


@pytest.mark.parametrize("name", DRAWINGS)
def test_ink_and_ground_follow_the_reader(name: str) -> None:
    svg = DRAWINGS[name]()
    assert "prefers-color-scheme:dark" in svg
    assert 'class="ground"' in svg
    for stand_in in ("#010203", "#fdfcfb", "#000000"):
        assert stand_in not in svg
    texts = [e for e in ElementTree.fromstring(svg).iter() if e.tag.endswith("}text")]
    assert texts
    assert all("fill: currentColor" in e.get("style", "") for e in texts)


def test_bars_say_names_numbers_and_axis() -> None:
    shown = words(DRAWINGS["guarantee"]())
    for word in (*ANSWERED, "988", "1,429", "queries answered", "Answers & more at $5 and $6"):
        assert word in shown


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


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: in_parts({}, title="T", axis="A"), "bars must be a dict of bars with the same"),
        (lambda: in_parts({"a": {"b": 1}}, title="T", axis="A"), "with the same two parts"),
        (lambda: in_parts({"a": {"b": -1, "c": 2}}, title="T", axis="A"), "must not be negative"),
        (lambda: answered_by_guarantee({}, title="T"), "answered must be a dict with at least one"),
        (lambda: answered_by_guarantee({"a": -1}, title="T"), r"answered\['a'\] must not be neg"),
        (lambda: answered_by_guarantee({"a": math.nan}, title="T"), "must be a finite number"),
        (lambda: answered_by_guarantee({"a": 1}, title="T", sealed=["b"]), "sealed .* got 'b'"),
    ],
)
def test_wrong_arguments(draw: Callable[[], str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        draw()


def test_bars_of_two_parts_say_both_numbers_without_colour() -> None:
    svg = in_parts(PARTS, title="T", axis="labels")
    assert "150 + 250" in words(svg)
    assert {"true", "not true"} <= set(words(svg))
    assert "pattern" in svg  # the hatch
    assert "allowance: 150 true, 250 not true; ptr: 40 true, 0 not true" in svg

"""Drawings inside a page: checked, renamed, and harmless."""

from __future__ import annotations

import re

import pytest

from privote.errors import InputError
from privote.report import answered_by_guarantee
from privote.report.inline import inline_svg

NS = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'


def svg(inside: str, attributes: str = 'aria-label="a"') -> str:
    return f"<svg {NS} {attributes}>{inside}</svg>"


def test_names_get_the_prefix_and_references_follow() -> None:
    drawing = svg(
        '<defs><path id="m" d="M0 0"/><clipPath id="c"/></defs>'
        '<use xlink:href="#m"/><g clip-path="url(#c)" style="fill: url(#m)"/>'
    )
    made = inline_svg(drawing, prefix="f7-")
    assert set(re.findall(r'id="([^"]*)"', made)) == {"f7-m", "f7-c"}
    assert 'href="#f7-m"' in made
    assert 'clip-path="url(#f7-c)"' in made
    assert "fill: url(#f7-m)" in made
    assert "xmlns" not in made


def test_every_reference_of_a_real_figure_finds_its_target() -> None:
    made = inline_svg(answered_by_guarantee({"a": 1, "b": 2}, title="T", sealed=["b"]), prefix="x-")
    names = set(re.findall(r' id="([^"]*)"', made))
    wanted = set(re.findall(r'href="#([^"]*)"', made)) | set(re.findall(r"url\(#([^)]*)\)", made))
    assert wanted
    assert wanted <= names
    assert all(name.startswith("x-") for name in names)


def test_alt_replaces_the_label_and_is_escaped() -> None:
    made = inline_svg(svg("<g/>"), prefix="", alt='<"&')
    assert 'aria-label="&lt;&quot;&amp;"' in made
    assert 'role="img"' in made


@pytest.mark.parametrize(
    ("drawing", "message"),
    [
        ("<svg", "well-formed XML"),
        ("<p/>", "must be an <svg> element, got <p>"),
        ("<!DOCTYPE svg [<!ENTITY a 'b'>]><svg/>", "document type or entities"),
        (svg("<g/>", attributes=""), "alt must be given"),
        (svg("<script>alert(1)</script>"), "the element <script>"),
        (svg("<foreignObject/>"), "the element <foreignObject>"),
        (svg('<image href="x.png"/>'), "the element <image>"),
        (svg('<a href="#x"/>'), "the element <a>"),
        (svg('<g onclick="alert(1)"/>'), "the attribute 'onclick'"),
        (svg('<use xlink:href="https://example.org/#x"/>'), "its own parts only"),
        (svg('<use href=" javascript:alert(1)"/>'), "the attribute 'href'"),
        (svg('<g style="fill: url(https://example.org/)"/>'), "the attribute 'style'"),
        (svg("<style>@import 'x.css';</style>"), "load anything from its style"),
        (svg("<style>&lt;/style&gt;&lt;script&gt;</style>"), "load anything from its style"),
    ],
)
def test_what_could_run_or_load_is_refused(drawing: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        inline_svg(drawing, prefix="f-")

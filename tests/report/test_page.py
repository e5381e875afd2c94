"""The page: complete in itself, escaped, accessible, and careful with what is sealed."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.refusals import refused

from privote.release import OWNER_ONLY, UNCONDITIONAL
from privote.report import (
    Column,
    Command,
    Facts,
    Figure,
    Remark,
    Section,
    TableBlock,
    answered_by_guarantee,
    render_page,
    write_page,
)
from privote.report.page import inline_svg

NASTY = "</style><script>alert('x')</script> & \"quotes\" <b>"
VOID = {"meta", "link", "br", "hr", "img", "input"}
ROWS = [
    {"guarantee": "allowance", "queries": 988, "mark": UNCONDITIONAL},
    {"guarantee": NASTY, "queries": None, "mark": UNCONDITIONAL},
]


class Reader(HTMLParser):
    """Collects the elements of a page and checks that they nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.said = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.said += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def figure(title: str = "T", **kwargs: Any) -> Figure:
    drawn = answered_by_guarantee({"allowance": 3, "ptr": 2}, title=title)
    return Figure(caption="A caption", svg=drawn, **kwargs)


def full_page(**kwargs: Any) -> str:
    sections = [
        Section(heading=f"First {NASTY}", blocks=[f"One {NASTY}\n\nTwo", Facts(values={NASTY: 3})]),
        Section(heading="Second", blocks=[TableBlock(caption=NASTY, rows=ROWS), figure(NASTY)]),
        Section(heading="Third", blocks=[figure(alt=NASTY), Command(text=f"run {NASTY}")]),
    ]
    arguments: dict[str, Any] = {"title": NASTY, "intro": NASTY, "sections": sections} | kwargs
    return render_page(notices=[NASTY], **arguments)


def test_everything_is_escaped() -> None:
    text = full_page()
    reader = Reader(text)
    assert reader.all("script") == []
    assert reader.all("b") == [{}] * 3  # "Table 1.", "Figure 1." and "Figure 2." only
    assert "alert('x')" in reader.said


def test_is_complete_in_itself() -> None:
    text = full_page()
    reader = Reader(text)
    tags = {tag for tag, _ in reader.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    for _, attributes in reader.elements:
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert not re.search(r"https?:", text)
    assert "default-src 'none'" in text


def test_headings_contents_and_links_fit_together() -> None:
    reader = Reader(full_page())
    assert len(reader.all("h1")) == 1
    assert len(reader.all("main")) == 1
    names = [a["id"] for _, a in reader.elements if "id" in a]
    assert len(names) == len(set(names))
    links = [a["href"] for a in reader.all("a")]
    assert links == ["#section-1", "#section-2", "#section-3"]
    for _, attributes in reader.elements:
        target = attributes.get("aria-labelledby")
        assert target is None or target in names
        link = attributes.get("href")
        assert link is None or link[1:] in names


def test_two_sections_need_no_contents() -> None:
    sections = [Section(heading="One"), Section(heading="Two")]
    assert Reader(render_page(title="T", intro="I", sections=sections)).all("nav") == []


def test_tables_have_captions_and_headers_with_scope() -> None:
    block = TableBlock(caption="C", rows=ROWS, columns=["guarantee", Column(key="queries")])
    reader = Reader(
        render_page(title="T", intro="I", sections=[Section(heading="S", blocks=[block])])
    )
    assert len(reader.all("caption")) == 1
    scopes = [a.get("scope") for a in reader.all("th")]
    assert scopes == ["col", "col", "row", "row"]
    assert [a.get("class") for a in reader.all("td")] == ["number", "number"]
    assert "988" in reader.said
    assert "–" in reader.said


def test_figures_have_captions_and_a_text_for_the_blind() -> None:
    reader = Reader(full_page())
    drawings = reader.all("svg")
    assert len(drawings) == len(reader.all("figcaption")) == 2
    assert all(a["role"] == "img" for a in drawings)
    assert "Queries answered: allowance 3; ptr 2." in (drawings[0]["aria-label"] or "")
    assert drawings[1]["aria-label"] == NASTY


def test_marks_are_words_in_the_page() -> None:
    assert f'<span class="mark open">{UNCONDITIONAL}</span>' in full_page()


SEALED_BLOCKS = [
    TableBlock(caption="C", rows=[{"name": "exact", "epsilon": 17.3, "mark": OWNER_ONLY}]),
    Figure(
        caption="C",
        svg=answered_by_guarantee({"data-dependent": 3}, title="T", sealed=["data-dependent"]),
    ),
    figure(sealed=True),
    Facts(values={"exact": 17.3}, sealed=True),
]


@pytest.mark.parametrize("block", SEALED_BLOCKS, ids=lambda block: type(block).__name__)
def test_what_is_sealed_is_written_only_if_asked_by_name(block: Any, tmp_path: Path) -> None:
    sections = [Section(heading="Open"), Section(heading="Exact cost", blocks=[block])]
    target = tmp_path / "page.html"
    with refused("sealed"):
        write_page(target, title="T", intro="I", sections=sections)
    assert not target.exists()
    write_page(target, title="T", intro="I", sections=sections, sealed=True)
    assert "Not for publication" in target.read_text(encoding="utf-8")


def test_an_open_page_has_no_warning_even_if_sealed_was_allowed() -> None:
    assert "Not for publication" not in full_page(sealed=True)


def test_writes_utf8_and_returns_the_path(tmp_path: Path) -> None:
    made = write_page(str(tmp_path / "p.html"), title="ε and δ", intro="I", sections=[])
    assert made == tmp_path / "p.html"
    assert "<h1>ε and δ</h1>" in made.read_bytes().decode("utf-8")


def test_the_same_content_gives_the_same_page() -> None:
    assert full_page() == full_page()


@pytest.mark.parametrize("blocks", ["text", [3], [{"a": 1}]])
def test_wrong_blocks(blocks: Any) -> None:
    with refused("blocks"):
        Section(heading="S", blocks=blocks)


def test_parts_have_a_heading_and_name_their_sections_themselves() -> None:
    sections = [Section(heading=name, part=part) for name, part in (("A", None), ("B", "P"))]
    sections += [Section(heading="C", part="P"), Section(heading="D", part="Q & R")]
    text = render_page(title="T", intro="I", sections=sections)
    assert text.count('<h2 class="part">P</h2>') == 1
    assert '<h2 class="part">Q &amp; R</h2>' in text
    assert '<h2 id="section-1">1. A</h2>' in text
    assert '<h3 id="section-3">C</h3>' in text
    said = Reader(text)
    links = [link["href"] for link in said.all("a")]
    assert links == [f"#section-{number}" for number in (1, 2, 3, 4)]


def test_a_remark_has_a_lead_and_paragraphs() -> None:
    remark = Remark(lead="Verdict: <holds>.", text="One.\n\nTwo.")
    text = render_page(title="T", intro="I", sections=[Section(heading="A", blocks=[remark])])
    assert "<p><b>Verdict: &lt;holds&gt;.</b> One.</p>\n<p>Two.</p>" in text


def test_tables_and_figures_go_without_numbers_where_they_are_about_others() -> None:
    blocks = [TableBlock(caption="Measured.", rows=ROWS)]
    given = {"title": "T", "intro": "I", "sections": [Section(heading="A", blocks=blocks)]}
    assert "<b>Table 1.</b> Measured.</caption>" in render_page(**given)
    assert '<caption id="table-1">Measured.</caption>' in render_page(**given, numbered=False)


def test_a_long_table_may_be_folded() -> None:
    def page(**given: Any) -> str:
        table = TableBlock(caption="Measured.", rows=ROWS, **given)
        return render_page(title="T", intro="I", sections=[Section(heading="A", blocks=[table])])

    said = Reader(page(folded=True))
    assert len(said.all("details")) == len(said.all("table")) == 1
    assert "2 rows" in said.said
    assert "<details>" not in page()


# -- drawings inside a page: checked, renamed, and harmless ---------------------------------------

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
    ("drawing", "argument"),
    [
        ("<svg", "svg"),
        ("<p/>", "svg"),
        ("<!DOCTYPE svg [<!ENTITY a 'b'>]><svg/>", "svg"),
        (svg("<g/>", attributes=""), "alt"),
        (svg("<script>alert(1)</script>"), None),
        (svg("<foreignObject/>"), None),
        (svg('<image href="x.png"/>'), None),
        (svg('<a href="#x"/>'), None),
        (svg('<g onclick="alert(1)"/>'), None),
        (svg('<use xlink:href="https://example.org/#x"/>'), None),
        (svg('<use href=" javascript:alert(1)"/>'), None),
        (svg('<g style="fill: url(https://example.org/)"/>'), None),
        (svg("<style>@import 'x.css';</style>"), None),
        (svg("<style>&lt;/style&gt;&lt;script&gt;</style>"), None),
    ],
)
def test_what_could_run_or_load_is_refused(drawing: str, argument: str | None) -> None:
    with refused(argument):
        inline_svg(drawing, prefix="f-")

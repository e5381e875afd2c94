"""The page: complete in itself, escaped, accessible, and careful with what is sealed."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from tests.refusals import refused

from privote.guarantees import OWNER_ONLY, UNCONDITIONAL
from privote.report.page import Bar, Command, Section, TableBlock, render_page, write_page
from privote.report.tables import Column

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


def full_page(**kwargs: Any) -> str:
    sections = [
        Section(heading=f"First {NASTY}", blocks=[f"One {NASTY}\n\nTwo", (NASTY, "Bo")]),
        Section(heading="Second", blocks=[TableBlock(caption=NASTY, rows=ROWS)]),
        Section(heading="Third", blocks=[Command(text=f"run {NASTY}")]),
    ]
    arguments: dict[str, Any] = {"title": NASTY, "intro": NASTY, "sections": sections} | kwargs
    return render_page(notices=[NASTY], **arguments)


def test_is_escaped_and_complete_in_itself() -> None:
    text = full_page()
    reader = Reader(text)
    tags = {tag for tag, _ in reader.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form", "b"}
    assert "alert('x')" in reader.said
    for _, attributes in reader.elements:
        assert "src" not in attributes
        assert not any(name.startswith("on") for name in attributes)
    assert "@import" not in text
    assert "url(" not in text
    assert "http:" not in text
    assert "https:" not in text
    assert "default-src 'none'" in text


def test_headings_contents_and_links_fit_together() -> None:
    text = full_page()
    reader = Reader(text)
    assert len(reader.all("h1")) == len(reader.all("main")) == 1
    names = [a["id"] for _, a in reader.elements if "id" in a]
    assert len(names) == len(set(names))
    assert [a["href"] for a in reader.all("a")] == ["#section-1", "#section-2", "#section-3"]
    for _, attributes in reader.elements:
        target = attributes.get("aria-labelledby")
        assert target is None or target in names


def test_tables_have_captions_headers_with_scope_marks_and_bars() -> None:
    rows = [row | {"share": Bar(0.5, 0.25, 1.0)} for row in ROWS]
    block = TableBlock(
        caption="C", rows=rows, columns=["guarantee", Column(key="queries"), "share"]
    )
    page = render_page(title="T", intro="I", sections=[Section(heading="S", blocks=[block])])
    reader = Reader(page)
    assert len(reader.all("caption")) == 1
    assert [a.get("scope") for a in reader.all("th")] == ["col"] * 3 + ["row"] * 2
    assert [a.get("class") for a in reader.all("td")] == ["number", None] * 2
    assert {"988", "–"} <= set(re.findall(r">([^<>]+)<", page))
    assert page.count('class="bar" style="--value:50.00%;--low:25.00%;--high:100.00%"') == 2
    assert f'<span class="mark open">{UNCONDITIONAL}</span>' in full_page()


def test_what_is_sealed_is_written_only_if_asked_by_name(tmp_path: Path) -> None:
    row = {"name": "exact", "epsilon": 17.3, "mark": OWNER_ONLY}
    block = TableBlock(caption="C", rows=[row])
    sections = [Section(heading="Open"), Section(heading="Exact ε", blocks=[block])]
    target = tmp_path / "page.html"
    with refused("sealed"):
        write_page(target, title="T", intro="I", sections=sections)
    assert not target.exists()
    assert write_page(str(target), title="T", intro="I", sections=sections, sealed=True) == target
    text = target.read_bytes().decode("utf-8")
    assert "Not for publication" in text
    assert "Exact ε" in text
    assert "Not for publication" not in full_page(sealed=True)  # where nothing is

"""One self-contained HTML page: text, tables and figures, with nothing fetched from elsewhere.

The page needs no JavaScript and makes no request, so it can be mailed, archived and opened on a
machine without a network. All text is escaped; figures are read as XML and refused if they could
run or load anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from privote._version import __version__
from privote.errors import InputError, MissingExtraError
from privote.release import OWNER_ONLY

from .plots import SEALED
from .tables import (
    Column,
    Row,
    cell,
    columns_of,
    is_cost,
    is_numeric,
    is_sealed,
    mark_name,
)

_CSS = Path(__file__).with_name("page.css")

# -- what a page is made of ------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Facts:
    """A few numbers that stand out: label and value. A value may be text or a number.

    ``sealed`` is True if one of them is for the owner's eyes.
    """

    values: Mapping[str, Any]
    sealed: bool = False


@dataclass(frozen=True, kw_only=True)
class TableBlock:
    """A table with a caption; rows and columns as in `privote.report.tables`.

    One that is ``folded`` shows how many rows it has, and the rows to whoever opens it.
    """

    caption: str
    rows: Sequence[Row]
    columns: Sequence[Column | str] | None = None
    folded: bool = False


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure with a caption.

    Attributes
    ----------
    caption
        What stands below.
    svg
        The drawing, as `privote.report.plots` returns it.
    alt
        What a reader who cannot see it is told; by default the drawing's own ``aria-label``.
    sealed
        True if the drawing shows numbers that are for the owner's eyes. Drawings of
        `privote.report.plots` say so themselves.
    """

    caption: str
    svg: str
    alt: str | None = None
    sealed: bool = False


@dataclass(frozen=True, kw_only=True)
class Command:
    """The command, or the code, that produces the numbers next to it."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Remark:
    """A paragraph that begins with what it is about: the lead stands out."""

    lead: str
    text: str


Block = str | Remark | Facts | TableBlock | Figure | Command


def drawn(caption: str, draw: Callable[[], str], *, sealed: bool = False) -> Block:
    """Return a figure, or the sentence that says what drawing it needs."""
    try:
        return Figure(caption=caption, svg=draw(), sealed=sealed)
    except MissingExtraError as error:
        return f"(No figure here: {error}.)"


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading and what stands under it: paragraphs (plain text), facts, tables, figures.

    Sections that follow each other with the same ``part`` stand under a heading of its name.
    """

    heading: str
    blocks: Sequence[Block] = ()
    part: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.blocks, str):
            raise InputError("blocks", "must be a list, got a single text")
        for block in self.blocks:
            if not isinstance(block, Block):
                raise InputError("blocks", "must be text or parts of a page", block)

    @property
    def sealed(self) -> bool:
        """True if something in it is for the owner's eyes."""
        return any(_is_sealed(block) for block in self.blocks)


def _is_sealed(block: Block) -> bool:
    if isinstance(block, TableBlock):
        return is_sealed(block.rows)
    if isinstance(block, Figure):
        return block.sealed or SEALED in block.svg
    return isinstance(block, Facts) and block.sealed


# -- as HTML -------------------------------------------------------------------------------------


def write_page(
    path: str | Path,
    *,
    title: str,
    intro: str,
    sections: Sequence[Section],
    notices: Sequence[str] = (),
    sealed: bool = False,
    numbered: bool = True,
) -> Path:
    """Write the report and return where it is.

    Parameters
    ----------
    path
        The file to write; it is replaced if it exists.
    title, intro
        The heading and what stands below it; an empty line in ``intro`` starts a paragraph.
    sections
        The body. With three or more, a list of contents comes first.
    notices
        Things every reader must see first, such as "Simulated: drawn with a seed."
    sealed
        Must be True if a table or figure holds numbers for the owner's eyes; the page then says so
        on top.
    numbered
        False where tables and figures are about others that have numbers of their own.
    """
    target = Path(path)
    text = render_page(
        title=title,
        intro=intro,
        sections=sections,
        notices=notices,
        sealed=sealed,
        numbered=numbered,
    )
    target.write_text(text, encoding="utf-8")
    return target


def render_page(
    *,
    title: str,
    intro: str,
    sections: Sequence[Section],
    notices: Sequence[str] = (),
    sealed: bool = False,
    numbered: bool = True,
    one_sheet: bool = False,
) -> str:
    """Return the report as HTML text; parameters as in `write_page`.

    ``one_sheet`` is for what hangs on a wall: no contents, and small on paper.
    """
    hidden = [section.heading for section in sections if section.sealed]
    if hidden and not sealed:
        raise InputError(
            "sealed",
            "must be True to write numbers that are for the owner's eyes, got False with such "
            f"numbers under {hidden[0]!r}",
        )
    warnings = list(notices)
    if hidden:
        warnings.append(
            f"Not for publication. What is marked \N{LEFT DOUBLE QUOTATION MARK}{OWNER_ONLY}"
            "\N{RIGHT DOUBLE QUOTATION MARK} is about the private data and is covered by no "
            "guarantee: it must not leave."
        )
    numbers = _Numbers(shown=numbered)
    body = "\n".join(
        _part(part) + "\n".join(_section(i, section, numbers) for i, section in inside)
        for part, inside in _parts(sections)
    )
    return _DOCUMENT.format(
        title=escape(title),
        css=_CSS.read_text(encoding="utf-8"),
        intro=_paragraphs(intro),
        notices="".join(f'<p class="notice">{escape(text)}</p>\n' for text in warnings),
        contents=_contents(sections) if len(sections) > 2 and not one_sheet else "",
        kind=' class="sheet"' if one_sheet else "",
        body=body,
        version=escape(__version__),
    )


class _Numbers:
    """Counts tables and figures through the page, and names them by that if they are to be."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self.tables = 0
        self.figures = 0

    def caption(self, kind: str, number: int, text: str) -> str:
        return f"<b>{kind} {number}.</b> {escape(text)}" if self._shown else escape(text)


def _parts(sections: Sequence[Section]) -> list[tuple[str | None, list[tuple[int, Section]]]]:
    """Return sections with their numbers, those of one part together."""
    numbered = enumerate(sections, 1)
    return [(part, list(inside)) for part, inside in groupby(numbered, lambda one: one[1].part)]


def _part(part: str | None) -> str:
    return "" if part is None else f'<h2 class="part">{escape(part)}</h2>\n'


def _section(number: int, section: Section, numbers: _Numbers) -> str:
    parts = [_block(block, numbers) for block in section.blocks]
    if section.part is None:
        heading = f'<h2 id="section-{number}">{number}. {escape(section.heading)}</h2>'
    else:  # a part names its sections itself
        heading = f'<h3 id="section-{number}">{escape(section.heading)}</h3>'
    inside = "\n".join(parts)
    return f'<section aria-labelledby="section-{number}">\n{heading}\n{inside}\n</section>'


def _block(block: Block, numbers: _Numbers) -> str:
    if isinstance(block, Facts):
        return _facts(block)
    if isinstance(block, TableBlock):
        numbers.tables += 1
        return _table(block, numbers)
    if isinstance(block, Figure):
        numbers.figures += 1
        return _figure(block, numbers)
    if isinstance(block, Command):
        return f'<pre tabindex="0"><code>{escape(block.text.strip())}</code></pre>'
    if isinstance(block, Remark):
        return _paragraphs(block.text, lead=block.lead)
    return _paragraphs(block)


def _facts(facts: Facts) -> str:
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(cell(value, cost=is_cost(name)))}</dd></div>"
        for name, value in ((str(name), value) for name, value in facts.values.items())
    )
    return f'<dl class="facts">{items}</dl>'


def _table(block: TableBlock, numbers: _Numbers) -> str:
    columns = columns_of(block.rows, block.columns)
    number_class = {c.key: ' class="number"' for c in columns if is_numeric(block.rows, c.key)}
    head = "".join(
        f'<th scope="col"{number_class.get(c.key, "")}>{escape(c.title)}</th>' for c in columns
    )
    lines = "\n".join(f"<tr>{_line(row, columns, number_class)}</tr>" for row in block.rows)
    label = f"table-{numbers.tables}"
    said = numbers.caption("Table", numbers.tables, block.caption)
    caption = f'<caption id="{label}">{said}</caption>'
    # The frame scrolls on narrow screens; the tab stop lets a keyboard scroll it.
    frame = (
        f'<div class="frame" role="region" aria-labelledby="{label}" tabindex="0"><table>'
        f"{caption}\n<thead><tr>{head}</tr></thead>\n<tbody>\n{lines}\n</tbody></table></div>"
    )
    if not block.folded:
        return frame
    return f"<details><summary>{len(block.rows)} rows</summary>\n{frame}\n</details>"


def _line(row: Row, columns: Sequence[Column], number_class: Mapping[str, str]) -> str:
    cells = []
    for place, column in enumerate(columns):
        value = row.get(column.key)
        text, kind = escape(cell(value, column.digits, cost=column.costs)), mark_name(value)
        if kind is not None:
            text = f'<span class="mark {kind}">{text}</span>'
        # The first column names the row.
        tag, scope = ("th", ' scope="row"') if place == 0 else ("td", "")
        cells.append(f"<{tag}{scope}{number_class.get(column.key, '')}>{text}</{tag}>")
    return "".join(cells)


def _figure(block: Figure, numbers: _Numbers) -> str:
    drawing = inline_svg(block.svg, prefix=f"f{numbers.figures}-", alt=block.alt)
    said = numbers.caption("Figure", numbers.figures, block.caption)
    caption = f"<figcaption>{said}</figcaption>"
    return f"<figure>{drawing}{caption}</figure>"


def _paragraphs(text: str, *, lead: str = "") -> str:
    shown = [escape(" ".join(block.split())) for block in text.split("\n\n") if block.strip()]
    if lead:
        shown[:1] = [f"<b>{escape(lead)}</b> {first}" for first in shown[:1]]
    return "\n".join(f"<p>{block}</p>" for block in shown)


def _contents(sections: Sequence[Section]) -> str:
    lists = []
    for part, inside in _parts(sections):
        items = "".join(
            f'<li><a href="#section-{i}">{escape(section.heading)}</a></li>'
            for i, section in inside
        )
        if part is None:
            lists.append(f'<ol start="{inside[0][0]}">{items}</ol>')
        else:
            lists.append(f"<h3>{escape(part)}</h3><ul>{items}</ul>")
    heading = '<h2 id="contents">Contents</h2>'
    return f'<nav aria-labelledby="contents">{heading}{"".join(lists)}</nav>'


# The policy makes the promise of the first paragraph binding on the browser.
_DOCUMENT = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{css}</style>
</head>
<body{kind}>
<header>
<p class="kicker">privote report</p>
<h1>{title}</h1>
<div class="intro">{intro}</div>
{notices}</header>
{contents}
<main>
{body}
</main>
<footer><p>Written by privote {version}. This page is complete in itself: it loads nothing
and runs nothing.</p></footer>
</body>
</html>
"""


# -- drawings ------------------------------------------------------------------------------------

# What a drawing is made of. Anything else, a script or a link above all, is refused.
_STRUCTURE = ("svg", "g", "defs", "style", "title", "desc", "use", "symbol", "text", "tspan")
_SHAPES = ("path", "rect", "circle", "ellipse", "line", "polyline", "polygon", "marker")
_PAINT = ("clipPath", "mask", "pattern", "linearGradient", "radialGradient", "stop")
_ELEMENTS = frozenset((*_STRUCTURE, *_SHAPES, *_PAINT))
_REFERENCE = re.compile(r"url\(\s*(['\"]?)#([^)'\"]+)\1\s*\)")
_LOADS = re.compile(r"url\(\s*['\"]?(?!#)|@import|expression\(|javascript:", re.IGNORECASE)


def inline_svg(svg: str, *, prefix: str, alt: str | None = None) -> str:
    """Return the drawing as an element for HTML.

    Parameters
    ----------
    svg
        The drawing as text.
    prefix
        Put before every id, so that two drawings on one page do not share names.
    alt
        The text for readers who cannot see it, instead of the drawing's own ``aria-label``.
    """
    if "<!DOCTYPE" in svg or "<!ENTITY" in svg:
        raise InputError("svg", "must not declare a document type or entities")
    try:
        root = ElementTree.fromstring(svg)
    except ElementTree.ParseError as error:
        raise InputError("svg", f"must be well-formed XML: {error}") from None
    if _local(root.tag) != "svg":
        raise InputError("svg", f"must be an <svg> element, got <{_local(root.tag)}>")
    for element in root.iter():
        _settle(element, prefix)
    if alt is not None:
        root.set("aria-label", alt)
    if not root.get("aria-label", "").strip():
        raise InputError("alt", "must be given if the svg has no aria-label of its own")
    root.set("role", "img")
    return ElementTree.tostring(root, encoding="unicode")


def _settle(element: ElementTree.Element, prefix: str) -> None:
    """Check one element, and take namespaces out of its names: HTML knows them without."""
    element.tag = _local(element.tag)
    if element.tag not in _ELEMENTS:
        raise InputError(f"svg must be a plain drawing, got the element <{element.tag}>")
    if element.tag == "style":
        text = "".join(element.itertext())
        # Serialised as XML a "<" would be escaped, which HTML does not undo inside a style.
        if "<" in text or "&" in text or ">" in text or _LOADS.search(text):
            raise InputError("svg must not load anything from its style")
    attributes = {_local(name): value for name, value in element.attrib.items()}
    element.attrib.clear()
    for name, value in attributes.items():
        if name.lower().startswith("on") or _LOADS.search(value):
            raise InputError(f"svg must not run or load anything, got the attribute {name!r}")
        if name == "href" and not value.startswith("#"):
            raise InputError(f"svg must refer to its own parts only, got {name}={value!r}")
        element.set(name, _renamed(name, value, prefix))


def _renamed(name: str, value: str, prefix: str) -> str:
    if name == "id":
        return prefix + value
    if name == "href":
        return f"#{prefix}{value[1:]}"
    return _REFERENCE.sub(lambda found: f"url(#{prefix}{found[2]})", value)


def _local(name: str) -> str:
    return name.rpartition("}")[2]

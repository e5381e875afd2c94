"""One self-contained HTML page: text, tables and figures, with nothing fetched from elsewhere.

The page needs no JavaScript and makes no request, so it can be mailed, archived and opened on a
machine without a network; its own policy forbids both. All text is escaped; drawings are those of
`privote.report.plots`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape as escaped
from itertools import count
from pathlib import Path
from typing import Any

from privote._version import __version__
from privote.errors import InputError, MissingExtraError
from privote.guarantees import OWNER_ONLY, Fact

from .plots import SEALED
from .tables import Column, Row, cell, columns_of, is_cost, is_numeric, is_sealed, mark_name

_NOTICES = ("warnings", "simulated")  # facts that stand on top of a page
_CSS = Path(__file__).with_name("page.css")
_PERCENT = re.compile(r"(?<=\d) (?=%)")
_NUMBER = re.compile(r"(below )?[\d,.]+( %)?( (of|to) [\d,.]+( %)?)?")
_NAMES = re.compile(r'(?<= id=")|(?<=href="#)|(?<=url\(#)')  # of a drawing's parts

# -- what a page is made of ------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Facts:
    """A few numbers that stand out: label and value. A value may be text or a number."""

    values: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class TableBlock:
    """A table with a caption; rows and columns as in `privote.report.tables`, and bars."""

    caption: str
    rows: Sequence[Row]
    columns: Sequence[Column | str] | None = None


@dataclass(frozen=True)
class Bar:
    """A cell of a table that is drawn: a share from 0 to 1, and the interval it lies in."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A drawing of `privote.report.plots`, and the caption below."""

    caption: str
    svg: str


@dataclass(frozen=True, kw_only=True)
class Command:
    """The command, or the code, that produces the numbers next to it."""

    text: str


Block = str | tuple[str, ...] | Facts | TableBlock | Figure | Command


def drawn(caption: str, draw: Callable[[], str]) -> Block:
    """Return a figure, or the sentence that says what drawing it needs."""
    try:
        return Figure(caption=caption, svg=draw())
    except MissingExtraError as error:
        return f"(Figure not drawn: {error}.)"


def listed(rows: Iterable[Fact], caption: str) -> TableBlock:
    """Return facts as a table, but those that every reader must see first."""
    shown = [{"what": r.name, "value": r.text} for r in rows if r.key not in _NOTICES]
    return TableBlock(caption=caption, rows=shown)


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading and what stands under it: paragraphs (text), lists, facts, tables, figures."""

    heading: str
    blocks: Sequence[Block] = ()

    @property
    def sealed(self) -> bool:
        """True if something in it is for the owner's eyes."""
        return any(
            is_sealed(block.rows)
            if isinstance(block, TableBlock)
            else isinstance(block, Figure) and SEALED in block.svg
            for block in self.blocks
        )


# -- as HTML -------------------------------------------------------------------------------------


def escape(text: str) -> str:
    """Return text for the page; a number stays with its per cent sign."""
    return _PERCENT.sub("\N{NO-BREAK SPACE}", escaped(text))


def write_page(path: str | Path, **content: Any) -> Path:
    """Write a page, whole, and return where it is; ``content`` as :func:`render_page` takes it."""
    target = Path(path)
    target.write_text(render_page(**content), encoding="utf-8")
    return target


def render_page(
    *,
    title: str,
    intro: str,
    sections: Sequence[Section],
    notices: Sequence[str] = (),
    sealed: bool = False,
    one_sheet: bool = False,
) -> str:
    """Return a page as HTML text.

    Parameters
    ----------
    title, intro
        The heading and what stands below it; an empty line in ``intro`` starts a paragraph.
    sections
        The body. With three or more, a list of contents comes first.
    notices
        Things every reader must see first, such as "Simulated: drawn with a seed."
    sealed
        Must be True if a table or figure holds numbers for the owner's eyes; the page then says so
        on top.
    one_sheet
        True for what hangs on a wall: no contents, and small on paper.
    """
    hidden = [section.heading for section in sections if section.sealed]
    if hidden and not sealed:
        raise InputError(
            "sealed",
            "must be True to write numbers that are for the owner's eyes; there are some under "
            f"{hidden[0]!r}",
        )
    warnings = list(notices)
    if hidden:
        warnings.append(
            f"Not for publication. Numbers marked \N{LEFT DOUBLE QUOTATION MARK}{OWNER_ONLY}"
            "\N{RIGHT DOUBLE QUOTATION MARK} depend on the private data and are not covered by "
            "any guarantee."
        )
    ids = count(1)
    body = "\n".join(_section(i, section, ids) for i, section in enumerate(sections, 1))
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


def _section(number: int, section: Section, ids: Iterator[int]) -> str:
    heading = f'<h2 id="section-{number}">{number}. {escape(section.heading)}</h2>'
    inside = "\n".join(_block(block, ids) for block in section.blocks)
    return f'<section aria-labelledby="section-{number}">\n{heading}\n{inside}\n</section>'


def _block(block: Block, ids: Iterator[int]) -> str:
    if isinstance(block, Facts):
        return _facts(block)
    if isinstance(block, TableBlock):
        return _table(block, f"table-{next(ids)}")
    if isinstance(block, Figure):
        # Two drawings on one page must not share names of their parts.
        drawing = _NAMES.sub(f"f{next(ids)}-", block.svg)
        return f"<figure>{drawing}<figcaption>{escape(block.caption)}</figcaption></figure>"
    if isinstance(block, tuple):
        items = "".join(f"<li>{escape(text)}</li>" for text in block)
        return f'<ul class="columns">{items}</ul>'
    if isinstance(block, Command):
        return f'<pre tabindex="0"><code>{escape(block.text.strip())}</code></pre>'
    return _paragraphs(block)


def _facts(facts: Facts) -> str:
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(cell(value, cost=is_cost(name)))}</dd></div>"
        for name, value in ((str(name), value) for name, value in facts.values.items())
    )
    return f'<dl class="facts">{items}</dl>'


def _table(block: TableBlock, label: str) -> str:
    columns = columns_of(block.rows, block.columns)
    number_class = {c.key: ' class="number"' for c in columns if _right(block.rows, c.key)}
    head = "".join(
        f'<th scope="col"{number_class.get(c.key, "")}>{escape(c.title)}</th>' for c in columns
    )
    lines = "\n".join(f"<tr>{_line(row, columns, number_class)}</tr>" for row in block.rows)
    caption = f'<caption id="{label}">{escape(block.caption)}</caption>'
    chart = any(isinstance(cell, Bar) for row in block.rows for cell in row.values())
    kind = ' class="chart"' if chart else ""
    # The frame scrolls on narrow screens; the tab stop lets a keyboard scroll it.
    return (
        f'<div class="frame" role="region" aria-labelledby="{label}" tabindex="0"><table{kind}>'
        f"{caption}\n<thead><tr>{head}</tr></thead>\n<tbody>\n{lines}\n</tbody></table></div>"
    )


def _right(rows: Sequence[Row], key: str) -> bool:
    """Return whether a column stands on the right: numbers, also with words such as "of 12"."""
    shown = [value for row in rows if (value := row.get(key)) is not None]
    words = bool(shown) and all(isinstance(v, str) and _NUMBER.fullmatch(v) for v in shown)
    return words or is_numeric(rows, key)


def _line(row: Row, columns: Sequence[Column], number_class: Mapping[str, str]) -> str:
    cells = []
    for place, column in enumerate(columns):
        value = row.get(column.key)
        kind = mark_name(value)
        text = escape(cell(value, column.digits, cost=column.costs))
        if isinstance(value, Bar):
            places = (f"--{name}:{100 * at:.2f}%" for name, at in vars(value).items())
            text = f'<span class="bar" style="{";".join(places)}"></span>'
        elif kind is not None:
            text = f'<span class="mark {kind}">{text}</span>'
        # The first column names the row.
        tag, scope = ("th", ' scope="row"') if place == 0 else ("td", "")
        cells.append(f"<{tag}{scope}{number_class.get(column.key, '')}>{text}</{tag}>")
    return "".join(cells)


def _paragraphs(text: str) -> str:
    blocks = (" ".join(block.split()) for block in text.split("\n\n") if block.strip())
    return "\n".join(f"<p>{escape(block)}</p>" for block in blocks)


def _contents(sections: Sequence[Section]) -> str:
    items = "".join(
        f'<li><a href="#section-{i}">{escape(section.heading)}</a></li>'
        for i, section in enumerate(sections, 1)
    )
    return f'<nav aria-labelledby="contents"><h2 id="contents">Contents</h2><ol>{items}</ol></nav>'


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

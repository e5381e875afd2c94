"""One self-contained HTML page: text, tables and figures, with nothing fetched from elsewhere.

The page needs no JavaScript and makes no request, so it can be mailed, archived and opened on a
machine without a network. All text is escaped; figures are read as XML and refused if they could
run or load anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from privote._version import __version__
from privote.errors import InputError

from .blocks import Block, Command, Facts, Figure, Section, TableBlock
from .inline import inline_svg
from .style import CSS
from .tables import OWNER_ONLY, Column, Row, cell, columns_of, is_cost, is_numeric, mark_name


def write_page(
    path: str | Path,
    *,
    title: str,
    intro: str,
    sections: Sequence[Section],
    notices: Sequence[str] = (),
    sealed: bool = False,
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
    """
    target = Path(path)
    target.write_text(
        render_page(title=title, intro=intro, sections=sections, notices=notices, sealed=sealed),
        encoding="utf-8",
    )
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
    numbers = _Numbers()
    body = "\n".join(_section(i, section, numbers) for i, section in enumerate(sections, 1))
    return _DOCUMENT.format(
        title=escape(title),
        css=CSS,
        intro=_paragraphs(intro),
        notices="".join(f'<p class="notice">{escape(text)}</p>\n' for text in warnings),
        contents=_contents(sections) if len(sections) > 2 and not one_sheet else "",
        kind=' class="sheet"' if one_sheet else "",
        body=body,
        version=escape(__version__),
    )


class _Numbers:
    """Counts tables and figures through the page."""

    def __init__(self) -> None:
        self.tables = 0
        self.figures = 0


def _section(number: int, section: Section, numbers: _Numbers) -> str:
    parts = [_block(block, numbers) for block in section.blocks]
    heading = f'<h2 id="section-{number}">{number}. {escape(section.heading)}</h2>'
    inside = "\n".join(parts)
    return f'<section aria-labelledby="section-{number}">\n{heading}\n{inside}\n</section>'


def _block(block: Block, numbers: _Numbers) -> str:
    if isinstance(block, Facts):
        return _facts(block)
    if isinstance(block, TableBlock):
        numbers.tables += 1
        return _table(block, numbers.tables)
    if isinstance(block, Figure):
        numbers.figures += 1
        return _figure(block, numbers.figures)
    if isinstance(block, Command):
        return f'<pre tabindex="0"><code>{escape(block.text.strip())}</code></pre>'
    return _paragraphs(block)


def _facts(facts: Facts) -> str:
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(cell(value, cost=is_cost(name)))}</dd></div>"
        for name, value in ((str(name), value) for name, value in facts.values.items())
    )
    return f'<dl class="facts">{items}</dl>'


def _table(block: TableBlock, number: int) -> str:
    columns = columns_of(block.rows, block.columns)
    number_class = {c.key: ' class="number"' for c in columns if is_numeric(block.rows, c.key)}
    head = "".join(
        f'<th scope="col"{number_class.get(c.key, "")}>{escape(c.title)}</th>' for c in columns
    )
    lines = "\n".join(f"<tr>{_line(row, columns, number_class)}</tr>" for row in block.rows)
    label = f"table-{number}"
    caption = f'<caption id="{label}"><b>Table {number}.</b> {escape(block.caption)}</caption>'
    # The frame scrolls on narrow screens; the tab stop lets a keyboard scroll it.
    return (
        f'<div class="frame" role="region" aria-labelledby="{label}" tabindex="0"><table>'
        f"{caption}\n<thead><tr>{head}</tr></thead>\n<tbody>\n{lines}\n</tbody></table></div>"
    )


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


def _figure(block: Figure, number: int) -> str:
    drawing = inline_svg(block.svg, prefix=f"f{number}-", alt=block.alt)
    caption = f"<figcaption><b>Figure {number}.</b> {escape(block.caption)}</figcaption>"
    return f"<figure>{drawing}{caption}</figure>"


def _paragraphs(text: str) -> str:
    blocks = (" ".join(block.split()) for block in text.split("\n\n"))
    return "\n".join(f"<p>{escape(block)}</p>" for block in blocks if block)


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

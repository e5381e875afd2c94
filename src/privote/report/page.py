"""One self-contained HTML page: text and tables, with nothing fetched from elsewhere.

The page needs no JavaScript and makes no request, so it can be mailed, archived and opened on a
machine without a network; its own policy forbids both. ``page.html`` lays it out, and escapes all
text; what is drawn is a cell of a table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from privote._version import __version__
from privote.errors import InputError
from privote.guarantees import OWNER_ONLY, Fact

from .tables import Column, Row, cell, columns_of, is_numeric, is_sealed, mark_name

_NOTICES = ("warnings", "simulated")  # facts that stand on top of a page
_PERCENT = re.compile(r"(?<=\d) (?=%)")
_NUMBER = re.compile(r"(below )?[\d,.]+( %)?( (of|to) [\d,.]+( %)?)?")

# -- what a page is made of ------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """A cell of a table that is drawn: a share from 0 to 1, and the interval it lies in, if any."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class TableBlock:
    """A table with a caption; rows and columns as in `privote.report.tables`, and bars."""

    kind: ClassVar[str] = "table"
    caption: str
    rows: Sequence[Row]
    columns: Sequence[Column | str] | None = None

    @property
    def shown(self) -> list[Column]:
        """The columns to show."""
        return columns_of(self.rows, self.columns)

    @property
    def chart(self) -> bool:
        """Whether a cell is drawn."""
        return any(isinstance(value, Bar) for row in self.rows for value in row.values())


@dataclass(frozen=True, kw_only=True)
class Command:
    """The command, or the code, that produces the numbers next to it."""

    kind: ClassVar[str] = "command"
    text: str


Block = str | tuple[str, ...] | TableBlock | Command


def listed(rows: Iterable[Fact], caption: str) -> TableBlock:
    """Return facts as a table, but those that every reader must see first."""
    shown = [{"what": r.name, "value": r.text} for r in rows if r.key not in _NOTICES]
    return TableBlock(caption=caption, rows=shown)


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading and what stands under it: paragraphs (text), lists, tables, commands."""

    heading: str
    blocks: Sequence[Block] = ()

    @property
    def sealed(self) -> bool:
        """True if something in it is for the owner's eyes."""
        return any(is_sealed(block.rows) for block in self.blocks if isinstance(block, TableBlock))


# -- as HTML -------------------------------------------------------------------------------------


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
        Must be True if a table holds numbers for the owner's eyes; the page then says so on top.
    one_sheet
        True for what hangs on a wall: no contents, and small on paper.
    """
    hidden = [section.heading for section in sections if section.sealed]
    if hidden and not sealed:
        rule = "must be True to write numbers that are for the owner's eyes; there are some under "
        raise InputError("sealed", f"{rule}{hidden[0]!r}")
    warnings = list(notices)
    if hidden:
        warnings.append(
            f"Not for publication. Numbers marked \N{LEFT DOUBLE QUOTATION MARK}{OWNER_ONLY}"
            "\N{RIGHT DOUBLE QUOTATION MARK} depend on the private data and are not covered by "
            "any guarantee."
        )
    facts = {"title": title, "intro": intro, "sections": sections, "notices": warnings}
    page = _environment().get_template("page.html")
    return page.render(**facts, one_sheet=one_sheet, version=__version__)


def _environment() -> Environment:
    place = FileSystemLoader(Path(__file__).parent)
    environment = Environment(
        loader=place, autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=_kept_together
    )
    environment.filters |= {
        "paragraphs": _paragraphs,
        "number": _number,
        "drawn_cell": _drawn_cell,
    }
    return environment


def _kept_together(value: Any) -> Any:
    """Return text in which a number stays with its per cent sign."""
    return _PERCENT.sub("\N{NO-BREAK SPACE}", value) if type(value) is str else value


def _paragraphs(text: str) -> list[str]:
    parts = [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]
    return [part[:1].upper() + part[1:] for part in parts]


def _number(column: Column, block: TableBlock) -> Markup:
    """Return the class of a column on the right: numbers, also with words such as "of 12"."""
    shown = [value for row in block.rows if (value := row.get(column.key)) is not None]
    words = bool(shown) and all(isinstance(v, str) and _NUMBER.fullmatch(v) for v in shown)
    return Markup(' class="number"' if words or is_numeric(block.rows, column.key) else "")


def _drawn_cell(row: Row, column: Column) -> str:
    value = row.get(column.key)
    text, kind = cell(value, column.digits, cost=column.costs), mark_name(value)
    if isinstance(value, Bar):
        given = {name: at for name, at in vars(value).items() if at is not None}
        places = ";".join(f"--{name}:{100 * at:.2f}%" for name, at in given.items())
        look = "bar" if value.low is not None else "bar plain"
        return Markup('<span class="{}" style="{}"></span>').format(look, places)
    if kind is not None:
        return Markup('<span class="mark {}">{}</span>').format(kind, text)
    return text

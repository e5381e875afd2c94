"""What a page is made of: text, facts, tables, figures and commands, in sections."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from privote.errors import InputError, MissingExtraError

from .canvas import SEALED
from .tables import Column, Row, is_sealed


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


@dataclass(frozen=True, kw_only=True)
class Folded:
    """Paragraphs behind one line, for whoever opens it: what a result does not need to be read."""

    lead: str
    text: str


def reasons_folded(reasons: Sequence[str]) -> list[Block]:
    """Return why settings are as they are, and what would help, behind one line; or nothing."""
    text = "\n\n".join(reasons)
    return [Folded(lead="Why these settings, and what would help", text=text)] if text else []


Block = str | Remark | Folded | Facts | TableBlock | Figure | Command


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

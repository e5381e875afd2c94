"""Results for people: tables in the terminal, figures as SVG, and one self-contained page."""

from .blocks import Command, Facts, Figure, Folded, Remark, Section, TableBlock
from .page import render_page, write_page
from .plots import answered_by_guarantee
from .tables import OWNER_ONLY, SANITIZED, UNCONDITIONAL, Column, mark, table, text_table

__all__ = [
    "OWNER_ONLY",
    "SANITIZED",
    "UNCONDITIONAL",
    "Column",
    "Command",
    "Facts",
    "Figure",
    "Folded",
    "Remark",
    "Section",
    "TableBlock",
    "answered_by_guarantee",
    "mark",
    "render_page",
    "table",
    "text_table",
    "write_page",
]

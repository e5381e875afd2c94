"""Results for people: tables in the terminal, figures as SVG, and one self-contained page."""

from privote.guarantees import OWNER_ONLY

from .page import Command, Facts, Figure, Section, TableBlock, render_page, write_page
from .plots import bars
from .tables import Column, table

__all__ = [
    "OWNER_ONLY",
    "Column",
    "Command",
    "Facts",
    "Figure",
    "Section",
    "TableBlock",
    "bars",
    "render_page",
    "table",
    "write_page",
]

"""Results for people: tables in the terminal, figures as SVG, and one self-contained page."""

from privote.release import OWNER_ONLY

from .page import (
    Command,
    Facts,
    Figure,
    Remark,
    Section,
    TableBlock,
    render_page,
    write_page,
)
from .plots import answered_by_guarantee
from .tables import Column, table, text_table

__all__ = [
    "OWNER_ONLY",
    "Column",
    "Command",
    "Facts",
    "Figure",
    "Remark",
    "Section",
    "TableBlock",
    "answered_by_guarantee",
    "render_page",
    "table",
    "text_table",
    "write_page",
]

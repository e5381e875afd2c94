"""Tables for the terminal."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from privote.guarantees import OWNER_ONLY, UNCONDITIONAL
from privote.report.tables import Column, cell, is_sealed, table

ROWS = [
    {"guarantee": "allowance", "queries": 988, "delta": 1e-5, "mark": UNCONDITIONAL},
    {"guarantee": "data-dependent", "queries": 12345, "mark": OWNER_ONLY, "BAC": 0.91234},
]


def text_table(rows: Any, width: int = 100, **how: Any) -> str:
    """Return a table as plain text without colour."""
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as captured:
        console.print(table(rows, **how))
    lines = [line.rstrip() for line in captured.get().splitlines()]
    return "\n".join(lines).strip("\n") + "\n"


def test_cells() -> None:
    numbers = {12345: "12,345", np.int64(7): "7", 0.94449: "0.944", np.float32(0.5): "0.500"}
    numbers |= {1234.5: "1,234.500", 1e-5: "1e-5", -2.5e-7: "-2.5e-7", 0.0: "0.000"}
    words = {None: "–", math.nan: "–", math.inf: "∞", True: "yes", "two\n words": "two words"}
    for value, shown in (numbers | words).items():
        assert cell(value) == shown
    assert cell(np.False_) == "no"


@pytest.mark.parametrize("width", [80, 100])
def test_wide_rows_stay_within_the_width_and_lose_nothing(width: int) -> None:
    rows = [{f"column {i}": "several words that wrap " * 2 for i in range(6)} | {"n": 123456}]
    text = text_table(rows, width=width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "123,456" in text
    assert text.count("wrap") == 12


def test_text_is_never_markup_and_marks_are_coloured_words() -> None:
    text = text_table([{"name": "[bold red]x[/] :smile:"}], title="[b]T")
    assert "[bold red]x[/] :smile:" in text
    assert "[b]T" in text
    console = Console(width=100, force_terminal=True, color_system="standard")
    with console.capture() as captured:
        console.print(table(ROWS))
    assert "\x1b[1;31mfor the owner's eyes" in captured.get()
    assert "\x1b[32munconditional" in captured.get()


def test_digits_are_the_columns_and_sealed_rows_are_found() -> None:
    text = text_table(ROWS, columns=[Column(key="BAC", heading="balanced", digits=1)])
    assert text.split() == ["balanced", "─" * 8, "–", "0.9"]
    assert is_sealed(ROWS)
    assert not is_sealed([*ROWS[:1], {"array": np.zeros(3)}])

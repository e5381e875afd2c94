"""What a verb prints: tables for people on stdout, or JSON and nothing else."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from privote.errors import printable

_PIPED_WIDTH = 100  # nobody resizes a pipe: wide enough for every table here


def say(text: str, *, err: bool = False) -> None:
    """Print lines that may hold names from outside; what would steer a terminal is spelled out."""
    typer.echo(printable(text, lines=True), err=err)


def on_one_screen() -> bool:
    """Return whether somebody sees stdout and stderr together."""
    return sys.stdout.isatty() and sys.stderr.isatty()


def once(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts without their warnings, where those were just said on the same screen."""
    if not on_one_screen():
        return dict(facts)
    return {name: value for name, value in facts.items() if name != "WARNING"}


def print_json(payload: Mapping[str, Any]) -> None:
    """Write one JSON object to stdout; numbers that are none become null."""
    from privote.report.tables import plain

    typer.echo(json.dumps(plain(payload), indent=2, allow_nan=False))


def print_result(
    facts: Mapping[str, Any], *, json: bool, title: str, caption: str | None = None
) -> None:
    """Show what a verb did: its facts as JSON, or in two columns."""
    if json:
        print_json(facts)
    else:
        print_facts(facts, title=title, caption=caption)


def print_table(
    rows: Sequence[Mapping[str, Any]],
    *,
    columns: Sequence[Any] | None = None,
    title: str | None = None,
    caption: str | None = None,
) -> None:
    """Print rows as `privote.report.table` lays them out."""
    from privote.report import table

    _print(table(rows, columns=columns, title=title, caption=caption))


def print_facts(facts: Mapping[str, Any], *, title: str, caption: str | None = None) -> None:
    """Print names and values in two columns."""
    from rich.table import Table
    from rich.text import Text

    from privote.accounting.renyi import rounded_up
    from privote.report.tables import cell, is_cost

    made = Table(
        box=None,
        show_header=False,
        title=Text(printable(title, lines=True), style="bold"),
        title_justify="left",
        padding=(0, 2, 0, 0),
    )
    for name, value in facts.items():
        if value is None:  # nothing to say
            continue
        shown = cell(value)
        if isinstance(value, float):
            shown = rounded_up(value) if is_cost(name) else f"{value:.6g}"
        # Text, not str: a file named "[bold]" must stay what it is.
        made.add_row(Text(printable(name)), Text(shown))
    # Below the table, not its own caption, which would be folded to its width.
    _print(made, *([] if caption is None else [Text(printable(caption, lines=True), style="dim")]))


def _print(*renderables: Any) -> None:
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPED_WIDTH
    console = Console(width=width, highlight=False)
    for renderable in renderables:
        console.print(renderable)
    console.print()

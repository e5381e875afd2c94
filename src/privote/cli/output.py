"""What a verb prints: tables for people on stdout, or JSON and nothing else.

Standard output may be full, closed, or a pipe whose reader leaves. Then the work goes on, and what
becomes of it is said in one place, :meth:`privote.cli.wording.Verb.invoke`: a verb has its results
on disk before it prints, or it has none but what it prints.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from privote.errors import InputError, printable

_PIPED_WIDTH = 100  # nobody resizes a pipe: wide enough for every table here


class _Stream:
    """A stream that may fail: what nobody can read is dropped, and why is remembered."""

    def __init__(self, stream: Any, lost: OSError | None = None) -> None:
        self._stream, self.lost = stream, lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write the text, if that is possible."""
        try:
            return int(self._stream.write(text))
        except OSError as error:
            self._leave(error)
            return len(text)

    def flush(self) -> None:
        """Hand on what was written, if that is possible."""
        try:
            self._stream.flush()
        except OSError as error:
            self._leave(error)

    def _leave(self, error: OSError) -> None:
        self.lost = self.lost or error
        nobody = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nobody, self._stream.fileno())
        os.close(nobody)


def hold_streams() -> None:
    """Make standard output and error streams that may fail."""
    streams: Any = sys
    for name in ("stdin", "stdout", "stderr"):
        stream, lost = getattr(sys, name), None
        if stream is None:  # closed: a file that is opened next would be taken for it
            stream, lost = open(os.devnull, "r+"), OSError("it is closed")  # noqa: SIM115
        setattr(streams, name, stream if name == "stdin" else _Stream(stream, lost))


def lost() -> OSError | None:
    """Return why not all that was printed came out; None if it did."""
    sys.stdout.flush()
    why: OSError | None = getattr(sys.stdout, "lost", None)
    return why


def unshown(why: OSError) -> str:
    """Return in words that standard output failed."""
    return f"standard output cannot be written: {why.strerror or why}"


def check_shown() -> None:
    """Refuse to go on where not all that was printed came out."""
    why = lost()
    if why is not None:
        raise InputError(unshown(why))


def settle_shown(output: Any) -> None:
    """Say what became of results, at the end of a verb, where they could not be printed.

    Those that are in ``output`` are there: that is one sentence. Those that were only printed are
    lost, which is an error. A reader who leaves, as ``head`` does, wants no more.
    """
    why = lost()
    if why is None or isinstance(why, BrokenPipeError):
        return
    if output is None:
        check_shown()
    say(f"warning: {unshown(why)}. All results are in {output}", err=True)
    setattr(sys.stdout, "lost", None)  # noqa: B010


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

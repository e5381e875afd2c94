"""The command line: one file per verb."""

from __future__ import annotations

from typing import Annotated

import typer

from privote._version import __version__

app = typer.Typer(name="privote", no_args_is_help=True, add_completion=False)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"privote {__version__}")
        raise typer.Exit


@app.callback()
def privote(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and leave."
        ),
    ] = False,
) -> None:
    """Release the outcome of multi-winner votes under differential privacy."""


def main() -> None:
    """Run the command line."""
    app()

"""The command line: one file per verb.

Exit codes: 0 done, 1 a violation was found (audit) or something unforeseen, 2 usage, 3 budget
refused, 4 ledger broken, 5 peer failed, 6 charged and released, but not finished: --resume.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from privote._version import __version__
from privote.errors import InputError

from .audit import audit
from .capc import app as capc
from .demo import demo
from .label import label
from .ledger import app as ledger
from .output import hold_streams, lost, speak, unshown
from .plan import plan
from .poll import poll
from .predict import predict
from .train import train
from .tune import tune
from .votes import votes

# No pretty tracebacks: they print local variables, and these may be votes.
app = typer.Typer(
    name="privote",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"privote {__version__}")
        raise typer.Exit


@app.callback(
    epilog="Exit codes: 0 done, 1 violation found, 2 usage, 3 budget refused, 4 ledger broken, "
    "5 peer failed, 6 charged but not finished: the same again with --resume. Start with: "
    "privote demo"
)
def privote(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            callback=_show_version,
            is_eager=True,
            help="Show the version and leave.",
        ),
    ] = False,
) -> None:
    """Release the outcome of multi-winner votes under differential privacy."""


for verb in (label, votes, plan, tune, audit, train, predict, poll, demo):
    app.command()(verb)
app.add_typer(ledger, name="ledger")
app.add_typer(capc, name="capc")
speak(app)


def main() -> None:
    """Run the command line; whatever becomes of its streams, the work and its exit code go on."""
    hold_streams()
    try:
        app()
    except SystemExit as leaving:
        why = lost()
        if not leaving.code and why is not None and not isinstance(why, BrokenPipeError):
            typer.echo(f"error: {unshown(why)}", err=True)
            sys.exit(InputError.exit_code)
        raise

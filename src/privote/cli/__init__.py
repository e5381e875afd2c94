"""The command line: one file per verb.

Exit codes: 0 done, 1 a violation was found (audit) or something unforeseen, 2 usage, 3 budget
refused, 4 ledger broken, 5 peer failed, 6 charged and released, but not finished: --resume.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from privote._version import __version__

from .audit import audit
from .capc import app as capc
from .demo import demo
from .label import label
from .ledger import app as ledger
from .paper import paper
from .plan import plan
from .poll import plan_poll, poll
from .predict import predict
from .train import train
from .tune import tune
from .votes import votes
from .wording import speak

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


for verb in (label, votes, plan, tune, audit, train, predict, poll, demo, paper):
    app.command()(verb)
app.command("plan poll")(plan_poll)
app.add_typer(ledger, name="ledger")
app.add_typer(capc, name="capc")
speak(app)


class _Stream:
    """A stream whose reader may leave, as ``head`` does: the work and its exit code go on."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write the text, if anybody reads it."""
        try:
            return int(self._stream.write(text))
        except BrokenPipeError:
            self._leave()
            return len(text)

    def flush(self) -> None:
        """Hand on what was written, if anybody reads it."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._leave()

    def _leave(self) -> None:
        nobody = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nobody, self._stream.fileno())
        os.close(nobody)


def main() -> None:
    """Run the command line."""
    streams: Any = sys
    streams.stdout, streams.stderr = _Stream(sys.stdout), _Stream(sys.stderr)
    app()

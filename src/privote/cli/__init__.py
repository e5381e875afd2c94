"""The command line: one file per verb.

Exit codes: 0 done, 1 a violation was found (audit) or something unforeseen, 2 usage, 3 budget
refused, 4 ledger broken, 5 peer failed, 6 charged and released, but not finished: --resume.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from privote._version import __version__

from .audit import audit
from .capc import app as capc
from .demo import demo
from .label import label
from .ledger import app as ledger
from .plan import plan
from .poll import plan_poll, poll
from .predict import predict
from .train import train
from .tune import tune
from .wording import speak


class _Verbs(TyperGroup):
    """Says what an interrupt means; what privote refuses its verbs say themselves."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Know verbs of two words, such as ``plan poll``."""
        both = " ".join(args[:2])
        return super().resolve_command(ctx, [both, *args[2:]] if both in self.commands else args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo(
                "interrupted: no labels were released; where a ledger was given, privote ledger "
                "show says whether anything was charged",
                err=True,
            )
            raise typer.Exit(130) from None


# No pretty tracebacks: they print local variables, and these may be votes.
app = typer.Typer(
    name="privote",
    cls=_Verbs,
    no_args_is_help=True,
    add_completion=False,
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
            "--version", callback=_show_version, is_eager=True, help="Show the version and leave."
        ),
    ] = False,
) -> None:
    """Release the outcome of multi-winner votes under differential privacy."""


for verb in (label, plan, tune, audit, train, predict, poll, demo):
    app.command()(verb)
app.command("plan poll")(plan_poll)
app.add_typer(ledger, name="ledger")
app.add_typer(capc, name="capc")
speak(app)


def main() -> None:
    """Run the command line."""
    app()

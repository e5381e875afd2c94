"""The command line: one file per verb.

Verbs that are read together share a file, and the demo is here.

Exit codes: 0 done, 1 a violation was found (audit) or something unforeseen, 2 usage, 3 budget
refused, 4 ledger broken, 5 peer failed, 6 charged but not finished: --resume, 7 unavailable: a full
disk, or a database that does not answer; nothing was charged.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privote._version import __version__

from .audit import audit
from .capc import app as capc
from .label import label
from .ledger import app as ledger
from .output import hold_streams, print_json, print_table, say, speak, telling
from .plan import plan
from .poll import poll
from .train import predict, train, votes

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
    epilog="Exit codes: 0 done, 1 violation found, 2 usage, 3 budget refused, 4 ledger broken, 5 "
    "peer failed, 6 charged but not finished (repeat with --resume), 7 disk full or database down. "
    "Start with: privote demo"
)
def privote(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            callback=_show_version,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """Release the outcome of multi-winner votes under differential privacy."""


def demo(
    *,
    output: Path = Path("privote-demo"),
    queries: int = 300,
    records: int = 6000,
    seed: int | None = None,
    force: bool = False,
    json: bool = False,
) -> None:
    """Show what privote does by default, on data that come with it, in a few seconds.

    Example:

        privote demo --output privote-demo

    First, a private model of a table of made-up patients, compared with the same model without
    privacy. Then private labels for aviation reports and for pictures, from votes of real models,
    at epsilon 8 and 2 with delta 1e-5: the quality that each release states, and the true quality.

    The data are always the same. The noise is fresh unless --seed is given.

    Parameters
    ----------
    output
        A new folder for the data and the report.
    queries
        Number of reports, and of pictures, to label.
    records
        Number of patient visits.
    """
    import privote.report.demo as work

    from .files import claimed_folder

    with claimed_folder(output, force=force):
        summary = work.run_demo(
            output, records=records, queries=queries, seed=seed, telling=telling
        )
    if json:
        print_json(summary)
        return
    mark = "SIMULATED: a seed was given. " if seed is not None else ""
    title = f"{mark}Models of a table, on test rows"
    print_table(summary["models"], columns=work.MODELS, title=title, caption=work.MODELS_MEAN)
    title = f"{mark}Labels of {queries:,} reports and as many pictures and scenes"
    print_table(summary["labels"], columns=work.LABELS, title=title, caption=work.LABELS_MEAN)
    say(f"Report: {summary['report']}\n\nTry next:\n\n{summary['next']}")


for verb in (label, votes, plan, audit, train, predict, poll, demo):
    app.command()(verb)
app.add_typer(ledger, name="ledger")
app.add_typer(capc, name="capc")
speak(app)


def main() -> None:
    """Run the command line; whatever becomes of its streams, the work and its exit code go on."""
    hold_streams()
    app()

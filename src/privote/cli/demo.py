"""``privote demo``: everything once, on data that comes with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from . import options


def demo(
    output: Annotated[
        Path,
        typer.Option(
            help="A folder for votes, labels, tables and report; an earlier demo is replaced."
        ),
    ] = Path("privote-demo"),
    epsilon: options.Epsilon = 8.0,
    delta: options.Delta = 1e-5,
    queries: Annotated[int, typer.Option(help="How many reports to label.")] = 300,
    records: Annotated[int, typer.Option(help="How many visits of patients.")] = 6_000,
    seed: options.Seed = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Show what privote does by default, in about a minute.

    Example:

        privote demo --output privote-demo

    Fifty real teachers voted on aviation reports (the votes come with privote): labels are released
    by default, and in other ways to compare. Then a model is trained on a table of made-up
    patients with words, dates, notes and gaps: by the default method and by the others. ACC is
    accuracy, BAC balanced accuracy, AUC area under the ROC curve, MAP mean average precision.
    Numbers that depend on the votes stand apart, for the owner's eyes.

    Data are the same every time; the noise is not, unless --seed is given.
    """
    from privote.learning.demo import Request, run_demo
    from privote.report.demo import is_demo, write_demo

    from .files import claimed_folder
    from .output import print_json, telling

    request = Request(epsilon=epsilon, delta=delta, queries=queries, records=records, seed=seed)
    with claimed_folder(output, force=force or is_demo(output)):
        outcome = run_demo(request, telling)
        summary = write_demo(output, outcome)
    if json:
        print_json(summary)
    else:
        _show(outcome, summary)


def _show(outcome: Any, summary: dict[str, Any]) -> None:
    from privote.accounting.renyi import rounded_up
    from privote.report import OWNER_ONLY
    from privote.report.demo import COMPARED, MODELS, READING, TERMINAL, named

    from .output import print_facts, print_table, say

    request = outcome.request
    mark = " SIMULATED: a seed was given." if request.seed is not None else ""
    budget = f"epsilon {rounded_up(request.epsilon)}, delta {rounded_up(request.delta)}"
    print_table(
        named(outcome),
        columns=TERMINAL,
        title=f"Labels for {request.queries} reports from 50 teachers under {budget}.{mark}",
        caption=READING,
    )
    print_facts(
        outcome.sealed, title=f"{OWNER_ONLY.capitalize()}: these numbers depend on the votes"
    )
    print_table(
        outcome.models,
        columns=MODELS,
        title=f"Models on test rows; the private ones under {budget}, for changing one person",
        caption=COMPARED,
    )
    for reason in summary["reasons"]:
        say(reason)
    say(f"Report: {summary['report']}\n\nTry next:\n" + "\n".join(summary["next"]))

"""``privote demo``: everything once, on data that comes with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from . import options


def demo(
    output: Annotated[
        Path,
        typer.Option(help="A folder for votes, labels and report; an earlier demo is replaced."),
    ] = Path("privote-demo"),
    teachers: Annotated[int, typer.Option(help="How many teachers vote.")] = 50,
    epsilon: options.Epsilon = 8.0,
    delta: options.Delta = 1e-5,
    queries: Annotated[int, typer.Option(help="How many public scenes to label.")] = 100,
    private: Annotated[int, typer.Option(help="How many private scenes to train on.")] = 10_000,
    seed: options.Seed = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Show what privote does, start to end, in about a minute.

    Example:

        privote demo --output privote-demo

    Teachers train on private scenes of handwritten digits (embedded, nothing is downloaded), vote
    on public ones, and three mechanisms release labels under one budget with three guarantees. A
    student learns from released labels and is compared with models that learn from the private
    scenes themselves. ACC is accuracy, BAC balanced accuracy, AUC area under the ROC curve, MAP
    mean average precision. Numbers that depend on the votes stand apart, for the owner's eyes.

    Data and training are the same every time; the noise is not, unless --seed is given.
    """
    from privote.learning.demo import Request, run_demo
    from privote.report.demo import is_demo, write_demo

    from .files import claimed_folder
    from .output import print_json
    from .progress import telling

    request = Request(
        teachers=teachers,
        epsilon=epsilon,
        delta=delta,
        queries=queries,
        private=private,
        seed=seed,
    )
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
    from privote.report.demo import COMPARED, MODELS, READING, SEALED, TERMINAL

    from .output import print_table, say

    request = outcome.request
    mark = " SIMULATED: a seed was given." if request.seed is not None else ""
    print_table(
        outcome.rows,
        columns=TERMINAL,
        title=f"Labels for {request.queries} scenes from {request.teachers} teachers under epsilon "
        f"{rounded_up(request.epsilon)}, delta {rounded_up(request.delta)}.{mark}",
        caption=READING,
    )
    print_table(
        outcome.sealed,
        columns=SEALED,
        title=f"{OWNER_ONLY.capitalize()}: what the data-dependent answers cost on these votes",
    )
    print_table(
        outcome.models,
        columns=MODELS,
        title="Models on test scenes; the private ones under epsilon "
        f"{rounded_up(request.epsilon)}, delta "
        f"{rounded_up(request.delta)}, for changing one private scene",
        caption=COMPARED,
    )
    say(f"Report: {summary['report']}\n\nTry next:\n" + "\n".join(summary["next"]))

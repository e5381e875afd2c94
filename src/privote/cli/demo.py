"""``privote demo``: everything once, on data that comes with the package."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from privote.errors import InputError, positive

from . import options

_SUMMARY = "summary.json"


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

    Teachers train on private scenes of handwritten digits (embedded, nothing is downloaded), vote
    on public ones, and three mechanisms release labels under one budget with three guarantees. A
    student learns from released labels and is compared with models that learn from the private
    scenes themselves. ACC is accuracy, BAC balanced accuracy, AUC area under the ROC curve, MAP
    mean average precision. Numbers that depend on the votes stand apart, for the owner's eyes.

    Data and training are the same every time; the noise is not, unless --seed is given.

    Example:

        privote demo --output privote-demo
    """
    from privote.accounting.renyi import check_delta

    from .files import check_folder, made_folder

    for name, value in (("teachers", teachers), ("queries", queries), ("private", private)):
        if value < 1:
            raise InputError(f"--{name} must be at least 1, got {value}")
    positive("epsilon", epsilon)
    check_delta(delta)
    check_folder(output, force=force or _is_demo(output))
    from .demo_releases import Request, run_demo

    request = Request(
        teachers=teachers,
        epsilon=epsilon,
        delta=delta,
        queries=queries,
        private=private,
        seed=seed,
    )
    with made_folder(output):
        outcome = run_demo(request, lambda text: typer.echo(text, err=True))
    written = _write(output, outcome)
    _show_json(outcome, written) if json else _show(outcome, written)


def _is_demo(folder: Path) -> bool:
    """Return True if a demo made what is there."""
    import json

    try:
        summary = json.loads((folder / _SUMMARY).read_text(encoding="utf-8"))
        return str(summary["command"]).startswith("privote demo ")
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _commands(output: Path, outcome: Any) -> list[str]:
    """Return three things to try, ready to be pasted."""
    from privote.accounting.renyi import rounded_up

    request = outcome.request
    votes, mine = (shlex.quote(str(output / name)) for name in ("votes.npz", "my-labels.csv"))
    sigma = outcome.mechanisms["binary"].sigma
    budget = f"--epsilon {rounded_up(request.epsilon)} --delta {rounded_up(request.delta)}"
    more = 10 * request.queries
    return [
        f"privote label {votes} --mechanism binary --sigma {sigma:g} \\\n"
        f"  {budget} --queries {request.queries} --output {mine}",
        f"privote tune {votes} --over mechanism --sigma {sigma:g} \\\n  {budget}",
        f"privote plan --mechanism binary --voters {request.teachers} --labels 10 \\\n"
        f"  {budget} --wanted {more} --surprises-per-query 2.4",
    ]


def _write(output: Path, outcome: Any) -> dict[str, Any]:
    """Write votes, labels, summary and report; return where they are and what to try next."""
    import json

    from privote.accounting.renyi import rounded_up
    from privote.votefiles import write_packed

    from .demo_page import write_report
    from .files import write_label_csv
    from .output import plain

    request = outcome.request
    write_packed(output / "votes.npz", outcome.votes)
    for (name, guarantee), labels in outcome.labels.items():
        write_label_csv(labels, output / f"labels-{name}-{guarantee}.csv")
    command = (
        f"privote demo --output {shlex.quote(str(output))} --teachers {request.teachers} \\\n"
        f"  --epsilon {rounded_up(request.epsilon)} --delta {rounded_up(request.delta)} --queries "
        f"{request.queries} "
        f"--private {request.private}" + ("" if request.seed is None else f" --seed {request.seed}")
    )
    commands = _commands(output, outcome)
    report = write_report(output / "report.html", outcome, command, commands)
    written = {"command": command, "report": str(report), "next": commands}
    summary = json.dumps(plain(_summary(outcome, written)), indent=2, allow_nan=False)
    (output / _SUMMARY).write_text(summary + "\n", encoding="utf-8")
    return written


def _summary(outcome: Any, written: dict[str, Any]) -> dict[str, Any]:
    from privote.report import OWNER_ONLY

    request = outcome.request
    return {
        "teachers": request.teachers,
        "epsilon": request.epsilon,
        "delta": request.delta,
        "queries": request.queries,
        "simulated": request.seed is not None,
        "releases": outcome.rows,
        "models": outcome.models,
        "sealed": {"note": OWNER_ONLY, "prices": outcome.sealed, "binary fits": outcome.fits},
        **written,
    }


def _show_json(outcome: Any, written: dict[str, Any]) -> None:
    from .output import print_json

    print_json(_summary(outcome, written))


def _show(outcome: Any, written: dict[str, Any]) -> None:
    from privote.accounting.renyi import rounded_up
    from privote.report import OWNER_ONLY

    from .demo_page import COMPARED, MODELS, READING, SEALED, TERMINAL
    from .output import print_table

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
    typer.echo(f"Report: {written['report']}\n\nTry next:")
    for command in written["next"]:
        typer.echo(command)

"""Run a tuning under a bar, then show what was found: on the terminal, as JSON, as a page."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import typer

from privote.accounting.renyi import rounded_up
from privote.learning.tuning import Trial, Tuning

from .output import print_json, print_table, say
from .progress import working
from .tune_options import TuneFlags
from .tune_page import (
    columns_of,
    name_of,
    released_columns,
    released_rows,
    rows_of,
    write_tuning_page,
)


def run(
    tune: Callable[[Any], Tuning], what: str, context: typer.Context, output: TuneFlags
) -> None:
    """Tune under a bar, then show and write what was found."""
    with ExitStack() as stack:
        ticks: list[Any] = []

        def tick(done: int, total: int) -> None:
            if not ticks:  # how much there is to do is known when it begins
                ticks.append(stack.enter_context(working(what, total)))
            ticks[0](done)

        tuning = tune(tick)
    chosen = tuning.choose(metric=output.metric, drop=output.drop, guarantee=output.key)
    said = _said(tuning, chosen, output)
    if output.report is not None:
        with working(f"drawing {output.report.name}"):
            write_tuning_page(
                output.report,
                tuning,
                metric=output.metric,
                guarantee=output.key,
                chosen=said,
                command=_command(context),
            )
    if output.json:
        values = None if chosen is None else dict(chosen.values)
        report = None if output.report is None else str(output.report)
        print_json({**tuning.facts(), "chosen": values, "report": report})
    else:
        _show(tuning, said, output)


def _command(context: typer.Context) -> str:
    """Return the command that is being run, without what was left at its default."""
    words = context.command_path.split()
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if value is None or value == parameter.default:
            continue
        if parameter.param_type_name == "argument":
            words.append(str(value))
        elif isinstance(value, bool):
            words.append(parameter.opts[0] if value else parameter.secondary_opts[0])
        else:
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            words += [parameter.opts[0], shown]
    return shlex.join(words)


def _said(tuning: Tuning, chosen: Trial | None, output: TuneFlags) -> str:
    if chosen is None:
        return (
            f"Nothing tried within {output.drop:g} of the best {output.metric} answers a query "
            f"under {output.guarantee}."
        )
    queries = chosen.fits[output.key]
    return (
        f"{name_of(chosen)} answers most under {output.guarantee} ({queries:,} queries) while "
        f"{output.metric} over all queries stays within {output.drop:g} of the best value tried."
    )


def _show(tuning: Tuning, said: str, output: TuneFlags) -> None:
    say(f"NOT PRIVATE. {tuning.note}\n")
    print_table(
        rows_of(tuning, output.metric),
        columns=columns_of(tuning, output.metric),
        title=f"Queries of {tuning.queries:,} that fit epsilon {rounded_up(tuning.epsilon)} at "
        "delta "
        f"{rounded_up(tuning.delta)} ({tuning.voters} voters, {tuning.labels} labels)",
        caption=f"Figures over all queries, compared with the {tuning.reference}; without noise: "
        + ", ".join(f"{name} {tuning.noise_free[name]:.3f}" for name in ("ACC", "BAC", "MAP")),
    )
    print_table(
        released_rows(tuning, output.metric),
        columns=released_columns(tuning),
        title=f"{output.metric} of the labels released for as many queries as fit",
    )
    say(said)
    if output.report is not None:
        say(f"Report: {output.report}")

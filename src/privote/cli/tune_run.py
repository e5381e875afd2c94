"""Run a tuning under a bar, then show what was found: on the terminal, as JSON, as a page."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from privote.errors import InputError
from privote.learning.tuning import FIGURES, GUARANTEES, Trial, Tuning

from .output import print_json, print_table
from .progress import working
from .tune_page import (
    columns_of,
    name_of,
    released_columns,
    released_rows,
    rows_of,
    write_tuning_page,
)


@dataclass(frozen=True, kw_only=True)
class Output:
    """How the result is to be shown; checked before the work."""

    context: typer.Context
    metric: str
    drop: float
    guarantee: str
    report: Path | None
    json: bool

    def __post_init__(self) -> None:
        if self.metric not in FIGURES:
            raise InputError(f"--metric must be one of {', '.join(FIGURES)}, got {self.metric!r}")
        if not 0 <= self.drop <= 1:
            raise InputError(f"--drop must lie in [0, 1], got {self.drop:g}")
        if self.guarantee not in (known := [name.replace("_", "-") for name in GUARANTEES]):
            raise InputError(
                f"--guarantee must be one of {', '.join(known)}, got {self.guarantee!r}"
            )
        if self.report is not None and self.report.suffix != ".html":
            raise InputError(f"--report must end in .html, got {self.report.name!r}")
        if self.report is not None and not self.report.parent.is_dir():
            raise InputError(
                f"--report {str(self.report)!r}: there is no folder {str(self.report.parent)!r}"
            )

    @property
    def key(self) -> str:
        """The guarantee as the library spells it."""
        return self.guarantee.replace("-", "_")


def run(tune: Callable[[Any], Any], what: str, output: Output) -> None:
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
                command=_command(output.context),
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


def _said(tuning: Tuning, chosen: Trial | None, output: Output) -> str:
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


def _show(tuning: Tuning, said: str, output: Output) -> None:
    typer.echo(f"NOT PRIVATE. {tuning.note}\n")
    print_table(
        rows_of(tuning, output.metric),
        columns=columns_of(tuning, output.metric),
        title=f"Queries of {tuning.queries:,} that fit epsilon {tuning.epsilon:g} at delta "
        f"{tuning.delta:g} ({tuning.voters} voters, {tuning.labels} labels)",
        caption=f"Figures over all queries, compared with the {tuning.reference}; without noise: "
        + ", ".join(f"{name} {tuning.noise_free[name]:.3f}" for name in ("ACC", "BAC", "MAP")),
    )
    print_table(
        released_rows(tuning, output.metric),
        columns=released_columns(tuning),
        title=f"{output.metric} of the labels released for as many queries as fit",
    )
    typer.echo(said)
    if output.report is not None:
        typer.echo(f"Report: {output.report}")

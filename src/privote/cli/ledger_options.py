"""Where a verb charges what it releases: the options that name a ledger, and places in it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from privote.errors import InputError

from . import options


@dataclass(frozen=True, kw_only=True)
class LedgerFlags:
    """What was asked for; nothing is charged without a ledger."""

    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|ADDRESS",
            help="Charge this ledger: the budget is then the data set's, over all runs. A file, "
            "or a postgresql:// address with --beside.",
            rich_help_panel="Budget",
        ),
    ] = None
    beside: options.Beside = None
    dataset: options.Dataset = "default"
    consumer: options.Consumer = None
    electorate: Annotated[
        str | None,
        typer.Option(
            help="With --ledger: a name under which the same records, with the same ids or groups, "
            "go on with what is left of their allowance in a later run. Without it every run is a "
            "new charge.",
            rich_help_panel="Budget",
        ),
    ] = None

    def __post_init__(self) -> None:
        for field in fields(self):
            if self.ledger is None and getattr(self, field.name) != field.default:
                raise InputError(field.name, "goes with `ledger`: give it too")

    @property
    def files(self) -> list[Path]:
        """The ledger's own files, which no output may replace."""
        place = self.place
        return [] if place is None else [place.file, place.key, place.head]

    @property
    def place(self) -> Any:
        """Where the ledger is, as the library takes it; None without one."""
        from privote.ledger import Location

        return None if self.ledger is None else Location.of(self.ledger, self.beside)

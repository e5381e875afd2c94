"""Where a verb charges what it releases: the options that name a ledger, and places in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from privote.errors import BudgetError, InputError

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

    def explained(self) -> AbstractContextManager[None]:
        """Return what adds the next step to a refusal of the ledger, while a verb works."""
        return explained(self.place, self.ledger, self.dataset, "dataset")

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


@contextmanager
def explained(place: Any, ledger: str | None, dataset: str, option: str) -> Iterator[None]:
    """Add to a refusal what is left of a budget in a ledger, and what can be done about it."""
    try:
        yield
    except BudgetError as error:
        if place is None or not (place.file.exists() or place.head.exists()):
            raise
        from contextlib import closing

        from privote.accounting.renyi import rounded_up
        from privote.ledger import Ledger

        with closing(Ledger.open(place, readonly=True)) as book:
            dataset = book.known(dataset)[0]
            budgets = [each for each in book.standing() if each["consumer"] is None]
        for budget in budgets:
            if budget["dataset"] == dataset and budget["used"]:
                # An address may hold a password.
                where = "" if ledger is None or "://" in ledger else f" {ledger}"
                less = "`epsilon`"
                if option == "dataset":
                    less = "`queries`, more noise), go on with an allowance that is charged (which "
                    less += "costs nothing more"
                error.rule = (
                    f"{error.rule.rstrip('.')}. Of the budget of {dataset!r}, epsilon "
                    f"{rounded_up(budget['epsilon'])}, {rounded_up(budget['used'])} is used: "
                    f"privote ledger show{where} says for what. Ask for less ({less}), or, for the "
                    f"data of other persons, name another `{option}`"
                )
        raise

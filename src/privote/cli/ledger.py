"""``privote ledger``: look at a ledger, check it, copy it."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated, Any

import typer

from privote.errors import InputError, LedgerError

from . import options
from .output import print_facts, print_json, print_table

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Look at a ledger of charges, check that nobody edited it, copy it. "
    "Only the published view is ever shown: nothing that depends on votes.",
)
LedgerFile = Annotated[Path, typer.Argument(metavar="LEDGER", help="The ledger's file.")]


def _opened(path: Path) -> Any:
    from privote.ledger import Ledger

    return Ledger.open(path, create=False)


@app.command()
def show(path: LedgerFile, json: options.Json = False) -> None:
    """Show every entry and what each data set has left.

    A *budget* fixes what a data set may cost; a *charge* enters against it; an *answer* goes on
    with an allowance that was charged before, and costs nothing more.

    Example:

        privote ledger show ledger.db
    """
    ledger = _opened(path)
    entries, budgets = ledger.published(), ledger.standing()
    if json:
        print_json({"entries": entries, "budgets": budgets})
        return
    rows = [
        {
            "entry": entry["number"],
            "at": entry["at"][:19],
            "kind": entry["kind"],
            "data set": entry["dataset"],
            "for": entry.get("consumer") or "",
            "guarantee": entry.get("guarantee", ""),
            "queries": entry.get("queries") or "",
        }
        for entry in entries
    ]
    print_table(rows, title=f"{path.name}: {len(entries)} entries")
    print_table(budgets, title="Budgets")


@app.command()
def verify(path: LedgerFile, json: options.Json = False) -> None:
    """Find any entry that was edited, removed, reordered, inserted or rolled back.

    Needs the ledger's key and anchor (LEDGER.key, LEDGER.head beside it). Exit code 4 if anything
    is wrong. Keep the head that this prints somewhere else, and you can also tell if all three
    files were replaced by older ones.

    Example:

        privote ledger verify ledger.db
    """
    try:
        ledger = _opened(path)
    except LedgerError as error:
        if json and path.exists():
            print_json({"ok": False, "problems": [str(error)]})
        raise
    found = ledger.verify()
    if json:
        print_json(
            {
                "ok": found.ok,
                "entries": found.entries,
                "head": found.head,
                "problems": list(found.problems),
            }
        )
    elif found.ok:
        print_facts(
            {"entries": found.entries, "head": found.head}, title=f"{path.name}: nothing is wrong"
        )
    if not found.ok:
        raise LedgerError("; ".join(found.problems))


@app.command()
def export(
    path: LedgerFile,
    output: Annotated[Path, typer.Option(show_default=False, help="A .json file to write.")],
    json: options.Json = False,
) -> None:
    """Write the published view as JSON: for auditors, without anything that is sealed.

    Example:

        privote ledger export ledger.db --output ledger.json
    """
    if output.exists():
        raise InputError(f"--output {str(output)!r} exists already")
    ledger = _opened(path)
    found = ledger.verify()
    payload = {
        "entries": ledger.published(),
        "budgets": ledger.standing(),
        "verified": found.ok,
        "head": found.head,
    }
    output.write_text(jsonlib.dumps(payload, indent=2))
    _say(json, {"output": str(output), "entries": found.entries, "verified": found.ok})


@app.command()
def backup(
    path: LedgerFile,
    output: Annotated[Path, typer.Option(show_default=False, help="A new file to write.")],
    json: options.Json = False,
) -> None:
    """Write a consistent copy while the ledger is in use: entries and sealed parts, not the key.

    Example:

        privote ledger backup ledger.db --output copy.db
    """
    ledger = _opened(path)
    ledger.backup(output)
    _say(json, {"output": str(output), "entries": ledger.verify().entries})


def _say(json: bool, facts: dict[str, Any]) -> None:
    if json:
        print_json(facts)
    else:
        print_facts(facts, title="Written")

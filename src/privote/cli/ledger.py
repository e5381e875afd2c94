"""``privote ledger``: look at a ledger, check it, copy it."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from privote._version import written
from privote.errors import InputError, LedgerError

from .output import print_facts, print_json, print_result, print_table, say

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Look at a ledger of charges, check that nobody edited it, copy it. "
    "Only the published view is ever shown: nothing that depends on votes.",
)


@contextmanager
def _opened(path: str, beside: Path | None) -> Iterator[tuple[Any, str]]:
    """Yield the ledger and what it is called on a screen: never with a password."""
    from privote.ledger import Ledger, Location

    place = Location.of(path, beside)
    ledger = Ledger.open(place, readonly=True)
    try:
        yield ledger, place.shown
    finally:
        ledger.close()


@contextmanager
def _claimed(
    path: str, beside: Path | None, output: Path, *, force: bool, owner_only: bool = False
) -> Iterator[tuple[Any, Path]]:
    """Yield the ledger, and a draft of a file that must not be one of the ledger's own."""
    from privote.ledger import Location

    from .files import claimed

    place = Location.of(path, beside)
    own = (place.file, place.key, place.head)
    with (
        claimed(output, force=force, suffixes=(), keep=own, owner_only=owner_only) as draft,
        _opened(path, beside) as (ledger, _),
    ):
        yield ledger, draft


@app.command()
def show(ledger: str, *, beside: Path | None = None, json: bool = False) -> None:
    """Show every entry and what each data set has left.

    Example:

        privote ledger show ledger.db

    A *budget* fixes what a data set may cost; a *charge* enters against it; an *answer* goes on
    with an allowance that was charged before, and costs nothing more; *learnt* is the allowance
    that was drawn privately, which its charge has paid for; an *outcome* records, sealed,
    what was drawn. The epsilon of a charge is what it costs alone; charges together cost less than
    their sum, and what is left counts them together.
    """
    from privote.mechanisms.base import describe

    with _opened(ledger, beside) as (book, name):
        entries, budgets, twins = book.published(), book.standing(), book.twins()
        restored, allowances = book.restored, book.allowances()
    if json:
        facts = {"entries": entries, "budgets": budgets, "twins": twins, "restored": restored}
        print_json({**facts, "allowances": allowances})
        return
    rows = [
        {
            "entry": entry["number"],
            "at": entry["at"][:19].replace("T", " "),  # which a narrow column breaks in two
            "kind": entry["kind"],
            "data set": entry["dataset"] or "",
            "for": entry.get("consumer") or "",
            "guarantee": entry.get("guarantee", ""),
            "mechanism": describe(entry["mechanism"]) if entry.get("mechanism") else "",
            "epsilon": _epsilon(entry, budgets),
            "queries": entry.get("queries") or "",
        }
        for entry in entries
    ]
    print_table(rows, title=f"{name}: {len(entries)} entries")
    print_table(budgets, title="Budgets")
    if allowances:
        title = "Learnt allowances: how many more queries they are for, at no further cost"
        print_table(allowances, title=title)
    _say_restored(restored)
    if twins:
        rows = [{**each, "names": ", ".join(map(ascii, each["names"]))} for each in twins]
        title = "Names that nearly are one, and have budgets of their own: are they the same?"
        print_table(rows, title=title)


def _say_restored(restored: list[dict[str, Any]]) -> None:
    for each in restored:
        say(
            f"Entry {each['entry']}: restored {each['at'][:19]} UTC from the backup of "
            f"{each['backup'][:19]}. Charges made after that backup are not in this ledger."
        )


def _epsilon(entry: dict[str, Any], budgets: list[dict[str, Any]]) -> str:
    """Return what an entry grants, or what it alone costs at its data set's delta."""
    from privote.accounting.renyi import epsilon, rounded_up

    if entry["kind"] == "budget":
        return rounded_up(entry["epsilon"], 4)
    deltas = [each["delta"] for each in budgets if each["dataset"] == entry["dataset"]]
    if entry["kind"] != "charge" or entry.get("rdp") is None or not deltas:
        return ""
    return rounded_up(float(epsilon(entry["rdp"], entry["orders"], deltas[0])), 4)


@app.command()
def verify(ledger: str, *, beside: Path | None = None, json: bool = False) -> None:
    """Find any entry that was edited, removed, reordered, inserted or rolled back.

    Example:

        privote ledger verify ledger.db

    Needs the ledger's key and anchor (LEDGER.key, LEDGER.head beside it). Exit code 4 if anything
    is wrong. Keep the head that this prints somewhere else, and you can also tell if all three
    files were replaced by older ones.
    """
    try:
        with _opened(ledger, beside) as (book, name):
            found = book.verify()
            facts = {"entries": found.entries, "head": found.head}
    except LedgerError as error:
        facts, problems = {}, [str(error)]
    else:
        problems = list(found.problems)
    if json:
        print_json({"ok": not problems, **facts, "problems": problems})
    elif not problems:
        print_facts(facts, title=f"{name}: nothing is wrong")
    if problems:
        say(f"error: {'; '.join(problems)}", err=True)
        raise typer.Exit(LedgerError.exit_code)


@app.command()
def check(
    statement: Path,
    *,
    ledger: str,
    beside: Path | None = None,
    json: bool = False,
) -> None:
    """Say whether this ledger charged and released exactly what a statement says.

    Example:

        privote ledger check labels.npz --ledger ledger.db

    Exit code 0 if so. 1 if not, with what differs; or if it is charged and not recorded: the run
    ended between draw and record, and the same command with --resume adds the entry. 4 if the
    ledger itself does not verify.

    A digest in a file shows damage only, since whoever edits the file can make another. The ledger
    recorded what was drawn, right after it was drawn. It does not record what was decided
    afterwards: names, forecasts and reasons, and labels that say that they were made of what was
    drawn.

    Parameters
    ----------
    statement : STATEMENT|RELEASE|STUDENT
        A privacy statement, with its .json beside it; that .json, also of a poll; a release, .npz;
        or a student.
    """
    from privote.ledger.records import DIFFERS, RELEASED

    from .files import read_stated

    facts, numbers, wrong = read_stated(statement)
    with _opened(ledger, beside) as (book, name):
        verified = book.verify()
        if verified.problems:
            raise LedgerError("; ".join(verified.problems))
        restored = book.restored
        try:
            found = book.records().check(facts, numbers)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                "statement", f"{str(statement)!r} is not that of a release: {error}"
            ) from None
    differences = [*wrong, *(vars(each) for each in found.differences)]
    status = DIFFERS if wrong else found.status
    what = "not in this file"
    made = facts.get("processed") or facts.get("decided") is not None
    if numbers is not None or made:
        what = "made of what was drawn" if made else "as they were drawn"
    payload = {
        "status": status,
        "entries": list(found.entries),
        "labels": what,
        "data set": facts.get("people", facts.get("dataset")),
        "epsilon": facts["epsilon"],
        "drawn": facts["drawn"],
    }
    if json:
        more = {"differences": differences, "restored": restored}
        print_json({"ok": status == RELEASED, **payload, **more})
    else:
        listed = {"entries": payload["entries"], "drawn": payload["drawn"]}
        shown = {**payload, **{n: ", ".join(map(str, v)) for n, v in listed.items()}}
        print_facts(shown, title=f"{statement} in {name}: {status}")
        _say_restored(restored)
        if differences:
            print_table([{n: str(v) for n, v in each.items()} for each in differences])
    if status != RELEASED:
        raise typer.Exit(1)


@app.command()
def export(
    ledger: str,
    *,
    output: Path,
    beside: Path | None = None,
    force: bool = False,
    json: bool = False,
) -> None:
    """Write the published view as JSON: for auditors, without anything that is sealed.

    Example:

        privote ledger export ledger.db --output ledger.json

    Parameters
    ----------
    output
        A .json file to write.
    """
    with _claimed(ledger, beside, output, force=force) as (book, draft):
        found = book.verify()
        payload = {
            **written(1),
            "entries": book.published(),
            "budgets": book.standing(),
            "restored": book.restored,
            "verified": found.ok,
            "head": found.head,
        }
        draft.write_text(jsonlib.dumps(payload, indent=2) + "\n", encoding="utf-8")
    facts = {"output": str(output), "entries": found.entries, "verified": found.ok}
    print_result(facts, json=json, title="Written")


@app.command()
def backup(
    ledger: str,
    *,
    output: Path,
    beside: Path | None = None,
    force: bool = False,
    json: bool = False,
) -> None:
    """Write entries, key and anchor to one file, while the ledger is in use.

    Example:

        privote ledger backup ledger.db --output ledger.backup

    The file is readable by its owner only, and secret: it holds the key. A ledger that is broken
    is not copied (exit code 4).

    Parameters
    ----------
    output
        A file to write.
    """
    with _claimed(ledger, beside, output, force=force, owner_only=True) as (book, draft):
        draft.unlink()  # a backup is a file of its own making
        own_key = book.backup(draft)
        entries = book.verify().entries
    key = "inside: keep this file secret" if own_key else "not inside: the environment has it"
    facts = {"output": str(output), "entries": entries, "key": key}
    print_result(facts, json=json, title="Written")


@app.command()
def restore(backup: Path, ledger: str, *, beside: Path | None = None, json: bool = False) -> None:
    """Put a backup back where no ledger is, verify it, and enter that it was restored.

    Example:

        privote ledger restore ledger.backup ledger.db

    Nothing is replaced. Refused (exit code 4) where the anchor of a lost ledger knows of charges
    that the backup lacks.

    Parameters
    ----------
    backup
        The file that `privote ledger backup` wrote.
    """
    from privote.ledger import Ledger, Location

    place = Location.of(ledger, beside)
    found = Ledger.restore(backup, place)
    if not found.ok:
        raise LedgerError(f"{place.shown!r} is restored, but: {'; '.join(found.problems)}")
    facts = {"ledger": place.shown, "entries": found.entries, "head": found.head}
    print_result(facts, json=json, title="Restored: what was charged since the backup is missing")

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
    help="Inspect a ledger of charges, verify that nobody edited it, back it up. Shows only "
    "public entries: nothing that depends on votes.",
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
def budget(
    ledger: str,
    *,
    dataset: str,
    epsilon: float,
    delta: float,
    beside: Path | None = None,
    json: bool = False,
) -> None:
    """Set what all runs of a data set may cost together, or raise it. Makes the ledger if needed.

    Example:

        privote ledger budget ledger.db --dataset "ward 3" --epsilon 8 --delta 1e-5

    Each run then asks for its own epsilon, and is charged for it before anything is drawn. Once
    set, only epsilon can be raised, unless one run took the whole budget.

    Parameters
    ----------
    dataset
        The data set's name in the ledger.
    epsilon
        For all runs of the data set together.
    delta
        For all runs of the data set together; each run must ask for the same.
    """
    from privote.ledger import Budget, Ledger, Location

    place = Location.of(ledger, beside)
    asked = Budget(epsilon=epsilon, delta=delta)
    with Ledger.at(place) as book:
        known = book.reading().budgets.get(book.known(dataset))
        now = book.set_budget(asked, dataset=dataset)
        fits = book.reading().fits(book.known(dataset))
    facts = {
        "ledger": place.shown,
        "data set": dataset,
        "epsilon": now.epsilon,
        "delta": now.delta,
        "counted": now.counted,
        "was": None if known is None else known.epsilon,
        "one run at most": fits,
    }
    print_result({n: v for n, v in facts.items() if v is not None}, json=json, title="Budget")


@app.command()
def show(ledger: str, *, beside: Path | None = None, json: bool = False) -> None:
    """Show every run, what each budget has spent, and what may still be asked.

    Example:

        privote ledger show ledger.db

    One row per run, with the first of its ledger entries. Epsilon is what that run alone may cost;
    a run that goes on with an allowance charged before costs 0. "used" counts all runs of a data
    set together, at the budget's one order; "fits" is about the largest epsilon of one more run.
    --json lists every entry.
    """
    with _opened(ledger, beside) as (book, name):
        entries, budgets = book.published(), book.standing()
        restored = book.restored
        allowances = [each for each in book.allowances() if each["more"]]
    if json:
        facts = {"entries": entries, "budgets": budgets, "restored": restored}
        print_json({**facts, "allowances": allowances})
        return
    rows = _runs(entries)
    if rows:
        runs = f"{len(rows)} run{'s' * (len(rows) != 1)}"
        title = f"{name}: {runs} in {len(entries)} entries"
        print_table(rows, title=title)
    print_table(budgets, title="Budgets")
    if allowances:
        title = "Queries left in learnt allowances, at no further charge"
        rows = [{("left" if n == "more" else n): v for n, v in a.items()} for a in allowances]
        print_table(rows, title=title)
    _say_restored(restored)


def _runs(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row per run: a charge with what was answered from it, or answers that cost nothing.

    Entries of a run have its draft's claim; those made without a draft have the same account.
    """
    from privote.ledger.totals import draft_of
    from privote.mechanisms.base import describe

    rows: list[dict[str, Any]] = []
    last: dict[tuple[Any, ...], dict[str, Any]] = {}
    for entry in entries:
        if entry["kind"] in ("budget", "restored"):
            continue
        claim = entry.get("claim")
        key = entry.get("account") if claim is None else draft_of(claim)[0]
        run = (entry["dataset"], entry.get("consumer"), key)
        later = entry["kind"] == "answer" and run in last and last[run]["queries"]
        if entry["kind"] == "charge" or later or run not in last:
            last[run] = {
                "entry": entry["number"],
                "at": entry["at"][:19].replace("T", " "),  # which a narrow column breaks in two
                "data set": entry["dataset"] or "",
                "for": entry.get("consumer") or "",
                "guarantee": entry.get("guarantee", ""),
                "mechanism": describe(entry["mechanism"]) if entry.get("mechanism") else "",
                "epsilon": _epsilon(entry),
                "queries": "",
            }
            rows.append(last[run])
        last[run]["queries"] = entry.get("queries") or last[run]["queries"]
    return rows


def _say_restored(restored: list[dict[str, Any]]) -> None:
    for each in restored:
        say(
            f"Entry {each['entry']}: restored {each['at'][:19]} UTC from the backup of "
            f"{each['backup'][:19]}. Charges made after that backup are not in this ledger."
        )


def _epsilon(entry: dict[str, Any]) -> str:
    """Return what a run may cost; going on with an allowance costs nothing more."""
    from privote.accounting.renyi import rounded_up

    if entry["kind"] != "charge" or "asked" not in entry:
        return "" if entry["kind"] == "charge" else "0"
    return rounded_up(entry["asked"][0], 4)


@app.command()
def verify(ledger: str, *, beside: Path | None = None, json: bool = False) -> None:
    """Find any entry that was edited, removed, reordered, inserted or rolled back.

    Example:

        privote ledger verify ledger.db

    Needs the ledger's key and anchor (LEDGER.key and LEDGER.head beside it). Exits with code 4 if
    anything is wrong. Store the head that this prints elsewhere: it also shows whether all three
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
    """Check that a ledger charged and released exactly what a statement says.

    Example:

        privote ledger check labels.npz --ledger ledger.db

    Exits with code 0 if they agree, and with 1 if they differ (the differences are listed). It also
    exits with 1 if the charge is there but the outcome was not recorded, because the run was
    interrupted in between: repeat that run with --resume to record it. Exits with 4 if the ledger
    itself does not verify.

    A digest inside a file only reveals damage, since anyone who edits the file can compute a new
    one. The ledger records the outcome right after it is drawn. It does not record what is computed
    later: names, forecasts, reasons, how many were asked, and labels decided from released tallies.

    Parameters
    ----------
    statement : STATEMENT|RELEASE|STUDENT
        A privacy statement with its .json beside it, the .json alone (also of a poll), a release
        (.npz), or a .student file.
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
                "statement", f"{str(statement)!r} is not the statement of a release: {error}"
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
    """Write the public entries as JSON, for auditors; nothing sealed is included.

    Example:

        privote ledger export ledger.db --output ledger.json

    Parameters
    ----------
    output
        The .json file to write.
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

    Keep the file secret: it contains the key, and only its owner can read it. A broken ledger is
    not copied (exit code 4).

    Parameters
    ----------
    output
        The file to write.
    """
    with _claimed(ledger, beside, output, force=force, owner_only=True) as (book, draft):
        draft.unlink()  # a backup is a file of its own making
        own_key = book.backup(draft)
        entries = book.verify().entries
    key = (
        "inside: keep this file secret" if own_key else "not inside: it comes from the environment"
    )
    facts = {"output": str(output), "entries": entries, "key": key}
    print_result(facts, json=json, title="Written")


@app.command()
def restore(backup: Path, ledger: str, *, beside: Path | None = None, json: bool = False) -> None:
    """Restore a backup to a place without a ledger, verify it, and record that it was restored.

    Example:

        privote ledger restore ledger.backup ledger.db

    Nothing is overwritten. Refused (exit code 4) if an anchor at that place shows charges that are
    missing from the backup.

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
    print_result(facts, json=json, title="Restored: charges made after the backup are missing")

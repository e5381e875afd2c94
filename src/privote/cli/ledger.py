"""``privote ledger``: look at a ledger, check it, copy it."""

from __future__ import annotations

import json as jsonlib
from contextlib import AbstractContextManager, closing
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from privote.errors import InputError, LedgerError, StorageError, masked

from . import options
from .output import print_facts, print_json, print_result, print_table, say

if TYPE_CHECKING:
    from privote.ledger import Ledger

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Set budgets, look at a ledger of charges, verify that nobody edited it, back it up. "
    "Shows only public entries: nothing that depends on votes.",
)


def _opened(path: str, beside: str | None) -> AbstractContextManager[Ledger]:
    """Return the ledger, to read; it is closed with the context."""
    from privote.ledger import Ledger, Location

    return closing(Ledger.open(Location.of(path, beside), readonly=True))


@app.command()
def budget(
    ledger: str,
    *,
    dataset: options.Name,
    epsilon: options.Number,
    delta: options.Number,
    beside: str | None = None,
    json: bool = False,
) -> None:
    """Set what all runs of a data set may cost together, or raise it. Makes the ledger if needed.

    Example:

        privote ledger budget ledger.db --dataset "ward 3" --epsilon 8 --delta 1e-5

    Each run then asks for its own epsilon, and is charged for it before anything is drawn. Once
    set, only epsilon can be raised, unless one run took the whole budget.

    Parameters
    ----------
    ledger
        The ledger: a file, or a postgresql:// address with --beside.
    dataset : NAME
        The data set's name in the ledger.
    epsilon
        For all runs of the data set together.
    delta
        For all runs of the data set together; each run must ask for the same.
    """
    from privote.ledger import Budget, Ledger, Location

    place = Location.of(ledger, beside)
    with Ledger.at(place) as book:
        scope = book.state.scopes.get(book.state.known(dataset))
        was = None if scope is None else scope.budget.epsilon
        book.set_budget(Budget(epsilon=epsilon, delta=delta), dataset=dataset)
        name = book.state.known(dataset)
        (facts,) = (row for row in book.standing() if row["dataset"] == name)
    print_result({"ledger": place.shown, **facts, "was": was}, json=json, title="Budget")


@app.command()
def show(ledger: str, *, beside: str | None = None, json: bool = False) -> None:
    """Show every run, what each budget has spent, and what can still be asked.

    Example:

        privote ledger show ledger.db

    One row per run: epsilon is what that run alone may cost; a run that goes on with an allowance
    charged before costs 0. A run that is open was reserved, and nothing of it is drawn yet; one
    that is committed was drawn, and is not delivered: both end with --resume. One that is failed or
    abandoned is charged, and released nothing. "used" counts all runs of a data set together, at
    the budget's one order, so after few or small runs it can be more than the sum of theirs. --json
    lists every entry.

    Parameters
    ----------
    ledger
        The ledger: a file, or a postgresql:// address with --beside.
    """
    with _opened(ledger, beside) as book:
        facts: dict[str, Any] = {"entries": book.published(), "runs": _runs(book)}
        facts |= {"budgets": book.standing(), "allowances": _left(book)}
        facts |= {"restored": book.state.restored, "chargeable": book.state.replaced}
    if json:
        print_json(facts)
        return
    many, entries = len(facts["runs"]), len(facts["entries"])
    budgets = [{n: v for n, v in row.items() if n != "still"} for row in facts["budgets"]]
    tables = {
        f"{masked(ledger)}: {many} run{'s' * (many != 1)} in {entries} entries": facts["runs"],
        "Budgets": budgets,
        "Queries left in learnt allowances, at no further charge": facts["allowances"],
    }
    for title, rows in tables.items():
        if rows:
            print_table(rows, title=title)
    for row in facts["budgets"]:
        if row["still"]:
            say(f"{row['dataset']}: {row['still'][:1].lower()}{row['still'][1:]}.")
    for at in facts["restored"]:
        say(f"Restored from the backup of {at[:19]}. Later charges are not in this ledger.")
    if not facts["chargeable"]:
        say("Nothing can be charged to this copy: privote ledger restore --replace makes it live.")


def _runs(book: Ledger) -> list[dict[str, Any]]:
    """Return a row per run, in the order of their reservations."""
    from privote.accounting.renyi import rounded_up
    from privote.mechanisms.base import describe

    rows, paid = [], set[int]()
    for run in book.state.runs.values():
        charge = book.state.charges[run.reserved.charge]
        mechanism = (run.commit and run.commit.mechanism) or charge.terms.get("mechanism")
        again = run.reserved.charge in paid  # an allowance that was paid for pays
        paid.add(run.reserved.charge)
        rows.append(
            {
                "run": run.number,
                "at": run.at[:19].replace("T", " "),
                "status": run.status,
                "data set": charge.dataset,
                "guarantee": charge.guarantee,
                "mechanism": describe(dict(mechanism)) if mechanism else "",
                "epsilon": "0" if again else rounded_up(charge.epsilon, 4),
                "queries": run.commit.queries if run.commit and run.commit.queries else "",
            }
        )
    return rows


def _left(book: Ledger) -> list[dict[str, Any]]:
    """Return what is left in learnt allowances."""
    return [
        {
            "data set": account.charge.dataset,
            "epsilon": account.charge.epsilon,
            "planned": account.charge.planned,
            "left": account.remaining,
        }
        for account in book.state.accounts.values()
        if account.remaining and not account.lost
    ]


@app.command()
def verify(ledger: str, *, beside: str | None = None, json: bool = False) -> None:
    """Find any entry that was edited, removed, reordered, inserted or rolled back.

    Example:

        privote ledger verify ledger.db

    Needs the ledger's key and anchor (LEDGER.key and LEDGER.head beside it); a backup has them
    inside, and is verified without being restored. Exits with code 4 if anything is wrong. Store
    the head that this prints elsewhere: it also shows whether all three files were replaced by
    older ones.

    Parameters
    ----------
    ledger : LEDGER|BACKUP
        The ledger, or a backup of one.
    """
    from privote.ledger import Location
    from privote.ledger.backup import read_backup

    place = Location.of(ledger, beside)
    beside_it = place.key.exists() or place.head.exists()
    try:
        if place.file.is_file() and place.address is None and not beside_it:
            verified = read_backup(place.file).verification
        else:
            with _opened(ledger, beside) as book:
                verified = book.verify()
        facts = {"entries": verified.entries, "head": verified.head}
        problems = list(verified.problems)
    except StorageError:
        raise
    except LedgerError as error:
        facts, problems = {}, [str(error)]
    if json:
        print_json({"ok": not problems, **facts, "problems": problems})
    elif not problems:
        print_facts(facts, title=f"{place.shown}: nothing is wrong")
    if problems:
        say(f"error: {'; '.join(problems)}", err=True)
        raise typer.Exit(LedgerError.exit_code)


@app.command()
def check(
    files: list[Path],
    *,
    ledger: options.Name,
    beside: str | None = None,
    json: bool = False,
) -> None:
    """Check that a ledger released exactly what is in these files.

    Example:

        privote ledger check labels.csv statement.txt run/ --ledger ledger.db

    Exits with code 0 if every file belongs to a run of the ledger, and with 1 if one does not: it
    was edited, or comes from elsewhere. Exits with 4 if the ledger itself does not verify.

    The ledger recorded digests when the run was committed and delivered. A file is compared as it
    is; of a text also its words, and of a saved release also its guarantee, which names what was
    drawn. Labels must be those, or follow from the tallies alone. Where only the guarantee is
    known, names are not vouched for, nor labels decided with rows or post-processed.

    Parameters
    ----------
    files : FILE...
        Statements (.txt or .json), labels, pages, models, releases (.npz), or folders of these; a
        folder's files for the owner are left out.
    ledger
        The ledger, or the file that privote ledger export --signed wrote of it: compare the
        fingerprint of its key with the ledger's owner.
    """
    from privote.ledger.export import read_signed

    paths = [path for file in files for path in _files_in(file)]
    export = read_signed(Path(ledger)) if beside is None and Path(ledger).is_file() else None
    if export is None:
        with _opened(ledger, beside) as book:
            verified = book.verify()
            if verified.problems:
                raise LedgerError("; ".join(verified.problems))
            name, findings = masked(ledger), {path: book.check(*_digests(path)) for path in paths}
    else:
        name = f"an export of {export.facts['made_at']}, signed with key {export.fingerprint}"
        findings = {path: export.check(*_digests(path)) for path in paths}
    rows = [
        {"file": path.name, **finding._asdict()} for path in paths for finding in findings[path]
    ]
    unknown = [path.name for path in paths if not findings[path]]
    if json:
        key = None if export is None else export.fingerprint
        print_json({"ok": not unknown, "findings": rows, "unknown": unknown, "key": key})
    else:
        if rows:
            print_table(rows, title=f"In {name}")
        for file in unknown:
            say(f"{file}: this ledger released nothing like it")
    if unknown:
        raise typer.Exit(1)


def _files_in(path: Path) -> list[Path]:
    """Return the files to check: a folder's, but those that are for the owner alone."""
    if not path.is_dir():
        return [path]
    return sorted(
        file for file in path.iterdir() if file.is_file() and file.stem != "for-the-owner"
    )


def _digests(path: Path) -> set[str]:
    """Return the digests by which a ledger may know a file."""
    from privote.files import check_file
    from privote.ledger import digest_of_text
    from privote.release import Release, follows

    content = check_file(path, "files").read_bytes()
    digests = {sha256(content).hexdigest()}
    if path.suffix == ".npz":
        # It loads only if it has what these facts say was drawn; labels are that, or made of it.
        release = Release.load(path)
        facts = jsonlib.dumps(release.guarantee.facts(), sort_keys=True)
        return digests | ({digest_of_text(facts)} if follows(release) else set())
    try:
        return digests | {digest_of_text(content.decode())}
    except UnicodeDecodeError:
        return digests


@app.command()
def export(
    ledger: str,
    *,
    output: Path | None = None,
    signed: Path | None = None,
    registry: Path | None = None,
    operators: bool = False,
    beside: str | None = None,
    force: bool = False,
    json: bool = False,
) -> None:
    """Write what may be published of a ledger, for auditors and registries; nothing sealed.

    Examples, for a reader and for an auditor:

        privote ledger export ledger.db --output ledger.json

        privote ledger export ledger.db --signed ledger.signed --registry entries.yaml

    Parameters
    ----------
    ledger
        The ledger: a file, or a postgresql:// address with --beside.
    output
        The .json file for the public entries.
    signed
        A file for an auditor, who needs no key: entries, and digests of all that was released,
        signed with a key that follows from the ledger's. Give its fingerprint by telephone. Then
        `privote ledger check FILES --ledger SIGNED` tells what is genuine.
    registry
        A YAML file with draft entries for the Differential Privacy Deployments Registry, one for
        each data set; its open fields are yours to fill in.
    operators
        Also export who ran each run, on which host and into which file.
    """
    from privote.guarantees import to_json
    from privote.ledger import Location
    from privote.ledger.export import public_facts, sign
    from privote.report.forms import registry_entries, yaml_of

    from .files import Outputs, text_of

    if not any((output, signed, registry)):
        raise InputError("give --output, --signed or --registry")
    place = Location.of(ledger, beside)
    outputs = Outputs(force=force, keep=[place.file, place.key, place.head])
    with _opened(ledger, beside) as book:
        facts = public_facts(book, operators=operators)
        written = {"entries": len(facts["entries"]), "verified": facts["verified"]}
        if signed is not None:
            export = sign(book, operators=operators)
            written["key"] = export.fingerprint
            outputs.add("signed", signed, (), text_of(lambda _: to_json(export.facts)))
        if registry is not None:
            entries, rest = registry_entries(book.state)
            written["left out of the registry"] = ", ".join(rest) or None
            documents = "---\n".join(map(yaml_of, entries))
            outputs.add("registry", registry, (), text_of(lambda _: documents))
        outputs.add("output", output, (), text_of(lambda _: to_json(facts)))
    outputs.write(None)
    names = ", ".join(str(path) for path in (output, signed, registry) if path is not None)
    print_result({"output": names, **written}, json=json, title="Written")


@app.command()
def abandon(ledger: str, run: int, *, beside: str | None = None, json: bool = False) -> None:
    """End a run that is open, without a draw; it stays charged.

    Example:

        privote ledger abandon ledger.db 7

    For a run that nobody will resume. One that is committed was drawn: deliver it with --resume.

    Parameters
    ----------
    ledger
        The ledger: a file, or a postgresql:// address with --beside.
    run
        The run's number, as privote ledger show has it.
    """
    from privote.ledger import Ledger, Location

    with Ledger.at(Location.of(ledger, beside), create=False) as book:
        book.abandon(run)
    print_result({"run": run, "status": "abandoned"}, json=json, title="It stays charged")


@app.command()
def backup(
    ledger: str,
    *,
    output: options.File,
    beside: str | None = None,
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
    ledger
        The ledger: a file, or a postgresql:// address with --beside.
    output
        The file to write.
    """
    from privote.ledger import Location

    from .files import claimed

    place = Location.of(ledger, beside)
    own = (place.file, place.key, place.head)
    with (
        claimed(output, force=force, suffixes=(), keep=own, owner_only=True) as draft,
        _opened(ledger, beside) as book,
    ):
        draft.unlink()  # a backup is a file of its own making
        own_key, entries = book.backup(draft), book.verify().entries
    key = "inside: keep this file secret" if own_key else "not inside: the environment has it"
    facts = {"output": str(output), "entries": entries, "key": key}
    print_result(facts, json=json, title="Written")


@app.command()
def restore(
    backup: Path,
    ledger: str,
    *,
    replace: bool = False,
    beside: str | None = None,
    json: bool = False,
) -> None:
    """Restore a backup to a place without a ledger, verify it, and record that it was restored.

    Example:

        privote ledger restore ledger.backup ledger.db --replace

    Without --replace it is a copy to read: nothing can be charged to it, since the original may
    still be in use, and two live copies would spend one budget twice. Nothing is overwritten.
    Refused (exit code 4) if an anchor at that place shows charges that are missing from the backup.

    Parameters
    ----------
    backup
        The file that privote ledger backup wrote.
    ledger
        Where the ledger is to be: a file, or a postgresql:// address with --beside. With --replace
        also a ledger that was restored before.
    replace
        The original is gone for good: this ledger takes its place.
    """
    from privote.ledger import Ledger, Location

    place = Location.of(ledger, beside)
    if replace and place.head.exists():
        with Ledger.at(place, create=False) as book:
            book.replace()
            verified = book.verify()
    else:
        verified = Ledger.restore(backup, place, replace=replace)
    if not verified.ok:
        raise LedgerError(f"{place.shown!r} is restored, but: {'; '.join(verified.problems)}")
    use = "it takes the original's place" if replace else "read-only: nothing can be charged to it"
    facts = {"ledger": place.shown, "entries": verified.entries, "head": verified.head, "use": use}
    print_result(
        facts, json=json, title="Restored; charges made after the backup, if any, are missing"
    )

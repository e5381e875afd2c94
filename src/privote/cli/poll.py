"""``privote poll``: ballots of people in, winners and a page out; or a plan, before the poll."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import typer

from privote.errors import InputError

from . import options
from .options import Group, derived, explained

_BALLOTS, _OUTCOME, _PEOPLE = "Ballots", "Outcome", "Budget"
# What may be another in a run that resumes one; and a ledger's address may hold a password.
_UNASKED = ("ledger", "beside", "output", "show_sealed", "force", "resume", "json")


@dataclass(frozen=True, kw_only=True)
class ReadingFlags:
    """How ballots are read."""

    most: Annotated[
        int | None,
        typer.Option(
            help="The poll's rule: how many approvals, or points in all, a ballot may have. Never "
            "the largest ballot seen; no limit unless told, or a Pabulib file says one.",
            rich_help_panel=_BALLOTS,
        ),
    ] = None
    each: Annotated[
        int | None,
        typer.Option(
            help="The poll's rule: how many points an option may get; 1 makes any an approval.",
            rich_help_panel=_BALLOTS,
        ),
    ] = None
    top: Annotated[
        int | None,
        typer.Option(
            help="Orders and categories: how many first places are approved; 1 unless told.",
            rich_help_panel=_BALLOTS,
        ),
    ] = None
    invalid: Annotated[
        str,
        typer.Option(
            metavar="error|empty",
            help="What becomes of a ballot that breaks the rule.",
            rich_help_panel=_BALLOTS,
        ),
    ] = "error"
    options: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...|FILE",
            help="The options, or a file with one a line: which columns they are; needed for "
            "lists and long tables. With --plan how many.",
            rich_help_panel=_BALLOTS,
        ),
    ] = None
    form: Annotated[
        str | None,
        typer.Option(
            metavar="wide|list|long",
            help="A column an option; one column of lists; or a row an approval.",
            rich_help_panel=_BALLOTS,
        ),
    ] = None
    voter: Annotated[
        str | None, typer.Option(help="The column that names voters.", rich_help_panel=_BALLOTS)
    ] = None
    column: Annotated[
        str | None, typer.Option(help="The column with options.", rich_help_panel=_BALLOTS)
    ] = None
    voters: Annotated[
        int | None,
        typer.Option(
            help="How many voted; needed for long tables, where an empty ballot has no row.",
            rich_help_panel=_BALLOTS,
        ),
    ] = None
    separator: Annotated[
        str | None, typer.Option(help="Between options of a list.", rich_help_panel=_BALLOTS)
    ] = None
    delimiter: Annotated[
        str | None, typer.Option(help="Between cells.", rich_help_panel=_BALLOTS)
    ] = None
    encoding: Annotated[str | None, typer.Option(help="E.g. cp1252.", rich_help_panel=_BALLOTS)] = (
        None
    )

    def arguments(self) -> dict[str, Any]:
        """Return them as the library takes them."""
        given = asdict(self)
        if self.options is not None:
            file = Path(self.options)
            try:
                names = (
                    file.read_text(encoding="utf-8-sig").splitlines()
                    if file.is_file()
                    else self.options.split(",")
                )
            except (OSError, UnicodeError):
                raise InputError("options", "must be names, or a UTF-8 file of them") from None
            given["options"] = [name.strip() for name in names if name.strip()]
        return given


@derived(reading=Group(of=ReadingFlags))
def poll(
    reading: ReadingFlags,
    epsilon: options.Epsilon,
    delta: options.Delta,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            show_default=False,
            help="Ballots: .csv, .tsv, PrefLib's .cat .soc .soi .toc .toi, Pabulib's .pb.",
        ),
    ] = None,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan",
            help="Before the poll, without FILE: say how close a race so many --voters and "
            "--options decide. With --ledger, priced as one.",
        ),
    ] = False,
    seats: Annotated[
        int | None,
        typer.Option(help="So many options win: the most approved.", rich_help_panel=_OUTCOME),
    ] = None,
    quota: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="All options win that more than this share of the voters approve.",
            rich_help_panel=_OUTCOME,
        ),
    ] = None,
    shares: Annotated[
        bool,
        typer.Option(
            "--shares", help="Publish shares with intervals, too.", rich_help_panel=_OUTCOME
        ),
    ] = False,
    mechanism: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="auto, binary, tau, counts or top-m; auto decides by public numbers.",
            rich_help_panel=_OUTCOME,
        ),
    ] = "auto",
    typical: Annotated[
        float | None,
        typer.Option(
            help="How many approvals a typical ballot has, as expected before the poll, never from "
            "these ballots: then clipping the few long ones is considered.",
            rich_help_panel=_OUTCOME,
        ),
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="Of intervals and of what is called decided.")
    ] = 0.95,
    title: Annotated[str | None, typer.Option(help="What the poll is called.")] = None,
    people: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Who voted: their budget in the ledger is charged.",
            rich_help_panel=_PEOPLE,
        ),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|ADDRESS", help="Where polls are counted.", rich_help_panel=_PEOPLE
        ),
    ] = None,
    beside: options.Beside = None,
    budget: Annotated[
        float | None,
        typer.Option(
            help="The epsilon of all polls of these people together; fixed by the first one, where "
            "it is --epsilon unless told.",
            rich_help_panel=_PEOPLE,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A folder for poll.html, to publish, and poll.json."),
    ] = None,
    show_sealed: Annotated[
        bool,
        typer.Option(
            "--show-sealed",
            help="Also write true counts, for the owner's eyes: beside the folder, DIR-owner.html.",
        ),
    ] = False,
    force: options.Force = False,
    resume: options.Resume = False,
    seed: options.Seed = None,
    json: options.Json = False,
) -> None:
    """Publish who won a poll, not who voted for whom.

    The promise is for one person's ballot replaced by any other; the number of voters is public.
    Without --seats and --quota, the greedy rule where options have costs, as in a Pabulib file,
    else a quota of one half. Nothing is published that was not paid for: without --shares no
    counts and no margins.

    What is drawn is on disk before it is shown: in the folder, or beside the ledger if there is no
    folder. If anything fails after the charge, exit code 6 says so, and the same command with
    --resume finishes, at no further charge.

    Example:

        privote poll poll.csv --epsilon 1 --delta 1e-6 --seats 2 --output page

    With --plan no ballots are read, so every number may be published. "decides" is how many votes
    apart options must be: from the bar with a quota, winners from losers with seats; then all of
    them come out right with the confidence asked for.

        privote poll --plan --voters 500 --options 12 --epsilon 1 --delta 1e-6
    """
    asked = {name: str(value) for name, value in locals().items() if name not in _UNASKED}
    from privote.files import drafted
    from privote.ledger import Location
    from privote.polls import poll as run
    from privote.report.polls import pages, write_pages

    from .files import DRAFT, claimed_folder
    from .output import check_shown, working

    if plan:
        if file is not None:
            raise InputError("--plan goes without FILE: it reads no ballots")
        rule = {"seats": seats, "quota": quota, "typical": typical, "confidence": confidence}
        _plan(reading, {**rule, "shared": ledger is not None}, epsilon, delta, json=json)
        return
    if file is None:
        raise InputError("FILE must be given, or --plan")
    if show_sealed and output is None:
        raise InputError("--show-sealed goes with --output: give it too")
    place = None if ledger is None else Location.of(ledger, beside)
    claim: AbstractContextManager[None] = nullcontext()
    files, draft_file = {}, None
    if output is not None:
        files = pages(output, owner=show_sealed, force=force or resume)
        claim, draft_file = claimed_folder(output, force=True), output / DRAFT
    elif place is not None:
        mark = sha256(str(asked).encode()).hexdigest()[:12]
        draft_file = place.file.with_name(f".{place.file.name}.poll-{mark}.draft")
    with (
        claim,
        explained(place, ledger, people or "", "people"),
        drafted(draft_file, asked, resume=resume, force=force) as draft,
    ):
        with working("counting"):
            result = run(
                file,
                epsilon=epsilon,
                delta=delta,
                seats=seats,
                quota=quota,
                shares=shares,
                mechanism=mechanism,
                typical=typical,
                confidence=confidence,
                title=title,
                people=people,
                ledger=place,
                budget=budget,
                seed=seed,
                output=draft,
                resume=resume,
                **reading.arguments(),
            )
        write_pages(files, result, force=force or resume)
        if output is None:
            _show(result, json=json)
        if draft is not None:
            if output is None:
                check_shown()  # else the draft stays
            draft.finish()
    if output is not None:
        _show(result, json=json)
        if not json:
            _say_where(output, sealed=show_sealed)


def _say_where(output: Path, *, sealed: bool) -> None:
    from privote.report.polls import owners_page

    from .output import say

    say(f"To publish: {output / 'poll.html'}, and the same as numbers in poll.json")
    if sealed:
        say(f"For the owner's eyes, true counts: {owners_page(output)}")


def _show(result: Any, *, json: bool) -> None:
    from .output import print_facts, print_json, print_table, say

    if json:
        print_json(result.facts())
        return
    print_facts(result.brief(), title=result.title)
    if result.shares is not None:
        after = ["decided" if call.decided else "too close to call" for call in result.calls]
        rows = [
            {
                "option": share.option,
                "share": f"{share.share:.4f}",
                "from": f"{share.low:.4f}",
                "to": f"{share.high:.4f}",
                "ahead of the next": call,
            }
            for share, call in zip(result.shares, [*after, ""], strict=True)
        ]
        print_table(rows, title="Shares, with intervals for all options at once")
    say(result.statement())


def _plan(
    reading: ReadingFlags, rule: dict[str, Any], epsilon: float, delta: float, *, json: bool
) -> None:
    """Show what epsilons around this one buy."""
    from privote.planning.polls import poll_plans
    from privote.report.polls import plan_rows

    from .output import print_json, print_table, working

    number, voters = reading.options or "", reading.voters
    if voters is None or not number.isdecimal():
        raise InputError("--plan needs --voters and --options: how many there are")
    how = {**rule, "most": reading.most, "each": reading.each or 1}
    with working("planning"):
        plans = poll_plans(voters, int(number), epsilon=epsilon, delta=delta, **how)
    rows, sure = plan_rows(*plans), rule["confidence"]
    if json:
        print_json({"voters": voters, "options": int(number), "confidence": sure, "plans": rows})
        return
    caption = (
        f"For all options at once, in {100 * sure:g} of 100 polls. No ballots were read: these "
        "numbers may be published."
    )
    title = f"A poll of {voters:,} voters on {int(number):,} options"
    print_table(rows, title=title, caption=caption)

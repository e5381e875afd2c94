"""``privote poll``: ballots of people in, winners and a page out; or a plan, before the poll."""

from __future__ import annotations

import csv
from contextlib import AbstractContextManager, nullcontext
from hashlib import sha256
from pathlib import Path
from typing import Any

from privote.errors import InputError

from . import options as shared
from .derived import Group, derived

_UNPLANNED = (
    *("shares", "mechanism", "title", "people", "budget", "seed"),
    *("top", "invalid", "duplicates", "voter", "encoding"),
)
# What may be another in a run that resumes one; and a ledger's address may hold a password.
_UNASKED = ("ledger", "beside", "output", "show_sealed", "force", "resume", "json")


@derived(
    asked=Group(of="poll", without=("source", "ledger", "output", "resume", "force")),
    rule=Group(of="polls:read", without=("source", "options", "column"), panel="Ballots"),
)
def poll(
    file: Path | None = None,
    *,
    asked: dict[str, Any],
    rule: dict[str, Any],
    options: list[str] | None = None,
    column: list[str] | None = None,
    plan: bool = False,
    voters: int | None = None,
    ledger: str | None = None,
    beside: Path | None = None,
    output: Path | None = None,
    show_sealed: shared.ShowSealed = False,
    force: shared.Force = False,
    resume: shared.Resume = False,
    json: shared.Json = False,
) -> None:
    """Publish who won a poll, not who voted for whom.

    The guarantee protects each person's ballot; the number of voters is public. Without --seats and
    --quota, options that have costs (a Pabulib file) are funded by the greedy rule; otherwise the
    quota is one half. Counts and margins are not published; --shares publishes noisy shares, within
    the same budget. Several --column are several questions of one poll: its guarantee covers a
    ballot's answers to all of them.

    The outcome is written to disk before it is shown: in the folder, or beside the ledger if there
    is no folder. If the run fails after the charge, it exits with code 6; repeat the command with
    --resume to finish it at no further charge.

    Example:

        privote poll poll.csv --epsilon 1 --delta 1e-6 --seats 2 --output page

    With --plan no ballots are read, so every number may be published. "decides" is the margin, in
    votes, at which all results are correct with the requested confidence: the distance from the
    quota, or between winners and losers with --seats.

        privote poll --plan --voters 500 --options 12 --epsilon 1 --delta 1e-6

    Parameters
    ----------
    file
        Ballots: .csv, .tsv, .parquet, PrefLib's .cat .soc .soi .toc .toi, Pabulib's .pb.
    plan
        Before the poll, without FILE: show how close a race can be with this many --voters and
        --options. With --ledger, priced as a poll that shares its budget.
    seats
        Number of winners: the options with the most approvals.
    quota : SHARE
        An option wins if more than this share of the voters approve it.
    mechanism : NAME
        auto, binary, counts or top-m; auto chooses from public numbers.
    confidence
        Confidence level of the intervals, and for calling a result decided.
    people : NAME
        The group of people who voted; the ledger keeps one budget for each group.
    budget
        Total epsilon of all polls of these people, at the same delta. The first poll fixes it;
        default: its --epsilon.
    ledger : FILE|ADDRESS
        The ledger of charges: a file, or a postgresql:// address with ``beside``.
    invalid : error|empty
        What to do with a ballot that breaks the rule: stop, or count it as empty.
    duplicates : first|last
        Which row counts where a voter is named twice; without it such a file is refused.
    options : FILE|A,B,...
        Names of the options (of their columns), or a file with one per line. Required with
        --column; repeat it to give each --column its own. With --plan: the number of options.
    column : C
        The column that lists the approved options; repeat it for several questions.
    voters
        With --plan: number of voters.
    output : DIR
        A folder for poll.html, which may be published, and poll.json.
    show_sealed
        Also write the true counts, for the owner's eyes, to DIR-owner.html beside the folder.
    """
    same = {name: str(value) for name, value in locals().items() if name not in _UNASKED}
    from privote.files import DRAFT, drafted
    from privote.ledger import Location
    from privote.polls import poll as run
    from privote.report.polls import owners_page, pages, write_pages

    from .files import claimed_folder
    from .output import check_shown, say, working

    if plan:
        if file is not None:
            raise InputError("--plan cannot be combined with FILE: it reads no ballots")
        how = {**asked, **rule}
        _plan(voters, "".join(options or ()), how, json=json)
        return
    if file is None:
        raise InputError("give FILE, or --plan")
    if voters is not None:
        raise InputError("voters", "needs `plan`: ballots are counted", voters)
    if show_sealed and output is None:
        raise InputError("--show-sealed needs --output")
    rule |= {"column": column or None, "options": _options(options or [], column or [])}
    place = None if ledger is None else Location.of(ledger, beside)
    claim: AbstractContextManager[None] = nullcontext()
    files, draft_file = {}, None
    if output is not None:
        files = pages(output, owner=show_sealed, force=force or resume)
        claim, draft_file = claimed_folder(output, force=True), output / DRAFT
    elif place is not None:
        mark = sha256(str(same).encode()).hexdigest()[:12]
        draft_file = place.file.with_name(f".{place.file.name}.poll-{mark}.draft")
    with claim, drafted(draft_file, same, resume=resume, force=force) as draft:
        with working("counting"):
            result = run(file, ledger=place, output=draft, resume=resume, **asked, **rule)
        write_pages(files, result, force=force or resume)
        if output is None:
            _show(result, json=json)
        if draft is not None:
            if output is None:
                check_shown(pipe=True)  # else the draft stays
            draft.finish()
    if output is not None:
        _show(result, json=json)
        if not json:
            say(f"May be published: {output / 'poll.html'}, and the same numbers in poll.json")
        if show_sealed and not json:
            say(f"For the owner's eyes, true counts: {owners_page(output)}")
            ties = ", ".join(result.sealed.ties)
            say(f"For the owner's eyes, tied for the last seat: {ties or 'none'}")


def _options(texts: list[str], columns: list[str]) -> list[str] | dict[str, list[str]] | None:
    """Return the options, each text a file or a comma list: for all columns, or for each one."""
    from .files import read_names

    lists = [
        read_names(Path(text), "options")
        if Path(text).is_file()
        else next(csv.reader([text], skipinitialspace=True))
        for text in texts
    ]
    lists = [[name.strip() for name in names if name.strip()] for names in lists]
    if len(lists) < 2:
        return lists[0] if lists else None
    if len(lists) != len(columns):
        raise InputError("options", "must be given once, or once for each `column`")
    return dict(zip(columns, lists, strict=True))


def _show(result: Any, *, json: bool) -> None:
    from .output import print_facts, print_json, print_table, say

    if json:
        print_json(result.facts())
        return
    print_facts(result.brief(), title=result.title)
    for question, part in result.by_question():
        if part.shares is None:
            continue
        after = ["decided" if call.decided else "too close to call" for call in part.calls]
        rows = [
            {
                "option": share.option,
                "share": f"{share.share:.4f}",
                "from": f"{share.low:.4f}",
                "to": f"{share.high:.4f}",
                "ahead of the next": call,
            }
            for share, call in zip(part.shares, [*after, ""], strict=True)
        ]
        lead = f"{question}. " if question else ""
        print_table(rows, title=f"{lead}Shares, with intervals for all options at once")
    say("\n".join((result.statement(), *result.notes)))


def _plan(voters: int | None, number: str, how: dict[str, Any], *, json: bool) -> None:
    """Show what epsilons around this one buy."""
    from privote.polls.planning import poll_plans
    from privote.report.polls import plan_rows

    from .output import print_json, print_table, working

    if voters is None or not number.isdecimal():
        raise InputError("--plan needs --voters and --options, both as numbers")
    with working("planning"):
        given = {name: value for name, value in how.items() if name not in _UNPLANNED}
        plans = poll_plans(voters, int(number), **given)
    rows, sure = plan_rows(*plans), how["confidence"]
    if json:
        print_json({"voters": voters, "options": int(number), "confidence": sure, "plans": rows})
        return
    caption = (
        f"Holds for all options at once with {100 * sure:g} % confidence. No ballots were read: "
        "these numbers may be published."
    )
    title = f"A poll of {voters:,} voters on {int(number):,} options"
    print_table(rows, title=title, caption=caption)

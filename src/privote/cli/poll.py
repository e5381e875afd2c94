"""``privote poll``: ballots of people in, winners and a page out; or a plan, before the poll."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privote.errors import InputError

from . import options as shared
from .output import check_shown, print_facts, print_json, print_table, say, working

if TYPE_CHECKING:
    from privote.ledger import Account
    from privote.polls import PollResult
    from privote.polls.poll import Polling

    from .files import Outputs

_READING = ("most", "each", "top", "invalid", "duplicates", "voter", "encoding")
_PLANNING = ("epsilon", "delta", "mechanism", "confidence")
People = Annotated[str | None, typer.Option("--dataset", "--people", rich_help_panel="Budget")]
Names = Annotated[list[str] | None, typer.Option("--options")]


def poll(
    ctx: typer.Context,
    file: Annotated[Path | None, typer.Argument()] = None,
    *,
    epsilon: shared.Number,
    delta: shared.Number,
    seats: int | None = None,
    quota: float | None = None,
    shares: bool = False,
    mechanism: str = "auto",
    confidence: float = 0.95,
    title: str | None = None,
    most: int | None = None,
    each: int | None = None,
    top: int | None = None,
    invalid: str = "error",
    duplicates: str | None = None,
    voter: str | None = None,
    column: list[str] | None = None,
    names: Names = None,
    encoding: str | None = None,
    plan: bool = False,
    voters: int | None = None,
    ledger: str | None = None,
    beside: str | None = None,
    dataset: People = None,
    budget: float | None = None,
    output: Path | None = None,
    seed: int | None = None,
    dry_run: bool = False,
    force: bool = False,
    resume: bool = False,
    show_sealed: bool = False,
    verbose: bool = False,
    json: bool = False,
) -> None:
    """Publish who won a poll, not who voted for whom.

    The guarantee protects each person's ballot; the number of voters is public. Without --seats and
    --quota, options that have costs (a Pabulib file) are funded by the greedy rule; otherwise the
    quota is one half. Counts and margins are not published; --shares publishes noisy shares, within
    the same budget. Several --column are several questions of one poll: its guarantee covers a
    ballot's answers to all of them.

    What the poll costs, what can still be asked afterwards and how close a race it decides is said
    first; --dry-run stops there. If the run fails after the charge, it exits with code 6; repeat
    the command with --resume to finish it at no further charge.

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
    shares
        Also publish noisy shares of all options, with intervals.
    mechanism : NAME
        auto, binary, counts or top-m; auto chooses from public numbers.
    confidence
        Confidence level of the intervals, and for calling a result decided.
    dataset : NAME
        The people who vote, by their name in the ledger: it keeps one budget for all their polls.
    title
        The poll's title; default: the one in the file, or the file's name.
    most
        The poll's rule: the largest number of approvals on a ballot, or of points in total.
    each
        The largest number of points for one option; 1 counts any points as an approval.
    top
        For rankings and categories: how many of the first places count as approved; default 1.
    voter : COLUMN
        The column that names the voters; default: one called voter, Email Address, ID or similar.
    encoding
        The file's text encoding, e.g. cp1252; default: UTF-8, or as the file declares.
    invalid : error|empty
        What to do with a ballot that breaks the rule: stop, or count it as empty.
    duplicates : first|last
        Which row counts where a voter is named twice; without it such a file is refused.
    names : FILE|A,B,...
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
    from .files import claimed_folder
    from .look import look, print_look

    account = shared.account_of(ledger, beside, dataset, budget)
    if plan:
        if file is not None:
            raise InputError("--plan cannot be combined with FILE: it reads no ballots")
        rule = {"most": most, "each": 1 if each is None else each, "seats": seats, "quota": quota}
        how = {**_taken(ctx.params, _PLANNING), **rule}
        _plan(voters, "".join(names or ()), how, json=json)
        return
    if file is None:
        raise InputError("give FILE, or --plan")
    if voters is not None:
        raise InputError("voters", "needs `plan`: ballots are counted", voters)
    if show_sealed and output is None:
        raise InputError("--show-sealed needs --output")
    place = None if output is None else str(output.absolute())
    with nullcontext() if output is None else claimed_folder(output, force=True):
        outputs = _outputs(ctx.params)
        with working("counting"):
            polling = _polling(ctx.params, account)
        if not resume or dry_run:
            expected = f"It decides {polling.plan.decides}."
            facts = look(polling.request(place), account, expected)
            print_look(facts, stop=dry_run, json=json)
        if dry_run:
            raise typer.Exit  # which leaves no folder

        def write(result: PollResult) -> dict[str, str]:
            if output is None:
                _show(result, None, verbose=verbose, json=json)
            return outputs.write(result)

        result = polling.result(output=place, write=write, resume=resume)
    if output is not None:
        _show(result, output, verbose=verbose, json=json)
    if show_sealed and not json:
        say(f"For the owner's eyes, true counts: {_owners_page(ctx.params['output'])}")
        ties = ", ".join(result.sealed.ties)
        say(f"For the owner's eyes, tied for the last seat: {ties or 'none'}")


def _polling(given: Mapping[str, Any], account: Account) -> Polling:
    """Read the ballots, and plan the poll."""
    from privote.entropy import Entropy
    from privote.polls import read
    from privote.polls.mechanisms import outcome_of
    from privote.polls.planning import plan_poll
    from privote.polls.poll import Polling, title_of

    options = _options(given["names"] or [], given["column"] or [])
    column = given["column"] or None
    ballots = read(given["file"], options=options, column=column, **_taken(given, _READING))
    outcome = outcome_of(given["seats"], given["quota"], ballots.costs, ballots.money)
    plan = plan_poll(ballots.size, outcome, shares=given["shares"], **_taken(given, _PLANNING))
    title = given["title"] or title_of(ballots, given["file"])
    return Polling(ballots, plan, title, account, Entropy(given["seed"]))


def _taken(given: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: given[name] for name in names}


def _owners_page(folder: Path) -> Path:
    """Return where the owner's view lies: beside the folder, which is published whole."""
    home = folder / ".." if folder.name in ("", "..") else folder.parent
    return home / f"{folder.resolve().name or 'poll'}-owner.html"


def _outputs(given: Mapping[str, Any]) -> Outputs:
    """Return the pages of a poll; refuse places that cannot be written to."""
    from privote.polls import PollResult
    from privote.report.polls import owner_view, poll_page

    from .files import Outputs, text_of

    outputs, folder = Outputs(force=given["force"], resume=given["resume"]), given["output"]
    if folder is not None:
        outputs.add("output", folder / "poll.json", (), text_of(PollResult.json))
        outputs.add("output", folder / "poll.html", (), text_of(poll_page))
        owners = _owners_page(folder) if given["show_sealed"] else None
        outputs.add("output", owners, (), text_of(owner_view), sealed=True)
    return outputs


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


def _show(result: PollResult, output: Path | None, *, verbose: bool, json: bool) -> None:
    """Show what was released; what is shown only here must be shown, or it is not delivered."""
    from privote.report.polls import poll_bill, share_rows

    if json:
        print_json(result.facts())
    else:
        print_facts(poll_bill(result, output), title=result.title)
        for question, part in result.by_question():
            if part.shares is not None:
                lead = f"{question}. " if question else ""
                title = f"{lead}Shares, with intervals for all options at once"
                print_table(share_rows(part), title=title)
        text = result.statement() if verbose else ""
        say("\n".join(filter(None, (text, *result.notes))))
    if output is None:
        check_shown(pipe=result.guarantee.standing is not None)


def _plan(voters: int | None, number: str, how: dict[str, Any], *, json: bool) -> None:
    """Show what epsilons around this one buy."""
    from privote.polls.planning import poll_plans
    from privote.report.polls import plan_rows

    if voters is None or not number.isdecimal():
        raise InputError("--plan needs --voters and --options, both as numbers")
    with working("planning"):
        plans = poll_plans(voters, int(number), **how)
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

"""``privote poll``: ballots of people in, winners and a page out; or a plan, before the poll."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from privote.errors import InputError

from .options import Group, derived, explained

# What may be another in a run that resumes one; and a ledger's address may hold a password.
_UNASKED = ("ledger", "beside", "output", "show_sealed", "force", "resume", "json")


@dataclass(frozen=True, kw_only=True)
class ReadingFlags:
    """How ballots are read.

    Attributes
    ----------
    most
        The poll's rule: how many approvals, or points in all, a ballot may have. Never the largest
        ballot seen; no limit unless told, or a Pabulib file says one.
    each
        The poll's rule: how many points an option may get; 1 makes any an approval.
    top
        Orders and categories: how many first places are approved; 1 unless told.
    invalid : error|empty
        What becomes of a ballot that breaks the rule.
    options : A,B,...|FILE
        The options, or a file with one a line: which columns they are; needed with --column. With
        --plan how many.
    voter
        The column that names voters.
    column
        The one column that lists what a ballot approves; without it a column is an option.
    encoding
        E.g. cp1252.
    """

    most: int | None = None
    each: int | None = None
    top: int | None = None
    invalid: str = "error"
    options: str | None = None
    voter: str | None = None
    column: str | None = None
    encoding: str | None = None

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


@derived(reading=Group(of=ReadingFlags, panel="Ballots"))
def poll(
    file: Path | None = None,
    *,
    reading: ReadingFlags,
    epsilon: float,
    delta: float,
    plan: bool = False,
    voters: int | None = None,
    seats: int | None = None,
    quota: float | None = None,
    shares: bool = False,
    mechanism: str = "auto",
    confidence: float = 0.95,
    title: str | None = None,
    people: str | None = None,
    ledger: str | None = None,
    beside: Path | None = None,
    budget: float | None = None,
    output: Path | None = None,
    show_sealed: bool = False,
    force: bool = False,
    resume: bool = False,
    seed: int | None = None,
    json: bool = False,
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

    Parameters
    ----------
    file
        Ballots: .csv, .tsv, PrefLib's .cat .soc .soi .toc .toi, Pabulib's .pb.
    plan
        Before the poll, without FILE: say how close a race so many --voters and --options decide.
        With --ledger, priced as one.
    voters
        With --plan: how many vote.
    seats
        So many options win: the most approved.
    quota : SHARE
        All options win that more than this share of the voters approve.
    shares
        Publish shares with intervals, too.
    mechanism : NAME
        auto, binary, counts or top-m; auto decides by public numbers.
    confidence
        Of intervals and of what is called decided.
    title
        What the poll is called.
    people : NAME
        Who voted: their budget in the ledger is charged.
    ledger : FILE|ADDRESS
        Where polls are counted.
    budget
        The epsilon of all polls of these people together; fixed by the first one, where it is
        --epsilon unless told.
    output : DIR
        A folder for poll.html, to publish, and poll.json.
    show_sealed
        Also write true counts, for the owner's eyes: beside the folder, DIR-owner.html.
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
        rule = {"seats": seats, "quota": quota, "confidence": confidence}
        rule = {**rule, "shared": ledger is not None}
        _plan(reading, voters, rule, epsilon, delta, json=json)
        return
    if file is None:
        raise InputError("FILE must be given, or --plan")
    if voters is not None:
        raise InputError("voters", "goes with `plan`: ballots say how many there are", voters)
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
    reading: ReadingFlags,
    voters: int | None,
    rule: dict[str, Any],
    epsilon: float,
    delta: float,
    *,
    json: bool,
) -> None:
    """Show what epsilons around this one buy."""
    from privote.planning.polls import poll_plans
    from privote.report.polls import plan_rows

    from .output import print_json, print_table, working

    number = reading.options or ""
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

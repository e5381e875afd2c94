"""The page of a poll, to publish on one sheet; the owner's view apart; and the rows of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from privote.accounting.renyi import rounded_up
from privote.guarantees import OWNER_ONLY, SIMULATED
from privote.polls import PollResult, Share
from privote.polls.planning import PollPlan
from privote.polls.poll import UNCERTAIN, marked

from .page import Bar, Block, Section, TableBlock, listed, render_page
from .tables import bill

Plans = Mapping[str, Sequence[PollPlan]]  # for winners alone, or with shares: one an epsilon

UNCOUNTED = (
    "No ledger: the budget covers this poll only. Each further poll of the same people adds to it."
)
_SHOWN = 25  # rows that fit on the sheet
_LISTED = 6  # winners in a table; more are a list in columns
_CALLS = {"above": "above the quota", "below": "not above the quota"}
_PROMISED = ("epsilon", "delta", "total", "budget", "protects", "meaning", "made_at", "drawn")


def poll_bill(result: PollResult, output: Path | None) -> dict[str, str]:
    """Return the bill of a poll."""
    publish = "publish the winners" if output is None else f"publish {output / 'poll.html'}"
    return bill(
        result.guarantee,
        result=result.brief()["winners"],
        quality=f"decides {result.plan.decides}",
        following=f"{publish}; --verbose shows the statement",
    )


def poll_page(result: PollResult) -> str:
    """Return the page to publish: nothing that was not paid for, and no true count."""
    sections: list[Section] = []
    guarantee, voters = result.guarantee, f"{result.plan.size.voters:,}"
    for question, part in result.by_question():
        lead = f"{question}: " if question else ""
        sections.append(Section(heading=f"{lead}Winners", blocks=_winners(part)))
        if part.shares is not None:
            sections.append(Section(heading=f"{lead}Shares", blocks=_shares(part, part.shares)))
    rows = [row for row in guarantee.rows() if row.key in _PROMISED]
    notes = " ".join(f"{note[:1].upper()}{note[1:]}." for note in guarantee.notes)
    digest = f"Digest of this outcome: {result.facts()['digest']}"
    blocks: list[Block] = [listed(rows, "The guarantee."), notes, digest]
    sections.append(Section(heading="What is promised", blocks=blocks))
    notices = [SIMULATED] if guarantee.simulated else []
    notices += [result.plan.chance] if result.plan.chance else []
    notices += [UNCOUNTED] if guarantee.standing is None else []
    who = f"{voters} ballots" if result.roll is None else f"{voters} people voted"
    public = "" if result.roll is None else " Who voted is public; how they voted is not."
    return render_page(
        title=result.title,
        intro=f"{who} on {len(result.options):,} options. Ballots stay secret; noise was added "
        f"before anything was written here.{public}",
        sections=sections,
        notices=notices,
        one_sheet=True,
    )


def owner_view(result: PollResult) -> str:
    """Return the true counts, for the owner's eyes: a page of its own that must not leave."""
    released = {share.option: share.count for share in result.shares or ()}
    counts = dict(zip(result.options, result.sealed.counts.tolist(), strict=True))
    rows = [
        {
            "option": name,
            "true count": counts[name],
            "released": released.get(name),
            "won": "yes" if name in result.winners else "",
            "wins without noise": "yes" if name in result.sealed.winners else "",
            "may be shown": OWNER_ONLY,
        }
        for name in sorted(counts, key=lambda name: -counts[name])
    ]
    texts = (
        f"Tied for the last seat: {', '.join(result.sealed.ties) or 'none'}.",
        f"Ballots that broke the poll's rule and count as empty: {result.sealed.emptied}.",
    )
    table = TableBlock(caption="True and released.", rows=rows)
    return render_page(
        title=f"For the owner's eyes: {result.title}",
        intro="True counts. They are not covered by epsilon and delta: do not publish this page.",
        sections=[Section(heading="True counts", blocks=[table, *texts])],
        sealed=True,
    )


def _winners(result: PollResult) -> list[Block]:
    if not result.winners:
        return [f"No option won. Rule: {result.plan.outcome.describe()}."]
    ranked, unsure = result.shares is not None, result.uncertain
    caption = f"Rule: {result.plan.outcome.describe()}."
    if not ranked and len(result.winners) > 1:
        caption += " Listed in the poll's order: their ranking is not published."
    if unsure:
        caption += " Uncertain winners might not have won without the noise."
    if len(result.winners) > _LISTED:
        return [tuple(marked(result)), caption]
    rows = []
    for place, name in enumerate(result.winners, 1):
        row: dict[str, Any] = {"": place, "option": name} if ranked else {"option": name}
        if result.plan.judges:
            row["seat"] = UNCERTAIN if name in unsure else "decided"
        rows.append(row)
    return [TableBlock(caption=caption, rows=rows)]


def share_rows(result: PollResult, *, drawn: bool = False) -> list[dict[str, Any]]:
    """Return released shares as rows of a table; on a page, with a drawing of each."""
    shares, each = result.shares or (), result.plan.size.each
    ahead = ["ahead of the next" if call.decided else "" for call in result.calls]
    decided = [
        ", ".join(filter(None, (_CALLS.get(share.call or ""), call)))
        for share, call in zip(shares, [*ahead, ""], strict=True)
    ]
    return [
        {
            "option": share.option,
            **({"": Bar(share.share / each, share.low / each, share.high / each)} if drawn else {}),
            "share": _share(share.share, each),
            "interval": f"{_share(share.low, each)} to {_share(share.high, each)}",
            **({"decided": words} if any(decided) else {}),
        }
        for share, words in zip(shares, decided, strict=True)
    ]


def _shares(result: PollResult, shares: Sequence[Share]) -> list[str | TableBlock]:
    sure, each = f"{100 * result.plan.confidence:g} %", result.plan.size.each
    close = sum(not call.decided for call in result.calls)
    unit = "of the voters" if each == 1 else "in points per voter"
    blocks: list[str | TableBlock] = [
        TableBlock(
            caption=f"Shares, {unit}. Lines are intervals; with {sure} all hold at once.",
            rows=share_rows(result, drawn=True)[:_SHOWN],
        ),
        f"Of {len(result.calls)} adjacent pairs, {len(result.calls) - close} are decided and "
        f"{close} are too close to call: released counts must be more than {result.plan.apart:,} "
        f"apart ({sure} confidence for all pairs at once).",
    ]
    if len(shares) > _SHOWN:
        blocks.append(f"{len(shares) - _SHOWN} more options are in poll.json.")
    return blocks


def _share(share: float, each: int) -> str:
    return f"{100 * share:.1f} %" if each == 1 else f"{share:.2f}"


def plan_rows(asked: Sequence[float], plans: Plans) -> list[dict[str, str]]:
    """Return what each epsilon buys as the rows of a table: for winners alone, and with shares."""
    rows = []
    for place, epsilon in enumerate(asked):
        row = {"epsilon": rounded_up(epsilon)}
        for name, several in plans.items():
            plan = several[place]
            row[f"{name}: decides"] = f"{_both(plan.gap, plan)} ({plan.mechanism.name})"
            if plan.shares and plan.interval is not None:
                row["intervals"] = f"± {_both(plan.interval, plan)}"
        rows.append(row)
    return rows


def _both(votes: float, plan: PollPlan) -> str:
    if plan.size.each > 1:
        return f"{votes:,.0f} points"
    return f"{votes:,.0f} votes, {100 * votes / plan.size.voters:.2g} %"

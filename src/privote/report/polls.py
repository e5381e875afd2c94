"""The page of a poll, to publish on one sheet; the owner's view apart; and the rows of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from privote.accounting.renyi import rounded_up
from privote.errors import InputError
from privote.files import complete
from privote.guarantees import OWNER_ONLY, SIMULATED
from privote.polls import PollResult, Share
from privote.polls.planning import PollPlan
from privote.polls.result import UNCERTAIN, marked

from .page import Bar, Facts, Section, TableBlock, render_page

Plans = Mapping[str, Sequence[PollPlan]]  # for winners alone, or with shares: one an epsilon

_SHOWN = 25  # rows that fit on the sheet
_LISTED = 6  # winners in a table; more are one paragraph
_CALLS = {"above": "above the quota", "below": "not above the quota"}


def poll_page(result: PollResult) -> str:
    """Return the page to publish: nothing that was not paid for, and no true count."""
    sections: list[Section] = []
    for question, part in result.by_question():
        lead = f"{question}: " if question else ""
        facts = [] if sections else [_facts(result)]
        sections.append(Section(heading=f"{lead}Winners", blocks=[_winners(part), *facts]))
        if part.shares is not None:
            sections.append(Section(heading=f"{lead}Shares", blocks=_shares(part, part.shares)))
    words = [f"{row.name}: {row.text}." for row in result.guarantee.rows()]
    sections.append(Section(heading="What is promised", blocks=[*words, *result.notes]))
    whose = "ballots" if result.roll is None else "people voted"
    notices = [SIMULATED] if result.guarantee.simulated else []
    if result.plan.chance:
        notices.append(result.plan.chance)
    return render_page(
        title=result.title,
        intro=f"{result.plan.size.voters:,} {whose} on {len(result.options):,} options. Ballots "
        "stay secret; noise was added before anything was written here.",
        sections=sections,
        notices=notices,
        one_sheet=True,
    )


def pages(folder: str | Path, *, owner: bool = False, force: bool = False) -> dict[str, Path]:
    """Return the files that a poll's pages will be; refuse those that are there already.

    ``poll.html`` to publish and ``poll.json`` with the same numbers; with ``owner`` also a page for
    the owner's eyes, which only the owner may read: beside the folder (:func:`owners_page`), since
    a folder is published whole.
    """
    place = Path(folder)
    files = {"json": place / "poll.json", "html": place / "poll.html"}
    if owner:
        files["owner"] = owners_page(place)
    for file in files.values():
        if file.exists() and not force:
            raise InputError("output", f"{str(file)!r} exists; give `force=True` to overwrite it")
    return files


def write_pages(files: Mapping[str, Path], result: PollResult, *, force: bool = False) -> None:
    """Write what :func:`pages` named, durably."""
    texts = {"json": PollResult.json, "html": poll_page, "owner": owner_view}
    for what, file in files.items():
        with complete(file, force=force, owner_only=what == "owner") as part:
            part.write_text(texts[what](result), encoding="utf-8")


def owners_page(folder: str | Path) -> Path:
    """Return where the owner's view lies: beside the folder that is published, called after it."""
    place = Path(folder)
    name = place.resolve().name or "poll"
    return (place / ".." if place.name in ("", "..") else place.parent) / f"{name}-owner.html"


def owner_view(result: PollResult) -> str:
    """Return the true counts, for the owner's eyes: a page of its own that must not leave."""
    released = {} if result.shares is None else {s.option: s.count for s in result.shares}
    won, true = set(result.winners), set(result.sealed.winners)
    rows = [
        {
            "option": name,
            "true count": int(count),
            "released": released.get(name),
            "won": "yes" if name in won else "",
            "wins without noise": "yes" if name in true else "",
            "may be shown": OWNER_ONLY,
        }
        for name, count in sorted(
            zip(result.options, result.sealed.counts.tolist(), strict=True),
            key=lambda pair: -pair[1],
        )
    ]
    emptied = result.sealed.emptied
    return render_page(
        title=f"For the owner's eyes: {result.title}",
        intro="True counts. They are not covered by epsilon and delta: do not publish this page.",
        sections=[
            Section(
                heading="True counts",
                blocks=[
                    TableBlock(caption="True and released.", rows=rows),
                    f"Tied for the last seat: {', '.join(result.sealed.ties) or 'none'}.",
                    f"Ballots that broke the poll's rule and were counted as empty: {emptied}.",
                ],
            )
        ],
        sealed=True,
    )


def _winners(result: PollResult) -> TableBlock | str:
    if not result.winners:
        return f"No option won. Rule: {result.plan.outcome.describe()}."
    ranked, unsure = result.shares is not None, result.uncertain
    caption = f"Rule: {result.plan.outcome.describe()}."
    if not ranked and len(result.winners) > 1:
        caption += " Listed in the poll's order: their ranking is not published."
    if unsure:
        caption += " Uncertain winners might not have won without the noise."
    if len(result.winners) > _LISTED:
        return f"{'; '.join(marked(result))}. {caption}"
    rows = []
    for place, name in enumerate(result.winners, 1):
        row = {"": place, "option": name} if ranked else {"option": name}
        if result.plan.judges:
            row["seat"] = UNCERTAIN if name in unsure else "decided"
        rows.append(row)
    return TableBlock(caption=caption, rows=rows)


def _facts(result: PollResult) -> Facts:
    return Facts(
        values={
            "voters": result.plan.size.voters,
            "options": len(result.options),
            "winners": len(result.winners),
            "epsilon, delta": f"{rounded_up(result.epsilon, 4)}, {rounded_up(result.delta)}",
        }
    )


def _shares(result: PollResult, shares: Sequence[Share]) -> list[str | TableBlock]:
    sure, each = f"{100 * result.plan.confidence:g} %", result.plan.size.each
    close = sum(not call.decided for call in result.calls)
    ahead = ["ahead of the next" if call.decided else "" for call in result.calls]
    decided = [
        ", ".join(filter(None, (_CALLS.get(share.call or ""), call)))
        for share, call in zip(shares, [*ahead, ""], strict=True)
    ]
    rows = [
        {
            "option": share.option,
            "": Bar(share.share / each, share.low / each, share.high / each),
            "share": _share(share.share, each),
            "interval": f"{_share(share.low, each)} to {_share(share.high, each)}",
            **({"decided": words} if any(decided) else {}),
        }
        for share, words in zip(shares, decided, strict=True)
    ]
    unit = "of the voters" if each == 1 else "in points per voter"
    blocks: list[str | TableBlock] = [
        TableBlock(
            caption=f"Shares, {unit}. Lines are intervals; with {sure} all hold at once.",
            rows=rows[:_SHOWN],
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

"""What a run leaves: one page with every claim, a CSV for each, and a summary in Markdown."""

from __future__ import annotations

import csv
import json
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from privote.report import Command, Section, TableBlock, write_page
from privote.report.blocks import Block, drawn
from privote.report.plots import by_parameter

from .electorates import match
from .kinds import Bench, Plot
from .runner import Result, counted

INTRO = (
    "Every theorem, table, figure and algorithm of Private Multi-Winner Voting for Machine "
    "Learning: what the paper says, what was measured here, and whether it holds. Where the "
    "accounting differs both are shown: the paper's (Theorem 6 of PATE 2018, the conversion of "
    "2017, stopping when the budget is used up) and the exact cost."
    "\n\n"
    "Where the paper's data is not at hand an electorate made after its published statistics "
    "stands in for it; a verdict says so. Brackets hold the lowest and highest of the seeds. "
    "Queries counted by data-dependent cost compare accountants: such a count must not be released."
)


def write(folder: Path, results: Sequence[Result], bench: Bench, command: str) -> dict[str, Any]:
    """Write page, CSVs and summary into the folder; return what a caller shows."""
    folder.mkdir(parents=True, exist_ok=True)
    sections = [_overview(results), *(_section(result) for result in results)]
    if any("made" in result.claim.data for result in results):
        sections.insert(1, _stand_ins())
    page = write_page(
        folder / "paper.html", title="The paper, claim by claim", intro=INTRO, sections=sections
    )
    tables = folder / "csv"
    tables.mkdir(exist_ok=True)
    for result in results:
        if result.measured is not None and result.measured.rows:
            _write_csv(tables / f"{file_name(result.claim.key)}.csv", result.measured.rows)
    facts = {
        "command": command,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python "
        f"{platform.python_version()}",
        "profile": bench.profile,
        "seconds": round(sum({r.claim.measure: r.seconds for r in results}.values())),
        "verdicts": counted(results),
        "claims": [
            {
                "key": r.claim.key,
                "kind": r.claim.kind,
                "verdict": r.verdict[0],
                "reason": r.verdict[1],
            }
            for r in results
        ],
        "page": str(page),
    }
    _write_csv(folder / "verdicts.csv", facts["claims"])
    (folder / "paper.md").write_text(markdown(results, facts), encoding="utf-8")
    text = json.dumps(facts, indent=2, ensure_ascii=False)
    (folder / "summary.json").write_text(text + "\n", encoding="utf-8")
    return facts


def file_name(key: str) -> str:
    """Return a claim's key as the name of a file."""
    return key.replace(":", "-").replace("#", "-")


def _overview(results: Sequence[Result]) -> Section:
    number = counted(results)
    return Section(
        heading="All verdicts",
        blocks=[
            "; ".join(f"{word}: {count}" for word, count in number.items()) + ".",
            TableBlock(
                caption="Every claim and its verdict.",
                rows=[
                    {
                        "claim": r.claim.title,
                        "kind": r.claim.kind,
                        "verdict": r.verdict[0],
                        "data": r.claim.data,
                        "key": r.claim.key,
                    }
                    for r in results
                ],
            ),
        ],
    )


def _stand_ins() -> Section:
    rows = [
        {"electorate": name, "statistic": what, "published": told, "made": ours}
        for name in ("voc", "chexpert")
        for what, (told, ours) in match(name).items()
    ]
    return Section(
        heading="The electorates that stand in",
        blocks=[
            "Rows of labels have the greatest entropy among those with the published frequencies, "
            "pairs and numbers of labels; votes are signal, noise that all voters share, and noise "
            "of their own, set to the published accuracies and gaps. experiments/paper/"
            "electorates.py makes them.",
            TableBlock(
                caption="How well they match. For the matrices: differences to the published "
                "entries. For Binary's gaps the paper says: most of them.",
                rows=rows,
            ),
        ],
    )


def _section(result: Result) -> Section:
    claim, (word, reason) = result.claim, result.verdict
    blocks: list[Block] = [
        f"What the paper says: {claim.says}",
        f"Its figures: {claim.paper}.",
        f"Measured on: {claim.data}.",
        f"Verdict: {word}. {reason}",
    ]
    if result.measured is not None:
        if result.measured.rows:
            blocks.append(TableBlock(caption=f"{claim.title}: ours.", rows=result.measured.rows))
        blocks += [_figure(plot) for plot in result.measured.plots]
    blocks.append(Command(text=claim.command))
    return Section(heading=f"{claim.title} ({claim.kind})", blocks=blocks)


def _figure(plot: Plot) -> Block:
    return drawn(
        plot.title + ".",
        lambda: by_parameter(plot.series, title=plot.title, parameter=plot.x, quantity=plot.y),
    )


def _write_csv(path: Path, rows: Sequence[Any]) -> None:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, keys, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def markdown(results: Sequence[Result], facts: dict[str, Any]) -> str:
    """Return the summary that is kept in the repository."""
    number = "; ".join(f"{word} {count}" for word, count in facts["verdicts"].items())
    lines = [
        "# The paper, claim by claim",
        "",
        "<!-- Written by `privote paper`; do not edit. -->",
        "",
        'Every theorem, table, figure and algorithm of "Private Multi-Winner Voting for Machine '
        'Learning", and whether it holds here. "Paper\'s accounting" and "exact" stand side by '
        "side wherever they differ; the page that the command writes has tables, plots and how "
        "well the stand-in electorates match.",
        "",
        "```text",
        f"command: {facts['command']}",
        f"date:    {facts['date']}",
        f"machine: {facts['machine']}; profile {facts['profile']}, {facts['seconds']} s of work",
        f"verdicts: {number}",
        "```",
        "",
        "| claim | the paper | verdict | here |",
        "|---|---|---|---|",
    ]
    for r in results:
        cells = (
            f"{r.claim.title} (`{r.claim.key}`)",
            f"{r.claim.says} *{r.claim.paper}*",
            f"**{r.verdict[0]}**",
            r.verdict[1],
        )
        shown = (cell.replace("|", "/").replace("\n", " ") for cell in cells)
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"

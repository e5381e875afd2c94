"""What a run leaves: one page with every claim, a CSV for each, and a summary in Markdown."""

from __future__ import annotations

import ast
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
from .kinds import Bench, Plot, write_whole
from .runner import Result, counted, measurement

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
    sections = [_overview(results), *(_section(result) for result in results), _beyond()]
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
    for result in results:
        if bench.full and result.claim.slow and result.measured is not None:
            (folder / "slow").mkdir(exist_ok=True)
            kept = {"date": facts["date"], "measured": result.measured.plain()}
            write_whole(folder / "slow" / f"{measurement(result.claim)}.json", kept)
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
                caption="Every claim, its verdict, and the processor's seconds. Claims that share "
                "a measurement show it each; 0 is what an earlier full run measured.",
                rows=[
                    {
                        "claim": r.claim.title,
                        "kind": r.claim.kind,
                        "verdict": r.verdict[0],
                        "data": r.claim.data,
                        "seconds": round(r.seconds, 1),
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


def beyond() -> list[dict[str, str]]:
    """Return what else is measured beside the paper: script, what it measures, what is kept."""
    rows = []
    for path in sorted(Path(__file__).parents[1].glob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "__main__" in source:
            kept = path.parent / "results" / f"{path.stem}.txt"
            rows.append(
                {
                    "command": f"python experiments/{path.name}",
                    "measures": str(ast.get_docstring(ast.parse(source))).partition("\n")[0],
                    "kept": f"experiments/results/{kept.name}" if kept.is_file() else "–",
                }
            )
    return rows


def _beyond() -> Section:
    table = TableBlock(caption="Scripts, what they measure, and their last output.", rows=beyond())
    return Section(heading="Beyond the paper", blocks=["Measured about privote itself.", table])


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
        "side wherever they differ. The command under a title measures that claim alone; the link "
        "has all of its figures, with the lowest and highest of the seeds in brackets. The page "
        "that the command writes (`build/paper/paper.html`) has the same as tables and plots, and "
        "how well the stand-in electorates match.",
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
        has_rows = r.measured is not None and r.measured.rows
        link = f"../experiments/paper/results/{file_name(r.claim.key)}.csv"
        cells = (
            f"{r.claim.title}<br>`{r.claim.command}`"
            + (f"<br>[all figures]({link})" if has_rows else ""),
            f"{r.claim.says} *{r.claim.paper}*",
            f"**{r.verdict[0]}**",
            r.verdict[1],
        )
        shown = (cell.replace("|", "/").replace("\n", " ") for cell in cells)
        lines.append(f"| {' | '.join(shown)} |")
    lines += ["", "Measured beyond the paper, about privote itself:", ""]
    lines += ["| command | measures | last output |", "|---|---|---|"]
    lines += [f"| `{b['command']}` | {b['measures']} | {_link(b['kept'])} |" for b in beyond()]
    return "\n".join(lines) + "\n"


def _link(kept: str) -> str:
    return kept if kept == "–" else f"[{kept.rpartition('/')[2]}](../{kept})"

"""What a run leaves: one page with every claim, the same in Markdown, pictures, and a CSV each."""

from __future__ import annotations

import ast
import csv
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from privote.report import Command, Facts, Figure, Section, TableBlock, write_page
from privote.report.page import Block, drawn

from . import markdown
from .claims import CLAIMS, PARTS, PLACES
from .data import AIMS, fit
from .kinds import Bench
from .pictures import drawing
from .runner import Result, counted
from .sources import described
from .telling import file_name, first_with, remarks, tables, worded

INTRO = (
    "Every theorem, table, figure and algorithm of Private Multi-Winner Voting for Machine "
    "Learning, and what its text claims beside them: what the paper says, what was measured here, "
    "and whether it holds. Where the accounting differs both are shown: the paper's (Theorem 6 of "
    "PATE 2018, the conversion of 2017, stopping when the budget is used up) and the exact cost."
    "\n\n"
    "Votes on Pascal VOC and tmc2007 are real. Votes on CheXpert and PadChest are made from their "
    "owners' label files, on MIMIC-CXR from published statistics; how near they are stands at the "
    "end. Brackets hold the lowest and highest of the seeds; hollow marks in plots are the paper's "
    "own numbers. L2-DI and L1-DI are Tau voting, clipped in l2 or l1, at the price that looks at "
    "no vote; the AUC of labels without probabilities is their BAC. Queries counted by "
    "data-dependent cost compare accountants: such a count must not be released."
)
DATA = "The data, where it was found, and the claims that use it."
FITS = (
    "How near electorates are to the paper's: published, and here. Queries are Binary's at ε = 20 "
    "in the paper's accounting, with σ = 7 (MIMIC 10). Made ones were fitted to these, CheXpert "
    "also to Table 10's 35."
)


def write(folder: Path, results: Sequence[Result], bench: Bench, command: str) -> dict[str, Any]:
    """Write page, Markdown, pictures and CSVs into the folder; return what a caller shows."""
    sheets, pictures = folder / "csv", folder / markdown.PICTURES
    for one in (sheets, pictures):
        one.mkdir(parents=True, exist_ok=True)
    by_key = {result.claim.key: result for result in results}
    in_parts = [by_key[key] for keys in PARTS.values() for key in keys if key in by_key]
    figures = {key: _figure(result) for key, result in by_key.items()}
    found = data_found(bench, [result.claim.key for result in results])
    fits = electorates_fit(bench) if len(results) > len(CLAIMS) // 2 else []
    sections = [_overview(in_parts), *_claims(in_parts, figures), _beyond()]
    for heading, caption, rows in (("Data", DATA, found), ("Electorates", FITS, fits)):
        if rows:
            blocks: list[Block] = [TableBlock(caption=caption, rows=rows)]
            sections.insert(-1, Section(heading=heading, blocks=blocks))
    page = write_page(
        folder / "paper.html",
        title="The paper, claim by claim",
        intro=INTRO,
        sections=sections,
    )
    for result in results:
        name = file_name(result.claim.key)
        if result.measured is not None and result.measured.rows:
            _write_csv(sheets / f"{name}.csv", result.measured.rows)
        figure = figures[result.claim.key]
        if isinstance(figure, Figure):
            (pictures / f"{name}.svg").write_text(figure.svg + "\n", encoding="utf-8")
    facts = _facts(results, bench, command) | {"page": str(page)}
    _write_csv(folder / "verdicts.csv", facts["claims"])
    shown = [key for key, figure in figures.items() if isinstance(figure, Figure)]
    behind = {"Data": (DATA, found), "Electorates": (FITS, fits)}
    text = markdown.page(in_parts, shown, facts, INTRO, behind, beyond())
    (folder / "paper.md").write_text(text, encoding="utf-8")
    summary = json.dumps(facts, indent=2, ensure_ascii=False)
    (folder / "summary.json").write_text(summary + "\n", encoding="utf-8")
    return facts


def _facts(results: Sequence[Result], bench: Bench, command: str) -> dict[str, Any]:
    """Return what a run was, and every verdict."""
    return {
        "command": command,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
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
    }


def _commit() -> str:
    """Return the commit that this was measured with, and whether files differ from it."""
    words = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    if shutil.which("git") is None:
        return "unknown"
    done = subprocess.run([*words, "--exclude=*"], capture_output=True, check=False, text=True)
    return done.stdout.strip() or "unknown"


def _overview(results: Sequence[Result]) -> Section:
    return Section(
        heading="All verdicts",
        blocks=[
            Facts(values=counted(results)),
            TableBlock(
                caption="Every claim, its verdict, and the processor's seconds. Claims that share "
                "a measurement show it each.",
                rows=[
                    {
                        "in the paper": PLACES[r.claim.key],
                        "claim": r.claim.title,
                        "verdict": r.verdict[0],
                        "seconds": round(r.seconds, 1),
                    }
                    for r in results
                ],
            ),
        ],
    )


def _claims(results: Sequence[Result], figures: Mapping[str, Block | None]) -> Iterator[Section]:
    part_of = {key: part for part, keys in PARTS.items() for key in keys}
    earlier, part = first_with(results), ""
    for result in results:
        claim = result.claim
        blocks: list[Block] = [f"{lead} {text}" for lead, text in remarks(result)]
        figure = figures[claim.key]
        blocks += [] if figure is None else [figure]
        if claim.key in earlier:
            blocks.append(f"Its table stands under {PLACES[earlier[claim.key]]}.")
        elif result.measured is not None:
            blocks += [_measured(rows, claim.key) for rows in tables(result.measured.rows)]
        blocks.append(Command(text=claim.command))
        if part_of[claim.key] != part:
            part = part_of[claim.key]
            yield Section(heading=part)
        yield Section(heading=f"{PLACES[claim.key]}: {claim.title}", blocks=blocks)


def _measured(rows: Sequence[Any], key: str) -> TableBlock:
    """Return what was measured; of a long table the first rows."""
    caption = "Measured here."
    if len(rows) > markdown.MOST:
        caption = (
            f"Measured here: the first {markdown.MOST} of {len(rows)} rows; all of them are in "
            f"csv/{file_name(key)}.csv."
        )
    return TableBlock(caption=caption, rows=rows[: markdown.MOST])


def _figure(result: Result) -> Block | None:
    """Return a claim's picture, the sentence that says what drawing it needs, or None."""
    if result.measured is None:
        return None
    draw = drawing(result.claim.key, result.measured)
    return None if draw is None else drawn(f"{result.claim.title}.", draw)


def data_found(bench: Bench, keys: Sequence[str] | None) -> list[dict[str, str]]:
    """Return a row for each data set: where it was found, and the claims that use it."""
    used: dict[str, list[str]] = {}
    for claim in CLAIMS:
        for name in claim.sources if keys is None or claim.key in keys else ():
            used.setdefault(name, []).append(PLACES[claim.key])
    return [
        {
            "data": name,
            "found": described(bench.data, name) or "not found",
            "used by": ", ".join(places),
        }
        for name, places in used.items()
    ]


def electorates_fit(bench: Bench) -> list[dict[str, str]]:
    """Return a row for each electorate: every statistic as published, and here."""
    rows = []
    for name in AIMS:
        row = {"electorate": worded(name)}
        for what, (told, ours) in fit(name, bench.data).items():
            digits = 3 if ours < 1 else 0
            row[what] = f"{'–' if told is None else f'{told:g}'}; {ours:.{digits}f}"
        rows.append(row)
    return rows


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
    return Section(
        heading="Beyond the paper",
        blocks=["Measured about privote itself.", table],
    )


def _write_csv(path: Path, rows: Sequence[Any]) -> None:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, keys, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)

"""The page in Markdown, as it is kept in docs/: an overview, then one section a claim."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from privote.report.tables import cell, columns_of, is_numeric

from .claims import PARTS, PLACES
from .kinds import FAILS
from .runner import Result
from .telling import Row, file_name, first_with, remarks, tables

#: Where pictures are, seen from the page, here and in docs/.
PICTURES = "pictures/paper"
RESULTS = "../experiments/paper/results"
MOST = 6  # rows of a table; of a longer one the picture, or the file, shows more
LONG = 13  # of the tables of the paper, and of ours
WIDEST = 8  # columns, beside a picture

_SPREAD = re.compile(r"^(-?[\d.,]+) \[(.*), (.*)\]$")


def page(
    results: Sequence[Result],
    pictures: Collection[str],
    facts: Mapping[str, Any],
    intro: str,
    behind: Mapping[str, tuple[str, Sequence[Row]]],
    beyond: Sequence[Mapping[str, str]],
) -> str:
    """Return the whole page.

    Parameters
    ----------
    results
        What was found, in the order of the page.
    pictures
        Keys of the claims that were drawn.
    facts
        Of the run: command, date, machine, profile, seconds, verdicts.
    intro
        What stands on top.
    behind
        Tables about data and electorates: heading -> what it is, rows.
    beyond
        What else is measured, about privote itself.
    """
    by_key = {result.claim.key: result for result in results}
    parts = {p: [by_key[k] for k in keys if k in by_key] for p, keys in PARTS.items()}
    parts = {part: found for part, found in parts.items() if found}
    lines = [
        "# The paper, claim by claim",
        "",
        "<!-- Written by `python -m experiments.paper`; do not edit. -->",
        "",
        intro,
        "",
        "```text",
        f"command:  {facts['command']}",
        f"date:     {facts['date']}, commit {facts['commit']}",
        f"machine:  {facts['machine']}",
        f"profile:  {facts['profile']}, {facts['seconds']} s of the processor",
        "verdicts: " + ", ".join(f"{word} {n}" for word, n in facts["verdicts"].items()),
        "```",
        "",
        *_overview(parts),
    ]
    earlier = first_with(results)
    for part, found in parts.items():
        lines += ["", f"## {part}"]
        for result in found:
            key = result.claim.key
            lines += ["", *_section(result, key in pictures, earlier.get(key))]
    for heading, (what, rows) in behind.items():
        lines += ["", f"## {heading}", "", what, "", *_table(rows)] if rows else []
    lines += ["", "## Beyond the paper", "", "Measured about privote itself:", ""]
    lines += ["| command | measures | last output |", "|---|---|---|"]
    lines += [f"| `{b['command']}` | {b['measures']} | {_link(b['kept'])} |" for b in beyond]
    return "\n".join(lines) + "\n"


def _overview(parts: Mapping[str, Sequence[Result]]) -> Iterator[str]:
    yield "| in the paper | claim | verdict |"
    yield "|---|---|---|"
    for part, found in parts.items():
        yield f"| | **{part}** | |"
        for result in found:
            claim = result.claim
            link = f"[{_plain(claim.title)}](#{file_name(claim.key)})"
            word = result.verdict[0]
            shown = f"**{word}**" if word == FAILS else word
            yield f"| {PLACES[claim.key]} | {link} | {shown} |"


def _section(result: Result, drawn: bool, earlier: str | None) -> Iterator[str]:
    claim, name = result.claim, file_name(result.claim.key)
    yield f'<a id="{name}"></a>'
    yield ""
    yield f"### {PLACES[claim.key]}: {claim.title}"
    *said, (_, data) = remarks(result)
    for lead, text in said:
        yield ""
        yield f"**{lead}** {_plain(text)}"
    if drawn:
        yield ""
        yield f"![{_plain(claim.title)}]({PICTURES}/{name}.svg)"
    rows = () if result.measured is None else result.measured.rows
    parts = [] if earlier else tables(rows)
    most = LONG if claim.kind in ("table", "ours") else MOST
    shown = [
        part[:most]
        for part in parts
        if not drawn or (len(part) <= most and len(columns_of(part, None)) <= WIDEST)
    ]
    for part in shown:
        yield ""
        yield from _table(part)
    yield ""
    if earlier:
        under = f", table under [{PLACES[earlier]}](#{file_name(earlier)})"
    elif rows:
        whole = len(rows) == sum(map(len, shown))
        what = "CSV" if whole else f"all {len(rows)} rows"
        under = f" ([{what}]({RESULTS}/{name}.csv))"
    else:
        under = ""
    yield f"On {_plain(data.removesuffix('.'))}: `{claim.command}`{under}."


def _table(rows: Sequence[Row]) -> Iterator[str]:
    columns = columns_of(rows, None)
    sides = ["--:" if is_numeric(rows, column.key) else "---" for column in columns]
    yield f"|{'|'.join(_plain(column.title) for column in columns)}|"
    yield f"|{'|'.join(sides)}|"
    for row in rows:
        cells = (_plain(cell(row.get(c.key), c.digits, cost=c.costs)) for c in columns)
        # A cell that holds a range takes two lines, so that a table fits a page.
        broken = (_SPREAD.sub(r"\1<br><sub>[\2,&nbsp;\3]</sub>", text) for text in cells)
        yield f"|{'|'.join(broken)}|"


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is, also inside a table; pages of docs/ are links."""
    return re.sub(r"docs/([\w-]+\.md)", r"[\1](\1)", re.sub(r"([|*_<>`])", r"\\\1", text))


def _link(kept: str) -> str:
    return kept if kept == "–" else f"[{kept.rpartition('/')[2]}](../{kept})"

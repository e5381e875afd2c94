"""The page: the abstract's five claims, one table, misprints; all from what is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Any

from .claims import CLAIMS, HOLDS, PART, UNTESTED, Claim

RESULTS = "../experiments/paper/results"
TEMPLATE = Path(__file__).parent / "template.md"


def command_of(claim: Claim, *, profile: str = "full") -> str:
    """Return the command that measures one claim."""
    folder = "--authors DIR" if claim.key == "code" else "--data DIR"
    return f"python -m experiments.paper --only {claim.key} {folder} --profile {profile}"


class _Cells(Formatter):
    """Formats facts; one that was not measured, for lack of data, is a dash."""

    def get_field(self, name: str, args: Any, facts: Any) -> tuple[Any, Any]:
        try:
            return super().get_field(name, args, facts)
        except KeyError:
            return None, name

    def format_field(self, value: Any, spec: str) -> str:
        return "–" if value is None else str(super().format_field(value, spec))


def cell(text: str, facts: Mapping[str, Any]) -> str:
    """Return a cell of the table, filled with facts and safe inside Markdown."""
    return _Cells().vformat(text, (), facts).replace("|", "\\|")


def verdict(claim: Claim, facts: Mapping[str, Any]) -> str:
    """Return the verdict in words: the whole, and its parts by their own words."""
    word, parts = claim.verdict(facts)
    by_word: dict[str, list[str]] = {}
    for name, one in parts.items():
        by_word.setdefault(one, []).append(name)
    if len(by_word) > 1:
        told = "; ".join(f"{one}: {', '.join(names)}" for one, names in by_word.items())
        return f"**{word}** ({told})"
    return f"**{word}**" + (f" ({', '.join(parts)})" if word == UNTESTED else "")


def in_words(claim: Claim, facts: Mapping[str, Any]) -> str:
    """Return a claim's row as lines for a terminal."""
    cells = {"paper": claim.published, "paper's accounting": claim.account}
    cells |= {"exact": claim.exact, "elsewhere": claim.elsewhere}
    lines = [f"{claim.place}: {verdict(claim, facts).replace('**', '')}"]
    lines += [f"  {name}: {cell(text, facts)}" for name, text in cells.items() if text != "–"]
    return "\n".join(lines)


def page(kept: Mapping[str, Any]) -> str:
    """Return the whole page."""
    counts = Counter(one.verdict(kept[one.key]["facts"])[0] for one in CLAIMS if one.key in kept)
    counts["not run"] = sum(one.key not in kept for one in CLAIMS)
    total = ", ".join(
        f"{number} {word.removesuffix('s')}" for word, number in counts.most_common() if number
    )
    total += f"; of those in part, {_limited(kept)} hold on all data at hand"
    parts = {"abstract": abstract(kept), "table": table(kept)}
    filled = {name: "\n".join(lines) for name, lines in parts.items()}
    text = TEMPLATE.read_text(encoding="utf-8")
    dates = sorted({one["date"] for one in kept.values()}) or ["never"]
    when = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    seconds = round(sum(one["seconds"] for one in kept.values()))
    filled |= {"when": when, "seconds": f"{seconds:,}"}
    return text.format(total=f"{len(CLAIMS)} rows: {total}", **filled)


def _limited(kept: Mapping[str, Any]) -> int:
    """Return how many claims hold wherever they were tested, and were not tested everywhere."""
    verdicts = [one.verdict(kept[one.key]["facts"])[1] for one in CLAIMS if one.key in kept]
    return sum(set(parts.values()) == {HOLDS, UNTESTED} for parts in verdicts)


def abstract(kept: Mapping[str, Any]) -> Iterator[str]:
    """Yield the abstract's five claims: a sentence, a figure and a verdict each."""
    yield "| the abstract | measured | verdict |"
    yield "|---|---|---|"
    claims = {claim.key: claim for claim in CLAIMS}
    for line in ABSTRACT:
        if not set(line.keys) <= set(kept):
            yield f"| {line.says} | – | **not run** |"
            continue
        facts = {key: kept[key]["facts"] for key in line.keys}
        words = {claims[key].verdict(facts[key])[0] for key in line.keys}
        word = words.pop() if len(words) == 1 else PART
        named = {key.replace("-", "").replace(".", ""): one for key, one in facts.items()}
        yield f"| {line.says} | {cell(line.figure, named)} | **{word}** |"


def table(kept: Mapping[str, Any]) -> Iterator[str]:
    """Yield one row for each claim."""
    columns = ("claim", "paper", "ours, in the paper's accounting", "exact", "on the paper's data")
    yield f"| {' | '.join(columns)} | elsewhere | `--only` |"
    yield "|---|---|---|---|---|---|---|"
    for claim in CLAIMS:
        start = f"| **{claim.place}.** {claim.says}"
        if claim.key not in kept:
            yield f"{start} | – | – | – | **not run** | – | `{claim.key}` |"
            continue
        facts = kept[claim.key]["facts"]
        texts = (claim.published, claim.account, claim.exact)
        cells = [cell(text, facts) for text in texts]
        cells += [verdict(claim, facts), cell(claim.elsewhere, facts)]
        cells = ["" if text == "–" else text for text in cells]
        yield f"{start} | {' | '.join(cells)} | [`{claim.key}`]({RESULTS}/{claim.key}.csv) |"


@dataclass(frozen=True, kw_only=True)
class Headline:
    """One claim of the abstract: what it says, one figure, and the rows it rests on."""

    says: str
    figure: str
    keys: tuple[str, ...]


#: Facts of a row are named by its key, without hyphens and dots, in a headline's figure.
ABSTRACT = (
    Headline(
        says="Three mechanisms with a bounded privacy guarantee",
        figure="All are private, but not at the stated price: Theorem 6 bounds one direction, the "
        "other costs up to {theorem52[back]:.2f} times that. In total VOC's votes are charged too "
        "much: {code[ours]:.0f} queries (the authors' code {code[theirs]:.0f}), by exact cost "
        "{code[exact]:,.0f}",
        keys=("theorem-5.2", "code"),
    ),
    Headline(
        says="τ voting bounds votes optimally in l2, for tight data-independent guarantees",
        figure="A τ query costs {algorithm1[tau_code]:.2f} times its price. Clipping in l2 is "
        "{algorithm2[binary]:.1f} times cheaper than Binary, not > 6; clipping in l1 costs "
        "{algorithm2[l1]:.2f} of l2, at the paper's τ",
        keys=("algorithm-1", "algorithm-2"),
    ),
    Headline(
        says="Binary is competitive unless labels are strongly correlated; then Powerset wins",
        figure="VOC, 20 labels: Binary answers {figure3[voc_same][8]:.1f} times Powerset's queries "
        "at the paper's σ, {figure3[voc_paper][8]:.1f} at our σ of equal quality (by exact cost "
        "{figure3[voc_exact][8]:.1f}). Copies of one label: Powerset wins in "
        "{correlation[wins_paper]} of {correlation[settings]} settings (by exact cost "
        "{correlation[wins_exact]})",
        keys=("figure-3", "correlation"),
    ),
    Headline(
        says="Outperforms the state of the art on healthcare data and standard benchmarks",
        figure="VOC, ε = 20: AUC {table1[binary_pate_mixmatch_20]:.2f} for Binary PATE (the paper "
        ".85), {table1[powerset_pate_mixmatch_20]:.2f} for Powerset, but "
        "{table1[dpsgd_last_layer_20]:.2f} for DPSGD on the same public features. Five labels, "
        "ε = 8, thresholds by prevalence: Binary {table2[voc_binary_pate_by_prevalence]:.2f}, "
        "DPSGD {table2[voc_dpsgd]:.2f}. The healthcare pictures are not at hand",
        keys=("table-1", "table-2"),
    ),
    Headline(
        says="CaPC improves models of several sites significantly",
        figure="VOC, ε = 20: balanced accuracy {table4[twenty_bac]:+.3f} (the paper +.05). "
        "CheXpert and MIMIC-CXR are not at hand; ten sites of NIH X-rays gain "
        "{section66[after_bac]:+z.3f}, like the paper's PadChest",
        keys=("table-4", "section-6.6"),
    ),
)

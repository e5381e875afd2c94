"""The bill and the page of released labels.

What is said, and under which name, is the release's own list of facts: pages, statements and
terminals show the same list.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privote.errors import plural
from privote.guarantees import SIMULATED, Guarantee
from privote.mechanisms import ABSTAIN
from privote.mechanisms.base import Bools
from privote.posterior import Floats
from privote.release import Release, expected, forecast_in_words, queries_of, rows_of

from .page import Bar, Block, Section, TableBlock, listed, write_page
from .tables import bill, cost_in_words


def notices(guarantee: Guarantee, release: Release | None) -> list[str]:
    """Return what every reader must see first."""
    rows = [] if release is None else rows_of(release)
    warnings = [row.text for row in rows if row.key == "warnings"]
    return [SIMULATED, *warnings] if guarantee.simulated else warnings


def label_bill(release: Release, *, target: float, output: Path) -> dict[str, str]:
    """Return the bill of released labels."""
    told, ones = release.forecast, int((release.labels == 1).sum())
    quality = expected(release) if told is None else forecast_in_words(told)
    withheld = int((release.labels == ABSTAIN).sum())
    apart = f", {withheld:,} withheld" if withheld else ""
    return bill(
        release.guarantee,
        result=f"{queries_of(release)} on {plural(release.labels.shape[1], 'label')}: "
        f"{plural(ones, 'one')}{apart}",
        quality=quality,
        following=f"labels are in {output}; --verbose shows the whole bill",
        target=target,
    )


def write_label_page(path: Path, release: Release) -> Path:
    """Write a page about released labels: how good they are, and all that is promised."""
    facts = listed(rows_of(release), "Everything on this page may be published.")
    return write_page(
        path,
        title="Private labels",
        intro=_opening(release),
        sections=[
            labels_section(release),
            Section(heading="What was released, and its guarantee", blocks=[facts]),
        ],
        notices=notices(release.guarantee, release),
    )


def _opening(release: Release) -> str:
    """Return what a page begins with: what was released, at which price, and how good it is."""
    quality = f"\n\n{expected(release).removesuffix('.')}." if release.forecast is None else ""
    return (
        f"The votes of {plural(release.guarantee.voters, 'voter')} labelled {queries_of(release)}, "
        f"{cost_in_words(release.guarantee)}.{quality}"
    )


def labels_section(release: Release, names: Sequence[str] | None = None) -> Section:
    """Return how good labels are expected to be."""
    return Section(heading="Expected quality of the labels", blocks=labels_blocks(release, names))


def labels_blocks(release: Release, names: Sequence[str] | None = None) -> list[Block]:
    """Return how many ones each label has and how sure they are: from released numbers alone."""
    labels, chances, quality = release.labels, release.probabilities, release.quality
    rows = []
    for place, name in enumerate(names or named(release)):
        ones, held = labels[:, place] == 1, labels[:, place] == ABSTAIN
        row: dict[str, Any] = {"label": name, "ones": int(ones.sum())}
        row["share of ones"] = _percent(ones.sum() / max(1, (~held).sum()))
        if held.any():
            row["withheld"] = int(held.sum())
        if chances is not None:
            row["expected right"] = _percent(chances[ones, place].mean()) if ones.any() else None
        if quality is not None and chances is not None:
            row["ones missed"] = _missed(chances[:, place], ones)
            row["gain over a constant answer"] = _percent(quality["by_label"]["gain"][place])
        rows.append(row)
    caption = "Ones released per label"
    caption += "; the noise is included." if chances is None else ", and how certain they are."
    table = TableBlock(caption=caption, rows=rows)
    return [table] if chances is None else [certainty(release), table]


def certainty(release: Release) -> TableBlock:
    """Return how many labels have which probability, in tenths."""
    labels, chances = release.labels, release.probabilities
    assert chances is not None
    steps, rows = np.linspace(0, 1, 11), []
    sides = {decided: np.histogram(chances[labels == decided], steps)[0] for decided in (1, 0)}
    most = np.log1p(max(counts.max() for counts in sides.values()))
    for tenth in reversed(range(10)):
        for decided, counts in sides.items():
            if counts[tenth]:
                row = {"probability": f"between {tenth / 10:.1f} and {(tenth + 1) / 10:.1f}"}
                length = Bar(float(np.log1p(counts[tenth]) / most))
                rows.append(
                    {
                        **row,
                        "": length,
                        "labels": int(counts[tenth]),
                        "decided": f"decided {decided}",
                    }
                )
    return TableBlock(
        caption="Number of labels by the probability that most voters want them, given everything "
        "released (lengths are logarithmic). Near 0 or 1 a label is certain; near one half it is a "
        "guess: of the ones at 0.6, four in ten are expected to be wrong.",
        rows=rows,
    )


def named(release: Release) -> Sequence[str]:
    """Return the labels' names, or numbers for names."""
    return release.label_names or [f"label_{place}" for place in range(release.labels.shape[1])]


def _missed(chances: Floats, ones: Bools) -> str | None:
    """Say how many of the ones that are to be expected were not released; None if there are none.

    Not as a share: all of next to nothing is little.
    """
    missed, expected = round(chances[~ones].sum()), round(chances.sum())
    return f"{missed:,} of {expected:,}" if expected else None


def _percent(share: float) -> str:
    if 0 < share < 1e-4:
        return "below 0.01 %"
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"

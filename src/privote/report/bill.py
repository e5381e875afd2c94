"""What a release cost and promises, as rows for people; and what only its owner may see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privote.accounting.renyi import rounded_up
from privote.forecast import UNSEEN, Forecast
from privote.labelling import STOPPED
from privote.mechanisms import MECHANISMS
from privote.mechanisms.base import describe
from privote.release import Release
from privote.statements import expected_quality, headline, learnt

from .blocks import Block, Facts, Section, TableBlock, drawn, reasons_folded
from .page import write_page
from .plots import by_probability
from .tables import Column, cell, is_cost, mark

_SANITIZED = (
    "Epsilon is what labels and this number cost at most, with confidence {sure:g} (1 - gamma). It "
    "is about these votes and their neighbours; not differential privacy. The noise in it is "
    "sigma_s times the smooth sensitivity: how far the cost can move if one voter's ballots "
    "change, here or, counting less by exp(-beta) a ballot, nearby. price_2018 is for comparison "
    "only: not a valid bound. More: docs/publishing.md."
)
_DECIDED: dict[str | float, str] = {
    "likely": "what is likely: a 1 where the chance that most voters want it is above one half",
    "f1": "the largest expected F1",
    "balanced": "the largest expected balanced accuracy of each label",
}


def bill(release: Release) -> dict[str, Any]:
    """Return the rows of a bill: published numbers only, None where there is nothing to say."""
    shown = "sealed: it depends on the votes"
    if release.epsilon is not None:
        allowed = mark(release.guarantee, sanitized=True)
        shown = f"{rounded_up(release.epsilon)} ({allowed}; may be published)"
    so_far = release.so_far or release.answered
    return {
        "in short": headline(release),
        "queries answered": release.of_asked,
        "labels each": release.labels.shape[1],
        "voters": release.voters,
        "mechanism": describe(release.mechanism),
        "noise": noise(release.mechanism, release.voters),
        "guarantee": release.guarantee,
        "epsilon": shown,
        "delta": release.delta,
        "budget": release.budget,
        **({} if "learnt" in release.terms else release.terms),
        "settings": None if "learnt" not in release.terms else learnt(release.terms["learnt"]),
        "allowance": _allowance(release),
        "decided by": None
        if release.tallies is None
        else _DECIDED.get(release.decided, f"a chance of {release.decided} or more"),
        "answered from it so far": f"{so_far:,} queries, under this one epsilon"
        if release.allowance is not None and so_far > release.answered
        else None,
        "left of the budget": release.budget_left,
        "NEW": new_to(release.dataset) if release.new else None,
        **_expected(release),
        "held back (ABSTAIN)": f"{release.abstained:,} labels" if release.abstained else None,
        "after the draw": "; ".join(release.processed) or None,
        "SIMULATED": "a seed was given: these labels protect nobody" if release.simulated else None,
    }


def new_to(dataset: str) -> str:
    """Return in words that a ledger had no charge to a data set."""
    return f"nothing was charged to data set {dataset!r} in this ledger before"


def noise(mechanism: Mapping[str, Any], voters: int) -> str | None:
    """Return what sigma is, in words; None for what has none, or is a mechanism of one's own."""
    sigma = mechanism.get("sigma")
    if sigma is None or mechanism["mechanism"] not in MECHANISMS:
        return None
    return f"every count of votes, {voters:,} at most, is moved by about {sigma:.3g}"


def _expected(release: Release) -> dict[str, Any]:
    """Return what is to be expected of the labels, and why they are as they are."""
    found = release.forecast
    if found is None:
        return {}
    return {
        "missed": f"{_percent(found.missed)} of the labels that {found.whoever} wants",
        "false alarms": f"{_percent(found.false_alarm)} of the labels that nobody wants",
        "allowance lasts for": None if found.lasts is None else found.lasting,
        "expected to be poor": _poor(release),
        "WARNING": " ".join(found.warnings) or None,
        "why": " ".join(release.reasons) or None,
    }


def _poor(release: Release) -> str | None:
    first = release.poor_from
    if first is None:
        return None
    names = release.query_names
    which = f"row {first:,}" if names is None else f"query {names[first]!r:.60}"
    return f"labels from {which} on, marked in a CSV file: voters should have run out by then"


def forecast_section(release: Release) -> Section | None:
    """Return what is to be expected of released labels, for a page; None where nothing is known."""
    if release.tallies is not None:
        return _decided_section(release)
    found = release.forecast
    if found is None:
        return None
    needed = found.share_needed
    facts = {
        "missed, if all want it": _percent(found.missed),
        "released, if nobody does": _percent(found.false_alarm),
        "must agree for a sure 1": "more than all" if needed is None else _percent(needed),
    }
    if found.lasts is not None:
        facts["the allowance lasts for"] = found.lasting
    blocks: list[Block] = [f"Warning: {text}" for text in found.warnings]
    blocks += [Facts(values=facts), *_said(found)]
    stopped = [text for text in release.reasons if text.startswith(STOPPED)]
    blocks += [*stopped, *reasons_folded([t for t in release.reasons if t not in stopped])]
    return Section(heading="What to expect of the labels", blocks=blocks)


def _decided_section(release: Release) -> Section | None:
    """Return how good labels of tallies are expected to be, by label, and how sure each is."""
    chances = release.probabilities
    if chances is None:
        return None
    blocks: list[Block] = []
    if "learnt" in release.terms:
        said = expected_quality(release)
        blocks.append(f"{said[0].upper()}{said[1:]}. From released numbers alone.")
    names = release.label_names or [f"label_{i}" for i in range(chances.shape[1])]
    ones, found = release.labels == 1, release.quality
    rows = []
    for at, name in enumerate(names):
        own = chances[ones[:, at], at]
        row = {"label": name, "ones": len(own), "sure": _percent(own.mean()) if len(own) else "-"}
        if found is not None:
            row["missed"] = _percent(1 - found["by_label"]["recall"][at])
            row["gain"] = f"{100 * found['by_label']['gain'][at]:.2g} %"
        rows.append(row)
    heads = {"label": "label", "ones": "ones", "sure": "right", "missed": "ones missed"}
    heads["gain"] = "gain over always yes or no"
    columns = [Column(key=key, heading=head) for key, head in heads.items() if key in rows[0]]
    steps = np.linspace(0, 1, 11)
    histogram = {
        name: np.histogram(chances[cells], steps)[0].tolist()
        for name, cells in (("decided 1", ones), ("decided 0", ~ones))
    }
    caption = "By label, as expected: how many ones were released, and how sure they are."
    blocks += [
        drawn(
            "How many labels have which probability. Near 0 and 1 a label is sure; near one half "
            "it is a guess: of the ones at 0.6, four in ten are expected to be wrong.",
            lambda: by_probability(
                histogram,
                title="How sure the labels are",
                axis="probability that most voters want the label",
            ),
        ),
        TableBlock(caption=caption, rows=rows, columns=columns),
    ]
    return Section(heading="What to expect of the labels", blocks=blocks)


def _said(found: Forecast) -> list[Block]:
    """Return in words what the numbers are about, and what no forecast can see."""
    all_of = "" if found.near is None else f" All are the about {found.near:,} voters near a query."
    said: list[Block] = [
        "This is a forecast, from public numbers and released labels. A sure 1 is one that is "
        f"released with 95 percent.{all_of}"
    ]
    if found.lasts is None:
        return said
    return [
        *said,
        f"At {found.yeses} ({found.yes_from}), a voter's allowance of {found.allowance:,} "
        f"surprises should last for {found.lasting}, the busiest voter's too. "
        "Whoever runs out counts as the baseline, so that labels drift there.",
        UNSEEN.replace("It", "The forecast", 1),
    ]


def _percent(share: float) -> str:
    if 0 < share < 1e-4:
        return "below 0.01 %"
    return f"{100 * share:.2g} %" if share < 0.995 else f"{share:.0%}".replace("%", " %")


def write_label_page(path: Path, release: Release) -> Path:
    """Write a page about released labels: bill, forecast, statement; all of it may be published."""
    said = release.statement().removeprefix("PRIVACY STATEMENT")
    expected, note = forecast_section(release), remark(release)
    facts = {
        name: cell(value, cost=is_cost(name))
        for name, value in bill(release).items()
        if value is not None and name not in _expected(release)
    }
    sections = [
        Section(
            heading="Bill",
            blocks=[
                TableBlock(
                    caption="What was released, and what it costs.",
                    rows=[{"what": name, "value": value} for name, value in facts.items()],
                ),
                *([] if note is None else [note]),
            ],
        ),
        *([] if expected is None else [expected]),
        Section(heading="Privacy statement", blocks=[line for line in said.splitlines() if line]),
    ]
    return write_page(
        path,
        title="Private labels",
        intro=f"{headline(release)}. Labelled by the votes of {release.voters:,} voters, under the "
        f"guarantee {release.guarantee!r}.",
        sections=sections,
        notices=["SIMULATED: a seed was given, so this protects nobody."] * release.simulated,
    )


def _each(release: Release) -> tuple[int, ...]:
    found = release.allowance
    return found if isinstance(found, tuple) else () if found is None else (found,)


def _allowance(release: Release) -> str | None:
    each = _each(release)
    if not each:
        return None
    span = " to ".join(f"{value:,}" for value in sorted({min(each), max(each)}))
    return f"{span} surprises a voter, for life"


def remark(release: Release) -> str | None:
    """Return what a reader of the bill must know besides."""
    if release.terms.get("passed") is False:
        return (
            "The test failed: nothing was released, and the whole budget of this data set is spent."
        )
    if "gamma" in release.terms:
        return _SANITIZED.format(sure=1 - release.terms["gamma"])
    if release.allowance is None:
        return None
    so_far, which = release.so_far or release.answered, "answered from it so far"
    if "learnt" in release.terms:
        so_far, which = release.terms["learnt"]["planned"], "that it is for"
    many = "the one query" if so_far == 1 else f"each of the {so_far:,} queries"
    return (
        f"The allowance is {min(_each(release)) / so_far:.2g} surprises for {many} "
        f"{which}. Voters who cast more run out, and then count "
        "as the baseline; who did is sealed."
    )


def of_owner(release: Release, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Return what is for the owner's eyes, as plain numbers; voters by name, or by place."""
    sealed: Any = release.sealed
    if release.guarantee == "allowance":
        spent, refused = sealed.spent, sealed.refused
        who = np.flatnonzero(refused)
        return {
            "voters_who_ran_out": int(sealed.exhausted.sum()),
            "ballots_refused": {
                str(voter) if names is None else names[voter]: int(refused[voter])
                for voter in who[np.argsort(-refused[who], kind="stable")]
            },
            "surprises_cast_fewest": int(spent.min()),
            "surprises_cast_median": float(np.median(spent)),
            "surprises_cast_most": int(spent.max()),
        }
    if release.guarantee != "data-dependent":
        return {}
    bills = sealed.bills()
    exact = ("epsilon_by_voter", "accountant", "epsilon_rdp", "epsilon_pld")
    return {
        "epsilon": float(sealed.epsilon),
        "epsilon_of_costliest_voter": float(bills.max()),
        "epsilon_of_median_voter": float(np.median(bills)),
        **{name: getattr(sealed, name) for name in exact},
    }

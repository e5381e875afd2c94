"""A release in words: a few lines for a terminal, and the statement that somebody signs."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy as np

from .accounting.renyi import rounded_up
from .forecast import Forecast
from .mechanisms.base import describe
from .release import VOTER, Release

_MEANING = {
    "allowance": (
        "unconditional differential privacy: epsilon was fixed before any vote was seen and holds "
        "for any number of adaptive queries to this electorate"
    ),
    "worst-case": (
        "unconditional differential privacy: epsilon is the worst case over all votes of the "
        "number of queries answered, which was decided on public numbers"
    ),
    "ptr": (
        "unconditional differential privacy: queries, order and threshold were fixed before "
        "looking, and all labels or none were released after a private test that the votes agree "
        "enough; epsilon covers the test"
    ),
    "data-dependent": (
        "a statement about these votes and their neighbours only, not differential privacy; the "
        "exact epsilon is sealed because the number itself depends on the votes"
    ),
}
_HELPS = "More voters, fewer queries or a larger epsilon would help"
_COSTS = ("price", "threshold", "reserve")  # terms that are costs


def headline(release: Release) -> str:
    """Return what comes first: how many queries, how good they are expected to be, the cost."""
    many = "1 query" if release.of_asked == "1" else f"{release.of_asked} queries"
    cost = "sealed" if release.epsilon is None else rounded_up(release.epsilon, 4)
    told = f"; {expected_quality(release)}" if "learnt" in release.terms else ""
    return f"{many}{told}; epsilon {cost}, delta {rounded_up(release.delta)}"


def expected_quality(release: Release) -> str:
    """Say how good labels of tallies are expected to be, or why that cannot be told."""
    found = release.quality
    if found is not None:
        after = ", before what was done after the draw" if release.processed else ""
        figures = ", ".join(f"{name} {found[name]:.0%}" for name in ("precision", "recall"))
        return f"expected {figures.replace('%', ' %')} against the majority of the voters{after}"
    unknown, posterior = "how good the labels are cannot be told", release.posterior
    if not release.terms["learnt"]["learns"] and release.guarantee == "allowance":
        return f"{unknown}: there are too few voters to learn from. {_HELPS}"
    if not release.terms["learnt"]["learns"]:
        return f"{unknown}: nothing was learnt from the votes in the worst case"
    if posterior is None or not posterior.fitted:
        return f"{unknown}: there are too few labels. More queries at once would help"
    if not release.labels.any():
        return f"no label is a 1, and {unknown}: majorities do not show in so much noise. {_HELPS}"
    return f"{unknown}: majorities hardly show in so much noise. {_HELPS}"


def summary(release: Release) -> str:
    """Return a few lines for a terminal: published numbers only."""
    shown = "sealed" if release.epsilon is None else f"{rounded_up(release.epsilon)}"
    lines = [
        headline(release),
        f"queries answered  {release.of_asked}",
        f"from              votes of {release.voters:,} voters on {release.labels.shape[1]:,} "
        "labels each",
        f"guarantee         {release.guarantee}: {_kind(release.facts())}",
        f"epsilon, delta    {shown}, {rounded_up(release.delta)}  (asked for: "
        f"{rounded_up(release.budget)})",
        f"mechanism         {describe(release.mechanism)}",
    ]
    if release.protects != VOTER:
        lines.append(f"protects          {release.protects}")
    if release.allowance is not None:
        lines.append(f"allowance         {release.allowance} a voter, for life")
    if release.so_far is not None and release.so_far > release.answered:
        lines.append(f"from it so far    {release.so_far} queries, earlier runs included")
    if release.abstained:
        lines.append(f"held back         {release.abstained} labels (gate)")
    if release.terms:
        lines.append(f"terms             {_terms(release.facts())}")
    if release.left is not None:
        lines.append(f"budget left       {release.budget_left}")
    if release.forecast is not None:
        lines += [f"expected          {said}" for said in release.forecast.lines()]
    lines += [f"why               {reason}" for reason in release.reasons]
    lines += [f"after the draw    {text}" for text in release.processed]
    if release.simulated:
        lines.append("SIMULATED: a seed was given, so these labels protect nobody")
    return "\n".join(lines)


def statement(facts: Mapping[str, Any]) -> str:
    """Return one page in plain words, for the person who signs it: published numbers only.

    ``facts`` are those of :meth:`Release.facts`: nothing else is said, so that whoever has them can
    tell whether a page is theirs.
    """
    shown = (
        "sealed, because the number depends on the votes"
        if facts["epsilon"] is None
        else f"{rounded_up(facts['epsilon'])}"
    )
    source = (
        "a seed: SIMULATED, these labels protect nobody"
        if facts["simulated"]
        else "the operating system's cryptographic generator"
    )
    place = (
        "none: this budget is of this one run"
        if facts["ledger"] is None
        else f"entry {facts['ledger']['entry']}, digest {facts['ledger']['digest']}"
    )
    software = ", ".join(
        [
            f"privote {facts['version']}",
            f"dp-accounting {metadata.version('dp-accounting')}",
            f"numpy {np.__version__}",
            f"Python {platform.python_version()}",
        ]
    )
    lines = [
        (
            "What was released",
            f"{of_asked(facts)} queries with {facts['labels']} yes/no "
            f"labels each, from the votes of {facts['voters']} registered voters on data set "
            f"{facts['dataset']!r}"
            + ("" if facts["consumer"] is None else f", for {facts['consumer']!r}")
            + f", on {facts['made']}; {_digests(facts)}",
        ),
        ("Mechanism", describe(facts["mechanism"])),
        ("Who is protected", _protected(facts)),
        ("Kind of guarantee", f"{facts['guarantee']}: {_kind(facts)}"),
        ("epsilon", f"{shown} (asked for: {rounded_up(facts['budget'])})"),
        ("delta", f"{rounded_up(facts['delta'])}"),
        ("Accountant", _accountant(facts["terms"].get("learnt"))),
        ("What may follow from released labels", _adaptively(facts)),
        ("Random source", source),
        ("Ledger", place),
        ("Software", software),
    ]
    if _unconditional(facts):
        lines.insert(-5, ("What that means", _meaning(facts)))
    if facts["terms"]:
        lines.insert(-5, ("Terms", _terms(facts)))
    if "price_2018" in facts["terms"]:
        lines.insert(
            -5,
            (
                "For comparison only",
                "PATE 2018 (Theorem 23) would price the published number at "
                f"{rounded_up(facts['terms']['price_2018'], 4)} instead of "
                f"{rounded_up(facts['terms']['price'], 4)}: not a valid bound",
            ),
        )
    if facts["forecast"] is not None:
        said = Forecast.of_facts(facts["forecast"]).lines()
        lines.insert(-5, ("Expected quality", _joined(said)))
    if facts["reasons"]:
        lines.insert(-5, ("Where settings came from, and the end", _joined(facts["reasons"])))
    if facts["processed"]:
        text = "; ".join(facts["processed"])
        lines.insert(-5, ("After the draw", f"{text}. This is post-processing and costs nothing"))
    if facts["allowance"] is not None:
        lines.insert(2, ("Allowance", _allowance(facts)))
    if facts["abstained"]:
        lines.insert(1, ("Held back", f"{facts['abstained']} labels, by the confidence gate"))
    return "\n".join(["PRIVACY STATEMENT", "", *[f"{name}: {text}." for name, text in lines]])


def of_asked(facts: Mapping[str, Any]) -> str:
    """Say how many queries were answered, and of how many if not all were."""
    more = facts["asked"] is not None and facts["asked"] > facts["answered"]
    return f"{facts['answered']} of {facts['asked']}" if more else f"{facts['answered']}"


def _kind(facts: Mapping[str, Any]) -> str:
    if "learnt" not in facts["terms"]:
        return _MEANING[facts["guarantee"]]
    return "unconditional differential privacy: epsilon was fixed before any vote was seen"


def _accountant(learnt: Mapping[str, Any] | None) -> str:
    if learnt is None:
        return (
            "Rényi divergence of the exact outcome distribution, worst of both directions, "
            "converted by dp-accounting"
        )
    if learnt["exact"]:
        return (
            "the exact (epsilon, delta) of Gaussian noise, after the worst private choice of an "
            "allowance: the same whatever was chosen"
        )
    return (
        "Rényi divergence of Gaussian noise and of a choice of bounded range, the same whatever "
        "allowance was chosen, converted by dp-accounting"
    )


def _digests(facts: Mapping[str, Any]) -> str:
    """Name what was drawn, which a ledger records, and labels that were made of it."""
    own, drawn = facts["sha256"]["labels"], facts["drawn"]
    if [own] == drawn or not drawn:
        return f"the labels' SHA-256 digest is {own}"
    return f"the labels' SHA-256 digest is {own}, and that of what was drawn {', '.join(drawn)}"


def _unconditional(facts: Mapping[str, Any]) -> bool:
    """Return whether a number may be said to bound what one voter's ballots change."""
    known = facts["epsilon"] is not None and not facts["simulated"]
    return known and facts["protects"] == VOTER and facts["guarantee"] != "data-dependent"


def _meaning(facts: Mapping[str, Any]) -> str:
    epsilon = facts["epsilon"] or 0.0
    factor = f", which is {rounded_up(math.exp(epsilon), 3)}" if epsilon < 700 else ""
    return (
        "had the ballots of one voter been different, on any or all queries, the probability of "
        f"any outcome would have changed by at most a factor e^{rounded_up(epsilon, 4)}{factor}, "
        f"plus {rounded_up(facts['delta'])}"
    )


def _protected(facts: Mapping[str, Any]) -> str:
    neighbours = (
        "Two sets of votes are neighbours if one voter's ballots differ, on any or all queries "
        "(replace one voter)"
    )
    if facts["protects"] == VOTER:
        return (
            f"each voter. {neighbours}. Where all records of a person reach one voter only, "
            "this protects each person; whether they do was not recorded"
        )
    return (
        f"{facts['protects']}, because it reaches one voter only: whoever made the voters says so, "
        f"the votes cannot show it. {neighbours}"
    )


def _adaptively(facts: Mapping[str, Any]) -> str:
    """Say what may have been chosen from released labels without breaking the promise."""
    if facts["guarantee"] == "data-dependent":
        return "nothing: queries and settings were fixed before any label was seen"
    if facts["guarantee"] == "ptr":
        return "nothing: one release takes the whole budget of the data set"
    if facts["terms"].get("learnt", {}).get("exact"):
        return "nothing: one release takes the whole budget, which is of this one run"
    text = "later queries, baselines, and when to stop"
    if facts["ledger"] is None:
        return f"{text}; the budget is of this one run"
    if facts["rule"] == "exclusive":
        text += (
            "; the mechanism, its settings and who votes are fixed for the data set: every "
            "charge to its budget is a multiple of the first"
        )
    else:
        text += (
            ", and also mechanism, settings and numbers of later charges: the data set's "
            f"budget of {rounded_up(facts['budget'])} is {facts['rule']}, which was fixed with it, "
            "so it holds for all charges together"
        )
    if facts["consumer"] is None:
        return text
    return (
        f"{text}. This epsilon is what {facts['consumer']!r} learns if it learns nothing from "
        "other consumers of the data set, and if no voter learnt from released labels; the "
        "data set's budget holds for everybody"
    )


def _allowance(facts: Mapping[str, Any]) -> str:
    text = f"{facts['allowance']} surprises a voter, for life"
    if facts["so_far"] is None or facts["so_far"] <= facts["answered"]:
        return text
    return (
        f"{text}; {facts['so_far']} queries were answered from it so far, these included, under "
        "one epsilon: statements about the same allowance do not add up"
    )


def _terms(facts: Mapping[str, Any]) -> str:
    if "learnt" in facts["terms"]:
        return learnt(facts["terms"]["learnt"])
    if "passed" in facts["terms"]:
        said = (
            "the test passed"
            if facts["terms"]["passed"]
            else "the test failed: nothing was released, and the whole budget is spent"
        )
    else:
        said = (
            f"sanitized: with probability {1 - facts['terms']['gamma']:g} these labels and this "
            "number are (epsilon, delta)-close to those of every neighbour of these votes"
        )
    numbers = ", ".join(
        f"{name} {rounded_up(value, 4) if name in _COSTS else f'{value:.4g}'}"
        for name, value in facts["terms"].items()
        if name not in ("passed", "price_2018")
    )
    return f"{said}; {numbers}"


def learnt(terms: Mapping[str, Any]) -> str:
    """Say what the noise follows from."""
    of = f"for {terms['planned']:,} queries in all, no more"
    if not terms["learns"]:
        return f"the noise follows from public numbers alone, {of}"
    return (
        "the allowance was itself chosen privately, from all votes, and part of the budget paid "
        f"for that (range {rounded_up(terms['epsilon0'], 4)}); the noise follows from it, {of}"
    )


def _joined(sentences: Sequence[str]) -> str:
    return " ".join(sentences).rstrip(".")

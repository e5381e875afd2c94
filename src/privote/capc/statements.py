"""What a querying party is told: labels, and in plain words what was promised to whom."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from .._version import written
from ..accounting.renyi import rounded_up
from ..errors import PrivoteWarning
from ..files import complete, write_statement
from ..ledger import Budget
from ..planning import forecast
from ..release import forecast_in_words
from .charges import Prices
from .parties import CLEAR, LabelledBatch
from .terms import Terms


def facts_of(terms: Terms, name: str, answers: LabelledBatch) -> dict[str, Any]:
    """Return all that may be said about a batch, as JSON; the labels are elsewhere."""
    prices, queries = Prices(terms), len(answers.labels)
    stamp = stamp_of(answers)
    return {
        **answers.facts(),
        "coalition": terms.name,
        "terms": terms.digest(),
        "querier": name,
        "queries": queries,
        "labels": len(terms.labels),
        "mechanism": str(terms.mechanism),
        "charged_by_party": prices.charged(name, queries),
        "allowance_by_party": prices.allowances(name),
        "contribution_unit": terms.mechanism.contribution_unit,
        "noise": terms.noise,
        "forecast": expected_of(terms, name, queries),
        "noise_if_known": _if_known(terms, name, answers),
        "secure": not stamp,
        "stamp": stamp,
    }


def stamp_of(answers: LabelledBatch) -> str:
    """Return what must stand on everything that is made of a batch; empty if it is secure."""
    why = []
    if answers.engine == CLEAR:
        why.append("INSECURE: the engine computes in clear and hides nothing")
    if answers.simulated:
        why.append("SIMULATED: masks and noise come from a seed and protect nobody")
    return "; ".join(why)


def expected_of(terms: Terms, name: str, queries: int) -> dict[str, Any]:
    """Return how good labels for so many rows will be: by the terms alone.

    Before anybody is asked and anything is charged.
    """
    return forecast(
        terms.mechanism,
        len(terms.voters(name)),
        len(terms.labels),
        allowance=min(Prices(terms).allowances(name).values(), default=None),
        asked=queries,
    )


def warn_of_quality(terms: Terms, name: str, queries: int) -> None:
    """Warn before anything is asked if labels will not be good, and say what would help.

    Also of a budget that promises little.
    """
    Budget(epsilon=terms.epsilon, delta=terms.delta).warn(len(terms.parties))
    found = expected_of(terms, name, queries)
    if found["warnings"]:
        text = (
            f"{len(terms.voters(name))} sites answer {queries:,} rows. "
            f"{' '.join(found['warnings'])} More sites, fewer rows or a larger epsilon would help."
        )
        warnings.warn(text, PrivoteWarning, stacklevel=3)


def _if_known(terms: Terms, name: str, answers: LabelledBatch) -> dict[str, Any]:
    """Return, by how many shares of noise somebody knows, the sigma and epsilon that remain.

    No epsilon (None) where somebody else who may ask has no more voters than that.
    """
    voters, missing = answers.voters, answers.voters - len(answers.parties)
    if terms.shared is None:
        return {}
    found = {}
    for known in sorted({2, missing, voters // 2}):
        if 2 <= known < voters:
            sigma = terms.shared.without(known).sigma(voters)
            left = Prices(terms).if_known(name, known)
            found[str(known)] = {
                "sigma": math.floor(1000 * sigma) / 1000,  # never more than there is
                "epsilon": math.ceil(100 * left) / 100 if math.isfinite(left) else None,
            }
    return found


def _noise(facts: dict[str, Any]) -> list[str]:
    """Return what is said of who drew the noise, and towards whom it protects."""
    if facts["noise"] == "guardian":
        return [
            "Noise: drawn by the guardian, which knows it. There is no guarantee against the "
            "guardian: anyone who sees both these labels and its noise knows the tallies."
        ]
    voters, missing = facts["voters"], facts["voters"] - len(facts["parties"])
    lines = [
        f"Noise: each of the {voters} answering sites draws a share; nobody knows the sum. Any "
        f"{voters - 1} shares together have the sigma above. So epsilon also holds against each "
        "site, which knows its own share, and against the guardian if it knows at most one.",
        f"Shares of missing sites, which the guardian drew and knows: {missing}.",
    ]
    for known, left in facts["noise_if_known"].items():
        budget = "no epsilon, since too few voters remain for other querying sites"
        if left["epsilon"] is not None:
            budget = f"epsilon {rounded_up(left['epsilon'], 4)}"
        lines.append(
            f"Against anyone who knows {known} shares in every batch, the guarantee is: sigma "
            f"{left['sigma']:g}, {budget}."
        )
    return lines


def statement(facts: dict[str, Any]) -> str:
    """Return the guarantee in plain words."""
    held = [] if facts["secure"] else [f"{facts['stamp']}. NOT A GUARANTEE.", ""]
    if facts["guarantee"] == "allowance":
        promise = (
            "Guarantee: allowance. Each answering site may differ from the baseline a fixed number "
            "of times for this querying site, in all its batches together, past and future."
        )
    else:
        promise = (
            "Guarantee: worst case. Every batch is charged its largest possible cost over all "
            "votes, and a batch that would exceed the budget is not answered."
        )
    lines = [
        *held,
        f"{facts['queries']} rows of {facts['querier']} were labelled by the coalition "
        f"{facts['coalition']!r} with {facts['mechanism']}.",
        f"Sites that took part: {', '.join(facts['parties'])}; registered: {facts['voters']}.",
        *(f"Left out: {site}: {why}." for site, why in facts["left_out"].items()),
        "",
        promise,
        "Who is protected: each answering site, with all its training data (replace one site), "
        "against anyone who sees the labels.",
        f"  epsilon {rounded_up(facts['epsilon'])} at delta {rounded_up(facts['delta'])} for each "
        "site's data, for all batches of all querying sites together, past and future; "
        "unconditional.",
        "No smaller epsilon is stated for this querying site alone, since answering sites may "
        "have learnt from labels that others received.",
        *(
            f"  {party}: {allowance} {facts['contribution_unit']}s may differ"
            for party, allowance in facts["allowance_by_party"].items()
        ),
        *_noise(facts),
        "",
        *(
            f"Expected: {said}"
            for said in (forecast_in_words(facts["forecast"]), *facts["forecast"]["warnings"])
        ),
        "",
        f"Engine: {facts['engine']}"
        + (
            ". Assumptions: sites are semi-honest, and the guardian colludes with nobody. Rows, "
            "models and votes were seen only by their owners, tallies by nobody."
            if facts["secure"]
            else f" (NOT SECURE: {facts['stamp']})."
        ),
        f"Batch {facts['batch']}"
        + (", already paid for by an earlier charge." if facts["resumed"] else "."),
    ]
    return "\n".join(lines)


def allowance_said(facts: dict[str, Any]) -> str | None:
    """Return how far the smallest allowance goes; it is public, what is left of it is not."""
    if not facts["allowance_by_party"]:
        return None
    least = min(facts["allowance_by_party"].values())
    unit = facts["contribution_unit"]
    return f"{least} {unit}s per site in total; {least / facts['queries']:.2g} per row"


def write(folder: Path, facts: dict[str, Any], terms: Terms, answers: LabelledBatch) -> None:
    """Write ``labels.npz``, ``statement.txt`` and the same as ``statement.json``."""
    with complete(folder / "labels.npz", force=True) as part, part.open("wb") as stream:
        np.savez_compressed(
            stream,
            labels=answers.labels,
            label_names=np.array(terms.labels),
            feature_names=np.array([] if isinstance(terms.features, int) else terms.features),
            written=json.dumps(written(1)),
        )
    write_statement(statement(facts), facts, folder / "statement.txt")

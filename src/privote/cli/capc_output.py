"""What a querying party writes: labels, and in plain words what was promised to whom."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from privote.accounting.renyi import rounded_up
from privote.errors import InputError

if TYPE_CHECKING:
    from privote.capc.charges import Prices
    from privote.capc.roles.querying import Answers
    from privote.capc.terms import Terms

FILES = ("labels.npz", "statement.txt", "statement.json")


def check_folder(folder: Path, *, force: bool) -> None:
    """Refuse a place before anything is charged."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--output must be a folder, got {str(folder)!r}")
    taken = [name for name in FILES if (folder / name).exists()]
    if taken and not force:
        raise InputError(f"--output {str(folder)!r} has {taken[0]} already; --force replaces it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"--output {str(folder)!r} cannot be written: {error.strerror}") from None


def facts_of(
    terms: Terms, name: str, answers: Answers, *, stamp: str, prices: Prices | None = None
) -> dict[str, Any]:
    """Return all that may be said about a batch, as JSON; the labels are elsewhere.

    ``prices`` are the ones the role has worked out already, if it has.
    """
    from privote.accounting.allowance import FACTOR
    from privote.accounting.renyi import epsilon
    from privote.capc.charges import Prices

    prices, queries = prices or Prices(terms), len(answers.labels)
    costs = {}
    for party in terms.voters(name):
        if terms.guarantee == "allowance":
            curve = FACTOR * prices.allowance(party, name) * prices.surprise(party, name)
        else:
            curve = queries * prices.query(party, name)
        costs[party] = float(epsilon(curve, prices.orders, terms.delta))
    allowances = prices.allowances(name) if terms.guarantee == "allowance" else {}
    hidden = answers.engine != "clear"
    return {
        **answers.facts(),
        "coalition": terms.name,
        "terms": terms.digest(),
        "querier": name,
        "queries": queries,
        "labels": len(terms.labels),
        "mechanism": str(terms.mechanism),
        "epsilon_by_party": costs,
        "budget": terms.epsilon,
        "allowance_by_party": allowances,
        "surprise_unit": terms.mechanism.surprise_unit,
        "secure": hidden and not answers.simulated,
        "stamp": stamp,
    }


def statement(facts: dict[str, Any]) -> str:
    """Return the guarantee in plain words."""
    held = [] if facts["secure"] else [f"{facts['stamp'] or 'NOT SECURE'}. NOT A GUARANTEE.", ""]
    if facts["guarantee"] == "allowance":
        promise = (
            "Guarantee: allowance. Each answering site may depart from the baseline a fixed number "
            "of times for this querying site, in all its batches together, past and future. The "
            "epsilon below covers all of them; it is unconditional."
        )
    else:
        promise = (
            "Guarantee: worst case. The epsilon below is what this batch cost at most, whatever "
            "the votes were; epsilons of several batches add up in the guardian's ledger."
        )
    lines = [
        *held,
        f"{facts['queries']} rows of {facts['querier']} were labelled by the coalition "
        f"{facts['coalition']!r} with {facts['mechanism']}.",
        f"Sites that took part: {', '.join(facts['parties'])}; registered: {facts['voters']}.",
        *(f"Left out: {site}: {why}." for site, why in facts["left_out"].items()),
        "",
        promise,
        "Protected: replacing all training data of one answering site, towards whoever sees the "
        "labels.",
        *(
            f"  {party}: epsilon {rounded_up(cost, 4)} at delta {rounded_up(facts['delta'])}"
            + _times(facts, party)
            for party, cost in facts["epsilon_by_party"].items()
        ),
        f"The terms allow epsilon {rounded_up(facts['budget'])} for each site's data, all batches "
        "of all "
        "querying sites together.",
        "",
        f"Engine: {facts['engine']}"
        + (
            ". Semi-honest sites; the guardian colludes with nobody. Rows, models, votes and "
            "tallies were seen by nobody but their owners."
            if facts["secure"]
            else f" (NOT SECURE: {facts['stamp'] or 'somebody used a seed'})."
        ),
        f"Batch {facts['batch']}"
        + (", paid for by the charge of an earlier one." if facts["resumed"] else "."),
    ]
    return "\n".join(lines) + "\n"


def _times(facts: dict[str, Any], party: str) -> str:
    allowance = facts["allowance_by_party"].get(party)
    if allowance is None:
        return ""
    return f", {allowance} {facts['surprise_unit']}s may depart"


def allowance_said(facts: dict[str, Any]) -> str | None:
    """Return how far the smallest allowance goes; it is public, what is left of it is not."""
    if not facts["allowance_by_party"]:
        return None
    least = min(facts["allowance_by_party"].values())
    unit = facts["surprise_unit"]
    return f"{least} {unit}s a site, for life; {least / facts['queries']:.2g} a row of this batch"


def write(output: Path, facts: dict[str, Any], terms: Terms, answers: Answers) -> None:
    """Write labels, statement and the statement's JSON."""
    import numpy as np

    draft = output / ".labels.npz"
    np.savez_compressed(draft, labels=answers.labels, label_names=np.array(terms.labels))
    draft.replace(output / "labels.npz")
    (output / "statement.txt").write_text(statement(facts), encoding="utf-8")
    text = json.dumps(facts, indent=2, allow_nan=False)
    (output / "statement.json").write_text(text + "\n", encoding="utf-8")


def show(facts: dict[str, Any], output: Path, *, as_json: bool) -> None:
    """Tell the terminal what was answered."""
    from .output import print_facts, print_json

    if as_json:
        print_json({**facts, "output": str(output)})
        return
    if facts["stamp"]:
        typer.echo(facts["stamp"])
    lasting = facts["guarantee"] == "allowance"
    shown = {
        "queries": facts["queries"],
        "sites that took part": f"{len(facts['parties'])} of {facts['voters']}",
        "guarantee": facts["guarantee"],
        ("epsilon of a site, " + ("for life" if lasting else "this batch")): float(
            facts["epsilon"]
        ),
        "delta": float(facts["delta"]),
        "may depart from the baseline": allowance_said(facts),
        "engine": facts["engine"],
        "secure": facts["secure"],
        "seconds": facts.get("seconds"),
        "MB between sites": facts.get("megabytes"),
        "written to": str(output),
    }
    print_facts({k: v for k, v in shown.items() if v is not None}, title="Answered")

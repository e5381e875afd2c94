"""Releases in the forms that others ask for: a registry's entry, and a model card.

The registry is the Differential Privacy Deployments Registry (github.com/opendp/
deployments-registry-data, schemas/deployments-schema.yaml); the card is Hugging Face's, with what
NIST SP 800-226 asks about a guarantee. What only the publisher knows is left to be filled in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from privote._version import __version__
from privote.accounting.renyi import rounded_up
from privote.guarantees import VOTER, Fact, Guarantee
from privote.ledger.events import BudgetScope, Charged, LedgerState, RunState

OPEN = "TO BE FILLED IN"
_PRODUCTS = {"poll": "Summary statistics", "score": "Summary statistics"}
_PRODUCTS |= dict.fromkeys(("gradients", "moments"), "Machine learning model")
_IMPLEMENTED = (
    f"privote {__version__}; randomness from the operating system's cryptographic generator; costs "
    "computed by privote, or by dp-accounting where the accountant says so"
)


def yaml_of(value: Any, indent: int = 0) -> str:
    """Return plain values as a YAML block; every text is quoted."""
    space = " " * indent
    if isinstance(value, Mapping):
        return "".join(f"{space}{name}:{_below(each, indent)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return "".join(f"{space}-{_below(each, indent)}" for each in value)
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and "." not in text:  # YAML 1.1 reads 1e-05 as a text
        text = text.replace("e", ".0e")
    return text


def _below(value: Any, indent: int) -> str:
    nested = isinstance(value, Mapping | list | tuple)
    return f"\n{yaml_of(value, indent + 2)}" if nested else f" {yaml_of(value)}\n"


# -- a registry of deployments ---------------------------------------------------------------------


def registry_entries(state: LedgerState) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a draft entry for each data set that released something, and the names left out.

    Left out are those whose epsilon depends on the votes, or whose noise came from a seed.
    """
    entries, rest = [], []
    for name, scope in state.scopes.items():
        runs = [
            run
            for run in state.runs.values()
            if run.commit and state.charges[run.reserved.charge].dataset == name
        ]
        charges = [each for each in state.charges.values() if each.dataset == name]
        if runs and scope.total is not None and not any(each.simulated for each in charges):
            entries.append(_entry(scope, charges, runs))
        else:
            rest.append(name)
    return entries, rest


def _entry(
    scope: BudgetScope, charges: Sequence[Charged], runs: Sequence[RunState]
) -> dict[str, Any]:
    products = [_PRODUCTS.get(charge.guarantee, "Dataset") for charge in charges]
    slug = re.sub("[^a-z0-9]+", "-", scope.name.lower()).strip("-") or "data-set"
    unit = "a voter, with all ballots" if scope.protects == VOTER else str(scope.protects)
    cost = {"epsilon": float(rounded_up(scope.total or 0.0, 4)), "delta": scope.budget.delta}
    deployment = {
        "basic": {
            "name": f"Releases of {scope.name}",
            "data_curators": [OPEN],
            "intended_use": OPEN,
            "data_product_type": products[0],
            "data_product_region": OPEN,
            "description": OPEN,
            "publication_date": runs[0].at[:10],
        },
        "dp_variant": {
            "variant_name": "Approximate DP",
            "unprotected_quantities": "The number of voters, persons or records is public.",
        },
        "privacy_loss": {
            "privacy_unit": unit,
            "privacy_unit_details": "Adjacent data sets differ in one unit, which is replaced.",
            "privacy_parameters": cost,
            "privacy_parameters_details": f"All releases together, {len(runs)} in number. The "
            f"budget is epsilon {rounded_up(scope.budget.epsilon)}.",
        },
        "deployment_model": {
            "model_name": "Central",
            "release_type": "One release" if len(runs) == 1 else "Many releases",
        },
        "accounting": {
            "post_processing": "Labels are decided, and students trained, from what was released.",
            "composition": "Rényi differential privacy; all releases are added up at one order, "
            "which was fixed with the budget.",
        },
        "implementation": {"mechanisms": _IMPLEMENTED},
        "administrative": {"registry_authors": [OPEN]},
    }
    return {"url_slug": slug, "status": "Draft", "tier": 2, "deployment": deployment}


# -- a model card ----------------------------------------------------------------------------------


def model_card(
    guarantee: Guarantee, facts: Sequence[Fact], labels: Sequence[str], task: str
) -> str:
    """Return the card of a model that may be published: YAML, then Markdown."""
    cost = "sealed" if guarantee.epsilon is None else rounded_up(guarantee.epsilon, 4)
    front = {
        "library_name": "privote",
        "pipeline_tag": task,
        "tags": ["differential-privacy", "multi-label-classification", guarantee.kind],
        "privacy": {
            "epsilon": None if guarantee.epsilon is None else float(cost),
            "delta": guarantee.delta,
            "unit": guarantee.protects,
            "simulated": guarantee.simulated,
        },
    }
    asked = [
        ("privacy parameters", f"epsilon {cost}, delta {rounded_up(guarantee.delta)}"),
        ("unit of privacy", guarantee.protects),
        ("neighbouring data sets", "one unit replaced; how many there are is public"),
        ("trust model", "central: the owner of the records is trusted"),
        ("query model", "one release; whoever has the model may ask it anything, at no cost"),
        ("implementation", _IMPLEMENTED),
        ("data security", OPEN),
        ("bias, and quality for small groups", f"see report.html; {OPEN}"),
    ]
    return "\n".join(
        [
            f"---\n{yaml_of(front)}---\n",
            "# A model of private records\n",
            f"It predicts {_in_line(', '.join(labels))}. Intended use: {OPEN}.\n",
            _table("What is promised", ((row.name, row.text) for row in guarantee.rows())),
            _table("What it rests on", ((row.name, row.text) for row in facts)),
            _table("What NIST SP 800-226 asks for", asked),
        ]
    )


def _table(title: str, rows: Any) -> str:
    lines = [f"| {_in_line(name)} | {_in_line(text)} |" for name, text in rows]
    return "\n".join([f"## {title}\n", "| what | value |", "|---|---|", *lines, ""])


def _in_line(text: str) -> str:
    """Return a text that cannot leave its cell, or add markup."""
    return re.sub(r"([\\|<>\[\]*_`#])", r"\\\1", " ".join(text.split()))

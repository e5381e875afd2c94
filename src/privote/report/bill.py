"""What a release cost and promises, as rows for people; and what only its owner may see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from privote.accounting.renyi import rounded_up
from privote.mechanisms.base import describe
from privote.release import Release

from .tables import mark

_SANITIZED = (
    "Epsilon is what labels and this number cost at most, with confidence {sure:g} (1 - gamma). It "
    "is about these votes and their neighbours; not differential privacy. The noise in it is "
    "sigma_s times the smooth sensitivity: how far the cost can move if one voter's ballots "
    "change, here or, counting less by exp(-beta) a ballot, nearby. price_2018 is for comparison "
    "only: not a valid bound. More: docs/publishing.md."
)


def bill(release: Release) -> dict[str, Any]:
    """Return the rows of a bill: published numbers only, None where there is nothing to say."""
    shown = "sealed: it depends on the votes"
    if release.epsilon is not None:
        allowed = mark(release.guarantee, sanitized=True)
        shown = f"{rounded_up(release.epsilon)} ({allowed}; may be published)"
    so_far = release.so_far or release.answered
    return {
        "queries answered": release.of_asked,
        "labels each": release.labels.shape[1],
        "voters": release.voters,
        "mechanism": describe(release.mechanism),
        "guarantee": release.guarantee,
        "epsilon": shown,
        "delta": release.delta,
        "budget": release.budget,
        **release.terms,
        "allowance": _allowance(release),
        "answered from it so far": f"{so_far:,} queries, under this one epsilon"
        if release.allowance is not None and so_far > release.answered
        else None,
        "left of the budget": release.budget_left,
        **_expected(release),
        "held back (ABSTAIN)": f"{release.abstained:,} labels" if release.abstained else None,
        "after the draw": "; ".join(release.processed) or None,
        "SIMULATED": "a seed was given: these labels protect nobody" if release.simulated else None,
    }


def _expected(release: Release) -> dict[str, Any]:
    """Return what is to be expected of the labels, and why they are as they are."""
    found = release.forecast
    if found is None:
        return {}
    lasts = found.lasts
    return {
        "missed, if all want it": f"{found.missed:.2g}",
        "false alarms": f"{found.false_alarm:.2g}",
        "allowance lasts for": None if lasts is None else f"{lasts:,} queries",
        "WARNING": " ".join(found.warnings) or None,
        "why": " ".join(release.reasons) or None,
    }


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
    so_far = release.so_far or release.answered
    return (
        f"The allowance is {min(_each(release)) / so_far:.2g} surprises for each of the "
        f"{so_far:,} queries answered from it so far. Voters who cast more run out, and then count "
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

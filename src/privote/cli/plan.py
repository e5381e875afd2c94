"""``privote plan``: what a budget buys, from public numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from privote.errors import InputError

from . import options
from .output import print_facts, print_json, working

if TYPE_CHECKING:
    from privote.mechanisms import Mechanism

_PUBLIC = "No votes were read: these numbers may be published."


def plan(
    ctx: typer.Context,
    *,
    voters: options.Count,
    labels: options.Count,
    queries: int | None = None,
    epsilon: options.Number,
    delta: options.Number,
    yes: float | None = None,
    mechanism: str = "",
    sigma: float | None = None,
    tau: float | None = None,
    norm: int | None = None,
    max_positives: int | None = None,
    quota: float | None = None,
    false_alarm: float | None = None,
    gate_threshold: float | None = None,
    gate_sigma: float | None = None,
    settings: options.Settings = None,
    json: bool = False,
) -> None:
    r"""Forecast the quality of labels, or how many queries a mechanism can answer.

    Example:

        privote plan --voters 250 --labels 20 --queries 1000 --epsilon 8 --delta 1e-5 --yes 0.1

    No votes are read, so every number may be published.

    Without --mechanism, it forecasts the default of `privote label`: the noise on each tally, the
    expected F1 of the labels, for voters who agree (clear), for middling ones, and for voters who
    are divided on rare labels (unclear). Nothing public tells these apart: a pilot of few queries
    at a small epsilon does. The forecast depends on a guess (--yes). A wrong guess makes the
    forecast wrong; it does not weaken the privacy guarantee.

    With --mechanism, it shows what that mechanism can do within the budget. "worst-case" is how
    many queries fit, for any votes. "allowance" is how many contributions each voter may cast over
    all queries; a voter who has used it up counts as the baseline from then on. With an allowance
    of 0 the mechanism is refused. "missed" is how often a label that every voter wants is not
    released; if it is large, there is too much noise for so few voters.

    Parameters
    ----------
    voters
        Number of voters.
    labels
        Number of labels per ballot.
    queries
        Number of queries to answer.
    yes : SHARE
        A guess of the share of yes among all votes; default 0.1. Do not compute it from the private
        votes.
    """
    from privote import planning
    from privote.ledger import Budget

    mech = options.mechanism_of(ctx.params)
    if mech is not None and (queries is not None or yes is not None):
        raise InputError("--queries and --yes cannot be combined with --mechanism")
    size: dict[str, Any] = {"voters": voters, "labels": labels, "epsilon": epsilon, "delta": delta}
    if mech is None and queries is None:
        raise InputError("give --queries, or --mechanism to see what a mechanism can do")
    with working("planning"):
        if mech is not None:
            facts = _numbers(mech, **size)
            brief = {"mechanism": str(mech), **_in_words(facts)}
        else:
            result = planning.plan(queries=queries or 0, yes=yes or planning.YES, **size)
            facts, brief = result.facts(), result.brief()
    Budget(epsilon=epsilon, delta=delta).warn(voters)
    if json:
        print_json(facts)
    else:
        print_facts(brief, title="Plan", caption=_PUBLIC)


def _numbers(mechanism: Mechanism, **size: Any) -> dict[str, Any]:
    """Return what a mechanism does within a budget."""
    from privote.planning import allowance_for, forecast, queries_for

    return {
        "mechanism": mechanism.parameters(),
        **size,
        "worst_case_queries": queries_for(mechanism, **size),
        "allowance": allowance_for(mechanism, **size),
        "allowance_counts": f"{mechanism.contribution_unit}s",
        "missed": forecast(mechanism, size["voters"], size["labels"])["missed"],
    }


def _in_words(numbers: dict[str, Any]) -> dict[str, Any]:
    """Return what a mechanism does as a table shows it."""
    unit = "single votes" if numbers["allowance_counts"] == "votes" else "whole ballots"
    return {
        "worst-case": f"{numbers['worst_case_queries']:,} queries, for any votes",
        "allowance": f"{numbers['allowance']:,} contributions per voter in total ({unit})"
        if numbers["allowance"]
        else "refused: the budget does not allow one contribution per voter",
        "missed": f"{numbers['missed']:.2g} of the labels that every voter wants",
    }

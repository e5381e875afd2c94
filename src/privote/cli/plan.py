"""``privote plan``: what a budget buys, or how much noise is needed, before any vote."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from privote.errors import InputError
from privote.mechanisms import Mechanism

from . import options
from .mechanism import MechanismFlags


def plan(
    mechanism: options.Name,
    voters: options.Voters,
    labels: options.Labels,
    epsilon: options.Epsilon,
    delta: options.Delta,
    sigma: options.Sigma = None,
    tau: options.Tau = None,
    norm: options.Norm = None,
    max_positives: options.MaxPositives = None,
    quota: options.Quota = None,
    false_alarm: options.FalseAlarm = None,
    link_cost: options.LinkCost = None,
    link_order: options.LinkOrder = None,
    gate_threshold: options.GateThreshold = None,
    gate_sigma: options.GateSigma = None,
    surprises_per_query: Annotated[
        float | None,
        typer.Option(
            help="How many surprises the busiest voter casts on a query, on average: its yes-votes "
            "for binary, its non-empty ballots for the others. A guess, never from these votes."
        ),
    ] = None,
    wanted: Annotated[
        int | None,
        typer.Option(help="Instead of --sigma: the smallest sigma for this many queries."),
    ] = None,
    json: options.Json = False,
) -> None:
    r"""Say how many queries a budget buys, or how much noise a number of queries needs.

    No votes are read, so every number here may be published. "worst-case" is how many queries fit
    whatever the votes are. "allowance" is how many surprises each voter may cast in its life; it
    answers any number of queries, but a voter who has run out counts as the baseline from then on.
    With --surprises-per-query the plan says when that happens: allowance / surprises. "missed" is
    how often a label that every voter wants is not released: if it is large, there is too much
    noise for so few voters.

    With --wanted sigma is solved for: under the allowance if --surprises-per-query is given, under
    the worst case if not.

    Example:

        privote plan --mechanism binary --voters 50 --labels 20 \
          --epsilon 8 --delta 1e-5 --wanted 500 --surprises-per-query 2
    """
    flags = MechanismFlags(
        name=mechanism,
        sigma=sigma,
        tau=tau,
        norm=norm,
        max_positives=max_positives,
        quota=quota,
        false_alarm=false_alarm,
        link_cost=link_cost,
        link_order=link_order,
        gate_threshold=gate_threshold,
        gate_sigma=gate_sigma,
    )
    if wanted is not None and flags.noisy:
        raise InputError("--wanted solves for sigma: leave out --sigma and --link-cost")
    where = (voters, labels, epsilon, delta)
    chosen = flags.build() if wanted is None else _solve(flags, where, wanted, surprises_per_query)
    numbers = _numbers(chosen, where, surprises_per_query)
    if wanted is not None:
        numbers["wanted"] = wanted
    if json:
        from .output import print_json

        print_json(numbers)
    else:
        _show(chosen, numbers)


def _solve(
    flags: MechanismFlags,
    where: tuple[int, int, float, float],
    wanted: int,
    surprises: float | None,
) -> Mechanism:
    from privote.calibrate import sigma_for

    from .progress import working

    tries = 0
    with working("solving for sigma") as tick:

        def make(sigma: float) -> Mechanism:
            nonlocal tries
            tries += 1
            tick(tries)
            return flags.build(sigma)

        sigma = sigma_for(
            make,
            *where,
            wanted,
            guarantee="worst-case" if surprises is None else "allowance",
            surprises_per_query=surprises,
        )
    digits = 3 - math.floor(math.log10(sigma))
    return flags.build(math.ceil(sigma * 10.0**digits) / 10.0**digits)  # up: more noise still fits


def _numbers(
    mechanism: Mechanism, where: tuple[int, int, float, float], surprises: float | None
) -> dict[str, Any]:
    from privote.calibrate import allowance_for, queries_for, queries_until_out, unanimous_miss

    from .progress import working

    voters, labels, epsilon, delta = where
    with working("planning"):
        allowance = allowance_for(mechanism, *where)
        numbers: dict[str, Any] = {
            "mechanism": mechanism.parameters(),
            "voters": voters,
            "labels": labels,
            "epsilon": epsilon,
            "delta": delta,
            "worst_case_queries": queries_for(mechanism, *where),
            "allowance": allowance,
            "allowance_counts": f"{mechanism.surprise_unit}s",
            "missed": unanimous_miss(mechanism, voters, labels),
        }
    if surprises is not None:
        numbers["surprises_per_query"] = surprises
        numbers["queries_until_out"] = queries_until_out(mechanism, labels, allowance, surprises)
    return numbers


def _show(mechanism: Mechanism, numbers: dict[str, Any]) -> None:
    from .output import print_facts

    unit = "single votes" if numbers["allowance_counts"] == "votes" else "whole ballots"
    facts = {
        "mechanism": str(mechanism),
        "electorate": f"{numbers['voters']:,} voters, {numbers['labels']:,} labels",
        "budget": f"epsilon {numbers['epsilon']:g}, delta {numbers['delta']:g}",
        "worst-case": f"{numbers['worst_case_queries']:,} queries, whatever the votes",
        "allowance": f"{numbers['allowance']:,} surprises a voter, for life ({unit})",
    }
    if "queries_until_out" in numbers:
        facts["lasts about"] = (
            f"{numbers['queries_until_out']:,} queries for a voter with "
            f"{numbers['surprises_per_query']:g} surprises a query"
        )
    facts["missed"] = f"{numbers['missed']:.2g} of the labels that every voter wants"
    caption = "No votes were read: these numbers may be published."
    print_facts(facts, title="Plan", caption=caption)

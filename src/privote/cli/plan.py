"""``privote plan``: what a budget buys, or how much noise is needed, before any vote."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from privote.accounting.renyi import rounded_up
from privote.errors import InputError
from privote.mechanisms import Mechanism

from . import options
from .groups import Group, grouped
from .mechanism import MechanismFlags

Size = tuple[int, int, float, float]  # voters, labels, epsilon, delta

_LOOKING = "On votes that may be looked at"


@grouped(mechanism=Group(of=MechanismFlags))
def plan(
    mechanism: MechanismFlags,
    epsilon: options.Epsilon,
    delta: options.Delta,
    voters: Annotated[int | None, typer.Option(help="How many voters.")] = None,
    labels: Annotated[int | None, typer.Option(help="How many labels a ballot has.")] = None,
    surprises_per_query: Annotated[
        float | None,
        typer.Option(
            help="How many surprises the busiest voter casts on a query, on average: its yes-votes "
            "for binary, its non-empty ballots for the others. A guess, never from these votes."
        ),
    ] = None,
    wanted: Annotated[
        int | None,
        typer.Option(
            help="Instead of --sigma: the smallest sigma for this many queries. "
            "For tau, instead of --tau: the largest tau."
        ),
    ] = None,
    votes: Annotated[
        Path | None,
        typer.Option(
            help="Choose the noise on these votes: .npy, .npz, .zarr or .parquet.",
            rich_help_panel=_LOOKING,
        ),
    ] = None,
    votes_are_public: Annotated[
        bool,
        typer.Option(
            "--votes-are-public",
            help="Needed with --votes: they are public, or paid for, and not the ones to label.",
            rich_help_panel=_LOOKING,
        ),
    ] = False,
    threshold: Annotated[
        str | None,
        typer.Option(
            metavar="P[,P...]",
            help="The file holds probabilities: a yes is one at or above P; or one P per label.",
            rich_help_panel=_LOOKING,
        ),
    ] = None,
    guarantee: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What the budget promises: allowance unless told, worst-case, ptr or "
            "data-dependent.",
            rich_help_panel=_LOOKING,
        ),
    ] = None,
    floor: Annotated[
        float | None,
        typer.Option(
            help="The utility to reach; 0.95 unless told.",
            rich_help_panel=_LOOKING,
        ),
    ] = None,
    measure: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Utility is agreement over all cells unless told; agreement_on_yes; or balanced, "
            "the mean over cells that should be 1 and cells that should be 0.",
            rich_help_panel=_LOOKING,
        ),
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option(
            help="True labels (queries, labels), .npy, to agree with instead of the noise-free "
            "outcome.",
            rich_help_panel=_LOOKING,
        ),
    ] = None,
    gate: Annotated[
        bool,
        typer.Option("--gate", help="Also try confidence gates.", rich_help_panel=_LOOKING),
    ] = False,
    beyond: Annotated[
        bool,
        typer.Option(
            "--beyond",
            help="allowance: also say how good labels are if all queries are answered.",
            rich_help_panel=_LOOKING,
        ),
    ] = False,
    json: options.Json = False,
) -> None:
    r"""Say how many queries a budget buys, or how much noise a number of queries needs.

    Without --votes no votes are read, so every number may be published. "worst-case" is how many
    queries fit whatever the votes are. "allowance" is how many surprises each voter may cast in its
    life; it answers any number of queries, but a voter who has run out counts as the baseline from
    then on. With --surprises-per-query the plan says when that happens: allowance / surprises.
    "missed" is how often a label that every voter wants is not released: if it is large, there is
    too much noise for so few voters.

    With --wanted sigma is solved for: under the allowance if --surprises-per-query is given, under
    the worst case if not. For tau with --sigma it is tau that is solved for: the largest that fits.

    With --votes and --votes-are-public the noise is chosen on votes that may be looked at (and the
    link, tau, and with --gate the gate): what answers most queries at a floor of utility. --sigma,
    --tau, --norm and --quota then fix what they name. It ends with the command that labels other
    votes as planned. Choosing on the votes that are labelled next voids their guarantee.

    Example:

        privote plan --mechanism binary --voters 50 --labels 20 \
          --epsilon 8 --delta 1e-5 --wanted 500 --surprises-per-query 2
    """
    looking = {
        "votes_are_public": votes_are_public or None,
        "threshold": threshold,
        "guarantee": guarantee,
        "floor": floor,
        "measure": measure,
        "truth": truth,
        "gate": gate or None,
        "beyond": beyond or None,
    }
    if votes is not None:
        from .plan_votes import plan_on_votes

        public = {"voters": voters, "labels": labels, "wanted": wanted}
        _refuse(public | {"surprises_per_query": surprises_per_query}, "--votes says that itself")
        plan_on_votes(votes, mechanism, (epsilon, delta), looking, json=json)
        return
    _refuse(looking, "it goes with --votes")
    where = _size(voters, labels, epsilon, delta)
    if wanted is None:
        if mechanism.name == "tau" and mechanism.tau is None:
            raise InputError("--tau must be given for mechanism 'tau', or --wanted; got neither")
        chosen = mechanism.build()
    else:
        chosen = _solve(mechanism, where, wanted, surprises_per_query)
    numbers = _numbers(chosen, where, surprises_per_query)
    if wanted is not None:
        numbers["wanted"] = wanted
    if json:
        from .output import print_json

        print_json(numbers)
    else:
        _show(chosen, numbers)


def _refuse(flags: dict[str, Any], why: str) -> None:
    """Refuse the first of these flags that was given."""
    for name, value in flags.items():
        if value is not None:
            raise InputError(f"--{name.replace('_', '-')} cannot be given here: {why}")


def _size(voters: int | None, labels: int | None, epsilon: float, delta: float) -> Size:
    for name, value in (("--voters", voters), ("--labels", labels)):
        if value is None:
            raise InputError(f"{name} must be given unless --votes is, got none")
    assert voters is not None
    assert labels is not None
    return voters, labels, epsilon, delta


def _solve(flags: MechanismFlags, where: Size, wanted: int, surprises: float | None) -> Mechanism:
    """Return the mechanism with the least noise, or the least clipping, for so many queries."""
    clip = flags.name == "tau" and flags.tau is None
    if flags.noisy and not clip:
        free = "leave out --sigma and --link-cost" if flags.name != "tau" else "leave out --tau"
        raise InputError(f"--wanted solves for sigma, or for tau given sigma: {free}")
    if clip and not flags.noisy:
        raise InputError("--sigma or --tau must be given with --wanted for mechanism 'tau'")
    from privote.calibrate import sigma_for, tau_for

    from .progress import working

    def make(value: float) -> Mechanism:
        return replace(flags, tau=value).build() if clip else flags.build(value)

    solve: Callable[..., float] = tau_for if clip else sigma_for
    tries = 0
    with working(f"solving for {'tau' if clip else 'sigma'}") as tick:

        def counted(value: float) -> Mechanism:
            nonlocal tries
            tries += 1
            tick(tries)
            return make(value)

        value = solve(
            counted,
            *where,
            wanted,
            guarantee="worst-case" if surprises is None else "allowance",
            surprises_per_query=surprises,
        )
    return make(_rounded(value, up=not clip))


def _rounded(value: float, *, up: bool) -> float:
    """Return four digits on the side that still fits: more noise, or more clipping."""
    scale = 10.0 ** (3 - math.floor(math.log10(value)))
    return (math.ceil(value * scale) if up else math.floor(value * scale)) / scale


def _numbers(mechanism: Mechanism, where: Size, surprises: float | None) -> dict[str, Any]:
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
        "budget": f"epsilon {rounded_up(numbers['epsilon'])}, delta {rounded_up(numbers['delta'])}",
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

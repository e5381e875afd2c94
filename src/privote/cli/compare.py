"""``privote compare``: every mechanism and every bound on one file of votes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from privote.accounting.renyi import rounded_up
from privote.errors import BallotError, InputError
from privote.mechanisms import (
    BinaryVoting,
    Mechanism,
    PluralityVoting,
    PowersetVoting,
    TauVoting,
)

from . import options
from .output import say

OWNERS = "for the owner's eyes: these numbers depend on the votes"
_HEADINGS = {
    "mechanism": "mechanism",
    "worst_case": "worst\ncase",
    "gaussian": "Gaus-\nsian",
    "allowance": "allow-\nance",
    "exact_per_query": "per\nquery",
    "exact_by_voter": "by\nvoter",
    "pld_by_voter": "PLD by\nvoter",
    "pate2018": "pate\n2018",
    "agreement": "agree-\nment",
    "agreement_on_yes": "on\nyes",
}


def compare(
    votes: options.VotesFile,
    epsilon: options.Epsilon,
    delta: options.Delta,
    binary_sigma: Annotated[float, typer.Option(help="Noise of binary.")] = 7.0,
    tau_sigma: Annotated[float, typer.Option(help="Noise of both kinds of tau.")] = 9.0,
    tau_l2: Annotated[float, typer.Option("--tau-l2", help="Bound on the l2 norm.")] = 1.8,
    tau_l1: Annotated[float, typer.Option("--tau-l1", help="Bound on the l1 norm.")] = 3.4,
    powerset_sigma: Annotated[
        float | None,
        typer.Option(
            help="Noise of powerset; 7 up to 6 labels, 4 up to 12, 2 beyond, unless told.",
        ),
    ] = None,
    plurality_sigma: Annotated[
        float, typer.Option(help="Noise of plurality, shown if every ballot has one yes at most.")
    ] = 40.0,
    max_queries: Annotated[int, typer.Option(help="Look at the first N queries only.")] = 1000,
    threshold: options.Threshold = None,
    seed: Annotated[int, typer.Option(help="For the simulated releases.")] = 0,
    json: options.Json = False,
) -> None:
    """Compare all mechanisms and bounds on a file of votes.

    Each number says how many of the file's queries fit the budget. "worst case" holds whatever the
    votes, by exact Rényi costs, and so does "Gaussian", by the exact epsilon of the noisy counts
    behind the labels: a comparison, releases are charged by the former. "allowance" is after how
    many the first voter runs out. The others price these very votes: "per query" and "by voter"
    by exact Rényi costs, "PLD by voter" by the distribution of the privacy loss where that is
    smaller (Binary only), "pate 2018" by the bound published then, which covers one direction
    only. "agreement" is how much of a simulated release agrees with the noise-free majority, over
    all cells and over those where the majority says yes.

    These numbers depend on the votes, so they are for the owner's eyes. Choosing a mechanism by
    them voids the guarantee: compare on public votes, or on votes that are paid for.

    Example:

        privote compare votes.npz --epsilon 8 --delta 1e-5
    """
    from privote.ballots import Ballots
    from privote.errors import positive

    from .fitting import Fitting
    from .progress import working

    if max_queries < 1:
        raise InputError(f"--max-queries must be at least 1, got {max_queries}")
    given = {"binary-sigma": binary_sigma, "tau-sigma": tau_sigma, "tau-l2": tau_l2}
    given |= {"tau-l1": tau_l1, "plurality-sigma": plurality_sigma}
    given |= {} if powerset_sigma is None else {"powerset-sigma": powerset_sigma}
    for name, value in given.items():
        positive(f"--{name}", value)
    with working(f"reading {votes.name}"):
        ballots = Ballots.of(votes, threshold=options.parse_threshold(threshold))
        assert isinstance(ballots, Ballots)  # a file is dense
        cube = ballots.head(min(max_queries, ballots.queries)).to_array()
    fitting = Fitting(votes=cube, epsilon=positive("epsilon", epsilon), delta=delta)
    mechanisms = _mechanisms(
        cube,
        BinaryVoting(sigma=binary_sigma),
        TauVoting(sigma=tau_sigma, tau=tau_l2, norm=2),
        TauVoting(sigma=tau_sigma, tau=tau_l1, norm=1),
        PowersetVoting(
            sigma=_powerset_sigma(cube.shape[2]) if powerset_sigma is None else powerset_sigma
        ),
        PluralityVoting(sigma=plurality_sigma),
    )
    rows = []
    for place, (name, mechanism) in enumerate(mechanisms.items(), start=1):
        # A line each, also where there is no terminal for a bar: a mechanism takes seconds, however
        # few votes there are, because its worst case is over all votes.
        say(f"{place}/{len(mechanisms)}  {name}", err=True)
        rows.append(_row(fitting, name, mechanism, seed))
    _show(rows, ballots.shape, fitting, json=json)


def _powerset_sigma(labels: int) -> float:
    """Return less noise for more labels: 2^k sets are ever harder to tell apart."""
    if labels <= 6:
        return 7.0
    return 4.0 if labels <= 12 else 2.0


def _mechanisms(cube: Any, *candidates: Mechanism) -> dict[str, Mechanism]:
    """Return those that can count these ballots, by a short name."""
    from privote.ballots import Ballots

    out: dict[str, Mechanism] = {}
    for mechanism in candidates:
        try:
            mechanism.check(Ballots.from_array(cube))
        except BallotError:
            continue  # plurality, on ballots with several yes-votes
        known = mechanism.parameters()
        shape = f" {known['tau']:g} l{known['norm']}" if "tau" in known else ""
        out[f"{mechanism.name}{shape}, sigma {known['sigma']:g}"] = mechanism
    return out


def _row(fitting: Any, name: str, mechanism: Mechanism, seed: int) -> dict[str, Any]:
    from .progress import working

    row: dict[str, Any] = {"mechanism": name, "parameters": mechanism.parameters()}
    with working(f"{name}: worst case"):
        row["worst_case"] = fitting.worst_case(mechanism)
        row["gaussian"] = fitting.gaussian(mechanism)
        row["allowance"] = fitting.allowance(mechanism)
    total = len(fitting.votes)
    for key, bound in (("exact_per_query", "exact"), ("pate2018", "pate2018")):
        with working(f"{name}: {bound}, per query", total) as tick:
            row[key] = fitting.per_query(mechanism, bound, tick)
    with working(f"{name}: exact, by voter", total) as tick:
        row["exact_by_voter"] = fitting.by_voter(mechanism, tick, row["exact_per_query"])
    with working(f"{name}: privacy loss, by voter", total) as tick:
        row["pld_by_voter"] = fitting.by_voter_pld(mechanism, row["exact_by_voter"], tick)
    with working(f"{name}: simulated release"):
        row["agreement"], row["agreement_on_yes"] = fitting.agreement(mechanism, seed)
    return row


def _show(rows: list[dict[str, Any]], shape: tuple[int, ...], fitting: Any, *, json: bool) -> None:
    from privote.report import Column

    from .output import print_json, print_table

    queries, voters, labels = shape
    looked = len(fitting.votes)
    if json:
        print_json(
            {
                "note": OWNERS,
                "epsilon": fitting.epsilon,
                "delta": fitting.delta,
                "queries": queries,
                "voters": voters,
                "labels": labels,
                "queries_looked_at": looked,
                "mechanisms": rows,
            }
        )
        return
    columns = [Column(key=key, heading=heading) for key, heading in _HEADINGS.items()]
    print_table(
        rows,
        columns=columns,
        title=f"Queries that fit epsilon {rounded_up(fitting.epsilon)} at delta "
        f"{rounded_up(fitting.delta)} "
        f"({voters} voters, {labels} labels)\n{OWNERS}",
        caption=f"Looked at {looked:,} of {queries:,} queries: {looked:,} means all, or more.",
    )

"""``privote label``: votes in, private labels and their bill out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from privote.errors import InputError

from . import options
from .mechanism import MechanismFlags


def label(
    votes: options.VotesFile,
    mechanism: options.Name,
    epsilon: options.Epsilon,
    delta: options.Delta,
    output: Annotated[
        Path, typer.Option(show_default=False, help="Where the labels go: .csv or .npz.")
    ],
    sigma: options.Sigma = None,
    tau: options.Tau = None,
    norm: options.Norm = None,
    max_positives: options.MaxPositives = None,
    clip: Annotated[
        bool,
        typer.Option(
            "--clip",
            help="Cut ballots to their first --max-positives ones instead of refusing them.",
            rich_help_panel="Mechanism",
        ),
    ] = False,
    quota: options.Quota = None,
    false_alarm: options.FalseAlarm = None,
    link_cost: options.LinkCost = None,
    link_order: options.LinkOrder = None,
    gate_threshold: options.GateThreshold = None,
    gate_sigma: options.GateSigma = None,
    guarantee: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What the budget promises: allowance, worst-case or data-dependent.",
            rich_help_panel="Budget",
        ),
    ] = "allowance",
    queries: Annotated[
        int | None,
        typer.Option(
            help="Answer the first N only; needed for data-dependent.", rich_help_panel="Budget"
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            help="allowance: a public guess (queries, labels), .npy or .csv; zeros unless told.",
            rich_help_panel="Budget",
        ),
    ] = None,
    bound: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="data-dependent: priced by exact, or by pate2018 to compare.",
            rich_help_panel="Budget",
        ),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            help="Charge this ledger: the budget is then the data set's, over all runs.",
            rich_help_panel="Budget",
        ),
    ] = None,
    dataset: Annotated[
        str, typer.Option(help="The data set's name in the ledger.", rich_help_panel="Budget")
    ] = "default",
    consumer: Annotated[
        str | None,
        typer.Option(help="For whom, by name in the ledger.", rich_help_panel="Budget"),
    ] = None,
    threshold: options.Threshold = None,
    seed: options.Seed = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the output if it exists.")
    ] = False,
    show_sealed: Annotated[
        bool,
        typer.Option("--show-sealed", help="Also show the numbers that must not be published."),
    ] = False,
    json: options.Json = False,
) -> None:
    r"""Release private labels for a file of votes, within a budget.

    The bill shows what may be published. With "allowance" epsilon is fixed before a vote is seen
    and every query is answered: each voter may cast so many surprises (votes that depart from the
    public baseline) in its life, and counts as the baseline after that. "worst-case" answers until
    the next query would not fit. "data-dependent" is about these votes only, is not differential
    privacy, and its epsilon is sealed: it is shown to the owner only, with --show-sealed.

    In the CSV file a row is a query; a label is 1, 0, or -1 where the gate held it back (ABSTAIN).
    The .npz file also holds the bill; read it with privote.Release.load.

    Example:

        privote label votes.npz --mechanism binary --sigma 7 \
          --epsilon 8 --delta 1e-5 --output labels.csv
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
    if clip and max_positives is None:
        raise InputError("--clip goes with --max-positives: give both")
    if ledger is None and (consumer is not None or dataset != "default"):
        raise InputError("--dataset and --consumer are names in a ledger: give --ledger too")
    if bound is not None and guarantee != "data-dependent":
        raise InputError(f"--bound goes with --guarantee data-dependent, not with {guarantee!r}")
    release = _release(
        votes,
        flags,
        output,
        force=force,
        clip=clip,
        threshold=options.parse_threshold(threshold),
        baseline=baseline,
        request={
            "epsilon": epsilon,
            "delta": delta,
            "guarantee": guarantee,
            "queries": queries,
            "bound": bound or "exact",
            "ledger": ledger,
            "dataset": dataset,
            "consumer": consumer,
            "seed": seed,
        },
    )
    sealed = _sealed(release) if show_sealed else None
    _show_json(release, output, sealed) if json else _show(release, output, sealed)


def _release(
    votes: Path,
    flags: MechanismFlags,
    output: Path,
    *,
    force: bool,
    clip: bool,
    threshold: float | list[float] | None,
    baseline: Path | None,
    request: dict[str, Any],
) -> Any:
    """Release and write; whatever can be refused is refused before a label is drawn."""
    import privote

    from .files import claimed, read_baseline, write_labels
    from .progress import WatchedBallots, working

    mechanism = flags.build()
    guess = None if baseline is None else read_baseline(baseline)
    with claimed(output, force=force) as draft:
        with working(f"reading {votes.name}"):
            ballots = privote.Ballots.of(votes, threshold=threshold)
        if clip and flags.max_positives is not None and isinstance(ballots, privote.Ballots):
            ballots = ballots.clip(flags.max_positives)
        with working("answering", ballots.queries) as tick:
            watched = WatchedBallots(ballots, tick)
            release = privote.label(watched, mechanism=mechanism, baseline=guess, **request)
        write_labels(release, draft)
    return release


def _sealed(release: Any) -> dict[str, Any]:
    """Return what is for the owner's eyes, as plain numbers."""
    import numpy as np

    from .progress import working

    if release.guarantee == "allowance":
        spent = release.sealed.spent
        return {
            "voters_who_ran_out": int(release.sealed.exhausted.sum()),
            "surprises_cast_fewest": int(spent.min()),
            "surprises_cast_median": float(np.median(spent)),
            "surprises_cast_most": int(spent.max()),
        }
    if release.guarantee == "data-dependent":
        with working("pricing each voter"):
            bills = release.sealed.bills()
        return {
            "bound": release.sealed.bound,
            "epsilon": float(release.sealed.epsilon),
            "epsilon_of_costliest_voter": float(bills.max()),
            "epsilon_of_median_voter": float(np.median(bills)),
        }
    return {}


def _show_json(release: Any, output: Path, sealed: dict[str, Any] | None) -> None:
    from privote.report import OWNER_ONLY, mark

    from .output import print_json

    payload = {
        **release.facts(),
        "mark": mark(release.guarantee),
        "output": str(output),
        "statement": release.statement(),
    }
    if sealed is not None:
        payload["sealed"] = {"note": OWNER_ONLY, **sealed}
    print_json(payload)


def _show(release: Any, output: Path, sealed: dict[str, Any] | None) -> None:
    from privote.mechanisms.base import describe
    from privote.report import OWNER_ONLY, mark

    from .output import print_facts

    hidden = release.epsilon is None
    facts: dict[str, Any] = {
        "queries answered": release.answered,
        "labels each": release.labels.shape[1],
        "voters": release.voters,
        "mechanism": describe(release.mechanism),
        "guarantee": release.guarantee
        + ("" if hidden else f" ({mark(release.guarantee)}, may be published)"),
        "epsilon": "sealed: it depends on the votes" if hidden else release.epsilon,
        "delta": release.delta,
        "budget": release.budget,
    }
    caption = None
    if release.allowance is not None:
        facts["allowance"] = f"{release.allowance:,} surprises a voter, for life"
        caption = (
            f"The allowance is {release.allowance / release.answered:.2g} surprises a query. "
            "Voters who cast more run out, and then count as the baseline; who did is sealed."
        )
    if release.abstained:
        facts["held back (ABSTAIN)"] = f"{release.abstained:,} labels"
    if release.simulated:
        facts["SIMULATED"] = "a seed was given: these labels protect nobody"
    facts["labels written to"] = str(output)
    print_facts(facts, title="Bill", caption=caption)
    if sealed is not None:
        shown = {name.replace("_", " "): value for name, value in sealed.items()}
        nothing = {"nothing": "under worst-case every number may be published"}
        print_facts(shown or nothing, title=OWNER_ONLY.capitalize())

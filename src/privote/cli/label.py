"""``privote label``: votes in, private labels and their bill out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from privote.errors import InputError, PrivoteWarning

from . import options
from .options import Account, Group, MechanismFlags, derived

_FEW = 5  # voters named on one line
_KNOWN = {
    "place": "their place in the file: as many voters without names are taken to be the same "
    "persons in every run, whatever the file. Keep their order, or give --voter-ids; other persons "
    "have another --dataset",
    "name": "their names, whatever their order in the file",
}


_MECHANISM = Annotated[
    str,
    typer.Option(
        "--mechanism",
        metavar="NAME",
        help="auto: tallies, with noise that is learnt from the votes, privately. Or binary, tau, "
        "powerset, plurality, tally; or package.module:Class, a class of your own, which is "
        "imported and so runs.",
        rich_help_panel="Mechanism",
    ),
]


@derived(
    mechanism=Group(of=MechanismFlags, instead={"name": (_MECHANISM, "auto")}),
    account=Group(of=Account, without=("electorate",)),
)
def label(
    votes: options.VotesFile,
    mechanism: MechanismFlags,
    account: Account,
    epsilon: options.Epsilon,
    delta: options.Delta,
    output: Annotated[
        Path,
        typer.Option(
            show_default=False, help="Where the labels go, on this machine: .csv or .npz."
        ),
    ],
    clip: Annotated[
        bool,
        typer.Option(
            "--clip",
            help="Cut ballots to their first --max-positives ones instead of refusing them.",
            rich_help_panel="Mechanism",
        ),
    ] = False,
    guarantee: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What the budget promises: allowance or worst-case; ptr or data-dependent, for "
            "a named mechanism. auto: allowance; worst-case for a named mechanism without a "
            "ledger, if all queries fit.",
            rich_help_panel="Budget",
        ),
    ] = "auto",
    queries: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Answer the first N; unless told, all. Needed for ptr and data-dependent.",
            rich_help_panel="Budget",
        ),
    ] = None,
    plan_for: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="auto, with --ledger: the allowance is for N queries in all, these included; "
            "later runs go on with it, at no further cost.",
            rich_help_panel="Budget",
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            help="allowance: a public guess (queries, labels), .npy or .csv; zeros unless told.",
            rich_help_panel="Budget",
        ),
    ] = None,
    voter_ids: Annotated[
        Path | None,
        typer.Option(
            help="allowance: names of the voters in the order of the votes, by which a ledger "
            "knows them again: a text file with one a line, a .csv with the column 'voter', a "
            ".npy, or a .npz with the array 'voter_ids'.",
            rich_help_panel="Budget",
        ),
    ] = None,
    implies: Annotated[
        Path | None,
        typer.Option(
            help="Which labels imply which: a .csv with the columns child and parent, or lines "
            "'child -> parent'. After the draw a 1 raises all that it implies, at no cost.",
        ),
    ] = None,
    probabilities: Annotated[
        Path | None,
        typer.Option(
            help="Also write here how likely most voters want each label, by all that was "
            "released: .csv, .npy or .npz. For tallies, as auto releases them.",
        ),
    ] = None,
    statement: Annotated[
        Path | None,
        typer.Option(help="Also write the privacy statement here, and as .json beside it."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="Also write a page here, .html: bill, what to expect, statement."),
    ] = None,
    threshold: options.Threshold = None,
    empty_chunks: options.EmptyChunks = None,
    seed: options.Seed = None,
    force: options.Force = False,
    resume: options.Resume = False,
    show_sealed: Annotated[
        bool,
        typer.Option("--show-sealed", help="Also show the numbers that must not be published."),
    ] = False,
    json: options.Json = False,
) -> None:
    r"""Release private labels for a file of votes, within a budget.

    Example:

        privote label votes.npz --epsilon 8 --delta 1e-5 --output labels.csv

    Nothing needs to be guessed. How often voters speak is learnt from their votes, privately, for
    about a tenth of the budget, and the noise follows from it; noisy tallies of all queries are
    released, and labels are decided from all of them together, which is free. The first line of the
    bill says how good they are expected to be, from released numbers alone, or that this cannot be
    told. Or name a mechanism and its noise: --mechanism binary --sigma 7.

    With "allowance" epsilon is fixed before a vote is seen: each voter may cast so many surprises
    (votes that depart from the public baseline) in its life, and counts as the baseline after that.
    "worst-case" never cuts anybody; a named mechanism answers until the next query would not fit.
    "ptr" (binary only) tests privately whether the votes agree
    enough, and releases all labels or none. "data-dependent" is about these votes only and is not
    differential privacy: its exact epsilon is sealed, shown to the owner only, with --show-sealed;
    what may be published is a noisy, sanitized one (binary only), drawn once, along with the
    labels.

    The output's place is claimed before anything is charged, and labels are on disk as soon as they
    are drawn. If anything fails after that, exit code 6 says so, and the same command with --resume
    goes on from there, at no further charge.

    In the CSV file a row is a query; a label is 1, 0, or -1 where the gate held it back (ABSTAIN).
    Rows of a named mechanism by which voters should have run out say so in a last column,
    "expected": poor.
    Queries and labels are called as in the votes, where these have names (a CSV file has).
    The .npz file also holds the bill; read it with privote.Release.load.
    """
    import privote
    from privote.dependencies import Implications, consistent
    from privote.files import Draft, beside, complete, name_of, write_statement
    from privote.labelling import KeptReleases, has_names, read_as
    from privote.report.bill import write_label_page
    from privote.votes.cube import Ballots

    from .files import (
        CHANCES,
        LABEL_FILES,
        check_new,
        check_statement,
        read_baseline,
        read_names,
        write_labels,
        write_probabilities,
    )
    from .progress import WatchedBallots, working

    if clip and mechanism.max_positives is None:
        raise InputError("clip", "goes with `max_positives`: give both")
    if voter_ids is not None and guarantee not in ("allowance", "auto"):
        raise InputError("voter_ids", "goes with `guarantee=allowance`", guarantee)
    if resume and show_sealed:
        rule = "goes without `resume`: nothing sealed is kept in a draft"
        raise InputError("show_sealed", rule)
    mech = mechanism.build_if_named()
    if probabilities is not None and mech is not None and mech.name != "tally":
        raise InputError("probabilities", "are of tallies, as auto releases them", str(mech))
    names: Sequence[str] | None = None if voter_ids is None else read_names(voter_ids)
    read = [path for path in (Path(votes), baseline, voter_ids, implies) if path is not None]
    read += account.files
    if statement is not None:
        check_statement(statement, output, force=force or resume, keep=read)
    if report is not None:
        check_new("report", report, (".html",), force=force or resume, keep=read)
    if probabilities is not None:
        check_new(
            "probabilities", probabilities, CHANCES, force=force or resume, keep=[*read, output]
        )
    check_new("output", output, LABEL_FILES, force=force or resume, keep=read)
    asked: dict[str, Any] = {"mechanism": "auto" if mech is None else mech.parameters()}
    asked |= {"epsilon": epsilon, "delta": delta, "seed": seed}
    asked |= {"guarantee": guarantee, "queries": queries, "plan_for": plan_for}
    asked |= {"dataset": account.dataset, "consumer": account.consumer, "votes": name_of(votes)}
    stated = None if implies is None else Implications.of(implies)
    asked |= {"implies": None if stated is None else stated.pairs}
    with Draft(beside(output), asked, resume=resume, force=force) as draft:
        ballots: Any = None
        guess = None
        if not KeptReleases(draft).all_there:  # else no vote is needed any more
            with working(f"reading {name_of(votes)}"):
                bar = options.parse_threshold(threshold)
                counted = "auto" if mech is None else mech
                ballots = _read(draft, votes, counted, bar, empty_chunks)
        if ballots is not None:
            if stated is not None:
                stated.places(ballots.labels, getattr(ballots, "label_names", None))
            if baseline is not None:
                guess = read_baseline(baseline, getattr(ballots, "query_names", None))
            if clip and mechanism.max_positives is not None and isinstance(ballots, Ballots):
                ballots = ballots.clip(mechanism.max_positives)
        asking = working("answering", None if ballots is None else ballots.queries)
        with account.explained(), asking as tick:
            release = privote.label(
                None if ballots is None else WatchedBallots(ballots, tick),
                mechanism="auto" if mech is None else mech,
                epsilon=epsilon,
                delta=delta,
                guarantee=guarantee,
                queries=queries,
                plan_for=plan_for,
                baseline=guess,
                ledger=account.place,
                dataset=account.dataset,
                consumer=account.consumer,
                voter_ids=names,
                seed=seed,
                output=draft,
                resume=resume,
            )
        if stated is not None:
            release = consistent(release, stated)
        with complete(output, force=force) as part:
            write_labels(release, part)
        if probabilities is not None:
            with complete(probabilities, force=force) as part:
                write_probabilities(release, part)
        if statement is not None:
            write_statement(release, statement, force=force)
        if report is not None:
            with complete(report, force=force) as part:
                write_label_page(part, release)
        draft.finish()
    if names is None:
        names = getattr(ballots, "voter_names", None)
    said = None
    if ballots is not None:
        shape = (ballots.queries, ballots.voters, ballots.labels)
        said = read_as(shape, named=has_names(ballots, names))
    _show(release, output, names, said, show_sealed=show_sealed, json=json)


def _read(draft: Any, *how: Any) -> Any:
    """Return the votes; None where they cannot be read any more, and what was released will do."""
    from privote.labelling import ballots_of

    try:
        return ballots_of(*how)
    except InputError as error:
        if not draft.paid:
            raise
        warnings.warn(
            f"the votes cannot be read any more, so no more queries are answered: {error}",
            PrivoteWarning,
            stacklevel=2,
        )
        return None


def _show(
    release: Any,
    output: Path,
    names: Sequence[str] | None,
    read_as: str | None,
    *,
    show_sealed: bool,
    json: bool,
) -> None:
    from privote.report import OWNER_ONLY, mark
    from privote.report.bill import bill, of_owner, remark
    from privote.statements import headline

    from .output import once, print_facts, print_json
    from .progress import working

    known_by = None
    if release.ledger is not None and release.guarantee == "allowance":
        known_by = "place" if names is None else "name"
    with working("pricing each voter"):
        sealed = of_owner(release, names) if show_sealed else None
    if json:
        payload = {
            "headline": headline(release),
            **release.facts(),
            "quality": release.quality,
            "mark": mark(release.guarantee, sanitized=release.epsilon is not None),
            "voters_known_by": known_by,
            "read_as": read_as,
            "expected_poor_from_row": release.poor_from,
            "output": str(output),
            "statement": release.statement(),
        }
        owners = {} if sealed is None else {"sealed": {"note": OWNER_ONLY, **sealed}}
        print_json({**payload, **owners})
        return
    more = {"voters known by": _KNOWN.get(known_by or ""), "labels written to": str(output)}
    read = {"votes read as": read_as}
    print_facts({**read, **once(bill(release)), **more}, title="Bill", caption=remark(release))
    if sealed is not None:
        shown = {name.replace("_", " "): _listed(value) for name, value in sealed.items()}
        nothing = {"nothing": f"under {release.guarantee} every number may be published"}
        print_facts(shown or nothing, title=OWNER_ONLY.capitalize())


def _listed(value: Any) -> Any:
    """Return a table of voters as one line: the first few, and how many more."""
    if not isinstance(value, dict):
        return value
    shown = ", ".join(f"{count:,} of voter {name}" for name, count in [*value.items()][:_FEW])
    more = f" and of {len(value) - _FEW:,} more" if len(value) > _FEW else ""
    return f"{shown}{more}" if value else "none"

"""``privote label``: votes in, private labels and their bill out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from privote.accounting.renyi import rounded_up
from privote.errors import InputError

from . import options
from .groups import Group, grouped
from .ledger_options import LedgerFlags
from .mechanism import MechanismFlags

_SANITIZED = (
    "Epsilon is what labels and this number cost at most, with confidence {sure:g} (1 - gamma). It "
    "is about these votes and their neighbours; not differential privacy. The noise in it is "
    "sigma_s times the smooth sensitivity: how far the cost can move if one voter's ballots "
    "change, here or, counting less by exp(-beta) a ballot, nearby. price_2018 is for comparison "
    "only: not a valid bound. More: docs/publishing.md."
)
_FEW = 5  # voters named on one line
_KNOWN = {
    "place": "their place in the file: keep their order in every run, or give --voter-ids",
    "name": "their names, whatever their order in the file",
}


@grouped(
    mechanism=Group(of=MechanismFlags),
    account=Group(of=LedgerFlags, without=("electorate",)),
)
def label(
    votes: options.VotesFile,
    mechanism: MechanismFlags,
    account: LedgerFlags,
    epsilon: options.Epsilon,
    delta: options.Delta,
    output: Annotated[
        Path, typer.Option(show_default=False, help="Where the labels go: .csv or .npz.")
    ],
    clip: Annotated[
        bool,
        typer.Option(
            "--clip",
            help="Cut ballots to their first --max-positives ones instead of refusing them.",
            rich_help_panel="Mechanism",
        ),
    ] = False,
    guarantee: options.Guarantee = "allowance",
    queries: Annotated[
        int | None,
        typer.Option(
            help="Answer the first N only; needed for ptr and data-dependent.",
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
    bound: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="data-dependent: priced by exact, or by pate2018 to compare.",
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
    statement: Annotated[
        Path | None,
        typer.Option(help="Also write the privacy statement here, and as .json beside it."),
    ] = None,
    threshold: options.Threshold = None,
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

    The bill shows what may be published. With "allowance" epsilon is fixed before a vote is seen
    and every query is answered: each voter may cast so many surprises (votes that depart from the
    public baseline) in its life, and counts as the baseline after that. "worst-case" answers until
    the next query would not fit. "ptr" (binary only) tests privately whether the votes agree
    enough, and releases all labels or none. "data-dependent" is about these votes only and is not
    differential privacy: its exact epsilon is sealed, shown to the owner only, with --show-sealed;
    what may be published is a noisy, sanitized one (binary only), drawn once, along with the
    labels. --show-sealed then also shows what PATE 2018 would have said, which is no valid bound.

    The output's place is claimed before anything is charged, and labels are on disk as soon as they
    are drawn. If anything fails after that, exit code 6 says so, and the same command with --resume
    finishes from there, at no further charge.

    In the CSV file a row is a query; a label is 1, 0, or -1 where the gate held it back (ABSTAIN).
    Queries and labels are called as in the votes, where these have names (a CSV file has).
    The .npz file also holds the bill; read it with privote.Release.load.

    Example:

        privote label votes.npz --mechanism binary --sigma 7 \
          --epsilon 8 --delta 1e-5 --output labels.csv
    """
    import privote
    from privote.ballots import Ballots
    from privote.drafts import Draft, beside, complete

    from .files import (
        LABEL_FILES,
        check_new,
        check_statement,
        read_baseline,
        read_names,
        write_labels,
        write_statement,
    )
    from .progress import WatchedBallots, working

    if clip and mechanism.max_positives is None:
        raise InputError("--clip goes with --max-positives: give both")
    if voter_ids is not None and guarantee != "allowance":
        raise InputError(f"--voter-ids goes with --guarantee allowance, not with {guarantee!r}")
    if bound is not None and guarantee != "data-dependent":
        raise InputError(f"--bound goes with --guarantee data-dependent, not with {guarantee!r}")
    if resume and show_sealed:
        raise InputError("--show-sealed goes without --resume: nothing sealed is kept in a draft")
    mech = mechanism.build()
    names: Sequence[str] | None = None if voter_ids is None else read_names(voter_ids)
    read = [path for path in (votes, baseline, voter_ids) if path is not None]
    read += account.files
    if statement is not None:
        check_statement(statement, output, force=force or resume, keep=read)
    check_new("--output", output, LABEL_FILES, force=force or resume, keep=read)
    asked = {"mechanism": mech.parameters(), "epsilon": epsilon, "delta": delta, "seed": seed}
    asked |= {"guarantee": guarantee, "queries": queries}
    asked |= {"dataset": account.dataset, "consumer": account.consumer, "votes": votes.name}
    with Draft(beside(output), asked, resume=resume, force=force) as draft:
        ballots: Any = None
        guess = None
        if not resume:
            with working(f"reading {votes.name}"):
                ballots = Ballots.of(votes, threshold=options.parse_threshold(threshold))
            if baseline is not None:
                guess = read_baseline(baseline, getattr(ballots, "query_names", None))
            if clip and mechanism.max_positives is not None and isinstance(ballots, Ballots):
                ballots = ballots.clip(mechanism.max_positives)
        with working("answering", None if resume else ballots.queries) as tick:
            release = privote.label(
                None if resume else WatchedBallots(ballots, tick),
                mechanism=mech,
                epsilon=epsilon,
                delta=delta,
                guarantee=guarantee,
                queries=queries,
                baseline=guess,
                bound=bound or "exact",
                ledger=account.place,
                dataset=account.dataset,
                consumer=account.consumer,
                voter_ids=names,
                seed=seed,
                output=draft,
                resume=resume,
            )
        with complete(output, force=force) as part:
            write_labels(release, part)
        if statement is not None:
            write_statement(release, statement, force=force)
        draft.finish()
    known_by = None
    if names is None:
        names = getattr(ballots, "voter_names", None)
    if release.ledger is not None and guarantee == "allowance":
        known_by = "place" if names is None else "name"
    sealed = _sealed(release, names, ballots) if show_sealed else None
    show = _show_json if json else _show
    show(release, output, known_by, sealed)


def _sealed(release: Any, names: Sequence[str] | None, ballots: Any) -> dict[str, Any]:
    """Return what is for the owner's eyes, as plain numbers."""
    import numpy as np

    from .progress import working

    if release.guarantee == "allowance":
        spent, refused = release.sealed.spent, release.sealed.refused
        who = np.flatnonzero(refused)
        return {
            "voters_who_ran_out": int(release.sealed.exhausted.sum()),
            "ballots_refused": {
                str(voter) if names is None else names[voter]: int(refused[voter])
                for voter in who[np.argsort(-refused[who], kind="stable")]
            },
            "surprises_cast_fewest": int(spent.min()),
            "surprises_cast_median": float(np.median(spent)),
            "surprises_cast_most": int(spent.max()),
        }
    if release.guarantee == "data-dependent":
        with working("pricing each voter"):
            bills = release.sealed.bills()
            exact = {
                name: getattr(release.sealed, name)
                for name in ("epsilon_by_voter", "accountant", "epsilon_rdp", "epsilon_pld")
            }
        return {
            "bound": release.sealed.bound,
            "epsilon": float(release.sealed.epsilon),
            "epsilon_of_costliest_voter": float(bills.max()),
            "epsilon_of_median_voter": float(np.median(bills)),
            **exact,
            **_as_in_2018(release, ballots),
        }
    return {}


def _as_in_2018(release: Any, ballots: Any) -> dict[str, Any]:
    """Return the figures of PATE 2018's own procedure on these votes, where it is defined."""
    from privote.accounting.sanitize2018 import sanitized
    from privote.guardian.consensus import Levels
    from privote.mechanisms import BinaryVoting

    sigma = release.mechanism.get("sigma")
    if sigma is None or release.mechanism != BinaryVoting(sigma=sigma).parameters():
        return {}
    mechanism = BinaryVoting(sigma=sigma)
    levels = Levels.of(mechanism, ballots)
    if levels is None or levels.reach != 1:
        return {}
    for block in ballots.head(release.answered).blocks():
        levels.add(mechanism.tally(block))
    found = sanitized(levels.histogram, sigma, release.delta)._asdict()
    note = "for comparison only: not a valid bound"
    return {"pate2018": note, **{f"pate2018_{name}": value for name, value in found.items()}}


def _show_json(
    release: Any, output: Path, known_by: str | None, sealed: dict[str, Any] | None
) -> None:
    from privote.report import OWNER_ONLY, mark

    from .output import print_json

    payload = {
        **release.facts(),
        "mark": mark(release.guarantee, sanitized=release.epsilon is not None),
        "voters_known_by": known_by,
        "output": str(output),
        "statement": release.statement(),
    }
    if sealed is not None:
        payload["sealed"] = {"note": OWNER_ONLY, **sealed}
    print_json(payload)


def _show(release: Any, output: Path, known_by: str | None, sealed: dict[str, Any] | None) -> None:
    from privote.mechanisms.base import describe
    from privote.report import OWNER_ONLY, mark

    from .output import print_facts

    allowed = mark(release.guarantee, sanitized=release.epsilon is not None)
    facts: dict[str, Any] = {
        "queries answered": release.answered,
        "labels each": release.labels.shape[1],
        "voters": release.voters,
        "mechanism": describe(release.mechanism),
        "guarantee": release.guarantee,
        "epsilon": "sealed: it depends on the votes",
        "delta": release.delta,
        "budget": release.budget,
    }
    if release.epsilon is not None:
        facts["epsilon"] = f"{rounded_up(release.epsilon)} ({allowed}; may be published)"
    for name, value in release.terms.items():
        facts[name] = value
    caption = None
    if release.allowance is not None:
        each = release.allowance if isinstance(release.allowance, tuple) else (release.allowance,)
        span = " to ".join(f"{value:,}" for value in sorted({min(each), max(each)}))
        facts["allowance"] = f"{span} surprises a voter, for life"
        so_far = release.so_far or release.answered
        if so_far > release.answered:
            facts["answered from it so far"] = f"{so_far:,} queries, under this one epsilon"
        caption = (
            f"The allowance is {min(each) / so_far:.2g} surprises for each of the {so_far:,} "
            "queries answered from it so far. Voters who cast more run out, and then count as the "
            "baseline; who did is sealed."
        )
    if "gamma" in release.terms:
        caption = _SANITIZED.format(sure=1 - release.terms["gamma"])
    if release.terms.get("passed") is False:
        caption = (
            "The test failed: nothing was released, and the whole budget of this data set is spent."
        )
    if known_by is not None:
        facts["voters known by"] = _KNOWN[known_by]
    if release.abstained:
        facts["held back (ABSTAIN)"] = f"{release.abstained:,} labels"
    if release.simulated:
        facts["SIMULATED"] = "a seed was given: these labels protect nobody"
    facts["labels written to"] = str(output)
    print_facts(facts, title="Bill", caption=caption)
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

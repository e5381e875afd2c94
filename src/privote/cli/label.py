"""``privote label``: votes in, private labels and their bill out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privote.errors import InputError, PrivoteWarning

from . import options
from .options import Account, Group, MechanismFlags, derived

if TYPE_CHECKING:
    from privote import Release

_KNOWN = {
    "place": "their place in the file: as many voters without names are taken to be the same "
    "persons in every run, whatever the file. Keep their order, or give --voter-ids; other persons "
    "have another --dataset",
    "name": "their names, whatever their order in the file",
}


@derived(
    asked=Group(of="label", without=("ledger", "dataset", "consumer")),
    mechanism=Group(of=MechanismFlags, instead={"name": (options.Name, "auto")}),
    account=Group(of=Account, without=("electorate",)),
)
def label(
    votes: str,
    *,
    asked: dict[str, Any],
    output: Path,
    mechanism: MechanismFlags,
    account: Account,
    clip: bool = False,
    threshold: str | None = None,
    baseline: Path | None = None,
    voter_ids: Path | None = None,
    probabilities: Path | None = None,
    statement: Path | None = None,
    report: Path | None = None,
    force: bool = False,
    resume: bool = False,
    show_sealed: bool = False,
    json: bool = False,
) -> None:
    r"""Release private labels for a file of votes, within a budget.

    Example:

        privote label votes.npz --epsilon 8 --delta 1e-5 --output labels.csv

    Nothing needs to be guessed. How often voters say yes is learnt from their votes, privately, for
    about a tenth of the budget, and the noise follows from it. Noisy tallies of all queries are
    released, and labels are decided from all of them together, which is free. The first line of the
    bill says how good they are expected to be, from released numbers alone, or that this cannot be
    told. Or name a mechanism and its noise: --mechanism binary --sigma 7.

    The output's place is claimed before anything is charged, and labels are on disk as soon as they
    are drawn. If anything fails after that, exit code 6 says so, and the same command with --resume
    continues from there, at no further charge.

    In the CSV file a row is a query; a label is 1, 0, or -1 where the gate held it back (ABSTAIN).
    Queries and labels have the names that the votes give them. The .npz file also holds the bill;
    read it with privote.Release.load.

    Parameters
    ----------
    output
        Where the labels go, on this machine: .csv or .npz.
    name : NAME
        auto: tallies, with noise that is learnt from the votes, privately. Or binary, tau,
        powerset, plurality, tally; or package.module:Class, a class of your own, which is imported
        and so runs.
    clip
        Cut ballots to their first ``max_positives`` ones instead of refusing them.
    guarantee : NAME
        What the budget promises. allowance: epsilon is fixed before a vote is seen; each voter may
        cast so many surprises (votes that depart from the public baseline) in its life, and counts
        as the baseline after that. worst-case: nobody is cut; a named mechanism answers until the
        next query would not fit. auto (the default): allowance; for a named mechanism without a
        ledger, worst-case if all queries fit. For a named mechanism also ptr (binary only): a
        private test decides whether all labels are released or none. And data-dependent, which is
        about these votes only and not differential privacy: its exact epsilon is sealed, for
        ``show_sealed``; a noisy, sanitized one (binary only) may be published.
    queries : N
        Answer the first N queries; all by default. Needed for ptr and data-dependent.
    plan_for : N
        auto, with ``ledger``: the allowance is for N queries in all, these included. Later runs
        continue with it, at no further cost.
    baseline
        allowance: a public guess (queries, labels), .npy or .csv; zeros by default.
    voter_ids
        allowance: names of the voters in the order of the votes, by which a ledger knows them
        again: a text file with one a line.
    probabilities
        Also write the probability that most voters want each label, given all that was released:
        .csv or .npy. For tallies, as auto releases them.
    statement
        Also write the privacy statement here, and as .json beside it.
    report
        Also write a page here, .html: bill, what to expect, statement.
    """
    import privote
    from privote.files import check_new, complete, name_of, write_statement
    from privote.labelling import Output, read_as
    from privote.report.results import write_label_page

    from .files import (
        CHANCES,
        LABEL_FILES,
        check_statement,
        read_array,
        read_names,
        write_labels,
        write_probabilities,
    )
    from .output import working

    if clip and mechanism.max_positives is None:
        raise InputError("clip", "goes with `max_positives`: give both")
    if voter_ids is not None and asked.get("guarantee") not in ("allowance", "auto", None):
        raise InputError("voter_ids", "goes with `guarantee=allowance`", asked["guarantee"])
    if resume and show_sealed:
        rule = "goes without `resume`: nothing sealed is kept in a draft"
        raise InputError("show_sealed", rule)
    mech = mechanism.build() if mechanism.named else "auto"
    if probabilities is not None and getattr(mech, "name", "tally") != "tally":
        raise InputError("probabilities", "are of tallies, as auto releases them", str(mech))
    names: Sequence[str] | None = None if voter_ids is None else read_names(voter_ids)
    read = [path for path in (Path(votes), baseline, voter_ids) if path is not None]
    read += account.files
    files: dict[str, tuple[Path | None, tuple[str, ...], Any]] = {
        "output": (output, LABEL_FILES, write_labels),
        "probabilities": (probabilities, CHANCES, write_probabilities),
        "report": (report, (".html",), write_label_page),
    }
    for argument, (path, suffixes, _) in files.items():
        if path is not None:
            check_new(argument, path, suffixes, force=force or resume, keep=read)
            read += [path]
    if statement is not None:
        check_statement(statement, force=force or resume, keep=read)

    def write(release: Release) -> Release:
        for path, _, write_file in files.values():
            if path is not None:
                with complete(path, force=force) as part:
                    write_file(part, release)
        if statement is not None:
            write_statement(release, statement, force=force)
        return release

    with working(f"reading {name_of(votes)}"):
        ballots = _read(votes, mech, options.numbers("threshold", threshold), resume=resume)
        guess, known = None, getattr(ballots, "query_names", None)
        if ballots is not None:
            if baseline is not None:
                guess = read_array(baseline, "baseline", queries=known)
            if clip:
                ballots = ballots.clip(mechanism.max_positives)
    with working("answering"):
        release = privote.label(
            ballots,
            mechanism=mech,
            baseline=guess,
            voter_ids=names,
            output=Output(output, write, {"votes": name_of(votes)}),
            resume=resume,
            force=force,
            **account.arguments,
            **asked,
        )
    if names is None:
        names = getattr(ballots, "voter_names", None)
    said = None if ballots is None else read_as(ballots, names)
    _show(release, output, names, said, show_sealed=show_sealed, json=json)


def _read(*how: Any, resume: bool) -> Any:
    """Return the votes; None where they cannot be read, and what was released will do."""
    from privote.labelling import ballots_of

    try:
        return ballots_of(*how)
    except InputError as error:
        if not resume:
            raise
        warnings.warn(
            f"the votes cannot be read, so no more queries are answered: {error}",
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
    from privote.release import OWNER_ONLY, mark, of_owner

    from .output import once, print_facts, print_json, working

    known_by = None
    if release.ledger is not None and release.guarantee == "allowance":
        known_by = "place" if names is None else "name"
    with working("pricing each voter"):
        sealed = of_owner(release, names) if show_sealed else None
    if json:
        payload = {
            "headline": release.headline,
            **release.facts(),
            "quality": release.quality,
            "mark": mark(release.guarantee, sanitized=release.epsilon is not None),
            "voters_known_by": known_by,
            "read_as": read_as,
            "output": str(output),
            "rows": {row.name: row.text for row in release.rows()},
            "statement": release.statement(),
        }
        owners = {} if sealed is None else {"sealed": {"note": OWNER_ONLY, **sealed}}
        print_json({**payload, **owners})
        return
    rows = {row.name: row.text for row in release.rows() if row.brief}
    more = {"voters known by": _KNOWN.get(known_by or ""), "labels written to": str(output)}
    first = {"in short": release.headline, "votes read as": read_as}
    print_facts({**first, **once(rows), **more}, title="Bill")
    if sealed is not None:
        shown = {
            name.replace("_", " "): f"of {len(value):,} voters: --json lists them"
            if isinstance(value, dict)
            else value
            for name, value in sealed.items()
        }
        nothing = {"nothing": f"under {release.guarantee} every number may be published"}
        print_facts(shown or nothing, title=OWNER_ONLY.capitalize())

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
    "place": "their position in the file: voters without names are assumed to be the same "
    "persons in the same order in every run. Keep the order or give --voter-ids; for other persons "
    "use another --dataset",
    "name": "their names, in any order",
}


@derived(
    asked=Group(of="label", without=("ledger", "dataset", "budget")),
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
    soft: bool = False,
    queries_from: Path | None = None,
    voters_from: Path | None = None,
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
    r"""Release private labels for a file of votes, at a stated epsilon.

    Example:

        privote label votes.npz --epsilon 8 --delta 1e-5 --output labels.csv

    By default there is nothing to tune. About a tenth of epsilon's price is for learning privately
    how often voters say yes, and the noise is set from that. Noisy tallies of all queries are
    released; labels are then decided from all tallies together, at no cost. The first line of the
    bill gives the expected quality of the labels, computed from released numbers only, or says that
    it cannot be estimated. To choose the mechanism and its noise yourself: --mechanism binary
    --sigma 7.

    The output file is reserved before anything is charged, and labels are written as soon as they
    are drawn. If the run fails after the charge, it exits with code 6; repeat the command with
    --resume to finish it at no further charge.

    The CSV file has one row per query. A label is 1, 0, or -1 where the gate withheld it (ABSTAIN).
    Queries and labels keep their names from the votes file. An .npz file also contains the bill;
    read it with privote.Release.load.

    Parameters
    ----------
    output
        The file for the labels: a local .csv or .npz.
    name : NAME
        auto: noisy tallies, with the amount of noise learnt privately from the votes. Or
        ``MECHANISMS``; or your own class as package.module:Class, which runs when it is imported.
    clip
        Keep only the first ``max_positives`` ones of each ballot, instead of refusing longer
        ballots.
    guarantee : NAME
        How epsilon is guaranteed. allowance: epsilon is fixed before any vote is seen; each voter
        may cast a limited number of contributions (votes that differ from the public baseline) over
        all queries, and counts as the baseline after that. worst-case: no voter is limited; a named
        mechanism answers until the next query would exceed epsilon. auto (the default):
        allowance; for a named mechanism without a ledger, worst-case if all queries fit. Named
        mechanisms also offer data-dependent, which is not differential privacy: its epsilon holds
        for these votes only. The exact value is sealed (see ``show_sealed``); a noisy, sanitized
        value may be published (binary only).
    queries : N
        Answer only the first N queries; default: all. Required with data-dependent.
    plan_for : N
        auto, with ``ledger``: make the allowance last for N queries in total, including these.
        Later runs use the rest at no further charge.
    soft
        The votes in a CSV or Parquet file are probabilities.
    queries_from, voters_from
        Public lists of all queries and all voters: a text file with one name per line, or a table
        with the column query or voter. Required for a table in which ballots are missing.
    baseline
        allowance: a public guess of the labels, shape (queries, labels), .npy or .csv; default: all
        zeros.
    voter_ids
        allowance: a text file with one voter name per line, in the order of the votes. The ledger
        recognises voters by these names.
    probabilities
        Also write, to a .csv or .npy file, the probability that a majority of voters wants each
        label, given everything released. Only for mechanisms that release tallies (auto, tally).
    statement
        Also write the privacy statement to this text file, and as .json beside it.
    report
        Also write an .html page with the bill, the expected quality and the statement.
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
        raise InputError("clip", "needs `max_positives`")
    if voter_ids is not None and asked.get("guarantee") not in ("allowance", "auto", None):
        raise InputError("voter_ids", "needs `guarantee=allowance`", asked["guarantee"])
    if resume and show_sealed:
        rule = "cannot be combined with `resume`: a draft keeps no sealed numbers"
        raise InputError("show_sealed", rule)
    mech = mechanism.build() if mechanism.named else "auto"
    if probabilities is not None and not (isinstance(mech, str) or mech.name == "tally"):
        raise InputError("probabilities", "needs mechanism auto or tally", str(mech))
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
        bar, probable = options.numbers("threshold", threshold), True if soft else None
        lists = {"queries_from": queries_from, "voters_from": voters_from}
        ballots = _read(votes, mech, bar, soft=probable, resume=resume, **lists)
        guess = None
        if ballots is not None:
            if baseline is not None:
                guess = read_array(baseline, "baseline", queries=ballots.query_names)
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
    if names is None and ballots is not None:
        names = ballots.voter_names
    said = None if ballots is None else read_as(ballots, names)
    _show(release, output, names, said, show_sealed=show_sealed, json=json)


def _read(*how: Any, resume: bool, **more: Any) -> Any:
    """Return the votes; None where they cannot be read, and what was released will do."""
    from privote.labelling import ballots_of

    try:
        return ballots_of(*how, **more)
    except InputError as error:
        if not resume:
            raise
        warnings.warn(
            f"the votes cannot be read, so no further queries are answered: {error}",
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
            name.replace("_", " "): f"{len(value):,} voters; --json lists them"
            if isinstance(value, dict)
            else value
            for name, value in sealed.items()
        }
        nothing = {"nothing": f"with {release.guarantee}, every number may be published"}
        print_facts(shown or nothing, title=OWNER_ONLY.capitalize())

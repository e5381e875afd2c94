"""``privote label``: votes in, private labels and their bill out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from privote.errors import InputError

from . import options
from .output import print_bill, print_facts, print_json, working

if TYPE_CHECKING:
    from privote import Release
    from privote.labelling import Labelling
    from privote.ledger import Account

    from .files import Outputs

_BY_PLACE = (
    "Voters have no names: they are assumed to be the same persons in the same order in every run. "
    "Keep the order or give --voter-ids; for other persons use another --dataset."
)


def label(
    ctx: typer.Context,
    votes: str,
    *,
    epsilon: options.Number,
    delta: options.Number,
    output: options.File,
    rows: Path | None = None,
    mechanism: str = "auto",
    sigma: float | None = None,
    tau: float | None = None,
    norm: int | None = None,
    max_positives: int | None = None,
    quota: float | None = None,
    false_alarm: float | None = None,
    gate_threshold: float | None = None,
    gate_sigma: float | None = None,
    settings: options.Settings = None,
    clip: bool = False,
    guarantee: str = "auto",
    queries: int | None = None,
    plan_for: int | None = None,
    ledger: str | None = None,
    beside: str | None = None,
    dataset: str | None = None,
    budget: float | None = None,
    threshold: str | None = None,
    soft: bool = False,
    queries_from: Path | None = None,
    voters_from: Path | None = None,
    voter_ids: Path | None = None,
    baseline: Path | None = None,
    probabilities: Path | None = None,
    statement: Path | None = None,
    report: Path | None = None,
    seed: int | None = None,
    anyway: bool = False,
    dry_run: bool = False,
    force: bool = False,
    resume: bool = False,
    show_sealed: bool = False,
    verbose: bool = False,
    json: bool = False,
) -> None:
    r"""Release private labels for a file of votes, at a stated epsilon.

    Example:

        privote label votes.npz --epsilon 8 --delta 1e-5 --output labels.csv

    By default there is nothing to tune. About a tenth of epsilon's price is for learning privately
    how often voters say yes, and the noise is set from that. Noisy tallies of all queries are
    released; labels are then decided from all tallies together, at no cost. The bill gives the
    expected quality of the labels, computed from released numbers only, or says that it cannot be
    estimated. To choose the mechanism and its noise yourself: --mechanism binary --sigma 7.

    What the run costs, what can still be asked afterwards and how much noise to expect is said
    first, from public numbers; --dry-run stops there. If the run fails after the charge, it exits
    with code 6; repeat the command with --resume to finish it at no further charge.

    The CSV file has one row per query. A label is 1, 0, or -1 where the gate withheld it (ABSTAIN).
    Queries and labels keep their names from the votes file. An .npz file also contains the bill;
    read it with privote.Release.load.

    Parameters
    ----------
    votes : VOTES
        Votes (queries, voters, labels): .csv, .tsv, .npy, .npz, .zarr or .parquet; the last two
        also at a URL such as s3://bucket/votes.zarr.
    output
        The file for the labels: a local .csv or .npz.
    rows
        Public rows of the queries, with whose help labels are decided, at no cost: an array
        (queries, features) as .npy or .npz (array X), a table, or a folder of pictures.
    clip
        Keep only the first --max-positives ones of each ballot, instead of refusing longer ballots.
    guarantee : NAME
        How epsilon is guaranteed. allowance: epsilon is fixed before any vote is seen; each voter
        may cast a limited number of contributions (votes that differ from the public baseline) over
        all queries, and counts as the baseline after that. worst-case: no voter is limited; a named
        mechanism answers until the next query would exceed epsilon. auto (the default):
        allowance; for a named mechanism without a ledger, worst-case if all queries fit. Named
        mechanisms also offer data-dependent, which is not differential privacy: its epsilon holds
        for these votes only. The exact value is sealed (see --show-sealed); a noisy, sanitized
        value may be published (binary only).
    queries : N
        Answer only the first N queries; default: all. Required with data-dependent.
    plan_for : N
        auto, with --ledger: make the allowance last for N queries in total, including these. Later
        runs use the rest at no further charge.
    threshold : P[,P...]
        The file holds probabilities; P or more counts as a yes. Give one P, or one per label.
    soft
        The votes in a CSV or Parquet file are probabilities.
    queries_from, voters_from
        Public lists of all queries and all voters: a text file with one name per line, or a table
        with the column query or voter. Required for a table in which ballots are missing.
    voter_ids
        allowance: a text file with one voter name per line, in the order of the votes. The ledger
        recognises voters by these names.
    baseline
        allowance: a public guess of the labels, shape (queries, labels), .npy or .csv; default: all
        zeros.
    probabilities
        Also write, to a .csv or .npy file, the probability that a majority of voters wants each
        label, given everything released. Only for mechanisms that release tallies (auto, tally).
    statement
        Also write the privacy statement to this text file, and as .json beside it.
    report
        Also write an .html page with the expected quality, the bill and the statement.
    """
    from privote.labelling import warn_of_quality
    from privote.release import of_owner

    from .look import look, print_look

    _check(ctx.params)
    account = options.account_of(ledger, beside, dataset, budget)
    outputs, place = _outputs(ctx.params, account), str(output.absolute())
    with working(f"reading {Path(votes).name}"):
        labelling, shape, voters = _labelling(ctx.params, account)
    if not resume or dry_run:
        outlook = None if labelling.outlook is None else str(labelling.outlook)
        notes: list[str] = []
        if ledger is not None and mechanism == "auto" and labelling.names is None:
            notes.append(_BY_PLACE)
        facts = look(labelling.request(place), account, *notes, outlook=outlook)
        facts["votes"] = f"Votes: {shape}."
        print_look(facts, stop=dry_run, json=json)
    if dry_run:
        return
    with working("answering"):
        release = labelling.release(output=place, write=outputs.write, resume=resume)
    warn_of_quality(release)
    sealed = None
    if show_sealed:
        with working("pricing each voter"):
            sealed = of_owner(release, voters)
    if json:
        _print_json(release, output, shape, sealed)
    else:
        _print_bill(release, output, epsilon, sealed, verbose=verbose)


def _labelling(given: Mapping[str, Any], account: Account) -> tuple[Labelling, str, Any]:
    """Read the votes, and return what labels them, what they were read as, and voters' names."""
    from privote.entropy import Entropy
    from privote.labelling import Labelling, ballots_of, read_as
    from privote.ledger import Budget

    from .files import read_array, read_names, read_rows

    mechanism = options.mechanism_of(given) or "auto"
    voters = None if given["voter_ids"] is None else read_names(given["voter_ids"])
    ballots: Any = ballots_of(
        given["votes"],
        mechanism,
        options.numbers("threshold", given["threshold"]),
        soft=given["soft"] or None,
        queries_from=given["queries_from"],
        voters_from=given["voters_from"],
    )
    ballots = ballots.clip(given["max_positives"]) if given["clip"] else ballots
    baseline, rows, queries = given["baseline"], given["rows"], ballots.query_names
    labelling = Labelling(
        ballots=ballots,
        cost=Budget(epsilon=given["epsilon"], delta=given["delta"]),
        account=account,
        mechanism=mechanism,
        guarantee=given["guarantee"],
        queries=given["queries"],
        plan_for=given["plan_for"],
        baseline=None if baseline is None else read_array(baseline, "baseline", queries=queries),
        rows=None if rows is None else read_rows(rows, queries),
        voter_ids=voters,
        anyway=given["anyway"] or given["resume"],
        entropy=Entropy(given["seed"]),
    )
    shape = read_as(ballots, voters)
    return labelling, shape, ballots.voter_names if voters is None else voters


def _check(given: Mapping[str, Any]) -> None:
    """Refuse options that do not go together."""
    if given["clip"] and given["max_positives"] is None:
        raise InputError("clip", "needs `max_positives`")
    if given["voter_ids"] is not None and given["guarantee"] not in ("allowance", "auto"):
        raise InputError("voter_ids", "needs `guarantee=allowance`", given["guarantee"])
    if given["resume"] and given["show_sealed"]:
        rule = "cannot be combined with `resume`: nothing sealed outlives the run that drew"
        raise InputError("show_sealed", rule)
    if given["probabilities"] is not None and given["mechanism"] not in ("auto", "tally"):
        raise InputError("probabilities", "needs mechanism auto or tally", given["mechanism"])
    if given["statement"] is not None and given["statement"].suffix == ".json":
        rule = "must be a text file; its .json is written beside it"
        raise InputError("statement", rule, given["statement"].name)


def _outputs(given: Mapping[str, Any], account: Account) -> Outputs:
    """Return the files that a release goes into; refuse places that cannot be written to."""
    from privote.files import written
    from privote.guarantees import to_json
    from privote.report.labels import write_label_page

    from .files import CHANCES, LABEL_FILES, Outputs, text_of, write_labels, write_probabilities

    keep = [Path(given["votes"]), given["rows"], given["baseline"], given["voter_ids"]]
    place = account.ledger
    keep += [] if place is None else [place.file, place.key, place.head]
    outputs = Outputs(force=given["force"], resume=given["resume"], keep=keep)
    outputs.add("output", given["output"], LABEL_FILES, write_labels)
    outputs.add("probabilities", given["probabilities"], CHANCES, write_probabilities)
    outputs.add("report", given["report"], (".html",), write_label_page)
    statement: Path | None = given["statement"]
    if statement is not None:
        outputs.add("statement", statement, (), text_of(lambda r: f"{r.statement()}\n"))
        facts = text_of(lambda r: to_json({**written(1), **r.facts()}))
        outputs.add("statement", statement.with_suffix(".json"), (), facts)
    return outputs


def _print_json(release: Release, output: Path, shape: str, sealed: dict[str, Any] | None) -> None:
    from privote.guarantees import OWNER_ONLY
    from privote.release import headline, rows_of

    owners = {} if sealed is None else {"sealed": {"note": OWNER_ONLY, **sealed}}
    facts = {
        "headline": headline(release),
        **release.facts(),
        "epsilon": release.epsilon,
        "delta": release.delta,
        "quality": release.quality,
        "mark": release.guarantee.mark,
        "read_as": shape,
        "output": str(output),
        "rows": {row.name: row.text for row in rows_of(release)},
        "statement": release.statement(),
    }
    print_json({**facts, **owners})


def _print_bill(
    release: Release, output: Path, target: float, sealed: dict[str, Any] | None, *, verbose: bool
) -> None:
    from privote.guarantees import OWNER_ONLY
    from privote.release import rows_of
    from privote.report.labels import label_bill

    bill = label_bill(release, target=target, output=output)
    print_bill(bill, rows_of(release) if verbose else (), release.guarantee, "Bill")
    if sealed is None:
        return
    shown = {
        name.replace("_", " "): f"{len(value):,} voters; --json lists them"
        if isinstance(value, dict)
        else value
        for name, value in sealed.items()
    }
    nothing = {"nothing": f"with {release.guarantee}, every number may be published"}
    print_facts(shown or nothing, title=OWNER_ONLY.capitalize())

"""``privote label``: votes in, private labels and their bill out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privote.errors import InputError

from . import options

if TYPE_CHECKING:
    from privote import Release
    from privote.labelling import Labelling

_BY_PLACE = (
    "Voters have no names: they are assumed to be the same persons in the same order in every run. "
    "Keep the order or give --voter-ids; for other persons use another --dataset."
)


def label(
    votes: str,
    *,
    epsilon: options.Epsilon,
    delta: options.Delta,
    output: options.Output,
    rows: Path | None = None,
    mechanism: options.MechanismName = "auto",
    sigma: options.Sigma = None,
    tau: options.Tau = None,
    norm: options.Norm = None,
    max_positives: options.MaxPositives = None,
    quota: options.Quota = None,
    false_alarm: options.FalseAlarm = None,
    gate_threshold: options.GateThreshold = None,
    gate_sigma: options.GateSigma = None,
    settings: options.Settings = None,
    clip: bool = False,
    guarantee: str = "auto",
    queries: int | None = None,
    plan_for: int | None = None,
    ledger: options.LedgerPlace = None,
    beside: options.Beside = None,
    dataset: options.Dataset = None,
    budget: options.Total = None,
    threshold: str | None = None,
    soft: bool = False,
    queries_from: Path | None = None,
    voters_from: Path | None = None,
    voter_ids: Path | None = None,
    baseline: Path | None = None,
    probabilities: Path | None = None,
    statement: Path | None = None,
    report: Path | None = None,
    seed: options.Seed = None,
    anyway: options.Anyway = False,
    dry_run: options.DryRun = False,
    force: options.Force = False,
    resume: options.Resume = False,
    show_sealed: options.ShowSealed = False,
    verbose: options.Verbose = False,
    json: options.Json = False,
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
    from privote.entropy import Entropy
    from privote.labelling import Labelling, ballots_of, read_as, warn_of_quality
    from privote.ledger import Budget

    from .files import read_array, read_names, read_rows
    from .output import working

    given = options.settings_of(
        settings,
        sigma=sigma,
        tau=tau,
        norm=norm,
        max_positives=max_positives,
        quota=quota,
        false_alarm=false_alarm,
        gate_threshold=gate_threshold,
        gate_sigma=gate_sigma,
    )
    mech = options.mechanism_of(mechanism, given) or "auto"
    account = options.account_of(ledger, beside, dataset, budget)
    _check(clip and max_positives is None, voter_ids, guarantee, resume and show_sealed)
    if probabilities is not None and not (isinstance(mech, str) or mech.name == "tally"):
        raise InputError("probabilities", "needs mechanism auto or tally", str(mech))
    place = account.ledger
    inputs = [path for path in (Path(votes), rows, baseline, voter_ids) if path is not None]
    inputs += [] if place is None else [place.file, place.key, place.head]
    files = _Files(output, probabilities, statement, report, force=force)
    files.check(inputs, resume=resume)
    names = None if voter_ids is None else read_names(voter_ids)
    with working(f"reading {Path(votes).name}"):
        bars = options.numbers("threshold", threshold)
        lists = {"queries_from": queries_from, "voters_from": voters_from}
        ballots: Any = ballots_of(votes, mech, bars, soft=soft or None, **lists)
        if clip:
            ballots = ballots.clip(max_positives)
        guess: Any = None
        if baseline is not None:
            guess = read_array(baseline, "baseline", queries=ballots.query_names)
        labelling = Labelling(
            ballots,
            Budget(epsilon=epsilon, delta=delta),
            account,
            mechanism=mech,
            guarantee=guarantee,
            queries=queries,
            plan_for=plan_for,
            baseline=guess,
            rows=rows and read_rows(rows, ballots.query_names),
            voter_ids=names,
            anyway=anyway or resume,
            entropy=Entropy(seed),
        )
    shape = read_as(ballots, names)
    if not resume or dry_run:
        _look(labelling, output, shape, stop=dry_run, json=json)
    if dry_run:
        return
    with working("answering"):
        release = labelling.release(output=str(output.absolute()), write=files.write, resume=resume)
    warn_of_quality(release)
    voters = names if names is not None else ballots.voter_names
    sealed = _sealed(release, voters) if show_sealed else None
    if json:
        _print_json(release, output, shape, sealed, named=voters is not None)
    else:
        _print_bill(release, labelling, output, sealed, verbose=verbose)


def _check(clip: bool, voter_ids: Path | None, guarantee: str, sealed: bool) -> None:
    """Refuse options that do not go together."""
    if clip:
        raise InputError("clip", "needs `max_positives`")
    if voter_ids is not None and guarantee not in ("allowance", "auto"):
        raise InputError("voter_ids", "needs `guarantee=allowance`", guarantee)
    if sealed:
        rule = "cannot be combined with `resume`: nothing sealed outlives the run that drew"
        raise InputError("show_sealed", rule)


class _Files:
    """The files of a release, and what writes each."""

    def __init__(
        self,
        output: Path,
        probabilities: Path | None,
        statement: Path | None,
        report: Path | None,
        *,
        force: bool,
    ) -> None:
        from privote.report.labels import write_label_page

        from .files import CHANCES, LABEL_FILES, write_labels, write_probabilities

        self.statement, self.force = statement, force
        rows = (
            ("output", output, LABEL_FILES, write_labels),
            ("probabilities", probabilities, CHANCES, write_probabilities),
            ("report", report, (".html",), write_label_page),
        )
        self.rows = [(name, path, ends, write) for name, path, ends, write in rows if path]

    def check(self, inputs: Sequence[Path], *, resume: bool) -> None:
        """Refuse a place that cannot be written to, or is one of the inputs."""
        from privote.files import check_new

        from .files import check_statement

        force, keep = self.force or resume, [*inputs]
        for name, path, ends, _ in self.rows:
            check_new(name, path, ends, force=force, keep=keep)
            keep.append(path)
        if self.statement is not None:
            check_statement(self.statement, force=force, keep=keep)

    def write(self, release: Release) -> dict[str, str]:
        """Write every file, whole; return their digests."""
        from privote.files import complete, digests_of, write_statement

        paths = [path for _, path, _, _ in self.rows]
        for _, path, _, write_file in self.rows:
            with complete(path, force=self.force) as part:
                write_file(part, release)
        if self.statement is not None:
            facts = release.facts()
            write_statement(release.statement(), facts, self.statement, force=self.force)
            paths += [self.statement, self.statement.with_suffix(".json")]
        return digests_of(paths)


def _look(labelling: Labelling, output: Path, shape: str, *, stop: bool, json: bool) -> None:
    """Say what the run will cost and what to expect, before it is charged."""
    from .look import look
    from .output import print_json, say

    expected = [] if labelling.outlook is None else [str(labelling.outlook)]
    request, account = labelling.request(str(output.absolute())), labelling.account
    if account.ledger is not None and request.allowance and labelling.names is None:
        expected.append(_BY_PLACE)
    facts = {"votes": shape, **look(request, account), "expected": expected}
    if stop and json:
        print_json(facts)
        return
    lines = [f"Votes: {shape}.", facts["cost"], facts.get("still"), *expected]
    lines += ["Dry run: nothing was charged or drawn."] if stop else []
    say("\n".join(filter(None, lines)), err=not stop)


def _sealed(release: Release, names: Sequence[str] | None) -> dict[str, Any]:
    from privote.release import of_owner

    from .output import working

    with working("pricing each voter"):
        return of_owner(release, names)


def _print_json(
    release: Release, output: Path, shape: str, sealed: dict[str, Any] | None, *, named: bool
) -> None:
    from privote.guarantees import OWNER_ONLY
    from privote.release import headline, rows_of

    from .output import print_json

    owners = {} if sealed is None else {"sealed": {"note": OWNER_ONLY, **sealed}}
    payload = {
        "headline": headline(release),
        **release.facts(),
        "epsilon": release.epsilon,
        "delta": release.delta,
        "quality": release.quality,
        "mark": release.guarantee.mark,
        "voters_known_by": "name" if named else "place",
        "read_as": shape,
        "output": str(output),
        "rows": {row.name: row.text for row in rows_of(release)},
        "statement": release.statement(),
    }
    print_json({**payload, **owners})


def _print_bill(
    release: Release,
    labelling: Labelling,
    output: options.Output,
    sealed: dict[str, Any] | None,
    *,
    verbose: bool,
) -> None:
    from privote.guarantees import OWNER_ONLY
    from privote.release import rows_of
    from privote.report.labels import label_bill

    from .output import print_facts

    facts = label_bill(release, target=labelling.cost.epsilon, output=output)
    simulated = " (SIMULATED: a seed was given)" if release.guarantee.simulated else ""
    print_facts(facts, title=f"Bill{simulated}")
    if verbose:
        print_facts({row.name: row.text for row in rows_of(release)}, title="In full")
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

"""``privote votes``, ``train`` and ``predict``: models asked, made and used.

``train``: private data in; a student, its labels, a statement and a report out.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from privote.errors import InputError

from . import options
from .options import Account, Group, MechanismFlags, derived

_RULES = ("prevalence", "tuned")  # for a teacher's probabilities
_ACCOUNT = ("ledger", "dataset", "consumer", "electorate")


@derived(asked=Group(of="collect_votes", without=("progress",)))
def votes(
    rows: str,
    voters: list[str],
    *,
    asked: dict[str, Any],
    names: str | None = None,
    json: bool = False,
) -> None:
    r"""Collect the votes of many models on many public rows, for `privote label`.

    Example, of models and of a function:

        privote votes rows.npy models/ --labels flu,cold --output votes.zarr --workers 8

        privote votes prompts.csv ask:vote --names sites.txt --labels flu,cold --output votes.zarr

    A function is called as vote(voter, rows), with a voter's name and a run of the rows: an array,
    or for a table a dict of columns. It returns votes of 0 and 1, or with --threshold
    probabilities, in the shape (rows, labels); any framework, or a request to a server.

    Votes are packed bits in a Zarr array, under the names of voters and labels. They are as private
    as the models: keep them to yourself, and release labels.

    The votes are cut into chunks, each on disk as a whole or not at all. After a crash the same
    command with --resume makes the chunks that are missing. The votes are the same bit for bit,
    with any number of workers, and cannot be read before all are there. The digest of every chunk
    is kept with them, so that `privote label` finds a chunk that was lost later.

    Parameters
    ----------
    rows
        Public rows: .npy, .npz (array X) or .zarr; or a table, .csv, .tsv or .parquet.
    voters
        Saved models, files or folders of them: .joblib, .pkl, .pickle, whose loading runs the code
        that their authors put there, on every worker; or .student, which runs none. Or
        package.module:function, which is imported and so runs.
    output : PLACE
        Where the votes go: .zarr, a path or a URL such as s3://bucket/votes.zarr.
    labels
        Names of the labels, or how many there are; .student files know theirs.
    names : A,B,...|FILE
        Names of the voters, also in a file as for `label --voter-ids`: needed for a function, which
        is called with them. A model has its file's name by default.
    threshold
        Ask for probabilities: a yes is one at or above P; or one P per label. Without it models
        predict, and a function returns votes.
    backend : NAME
        Where workers run: loky (processes here, the default), dask or ray.
    workers
        How many work at once; by default one, or all of a cluster. The votes are the same for any
        number.
    address
        The scheduler of a cluster: tcp://HOST:8786 (dask), ray://HOST:10001 or auto (ray). By
        default dask and ray are started here.
    chunk
        Queries in a chunk, which is what a crash can cost; by size unless given.
    group
        Voters in a chunk, whose models a worker has in memory at once; up to 32 unless given.
    resume
        Continue a run that failed: the same command again, with this option. Models or rows that
        changed meanwhile are refused.
    force
        Replace votes that were collected before.
    """
    from privote import collect_votes

    from .files import read_names
    from .output import print_result, say, stages

    file = names is not None and Path(names).is_file()
    with stages() as tell:
        found = collect_votes(
            voters[0] if len(voters) == 1 else voters,
            rows,
            names=read_names(Path(names or ""), "names") if file else options.names(names),
            progress=lambda done, chunks: tell("asking", done, chunks),
            **asked,
        )
    print_result(found.facts(), json=json, title="Collected")
    if not json:
        place = asked["output"]
        say(f"Next: privote label {place} --epsilon E --delta D --output labels.csv")


# -- a private model -------------------------------------------------------------------------------


@derived(
    job=Group(of="learning.jobs:Job", without=("settings", *_ACCOUNT), panel="Data"),
    settings=Group(
        of="PATEClassifier",
        only=(
            *("n_teachers", "threshold", "embedding", "student", "rounds", "n_jobs"),
            *("guarantee", "queries"),
        ),
        unset=True,
        panel="Voters and student",
    ),
    training=Group(
        of="learning:DPSGDClassifier",
        only=("network", "epochs", "frozen", "hours", "steps", "sample_rate", "schedule"),
        unset=True,
        panel="Networks, and private training without votes",
    ),
    mechanism=Group(
        of=MechanismFlags, without=("link_cost", "link_order"), instead={"name": (options.Name, "")}
    ),
    account=Group(of=Account),
)
def train(
    data: str,
    *,
    job: dict[str, Any],
    output: Path,
    settings: dict[str, Any],
    training: dict[str, Any],
    mechanism: MechanismFlags,
    account: Account,
    method: str = "auto",
    force: bool = False,
    resume: bool = False,
    show_sealed: bool = False,
    json: bool = False,
) -> None:
    r"""Train a model on private data that may be published, with a statement of what it promises.

    Example:

        privote train records.csv --labels flu,cold --group-column patient \
          --public public.csv --test test.csv --epsilon 4 --delta 1e-6 --output run

    Public numbers decide how, unless you do: --method gradients, moments or dpsgd train on the
    private data itself, with noise; with teachers or neighbours private votes label public rows,
    and a student learns from those. To try it without data of your own, let DATA be scenes.

    Writes into the output folder: student.student (for `privote predict`; holds no code),
    with votes labels.csv (row, labels; -1 where held back), statement.txt and .json (for whoever
    signs), and report.html; and for-the-owner.json, with figures on private test rows, which must
    not leave: no epsilon covers them. A table needs --labels and --public. Features of private rows
    must not be scaled or encoded by looking at other private rows: one record must reach one voter
    only.

    Labels are on disk as soon as they are released. If anything fails after that, exit code 6 says
    so, and the same command with --resume trains the student on them, at no further charge.

    Parameters
    ----------
    data
        Private data: a .npz, .csv or .parquet table; or a data set by name: scenes, mulan:FILE;
        voc2012, chexpert, mimic, padchest or nih, each with :FOLDER; or a folder of pictures, with
        --table.
    output
        A new folder for everything that is made.
    table
        For a folder of pictures: a table with a column of file names, and one column per label or
        one that lists labels (name those with --labels).
    public
        Public rows to label: a table with the same features, or a folder of pictures. A data set by
        name is split instead.
    test
        Rows with true labels to judge by; for pictures, a table that lies in their folder. The
        figures are for the owner's eyes: no epsilon covers them.
    test_is_public
        The test rows are public: their figures go into the report.
    labels
        Which columns of a table are labels.
    columns
        Which columns of a table are features; by default every other one.
    id_column
        The column that names a record, or the file of a picture.
    group_column
        The column that names the person a record belongs to: the promise is then for persons.
    method : NAME
        auto: public numbers decide. gradients or moments (linear) or dpsgd (a network): trained on
        the records with noise. teachers, each trained on its own part, or neighbours, the records
        themselves: they vote, and a student learns from that.
    n_teachers
        How many teachers; by default as many as suit records and budget.
    threshold : RULE
        How a teacher's probabilities become votes: prevalence (the default), tuned, P, or P,P,...
        by label.
    embedding : NAME
        What rows are mapped to first: auto (the default); pca:K or std:K, of words tfidf or lsa:K.
        Fitted on public rows. Of pictures: efficientnet-lite0 (the default), or resnet50 or
        densenet121 with --weights.
    size : PIXELS
        Height and width that pictures are scaled to before they are embedded.
    weights
        The weights of resnet50 or densenet121, of --embedding or --network: a state dictionary,
        read without running code.
    device
        Where pictures are embedded, or a network learns: cpu, cuda or mps.
    cache : DIR
        A folder to keep the features of pictures in, for further runs. They are as private as the
        pictures.
    student : KIND
        What learns from the labels: logistic (the default); mixmatch (semi-supervised, torch); on
        images smallcnn, densenet121 or resnet50 (torch).
    n_jobs
        Processes to train in.
    network : NAME
        What learns: of pictures smallcnn, densenet121 or resnet50, by dpsgd or as each teacher (and
        the student, if none is named). dpsgd on other rows: mlp (the default) or linear.
    epochs : N
        How often a network sees each record: 30 by default, for dpsgd as the budget allows.
    frozen
        Train the last layer of the network only; start from --weights.
    hours : H
        Refuse to start networks that would train for longer; 24 by default.
    steps
        dpsgd and gradients: how many noisy gradients; 100 by default, of pictures by --epochs.
    sample_rate
        The probability with which a record takes part in a step; 1 by default, of pictures 256
        records a step.
    schedule : NOISE[,CLIP]
        dpsgd: noise, and clipping norm, of the last steps in units of the first.
    guarantee : NAME
        What the budget promises: allowance (the default), worst-case, ptr or data-dependent.
    queries
        How many public rows to label; needed for ptr and data-dependent.
    name : NAME
        How votes become labels: binary, tau, powerset or plurality, with --sigma; by default binary
        with a noise that suits the voters.
    """
    from privote.learning.jobs import Job, trained
    from privote.report import OWNER_ONLY
    from privote.report.results import write_run

    from .files import DRAFT, claimed_folder
    from .output import print_json, stages

    settings |= training
    if mechanism.named:
        settings["mechanism"] = mechanism.build()
    if settings.get("threshold") not in (None, *_RULES):
        settings["threshold"] = options.numbers("threshold", settings["threshold"])
    place = {**account.arguments, "electorate": account.electorate}
    request = Job(data=data, method=method, settings=settings, **place, **job)
    how = {"resume": resume, "force": force}
    with (
        claimed_folder(output, force=force or resume),  # before anything is charged
        stages() as progress,
        trained(request, output / DRAFT, progress=progress, **how) as outcome,
    ):
        written = write_run(output, outcome)
    if not json:
        _show(outcome, output, written, show_sealed)
        return
    facts = {**outcome.facts(), "output": str(output), "written": written}
    sealed = {"sealed": {"note": OWNER_ONLY, "test": outcome.sealed}} if show_sealed else {}
    print_json({**facts, **sealed})


def _show(outcome: Any, output: Path, written: list[str], show_sealed: bool) -> None:
    from privote.learning.methods import doubts_of
    from privote.report import OWNER_ONLY
    from privote.report.results import OWNERS, TrainingStatement
    from privote.report.tables import FIGURES_MEAN

    from .output import once, print_facts, print_table, say

    rows = TrainingStatement(outcome=outcome).technical()
    facts = {row.name: row.text for row in rows if row.brief}
    said = " ".join(outcome.facts()["expected"])
    if doubts_of(outcome.fitted.numbers_):  # which the warning before it spent said, too
        facts["WARNING"] = f"{facts.get('WARNING') or ''} {said}".strip()
    else:
        facts["to expect"] = said
    print_facts(once(facts), title="Trained" if outcome.release is None else "Released")
    if outcome.figures:
        title = "On the test rows, which are public"
        print_table(outcome.figures, title=title, caption=FIGURES_MEAN)
    if outcome.sealed and show_sealed:
        title = f"{OWNER_ONLY.capitalize()}: on the test rows, covered by no epsilon"
        print_table(outcome.sealed, title=title, caption=FIGURES_MEAN)
    elif outcome.sealed:
        say(f"Figures on the test rows are {OWNER_ONLY}, in {OWNERS}; --show-sealed prints them.")
    say(f"Written to {output}: {', '.join(written)}")
    say(f"Next: privote predict {output}/student.student ROWS --output FILE.csv")


# -- predictions -----------------------------------------------------------------------------------


def predict(
    student: Path,
    rows: Path,
    *,
    output: Path,
    threshold: str | None = None,
    id_column: str | None = None,
    weights: Path | None = None,
    device: str = "cpu",
    cache: Path | None = None,
    trust: list[str] | None = None,
    force: bool = False,
    json: bool = False,
) -> None:
    """Predict with a saved student: for each label its probability and a 1 or a 0.

    Example:

        privote predict run/student.student new.csv --output predictions.csv

    Loading a student runs no code from its file. Predictions cost no privacy: all that they
    follow from was paid for when the student was made, and its file says under which guarantee.

    Parameters
    ----------
    student
        A .student file of `privote train`.
    rows
        Rows to judge: .csv or .parquet with the columns that the student learnt from, as they were
        then (words, dates, gaps); or .npz (array X); or a folder of pictures.
    output
        Where the predictions go: .csv.
    threshold : P[,P...]
        A label is 1 at or above this probability; one, or one per label. By default the student's
        own, with which labels are as common as the released ones.
    id_column : NAME
        The column that names a row and comes along into the output; by default 'id', where there is
        one.
    weights
        For a student of pictures: the weights of its network, if it is not efficientnet-lite0.
    device
        For a student of pictures: cpu, cuda or mps.
    cache : DIR
        For a student of pictures: a folder that keeps their features.
    trust
        A type in the file to allow, as package.module.Class; repeat for more.
    """
    import numpy as np

    from privote.learning.pictures import PictureEncoder
    from privote.learning.students.saving import load_student
    from privote.votes.cube import check_threshold

    from .files import claimed
    from .output import print_result, stages

    saved = load_student(student, trusted=trust or (), weights=weights)
    bar = saved.thresholds
    if threshold is not None:
        told = options.numbers("threshold", threshold)
        bar = check_threshold(told, len(saved.label_names))
    given, named = _rows(saved, rows, id_column)
    with stages() as progress:
        if isinstance(saved.encoder, PictureEncoder):
            encoder = replace(saved.encoder, device=device, cache=cache, progress=progress)
            saved = replace(saved, encoder=encoder)
        try:
            chance = saved.predict_proba(given)
        except InputError:
            raise
        except ValueError as error:  # scikit-learn's own words for rows of another width
            raise InputError(f"{rows.name} does not fit this student: {error}") from None
    answers = (chance >= bar).astype(np.int8)
    with claimed(output, force=force, suffixes=(".csv",), keep=(student, rows)) as draft:
        _write_csv(draft, saved.label_names, chance, answers, named)
    bars = np.broadcast_to(np.asarray(bar, np.float64), len(saved.label_names)).tolist()
    facts: dict[str, Any] = {
        "rows": len(chance),
        "labels": len(saved.label_names),
        "rows named by": next(iter(named), "their place in the file, from 0"),
        "student's epsilon, by its file": saved.privacy.get("epsilon"),
        "student's delta, by its file": saved.privacy.get("delta"),
        **_made(saved.privacy.get("guarantee")),
        "thresholds": "the student's own" if threshold is None else "as told",
        "written to": str(output),
    }
    if json:
        facts["thresholds"] = dict(zip(saved.label_names, bars, strict=True))
    print_result(facts, json=json, title="Predicted")


def _rows(saved: Any, rows: Path, id_column: str | None) -> tuple[Any, dict[str, list[str]]]:
    """Return rows as a student takes them, and the names in the column that names them, if any."""
    from privote.datasets import pictures
    from privote.datasets.tables import columns_of, table
    from privote.learning.pictures import PictureEncoder
    from privote.votes.tables import name_of

    arrays, looks = rows.suffix == ".npz", isinstance(saved.encoder, PictureEncoder)
    if looks or (arrays and saved.encoder is None):
        if id_column is not None:
            raise InputError("ids", "goes with a table: these rows have no columns", id_column)
        data = table(rows) if arrays else pictures(rows)
        return data.X, {} if arrays else {"file": data.ids.tolist()}
    held, labels = columns_of(rows), saved.label_names
    given = held if saved.encoder else table(held, features=saved.feature_names).X
    if id_column is None:
        usual = (n for n in held.columns if n.lower() == "id" and n not in labels)
        id_column = next(usual, None)
    if id_column is None:
        return given, {}
    if id_column in {"row", *labels, *map(_chance, labels)}:
        raise InputError("ids", "must be another column than row and the labels", id_column)
    column = held.only([id_column]).columns[id_column]
    return given, {id_column: [name_of(cell) for cell in column.tolist()]}


def _made(by: Any) -> dict[str, Any]:
    """Return what a student's file says of how it was made, and under which guarantee.

    Votes have several guarantees. Training with noise has one, and its file names the method.
    """
    from privote.release import GUARANTEES, UNCONDITIONAL

    votes = by in GUARANTEES
    return {
        "student's guarantee, by its file": by if votes or by is None else UNCONDITIONAL,
        "student's method, by its file": "private votes" if votes else by,
    }


def _chance(label: str) -> str:
    """Return the column of a label's probability."""
    return f"{label} probability"


def _write_csv(
    path: Path,
    names: tuple[str, ...],
    chance: object,
    answers: object,
    named: dict[str, list[str]],
) -> None:
    import csv

    import numpy as np

    from privote.votes.tables import cell_of, write_header

    with path.open("w", newline="", encoding="utf-8") as stream:
        write_header(stream, ["row", *named, *names, *map(_chance, names)])
        writer = csv.writer(stream, lineterminator="\n")
        pairs = zip(np.asarray(answers), np.asarray(chance), strict=True)
        for row, (said, how) in enumerate(pairs):
            who = [cell_of(column[row]) for column in named.values()]
            writer.writerow([row, *who, *said.tolist(), *(f"{p:.6g}" for p in how)])

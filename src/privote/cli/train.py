"""``privote votes``, ``train`` and ``predict``: models asked, made and used.

``train``: private data in; a student, its labels, a statement and a report out.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from privote.errors import InputError

from . import derived as options
from . import options as shared
from .derived import Account, Group, MechanismFlags, derived

_RULES = ("prevalence", "tuned")  # for a teacher's probabilities
_ACCOUNT = ("ledger", "dataset", "budget", "electorate")


@derived(asked=Group(of="collect_votes", without=("progress",)))
def votes(
    rows: str,
    voters: list[str],
    *,
    asked: dict[str, Any],
    names: str | None = None,
    json: shared.Json = False,
) -> None:
    r"""Collect the votes of many models on many public rows, for `privote label`.

    Examples, with saved models and with a function:

        privote votes rows.npy models/ --labels flu,cold --output votes.zarr --workers 8

        privote votes prompts.csv ask:vote --names sites.txt --labels flu,cold --output votes.zarr

    A function is called as vote(voter, rows), with the voter's name and a block of rows: an array,
    or for a table a dict of columns. It returns an array of shape (rows, labels) with 0/1 votes, or
    with probabilities if --threshold is given. It may use any framework or call a server.

    Votes are stored as packed bits in a Zarr array, with the names of voters and labels. They are
    as private as the models: do not share them; share the labels that `privote label` releases.

    Votes are written in chunks; a chunk is complete or absent. After a crash, repeat the command
    with --resume to collect the missing chunks. The result is identical for any number of workers,
    and cannot be read before it is complete. `privote label` refuses votes of which a chunk is
    lost.

    Parameters
    ----------
    rows
        Public rows: .npy, .npz (array X) or .zarr; or a table, .csv, .tsv or .parquet.
    voters
        Files of saved models, or folders of them: .joblib, .pkl or .pickle (loading one runs its
        author's code on every worker), or .student (runs no code). Or package.module:function,
        which runs when it is imported.
    output : PLACE
        The .zarr array for the votes: a path, or a URL such as s3://bucket/votes.zarr.
    labels
        Names of the labels, or their number; not needed for .student files.
    names : A,B,...|FILE
        Names of the voters, or a text file with one per line. Required for a function, which is
        called with each name. Default for models: their file names.
    threshold
        Ask for probabilities; P or more counts as a yes. Give one P, or one per label. Without this
        option, models predict 0/1 and a function returns votes.
    backend : NAME
        Where workers run: loky (local processes, the default), dask or ray.
    workers
        Number of workers; default: one, or all of a cluster.
    address
        The scheduler of a cluster: tcp://HOST:8786 (dask), ray://HOST:10001 or auto (ray). By
        default dask or ray is started on this machine.
    chunk
        Queries per chunk: a crash loses at most the chunks in progress. Default: set from the size
        of the votes.
    group
        Voters per chunk: a worker keeps this many models in memory. Default: up to 32.
    resume
        Continue a failed run: repeat the same command with this option. Refused if models or rows
        have changed.
    force
        Overwrite votes collected before.
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
            *("n_teachers", "threshold", "embedding", "student", "n_jobs"),
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
    mechanism=Group(of=MechanismFlags, instead={"name": (options.Name, "")}),
    account=Group(of=Account),
)
def train(
    data: str,
    *,
    job: dict[str, Any],
    output: shared.Output,
    settings: dict[str, Any],
    training: dict[str, Any],
    mechanism: MechanismFlags,
    account: Account,
    method: str = "auto",
    force: shared.Force = False,
    resume: shared.Resume = False,
    show_sealed: shared.ShowSealed = False,
    json: shared.Json = False,
) -> None:
    r"""Train a model on private data; the model may be published, with a privacy statement.

    Example:

        privote train records.csv --labels flu,cold --group-column patient \
          --public public.csv --test test.csv --epsilon 4 --delta 1e-6 --output run

    The method is chosen from public numbers, unless you name one with --method. gradients, moments
    and dpsgd train on the private data with noise. With teachers and neighbours, private votes
    label public rows and a student model is trained on those. To try it without data of your own,
    give scenes as DATA.

    The output folder gets student.student (the model, for `privote predict`; it contains no code),
    statement.txt and .json (for the person who signs off), report.html and, for methods that vote,
    labels.csv (row, labels; -1 where withheld). It also gets for-the-owner.json, with figures on
    private test rows. Do not publish that file: its figures are not covered by epsilon and delta. A
    table needs --labels and --public. Do not scale or encode private features by statistics of
    other private rows: one record must influence one voter only.

    Labels are written as soon as they are released. If the run fails after the charge, it exits
    with code 6; repeat the command with --resume to train the student on them at no further charge.

    Parameters
    ----------
    data
        Private data: a .npz, .csv or .parquet table; or a data set by name: scenes, mulan:FILE;
        voc2012, chexpert, mimic, padchest or nih, each with :FOLDER; or a folder of pictures, with
        --table.
    output
        A new folder for all output files.
    table
        For a folder of pictures: a table with a column of file names and one column per label, or
        one column that lists labels (then name the labels with --labels).
    public
        Public rows: a table with the same features, or a folder of pictures. Not needed for a data
        set given by name, which is split.
    test
        Test rows with true labels; for pictures, a table in their folder. The figures are for the
        owner only: they are not covered by epsilon and delta.
    test_is_public
        The test rows are public, so their figures go into the report.
    labels
        Which columns of a table are labels.
    columns
        Which columns of a table are features; default: all others, of the public table where there
        is one.
    id_column
        The column that names a record, or the file of a picture.
    group_column
        The column that names the person a record belongs to. The guarantee then protects persons
        instead of records.
    method : NAME
        auto: chosen from public numbers. gradients or moments (linear models) and dpsgd (a network)
        train on the records with noise. teachers (models trained on disjoint parts) and neighbours
        (the records themselves) vote on public rows, and a student is trained on the labels.
    n_teachers
        Number of teachers; default: set from the number of records and the budget.
    threshold : RULE
        How a teacher's probabilities become votes: prevalence (the default), tuned, P, or P,P,...
        (one per label).
    embedding : NAME
        How rows are transformed first: auto (the default), pca:K or std:K; for word counts tfidf or
        lsa:K. Fitted on public rows only. For pictures: efficientnet-lite0 (the default), or
        resnet50 or densenet121 with --weights.
    size : PIXELS
        Height and width to which pictures are scaled, in pixels.
    weights
        The weights of resnet50 or densenet121, of --embedding or --network: a state dictionary,
        read without running code.
    device
        Where pictures are embedded, or a network learns: cpu, cuda or mps.
    cache : DIR
        A folder that keeps the features of pictures for later runs. They are as private as the
        pictures.
    student : KIND
        The student's model: logistic (the default); mixmatch (semi-supervised, torch); for images
        smallcnn, densenet121 or resnet50 (torch).
    n_jobs
        Number of training processes.
    network : NAME
        The network to train. For pictures: smallcnn, densenet121 or resnet50, with dpsgd or as each
        teacher (and as the student, unless --student is given). dpsgd on other rows: mlp (the
        default) or linear.
    epochs : N
        Passes over the records; default 30, with dpsgd set from the budget.
    frozen
        Train only the last layer of the network; start from --weights.
    hours : H
        Refuse to train networks for longer than this many hours; default 24.
    steps
        dpsgd and gradients: number of noisy gradient steps; default 100, for pictures set from
        --epochs.
    sample_rate
        Probability that a record takes part in a step; default 1, for pictures 256 records a step.
    schedule : NOISE[,CLIP]
        dpsgd: noise and clipping norm of the last steps, relative to the first.
    guarantee : NAME
        How epsilon is guaranteed: allowance (the default), worst-case or data-dependent.
    queries
        Number of public rows to label; required with data-dependent.
    name : NAME
        How votes become labels: ``MECHANISMS``; or package.module:Class, which runs when it is
        imported. Default: noisy tallies, as `privote label` releases them.
    """
    from privote.files import DRAFT
    from privote.learning.jobs import Job, trained
    from privote.report import OWNER_ONLY
    from privote.report.results import write_run

    from .files import claimed_folder
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
        title = f"{OWNER_ONLY.capitalize()}: test rows, not covered by epsilon and delta"
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
    output: shared.Output,
    threshold: str | None = None,
    id_column: str | None = None,
    weights: Path | None = None,
    device: str = "cpu",
    cache: Path | None = None,
    trust: list[str] | None = None,
    force: shared.Force = False,
    json: shared.Json = False,
) -> None:
    """Predict with a saved student: a probability and a 0 or 1 for each label.

    Example:

        privote predict run/student.student new.csv --output predictions.csv

    Loading a student runs no code from its file. Predictions cost no privacy budget: the student
    was paid for when it was trained, and its file states the guarantee.

    Parameters
    ----------
    student
        A .student file written by `privote train`.
    rows
        Rows to predict: .csv or .parquet with the same columns, in the same format, as in training;
        .npz (array X); or a folder of pictures.
    output
        The .csv file for the predictions.
    threshold : P[,P...]
        A label is 1 at or above this probability. Give one P, or one per label. Default: the
        student's own thresholds, which make labels as common as the released ones.
    id_column : NAME
        The column that names a row; it is copied to the output. Default: 'id', if there is one.
    weights
        For pictures: the weights of the network, unless it is efficientnet-lite0.
    device
        For pictures: cpu, cuda or mps.
    cache : DIR
        For pictures: a folder that keeps their features.
    trust
        A type to allow in the file, as package.module.Class; may be repeated.
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
    from privote.datasets.tables import table
    from privote.learning.pictures import PictureEncoder
    from privote.votes.cells import name_of
    from privote.votes.tables import open_table

    arrays, looks = rows.suffix == ".npz", isinstance(saved.encoder, PictureEncoder)
    if looks or (arrays and saved.encoder is None):
        if id_column is not None:
            raise InputError("ids", "needs a table: these rows have no columns", id_column)
        data = table(rows) if arrays else pictures(rows)
        return data.X, {} if arrays else {"file": data.ids.tolist()}
    held, labels = open_table(rows, "X"), saved.label_names
    given = held if saved.encoder else table(held, features=saved.feature_names).X
    usual = [name for name in held.columns if name.lower() == "id" and name not in labels]
    id_column = id_column or next(iter(usual), None)
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

    from privote.votes.cells import cell_of
    from privote.votes.tables import write_header

    with path.open("w", newline="", encoding="utf-8") as stream:
        write_header(stream, ["row", *named, *names, *map(_chance, names)])
        writer = csv.writer(stream, lineterminator="\n")
        pairs = zip(np.asarray(answers), np.asarray(chance), strict=True)
        for row, (said, how) in enumerate(pairs):
            who = [cell_of(column[row]) for column in named.values()]
            writer.writerow([row, *who, *said.tolist(), *(f"{p:.6g}" for p in how)])

"""``privote votes``, ``train`` and ``predict``: models asked, made and used.

``train``: private data in; a student, its labels, a statement and a report out.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from privote.errors import BudgetError, InputError

from . import options
from .output import command_of, print_bill, print_json, print_result, print_table, say, stages

if TYPE_CHECKING:
    from privote.learning.jobs import Job, Judgement, Outcome
    from privote.ledger import Account

_ASKED = (
    *("embedding", "student", "network", "epochs", "steps", "sample_rate", "schedule"),
    *("guarantee", "queries"),
)
_JOB = (
    *("data", "method", "epsilon", "delta", "table", "public", "test", "test_is_public"),
    *("id_column", "group_column", "size", "weights", "device", "cache", "electorate", "seed"),
)
LABELS, QUALITY = "labels.csv", "labels-quality.csv"
_SIX = "{:.6g}"  # digits of a probability


def votes(
    rows: str,
    voters: list[str],
    *,
    output: options.Name,
    labels: str | None = None,
    names: str | None = None,
    threshold: str | None = None,
    chunk: int | None = None,
    backend: str | None = None,
    workers: int | None = None,
    address: str | None = None,
    resume: bool = False,
    force: bool = False,
    json: bool = False,
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
    labels : A,B,...|K
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
        The scheduler of a cluster: tcp://HOST:8786 (dask), ray://HOST:10001 or auto (ray).
    chunk
        Queries per chunk: a crash loses at most the chunks in progress. Default: set from the size
        of the votes.
    resume
        Continue a failed run: repeat the same command with this option. Refused if models or rows
        have changed.
    force
        Overwrite votes collected before.
    """
    from privote import collect_votes

    from .files import read_names

    listed = names is not None and Path(names).is_file()
    count = labels is not None and labels.isdecimal()
    with stages() as tell:
        collected = collect_votes(
            voters[0] if len(voters) == 1 else voters,
            rows,
            output,
            labels=int(labels or 0) if count else options.names(labels),
            names=read_names(Path(names or ""), "names") if listed else options.names(names),
            threshold=options.numbers("threshold", threshold),
            chunk=chunk,
            backend=backend,
            workers=workers,
            address=address,
            resume=resume,
            force=force,
            progress=lambda done, chunks: tell("asking", done, chunks),
        )
    print_result(collected.facts(), json=json, title="Collected")
    if not json:
        say(f"Next: privote label {output} --epsilon E --delta D --output labels.csv")


# -- a private model -------------------------------------------------------------------------------


def train(
    ctx: typer.Context,
    data: str,
    *,
    output: options.File,
    labels: str | None = None,
    columns: str | None = None,
    table: Path | None = None,
    public: Path | None = None,
    test: Path | None = None,
    test_is_public: bool = False,
    id_column: str | None = None,
    group_column: str | None = None,
    epsilon: options.Number,
    delta: options.Number,
    holdout: float | None = None,
    score: float | None = None,
    method: str = "auto",
    teachers: int | None = None,
    threshold: str | None = None,
    embedding: str | None = None,
    student: str | None = None,
    jobs: int | None = None,
    network: str | None = None,
    epochs: float | None = None,
    frozen: bool = False,
    steps: int | None = None,
    sample_rate: float | None = None,
    schedule: str | None = None,
    guarantee: str | None = None,
    queries: int | None = None,
    mechanism: str = "",
    sigma: float | None = None,
    tau: float | None = None,
    norm: int | None = None,
    max_positives: int | None = None,
    quota: float | None = None,
    false_alarm: float | None = None,
    gate_threshold: float | None = None,
    gate_sigma: float | None = None,
    settings: options.Settings = None,
    size: int = 160,
    weights: Path | None = None,
    device: str = "cpu",
    cache: Path | None = None,
    ledger: str | None = None,
    beside: str | None = None,
    dataset: str | None = None,
    budget: float | None = None,
    electorate: str | None = None,
    seed: int | None = None,
    dry_run: bool = False,
    force: bool = False,
    resume: bool = False,
    show_sealed: bool = False,
    verbose: bool = False,
    json: bool = False,
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
    statement.txt and .json (for the person who signs off), report.html, README.md (a model card,
    with fields to fill in) and, for methods that vote, labels.csv (-1 where withheld) and, where it
    can be told, labels-quality.csv (expected precision and recall by label). It also gets
    for-the-owner.json, with figures on private test rows. Do not publish that file: its figures are
    not covered by epsilon and delta. A table needs --labels and --public. Do not scale or encode
    private features by statistics of other private rows: one record must influence one voter only.

    If the run fails after the charge, it exits with code 6; repeat the command with --resume to
    finish it at no further charge.

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
    holdout : SHARE
        Keep this share of the private records (with --group-column, of the persons) out of
        training, and measure the model on them, for the owner only.
    score : EPSILON
        With --holdout: also release the model's accuracy, recall and precision by label on those
        records, from noisy counts. This epsilon is a part of --epsilon; the rest is the model's.
    labels : A,B,...
        Which columns of a table are labels.
    columns : A,B,...
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
    teachers
        Number of teachers; default: set from the number of records and the budget.
    threshold : RULE
        How a teacher's probabilities become votes: prevalence (the default), P, or P,P,... (one
        per label).
    embedding : NAME
        How rows are transformed first: auto (the default), pca:K or std:K; for word counts tfidf or
        lsa:K. Fitted on public rows only. For pictures: efficientnet-lite0 (the default), -lite1 or
        -lite2, or resnet50 or densenet121 with --weights. For columns of texts: minilm (the default
        for more than twenty words a cell, with the extra [text]), words, or a folder that
        sentence-transformers wrote.
    size : PIXELS
        Height and width to which pictures are scaled, in pixels.
    weights
        The weights of resnet50 or densenet121, of --embedding or --network: a state dictionary,
        read without running code.
    device
        Where pictures are embedded, or a network learns: cpu, cuda or mps.
    cache : DIR
        A folder that keeps the features of pictures and texts for later runs. They are as private
        as the pictures and texts.
    electorate : NAME
        With --ledger: a name under which the same records, with the same ids or groups, continue
        with what is left of their allowance in a later run. Without it every run is a new charge.
    student : KIND
        The student's model: logistic (the default); mixmatch (semi-supervised, torch); for images
        smallcnn, densenet121 or resnet50 (torch).
    jobs
        Number of training processes.
    network : NAME
        The network to train. For pictures: smallcnn, densenet121 or resnet50, with dpsgd or as each
        teacher (and as the student, unless --student is given). dpsgd on other rows: mlp (the
        default) or linear.
    epochs : N
        Passes over the records; default 30, with dpsgd set from the budget.
    frozen
        Train only the last layer of the network; start from --weights.
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
    mechanism : NAME
        How votes become labels: tally, binary, tau, powerset or plurality; or package.module:Class,
        which runs when it is imported. Default: noisy tallies, as `privote label` releases them.
    """
    from privote.guarantees import OWNER_ONLY
    from privote.learning.jobs import trained

    from .files import claimed_folder

    account = options.account_of(ledger, beside, dataset, budget)
    job = _job(ctx.params, account)
    if dry_run or not (resume or electorate):
        _look(job, account, stop=dry_run, json=json)
    if dry_run:
        return
    command = command_of(ctx)
    with (
        claimed_folder(output, force=force or resume),  # before anything is charged
        stages() as progress,
    ):
        outcome = trained(
            job,
            str(output.absolute()),
            lambda outcome: _write(outcome, output, command),
            resume=resume,
            progress=progress,
        )
    written = sorted(path.name for path in output.iterdir())
    if json:
        facts = {**outcome.facts(), "output": str(output), "written": written, "command": command}
        sealed = {"sealed": {"note": OWNER_ONLY, "test": outcome.sealed}} if show_sealed else {}
        print_json({**facts, **sealed})
        return
    _show(outcome, output, show_sealed=show_sealed, verbose=verbose)
    say(f"Written to {output}: {', '.join(written)}")


def _job(given: Mapping[str, Any], account: Account) -> Job:
    """Return what was asked for."""
    from privote.learning.jobs import Job
    from privote.learning.scoring import Holdout

    threshold, holdout, score = given["threshold"], given["holdout"], given["score"]
    if score is not None and holdout is None:
        raise InputError("score", "needs `holdout`", score)
    if given["electorate"] is not None and account.ledger is None:
        raise InputError("electorate", "needs `ledger`")
    settings = {
        **{name: given[name] for name in _ASKED},
        "threshold": threshold
        if threshold == "prevalence"
        else options.numbers("threshold", threshold),
        "n_teachers": given["teachers"],
        "n_jobs": given["jobs"],
        "frozen": given["frozen"] or None,
        "mechanism": options.mechanism_of(given),
    }
    return Job(
        **{name: given[name] for name in _JOB},
        labels=options.names(given["labels"]) or (),
        columns=options.names(given["columns"]),
        account=account,
        holdout=None if holdout is None else Holdout(share=holdout, epsilon=score),
        settings={name: value for name, value in settings.items() if value is not None},
    )


def _look(job: Job, account: Account, *, stop: bool, json: bool) -> None:
    """Say what a training costs, and what it leaves, before it is charged."""
    from privote.accounting.renyi import rounded_up
    from privote.ledger import Budget

    from .look import gaussian, look, print_look

    if job.score:
        parts = f"{rounded_up(job.epsilon - job.score)} for the model and {rounded_up(job.score)}"
        text = (
            f"This run costs epsilon {parts} for its score. They are charged one after the other."
        )
        print_look({"cost": text, "expected": []}, stop=stop, json=json)
        return
    cost = Budget(epsilon=job.epsilon, delta=job.delta)
    with nullcontext() if stop else suppress(BudgetError):  # the ledger itself decides
        request = gaussian(account, cost, job.group_column is not None)
        print_look(look(request, account), stop=stop, json=json)


def _write(outcome: Outcome, output: Path, command: str) -> Mapping[str, str]:
    """Write everything that comes of a training, whole; return the digests of the files."""
    from privote.files import complete, digests_of, write_statement
    from privote.report import training as pages
    from privote.report.tables import plain

    fitted, model = outcome.fitted, output / pages.MODEL
    fitted.save(model, feature_names=outcome.feature_names)
    digest = digests_of([model])[pages.MODEL]
    names = ["statement.txt", "statement.json", "report.html", "README.md"]
    if outcome.fitted.release_ is not None and outcome.fitted.public_rows_ is not None:
        names += _write_labels(output, outcome)
    if outcome.score is not None:
        text, score = outcome.score.guarantee.statement(), plain(outcome.score.facts())
        write_statement(text, score, output / "score.txt")
        names += ["score.txt", "score.json"]
    facts = pages.facts_of(outcome, digest)
    write_statement(outcome.fitted.guarantee_.statement(), facts, output / "statement.txt")
    with complete(output / "report.html", force=True) as part:
        pages.write_training_page(part, outcome, digest=digest, command=command)
    with complete(output / "README.md", force=True) as part:
        part.write_text(pages.card_of(outcome, digest), encoding="utf-8")
    if outcome.sealed and outcome.judgement is not None:
        with complete(output / pages.OWNERS_PAGE, force=True, owner_only=True) as part:
            pages.write_owners_page(part, outcome.judgement)
        with complete(output / pages.OWNERS, force=True, owner_only=True) as part:
            part.write_text(_of_owner(outcome.judgement), encoding="utf-8")
    return digests_of([model, *(output / name for name in names)])


def _write_labels(output: Path, outcome: Outcome) -> list[str]:
    """Write the labels of public rows, and how good they should be; return the files' names."""
    from privote.errors import PrivoteWarning
    from privote.files import complete
    from privote.votes.cells import cell_of

    from .files import write_csv

    fitted, called = outcome.fitted, outcome.public_names
    assert fitted.public_rows_ is not None
    assert fitted.release_ is not None
    labels = fitted.release_.labels
    rows = zip(fitted.public_rows_.tolist(), labels.tolist(), strict=True)
    lines = (
        [row, cell_of(str(row if called is None else called[row])), *said] for row, said in rows
    )
    with complete(output / LABELS, force=True) as part:
        write_csv(part, ["row", "id", *outcome.label_names], lines)
    if outcome.scarce:
        warnings.warn(
            f"{LABELS} has almost no 1 for {', '.join(outcome.scarce)}, less than a tenth of what "
            "the tallies say together: single ones do not stand out from the noise. `privote "
            "predict` says yes as often as the tallies do",
            PrivoteWarning,
            stacklevel=2,
        )
    quality = fitted.release_.quality
    if quality is None:
        return [LABELS]
    ones, told = (labels == 1).sum(axis=0), quality["by_label"]
    by_label = zip(outcome.label_names, ones, told["precision"], told["recall"], strict=True)
    with complete(output / QUALITY, force=True) as part:
        heads = ["label", "ones", "expected precision", "expected recall"]
        figures = ([name, n, round(p, 3) if n else "", round(r, 3)] for name, n, p, r in by_label)
        write_csv(part, heads, figures)
    return [LABELS, QUALITY]


def _of_owner(judgement: Judgement) -> str:
    """Return figures on private test rows as a file holds them."""
    from privote.files import written
    from privote.guarantees import OWNER_ONLY, to_json
    from privote.report.tables import plain
    from privote.report.training import UNCOVERED

    points = [list(point) for point in judgement.reliability.items()]
    facts = {"test": [judgement.figures], "labels": judgement.by_label, "reliability": points}
    return to_json(plain({**written(1), "note": f"{OWNER_ONLY}: {UNCOVERED}", **facts}))


def _show(outcome: Outcome, output: Path, *, show_sealed: bool, verbose: bool) -> None:
    from privote.guarantees import OWNER_ONLY
    from privote.release import rows_of
    from privote.report.tables import FIGURES_MEAN
    from privote.report.training import OWNERS, measured, training_bill

    release = outcome.fitted.release_
    rows = outcome.fitted.guarantee_.rows() if release is None else rows_of(release)
    bill = training_bill(outcome, output)
    print_bill(bill, rows if verbose else (), outcome.fitted.guarantee_, "Trained")
    if outcome.figures:
        title = "On the test rows, which are public"
        print_table(outcome.figures, title=title, caption=FIGURES_MEAN)
    if outcome.score is not None:
        print_table(
            outcome.score.rows(), title="Measured, and released", caption=measured(outcome.score)
        )
    if outcome.sealed and show_sealed:
        title = f"{OWNER_ONLY.capitalize()}: test rows, not covered by epsilon and delta"
        print_table(outcome.sealed, title=title, caption=FIGURES_MEAN)
    elif outcome.sealed:
        which = "held-out" if outcome.job.holdout is not None else "test"
        say(
            f"Figures on the {which} rows are {OWNER_ONLY}, in {OWNERS}; --show-sealed prints them."
        )


# -- predictions -----------------------------------------------------------------------------------


def predict(
    student: Path,
    rows: Path,
    *,
    output: options.File,
    threshold: str | None = None,
    id_column: str | None = None,
    weights: Path | None = None,
    device: str = "cpu",
    cache: Path | None = None,
    trust: list[str] | None = None,
    force: bool = False,
    json: bool = False,
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
        For pictures: the weights of resnet50 or densenet121. For texts: the folder of the network,
        unless it is minilm.
    device
        For pictures: cpu, cuda or mps.
    cache : DIR
        A folder that keeps the features of pictures and texts.
    trust
        A type to allow in the file, as package.module.Class; may be repeated.
    """
    import numpy as np

    from privote.learning.pictures import PictureEncoder
    from privote.learning.saving import load_student
    from privote.votes.cells import cell_of
    from privote.votes.cube import check_threshold

    from .files import claimed, write_csv

    saved = load_student(student, trusted=trust or (), weights=weights)
    bar = saved.thresholds
    if threshold is not None:
        told = options.numbers("threshold", threshold)
        bar = check_threshold(told, len(saved.label_names))
    X, named = _rows(saved, rows, id_column)
    with stages() as progress:
        encoder = saved.encoder
        if isinstance(encoder, PictureEncoder):
            encoder = replace(encoder, device=device, cache=cache, progress=progress)
        elif encoder is not None:
            encoder = encoder.with_texts(cache=cache, progress=progress)
        saved = replace(saved, encoder=encoder)
        try:
            chance = saved.predict_proba(X)
        except InputError:
            raise
        except ValueError as error:  # scikit-learn's own words for rows of another width
            raise InputError(f"{rows.name} does not fit this student: {error}") from None
    answers = (chance >= bar).astype(np.int8)
    header = ["row", *named, *saved.label_names, *map(_chance, saved.label_names)]
    lines = (
        [row, *(cell_of(column[row]) for column in named.values()), *said, *map(_SIX.format, how)]
        for row, (said, how) in enumerate(zip(answers.tolist(), chance.tolist(), strict=True))
    )
    with claimed(output, force=force, suffixes=(".csv",), keep=(student, rows)) as draft:
        write_csv(draft, header, lines)
    bars = np.broadcast_to(np.asarray(bar, np.float64), len(saved.label_names)).tolist()
    facts: dict[str, Any] = {
        "rows": len(chance),
        "labels": len(saved.label_names),
        "rows named by": next(iter(named), "their place in the file, from 0"),
        **_made(saved),
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


def _made(saved: Any) -> dict[str, Any]:
    """Return what a student's file says of how it was made, and under which guarantee."""
    guarantee = saved.guarantee
    if guarantee is None:
        return {"student's guarantee, by its file": "none"}
    return {
        "student's epsilon, by its file": guarantee.epsilon,
        "student's delta, by its file": guarantee.delta,
        "student's guarantee, by its file": guarantee.mark,
        "student's method, by its file": saved.method,
    }


def _chance(label: str) -> str:
    """Return the column of a label's probability."""
    return f"{label} probability"

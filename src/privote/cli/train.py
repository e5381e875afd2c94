"""``privote train``: private data in; a student, its labels, a statement and a report out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import options
from .options import Account, Group, MechanismFlags, derived

_RULES = ("prevalence", "tuned")  # for a teacher's probabilities
_ACCOUNT = ("ledger", "dataset", "consumer", "electorate")


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
    yes : SHARE
        The share of labels that are present, if you know it: it is never counted on private
        records.
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
    from privote.report.results import write_run

    from .files import DRAFT, claimed_folder
    from .output import stages

    settings |= training
    if mechanism.named:
        settings["mechanism"] = mechanism.build()
    if settings.get("threshold") not in (None, *_RULES):
        settings["threshold"] = options.parse_threshold(settings["threshold"])
    place = {**account.arguments, "electorate": account.electorate}
    request = Job(data=data, method=method, settings=settings, **place, **job)
    how = {"resume": resume, "force": force}
    with (
        claimed_folder(output, force=force or resume),  # before anything is charged
        account.explained(),
        stages() as progress,
        trained(request, output / DRAFT, progress=progress, **how) as outcome,
    ):
        written = write_run(output, outcome)
    show = _show_json if json else _show
    show(outcome, output, written, show_sealed)


def _show_json(outcome: Any, output: Path, written: list[str], show_sealed: bool) -> None:
    from privote.report import OWNER_ONLY

    from .output import print_json

    facts = {**outcome.facts(), "output": str(output), "written": written}
    if show_sealed:
        facts["sealed"] = {"note": OWNER_ONLY, "test": outcome.sealed}
    print_json(facts)


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

"""``privote train``: private data in; a student, its labels, a statement and a report out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from . import options
from .groups import Group, grouped
from .ledger_options import LedgerFlags
from .mechanism import MechanismFlags

_DATA, _VOTERS, _BUDGET = "Data", "Voters and student", "Budget"
_DIRECT = "Private training without votes"
_NETWORKS = "smallcnn, densenet121, resnet50"  # on images


_MECHANISM = Annotated[
    str,
    typer.Option(
        "--mechanism",
        metavar="NAME",
        show_default=False,
        help="How votes become labels: binary, tau, powerset or plurality, with --sigma; binary "
        "with a noise that suits the voters unless told.",
        rich_help_panel="Mechanism",
    ),
]


@grouped(
    mechanism=Group(
        of=MechanismFlags,
        without=("link_cost", "link_order"),
        instead={"name": (_MECHANISM, "")},
    ),
    account=Group(of=LedgerFlags),
)
def train(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            show_default=False,
            help="Private data: a .npz, .csv or .parquet table; or a data set by name: scenes, "
            "mulan:FILE; voc2012, chexpert, mimic, padchest or nih, each with :FOLDER.",
        ),
    ],
    epsilon: options.Epsilon,
    delta: options.Delta,
    output: Annotated[
        Path, typer.Option(show_default=False, help="A new folder for everything that is made.")
    ],
    mechanism: MechanismFlags,
    account: LedgerFlags,
    public: Annotated[
        Path | None,
        typer.Option(
            help="Public rows to label: a table with the same features. A data set by name is "
            "split instead.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    test: Annotated[
        Path | None,
        typer.Option(
            help="Rows with true labels to judge by. The figures are for the owner's eyes: no "
            "epsilon covers them.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    test_is_public: Annotated[
        bool,
        typer.Option(
            "--test-is-public",
            help="The test rows are public: their figures go into the report.",
            rich_help_panel=_DATA,
        ),
    ] = False,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...", help="Which columns of a table are labels.", rich_help_panel=_DATA
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Which columns of a table are features; every other one unless told.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    id_column: Annotated[
        str | None, typer.Option(help="The column that names a record.", rich_help_panel=_DATA)
    ] = None,
    group_column: Annotated[
        str | None,
        typer.Option(
            help="The column that names the person a record belongs to: the promise is then for "
            "persons.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="auto: public numbers decide. gradients or moments (linear) or dpsgd (a network): "
            "trained on the records with noise. teachers, each trained on its own part, or "
            "neighbours, the records themselves: they vote, and a student learns from that.",
        ),
    ] = "auto",
    yes: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Which share of the labels is present, if you know: never counted on private "
            "records.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    teacher: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help=f"What a teacher is: linear unless told; on images {_NETWORKS} (torch).",
            rich_help_panel=_VOTERS,
        ),
    ] = None,
    teachers: Annotated[
        int | None,
        typer.Option(
            help="How many teachers; as suits records and budget unless told.",
            rich_help_panel=_VOTERS,
        ),
    ] = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            metavar="RULE",
            help="A teacher's probabilities into votes: prevalence unless told; tuned, P, or "
            "P,P,... by label.",
            rich_help_panel=_VOTERS,
        ),
    ] = None,
    embedding: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Where rows are put before: auto unless told; pca:K or std:K, of words tfidf or "
            "lsa:K. Public rows tell.",
            rich_help_panel=_VOTERS,
        ),
    ] = None,
    student: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="What learns from the labels: logistic unless told; mixmatch (semi-supervised, "
            f"torch); on images {_NETWORKS} (torch).",
            rich_help_panel=_VOTERS,
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            help="Label in so many batches; the student so far is the baseline of the next.",
            rich_help_panel=_VOTERS,
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Processes to train in.", rich_help_panel=_VOTERS)
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"dpsgd: mlp unless told; linear; on images {_NETWORKS}.",
            rich_help_panel=_DIRECT,
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Noisy gradients; 100 unless told.", rich_help_panel=_DIRECT),
    ] = None,
    sample_rate: Annotated[
        float | None,
        typer.Option(
            help="With which probability a record takes part in a step; 1 unless told: always.",
            rich_help_panel=_DIRECT,
        ),
    ] = None,
    guarantee: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What the budget promises: allowance unless told; worst-case, ptr or "
            "data-dependent.",
            rich_help_panel=_BUDGET,
        ),
    ] = None,
    queries: Annotated[
        int | None,
        typer.Option(
            help="How many public rows to label; needed for ptr and data-dependent.",
            rich_help_panel=_BUDGET,
        ),
    ] = None,
    seed: options.Seed = None,
    force: options.Force = False,
    resume: options.Resume = False,
    show_sealed: Annotated[
        bool,
        typer.Option("--show-sealed", help="Also show the figures that must not be published."),
    ] = False,
    json: options.Json = False,
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
    """
    from privote.learning.jobs import Job, trained
    from privote.report.results import write_run

    from .files import DRAFT, claimed_folder
    from .progress import stages

    asked = {
        "mechanism": mechanism.build_if_named(),
        "teacher": teacher,
        "n_teachers": teachers,
        "threshold": threshold if threshold in _RULES else options.parse_threshold(threshold),
        "embedding": embedding,
        "student": student,
        "rounds": rounds,
        "n_jobs": jobs,
        "network": network,
        "steps": steps,
        "sample_rate": sample_rate,
        "guarantee": guarantee,
        "queries": queries,
    }
    job = Job(
        data=data,
        method=method,
        epsilon=epsilon,
        delta=delta,
        public=public,
        test=test,
        test_is_public=test_is_public,
        labels=options.names(labels) or (),
        columns=options.names(columns),
        id_column=id_column,
        group_column=group_column,
        ledger=account.place,
        dataset=account.dataset,
        consumer=account.consumer,
        electorate=account.electorate,
        seed=seed,
        yes=yes,
        settings={name: value for name, value in asked.items() if value is not None},
    )
    how = {"resume": resume, "force": force}
    with (
        claimed_folder(output, force=force or resume),  # before anything is charged
        account.explained(),
        stages() as progress,
        trained(job, output / DRAFT, progress=progress, **how) as outcome,
    ):
        written = write_run(output, outcome)
    show = _show_json if json else _show
    show(outcome, output, written, show_sealed)


_RULES = ("prevalence", "tuned")


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

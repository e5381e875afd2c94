"""``privote train``: private data in; a student, its labels, a statement and a report out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from privote.errors import InputError

from . import options
from .groups import Group, grouped
from .ledger_options import LedgerFlags
from .mechanism import MechanismFlags

_DATA, _VOTERS, _BUDGET = "Data", "Voters and student", "Budget"
_DIRECT = "Private training without votes"
_NETWORKS = ("smallcnn", "densenet121", "resnet50")  # on images
METHODS = ("teachers", "neighbours", "gradients", "moments", "dpsgd")
TEACHERS = ("linear", *_NETWORKS)
STUDENTS = ("logistic", "mixmatch", *_NETWORKS)


@dataclass(frozen=True, kw_only=True)
class DirectFlags:
    """Settings of methods that train on the private records themselves, with noise."""

    network: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=f"dpsgd: linear, mlp; on images {', '.join(_NETWORKS)}.",
            rich_help_panel=_DIRECT,
        ),
    ] = "mlp"
    steps: Annotated[int, typer.Option(help="Noisy gradients.", rich_help_panel=_DIRECT)] = 100
    sample_rate: Annotated[
        float,
        typer.Option(
            help="With which probability a record takes part in a step; 1: all of them, always.",
            rich_help_panel=_DIRECT,
        ),
    ] = 1.0
    adaptive: Annotated[
        bool,
        typer.Option(
            "--adaptive",
            help="Let a noisy count steer the norm that gradients are clipped to.",
            rich_help_panel=_DIRECT,
        ),
    ] = False


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
    direct=Group(of=DirectFlags),
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
    direct: DirectFlags,
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
            "--method",
            "--voters",
            metavar="NAME",
            help="Who votes: teachers, each trained on its own part; or neighbours: the records. "
            "Or no votes: gradients or moments (linear) or dpsgd (a network), trained on the "
            "records with noise.",
            rich_help_panel=_VOTERS,
        ),
    ] = "teachers",
    teacher: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help=f"What a teacher is: linear; on images {', '.join(_NETWORKS)} (torch).",
            rich_help_panel=_VOTERS,
        ),
    ] = "linear",
    teachers: Annotated[int, typer.Option(help="How many teachers.", rich_help_panel=_VOTERS)] = 50,
    threshold: Annotated[
        str,
        typer.Option(
            metavar="RULE",
            help="A teacher's probabilities into votes: prevalence, tuned, P, or P,P,... by label.",
            rich_help_panel=_VOTERS,
        ),
    ] = "prevalence",
    share: Annotated[
        float | None,
        typer.Option(
            help="neighbours: one radius for all labels, as a quantile of the distances between "
            "public rows, and every row asked once; unless told, a radius for each label that "
            "follows released labels, and several passes.",
            rich_help_panel=_VOTERS,
        ),
    ] = None,
    embedding: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="neighbours, gradients, moments: where rows are put before: pca:K or std:K; of "
            "words tfidf or lsa:K. Public rows tell.",
            rich_help_panel=_VOTERS,
        ),
    ] = None,
    student: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="What learns from the labels: logistic; mixmatch (semi-supervised, torch); on "
            f"images {', '.join(_NETWORKS)} (torch).",
            rich_help_panel=_VOTERS,
        ),
    ] = "logistic",
    rounds: Annotated[
        int,
        typer.Option(
            help="Label in so many batches; the student so far is the baseline of the next.",
            rich_help_panel=_VOTERS,
        ),
    ] = 1,
    choose: Annotated[
        str,
        typer.Option(
            metavar="RULE",
            help="Which rows come next: random, or uncertainty of the student so far.",
            rich_help_panel=_VOTERS,
        ),
    ] = "random",
    random_state: Annotated[
        int,
        typer.Option(help="For training, not for parts or noise.", rich_help_panel=_VOTERS),
    ] = 0,
    jobs: Annotated[
        int | None, typer.Option(help="Processes to train in.", rich_help_panel=_VOTERS)
    ] = None,
    guarantee: options.Guarantee = "allowance",
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
    r"""Train voters on private data, label public rows privately, and train a student on them.

    Or, with --method gradients, moments or dpsgd, train a model on the private data itself, with
    noise.

    Writes into the output folder: student.student (for `privote predict`; holds no code),
    labels.csv (row, labels; -1 where held back), statement.txt and .json (for whoever signs), and
    report.html; and for-the-owner.json, with figures on private test rows, which must not leave: no
    epsilon covers them. A table needs --labels and --public. Features of private rows must not be
    scaled or encoded by looking at other private rows: one record must reach one voter only.

    Labels are on disk as soon as they are released. If anything fails after that, exit code 6 says
    so, and the same command with --resume trains the student on them, at no further charge.

    Examples
    --------
        privote train scenes --epsilon 8 --delta 1e-5 --output run

        privote train records.csv --labels flu,cold --group-column patient \
          --public public.csv --test test.csv --epsilon 4 --delta 1e-6 --output run

        privote train records.csv --labels flu,cold --method gradients \
          --epsilon 4 --delta 1e-6 --output run
    """
    from .training import Job, run_direct, run_training

    chosen = mechanism.build_if_named()
    for option, value, known in (
        ("--method", method, METHODS),
        ("--teacher", teacher, TEACHERS),
        ("--student", student, STUDENTS),
    ):
        if value not in known:
            raise InputError(f"{option} must be one of {', '.join(known)}, got {value!r}")
    without_votes = method in ("gradients", "moments", "dpsgd")
    for option, given in (
        ("--mechanism", without_votes and chosen is not None),
        ("--teacher", method != "teachers" and teacher != "linear"),
        ("--student", without_votes and student != "logistic"),
        ("--teachers", without_votes and teachers != 50),
        ("--threshold", without_votes and threshold != "prevalence"),
        ("--share", without_votes and share is not None),
        ("--embedding", method == "dpsgd" and embedding is not None),
        ("--rounds", without_votes and rounds != 1),
        ("--choose", without_votes and choose != "random"),
        ("--queries", without_votes and queries is not None),
        ("--guarantee", without_votes and guarantee != "allowance"),
        ("--electorate", without_votes and account.electorate is not None),
        ("--resume", without_votes and resume),
        (
            "--steps, --sample-rate, --network",
            method not in ("gradients", "dpsgd") and direct != DirectFlags(),
        ),
        ("--network", method == "gradients" and direct.network != DirectFlags().network),
    ):
        if given:
            raise InputError(f"{option} cannot be given with --method {method}")
    own = {"dpsgd": ("network", "steps", "sample_rate", "adaptive"), "moments": ()}.get(
        method, ("steps", "sample_rate", "adaptive")
    )
    job = Job(
        data=data,
        public=public,
        test=test,
        test_is_public=test_is_public,
        labels=() if labels is None else tuple(name.strip() for name in labels.split(",")),
        id_column=id_column,
        group_column=group_column,
        method=method,
        network=direct.network if method == "dpsgd" else teacher,
        student=student,
        output=output,
        force=force,
        resume=resume,
        ledger=account.place,
        dataset=account.dataset,
        consumer=account.consumer,
        electorate=account.electorate,
        columns=None if columns is None else tuple(name.strip() for name in columns.split(",")),
        seed=seed,
        settings={
            "epsilon": epsilon,
            "delta": delta,
            **{name: value for name, value in asdict(direct).items() if name in own},
            **({"embedding": embedding} if embedding is not None else {}),
        }
        if without_votes
        else {
            "mechanism": chosen,
            "voters": method,
            "n_teachers": teachers,
            "threshold": _rule(threshold),
            "share": share,
            "embedding": embedding,
            "epsilon": epsilon,
            "delta": delta,
            "guarantee": guarantee,
            "rounds": rounds,
            "choose": choose,
            "queries": queries,
            "n_jobs": jobs,
            "random_state": random_state,
        },
    )
    outcome = run_direct(job) if without_votes else run_training(job)
    _show_json(outcome, show_sealed) if json else _show(outcome, show_sealed)


def _rule(text: str) -> Any:
    return text if text in ("prevalence", "tuned") else options.parse_threshold(text)


def _show_json(outcome: Any, show_sealed: bool) -> None:
    from privote.report import OWNER_ONLY

    from .output import print_json

    sealed = {"sealed": {"note": OWNER_ONLY, "test": outcome.sealed}} if show_sealed else {}
    print_json({**outcome.facts(), **sealed})


def _show(outcome: Any, show_sealed: bool) -> None:
    from privote.report import OWNER_ONLY

    from .output import print_facts, print_table
    from .training import OWNERS

    if outcome.release is None:
        print_facts(outcome.shown(), title="Trained")
    else:
        _show_release(outcome)
    if outcome.figures:
        print_table(outcome.figures, title="On the test rows, which are public")
    if outcome.sealed and show_sealed:
        title = f"{OWNER_ONLY.capitalize()}: on the test rows, covered by no epsilon"
        print_table(outcome.sealed, title=title)
    elif outcome.sealed:
        typer.echo(
            f"Figures on the test rows are {OWNER_ONLY}, in {OWNERS}; --show-sealed prints them."
        )
    typer.echo(f"Written to {outcome.job.output}: {', '.join(outcome.written)}")
    typer.echo(f"Next: privote predict {outcome.job.output}/student.student ROWS --output FILE.csv")


def _show_release(outcome: Any) -> None:
    from privote.mechanisms.base import describe

    from .output import print_facts

    facts = outcome.release.facts()
    print_facts(
        {
            "public rows labelled": outcome.rows,
            **(
                {}
                if outcome.release.answered == outcome.rows
                else {"answers in all": outcome.release.answered}
            ),
            "guarantee": facts["guarantee"],
            "mechanism": describe(facts["mechanism"]),
            **(
                {}
                if facts["allowance"] is None
                else {"allowance": f"{facts['allowance']} surprises a voter, for life"}
            ),
            "epsilon": "sealed" if facts["epsilon"] is None else float(facts["epsilon"]),
            "delta": facts["delta"],
            "voters": facts["voters"],
            "protects": facts["protects"],
            **({"SIMULATED": "a seed was given"} if facts["simulated"] else {}),
        },
        title="Released",
    )

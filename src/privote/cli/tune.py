"""``privote tune``: sigma, tau, the gate and the threshold, each over a grid. Not private."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privote.errors import InputError

from . import options
from .groups import REQUIRED, Group, grouped
from .mechanism import MechanismFlags
from .tune_options import BINARY, Guarantee, TuneFlags, numbers, shares

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Try values of sigma, tau, a gate or a threshold: how many queries each answers, and how "
    "good the labels are. NOT PRIVATE: tune on votes that are public or paid for.",
)


@app.command()
@grouped(
    flags=Group(of=TuneFlags),
    mechanism=Group(
        of=MechanismFlags,
        without=("sigma", "link_cost", "link_order"),
        instead={"name": (BINARY, "binary")},
    ),
)
def sigma(
    context: typer.Context,
    votes: options.VotesFile,
    flags: TuneFlags,
    mechanism: MechanismFlags,
    sigmas: Annotated[
        str | None,
        typer.Option(metavar="S[,S...]", help="What to try; a grid by the voters unless told."),
    ] = None,
) -> None:
    """Try amounts of noise: more noise answers more queries, less well.

    Not private: the figures depend on the votes, and choosing by them voids the guarantee.

    Example:

        privote tune sigma public-votes.npz --epsilon 8 --delta 1e-5 --report sigma.html
    """
    from privote.learning.tuning import tune_sigma

    from .tune_run import run

    cube, known = flags.read_votes(votes)
    run(
        lambda tick: tune_sigma(
            cube,
            known,
            sigmas=numbers("--sigmas", sigmas),
            make=mechanism.build,
            **flags.settings(mechanism.name),
            progress=tick,
        ),
        "trying sigma",
        context,
        flags,
    )


@app.command()
@grouped(flags=Group(of=TuneFlags, instead={"guarantee": (Guarantee, "worst-case")}))
def tau(
    context: typer.Context,
    votes: options.VotesFile,
    sigma: options.RequiredSigma,
    flags: TuneFlags,
    taus: Annotated[
        str | None,
        typer.Option(
            metavar="T[,T...]", help="What to try; norms of short to long ballots unless told."
        ),
    ] = None,
    norm: Annotated[
        str, typer.Option(metavar="1|2|both", help="Which norm; 1 is the Private-kNN baseline.")
    ] = "both",
) -> None:
    """Try bounds on a ballot's norm: what clipping loses, and what it saves.

    Not private: the figures depend on the votes, and choosing by them voids the guarantee.

    Example:

        privote tune tau public-votes.npz --sigma 9 --epsilon 8 --delta 1e-5 --report tau.html
    """
    from privote.learning.tuning import tune_tau

    from .tune_run import run

    norms = {"1": (1,), "2": (2,), "both": (2, 1)}.get(norm)
    if norms is None:
        raise InputError(f"--norm must be 1, 2 or both, got {norm!r}")
    cube, known = flags.read_votes(votes)
    run(
        lambda tick: tune_tau(
            cube,
            known,
            sigma=sigma,
            taus=numbers("--taus", taus),
            norms=norms,
            **flags.settings("tau"),
            progress=tick,
        ),
        "trying tau",
        context,
        flags,
    )


@app.command()
@grouped(
    flags=Group(of=TuneFlags, instead={"guarantee": (Guarantee, "exact-per-query")}),
    mechanism=Group(
        of=MechanismFlags,
        without=(
            "quota",
            "false_alarm",
            "link_cost",
            "link_order",
            "gate_threshold",
            "gate_sigma",
        ),
        instead={"name": (BINARY, "binary"), "sigma": (options.RequiredSigma, REQUIRED)},
    ),
)
def gate(
    context: typer.Context,
    votes: options.VotesFile,
    mechanism: MechanismFlags,
    flags: TuneFlags,
    gate_thresholds: Annotated[
        str | None,
        typer.Option(metavar="T[,T...]", help="T: 0.6 to 1 of the voters unless told."),
    ] = None,
    gate_sigmas: Annotated[
        str | None,
        typer.Option(metavar="S[,S...]", help="sigma_T: 0.1 to 0.6 of the voters unless told."),
    ] = None,
) -> None:
    """Try every pair of a gate's T and sigma_T: how much it lets through, and what that costs.

    Tune sigma first, without a gate, as the paper does. Not private: the figures depend on the
    votes, and choosing by them voids the guarantee.

    Example:

        privote tune gate public-votes.npz --sigma 7 --epsilon 8 --delta 1e-5 --report gate.html
    """
    from privote.learning.tuning import tune_gate

    from .tune_run import run

    cube, known = flags.read_votes(votes)
    run(
        lambda tick: tune_gate(
            cube,
            known,
            mechanism=mechanism.build(),
            thresholds=numbers("--gate-thresholds", gate_thresholds),
            sigmas=numbers("--gate-sigmas", gate_sigmas),
            **flags.settings(mechanism.name),
            progress=tick,
        ),
        "trying gates",
        context,
        flags,
    )


@app.command()
@grouped(flags=Group(of=TuneFlags, without=("threshold",)))
def threshold(
    context: typer.Context,
    probabilities: Annotated[
        Path,
        typer.Argument(
            metavar="PROBABILITIES",
            show_default=False,
            help="(queries, voters, labels) in [0, 1]: .npy, or .npz with 'probabilities' (or "
            "'votes').",
        ),
    ],
    sigma: options.RequiredSigma,
    flags: TuneFlags,
    thresholds: Annotated[
        str | None, typer.Option(metavar="P[,P...]", help="What to try; 0.05 to 0.95 unless told.")
    ] = None,
    best_by: Annotated[
        str, typer.Option(metavar="BAC|F1", help="By what each label's best one is chosen.")
    ] = "BAC",
    prevalence: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|P[,P...]",
            help="Also try: yes to this share of the queries; one for all, one per label, or a "
            "file (.npy, .npz, .csv) with one per label, or per voter and label.",
        ),
    ] = None,
) -> None:
    """Try thresholds that turn probabilities into votes: one for all labels, and one per label.

    True labels are needed: the majority depends on the threshold. Labels are released by binary
    voting. Not private: the figures depend on the votes, and choosing by them voids the guarantee.

    Example:

        privote tune threshold scores.npz --sigma 7 --epsilon 8 --delta 1e-5 --report page.html
    """
    from privote.learning.tuning import tune_threshold
    from privote.mechanisms import BinaryVoting

    from .truth import read_array, read_truth
    from .tune_run import run

    cube = read_array(probabilities, "PROBABILITIES", "probabilities", "votes")
    if cube.ndim != 3:
        raise InputError(
            f"PROBABILITIES must have the shape (queries, voters, labels), got {cube.shape}"
        )
    known = read_truth(probabilities, flags.truth, cube.shape[0], cube.shape[2])
    if known is None:
        raise InputError("--truth must be given: the majority depends on the threshold")
    head = flags.head_of(len(cube))
    run(
        lambda tick: tune_threshold(
            cube[:head],
            known[:head],
            mechanism=BinaryVoting(sigma=sigma),
            thresholds=numbers("--thresholds", thresholds),
            best_by=best_by,
            prevalence=shares(prevalence, cube.shape[2]),
            **flags.settings("binary"),
            progress=tick,
        ),
        "trying thresholds",
        context,
        flags,
    )

"""``privote tune``: sigma, tau, the gate and the threshold, each over a grid. Not private."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privote.errors import InputError

from . import options
from . import tune_options as shared
from .mechanism import MechanismFlags

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Try values of sigma, tau, a gate or a threshold: how many queries each answers, and how "
    "good the labels are. NOT PRIVATE: tune on votes that are public or paid for.",
)


@app.command()
def sigma(
    context: typer.Context,
    votes: options.VotesFile,
    epsilon: options.Epsilon,
    delta: options.Delta,
    sigmas: Annotated[
        str | None,
        typer.Option(metavar="S[,S...]", help="What to try; a grid by the voters unless told."),
    ] = None,
    mechanism: shared.MechanismName = "binary",
    tau: options.Tau = None,
    norm: options.Norm = None,
    max_positives: options.MaxPositives = None,
    quota: options.Quota = None,
    false_alarm: options.FalseAlarm = None,
    gate_threshold: options.GateThreshold = None,
    gate_sigma: options.GateSigma = None,
    truth: shared.Truth = None,
    threshold: options.Threshold = None,
    max_queries: shared.MaxQueries = None,
    by_voter: shared.ByVoter = None,
    releases: shared.Releases = 20,
    metric: shared.Metric = "BAC",
    drop: shared.Drop = 0.02,
    guarantee: shared.Guarantee = "allowance",
    report: shared.Report = None,
    json: options.Json = False,
) -> None:
    """Try amounts of noise: more noise answers more queries, less well.

    Not private: the figures depend on the votes, and choosing by them voids the guarantee.

    Example:

        privote tune sigma public-votes.npz --epsilon 8 --delta 1e-5 --report sigma.html
    """
    from privote.learning.tuning import tune_sigma

    from .tune_run import Output, run

    flags = MechanismFlags(
        name=mechanism,
        tau=tau,
        norm=norm,
        max_positives=max_positives,
        quota=quota,
        false_alarm=false_alarm,
        gate_threshold=gate_threshold,
        gate_sigma=gate_sigma,
    )
    output = Output(
        context=context,
        metric=metric,
        drop=drop,
        guarantee=guarantee,
        report=report,
        json=json,
    )
    cube, known = shared.read_votes(votes, truth, threshold, max_queries)
    run(
        lambda tick: tune_sigma(
            cube,
            known,
            epsilon=epsilon,
            delta=delta,
            sigmas=shared.numbers("--sigmas", sigmas),
            make=flags.build,
            guarantees=shared.guarantees(by_voter, mechanism),
            releases=releases,
            progress=tick,
        ),
        "trying sigma",
        output,
    )


@app.command()
def tau(
    context: typer.Context,
    votes: options.VotesFile,
    sigma: shared.RequiredSigma,
    epsilon: options.Epsilon,
    delta: options.Delta,
    taus: Annotated[
        str | None,
        typer.Option(
            metavar="T[,T...]", help="What to try; norms of short to long ballots unless told."
        ),
    ] = None,
    norm: Annotated[
        str, typer.Option(metavar="1|2|both", help="Which norm; 1 is the Private-kNN baseline.")
    ] = "both",
    truth: shared.Truth = None,
    threshold: options.Threshold = None,
    max_queries: shared.MaxQueries = None,
    by_voter: shared.ByVoter = None,
    releases: shared.Releases = 20,
    metric: shared.Metric = "BAC",
    drop: shared.Drop = 0.02,
    guarantee: shared.Guarantee = "worst-case",
    report: shared.Report = None,
    json: options.Json = False,
) -> None:
    """Try bounds on a ballot's norm: what clipping loses, and what it saves.

    Not private: the figures depend on the votes, and choosing by them voids the guarantee.

    Example:

        privote tune tau public-votes.npz --sigma 9 --epsilon 8 --delta 1e-5 --report tau.html
    """
    from privote.learning.tuning import tune_tau

    from .tune_run import Output, run

    norms = {"1": (1,), "2": (2,), "both": (2, 1)}.get(norm)
    if norms is None:
        raise InputError(f"--norm must be 1, 2 or both, got {norm!r}")
    output = Output(
        context=context,
        metric=metric,
        drop=drop,
        guarantee=guarantee,
        report=report,
        json=json,
    )
    cube, known = shared.read_votes(votes, truth, threshold, max_queries)
    run(
        lambda tick: tune_tau(
            cube,
            known,
            sigma=sigma,
            epsilon=epsilon,
            delta=delta,
            taus=shared.numbers("--taus", taus),
            norms=norms,
            guarantees=shared.guarantees(by_voter, "tau"),
            releases=releases,
            progress=tick,
        ),
        "trying tau",
        output,
    )


@app.command()
def gate(
    context: typer.Context,
    votes: options.VotesFile,
    sigma: shared.RequiredSigma,
    epsilon: options.Epsilon,
    delta: options.Delta,
    gate_thresholds: Annotated[
        str | None,
        typer.Option(metavar="T[,T...]", help="T: 0.6 to 1 of the voters unless told."),
    ] = None,
    gate_sigmas: Annotated[
        str | None,
        typer.Option(metavar="S[,S...]", help="sigma_T: 0.1 to 0.6 of the voters unless told."),
    ] = None,
    mechanism: shared.MechanismName = "binary",
    tau: options.Tau = None,
    norm: options.Norm = None,
    max_positives: options.MaxPositives = None,
    truth: shared.Truth = None,
    threshold: options.Threshold = None,
    max_queries: shared.MaxQueries = None,
    by_voter: shared.ByVoter = None,
    releases: shared.Releases = 20,
    metric: shared.Metric = "BAC",
    drop: shared.Drop = 0.02,
    guarantee: shared.Guarantee = "exact-per-query",
    report: shared.Report = None,
    json: options.Json = False,
) -> None:
    """Try every pair of a gate's T and sigma_T: how much it lets through, and what that costs.

    Tune sigma first, without a gate, as the paper does. Not private: the figures depend on the
    votes, and choosing by them voids the guarantee.

    Example:

        privote tune gate public-votes.npz --sigma 7 --epsilon 8 --delta 1e-5 --report gate.html
    """
    from privote.learning.tuning import tune_gate

    from .tune_run import Output, run

    flags = MechanismFlags(
        name=mechanism, sigma=sigma, tau=tau, norm=norm, max_positives=max_positives
    )
    output = Output(
        context=context,
        metric=metric,
        drop=drop,
        guarantee=guarantee,
        report=report,
        json=json,
    )
    cube, known = shared.read_votes(votes, truth, threshold, max_queries)
    run(
        lambda tick: tune_gate(
            cube,
            known,
            mechanism=flags.build(),
            epsilon=epsilon,
            delta=delta,
            thresholds=shared.numbers("--gate-thresholds", gate_thresholds),
            sigmas=shared.numbers("--gate-sigmas", gate_sigmas),
            guarantees=shared.guarantees(by_voter, mechanism),
            releases=releases,
            progress=tick,
        ),
        "trying gates",
        output,
    )


@app.command()
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
    sigma: shared.RequiredSigma,
    epsilon: options.Epsilon,
    delta: options.Delta,
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
    truth: shared.Truth = None,
    max_queries: shared.MaxQueries = None,
    by_voter: shared.ByVoter = None,
    releases: shared.Releases = 20,
    metric: shared.Metric = "BAC",
    drop: shared.Drop = 0.02,
    guarantee: shared.Guarantee = "allowance",
    report: shared.Report = None,
    json: options.Json = False,
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
    from .tune_run import Output, run

    output = Output(
        context=context,
        metric=metric,
        drop=drop,
        guarantee=guarantee,
        report=report,
        json=json,
    )
    cube = read_array(probabilities, "PROBABILITIES", "probabilities", "votes")
    if cube.ndim != 3:
        raise InputError(
            f"PROBABILITIES must have the shape (queries, voters, labels), got {cube.shape}"
        )
    known = read_truth(probabilities, truth, cube.shape[0], cube.shape[2])
    if known is None:
        raise InputError("--truth must be given: the majority depends on the threshold")
    head = shared.head_of(max_queries, len(cube))
    run(
        lambda tick: tune_threshold(
            cube[:head],
            known[:head],
            mechanism=BinaryVoting(sigma=sigma),
            epsilon=epsilon,
            delta=delta,
            thresholds=shared.numbers("--thresholds", thresholds),
            best_by=best_by,
            prevalence=shared.shares(prevalence, cube.shape[2]),
            guarantees=shared.guarantees(by_voter, "binary"),
            releases=releases,
            progress=tick,
        ),
        "trying thresholds",
        output,
    )

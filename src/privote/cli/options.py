"""Options that several verbs share, each with its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privote.errors import InputError

_MECHANISM, _BUDGET = "Mechanism", "Budget"
_SIGMA = (
    "Noise: every count is moved by about sigma votes, by its own N(0, sigma^2), as PATE's "
    "sigma_GNMax."
)

VotesFile = Annotated[
    str,
    typer.Argument(
        metavar="VOTES",
        show_default=False,
        help="Votes (queries, voters, labels): .csv, .tsv, .npy, .npz, .zarr or .parquet; the last "
        "two also by a URL such as s3://bucket/votes.zarr.",
    ),
]
EmptyChunks = Annotated[
    str | None,
    typer.Option(
        metavar="no",
        help="A Zarr array lacks chunks because these hold votes of no. Without it an array that "
        "lacks one is refused, unless its attribute privote_empty is no: a chunk that was lost "
        "would count as votes of no.",
    ),
]
Threshold = Annotated[
    str | None,
    typer.Option(
        metavar="P[,P...]",
        help="The file holds probabilities: a yes is one at or above P; or one P per label.",
    ),
]
Name = Annotated[
    str,
    typer.Option(
        "--mechanism",
        metavar="NAME",
        show_default=False,
        help="How a tally becomes labels: binary, tau, powerset, plurality; or "
        "package.module:Class, a class of your own, which is imported and so runs.",
        rich_help_panel=_MECHANISM,
    ),
]
Sigma = Annotated[
    float | None,
    typer.Option(help=_SIGMA, rich_help_panel=_MECHANISM),
]
RequiredSigma = Annotated[float, typer.Option(show_default=False, help=_SIGMA)]
Tau = Annotated[
    float | None,
    typer.Option(help="tau: the bound on a ballot's norm.", rich_help_panel=_MECHANISM),
]
Norm = Annotated[
    int | None,
    typer.Option(
        metavar="1|2",
        help="tau: which norm; 2 unless told, 1 is the Private-kNN baseline.",
        rich_help_panel=_MECHANISM,
    ),
]
MaxPositives = Annotated[
    int | None,
    typer.Option(
        help="powerset: only sets with at most this many labels can win.",
        rich_help_panel=_MECHANISM,
    ),
]
Quota = Annotated[
    float | None,
    typer.Option(
        help="binary: the bar, as a share of the voters; one half unless told.",
        rich_help_panel=_MECHANISM,
    ),
]
FalseAlarm = Annotated[
    float | None,
    typer.Option(
        help="binary: the bar, such that a label without a yes is released as 1 this often.",
        rich_help_panel=_MECHANISM,
    ),
]
LinkCost = Annotated[
    float | None,
    typer.Option(
        help="binary, instead of --sigma: what a vote costs at most with the optimal link.",
        rich_help_panel=_MECHANISM,
    ),
]
LinkOrder = Annotated[
    float | None,
    typer.Option(help="The Rényi order of --link-cost.", rich_help_panel=_MECHANISM),
]
GateThreshold = Annotated[
    float | None,
    typer.Option(
        help="Answer only where about this many voters agree.", rich_help_panel=_MECHANISM
    ),
]
GateSigma = Annotated[
    float | None,
    typer.Option(help="Noise on the gate's count.", rich_help_panel=_MECHANISM),
]
Epsilon = Annotated[
    float,
    typer.Option(
        show_default=False,
        help="The budget: for replacing all of one voter's ballots; in train, one record or "
        "person; in a poll, one ballot. Smaller protects more: what comes out is at most e^epsilon "
        "times as likely as without the replacement.",
        rich_help_panel=_BUDGET,
    ),
]
Delta = Annotated[
    float,
    typer.Option(
        show_default=False,
        help="The probability that is left out of the promise: well below one over the number of "
        "voters or persons, e.g. 1e-5.",
        rich_help_panel=_BUDGET,
    ),
]
BESIDE = "For a ledger in PostgreSQL: its key and anchor lie here, as NAME.key and NAME.head."
Beside = Annotated[Path | None, typer.Option(metavar="NAME", help=BESIDE, rich_help_panel=_BUDGET)]
Guarantee = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="What the budget promises: allowance, worst-case, ptr or data-dependent.",
        rich_help_panel=_BUDGET,
    ),
]
Dataset = Annotated[
    str, typer.Option(help="The data set's name in the ledger.", rich_help_panel=_BUDGET)
]
Consumer = Annotated[
    str | None, typer.Option(help="For whom, by name in the ledger.", rich_help_panel=_BUDGET)
]
Voters = Annotated[int, typer.Option(help="How many voters.")]
Labels = Annotated[int, typer.Option(help="How many labels a ballot has.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is written if it exists.")]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Finish a run that was charged and then broke off, from what it released: the same "
        "command again, with this. What was charged is not charged again.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        help="Makes a simulation that can be repeated, marked as such. It protects nobody."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON to stdout instead of tables.")]


def parse_threshold(text: str | None) -> float | list[float] | None:
    """Return ``--threshold`` as one number, or one per label."""
    if text is None:
        return None
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError("threshold", "must be one number or a comma list", text) from None
    return values[0] if len(values) == 1 else values


def names(text: str | None) -> tuple[str, ...] | None:
    """Return a comma list of names; None if it was not given."""
    return None if text is None else tuple(name.strip() for name in text.split(","))


_WHERE = "Where it runs"
Workers = Annotated[
    int | None,
    typer.Option(
        help="How many work at once; one, or all of a cluster, unless told. What comes out is the "
        "same for any number.",
        rich_help_panel=_WHERE,
    ),
]
Backend = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="loky (processes here, unless told), dask or ray.",
        rich_help_panel=_WHERE,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="The scheduler of a cluster: tcp://HOST:8786 (dask), ray://HOST:10001 or auto (ray). "
        "Without it dask and ray are started here.",
        rich_help_panel=_WHERE,
    ),
]

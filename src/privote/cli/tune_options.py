"""Options that the verbs of ``privote tune`` share, and what they read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from privote.errors import InputError

from . import options

Truth = Annotated[
    Path | None,
    typer.Option(
        help="True labels (queries, labels): .npy, .npz or .csv. Unless told, those in the votes' "
        ".npz under 'truth'; or else the noise-free majority takes their place.",
    ),
]
MaxQueries = Annotated[
    int | None, typer.Option(help="Look at the first N queries only; at all unless told.")
]
ByVoter = Annotated[
    bool | None,
    typer.Option(
        "--by-voter/--no-by-voter",
        help="Also count queries by each voter's exact bill. Unless told: for binary, as the "
        "others take minutes.",
    ),
]
Releases = Annotated[
    int, typer.Option(help="MAP, and all figures of a gate, are means over so many simulations.")
]
Metric = Annotated[
    str, typer.Option(metavar="NAME", help="What to choose by: ACC, BAC, AUC, MAP or CF1.")
]
Drop = Annotated[float, typer.Option(help="How much below the best value tried the metric may be.")]
Guarantee = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Whose answers to choose by: allowance, worst-case, exact-per-query, exact-by-voter.",
    ),
]
Report = Annotated[
    Path | None,
    typer.Option(help="Also write a page with curves here, .html; it is replaced if it exists."),
]
MechanismName = Annotated[
    str, typer.Option("--mechanism", metavar="NAME", help="binary, tau, powerset or plurality.")
]
RequiredSigma = Annotated[
    float,
    typer.Option(
        show_default=False,
        help="Noise: every count gets its own N(0, sigma^2), as PATE's sigma_GNMax.",
    ),
]


def read_votes(
    votes: Path, truth: Path | None, threshold: str | None, max_queries: int | None
) -> tuple[Any, Any]:
    """Return the votes to look at (queries, voters, labels), and their true labels or None."""
    from privote.ballots import Ballots

    from .progress import working
    from .truth import read_truth

    with working(f"reading {votes.name}"):
        ballots = Ballots.of(votes, threshold=options.parse_threshold(threshold))
        assert isinstance(ballots, Ballots)  # a file is dense
        head = head_of(max_queries, ballots.queries)
        known = read_truth(votes, truth, ballots.queries, ballots.labels)
        if known is not None and len(known) != ballots.queries:
            raise InputError(
                f"the true labels must have {ballots.queries} rows, as the votes have queries, "
                f"got {len(known)}"
            )
        return ballots.head(head).to_array(), None if known is None else known[:head]


def head_of(max_queries: int | None, queries: int) -> int:
    """Return how many queries to look at."""
    if max_queries is not None and max_queries < 1:
        raise InputError(f"--max-queries must be at least 1, got {max_queries}")
    return queries if max_queries is None else min(max_queries, queries)


def numbers(option: str, text: str | None) -> list[float] | None:
    """Return a comma list as numbers; None if it was not given."""
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} must be numbers with commas between, got {text!r}") from None


def shares(text: str | None, labels: int) -> Any:
    """Return ``--prevalence``: from a file, or the numbers themselves."""
    import numpy as np

    from .truth import read_array

    if text is None:
        return None
    if Path(text).suffix in (".npy", ".npz", ".csv"):
        array = read_array(Path(text), "--prevalence", "prevalence")
        return array[0] if array.shape == (1, labels) else array
    values = numbers("--prevalence", text)
    assert values is not None
    return np.full(labels, values[0]) if len(values) == 1 else np.array(values)


def guarantees(by_voter: bool | None, mechanism: str) -> tuple[str, ...]:
    """Return the guarantees to count queries for."""
    from privote.learning.tuning import GUARANTEES

    wanted = mechanism == "binary" if by_voter is None else by_voter
    return GUARANTEES if wanted else GUARANTEES[:-1]

"""Options that the verbs of ``privote tune`` share, and what they read."""

from __future__ import annotations

from dataclasses import dataclass
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
    typer.Option(help="Also write a page with curves here, .html."),
]
BINARY = Annotated[
    str, typer.Option("--mechanism", metavar="NAME", help="binary, tau, powerset or plurality.")
]


@dataclass(frozen=True, kw_only=True)
class TuneFlags:
    """The budget to fit, what to look at, and how the result is shown; checked before the work."""

    epsilon: options.Epsilon
    delta: options.Delta
    truth: Truth = None
    threshold: options.Threshold = None
    max_queries: MaxQueries = None
    by_voter: ByVoter = None
    releases: Releases = 20
    metric: Metric = "BAC"
    drop: Drop = 0.02
    guarantee: Guarantee = "allowance"
    report: Report = None
    force: options.Force = False
    json: options.Json = False

    def __post_init__(self) -> None:
        from privote.learning.tuning import FIGURES, GUARANTEES

        from .files import check_new

        if self.metric not in FIGURES:
            raise InputError(f"--metric must be one of {', '.join(FIGURES)}, got {self.metric!r}")
        if not 0 <= self.drop <= 1:
            raise InputError(f"--drop must lie in [0, 1], got {self.drop:g}")
        if self.guarantee not in (known := [name.replace("_", "-") for name in GUARANTEES]):
            raise InputError(
                f"--guarantee must be one of {', '.join(known)}, got {self.guarantee!r}"
            )
        if self.report is not None:
            check_new("--report", self.report, (".html",), force=self.force)

    @property
    def key(self) -> str:
        """The guarantee as the library spells it."""
        return self.guarantee.replace("-", "_")

    def settings(self, mechanism: str) -> dict[str, Any]:
        """Return what every tuning takes."""
        from privote.learning.tuning import GUARANTEES

        by_voter = mechanism == "binary" if self.by_voter is None else self.by_voter
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "guarantees": GUARANTEES if by_voter else GUARANTEES[:-1],
            "releases": self.releases,
        }

    def head_of(self, queries: int) -> int:
        """Return how many of these queries to look at."""
        if self.max_queries is not None and self.max_queries < 1:
            raise InputError(f"--max-queries must be at least 1, got {self.max_queries}")
        return queries if self.max_queries is None else min(self.max_queries, queries)

    def read_votes(self, votes: Path) -> tuple[Any, Any]:
        """Return the votes to look at (queries, voters, labels), and true labels or None."""
        from privote.ballots import Ballots

        from .progress import working
        from .truth import read_truth

        with working(f"reading {votes.name}"):
            ballots = Ballots.of(votes, threshold=options.parse_threshold(self.threshold))
            assert isinstance(ballots, Ballots)  # a file is dense
            head = self.head_of(ballots.queries)
            known = read_truth(votes, self.truth, ballots.queries, ballots.labels)
            if known is not None and len(known) != ballots.queries:
                raise InputError(
                    f"the true labels must have {ballots.queries} rows, as the votes have "
                    f"queries, got {len(known)}"
                )
            return ballots.head(head).to_array(), None if known is None else known[:head]


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

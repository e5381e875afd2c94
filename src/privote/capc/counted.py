"""How parties who hide their ballots from each other count them: in whole numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch

from ..accounting.gaussian import GaussianLink
from ..errors import InputError, UnavailableError
from ..mechanisms import BinaryVoting, Mechanism, TauVoting

_LARGEST_GRID = 1 << 40  # sums of ballots stay within 64 bits


@dataclass(frozen=True, kw_only=True)
class Counted:
    """How a coalition counts the ballots of one mechanism.

    Attributes
    ----------
    vote
        The noise on a label's margin, in votes: twice what its yeses count, less the voters.
    unit
        What a full yes counts, and so the most by which a ballot moves what yeses count.
    weights
        What a yes counts by the number of yeses of its ballot, (labels + 1,); None: always 1.
    neutral
        Whether a missing vote counts for neither side; else it is a no.
    """

    vote: GaussianLink
    unit: int = 1
    weights: tuple[int, ...] | None = None
    neutral: bool = False

    def __post_init__(self) -> None:
        if self.weights is None and self.unit != 1:
            raise InputError("unit", "must be 1 without `weights`", self.unit)


@singledispatch
def counted(mechanism: Mechanism, labels: int) -> Counted:
    """Return how a coalition counts ballots on so many labels; most mechanisms cannot be."""
    raise UnavailableError(
        "mechanism",
        "must be binary or tau in a coalition, or decide each label by its own margin",
        mechanism,
    )


@counted.register
def _(mechanism: BinaryVoting, labels: int) -> Counted:
    return Counted(vote=mechanism.link, neutral=mechanism.counts_missing(True))


@counted.register
def _(mechanism: TauVoting, labels: int) -> Counted:
    if mechanism.grid is None or mechanism.grid > _LARGEST_GRID:
        raise InputError("grid", "must be at most 2^40 in a coalition", mechanism.grid)
    weights = tuple(int(weight) for weight in mechanism.grid_weights(labels))
    vote = GaussianLink(sigma=mechanism.sigma)
    return Counted(vote=vote, unit=mechanism.grid, weights=weights)


@singledispatch
def with_grid(mechanism: Mechanism, grid: int) -> Mechanism:
    """Return the mechanism with weights in 1/grid of a vote, if it has weights and no grid yet."""
    return mechanism


@with_grid.register
def _(mechanism: TauVoting, grid: int) -> Mechanism:
    return mechanism if mechanism.grid is not None else replace(mechanism, grid=grid)

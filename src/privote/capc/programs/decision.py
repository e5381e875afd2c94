"""The labels of a batch: decided on noisy margins, with an allowance of surprises or without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...errors import InputError
from .base import HEAVIEST, QUERIER, Array, Program, Shapes

# Cells of one program, for which the engine takes about 500 MB a side; a decision compares up to
# three times a cell, an allowance mostly selects.
_DECIDED, _SELECTED = 1 << 15, 1 << 17
_LOWEST = 1 << 62  # no party's surprises ever add up to this
_ROWS = 1024  # of an allowance: its running sums are a product with (rows, rows)


@dataclass(frozen=True, kw_only=True)
class DecisionProgram(Program):
    """The labels of a batch from sums of shares and masks, without an allowance.

    Notes
    -----
    Querier: shares (rows, labels) = 2 x sum of its shares. Peer (the guardian): masks (rows,
    labels) = 2 x sum of masks, less a public offset; vote = N (rows, labels), and gate = N2 if
    ``gated``. Output: label (rows, labels) in {1, 0, -1}. If ``shared``, shares and masks are in
    steps of the noise, and vote and gate are inputs of both: the halves of each side.
    """

    name: ClassVar[str] = "decision"

    labels: int
    gated: bool = False
    shared: bool = False

    @property
    def most_rows(self) -> int:
        """What keeps memory bounded."""
        return max(1, _DECIDED // self.labels)

    def inputs(self, side: str) -> Shapes:
        """Return the shapes of a side's inputs."""
        cells = (self.rows, self.labels)
        noise = _noise(cells, self.gated)
        if side == QUERIER:
            return {"shares": cells, **(noise if self.shared else {})}
        return {"masks": cells, **noise}

    def outputs(self) -> Shapes:
        """Return the shape of the labels."""
        return {"label": (self.rows, self.labels)}

    def compute(self, xp: Any, values: Mapping[str, Array]) -> dict[str, Array]:
        """Return 1 where the noisy margin is at least 0, -1 where the gate abstains."""
        return {"label": _decided(xp, values["shares"] + values["masks"], values, self.gated)}


@dataclass(frozen=True, kw_only=True)
class AllowanceProgram(Program):
    """The labels of a batch where every party has an allowance of surprises.

    Parameters
    ----------
    rows, parties, labels
        Sizes; ``parties`` are those whose shares are there.
    voters
        All registered parties: one that is missing counts as the baseline.
    gated
        Whether the gate may abstain.
    steps
        None: the noise is the guardian's. Otherwise the sites': the querier holds a half of
        ``vote`` and ``gate``, too, and so many steps of noise are one of the margin.
    grid
        What a full yes counts (1 for binary voting).
    by_ballot
        A ballot with any yes is one surprise (tau voting); else every surprising vote is one.
    baseline
        The querier gives a private guess ``base``; else the baseline is no.
    has
        Which labels each party has, (parties, labels) of 0 and 1, public; None for all. A label
        that a party does not have counts as the baseline, free.
    charged
        The whole allowance of each party, (parties,), public. Where the two parts of ``left`` add
        up to more, or to what no count can come to, the party counts as the baseline. None: not
        looked at.

    Notes
    -----
    Querier: shares (rows, parties, labels), left (parties,), and base (rows, labels), yes where
    positive, if ``baseline``. Peer (the guardian): masks (rows, parties, labels), left (parties,),
    fresh (parties,), vote = N (rows, labels), and gate = N2 if ``gated``. Output: label (rows,
    labels), and left (parties,) = what is left after the batch - fresh.

    A party's ballot counts as long as the running sum of its surprises, this ballot included, is
    within what it had left; from then on it counts as the baseline, for good: ``left`` is lowered
    by all its surprises, refused ones too, and stays negative in later chunks and batches, so that
    no later, smaller ballot slips in. In a batch of several chunks the querier leaves ``left`` out
    of all but the first (it is the output of the chunk before), and the peer's ``left`` of a chunk
    is its ``fresh`` of the chunk before. The peer's part of ``base`` is zeros: it is there to make
    the guess a share of both sides, so that comparing it gives a Boolean share.
    """

    name: ClassVar[str] = "allowance"

    parties: int
    voters: int
    labels: int
    gated: bool = False
    steps: int | None = None
    grid: int = 1
    by_ballot: bool = False
    baseline: bool = False
    has: tuple[tuple[int, ...], ...] | None = None
    charged: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.parties > self.voters:
            raise InputError("parties", f"must be at most `voters={self.voters}`", self.parties)
        if self.baseline and (self.by_ballot or self.grid != 1):
            raise InputError("baseline", "must be False for whole ballots and for a grid", True)
        self._put("has", (self.parties, self.labels), 1)
        self._put("charged", (self.parties,), HEAVIEST)

    @property
    def most_rows(self) -> int:
        """What keeps memory bounded."""
        return max(1, min(_ROWS, _SELECTED // (self.labels * self.parties)))

    def inputs(self, side: str) -> Shapes:
        """Return the shapes of a side's inputs."""
        cells, ballots = (self.rows, self.labels), (self.rows, self.parties, self.labels)
        noise, each = _noise(cells, self.gated), (self.parties,)
        base: Shapes = {"base": cells} if self.baseline else {}
        if side == QUERIER:
            return {"shares": ballots, "left": each, **base, **(noise if self.steps else {})}
        return {"masks": ballots, "left": each, "fresh": each, **noise, **base}

    def outputs(self) -> Shapes:
        """Return the shapes of the labels and of the querier's new share of what is left."""
        return {"label": (self.rows, self.labels), "left": (self.parties,)}

    def compute(self, xp: Any, values: Mapping[str, Array]) -> dict[str, Array]:
        """Return the labels and what is left, less ``fresh``."""
        ballots = values["shares"] + values["masks"]
        if self.has is not None:
            ballots = ballots * np.array(self.has, np.int64)
        over = values["base"] - 1 >= 0 if self.baseline else None
        surprises = ballots
        if over is not None:
            most = 1 if self.has is None else np.array(self.has, np.int64)
            surprises = xp.where(over[:, None, :], most - ballots, ballots)
        counts = surprises.sum(axis=2)
        if self.by_ballot:
            counts = xp.where(counts - 1 >= 0, 1, 0)
        # All running sums at once, by a public triangle: no round of messages per query.
        triangle = np.tril(np.ones((self.rows, self.rows), np.int64))
        left = values["left"]
        if self.charged is not None:
            # Also a count so low that it would wrap to a high one is nobody's.
            known = (np.array(self.charged, np.int64) - left >= 0) & (left + _LOWEST >= 0)
            left = xp.where(known, left, -1)
        keep = left - triangle @ counts >= 0
        kept = xp.where(keep[:, :, None], surprises, 0)
        margin = 2 * kept.sum(axis=1) - self.voters * self.grid
        if over is not None:
            margin = xp.where(over, -margin, margin)
        if self.steps is not None:
            margin = self.steps * margin
        return {
            "label": _decided(xp, margin, values, self.gated),
            "left": left - counts.sum(axis=0) - values["fresh"],
        }


def _noise(cells: tuple[int, int], gated: bool) -> Shapes:
    return dict.fromkeys(("vote", "gate") if gated else ("vote",), cells)


def _decided(xp: Any, margin: Array, values: Mapping[str, Array], gated: bool) -> Array:
    """Return 1 where the noisy margin is at least 0, else 0; -1 where a gate abstains."""
    label = xp.where(margin + values["vote"] >= 0, 1, 0)
    if not gated:
        return label
    answered = (margin + values["gate"] >= 0) | (values["gate"] - margin >= 0)
    return xp.where(answered, label, -1)

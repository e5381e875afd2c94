"""What two parties compute together: the ballot, the decision and the allowance.

Each program is one definition that runs on numpy (in clear) and on jax.numpy (compiled for the
secure engine). Everything is int64 and wraps modulo 2^64, so both give the same bits. A program is
public: its sizes, tables and flags are known to both sides, its inputs to their owner alone, and
its outputs go to the querier.

Selections are ``where`` on comparisons, never products: a comparison is a Boolean share, and
selecting by it costs one oblivious transfer, whereas a product of two secrets would be a
homomorphic multiplication whose response may span several ciphertexts (see :func:`chunk_rows`).
Comparisons of order are with 0 only: they are the sign bit, which is exact for every int64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Protocol, cast

import numpy as np
import numpy.typing as npt

from ..errors import InputError, whole
from .layout import single_response, single_response_rows
from .sizes import check_flag, check_rows, check_size, count_table, label_table, weight_table

IntArray = npt.NDArray[np.int64]
Array = Any  # of numpy or jax.numpy
Shapes = dict[str, tuple[int, ...]]

QUERIER, PEER = "querier", "peer"
SIDES = (QUERIER, PEER)

# Cells of one program, for which the engine takes about 500 MB a side; a decision compares up to
# three times a cell, an allowance mostly selects.
_DECIDED, _SELECTED = 1 << 15, 1 << 17
_LOWEST = 1 << 62  # no party's surprises ever add up to this
_ROWS = 1024  # of an allowance: its running sums are a product with (rows, rows)


class Program(Protocol):
    """A public computation between a querier and a peer; see the three below."""

    @property
    def name(self) -> str:
        """The name :func:`program_of` knows it by."""

    def parameters(self) -> dict[str, Any]:
        """Return what is public about it, as JSON; ``program_of`` rebuilds it from that."""

    def inputs(self, side: str) -> Shapes:
        """Return the shapes of the inputs of "querier" or "peer"."""

    def outputs(self) -> Shapes:
        """Return the shapes of what the querier gets; the peer gets nothing."""

    def optional(self, side: str) -> frozenset[str]:
        """Return the inputs that a side may leave out: the carried value, or zeros."""

    def padded(self) -> Program:
        """Return the program with as many rows as the secure engine needs to run it safely."""

    def compute(self, xp: Any, values: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs for the joined inputs; ``xp`` is numpy or jax.numpy.

        A name that both sides have is a value in two parts, and ``values`` holds their sum.
        """


class _Public:
    """What the programs have in common: frozen dataclasses whose fields are public."""

    def parameters(self) -> dict[str, Any]:
        """Return the fields, tuples as lists."""
        return {one.name: _plain(getattr(self, one.name)) for one in fields(cast(Any, self))}

    def optional(self, side: str) -> frozenset[str]:
        """Return no names: everything must be given."""
        return frozenset()

    def padded(self) -> Any:
        """Return itself: any number of rows is safe."""
        return self


@dataclass(frozen=True, kw_only=True)
class BallotProgram(_Public):
    """A site's ballots on the querier's rows, hidden from both by the site's mask.

    Parameters
    ----------
    rows, features, labels
        Sizes; ``rows`` is at most :func:`chunk_rows`.
    hidden
        None for a linear model, or the units of its one hidden ReLU layer.
    weights
        None: a ballot cell is 0 or 1. Otherwise (labels + 1) integers: what a yes counts by the
        number of yeses of its ballot (tau voting).

    Notes
    -----
    Querier: x (rows, features). Peer: weights (features, labels) and bias (labels,), or with
    ``hidden`` weights1 (features, hidden), bias1, weights2 (hidden, labels), bias2; and mask
    (rows, labels), fresh and uniform. Output: share (rows, labels) = ballot - mask. A score of
    exactly 0 is a yes.
    """

    name: ClassVar[str] = "ballot"

    rows: int
    features: int
    labels: int
    hidden: int | None = None
    weights: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for size in ("rows", "features", "labels") + (() if self.hidden is None else ("hidden",)):
            check_size(size, getattr(self, size))
        most = chunk_rows(self.name, self.labels, hidden=self.hidden, features=self.features)
        if self.rows > most:
            raise InputError(
                "rows",
                f"must be at most {most} for {self.features} features, {self.labels} labels "
                f"and hidden={self.hidden}: a longer chunk would be answered in more than one "
                f"ciphertext, which leaks, got {self.rows}",
            )
        if self.weights is not None:
            object.__setattr__(self, "weights", weight_table("weights", self.weights, self.labels))

    def inputs(self, side: str) -> Shapes:
        """Return the shapes of a side's inputs."""
        if _side(side) == QUERIER:
            return {"x": (self.rows, self.features)}
        mask = {"mask": (self.rows, self.labels)}
        if self.hidden is None:
            return {"weights": (self.features, self.labels), "bias": (self.labels,), **mask}
        return {
            "weights1": (self.features, self.hidden),
            "bias1": (self.hidden,),
            "weights2": (self.hidden, self.labels),
            "bias2": (self.labels,),
            **mask,
        }

    def padded(self) -> BallotProgram:
        """Return the program the engine runs: as many rows as give one response ciphertext."""
        most = chunk_rows(self.name, self.labels, hidden=self.hidden, features=self.features)
        rows, step = self.rows, 1
        # Each look takes a while, and safe numbers may be hundreds apart: longer steps each time.
        while not all(single_response(rows, *product) for product in self._products()):
            rows, step = min(rows + step, most), 2 * step
        return replace(self, rows=rows)

    def _products(self) -> list[tuple[int, int]]:
        return _products(self.features, self.labels, self.hidden)

    def outputs(self) -> Shapes:
        """Return the shape of the querier's share."""
        return {"share": (self.rows, self.labels)}

    def compute(self, xp: Any, values: Mapping[str, Array]) -> dict[str, Array]:
        """Return the share: ballot - mask, modulo 2^64."""
        if self.hidden is None:
            score = values["x"] @ values["weights"] + values["bias"]
        else:
            inner = values["x"] @ values["weights1"] + values["bias1"]
            active = xp.where(inner >= 0, inner, 0)
            score = active @ values["weights2"] + values["bias2"]
        yes = score >= 0
        votes = xp.where(yes, 1, 0)
        if self.weights is None:
            return {"share": votes - values["mask"]}
        # By a comparison with every count: a look-up at a secret place is far slower.
        count = votes.sum(axis=1)
        table = np.array(self.weights, np.int64)
        places = np.arange(self.labels + 1, dtype=np.int64)
        weight = xp.where(count[:, None] == places, table, 0).sum(axis=1)
        return {"share": xp.where(yes, weight[:, None], 0) - values["mask"]}


@dataclass(frozen=True, kw_only=True)
class DecisionProgram(_Public):
    """The labels of a batch from sums of shares and masks, without an allowance.

    Notes
    -----
    Querier: share (rows, labels) = 2 x sum of its shares. Peer (the guardian), with R = 2 x sum of
    masks and a public offset: vote = R + offset + N, and if ``gated`` above = R + offset + N2 and
    below = N2 - R - offset. Output: label (rows, labels) in {1, 0, -1}. If ``shared``, share, R and
    offset are in steps of the noise, N and N2 are the guardian's halves, and vote, above and below
    are also inputs of the querier: its halves.
    """

    name: ClassVar[str] = "decision"

    rows: int
    labels: int
    gated: bool = False
    shared: bool = False

    def __post_init__(self) -> None:
        for size in ("rows", "labels"):
            check_size(size, getattr(self, size))
        for flag in ("gated", "shared"):
            check_flag(flag, getattr(self, flag))
        check_rows(self.rows, chunk_rows(self.name, self.labels))

    def inputs(self, side: str) -> Shapes:
        """Return the shapes of a side's inputs."""
        cells = (self.rows, self.labels)
        names = ("vote", "above", "below") if self.gated else ("vote",)
        noisy: Shapes = dict.fromkeys(names, cells)
        if _side(side) == QUERIER:
            return {"share": cells, **(noisy if self.shared else {})}
        return noisy

    def outputs(self) -> Shapes:
        """Return the shape of the labels."""
        return {"label": (self.rows, self.labels)}

    def compute(self, xp: Any, values: Mapping[str, Array]) -> dict[str, Array]:
        """Return 1 where the noisy margin is at least 0, -1 where the gate abstains."""
        share = values["share"]
        yes = share + values["vote"] >= 0
        if not self.gated:
            return {"label": xp.where(yes, 1, 0)}
        answered = (share + values["above"] >= 0) | (values["below"] - share >= 0)
        return {"label": _label(xp, yes, answered)}


@dataclass(frozen=True, kw_only=True)
class AllowanceProgram(_Public):
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
    no later, smaller ballot slips in. In a batch of several chunks
    the querier leaves ``left`` out of all but the first (it is the output of the chunk before),
    and the peer's ``left`` of a chunk is its ``fresh`` of the chunk before. The peer's part of
    ``base`` is zeros and may be left out: it is there to make the guess a share of both sides, so
    that comparing it gives a Boolean share.
    """

    name: ClassVar[str] = "allowance"

    rows: int
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
        for size in ("rows", "parties", "voters", "labels") + (("steps",) if self.steps else ()):
            check_size(size, getattr(self, size))
        if whole("grid", self.grid) > 1 << 40:
            raise InputError("grid", f"must be at most 2^40, got {self.grid}")
        for flag in ("gated", "by_ballot", "baseline"):
            check_flag(flag, getattr(self, flag))
        if self.parties > self.voters:
            raise InputError(
                "parties", f"must be at most `voters={self.voters}`, got {self.parties}"
            )
        if self.baseline and (self.by_ballot or self.grid != 1):
            raise InputError("baseline", "must be False for whole ballots and for a grid, got True")
        if self.has is not None:
            object.__setattr__(self, "has", label_table(self.has, self.parties, self.labels))
        if self.charged is not None:
            object.__setattr__(self, "charged", count_table(self.charged, self.parties))
        check_rows(self.rows, chunk_rows(self.name, self.labels, parties=self.parties))

    def inputs(self, side: str) -> Shapes:
        """Return the shapes of a side's inputs."""
        cells, ballots = (self.rows, self.labels), (self.rows, self.parties, self.labels)
        if _side(side) == QUERIER:
            base = {"base": cells} if self.baseline else {}
            if self.steps is not None:
                base |= dict.fromkeys(("vote", "gate") if self.gated else ("vote",), cells)
            return {"shares": ballots, "left": (self.parties,), **base}
        more = {"gate": cells} if self.gated else {}
        if self.baseline:
            more["base"] = cells
        each = (self.parties,)
        return {"masks": ballots, "left": each, "fresh": each, "vote": cells, **more}

    def optional(self, side: str) -> frozenset[str]:
        """Return ``left`` for the querier (carried), ``base`` for the peer (zeros)."""
        if _side(side) == QUERIER:
            return frozenset({"left"})
        return frozenset({"base"} if self.baseline else ())

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
            "label": self._decided(xp, margin, values),
            "left": left - counts.sum(axis=0) - values["fresh"],
        }

    def _decided(self, xp: Any, margin: Array, values: Mapping[str, Array]) -> Array:
        yes = margin + values["vote"] >= 0
        if not self.gated:
            return xp.where(yes, 1, 0)
        answered = (margin + values["gate"] >= 0) | (values["gate"] - margin >= 0)
        return _label(xp, yes, answered)


def _label(xp: Any, yes: Array, answered: Array) -> Array:
    """Return 1, 0, or -1 where not answered."""
    return xp.where(answered, xp.where(yes, 1, 0), -1)


PROGRAMS: dict[str, Any] = {
    kind.name: kind for kind in (BallotProgram, DecisionProgram, AllowanceProgram)
}


def program_of(name: str, parameters: Mapping[str, Any]) -> Program:
    """Rebuild a program from its name and its public parameters."""
    if name not in PROGRAMS:
        raise InputError("name", f"must be one of {', '.join(PROGRAMS)}", name)
    known = {field.name for field in fields(PROGRAMS[name])}
    strange = sorted(set(parameters) - known)
    if strange:
        raise InputError(f"parameters of {name} must be among {sorted(known)}, got {strange!r:.60}")
    given = {key: _frozen(value) for key, value in parameters.items()}
    try:
        program: Program = PROGRAMS[name](**given)
    except TypeError as error:
        raise InputError(f"parameters of {name} are not complete: {error}") from None
    return program


def chunk_rows(
    kind: str,
    labels: int,
    *,
    features: int | None = None,
    hidden: int | None = None,
    parties: int | None = None,
) -> int:
    """Return how many rows one program may have.

    Parameters
    ----------
    kind
        "ballot", "decision" or "allowance".
    labels, hidden, parties
        Sizes of the program.
    features
        Of a ballot: how long a row is. The engine lays a product out by all three of its sizes.

    Notes
    -----
    For ballots: the largest power of two for which the engine answers each product with a single
    ciphertext. With more of them it would use one encryption of zero several times, and their
    differences would tell the rows (see :mod:`privote.capc.layout`). For the others: what keeps
    memory bounded; they have no such product.
    """
    for name, size in (("labels", labels), ("features", features), ("parties", parties)):
        if size is not None:
            check_size(name, size)
    if kind == BallotProgram.name:
        if features is None:
            raise InputError("features", "must be given for the rows of a ballot, got None")
        return single_response_rows(tuple(_products(features, labels, hidden)))
    if kind == DecisionProgram.name:
        return max(1, _DECIDED // labels)
    if kind == AllowanceProgram.name:
        return max(1, min(_ROWS, _SELECTED // (labels * (parties or 1))))
    raise InputError("kind", f"must be one of {', '.join(PROGRAMS)}", kind)


def joined(
    program: Program, querier: Mapping[str, Array], peer: Mapping[str, Array]
) -> dict[str, Array]:
    """Return the values a program computes on: a name of both sides holds the sum of its parts."""
    both = {**querier, **peer}
    for name in set(program.inputs(QUERIER)) & set(program.inputs(PEER)):
        both[name] = querier[name] + peer[name]
    return both


def _products(features: int, labels: int, hidden: int | None) -> list[tuple[int, int]]:
    """Return (inner, outputs) of each matrix product of a ballot."""
    return [(features, labels)] if hidden is None else [(features, hidden), (hidden, labels)]


def _side(side: str) -> str:
    if side not in SIDES:
        raise InputError("side", "must be querier or peer", side)
    return side


def _plain(value: Any) -> Any:
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _frozen(value: Any) -> Any:
    return tuple(_frozen(one) for one in value) if isinstance(value, list) else value

"""What two parties compute together: the ballot, the decision and the allowance.

Each program is one definition that runs on numpy (in clear) and on jax.numpy (compiled for the
secure engine). Everything is int64 and wraps modulo 2^64, so both give the same bits. A program is
public: its sizes, tables and flags are known to both sides, its inputs to their owner alone, and
its outputs go to the querier.

Selections are ``where`` on comparisons, never products: a comparison is a Boolean share, and
selecting by it costs one oblivious transfer, whereas a product of two secrets would be a
homomorphic multiplication whose response may span several ciphertexts. Comparisons of order are
with 0 only: they are the sign bit, which is exact for every int64.

Ciphertexts: the engine (SPU 0.9.5, CHEETAH, 64-bit ring) computes a product (rows, inner) x
(inner, outputs) of two private matrices on polynomials of 8192 coefficients. It cuts the product
into blocks by a cost model of its own, and returns one or several ciphertexts. Several of them are
re-randomised with the *same* encryption of zero, so that whoever receives them can subtract it away
and learns of the other's matrix: only products answered with a single ciphertext may be run.
Keeping rows x outputs within one polynomial is not enough. Where the engine needs no packing it
plans the blocks again without, counts their responses as if they were packed, and may choose two:
so happens for 5 rows of 294 features and 6 labels. :func:`responses` follows its plan exactly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from ..errors import InputError, whole

IntArray = npt.NDArray[np.int64]
Array = Any  # of numpy or jax.numpy
Shapes = dict[str, tuple[int, ...]]

QUERIER, PEER = "querier", "peer"
SIDES = (QUERIER, PEER)

HEAVIEST = 1 << 40  # of what a yes counts, and of an allowance: sums stay within 64 bits


@dataclass(frozen=True, kw_only=True)
class Program(ABC):
    """A public computation between a querier and a peer; all its fields are public.

    Parameters
    ----------
    rows
        How many queries it takes.
    """

    name: ClassVar[str]
    #: What more rows than ``most_rows`` would do.
    beyond: ClassVar[str] = "would exhaust memory"

    rows: int

    def __post_init__(self) -> None:
        most = self.most_rows
        if whole("rows", self.rows) > most:
            rule = f"must be at most {most} for these sizes: more {self.beyond}"
            raise InputError("rows", rule, self.rows)

    @property
    @abstractmethod
    def most_rows(self) -> int:
        """How many rows one program of these sizes may have."""

    @abstractmethod
    def inputs(self, side: str) -> Shapes:
        """Return the shapes of the inputs of "querier" or "peer"."""

    @abstractmethod
    def outputs(self) -> Shapes:
        """Return the shapes of what the querier gets; the peer gets nothing."""

    @abstractmethod
    def compute(self, xp: Any, values: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs for the joined inputs; ``xp`` is numpy or jax.numpy."""

    def padded(self) -> Self:
        """Return the program with as many rows as the secure engine needs to run it safely."""
        return self

    def split(self, queries: int) -> list[Self]:
        """Return such programs for a batch of queries, one after the other."""
        full, rest = divmod(queries, self.most_rows)
        rows = [self.most_rows] * full + ([rest] if rest else [])
        return [replace(self, rows=each) for each in rows]

    def parameters(self) -> dict[str, Any]:
        """Return the fields; :func:`program_of` makes the program again from them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def joined(self, querier: Mapping[str, Array], peer: Mapping[str, Array]) -> dict[str, Array]:
        """Return the values to compute on: a name that both sides have is the sum of its parts."""
        both = {**querier, **peer}
        for name in set(self.inputs(QUERIER)) & set(self.inputs(PEER)):
            both[name] = querier[name] + peer[name]
        return both

    def in_clear(
        self, querier: Mapping[str, IntArray], peer: Mapping[str, IntArray]
    ) -> dict[str, IntArray]:
        """Return the outputs for the checked inputs of both sides, computed by numpy."""
        outputs = self.compute(np, self.joined(querier, peer))
        return {name: np.asarray(value, np.int64) for name, value in outputs.items()}

    def checked(
        self, side: str, given: Mapping[str, Any], carried: Mapping[str, IntArray] | None = None
    ) -> dict[str, IntArray]:
        """Return a side's inputs: exactly the wanted names, int64, of the wanted shapes.

        The engine itself would take anything. What is left out is taken from ``carried``, the
        querier's outputs of the program before.
        """
        wanted = self.inputs(side)
        strange = sorted(set(given) - set(wanted))
        if strange:
            rule = f"of {self.name} ({side}) must be {sorted(wanted)}"
            raise InputError("inputs", rule, strange)
        values = {}
        for name, shape in wanted.items():
            value = given.get(name, (carried or {}).get(name))
            what = f"input {name} of {self.name} ({side})"
            if value is None:
                raise InputError(f"{what} must be given, got nothing")
            if not isinstance(value, np.ndarray) or value.dtype != np.int64:
                kind = getattr(value, "dtype", type(value).__name__)
                raise InputError(f"{what} must be an array of int64, got {kind}")
            if value.shape != shape:
                raise InputError(f"{what} must have the shape {shape}, got {value.shape}")
            values[name] = np.ascontiguousarray(value).reshape(shape)
        return values

    def _put(self, name: str, size: int) -> None:
        """Check a table of so many whole numbers, and keep it as a tuple."""
        table = getattr(self, name)
        if table is None:
            return
        if len(table) != size:
            raise InputError(name, f"must be a table of {size}", table)
        object.__setattr__(self, name, tuple(whole(name, each, 0, HEAVIEST) for each in table))


SLOTS = 8192  # coefficients of one polynomial
_BANDWIDTH, _PACKING, _PRODUCT = 1000.0, 1.0, 0.1  # what the engine counts a ciphertext, ... for


@dataclass(frozen=True, kw_only=True)
class BallotProgram(Program):
    """A site's ballots on the querier's rows, hidden from both by the site's mask.

    Parameters
    ----------
    rows, features, labels
        Sizes; ``rows`` is at most ``most_rows``.
    weights
        None: a ballot cell is 0 or 1. Otherwise (labels + 1) integers: what a yes counts by the
        number of yeses of its ballot (tau voting).

    Notes
    -----
    Querier: x (rows, features). Peer: its linear model, weights (features, labels) and bias
    (labels,); and mask (rows, labels), fresh and uniform. Output: share (rows, labels) = ballot -
    mask. A score of exactly 0 is a yes.
    """

    name: ClassVar[str] = "ballot"
    beyond: ClassVar[str] = "would be answered in more than one ciphertext, which leaks"

    features: int
    labels: int
    weights: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._put("weights", self.labels + 1)

    @property
    def most_rows(self) -> int:
        """The largest power of two for which one ciphertext answers the product.

        With more of them the engine would use one encryption of zero several times, and their
        differences would tell the rows (see the head of this module).
        """
        return single_response_rows(self.features, self.labels)

    def inputs(self, side: str) -> Shapes:
        """Return the shapes of a side's inputs."""
        if side == QUERIER:
            return {"x": (self.rows, self.features)}
        return {
            "weights": (self.features, self.labels),
            "bias": (self.labels,),
            "mask": (self.rows, self.labels),
        }

    def padded(self) -> Self:
        """Return the program the engine runs: as many rows as give one response ciphertext."""
        most, rows, step = self.most_rows, self.rows, 1
        # Each look takes a while, and safe numbers may be hundreds apart: longer steps each time.
        while not single_response(rows, self.features, self.labels):
            rows, step = min(rows + step, most), 2 * step
        return replace(self, rows=rows)

    def outputs(self) -> Shapes:
        """Return the shape of the querier's share."""
        return {"share": (self.rows, self.labels)}

    def compute(self, xp: Any, values: Mapping[str, Array]) -> dict[str, Array]:
        """Return the share: ballot - mask, modulo 2^64."""
        yes = values["x"] @ values["weights"] + values["bias"] >= 0
        votes = xp.where(yes, 1, 0)
        if self.weights is None:
            return {"share": votes - values["mask"]}
        # By a comparison with every count: a look-up at a secret place is far slower.
        count = votes.sum(axis=1)
        table = np.array(self.weights, np.int64)
        places = np.arange(self.labels + 1, dtype=np.int64)
        weight = xp.where(count[:, None] == places, table, 0).sum(axis=1)
        return {"share": xp.where(yes, weight[:, None], 0) - values["mask"]}


@lru_cache(maxsize=4096)
def responses(rows: int, inner: int, outputs: int) -> int:
    """Return how many ciphertexts answer the product (rows, inner) x (inner, outputs)."""
    block = _block(rows, inner, outputs, packed=True)
    answers = _up(rows, block[0]) * _up(outputs, block[2])
    if answers > 1:
        # Packed by interleaving polynomials, or, if that is dearer, coefficient by coefficient.
        interleaved = block[1] < rows * outputs
        return _up(answers, block[1]) if interleaved else _up(rows * outputs, SLOTS)
    block = _block(rows, inner, outputs, packed=False)
    return _up(rows, block[0]) * _up(outputs, block[2])


def single_response(rows: int, inner: int, outputs: int) -> bool:
    """Say whether a product is safe to run: a single ciphertext answers it."""
    return rows * outputs <= SLOTS and responses(rows, inner, outputs) == 1


@lru_cache(maxsize=4096)
def single_response_rows(inner: int, outputs: int) -> int:
    """Return the largest power of two of rows that is safe for a product (inner, outputs)."""
    rows = 1 << (SLOTS // outputs).bit_length() >> 1
    while rows:
        if single_response(rows, inner, outputs):
            return rows
        rows //= 2
    raise InputError("labels", f"must fit one ciphertext ({SLOTS})", outputs)


def _block(rows: int, inner: int, outputs: int, *, packed: bool) -> tuple[int, int, int]:
    """Return the cheapest block (rows, inner, outputs) by the engine's own reckoning.

    Of equally cheap ones it takes the one it tries last: longer in rows, then in inner.
    """
    best, least = (0, 0, 0), np.inf
    for high in range(1, min(SLOTS, rows) + 1):
        most = min(inner, SLOTS // high)
        if packed:
            deep = 2 ** np.arange(most.bit_length(), dtype=np.int64)
        else:
            deep = np.arange(1, most + 1, dtype=np.int64)
        wide = np.minimum(outputs, SLOTS // high // deep)
        down, across, through = _up(rows, high), -(-outputs // wide), -(-inner // deep)
        ciphertexts = np.minimum(down, across) * through - (-(down * across) // deep)
        packing = _up(rows * outputs, SLOTS) * deep if packed else 0
        cost = ciphertexts * _BANDWIDTH + packing * _PACKING + down * across * through * _PRODUCT
        at = len(cost) - 1 - int(np.argmin(cost[::-1]))
        if cost[at] <= least:
            least, best = float(cost[at]), (high, int(deep[at]), int(wide[at]))
    return best


def _up(number: int, by: int) -> int:
    return -(-number // by)


# Cells of one program, for which the engine takes about 500 MB a side; a decision compares up to
# three times a cell, an allowance mostly selects.
_DECIDED, _SELECTED = 1 << 15, 1 << 17
_LOWEST = 1 << 62  # no party's contributions ever add up to this
_ROWS = 1024  # of an allowance: its running sums are a product with (rows, rows)


@dataclass(frozen=True, kw_only=True)
class DecisionProgram(Program):
    """The labels of a batch from sums of shares and masks, without an allowance.

    Notes
    -----
    Querier: shares (rows, labels) = 2 x sum of its shares. Peer (the guardian): masks (rows,
    labels) = 2 x sum of masks, less a public offset; vote = N (rows, labels), and gate = N2 if
    ``gated``; pad (rows, labels), fresh and uniform: its share of the outcome. Output: the
    querier's share (rows, labels) = label - pad, with label in {1, 0, -1}. If ``shared``, shares
    and masks are in steps of the noise, and vote and gate are inputs of both: the halves of each
    side.
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
        return {"masks": cells, "pad": cells, **noise}

    def outputs(self) -> Shapes:
        """Return the shape of the querier's share of the labels."""
        return {"share": (self.rows, self.labels)}

    def compute(self, xp: Any, values: Mapping[str, Array]) -> dict[str, Array]:
        """Return 1 where the noisy margin is at least 0, -1 where the gate abstains; less pad."""
        label = _decided(xp, values["shares"] + values["masks"], values, self.gated)
        return {"share": label - values["pad"]}


@dataclass(frozen=True, kw_only=True)
class AllowanceProgram(Program):
    """The labels of a batch where every party has an allowance of contributions.

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
        A ballot with any yes is one contribution (tau voting); else every departing vote is one.
    charged
        The whole allowance of each party, (parties,), public. Where the two parts of ``left`` add
        up to more, or to what no count can come to, the party counts as the baseline. None: not
        looked at.

    Notes
    -----
    Querier: shares (rows, parties, labels), left (parties,). Peer (the guardian): masks (rows,
    parties, labels), left (parties,), fresh (parties,), vote = N (rows, labels), and gate = N2 if
    ``gated``; pad (rows, labels), fresh and uniform: its share of the outcome. Output: share
    (rows, labels) = label - pad, and left (parties,) = what is left after the batch - fresh. The
    baseline is no on every label.

    A party's ballot counts as long as the running sum of its contributions, this ballot included,
    is within what it had left; from then on it counts as the baseline, for good: ``left`` is
    lowered by all its contributions, refused ones too, and stays negative in later chunks and
    batches, so that no later, smaller ballot slips in. In a batch of several chunks the querier
    leaves ``left`` out of all but the first (it is the output of the chunk before), and the peer's
    ``left`` of a chunk is its ``fresh`` of the chunk before.
    """

    name: ClassVar[str] = "allowance"

    parties: int
    voters: int
    labels: int
    gated: bool = False
    steps: int | None = None
    grid: int = 1
    by_ballot: bool = False
    charged: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("grid", self.grid, most=HEAVIEST)
        self._put("charged", self.parties)

    @property
    def most_rows(self) -> int:
        """What keeps memory bounded."""
        return max(1, min(_ROWS, _SELECTED // (self.labels * self.parties)))

    def inputs(self, side: str) -> Shapes:
        """Return the shapes of a side's inputs."""
        cells, ballots = (self.rows, self.labels), (self.rows, self.parties, self.labels)
        noise, each = _noise(cells, self.gated), (self.parties,)
        if side == QUERIER:
            return {"shares": ballots, "left": each, **(noise if self.steps else {})}
        return {"masks": ballots, "left": each, "fresh": each, "pad": cells, **noise}

    def outputs(self) -> Shapes:
        """Return the shapes of the querier's shares of the labels and of what is left."""
        return {"share": (self.rows, self.labels), "left": (self.parties,)}

    def compute(self, xp: Any, values: Mapping[str, Array]) -> dict[str, Array]:
        """Return the labels less ``pad``, and what is left less ``fresh``."""
        contributions = values["shares"] + values["masks"]
        counts = contributions.sum(axis=2)
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
        kept = xp.where(keep[:, :, None], contributions, 0)
        margin = 2 * kept.sum(axis=1) - self.voters * self.grid
        if self.steps is not None:
            margin = self.steps * margin
        return {
            "share": _decided(xp, margin, values, self.gated) - values["pad"],
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


PROGRAMS: dict[str, Any] = {
    kind.name: kind for kind in (BallotProgram, DecisionProgram, AllowanceProgram)
}


def program_of(name: str, parameters: Mapping[str, Any]) -> Program:
    """Make a program again from its name and its public parameters."""
    program: Program = PROGRAMS[name](**parameters)
    return program

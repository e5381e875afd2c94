"""Ballots: a checked cube of votes (queries, voters, labels), read in blocks.

A vote is 1, 0 or missing (-1). A cube that was made is a cube that was checked: mechanisms and
accountants never meet a NaN, a 2 or a missing axis. Cubes larger than memory stay where they are
(arrays in files, Zarr, Parquet) and come in blocks of a few megabytes.

A block is a run of consecutive queries in memory, which is all a mechanism ever counts. Dense
blocks hold every voter's ballot; sparse ones only the ballots of those who spoke.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Protocol, TypedDict, Unpack, runtime_checkable

import numpy as np
import numpy.typing as npt

from ..errors import BallotError, InputError, numbers, shown, whole
from .names import Names, check_names

MISSING = -1
Votes = npt.NDArray[np.bool_] | npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Counts = npt.NDArray[np.int64]
Margins = npt.NDArray[np.signedinteger[Any]]
Floats = npt.NDArray[np.float64]

Threshold = float | npt.ArrayLike | None

MOST = 10**12  # of queries, voters or labels: sums and squares of sizes stay exact
_BLOCK_CELLS = 1 << 23  # 8 MiB of one-byte votes: fits the cache's outskirts, bounds the memory
PIECE = 1 << 20  # votes that are looked at together: they stay in the cache
_FEW = 1 << 14  # votes whose order in memory does not matter


class StoredArray(ABC):
    """An array that stays where it is: rows are read when they are asked for.

    ``dtype`` is the type of its values; a slice may hold them in a wider one.
    """

    def __init__(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        self.name, self.shape, self.dtype = name, shape, np.dtype(dtype)
        self.ndim, self.size = len(shape), math.prod(shape)

    @abstractmethod
    def __getitem__(self, rows: slice) -> npt.NDArray[Any]:
        """Return consecutive rows."""

    def check(self) -> None:
        """Refuse an array that is damaged or incomplete; its values are checked elsewhere."""
        return None


Cells = npt.NDArray[Any] | StoredArray


class Reading(TypedDict, total=False):
    """How votes are read, where they do not come as ballots.

    Attributes
    ----------
    threshold
        One value, or one per label: a probability at or above it is a yes.
    soft
        Whether votes are probabilities. By default an array's floats are: the type decides, never
        the votes. A list has no type of its own, nor has a column of a table.
    resolution
        Where votes are probabilities and there is no threshold: they are rounded to multiples of
        1/resolution; -1 is missing. With 1 they are refused.
    queries_from, voters_from
        Public lists of all queries and voters, of a table in which ballots may be missing.
    """

    threshold: Threshold
    soft: bool | None
    resolution: int
    queries_from: Any
    voters_from: Any


@runtime_checkable
class BallotSource(Protocol):
    """Anything that yields blocks: :class:`Ballots`, :class:`SparseBallots`, or a class of yours.

    A class that extends this one needs sizes, :meth:`blocks` and :meth:`head`; the rest has a
    default. Where blocks end may follow from the three sizes only: a block leaves traces.

    Attributes
    ----------
    queries, voters, labels
        How many there are.
    missing
        Whether a vote can be missing.
    sparse
        Whether blocks hold only the ballots of those who spoke.
    resolution
        Above 1, a vote is an integer from 0 to ``resolution``, or missing.
    active_share
        The share of the voters that is expected to speak on a query, one for all labels or
        (labels,); None where all do, or where nobody knows.
    query_names, voter_names, label_names
        Names in order, or None. Those of queries and labels are public; those of voters are never
        released.
    """

    queries: int
    voters: int
    labels: int
    missing: bool = True
    sparse: bool = False
    resolution: int = 1
    active_share: npt.ArrayLike | None = None
    query_names: tuple[str, ...] | None = None
    voter_names: Sequence[Any] | None = None
    label_names: tuple[str, ...] | None = None

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """Yield consecutive queries, block by block."""

    @abstractmethod
    def head(self, queries: int) -> BallotSource:
        """Return the first ``queries`` queries."""

    def check(self) -> None:
        """Read and validate every vote, in a pass of its own, before anything is charged.

        Does nothing for votes that were checked when the ballots were made. After it, reading can
        fail only because a file or a connection does.
        """
        return None


class Ballots(BallotSource):
    """A dense, checked cube of votes (queries, voters, labels).

    Make one with :meth:`of`, :meth:`from_array`, :meth:`from_packed` or
    :func:`privote.votes.arrays.read`; the constructor is for sources that check by themselves:
    ``rows(start, stop)`` returns their votes, ``check()`` refuses wrong ones and is called once,
    before the first block.

    Examples
    --------
    >>> import numpy as np, privote as pv
    >>> pv.Ballots.of(np.zeros((10, 50, 4), bool))
    Ballots(10 queries, 50 voters, 4 labels)
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        rows: Callable[[int, int], Votes],
        *,
        missing: bool,
        resolution: int = 1,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.queries, self.voters, self.labels = check_shape(shape)
        self.missing, self.resolution, self._rows = bool(missing), resolution, rows
        self._check = cache(check)  # once, for all copies of this

    def __repr__(self) -> str:
        kind = ", some missing" if self.missing else ""
        return f"Ballots({self.queries} queries, {self.voters} voters, {self.labels} labels{kind})"

    @property
    def shape(self) -> tuple[int, int, int]:
        """(queries, voters, labels)."""
        return self.queries, self.voters, self.labels

    def named(
        self,
        queries: Names = None,
        voters: Names = None,
        labels: Names = None,
        where: str = "votes",
    ) -> Ballots:
        """Return the same ballots under these names; ``where`` they come from."""
        same = copy.copy(self)
        same.query_names = check_names(queries, self.queries, "query", where)
        same.voter_names = check_names(voters, self.voters, "voter", where)
        same.label_names = check_names(labels, self.labels, "label", where)
        return same

    @classmethod
    def of(cls, votes: Any, **reading: Unpack[Reading]) -> BallotSource:
        """Return ``votes`` as checked ballots, whatever they came as.

        Ballots pass through; arrays, data frames and mappings of columns are checked; a path or URL
        is read (:func:`privote.votes.arrays.read`). The options are those of :class:`Reading`.
        """
        if isinstance(votes, np.ndarray):
            return cls.from_array(votes, **reading)
        from .arrays import read
        from .tables import is_frame, is_path, of_table, open_table

        if is_path(votes):
            return read(votes, **reading)
        if is_frame(votes) or isinstance(votes, Mapping):
            return of_table(open_table(votes, "votes"), **reading)
        if not isinstance(votes, BallotSource):
            return cls.from_array(votes, **reading)
        for argument in ("threshold", "queries_from", "voters_from"):
            if reading.get(argument) is not None:
                raise InputError(argument, "applies to arrays and files, not to ballots")
        return votes

    @classmethod
    def from_array(cls, votes: npt.ArrayLike | StoredArray, **reading: Unpack[Reading]) -> Ballots:
        """Check an array (queries, voters, labels) of 0, 1, -1 or bool, or of probabilities.

        The type decides whether a vote may be missing, never the votes: bool and unsigned arrays
        cannot hold a missing vote; signed ones, floats (NaN) and lists (None) can.
        """
        for argument in ("queries_from", "voters_from"):
            if reading.get(argument) is not None:
                raise InputError(argument, "applies to tables: an array has all queries and voters")
        array, dtype = _array("votes", votes), getattr(votes, "dtype", None)
        shape, typed = check_shape(array.shape), dtype is not None and dtype.kind != "O"
        threshold, soft = reading.get("threshold"), reading.get("soft")
        if soft is None:
            soft = typed and array.dtype.kind == "f"
        bar = None if threshold is None else check_threshold(threshold, shape[2])
        resolution = reading.get("resolution", 1) if soft and bar is None else 1
        missing = resolution > 1 or not typed or array.dtype.kind in "if"
        probable = bar is not None or resolution > 1
        ballots = cls(
            shape,
            lambda start, stop: as_votes(array[start:stop], missing, bar, resolution),
            missing=missing,
            resolution=resolution,
            check=partial(check_votes, array, probable=probable, or_missing=missing),
        )
        if not isinstance(array, StoredArray):
            ballots.check()
        return ballots

    @classmethod
    def from_packed(cls, bits: Bytes | StoredArray, shape: npt.ArrayLike) -> Ballots:
        """Take bits packed by ``np.packbits(votes)`` (whole cube, C order) and their shape."""
        sizes, bits = _array("shape", shape), _array("votes", bits)
        if sizes.shape != (3,) or sizes.dtype.kind not in "iu":
            raise BallotError(f"shape of packed votes must be 3 integers, got {shown(shape)}")
        queries, voters, labels = (int(size) for size in sizes)
        check_shape((queries, voters, labels))
        need = -(-queries * voters * labels // 8)
        if bits.dtype != np.uint8 or bits.ndim != 1 or bits.size != need:
            rule = f"packed votes must be {need} bytes (uint8) for shape {tuple(sizes.tolist())}"
            raise BallotError(f"{rule}, got {bits.dtype} of shape {bits.shape}")
        ballot = voters * labels

        def rows(start: int, stop: int) -> Votes:
            first, last = start * ballot, stop * ballot
            packed = bits[first // 8 : -(-last // 8)]
            if ballot % 8 == 0 and stop - start >= labels:
                return unpacked(packed.reshape(stop - start, -1), voters, labels)
            flat, skip = np.unpackbits(packed), first % 8
            return flat[skip : skip + last - first].view(np.bool_).reshape(-1, voters, labels)

        check = bits.check if isinstance(bits, StoredArray) else lambda: None
        return cls((queries, voters, labels), rows, missing=False, check=check)

    def check(self) -> None:
        """Read and validate every vote that stays in a file, once."""
        self._check()

    def blocks(self) -> Iterator[DenseBlock]:
        """Yield the cube in blocks of consecutive queries; all votes are checked before."""
        self.check()
        step = block_queries(self.voters, self.labels)
        for start in range(0, self.queries, step):
            stop = min(start + step, self.queries)
            yield DenseBlock(self._rows(start, stop), self.missing, start)

    def head(self, queries: int) -> Ballots:
        """Return the first ``queries`` queries."""
        first = copy.copy(self)
        first.queries = whole("queries", queries, 1, self.queries)
        if self.query_names is not None:
            first.query_names = self.query_names[: first.queries]
        return first

    def to_array(self) -> Votes:
        """Return the whole cube as one array: bool, or int8 where votes are missing."""
        return np.concatenate([block.votes for block in self.blocks()])

    def clip(self, max_positives: int) -> Ballots:
        """Return ballots with at most ``max_positives`` ones each: the first ones are kept.

        A rule that looks at one ballot only, so it costs nothing; order the labels so that the
        ones to keep come first.
        """
        whole("max_positives", max_positives, 0)

        def rows(start: int, stop: int) -> Votes:
            votes = self._rows(start, stop)
            surplus = (votes == 1) & (np.cumsum(votes == 1, axis=2) > max_positives)
            return np.where(surplus, np.zeros((), votes.dtype), votes)

        clipped = copy.copy(self)
        clipped._rows = rows
        return clipped


class SparseBallots(BallotSource):
    """Ballots of many voters, of whom only a few vote on each query.

    Parameters
    ----------
    query, voter
        (ballots,): the query and the voter of each ballot cast; at most one ballot per pair.
    votes
        (ballots, labels): bool.
    queries, voters
        Total numbers, silent voters included.

    Examples
    --------
    >>> import numpy as np, privote as pv
    >>> votes = np.array([[True, False]])
    >>> pv.SparseBallots([0], [7], votes, queries=10, voters=50)
    SparseBallots(10 queries, 50 voters, 2 labels)
    """

    sparse = True

    def __init__(
        self,
        query: npt.ArrayLike,
        voter: npt.ArrayLike,
        votes: npt.ArrayLike,
        *,
        queries: int,
        voters: int,
    ) -> None:
        ballots = _array("votes", votes)
        if ballots.ndim != 2:
            raise BallotError("votes", f"must have 2 axes (ballots, labels), got {ballots.ndim}")
        check_shape((queries, voters, ballots.shape[1]))
        check_votes(ballots[None], probable=False, or_missing=False)  # silent voters are left out
        places = []
        for name, values, size in (("query", query, queries), ("voter", voter, voters)):
            place = _array(name, values)
            if place.shape != ballots.shape[:1] or place.dtype.kind not in "iu":
                raise BallotError(name, f"must be integers, one per ballot, got {place.dtype}")
            outside = place[(place < 0) | (place >= size)]
            if outside.size:
                sealed = f"it is {outside[0]}"
                raise BallotError(name, f"must be from 0 to {size - 1}", sealed=sealed)
            places.append(place.astype(np.int64))
        order = np.lexsort((places[1], places[0]))
        self._query, self._voter = places[0][order], places[1][order]
        self._votes = ballots.astype(np.bool_)[order]
        same = (np.diff(self._query) == 0) & (np.diff(self._voter) == 0)
        if same.any():
            at = int(np.flatnonzero(same)[0])
            sealed = f"it is voter {self._voter[at]} on query {self._query[at]}"
            raise BallotError("a voter casts more than one ballot on a query", sealed=sealed)
        self.queries, self.voters, self.labels = int(queries), int(voters), ballots.shape[1]

    def __repr__(self) -> str:
        return f"SparseBallots({self.queries} queries, {self.voters} voters, {self.labels} labels)"

    def blocks(self) -> Iterator[SparseBlock]:
        """Yield the ballots in blocks of consecutive queries."""
        # By public sizes only: how many speak is private, and blocks leave traces in a ledger.
        step = max(1, _BLOCK_CELLS // (self.labels * 128))
        for start in range(0, self.queries, step):
            stop = min(start + step, self.queries)
            low, high = np.searchsorted(self._query, [start, stop])
            yield SparseBlock(
                self._query[low:high] - start,
                self._voter[low:high],
                self._votes[low:high],
                queries=stop - start,
                voters=self.voters,
                start=start,
            )

    def head(self, queries: int) -> SparseBallots:
        """Return the first ``queries`` queries."""
        first = copy.copy(self)
        first.queries = whole("queries", queries, 1, self.queries)
        return first


def _array(name: str, values: Any) -> Any:
    """Return values as an array; refuse what is ragged, and masks, which would be lost.

    None in a list, or in an array of objects, becomes NaN.
    """
    if isinstance(values, StoredArray):
        return values
    with suppress(ValueError):  # of a ragged list
        array = np.asarray(values)
        if array.dtype.kind != "O" and not isinstance(values, np.ma.MaskedArray):
            return array
    return numbers(name, values, BallotError)


def block_queries(voters: int, labels: int) -> int:
    """Return how many queries of a dense cube come in one block: by public sizes only."""
    cells = max(1, voters * labels)
    # Eight queries end on a whole byte of packed votes. Where their tallies alone would fill a
    # block one comes by itself, if its votes are whole bytes.
    fewest = 1 if 8 * labels >= _BLOCK_CELLS and cells % 8 == 0 else 8
    return max(fewest, _BLOCK_CELLS // cells // 8 * 8)


def as_votes(
    slab: npt.NDArray[Any], missing: bool, bar: Floats | None = None, resolution: int = 1
) -> Votes:
    """Return checked votes or probabilities in the type in which they are counted: a copy."""
    if resolution > 1:
        values = np.rint(resolution * slab.astype(np.float64))
        return np.where(values >= 0, values, MISSING).astype(np.int8)
    if bar is not None or slab.dtype.kind == "f":
        cast: Bools = slab >= bar if bar is not None else slab == 1
        return np.where(slab >= 0, cast, MISSING).astype(np.int8) if missing else cast
    # A bool from outside may hide any byte: bytes are what was checked, and what is added up.
    return slab.astype(np.int8) if missing else slab.astype(np.bool_)


def check_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the sizes of a cube; refuse one that lacks an axis, or has nothing on one."""
    if not isinstance(shape, tuple) or len(shape) != 3:
        raise BallotError("votes", f"must have 3 axes (queries, voters, labels), got {shape}")
    queries, voters, labels = shape
    return (
        whole("queries", queries, 1, MOST),
        whole("voters", voters, 1, MOST),
        whole("labels", labels, 1, MOST),
    )


def check_threshold(threshold: Threshold, labels: int) -> Floats:
    """Return a threshold in [0, 1], or one per label, ready to broadcast."""
    bar = numbers("threshold", [] if threshold is None else threshold)
    if bar.shape not in ((), (labels,)):
        rule = f"must be one value or one per label ({labels}), got shape {bar.shape}"
        raise InputError("threshold", rule)
    if not ((bar >= 0) & (bar <= 1)).all():
        raise InputError("threshold", f"must lie in [0, 1], got {bar.tolist()}")
    return bar


def check_votes(array: Cells, *, probable: bool, or_missing: bool) -> None:
    """Refuse anything but 0 and 1, or probabilities, and -1 or NaN, by the first such vote."""
    if array.dtype.kind not in "fiub":
        raise BallotError("votes", f"must be bool or numbers, got dtype {array.dtype}")
    step = block_queries(*array.shape[1:])
    for start in range(0, array.shape[0], step):
        slab = array[start : start + step]
        # A bool from outside may hide any byte, and bytes are what is added up.
        slab = slab.view(np.uint8) if slab.dtype == np.bool_ else slab
        good = (slab >= 0) & (slab <= 1) if probable else (slab == 0) | (slab == 1)
        if or_missing:
            good |= slab == MISSING
            good |= np.isnan(slab) if slab.dtype.kind == "f" else False
        if good.all():
            continue
        rule = "must be a probability in [0, 1]" if probable else "must be 0, 1"
        rule += f" or missing ({MISSING})" * or_missing
        if slab.dtype.kind == "f" and not probable:
            rule += "; give `threshold` or `soft` if these are probabilities"
        query, voter, label = np.argwhere(~good)[0].tolist()
        where = f"votes[query {start + query}, voter {voter}, label {label}]"
        raise BallotError(where, rule, sealed=f"it is {slab[query, voter, label]}")
    if isinstance(array, StoredArray):
        array.check()


# -- blocks ----------------------------------------------------------------------------------------


def unpacked(rows: Bytes, voters: int, labels: int) -> Bools:
    """Return packed votes (queries, bytes) as (queries, voters, labels), queries last in memory."""
    columns = np.ascontiguousarray(rows.T)  # of bits still, an eighth of the size
    cells = np.empty((len(columns), 8, len(rows)), np.bool_)
    for bit in range(8):
        np.not_equal(columns & np.uint8(128 >> bit), 0, out=cells[:, bit])
    flat = cells.reshape(-1, len(rows))[: voters * labels]
    return flat.reshape(voters, labels, -1).transpose(2, 0, 1)


def queries_last(votes: Votes) -> Votes:
    """Return the same votes, in an order in memory in which they are added up in long rows.

    A sum over 20 labels, or over the voters of 20 labels, is otherwise a loop of its own for each
    query.
    """
    few = len(votes) < votes.shape[2] or votes.size <= _FEW
    if few or votes.strides[0] == votes.itemsize:
        return votes
    if votes.dtype == np.bool_:  # packed, they are moved in an eighth of the bytes
        return unpacked(np.packbits(votes.reshape(len(votes), -1), axis=1), *votes.shape[1:])
    last: npt.NDArray[np.int8] = np.ascontiguousarray(votes.transpose(1, 2, 0))
    return last.transpose(2, 0, 1)


@dataclass(frozen=True)
class DenseBlock:
    """Every voter's ballot on every query of the block: ``votes`` (queries, voters, labels)."""

    votes: Votes
    missing: bool
    start: int = 0
    yes: Bools = field(init=False, repr=False)

    def __post_init__(self) -> None:
        votes = queries_last(self.votes)
        object.__setattr__(self, "votes", votes)
        object.__setattr__(self, "yes", votes if votes.dtype == np.bool_ else votes == 1)

    @property
    def queries(self) -> int:
        """Queries of this block."""
        return self.votes.shape[0]

    @property
    def voters(self) -> int:
        """Registered voters, whether they spoke or not."""
        return self.votes.shape[1]

    @property
    def labels(self) -> int:
        """Labels of every ballot."""
        return self.votes.shape[2]

    def margins(self, *, missing_is_no: bool) -> Margins:
        """Return yes minus no (queries, labels); a missing vote is neither, or a no."""
        yes = count(self.yes, axis=1).astype(np.min_scalar_type(-2 * self.voters - 1))
        if self.missing and not missing_is_no:
            return np.asarray(yes - count(self.votes == 0, axis=1).astype(yes.dtype))
        return 2 * yes - self.voters

    def weighted(self, weights: Floats) -> Floats:
        """Return the tally (queries, labels) where a ballot with s ones has weight[s] a vote.

        Ballots of one size are counted before they are weighted, and sizes are added in order:
        whoever cast which, the sum is the same to the last bit.
        """
        tally = np.zeros((self.queries, self.labels))
        step = max(1, PIECE // (self.voters * self.labels))
        for start in range(0, self.queries, step):
            part = self.yes[start : start + step]
            sizes = count(part, axis=2)
            order = np.argsort(sizes, axis=1, kind="stable")
            sizes = np.take_along_axis(sizes, order, axis=1)
            first = np.diff(sizes, axis=1, prepend=sizes[:, :1] + 1) != 0  # of its size
            begins = np.flatnonzero(first)
            cells = part[np.arange(len(part))[:, None], order].reshape(-1, self.labels)
            counts = np.add.reduceat(cells.view(np.uint8), begins, axis=0, dtype=np.int64)
            worth = weights[sizes.reshape(-1)[begins], None] * counts
            np.add.at(tally, start + begins // self.voters, worth)
        return tally

    def speakers(self) -> tuple[Counts, Counts, Bools]:
        """Return (query, voter, yes-ballot) of every ballot that is not missing as a whole."""
        if self.missing:
            query, voter = np.nonzero((self.votes != MISSING).any(axis=2))
            return query, voter, self.votes[query, voter] == 1
        query = np.repeat(np.arange(self.queries), self.voters)
        voter = np.tile(np.arange(self.voters), self.queries)
        return query, voter, self.yes.reshape(-1, self.labels)


@dataclass(frozen=True)
class SparseBlock:
    """Few of many voters speak: row i is voter ``voter[i]``'s ballot on query ``query[i]``.

    A silent voter casts no vote: zero everywhere for Binary and Tau, no class for Powerset and
    Plurality.
    """

    query: Counts
    voter: Counts
    votes: npt.NDArray[np.bool_]
    queries: int
    voters: int
    start: int = 0
    missing: bool = True

    @property
    def labels(self) -> int:
        """Labels of every ballot."""
        return self.votes.shape[1]

    def margins(self, *, missing_is_no: bool) -> Margins:
        """Return 2 yes - voters (queries, labels): who is silent has not said yes."""
        del missing_is_no
        return 2 * self._sum(None).astype(np.min_scalar_type(-2 * self.voters - 1)) - self.voters

    def weighted(self, weights: Floats) -> Floats:
        """Return the tally (queries, labels) where a ballot with s ones has weight[s] a vote."""
        return self._sum(weights[self.votes.sum(axis=1)]).astype(np.float64)

    def _sum(self, weights: Floats | None) -> npt.NDArray[Any]:
        """Add up what ballots say; few say yes, so only the yes-votes are visited."""
        row, label = np.nonzero(self.votes)
        cell = self.query[row] * self.labels + label
        worth = None if weights is None else weights[row]
        tally = np.bincount(cell, weights=worth, minlength=self.queries * self.labels)
        return tally.reshape(self.queries, self.labels)

    def speakers(self) -> tuple[Counts, Counts, npt.NDArray[np.bool_]]:
        """Return (query, voter, yes-ballot) of every ballot cast."""
        return self.query, self.voter, self.votes


#: A run of consecutive queries: what a mechanism may ask of the ballots.
Block = DenseBlock | SparseBlock


def count(cells: Bools, axis: int) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Return how many cells along an axis are true; numpy adds fastest in the narrowest type."""
    narrow = np.min_scalar_type(cells.shape[axis])
    return np.asarray(np.add.reduce(cells.view(np.uint8), axis=axis, dtype=narrow))

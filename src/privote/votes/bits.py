"""Bits: votes eight to a byte, counted and refused without unpacking them.

Votes of a query lie one after the other, voter by voter, so a label has the same place in a byte
every few voters: those make a *period*. Turned on its side, a table of bytes has the same byte of
all queries in a row, and a bitwise operation on a row is one on eight cells of every query.
Yes-votes are then added up as full adders of hardware do it, a bit of the sum at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]

_ONES = np.array([byte.bit_count() for byte in range(256)], np.uint8)
_LANE = 8  # queries are padded to whole 64-bit words
_BLOCK = 1 << 20  # bytes of a block that is not large for its few queries
_PIECE = 1 << 19  # votes that are weighed at a time: unpacked, they stay in the cache
_PLACES = 512  # ballots of a query that are weighed one by one rather than sorted into sizes
_SPAN = 1 << 15  # bytes of a row that are added up at a time: sums stay in the cache


@dataclass(frozen=True)
class Period:
    """Where votes lie in the bytes of the few voters after which a label is in its place again.

    Attributes
    ----------
    voters, bytes
        How many of them.
    masks
        (voters, bytes) which bits are whose.
    """

    voters: int
    bytes: int
    masks: Bytes

    def span(self, voter: int) -> slice:
        """Return the bytes in which a voter of the period has votes."""
        labels = 8 * self.bytes // self.voters
        return slice(voter * labels // 8, -(-(voter + 1) * labels // 8))


@lru_cache(maxsize=64)
def period_of(labels: int) -> Period:
    """Return the period of ballots with so many labels."""
    voters = 8 // math.gcd(labels, 8)
    whose = np.repeat(np.eye(voters, dtype=np.bool_), labels, axis=1)
    masks = np.packbits(whose, axis=1)
    masks.setflags(write=False)
    return Period(voters, masks.shape[1], masks)


@dataclass(frozen=True, eq=False, repr=False)
class Bits:
    """Yes-votes of a run of queries, on their side.

    Attributes
    ----------
    columns
        (periods, bytes of a period, queries, up to a multiple of 8 if there are several) Cells that
        do not exist are 0.
    queries, voters, labels
        How many there are.
    """

    columns: Bytes
    queries: int
    voters: int
    labels: int

    @classmethod
    def of_rows(cls, rows: Bytes, voters: int, labels: int) -> Bits:
        """Take the votes of each query in bytes of its own, first bit first: (queries, bytes)."""
        period, (queries, held) = period_of(labels), rows.shape
        groups = -(-voters // period.voters)
        # A lone query has rows long enough without.
        wide, long = (
            groups * period.bytes,
            queries if queries == 1 else -(-queries // _LANE) * _LANE,
        )
        columns = np.empty((wide, long), np.uint8)
        columns[:held, :queries] = rows.T
        columns[held:] = 0
        columns[:, queries:] = 0
        return cls(columns.reshape(groups, period.bytes, long), queries, voters, labels)

    @classmethod
    def of_votes(cls, votes: npt.NDArray[np.bool_]) -> Bits:
        """Take votes (queries, voters, labels)."""
        queries, voters, labels = votes.shape
        return cls.of_rows(np.packbits(votes.reshape(queries, -1), axis=1), voters, labels)

    def votes(self) -> npt.NDArray[np.bool_]:
        """Return the votes (queries, voters, labels)."""
        return self._unpacked(self._rows)

    def _unpacked(self, rows: Bytes) -> npt.NDArray[np.bool_]:
        flat = np.unpackbits(rows, axis=1, count=self.voters * self.labels).view(np.bool_)
        return flat.reshape(len(rows), self.voters, self.labels)

    @property
    def _rows(self) -> Bytes:
        """The votes of each query in bytes of its own: (queries, bytes)."""
        groups, high, wide = self.columns.shape
        return np.ascontiguousarray(self.columns.reshape(groups * high, wide)[:, : self.queries].T)

    @cached_property
    def _period(self) -> Period:
        return period_of(self.labels)

    def against(self, baseline: npt.NDArray[np.bool_]) -> Bits:
        """Return where votes depart from a baseline (queries, labels): 1 there, 0 elsewhere."""
        if not baseline.any():
            return self
        one = np.packbits(np.tile(baseline, (1, self._period.voters)), axis=1)
        guess = np.zeros(self.columns.shape[1:], np.uint8)
        guess[:, : self.queries] = one.T
        other = replace(self, columns=self.columns ^ guess)
        return other.only(np.ones(self.voters, np.bool_))

    def only(self, voters: npt.NDArray[np.bool_]) -> Bits:
        """Return the votes of some of the voters (voters,), and 0 for the others."""
        seats = np.zeros((len(self.columns), self._period.voters), np.bool_)
        seats.reshape(-1)[: self.voters] = voters
        kept = np.zeros(self.columns.shape[:2], np.uint8)
        for place, mask in enumerate(self._period.masks):
            kept |= np.where(seats[:, place, None], mask, np.uint8(0))
        return replace(self, columns=self.columns & kept[:, :, None])

    def until(self, ends: Mapping[int, int]) -> Bits:
        """Return the votes without those that some voters cast from a query on, by voter."""
        columns = self.columns.copy() if ends else self.columns
        for voter, query in ends.items():
            at, place = divmod(voter, self._period.voters)
            span, mask = self._period.span(place), self._period.masks[place]
            columns[at, span, query:] &= ~mask[span, None]
        return replace(self, columns=columns)

    # -- sums --------------------------------------------------------------------------------------

    def yes(self) -> npt.NDArray[np.unsignedinteger[Any]]:
        """Return how many voters say yes to each label of each query (queries, labels)."""
        width: Any = np.uint8 if self.voters < 256 else np.uint32
        if not self.columns.any():  # as where everybody has run out
            return np.zeros((self.queries, self.labels), width)
        rows, seats = self._beside()
        high, counts = len(rows[0]), np.empty((self.queries, self.labels), width)
        step = max(_LANE, _SPAN // high // _LANE * _LANE)
        across = max(1, _SPAN // step)
        for start in range(0, self.queries, step):
            stop = min(start + step, self.queries)
            places = range(0, high, across)
            parts = (
                _numbers(_added_up([row[at : at + across, start:stop] for row in rows]), width)
                for at in places
            )
            if len(places) == 1:
                flat = next(parts)
            else:
                one = seats == 1  # then its sum is the count
                flat = counts[start:stop] if one else np.empty((stop - start, 8 * high), width)
                for at, part in zip(places, parts, strict=True):
                    flat[:, 8 * at : 8 * (at + across)] = part
            # Each voter of a row has a sum of its own: the latter half is added to the former.
            by_seat, left = flat.reshape(stop - start, seats, self.labels), seats
            while left > 1:
                by_seat[:, : left // 2] += by_seat[:, left - left // 2 : left]
                left -= left // 2
            counts[start:stop] = by_seat[:, 0]
        return counts

    def _beside(self) -> tuple[list[Bytes], int]:
        """Return rows to add up, each (bytes, queries), and how many voters one has.

        Rows of few queries are short, and an operation on a short row is little but its start: so
        periods stand side by side in a row where there are many.
        """
        groups, high, wide = self.columns.shape
        beside = max(1, min(groups // _LANE, _SPAN // (high * wide)))
        whole = groups // beside
        level = list(self.columns[: whole * beside].reshape(whole, beside * high, wide))
        if beside * whole < groups:
            rest = np.zeros((beside * high, wide), np.uint8)
            last = self.columns[whole * beside :]
            rest[: len(last) * high] = last.reshape(-1, wide)
            level.append(rest)
        return level, beside * self._period.voters

    def weighted(self, weights: Floats) -> Floats:
        """Return the sum of ballots (queries, labels), where one with s ones counts weights[s]."""
        tally = np.zeros((self.queries, self.labels))
        if not (self.queries and self.voters):
            return tally
        ballots = self._ballots()
        step = max(1, _PIECE // (self.voters * self.labels))
        add = _by_place if self.voters <= min(self.labels, _PLACES) else _by_size
        for start in range(0, self.queries, step):
            at = slice(start, start + step)
            add(ballots[at], weights, tally[at])
        return tally

    def _ballots(self) -> Bytes:
        """Return the votes of each ballot in bytes of its own: (queries, voters, bytes)."""
        rows, labels = self._rows, self.labels
        if self._period.voters == 1:
            return rows.reshape(self.queries, self.voters, labels // 8)
        ballots = np.empty((self.queries, self.voters, -(-labels // 8)), np.uint8)
        step = max(1, _PIECE // (self.voters * labels))
        for start in range(0, self.queries, step):
            at = slice(start, start + step)
            ballots[at] = np.packbits(self._unpacked(rows[at]), axis=2)
        return ballots

    def totals(self) -> Counts:
        """Return how many yes-votes each voter casts in all (voters,)."""
        return self._by_voter(lambda own: _ones(own).sum(axis=(1, 2), dtype=np.int64))

    def speaking(self) -> Counts:
        """Return on how many queries each voter says yes to anything (voters,)."""

        def spoken(own: Bytes) -> Counts:
            said = np.bitwise_or.reduce(own, axis=1) != 0
            return np.asarray(_ones(said.view(np.uint8)).sum(axis=1, dtype=np.int64))

        return self._by_voter(spoken)

    def sizes_of(self, voter: int) -> Counts:
        """Return how many yes-votes each ballot of a voter has (queries,)."""
        at, place = divmod(voter, self._period.voters)
        span, mask = self._period.span(place), self._period.masks[place]
        own = self.columns[at, span, : self.queries] & mask[span, None]
        return np.asarray(np.take(_ONES, own).sum(axis=0, dtype=np.int64))

    def _by_voter(self, sums: Callable[[Bytes], Counts]) -> Counts:
        """Return sums over the bytes of each voter (periods, bytes, queries): (voters,).

        Of a few periods at a time: what is worked out on the way is then no larger than a block.
        """
        groups, high, wide = self.columns.shape
        step = max(1, _BLOCK // (high * wide))
        parts: list[Counts] = []
        for start in range(0, groups, step):
            own = self._own(self.columns[start : start + step])
            parts.append(np.stack([sums(each) for each in own], axis=1).reshape(-1))
        return np.concatenate(parts)[: self.voters]

    def _own(self, columns: Bytes) -> Iterator[Bytes]:
        """Yield, for each voter of a period, the bytes of its votes: (periods, bytes, queries)."""
        for place in range(self._period.voters):
            span, mask = self._period.span(place), self._period.masks[place]
            own = columns[:, span]
            yield own if (mask[span] == 255).all() else own & mask[span, None]


def _added_up(level: list[Bytes]) -> list[Bytes]:
    """Return the bits of sums over rows, the lowest first, each as large as a row.

    Three bits of one weight make one of it and one of twice the weight, until one is left.
    """
    planes: list[Bytes] = []
    while level:
        twice: list[Bytes] = []
        while len(level) > 2:
            a, b, c = level.pop(), level.pop(), level.pop()
            odd = a ^ b
            carry = odd & c
            odd ^= c
            a = a & b
            carry |= a
            twice.append(carry)
            level.append(odd)
        if len(level) == 2:
            twice.append(level[0] & level[1])
            level = [level[0] ^ level[1]]
        planes.append(level[0])
        level = twice
    return planes


def _numbers(planes: list[Bytes], width: Any) -> npt.NDArray[Any]:
    """Return the numbers whose bits these are: (queries, 8 times the bytes)."""
    queries = planes[0].shape[1]
    rows = np.stack([plane.T for plane in reversed(planes)])
    bits = np.unpackbits(rows.reshape(-1)).reshape(len(planes), queries, -1)
    total: npt.NDArray[Any] = bits[0].astype(width, copy=False)
    for bit in bits[1:]:
        total <<= 1
        total |= bit
    return total


def _by_place(ballots: Bytes, weights: Floats, tally: Floats) -> None:
    """Add what ballots (queries, voters, bytes) weigh to a tally: from the smallest ballot on.

    Ballots of one size are counted before they are weighed, and sizes follow in order: whoever cast
    which, the sum is the same to the last bit.
    """
    queries, voters, high = ballots.shape
    order = np.argsort(sizes := _sizes(ballots), axis=1, kind="stable")
    own = np.take_along_axis(sizes, order, axis=1)
    last = np.ones(own.shape, np.bool_)  # of its size
    np.not_equal(own[:, 1:], own[:, :-1], out=last[:, :-1])
    worth, more = np.where(last, weights[own], 0.0), ~last
    query, across = np.arange(queries), max(1, _PIECE // (queries * voters) // 8)
    for first in range(0, high, across):
        part = tally[:, 8 * first : 8 * (first + across)]
        count = np.zeros(part.shape, np.uint16)
        for place in range(voters):
            held = ballots[query, order[:, place], first : first + across]
            count += np.unpackbits(held, axis=1, count=part.shape[1])
            part += worth[:, place, None] * count
            count *= more[:, place, None]


def _by_size(ballots: Bytes, weights: Floats, tally: Floats) -> None:
    """Add the same, where there are many voters: those of each size are counted first."""
    queries, voters, high = ballots.shape
    sizes, width = _sizes(ballots), np.uint8 if voters < 256 else np.int64
    many = max(1, _PIECE // (queries * min(8 * high, 64)))
    pieces = [slice(start, start + many) for start in range(0, voters, many)]
    known = np.zeros(len(weights), np.bool_)
    for at in pieces:
        known[sizes[:, at]] = True
    distinct = np.flatnonzero(known)
    across = max(1, _PIECE // (queries * max(len(distinct), min(voters, many))) // 8)
    for first in range(0, high, across):
        part = tally[:, 8 * first : 8 * (first + across)]
        counts = np.zeros((len(distinct), *part.shape), width)
        for at in pieces:
            size, query, voter, begins = _sorted(sizes[:, at])
            held = ballots[:, at, first : first + across][query, voter]
            cells = np.unpackbits(held, axis=1, count=part.shape[1])
            sums = np.add.reduceat(cells, begins, axis=0, dtype=width)
            counts[np.searchsorted(distinct, size[begins]), query[begins]] += sums
        for weight, count in zip(weights[distinct], counts, strict=True):
            part += weight * count


def _sorted(sizes: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Counts, Counts, Counts]:
    """Return size, query and voter of all ballots by size and query, and where each such begins."""
    query, voter = np.divmod(np.argsort(sizes, axis=None, kind="stable"), sizes.shape[1])
    size = sizes[query, voter]
    new = (np.diff(size, prepend=size[0]) != 0) | (np.diff(query, prepend=-1) != 0)
    return size, query, voter, np.flatnonzero(new)


def _sizes(ballots: Bytes) -> npt.NDArray[Any]:
    """Return how many ones each ballot has (queries, voters), in as few bits as sort soonest."""
    high = ballots.shape[2]
    width: Any = np.uint8 if high < 32 else np.uint16 if high < 8192 else np.int64
    if high > 64:
        return np.asarray(np.take(_ONES, ballots).sum(axis=2, dtype=width))
    sizes = np.zeros(ballots.shape[:2], width)
    for byte in range(high):
        sizes += np.take(_ONES, ballots[:, :, byte])
    return sizes


def _ones(own: Bytes) -> npt.NDArray[Any]:
    """Return how many bits are 1 in each 64-bit word of the last axis, or in each of its bytes."""
    if own.shape[-1] % _LANE:
        return np.take(_ONES, own)
    words = own.view(np.uint64)
    if hasattr(np, "bitwise_count"):  # NumPy 2
        return np.asarray(np.bitwise_count(words))
    one, two, four, last = (np.uint64(shift) for shift in (1, 2, 4, 56))
    pairs, nibbles, bytes_, sums = (
        np.uint64(0x0101010101010101 * byte) for byte in (0x55, 0x33, 0x0F, 0x01)
    )
    found = words >> one
    found &= pairs
    found = words - found
    high = found >> two
    high &= nibbles
    found &= nibbles
    found += high
    high = found >> four
    found += high
    found &= bytes_
    found *= sums
    found >>= last
    return found

"""Lots: runs of consecutive queries, every registered voter on its seat, read where it is counted.

A lot says which queries; whoever counts it reads them. Where its ballots cannot be asked for again,
as those of a source of one's own, it has them with it.
"""

from __future__ import annotations

import io
import mmap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..ballots import Ballots, BallotSource, block_queries
from ..blocks import MISSING, Block, Counts, DenseBlock, PackedBlock, SparseBlock
from ..names import Names
from ..storage import stamp
from ..streamed import check_same
from ..workers import Sent

_LIGHT = 1 << 16  # bytes of an array that goes along with what reads a file


@dataclass(frozen=True, eq=False)
class Lot:
    """Consecutive queries from ``start`` on, with their ballots or without."""

    start: int
    queries: int
    block: Block | None = None

    @property
    def stop(self) -> int:
        """The query after the last."""
        return self.start + self.queries

    def split(self, queries: int) -> tuple[Lot, Lot]:
        """Return the first so many queries, and the others."""
        blocks = (None, None) if self.block is None else self.block.split(queries)
        first = replace(self, queries=queries, block=blocks[0])
        return first, Lot(first.stop, self.queries - queries, blocks[1])


class Seating:
    """Ballots with every registered voter on its seat, in lots.

    Parameters
    ----------
    places
        The seat of each of the ballots' voters; None if all come in the order of their seats.
    registered
        How many seats there are.
    """

    def __init__(self, ballots: BallotSource, places: Counts | None, registered: int) -> None:
        self._ballots: BallotSource = getattr(ballots, "watched", ballots)
        self._places, self._registered = places, registered
        self._near: DenseBlock | None = None

    @property
    def _step(self) -> int:
        return block_queries(self._registered, self._ballots.labels)

    def lots(self) -> Iterator[Lot]:
        """Yield all queries in lots, cut as if everybody were there."""
        if isinstance(self._ballots, Ballots):
            queries, step = self._ballots.queries, self._step
            for start in range(0, queries, step):
                yield Lot(start, min(step, queries - start))
        else:
            for block in registered_blocks(self._ballots, self._places, self._registered):
                yield Lot(block.start, block.queries, block)

    def block(self, lot: Lot) -> Block:
        """Return the ballots of a lot."""
        if lot.block is not None:
            return lot.block
        assert isinstance(self._ballots, Ballots)
        return seated(self._read(self._ballots, lot), self._places, self._registered)

    def _read(self, ballots: Ballots, lot: Lot) -> DenseBlock:
        first = lot.start // self._step * self._step
        last = min(first + self._step, ballots.queries)
        if ballots.packed or lot.stop > last or lot.queries == last - first:
            return ballots.part(lot.start, lot.stop)
        # Small lots follow each other, and a file may unpack a whole block for each of them.
        near = self._near
        if near is None or near.start != first or near.queries != last - first:
            self._near = near = ballots.part(first, last)
        votes = near.votes[lot.start - first : lot.stop - first]
        return DenseBlock(votes, near.missing, lot.start)

    def sent(self) -> Sent | None:
        """Return what another process reads the same lots with; None if it cannot.

        A file goes by its name, so it must be where that process finds it. Nothing else goes along:
        neither names, nor ballots that are in memory.
        """
        if not isinstance(self._ballots, Ballots):
            return None

        class ByName(_cloudpickle().Pickler):  # type: ignore[misc]
            def reducer_override(self, thing: Any) -> Any:
                if isinstance(thing, np.memmap) and isinstance(thing.base, mmap.mmap):
                    order = "C" if thing.flags.c_contiguous else "F"
                    file = str(thing.filename)
                    return _mapped, (
                        file,
                        stamp(file),
                        thing.dtype,
                        thing.offset,
                        thing.shape,
                        order,
                    )
                if isinstance(thing, np.ndarray) and thing.nbytes > _LIGHT:
                    raise MemoryError
                return super().reducer_override(thing)

        bare, data = self._ballots.named(Names()), io.BytesIO()
        try:
            ByName(data).dump(Seating(bare, self._places, self._registered))
        except Exception:  # a reader of one's own may hold anything
            return None
        return Sent(data.getvalue())


def carried(lot: Lot, seating: Seating) -> Lot:
    """Return a lot with its ballots, in few bytes."""
    block = seating.block(lot)
    if isinstance(block, DenseBlock) and not block.missing and block.queries:
        block = PackedBlock(block.bits(), block.start)
    return replace(lot, block=block)


def _cloudpickle() -> Any:
    """Return what packs functions too: joblib needs it, or has it inside in older versions."""
    try:
        import cloudpickle
    except ImportError:
        from joblib.externals import cloudpickle
    return cloudpickle


def _mapped(
    file: str, was: tuple[int, str], dtype: Any, offset: int, shape: Any, order: Any
) -> Any:
    check_same(file, Path(file).name, was)
    return np.memmap(file, dtype=dtype, mode="r", offset=offset, shape=shape, order=order)


def registered_blocks(
    ballots: BallotSource, places: Counts | None, registered: int
) -> Iterator[Block]:
    """Yield blocks with every registered voter on its seat; who is absent is missing.

    Blocks are cut as if everybody were there, so who is absent leaves no trace in their sizes.

    Parameters
    ----------
    places
        The seat of each of the ballots' voters; None if all come in the order of their seats.
    """
    return (seated(block, places, registered) for block in _even_blocks(ballots, registered))


def seated(block: Block, places: Counts | None, registered: int) -> Block:
    """Return a block with every registered voter on its seat; who is absent is missing."""
    if places is None:
        return block
    if isinstance(block, SparseBlock):
        voter = places[block.voter]
        return SparseBlock(block.query, voter, block.votes, block.queries, registered, block.start)
    assert isinstance(block, DenseBlock)
    votes = np.full((block.queries, registered, block.labels), MISSING, np.int8)
    votes[:, places] = block.votes
    return DenseBlock(votes, missing=True, start=block.start)


def _even_blocks(ballots: BallotSource, registered: int) -> Iterator[Block]:
    """Yield blocks of as many queries as if all registered voters were there."""
    if ballots.sparse or ballots.voters == registered:
        yield from ballots.blocks()
        return
    step, start = block_queries(registered, ballots.labels), 0
    waiting = np.zeros((0, ballots.voters, ballots.labels), np.int8)
    for block in ballots.blocks():
        assert isinstance(block, DenseBlock)
        waiting = np.concatenate([waiting, block.votes.astype(np.int8, copy=False)])
        while len(waiting) >= step:
            yield DenseBlock(waiting[:step], missing=True, start=start)
            waiting, start = waiting[step:], start + step
    if len(waiting):
        yield DenseBlock(waiting, missing=True, start=start)

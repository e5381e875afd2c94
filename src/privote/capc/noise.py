"""The guardian's noise: integers on the margin grid that make a comparison the mechanism's draw.

A label is decided as ``margin + N >= 0`` on integers. N is drawn so that Pr[N >= -m] is the
mechanism's own Pr[1 | m] for every margin m that can occur: the inverse of the link's table, not a
rounded continuous noise. A tie is then the link's fair coin, nothing is truncated, and the release
is a draw of the mechanism itself, so that its accounting applies word for word. The gate's N2 is
the same on the absolute margin.

Margins that can occur are ``-offset + 2 c`` for whole c: 2 x (yes-votes or weights) against a
public offset (the parties that were there, all of them, or all of them times the grid).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..accounting.renyi import Floats
from ..entropy import Entropy
from ..mechanisms.cells import CellMechanism

IntArray = npt.NDArray[np.int64]
LogProbs = Callable[[IntArray], Floats]  # margins -> log Pr[no], log Pr[yes] on the last axis


def vote_noise(
    mechanism: CellMechanism,
    voters: int,
    offsets: IntArray,
    rows: int,
    entropy: Entropy,
    grid: int = 1,
) -> IntArray:
    """Draw N (rows, labels): Pr[m + N >= 0] = Pr[1 | m] for m = -offset, -offset + 2, ..., offset.

    Parameters
    ----------
    voters
        Registered voters, as the mechanism counts them.
    offsets
        (labels,) of whole numbers, at least 0: margins are 2c - offset.
    grid
        What one vote counts: margins are in units of 1/grid votes.
    """
    link = replace(mechanism, gate=None)

    def log_probs(margins: IntArray) -> Floats:
        return link.log_probs(_votes(margins, grid), voters)

    return -_smallest(log_probs, -offsets, offsets, rows, entropy)


def gate_noise(
    mechanism: CellMechanism,
    voters: int,
    offsets: IntArray,
    rows: int,
    entropy: Entropy,
    grid: int = 1,
) -> IntArray:
    """Draw N2 (rows, labels): Pr[|m| + N2 >= 0] = Pr[answered | m], margins as for the vote."""

    def log_probs(margins: IntArray) -> Floats:
        return mechanism.gate_log_probs(_votes(margins, grid), voters)

    return -_smallest(log_probs, offsets % 2, offsets, rows, entropy)


def _votes(margins: IntArray, grid: int) -> npt.NDArray[np.int64] | Floats:
    # Whole votes stay integers: an optimal link is defined on those only.
    return margins if grid == 1 else margins / grid


def _smallest(
    log_probs: LogProbs, low: IntArray, high: IntArray, rows: int, entropy: Entropy
) -> IntArray:
    """Draw T on {low, low + 2, ..., high, high + 2} with Pr[T <= m] = Pr[yes | m].

    T <= m where a uniform U lies below p(m); T is the smallest such m, or high + 2. First the half
    U lies in, by a coin; then its place in that half, measured from 0 in the lower and from 1 in
    the upper one, with the full relative precision of p there or of 1 - p here.
    """
    shape = (rows, len(low))
    cells = rows * len(low)
    coin = np.frombuffer(entropy.bytes(cells), np.uint8).reshape(shape) & 1 == 1
    return _search(log_probs, low, high, coin, entropy.uniform(cells).reshape(shape))


def _search(
    log_probs: LogProbs,
    low: IntArray,
    high: IntArray,
    coin: npt.NDArray[np.bool_],
    place: Floats,
) -> IntArray:
    """Return T for each coin (lower half or upper) and place in that half, by bisection."""

    def reached(step: IntArray) -> npt.NDArray[np.bool_]:
        pairs = np.exp(log_probs(low + 2 * step))
        # Pr[place < x] is x for every float x in [0, 1], and 1 beyond.
        return np.where(coin, place < 2 * pairs[..., 1], place >= 2 * pairs[..., 0])

    top = (high - low) // 2
    first = np.zeros(coin.shape, np.int64)
    last = np.broadcast_to(top + 1, coin.shape).copy()  # beyond all margins: not reached
    while (open_ := first < last).any():
        middle = (first + last) // 2
        # Where the search is over, ``middle`` may lie beyond the largest margin.
        hit = reached(np.minimum(middle, top))
        last = np.where(open_ & hit, middle, last)
        first = np.where(open_ & ~hit, middle + 1, first)
    return np.asarray(low + 2 * last)

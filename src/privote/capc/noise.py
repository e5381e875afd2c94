"""The guardian's noise: integers that make a comparison on margins the mechanism's draw.

A label is decided as ``margin + N >= 0`` on integers. N is drawn so that Pr[N >= -m] is the
mechanism's own Pr[1 | m] for *every* integer m: the inverse of the link, not a rounded continuous
noise. A tie is then the link's fair coin, and the release is a draw of the mechanism itself, so
that its accounting applies word for word. The gate's N2 is the same on the absolute margin.

N covers the whole line, also where no tally can lie. Should a margin be wrong by a known s (a mask
that is off by one), the release is the link at m + s: the same link with another bar. A changed
vote moves Gaussian noise as far as before, so it costs at most order / sigma^2 wherever the bar
stands, and an optimal link at its own order at most its ``cost``. Noise within the legal margins
only would make labels beyond them certain, and so one wrong input fatal.
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

_NEVER = -760.0  # e^-745 is the smallest double: below, an outcome is never drawn
_FARTHEST = 1 << 61  # margins and noise add up within an int64


def vote_noise(
    mechanism: CellMechanism, voters: int, shape: tuple[int, ...], entropy: Entropy, grid: int = 1
) -> IntArray:
    """Draw N of this shape: Pr[m + N >= 0] = Pr[1 | m] for every integer m.

    Parameters
    ----------
    voters
        Registered voters, as the mechanism counts them.
    grid
        What one vote counts: margins are in units of 1/grid votes.
    """
    link = replace(mechanism, gate=None)

    def log_probs(margins: IntArray) -> Floats:
        # Whole votes stay integers: an optimal link is defined on those only.
        return link.log_probs(margins if grid == 1 else margins / grid, voters)

    return -smallest(log_probs, shape, entropy)


def gate_noise(
    mechanism: CellMechanism, voters: int, shape: tuple[int, ...], entropy: Entropy, grid: int = 1
) -> IntArray:
    """Draw N2 of this shape: Pr[|m| + N2 >= 0] = Pr[answered | m], margins as for the vote."""
    gate = mechanism.gate
    assert gate is not None

    def log_probs(sizes: IntArray) -> Floats:
        return gate.log_probs((voters + sizes / grid) / 2)

    return -smallest(log_probs, shape, entropy)


def smallest(log_probs: LogProbs, shape: tuple[int, ...], entropy: Entropy) -> IntArray:
    """Draw integers T of this shape with Pr[T <= m] = Pr[yes | m] for every integer m.

    T <= m where a uniform U lies below p(m); T is the smallest such m. First the half U lies in, by
    a coin; then its place in that half, measured from 0 in the lower and from 1 in the upper one,
    with the full relative precision of p there or of 1 - p here.
    """
    cells = int(np.prod(shape))
    coin = np.frombuffer(entropy.bytes(cells), np.uint8).reshape(shape) & 1 == 1
    reach = _reach(log_probs)
    return _search(log_probs, -reach, reach, coin, entropy.uniform(cells).reshape(shape))


def _reach(log_probs: LogProbs) -> int:
    """Return a margin beyond which nothing changes: one outcome is never drawn, or p is level."""
    reach = 64
    while reach < _FARTHEST:
        here, there = (log_probs(np.array([-end, end])) for end in (reach, 2 * reach))
        if max(here[0, 1], here[1, 0]) < _NEVER or np.array_equal(here, there):
            break
        reach *= 2
    return reach


def _search(
    log_probs: LogProbs, low: int, high: int, coin: npt.NDArray[np.bool_], place: Floats
) -> IntArray:
    """Return T for each coin (lower half or upper) and place in that half, by bisection."""

    def reached(margins: IntArray) -> npt.NDArray[np.bool_]:
        pairs = np.exp(log_probs(margins))
        # Pr[place < x] is x for every float x in [0, 1], and 1 beyond.
        return np.where(coin, place < 2 * pairs[..., 1], place >= 2 * pairs[..., 0])

    first = np.full(coin.shape, low, np.int64)
    last = np.full(coin.shape, high + 1, np.int64)
    while (open_ := first < last).any():
        middle = first + (last - first) // 2
        hit = reached(middle)
        last = np.where(open_ & hit, middle, last)
        first = np.where(open_ & ~hit, middle + 1, first)
    return np.asarray(last)

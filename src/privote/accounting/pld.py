"""Epsilon from the whole privacy-loss distribution: tighter than the Rényi curve, never below true.

A voter's change turns every cell's distribution P into a known Q. The loss log(P/Q), drawn from P,
adds up over independent cells, and its distribution gives epsilon at delta without the loss of a
conversion (Sommer, Meiser and Mohammadi 2019). Losses are put on a grid by "connect the dots"
(Doroshenko et al. 2022, Algorithm 1), which only ever overstates a hockey-stick divergence.

No neighbour dominates all others ("all votes move inwards is the worst" is false), so there is one
distribution per voter and direction, and the answer is the largest epsilon. All voters share few
moves, so their distributions are composed together: logarithms of transforms, times how often each
voter has each move.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import positive
from .renyi import UPWARDS, Floats, check_delta

#: Step of the grid of losses. Errors are of second order: at 0.002 an epsilon of 20 gains 0.001.
DISCRETIZATION = 2e-3

_COARSER = 5  # a first look at all voters takes steps so much larger
_TAIL = 1e-6  # share of delta given up at either end of the grid
_LARGEST = 2**20  # points of a grid; for a wider range of losses the steps are made larger
_ROOM = 2**21  # complex numbers of a table in memory: 32 MB
_CACHED = 2**17  # complex numbers worked on at a time
_UNIT = 2.0**-53  # relative rounding error of one operation
_SLOPES = np.geomspace(1e-2, 100.0, 81)  # where Chernoff's bound is tried

Complexes = npt.NDArray[np.complex128]


class Moves(NamedTuple):
    """What a change does to a cell, row by row: (moves, outcomes) log-probabilities here, there."""

    log_p: Floats
    log_q: Floats

    def reversed(self) -> Moves:
        """Return the same moves seen from the other side."""
        return Moves(self.log_q, self.log_p)


class Atoms(NamedTuple):
    """Losses on the grid: (moves, atoms) places in steps, their masses; (moves,) mass at inf."""

    places: npt.NDArray[np.int64]
    masses: Floats
    infinite: Floats


def connect_dots(moves: Moves, discretization: float) -> Atoms:
    """Put the loss of each move on the grid; every hockey-stick divergence is at least true.

    Doroshenko et al. 2022, Algorithm 1. For finitely many outcomes it splits the mass of a loss
    between the two grid points around it such that both P's and Q's mass are kept; written that
    way nothing cancels, so an outcome of probability 1e-30 keeps its digits.
    """
    log_p, log_q = (np.asarray(v, np.float64) for v in moves)
    possible = log_p > -np.inf
    certain = possible & (log_q == -np.inf)
    finite = possible & ~certain
    with np.errstate(invalid="ignore"):
        steps = np.where(finite, log_p - log_q, 0.0) / discretization
    below = np.floor(steps)
    mass = np.where(finite, np.exp(log_p), 0.0)
    upper = mass * np.expm1((below - steps) * discretization) / math.expm1(-discretization)
    lower = mass * np.exp((below - steps) * discretization)
    lower *= np.expm1((steps - below - 1) * discretization) / math.expm1(-discretization)
    places = np.concatenate([below, below + 1], axis=1).astype(np.int64)
    infinite = np.where(certain, np.exp(log_p), 0.0).sum(axis=1)
    return Atoms(places, np.concatenate([lower, upper], axis=1), infinite)


def epsilons(
    moves: Moves, times: npt.NDArray[np.int64], delta: float, discretization: float = DISCRETIZATION
) -> Floats:
    """Return for each voter an epsilon at which its hockey-stick divergence is at most delta.

    One direction, that of ``moves``; a voter's epsilon is the larger of both.

    Parameters
    ----------
    moves
        (moves, outcomes): the distributions of a cell before and after.
    times
        (voters, moves): how many cells of a voter make this move.
    delta
        Strictly between 0 and 1.
    discretization
        Step of the grid; any step gives a valid epsilon, a finer one a smaller. Where losses have
        a range too wide for it, a larger step is taken.

    Returns
    -------
    (voters,)
    """
    delta, step = check_delta(delta), positive("discretization", discretization)
    result = np.zeros(len(times))
    if times.any():
        grid = _Grid(moves, times.astype(np.float64), delta, step)
        for voter, masses, lost in grid.compositions():
            result[voter] = _smallest_epsilon(masses, grid.first, grid.step, lost, delta)
    return UPWARDS * result


def epsilon_by_voter_max(
    moves: Moves,
    times: npt.NDArray[np.int64],
    rdp_epsilons: npt.ArrayLike,
    delta: float,
    discretization: float = DISCRETIZATION,
) -> float:
    """Return the epsilon of a batch: the largest over voters and both directions.

    Parameters
    ----------
    moves, times
        As in :func:`epsilons`; the moves reversed are the second direction.
    rdp_epsilons
        (voters, 2): each voter's epsilon by the Rényi curve, in both directions. It is valid too,
        so the smaller counts for each voter.
    delta, discretization
        As in :func:`epsilons`.
    """
    ways = (moves, moves.reversed())
    # A coarse grid is valid too, and cheap: most voters are seen to stay below the largest.
    coarse = [epsilons(way, times, delta, _COARSER * discretization) for way in ways]
    bounds = np.minimum(np.asarray(rdp_epsilons, np.float64), np.stack(coarse, axis=1))
    largest = 0.0
    for voter, way in np.argwhere(bounds >= np.partition(bounds, -2, axis=None)[-2]):
        fine = epsilons(ways[way], times[[voter]], delta, discretization)[0]
        largest = max(largest, min(float(bounds[voter, way]), float(fine)))
    for way in (0, 1):  # whoever might still exceed them
        rest = bounds[:, way] > largest
        if rest.any():
            fine = epsilons(ways[way], times[rest], delta, discretization)
            largest = max(largest, float(np.minimum(bounds[rest, way], fine).max()))
    return largest


def smaller(rdp_epsilon: float, pld_epsilon: float) -> tuple[float, str]:
    """Return the smaller of two valid epsilons and the accountant's name: "rdp" or "pld"."""
    return (pld_epsilon, "pld") if pld_epsilon < rdp_epsilon else (rdp_epsilon, "rdp")


class _Grid:
    """A grid of losses wide enough for some voters, and their distributions on it."""

    def __init__(self, moves: Moves, times: Floats, delta: float, step: float) -> None:
        self._times, self._delta = times, delta
        while True:
            self.step = step
            self._atoms = connect_dots(moves, step)
            self.first, self.size = self._window()
            if self.size <= _LARGEST:
                break
            step *= 2  # any grid is valid

    def _window(self) -> tuple[int, int]:
        """Return the grid's first place and its size: all but delta * 1e-6 at either end.

        Chernoff: Pr[L >= u] <= E[e^{sL}] e^{-su} for every s > 0, and alike below.
        """
        slopes = np.concatenate([-_SLOPES, _SLOPES])
        with np.errstate(divide="ignore"):
            logs = np.log(self._atoms.masses)
        moments = np.stack(
            [
                np.logaddexp.reduce(logs + slope * self.step * self._atoms.places, axis=1)
                for slope in slopes
            ],
            axis=1,
        )
        # A move that only ever has infinite loss has no finite moment: -inf, and no end either.
        moments = np.maximum(moments, -1e9)
        ends = (self._times @ moments - math.log(self._delta * _TAIL)) / slopes
        low = float(ends[:, slopes < 0].max(axis=1).min())
        high = float(ends[:, slopes > 0].min(axis=1).max())
        first = math.floor(low / self.step) - 1
        points = math.ceil(max(high, low) / self.step) + 2 - first
        return first, int(2 ** max(6, math.ceil(math.log2(max(points, 2)))))

    def compositions(self) -> Iterator[tuple[int, Floats, float]]:
        """Yield each voter, its masses on the grid, and what to count at an infinite loss."""
        width = self.size // 2 + 1
        group = max(1, _ROOM // width)
        for start in range(0, len(self._times), group):
            times = self._times[start : start + group]
            spectra, errors = self._spectra(times)
            # Beyond the grid: what lies below wraps around and comes back as a larger loss, which
            # is safe; what lies above as a smaller one, so its mass is counted once more.
            log_finite = np.log1p(-np.minimum(self._atoms.infinite, 1 - _UNIT)) @ times.T
            lost = -np.expm1(log_finite) + self._delta * _TAIL + errors
            for voter, row in enumerate(spectra):
                masses = np.maximum(np.fft.irfft(row, self.size), 0.0)
                yield start + voter, masses, float(lost[voter])

    def _spectra(self, times: Floats) -> tuple[Complexes, Floats]:
        """Return the transforms of the composed masses, (voters, size/2 + 1), and their error.

        A transform z of one move is right to about 32 units, its logarithm and the sum over moves
        to one unit of the terms each; so the product X has an error of |X| units * sum of times *
        ((moves + 8) |log z| + 32 / |z|). By Parseval and Cauchy-Schwarz the masses are together
        off by no more than the root of the sum of squares of these. 64 units times the root of
        the size are the inverse transform's own, 4 units a point those of adding up the masses.
        """
        roots = np.exp(-2j * np.pi / self.size * np.arange(self.size))
        spectra = np.zeros((len(times), self.size // 2 + 1), np.complex128)
        squares, moves = np.zeros(len(times)), times.shape[1]
        chunk = max(1, _CACHED // max(1, moves))
        for start in range(0, spectra.shape[1], chunk):
            frequencies = np.arange(start, min(start + chunk, spectra.shape[1]))
            transforms = self._transforms(frequencies, roots)
            size = np.maximum(np.abs(transforms), 1e-300)
            logs = np.log(np.where(transforms == 0, 1e-300, transforms))
            units = times @ ((moves + 8) * np.abs(logs) + 32 / size) + 64
            # Real parts beside imaginary ones: a product of two tables of real numbers.
            total = (times @ logs.view(np.float64)).view(np.complex128)
            # The masses at first, first + 1, ...: a shift of the grid is a phase.
            turns = ((-self.first & (self.size - 1)) * frequencies) & (self.size - 1)
            part = np.exp(total) * roots[turns]
            squares += 2 * np.square(np.abs(part) * np.minimum(units, 1e150) * _UNIT).sum(axis=1)
            spectra[:, frequencies] = part
        rounding = 64 * math.sqrt(self.size) + 4 * self.size
        return spectra, np.sqrt(squares) + rounding * _UNIT

    def _transforms(self, frequencies: npt.NDArray[np.int64], roots: Complexes) -> Complexes:
        """Return the transforms of the losses of the moves: (moves, frequencies)."""
        places, masses = self._atoms.places, self._atoms.masses
        transforms = np.zeros((len(places), len(frequencies)), np.complex128)
        for atom, mass in zip(places.T, masses.T, strict=True):
            # The size is a power of two, so this is the remainder of the angle, in integers.
            turns = ((atom & (self.size - 1))[:, None] * frequencies) & (self.size - 1)
            transforms += mass[:, None] * roots[turns]
        return transforms


def _smallest_epsilon(masses: Floats, first: int, step: float, lost: float, delta: float) -> float:
    """Solve lost + sum over losses above eps of mass (1 - e^{eps - loss}) = delta for eps >= 0.

    The sum is linear in e^eps between two grid points. Only losses from 0 on have a part in it.
    """
    if lost >= delta:
        return math.inf
    masses = masses[max(0, -first) :]
    losses = step * (max(first, 0) + np.arange(len(masses)))
    # Beyond 700 the second term is left out: too large a sum, and no overflow.
    shares = np.where(losses <= 700.0, masses * np.exp(-losses), 0.0)
    above = np.append(lost + np.cumsum(masses[::-1])[::-1], lost)
    weighted = np.append(np.cumsum(shares[::-1])[::-1], 0.0)
    spent = above[1:] - np.exp(np.minimum(losses, 700.0)) * weighted[1:]
    fits = np.flatnonzero(spent <= delta)
    if not len(fits):
        return 0.0  # no loss is above 0
    index = int(fits[0])
    if above[index] <= delta:
        return 0.0
    if weighted[index] <= 0:
        return float(losses[index])
    solved = math.log(above[index] - delta) - math.log(weighted[index])
    return min(max(0.0, solved), float(losses[index]))

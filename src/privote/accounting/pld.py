"""Epsilon from the whole privacy-loss distribution: tighter than the Rényi curve, never below true.

A voter's change turns every cell's distribution P into a known Q. The loss log(P/Q), drawn from P,
adds up over independent cells, and its distribution gives epsilon at delta without the loss of a
conversion (Sommer, Meiser and Mohammadi 2019). Losses are put on a grid by "connect the dots"
(Doroshenko et al. 2022, Algorithm 1), which only ever overstates a hockey-stick divergence.

No neighbour dominates all others ("all votes move inwards is the worst" is false), so there is one
distribution per voter and direction, and the answer is the largest epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import log_ndtr

from ..errors import InputError, positive
from .renyi import Floats, check_delta

#: Step of the grid of losses. Errors are of second order: at 0.002 an epsilon of 20 gains 0.001.
DISCRETIZATION = 2e-3

_TAIL = 1e-6  # share of delta given up at either end of the grid
_LARGEST = 2**22  # points of a grid; beyond this the grid is too fine for the range of losses
_KEPT = 2**22  # complex numbers kept to share transforms between voters: 64 MB
_SLOPES = np.geomspace(1e-2, 100.0, 81)  # where Chernoff's bound is tried


class Cell(NamedTuple):
    """Equal cells of one voter and direction: (outcomes,) log-probabilities, and how many."""

    log_p: Floats
    log_q: Floats
    times: int


class _Atoms(NamedTuple):
    """A loss distribution on the grid: places (in steps), masses, and the mass at infinity."""

    places: npt.NDArray[np.int64]
    masses: Floats
    infinite: float


def flip_cells(
    log_probs: Floats, yes: npt.ArrayLike, no: npt.ArrayLike
) -> tuple[list[Cell], list[Cell]]:
    """Return the cells of a voter who flips every vote, in both directions.

    Flipping everything dominates flipping a part: the part is a marginal of the whole, and
    divergence never grows by looking at less. So this is the voter's worst neighbour.

    Parameters
    ----------
    log_probs
        (n + 1, outcomes): a cell's log-probabilities by its count of yes-votes.
    yes, no
        (n + 1,): in how many cells with this count the voter said yes, said no.

    Returns
    -------
    Cells of (these votes || neighbour), and of (neighbour || these votes).
    """
    forward = []
    for moves, step in ((yes, -1), (no, 1)):
        for count, cells in enumerate(np.asarray(moves)):
            if cells:
                if not 0 <= count + step < len(log_probs):
                    raise InputError(f"no voter of {len(log_probs) - 1} can have cast this vote")
                forward.append(Cell(log_probs[count], log_probs[count + step], int(cells)))
    return forward, [Cell(cell.log_q, cell.log_p, cell.times) for cell in forward]


def connect_dots(log_p: Floats, log_q: Floats, discretization: float) -> _Atoms:
    """Put the loss of one cell on the grid so that every hockey-stick divergence is at least true.

    Doroshenko et al. 2022, Algorithm 1. For finitely many outcomes it splits the mass of a loss
    between the two grid points around it such that both P's and Q's mass are kept; written that
    way nothing cancels, so an outcome of probability 1e-30 keeps its digits.
    """
    log_p, log_q = (np.asarray(v, np.float64) for v in (log_p, log_q))
    possible = log_p > -np.inf
    certain = possible & (log_q == -np.inf)
    finite = possible & ~certain
    steps = (log_p[finite] - log_q[finite]) / discretization
    below = np.floor(steps)
    mass = np.exp(log_p[finite])
    upper = mass * np.expm1((below - steps) * discretization) / math.expm1(-discretization)
    lower = mass * np.exp((below - steps) * discretization)
    lower *= np.expm1((steps - below - 1) * discretization) / math.expm1(-discretization)
    places = np.concatenate([below, below + 1]).astype(np.int64)
    return _Atoms(places, np.concatenate([lower, upper]), float(np.exp(log_p[certain]).sum()))


def epsilon(cells: Sequence[Cell], delta: float, discretization: float = DISCRETIZATION) -> float:
    """Return an epsilon at which the composed cells' hockey-stick divergence is at most delta.

    Parameters
    ----------
    cells
        The cells of one voter and one direction.
    delta
        Strictly between 0 and 1.
    discretization
        Step of the grid; any step gives a valid epsilon, a finer one a smaller.
    """
    return _Composer(check_delta(delta), discretization).epsilon(cells)


def epsilon_by_voter_max(
    cells_of_voter: Iterable[Sequence[Sequence[Cell]]],
    rdp_epsilons: npt.ArrayLike,
    delta: float,
    discretization: float = DISCRETIZATION,
) -> float:
    """Return the epsilon of a batch: the largest over voters and directions.

    Parameters
    ----------
    cells_of_voter
        For each voter its two directions, each a list of cells (see :func:`flip_cells`).
    rdp_epsilons
        (voters,) or (voters, 2): each voter's epsilon by the Rényi curve. It is valid too, so the
        smaller counts for each voter; and who cannot exceed the maximum so far is skipped.
    delta, discretization
        As in :func:`epsilon`.
    """
    bills = [list(directions) for directions in cells_of_voter]
    bounds = np.asarray(rdp_epsilons, np.float64)
    if bounds.ndim == 1:
        bounds = np.repeat(bounds[:, None], 2, axis=1)
    if bounds.shape != (len(bills), 2) or any(len(bill) != 2 for bill in bills):
        raise InputError(
            f"rdp_epsilons must be (voters,) or (voters, 2) for {len(bills)} voters with two "
            f"directions each, got shape {bounds.shape}"
        )
    composer = _Composer(check_delta(delta), discretization)
    largest = 0.0
    for flat in np.argsort(-bounds, axis=None, kind="stable"):
        voter, direction = divmod(int(flat), 2)
        bound = float(bounds[voter, direction])
        if bound <= largest:
            break  # in descending order: nobody after this one can exceed it
        largest = max(largest, min(bound, composer.epsilon(bills[voter][direction])))
    return largest


def smaller(rdp_epsilon: float, pld_epsilon: float) -> tuple[float, str]:
    """Return the smaller of two valid epsilons and the accountant's name: "rdp" or "pld"."""
    return (pld_epsilon, "pld") if pld_epsilon < rdp_epsilon else (rdp_epsilon, "rdp")


class _Composer:
    """Composes cells by one Fourier transform, and remembers transforms that voters share."""

    def __init__(self, delta: float, discretization: float) -> None:
        self.delta = delta
        self.step = positive("discretization", discretization)
        self._atoms: dict[bytes, _Atoms] = {}
        self._transforms: dict[tuple[bytes, int], npt.NDArray[np.complex128]] = {}
        self._kept = 0

    def epsilon(self, cells: Sequence[Cell]) -> float:
        """Return epsilon at delta of the composition."""
        # Imported here: dp-accounting takes a second to load.
        from dp_accounting.pld.pld_pmf import DensePLDPmf

        for cell in cells:
            if cell.times < 0:
                raise InputError(
                    f"a cell must not occur a negative number of times, got {cell.times}"
                )
        cells = [cell for cell in cells if cell.times > 0]
        if not cells:
            return 0.0
        infinite = [min(self._cell(cell)[1].infinite, 1 - 2.0**-53) for cell in cells]
        finite = sum(c.times * math.log1p(-mass) for c, mass in zip(cells, infinite, strict=True))
        if -math.expm1(finite) >= self.delta:
            return math.inf
        first, size = self._window(cells)
        spectrum = np.zeros(size // 2 + 1, np.complex128)
        for cell in cells:
            spectrum += cell.times * self._log_transform(cell, size)
        # The masses at first, first + 1, ...: a shift of the grid is a phase.
        spectrum = np.exp(spectrum) * _roots(-first, size)
        masses = np.maximum(np.fft.irfft(spectrum, size), 0.0)
        # What lies beyond the grid wraps around. From below it comes back as a larger loss, which
        # is safe; from above as a smaller one, so its mass is counted at infinity once more.
        # Rounding: each transform is right to 2^-52, so their product to count * 2^-52 at each
        # frequency and (Parseval, Cauchy-Schwarz) the sum of all masses to sqrt(size) times that.
        rounding = math.sqrt(size) * (sum(c.times for c in cells) + 64) * 2.0**-52
        lost = -math.expm1(finite) + self.delta * _TAIL + rounding
        if lost >= self.delta:
            return math.inf
        pmf = DensePLDPmf(self.step, first, masses, lost, True)
        return float(pmf.get_epsilon_for_delta(self.delta))

    def _cell(self, cell: Cell) -> tuple[bytes, _Atoms]:
        key = np.concatenate([cell.log_p, cell.log_q]).astype(np.float64).tobytes()
        if key not in self._atoms:
            self._atoms[key] = connect_dots(cell.log_p, cell.log_q, self.step)
        return key, self._atoms[key]

    def _window(self, cells: Sequence[Cell]) -> tuple[int, int]:
        """Return the grid's first place and its size: all but delta * 1e-6 at either end.

        Chernoff: Pr[L >= u] <= E[e^{sL}] e^{-su} for every s > 0, and alike below.
        """
        slopes = np.concatenate([-_SLOPES, _SLOPES])
        moments = np.zeros(len(slopes))
        for cell in cells:
            atoms = self._cell(cell)[1]
            with np.errstate(divide="ignore"):
                terms = np.log(atoms.masses) + slopes[:, None] * atoms.places * self.step
            moments += cell.times * np.logaddexp.reduce(terms, axis=1)
        ends = (moments - math.log(self.delta * _TAIL)) / slopes
        low, high = float(ends[slopes < 0].max()), float(ends[slopes > 0].min())
        first = math.floor(low / self.step) - 1
        points = math.ceil(high / self.step) + 2 - first
        size = 2 ** max(6, math.ceil(math.log2(max(points, 2))))
        if size > _LARGEST:
            raise InputError(
                f"discretization {self.step:g} needs a grid of {points} points, more than "
                f"{_LARGEST}: choose a larger one"
            )
        return first, size

    def _log_transform(self, cell: Cell, size: int) -> npt.NDArray[np.complex128]:
        """Return the log of the transform of one cell; a multiple of 2*pi*i does not matter."""
        key, atoms = self._cell(cell)
        if (key, size) in self._transforms:
            return self._transforms[key, size]
        total = np.zeros(size // 2 + 1, np.complex128)
        for place, mass in zip(atoms.places, atoms.masses, strict=True):
            if mass > 0.0:
                total += mass * _roots(int(place), size)
        with np.errstate(divide="ignore"):
            value: npt.NDArray[np.complex128] = np.log(total)
        if self._kept + len(value) <= _KEPT:
            self._transforms[key, size] = value
            self._kept += len(value)
        return value


def _roots(place: int, size: int) -> npt.NDArray[np.complex128]:
    """Return e^{-2 pi i f place / size} for f = 0 .. size/2, the angle reduced in integers."""
    turns = np.arange(size // 2 + 1, dtype=np.int64) * (place % size) % size
    return np.asarray(np.exp(-2j * np.pi / size * turns))


def analytic_gaussian(ratio: float, delta: float) -> float:
    """Return the exact epsilon of a Gaussian mechanism (Balle and Wang 2018, Theorem 8).

    delta = Phi(m/2 - e/m) - e^e Phi(-m/2 - e/m), solved for e, with m = ``ratio`` = shift / noise.

    Parameters
    ----------
    ratio
        Length of the shift over the standard deviation of each noise. With ``sigma`` on every
        count as everywhere here, a label whose vote flips moves two counts: sqrt(2) / sigma; v
        such labels: sqrt(2 v) / sigma.
    delta
        Strictly between 0 and 1.
    """
    delta = check_delta(delta)
    if ratio == 0:
        return 0.0
    ratio = positive("ratio", ratio)

    def log_excess(eps: float) -> float:
        first = float(log_ndtr(ratio / 2 - eps / ratio))
        second = eps + float(log_ndtr(-ratio / 2 - eps / ratio))
        if second >= first:
            return -math.inf  # they agree to rounding: far below any delta
        return first + math.log(-math.expm1(second - first)) - math.log(delta)

    if log_excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while log_excess(high) > 0:
        high *= 2
    root = float(brentq(lambda e: max(log_excess(e), -1e3), 0.0, high, xtol=1e-12, rtol=1e-13))
    while log_excess(root) > 0:  # brentq may stop on either side of the root
        root = root * (1 + 1e-12) + 1e-12
    return root

"""The only place randomness comes from: secure by default, seeded only for simulation.

Nothing here draws floating-point noise. A release is a draw from a discrete distribution known in
closed form, and each draw compares random *bits* with the binary expansion of the probability, as
many bits as it takes: an outcome of probability 1e-200 is drawn with probability 1e-200, not 0.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import chain, repeat
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import erfc, ndtri

from .errors import InputError

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.integer[Any]]
Chances = tuple[Floats, Floats, Index | None]  # log-probabilities of 1 and of 0, and rows of them

_WORD = 62  # bits of a first draw: fits an int64 and converts to float64 without overflow
_MANTISSA = 53
_RUN = 1 << 16  # draws that are worked out at a time; even, as a seeded word has bits for two
WIDEST_ROUNDED = 1e9  # beyond, too many draws of rounded noise need more digits than a float has
_DOUBT = 2.0**-40  # by so much of itself a float of a tail probability may be off


class Entropy:
    """A source of random bytes and of exact discrete draws.

    Parameters
    ----------
    seed
        ``None`` (default): the operating system's cryptographic generator. An integer: a
        reproducible Philox stream, and everything drawn from it is *simulated*: whoever knows or
        guesses the seed can undo the noise, so it protects nobody.
    """

    def __init__(self, seed: int | None = None) -> None:
        if seed is not None and (
            isinstance(seed, bool | np.timedelta64)
            or not isinstance(seed, int | np.integer)
            or seed < 0
        ):
            raise InputError("seed", "must be None or an integer >= 0", seed)
        self._generator = None if seed is None else np.random.Generator(np.random.Philox(int(seed)))

    @property
    def simulated(self) -> bool:
        """True if a seed was given: the draws are reproducible and therefore not private."""
        return self._generator is not None

    def __repr__(self) -> str:
        return f"Entropy({'simulated' if self.simulated else 'secure'})"

    def bytes(self, count: int) -> bytes:
        """Return ``count`` random bytes."""
        return os.urandom(count) if self._generator is None else self._generator.bytes(count)

    def below(self, bound: int) -> int:
        """Return a uniform integer in ``[0, bound)``; ``bound`` may have thousands of digits."""
        if self._generator is None:
            return secrets.randbelow(bound)
        bits = bound.bit_length()
        while True:
            draw = int.from_bytes(self.bytes((bits + 7) // 8), "little") & ((1 << bits) - 1)
            if draw < bound:
                return draw

    def uniform(self, count: int) -> Floats:
        """Return ``count`` uniforms in [0, 1), truncated to 53 *significant* bits.

        For every float64 ``p`` the chance that a draw lies below ``p`` is exactly ``p``, however
        small ``p`` is: truncation keeps full relative precision down to 0.
        """
        word = np.frombuffer(self.bytes(8 * count), dtype=np.int64) & ((1 << _WORD) - 1)
        draw = word.astype(np.float64)
        # astype rounds to nearest; a draw rounded up would cross a p that the bits stay below.
        draw = np.where(draw.astype(np.int64) > word, np.nextafter(draw, 0.0), draw)
        draw = np.ldexp(draw, -_WORD)
        for place in np.flatnonzero(word < (1 << _MANTISSA)):  # 1 draw in 512 needs more bits
            draw[place] = self._extend(int(word[place]))
        return draw

    def _extend(self, value: int) -> float:
        bits = _WORD
        while value.bit_length() < _MANTISSA and bits < 1200:
            value = (value << 64) | int.from_bytes(self.bytes(8), "little")
            bits += 64
        surplus = max(0, value.bit_length() - _MANTISSA)
        return math.ldexp(float(value >> surplus), surplus - bits)

    def bernoulli(
        self,
        log_one: Floats,
        log_zero: Floats,
        index: Index | None = None,
    ) -> npt.NDArray[np.bool_]:
        """Draw yes/no with the probabilities ``exp(log_one)`` and ``exp(log_zero)``.

        The rarer of the two outcomes is the one compared with random bits, so neither is lost to
        rounding near 1. Sixteen bits settle all but one draw in 65,536; the rest take more.

        Parameters
        ----------
        log_one, log_zero
            Log-probabilities of the two outcomes, same shape.
        index
            If given, ``log_one`` and ``log_zero`` are tables and draw ``i`` uses row ``index[i]``.
        """
        shape = log_one.shape if index is None else index.shape
        one, zero = log_one.reshape(-1), log_zero.reshape(-1)
        rows = None if index is None else index.reshape(-1)

        def chances(at: slice) -> Chances:
            return (one[at], zero[at], None) if rows is None else (one, zero, rows[at])

        return self.coins(math.prod(shape), chances).reshape(shape)

    def coins(self, count: int, chances: Callable[[slice], Chances]) -> npt.NDArray[np.bool_]:
        """Draw as :meth:`bernoulli` does, where ``chances`` tells what it takes for a run of draws.

        A few draws are worked out at a time. What is drawn does not depend on how many: first come
        sixteen bits for every draw, then more for those that need them.
        """
        drawn = np.empty(count, np.bool_)
        ties: list[tuple[npt.NDArray[np.intp], Floats, npt.NDArray[np.bool_]]] = []
        for start in range(0, count, _RUN):
            at = slice(start, min(start + _RUN, count))
            log_one, log_zero, index = chances(at)
            rare = np.ldexp(np.exp(np.minimum(log_one, log_zero)), 16)
            floor = np.floor(rare)
            bar = floor.astype(np.uint16)  # the rarer outcome has at most 1/2: it fits
            rest, one_is_rare = rare - floor, log_one < log_zero
            if index is not None:
                bar, one_is_rare = bar[index], one_is_rare[index]
            bits = np.frombuffer(self.bytes(2 * bar.size), dtype=np.uint16)
            np.equal(bits < bar, one_is_rare, out=drawn[at])
            tied = np.flatnonzero(bits == bar)
            if tied.size:
                part = rest[tied] if index is None else rest[index[tied]]
                ties.append((tied + start, part, one_is_rare[tied]))
        if ties:
            place, fraction, one_is_rare = (
                np.concatenate(parts) for parts in zip(*ties, strict=True)
            )
            drawn[place] = (self.uniform(place.size) < fraction) == one_is_rare
        return drawn

    def categorical(self, log_p: Floats) -> npt.NDArray[np.intp]:
        """Draw one column index per row of ``log_p`` (rows, outcomes); ``-inf`` is impossible.

        Outcomes are laid out from the least to the most likely, so that the running sum keeps
        the relative precision of the rare ones.
        """
        order = np.argsort(log_p, axis=1, kind="stable")
        heap = np.cumsum(np.exp(np.take_along_axis(log_p, order, axis=1)), axis=1)
        draw = self.uniform(len(log_p))[:, None] * heap[:, -1:]
        place = np.minimum((draw >= heap).sum(axis=1), log_p.shape[1] - 1)
        return np.asarray(np.take_along_axis(order, place[:, None], axis=1)[:, 0])

    def exponential_mechanism(self, scores: Sequence[int], scale: Fraction) -> int:
        """Draw a place with probability proportional to exp(scale x its score), exactly.

        By rejection, in whole numbers throughout. ``scale`` must not be negative.
        """
        best = max(scores)
        while True:
            place = self.below(len(scores))
            lost = scale * (best - scores[place])
            if self._exp_minus(lost.numerator, lost.denominator):
                return place

    def _exp_minus(self, numerator: int, denominator: int) -> bool:
        """Return True with probability exp(-numerator / denominator), by rational coins only.

        The run of successes with chances p/1, p/2, p/3 ... is even with probability exp(-p), for p
        up to 1: one run for each whole part, and one for the rest.
        """
        whole, rest = divmod(numerator, denominator)
        for part, of in chain(repeat((1, 1), whole), [(rest, denominator)]):
            tries = 1
            while self.below(of * tries) < part:
                tries += 1
            if tries % 2 == 0:
                return False
        return True

    def rounded_gaussian(self, sigma: float, count: int) -> npt.NDArray[np.int64]:
        """Draw round(sigma Z), Z standard normal: x has Phi((x+1/2)/sigma) - Phi((x-1/2)/sigma).

        Exact, on the whole line: |x| is how many tails Pr[|X| > k], k = 0, 1 ..., lie above a
        uniform number U. Where the 53 bits of U that are drawn first, or a tail's float, leave a
        doubt, U gets more bits and the tail more digits.
        """
        if not 0 < sigma <= WIDEST_ROUNDED:
            raise InputError("sigma", f"must lie between 0 and {WIDEST_ROUNDED:g}", sigma)
        drawn = np.empty(count, np.int64)
        scale = math.sqrt(2) * sigma
        for start in range(0, count, _RUN):
            size = min(_RUN, count - start)
            draw = self.uniform(size)
            near = np.floor(0.5 - sigma * ndtri(draw / 2))
            below, above = erfc((near + 0.5) / scale), erfc((near - 0.5) / scale)
            sure = (below * (1 + _DOUBT) <= draw) & (draw * (1 + _DOUBT) < above)
            steps = near.astype(np.int64)
            for place in np.flatnonzero(~sure):
                steps[place] = self._settle(sigma, float(draw[place]), int(steps[place]))
            bits = np.unpackbits(np.frombuffer(self.bytes(-(-size // 8)), np.uint8), count=size)
            drawn[start : start + size] = np.where(bits == 1, -steps, steps)
        return drawn

    def _settle(self, sigma: float, draw: float, near: int) -> int:
        """Return the least k with Pr[|X| > k] <= U, where U begins with the bits of ``draw``."""
        import mpmath

        low, width, digits = Fraction(draw), Fraction(float(np.spacing(draw))), 40
        while True:
            width /= 1 << 64
            low += width * int.from_bytes(self.bytes(8), "little")
            digits += 20
            with mpmath.workdps(digits):
                scale = mpmath.sqrt(2) * mpmath.mpf(sigma)
                ends = []
                for end in (low, low + width):
                    at, value = max(near, 0), mpmath.mpf(end.numerator) / end.denominator
                    while mpmath.erfc((at + 0.5) / scale) > value:
                        at += 1
                    while at and mpmath.erfc((at - 0.5) / scale) <= value:
                        at -= 1
                    ends.append(at)
            if ends[0] == ends[1]:
                return ends[0]

    def subset(self, size: int, items: int) -> Sequence[int]:
        """Return a uniform ``size``-subset of ``range(items)`` (Floyd's algorithm)."""
        chosen: set[int] = set()
        for top in range(items - size, items):
            pick = self.below(top + 1)
            chosen.add(top if pick in chosen else pick)
        return sorted(chosen)

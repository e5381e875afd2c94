"""Randomness: exact draws, down to probabilities that a double barely holds."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from privote import entropy as room
from privote.entropy import Entropy


class Bits(Entropy):
    """Bytes that a test chooses."""

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self._data = data

    def bytes(self, count: int) -> bytes:
        head, self._data = self._data[:count], self._data[count:]
        return head.ljust(count, b"\x55")


def test_secure_by_default_and_seeded_only_when_told() -> None:
    assert not Entropy().simulated
    assert Entropy(3).simulated
    assert Entropy().bytes(16) != Entropy().bytes(16)
    assert Entropy(3).bytes(16) == Entropy(3).bytes(16)
    assert "3" not in repr(Entropy(3))


def test_uniform_is_uniform_and_below_one() -> None:
    draws = Entropy(0).uniform(200_000)
    assert (draws >= 0).all()
    assert (draws < 1).all()
    assert stats.kstest(draws, "uniform").pvalue > 1e-3
    # Full precision near zero: small draws are not on a grid of 2^-53.
    small = draws[draws < 2**-9]
    assert len(small) > 100
    assert (np.ldexp(small, 62) % 1 != 0).any()


def test_uniform_never_rounds_up() -> None:
    # All bits one: the largest draw stays below 1, whatever rounding would like.
    assert Bits(b"\xff" * 8).uniform(1)[0] == np.nextafter(1.0, 0.0)


@pytest.mark.parametrize("p", [0.5, 0.3, 1e-3, 1 / 65536, 1e-6, 1 - 1e-6])
def test_bernoulli_has_the_stated_probability(p: float) -> None:
    count = 2_000_000
    log_one, log_zero = np.array(math.log(p)), np.array(math.log1p(-p))
    index = np.zeros(count, np.int64)
    ones = int(Entropy(1).bernoulli(log_one[None], log_zero[None], index).sum())
    assert stats.binomtest(ones, count, p).pvalue > 1e-4


def test_bernoulli_decides_ties_by_further_bits() -> None:
    # p = 2^-20: sixteen zero bits are a tie, and the next draw must fall below 2^-4.
    p = 2.0**-20
    log_one, log_zero = np.array([math.log(p)]), np.array([math.log1p(-p)])

    def word(fraction: float) -> bytes:
        return int(fraction * 2**62).to_bytes(8, "little")

    for fraction, expected in ((1 / 17, True), (1 / 15, False)):
        drawn = Bits(b"\x00\x00" + word(fraction)).bernoulli(log_one, log_zero)
        assert bool(drawn[0]) is expected


def test_neither_outcome_is_lost_near_certainty() -> None:
    # Pr[0] = 1e-30 would vanish in 1 - p; here its bits are compared, and all-zero bits give it.
    log_one, log_zero = np.array([-1e-30]), np.array([math.log(1e-30)])
    assert not Bits(b"\x00" * 64).bernoulli(log_one, log_zero)[0]
    assert Bits(b"\x01" * 64).bernoulli(log_one, log_zero)[0]


def test_table_and_elementwise_agree() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(50)
    index = rng.integers(0, 50, (40, 30))
    by_table = Entropy(5).bernoulli(np.log(p), np.log1p(-p), index)
    directly = Entropy(5).bernoulli(np.log(p)[index], np.log1p(-p)[index])
    np.testing.assert_array_equal(by_table, directly)


def test_categorical_has_the_stated_probabilities() -> None:
    p = np.array([0.5, 0.3, 0.19, 0.01, 0.0])
    with np.errstate(divide="ignore"):
        table = np.broadcast_to(np.log(p), (200_000, 5))
    counts = np.bincount(Entropy(2).categorical(table), minlength=5)
    assert counts[4] == 0
    assert stats.chisquare(counts[:4], 200_000 * p[:4]).pvalue > 1e-3


@pytest.mark.parametrize("seed", [None, 4])
def test_below_and_subset_are_uniform(seed: int | None) -> None:
    entropy = Entropy(seed)
    counts = np.bincount([entropy.below(7) for _ in range(7000)], minlength=7)
    assert stats.chisquare(counts).pvalue > 1e-5
    assert 0 <= entropy.below(10**500) < 10**500
    picked: dict[tuple[int, ...], int] = {}
    for _ in range(6000):
        chosen = tuple(entropy.subset(2, 4))
        picked[chosen] = picked.get(chosen, 0) + 1
    assert len(picked) == 6
    assert stats.chisquare(list(picked.values())).pvalue > 1e-5


@pytest.mark.parametrize("sigma", [0.2, 0.7, 2.5, 40.0])
@pytest.mark.parametrize("seed", [None, 7])
def test_rounded_gaussian_follows_its_probabilities(sigma: float, seed: int | None) -> None:
    draws = Entropy(seed).rounded_gaussian(sigma, 400_000)
    x = np.arange(-400, 401)
    pmf = np.where(
        x > 0,
        ndtr((0.5 - x) / sigma) - ndtr((-0.5 - x) / sigma),
        ndtr((x + 0.5) / sigma) - ndtr((x - 0.5) / sigma),
    )
    seen = np.bincount(draws + 400, minlength=801)
    assert seen[pmf * len(draws) < 1e-8].sum() == 0
    likely = pmf * len(draws) >= 8
    # All of a tail together, each on its own side.
    expected, counted = [pmf[likely] * len(draws)], [seen[likely]]
    for side in (x < 0, x > 0):
        expected.append([pmf[side & ~likely].sum() * len(draws)])
        counted.append([seen[side & ~likely].sum()])
    wanted, got = np.concatenate(expected), np.concatenate(counted)
    keep = wanted > 1
    statistic = ((got - wanted) ** 2 / np.maximum(wanted, 1e-9))[keep].sum()
    assert statistic < stats.chi2.isf(1e-6, keep.sum() - 1)


def test_rounded_gaussian_has_the_tails_of_its_distribution() -> None:
    # A draw of which the first 62 bits are zero, and then some: no table that ends could give it.
    word = (1 << 62).to_bytes(8, "little")
    tail = Bits(b"\x00" * 8 + word + b"\x00").rounded_gaussian(3.0, 1)[0]
    value = 2.0**-64  # Pr[|X| > k] for the k below
    assert 2 * ndtr(-(tail + 0.5) / 3.0) <= value < 2 * ndtr(-(tail - 0.5) / 3.0)
    assert tail == 27
    minus = Bits(b"\x00" * 8 + word + b"\x80").rounded_gaussian(3.0, 1)[0]
    assert minus == -27


@pytest.mark.parametrize("sigma", [0.9, 3.0, 1e4, 3e8])
def test_rounded_gaussian_settles_doubts_with_more_bits(sigma: float) -> None:
    # The float nearest to a tail: only the bits after it say on which side the draw lies.
    for k in (0, math.ceil(sigma), math.ceil(4 * sigma)):
        with mpmath.workdps(60):
            tail = mpmath.erfc((k + mpmath.mpf(0.5)) / (mpmath.sqrt(2) * mpmath.mpf(sigma)))
            value, exponent = math.frexp(float(tail))
            start = math.ldexp(math.floor(math.ldexp(value, 53)), exponent - 53)
            if mpmath.mpf(start) > tail:
                start = float(np.nextafter(start, 0.0))
            width = mpmath.mpf(float(np.spacing(start)))
            rest = int(mpmath.floor((tail - mpmath.mpf(start)) / width * 2**64))
        for more, expected in ((rest - 1, k + 1), (rest + 1, k)):
            if 0 <= more < 2**64:
                bits = Bits(more.to_bytes(8, "little"))
                assert bits._settle(sigma, start, k) == expected
                assert bits._settle(sigma, start, k + 2) in (k, k + 1)


def test_rounded_gaussian_is_whole_numbers_of_any_size() -> None:
    assert Entropy().rounded_gaussian(5.0, 3).dtype == np.int64
    assert Entropy().rounded_gaussian(5.0, 0).shape == (0,)
    assert (Entropy().rounded_gaussian(1e-3, 1000) == 0).all()
    assert (Entropy(3).rounded_gaussian(4.0, 9) == Entropy(3).rounded_gaussian(4.0, 9)).all()
    wide = Entropy(1).rounded_gaussian(1e9, 2000)
    assert 0.9e9 < wide.std() < 1.1e9


@pytest.mark.parametrize("run", [2, 6, 1 << 16])
@pytest.mark.parametrize("zeros", [False, True])  # zeros tie with what is rarer than 2^-16
def test_draws_do_not_depend_on_how_many_are_worked_out_at_a_time(
    run: int, zeros: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = np.tile([0.3, 1e-6, 0.999, 1e-5], 500)

    def drawn() -> tuple[list[bool], bytes]:
        source = Bits(bytes(2 * len(p)) + Entropy(3).bytes(9000)) if zeros else Entropy(3)
        return source.bernoulli(np.log(p), np.log1p(-p)).tolist(), source.bytes(8)

    wanted = drawn()
    monkeypatch.setattr(room, "_RUN", run)
    assert drawn() == wanted
    assert len(set(wanted[0])) == 2

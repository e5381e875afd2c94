"""Ballots whose numbers lie, and plans of polls that promise what a poll does not give."""

from __future__ import annotations

import itertools
import re
import tracemalloc
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr
from tests.attacks.conftest import Outcome, accepted, full, scaled, time_limit
from tests.attacks.test_files import got_through
from tests.polls.test_reading import CAT, LIST, LISTED, PB, POINTS, SOI, WIDE

from privote.errors import PrivoteError
from privote.polls import read
from privote.polls.mechanisms import Greedy, NoisyBits, NoisyCounts, Peeling, PollSize, Quota, Seats
from privote.polls.planning import plan_poll
from privote.votes.cube import MOST

_MEMORY = 32 << 20  # bytes: a file of a few hundred has no use for more
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "x.cat": (CAT, {}),
    "x.soi": (SOI, {"top": 2}),
    "x.pb": (POINTS, {}),
    "y.pb": (PB, {}),
    "wide.csv": (WIDE, {}),
    "points.csv": ("voter,Ada,Bo,Cy\nann,3,0,1\nben,2,,1\n", {"each": 3, "most": 5}),
    "list.csv": (LIST, LISTED),
}
NUMBERS = (
    "0", "00", "-1", "+2", "1.5", "1e3", "1e999999999", "1e-999999999", "1/3", "1/0", "nan", "inf",
    "20000000", "40000", "32767", "32768", "99999999999", "\u0661\u0662", "\u00b2", "1_0", "1 2",
    *map(str, (2**63 - 1, 2**63, 2**64 - 8, 2**64 + 3, 10**12, 10**12 + 1, 10**21)),
    "", "9" * 400, "9" * 5000, "0" * 5000 + "1",
)  # fmt: skip


def _checked(path: Path, more: dict[str, Any]) -> Any:
    """Read ballots, and judge what was accepted: nothing negative, nothing beyond its bound."""
    found = read(path, **more)
    counts, voters = found.counts, found.voters
    assert 0 < voters <= MOST, f"{voters} voters"
    assert (counts >= 0).all(), f"counts {counts}"
    assert (counts <= voters * found.size.each).all(), f"counts {counts} of {voters} voters"
    return found.size


def _lied(text: str, rng: np.random.Generator) -> str:
    """Return the text with some numbers replaced, or lines and letters moved about."""
    kind = rng.integers(3)
    if kind == 0:
        several = 2 / max(1, len(re.findall(r"\d+", text)))
        return re.sub(
            r"\d+", lambda it: str(rng.choice(NUMBERS)) if rng.random() < several else it[0], text
        )
    if kind == 1:
        lines = text.splitlines(keepends=True)
        return "".join(lines[at] for at in rng.integers(len(lines), size=len(lines)))
    letters = list(text)
    for at in rng.integers(len(letters), size=3):
        letters[at] = str(rng.choice(list('{},:;"\t\n #\x00é0193-')))
    return "".join(letters)


def _judged(lies: Iterable[tuple[str, str]], folder: Path) -> Iterator[str | None]:
    """Yield what got through of each: another error, or too much memory."""
    tracemalloc.start()
    try:
        for name, lie in lies:
            (folder / name).write_bytes(lie.encode())
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            what = got_through(lambda path: _checked(path, FORMS[path.name][1]), folder / name)
            used = tracemalloc.get_traced_memory()[1] - before
            what = what or (f"{used >> 20} MB" if used > _MEMORY else None)
            yield what and f"{name}: {what:.200}\n{lie[:400]}"
    finally:
        tracemalloc.stop()


def _one_by_one() -> Iterator[tuple[str, str]]:
    """Yield each file with each of its numbers replaced by each of the strange ones."""
    for name, (text, _) in FORMS.items():
        places = enumerate(re.finditer(r"\d+", text))
        for (at, match), (which, value) in itertools.product(places, enumerate(NUMBERS)):
            if (at + which) % scaled(7, 1) == 0:
                yield name, text[: match.start()] + value + text[match.end() :]


def test_numbers_of_a_poll_are_bounded(tmp_path: Path, outcome: Outcome) -> None:
    outcome.of("a number in a file of ballots", _judged(_one_by_one(), tmp_path))


def test_damaged_files_of_ballots_are_one_sentence(tmp_path: Path, outcome: Outcome) -> None:
    rng = np.random.default_rng(5)
    lies = ((name, _lied(FORMS[name][0], rng)) for _ in range(scaled(60, 4000)) for name in FORMS)
    outcome.of("a damaged file of ballots", _judged(lies, tmp_path))


def test_voters_add_up_or_are_refused(tmp_path: Path, outcome: Outcome) -> None:
    """Many lines, each within the bound; and lines over which a pattern could go back and forth."""
    head = CAT[: CAT.index("13:")].replace("# NUMBER VOTERS: 16\n", "")
    lies = [head + f"{MOST}: {{1,2}},{{3}}\n" * lines for lines in (2, 20_000)]
    lies += [head + "1:" + " " * 200_000 + "x\n", head + "1: " + "{1} " * 50_000 + "\n"]
    found = []
    for lie in lies:
        (tmp_path / "x.cat").write_text(lie)
        with time_limit():
            found.append(accepted(PrivoteError, read, tmp_path / "x.cat"))
    outcome.of("voters beyond all bounds, line by line", found)


# -- plans -----------------------------------------------------------------------------------------


def _noise(sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the integers and their probabilities under the rounded Gaussian."""
    x = np.arange(-int(14 * sigma) - 2, int(14 * sigma) + 3)
    return x, np.diff(ndtr((np.append(x, x[-1] + 1) - 0.5) / sigma))


def _own_side(mechanism: Any, count: int, bar: float) -> float:
    """Return how often one option with this count comes out on its side of the bar."""
    if isinstance(mechanism, NoisyBits):
        return float(ndtr(np.sqrt(2) * abs(count - bar) / mechanism.sigma))
    x, p = _noise(mechanism.sigma)
    return float(p[(count + x > bar) == (count > bar)].sum())


def test_a_quota_poll_decides_what_it_says(outcome: Outcome) -> None:
    """Options as far from the bar as the plan says, on either side, by the noise's own sums."""
    voters, options = ((20, 101, 1000), (2, 5, 40)) if full() else ((20, 101), (2, 5))
    kinds = (("auto", False), ("binary", False), ("counts", False), ("counts", True))
    found = []
    for n, k, share, epsilon in itertools.product(
        voters, options, (0.1, 0.3, 0.5, 2 / 3), (0.3, 1.0, 4.0, 16.0)
    ):
        size, rule, bar = PollSize(voters=n, options=k, most=k), Quota(share=share), share * n
        for name, shares in kinds if full() else kinds[1:]:
            given: dict[str, Any] = {"epsilon": epsilon, "delta": 1e-6, "shares": shares}
            plan = plan_poll(size, rule, **given, mechanism=name)
            far = [c for c in range(n + 1) if abs(c - bar) >= plan.gap - 1e-9]
            if far:
                right = min(_own_side(plan.mechanism, c, bar) for c in far)
                found.append(right**k < plan.confidence)
    outcome.of("a quota poll decides less often than it says", found)


def test_a_poll_orders_two_options_as_often_as_it_says(outcome: Outcome) -> None:
    size = PollSize(voters=1000, options=2, most=2)
    greedy = Greedy(costs=(Fraction(1), Fraction(1)), money=Fraction(1))
    found = []
    for rule, shares, epsilon in itertools.product(
        (Seats(number=1), greedy), (False, True), np.geomspace(0.3, 30.0, scaled(12, 60))
    ):
        plan = plan_poll(size, rule, epsilon=float(epsilon), delta=1e-6, shares=shares)
        if isinstance(plan.mechanism, Peeling):
            right = 1 / (1 + np.exp(-plan.mechanism.rate * plan.gap))
        else:
            assert isinstance(plan.mechanism, NoisyCounts)
            x, p = _noise(plan.mechanism.sigma)
            apart = np.subtract.outer(x, x)  # a tie is decided by a coin
            both = np.multiply.outer(p, p)
            right = both[apart < plan.gap].sum() + both[apart == plan.gap].sum() / 2
        found.append(right < plan.confidence)
    outcome.of("a poll orders options less often than it says", found)

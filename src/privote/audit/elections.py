"""Random small elections of many kinds, for the audit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .textbook import Ints, Textbook

Generator = np.random.Generator


def random_elections(book: Textbook, elections: int, rng: Generator) -> Ints:
    """Return which ballot each voter casts: (elections, voters) places in ``book.ballots``."""
    styles = (_arbitrary, _unanimous, _one_against_all, _tied, _correlated, _leaning, _few_kinds)
    return np.stack([styles[i % len(styles)](book, rng) for i in range(elections)])


def _any(book: Textbook, rng: Generator, size: int) -> Ints:
    return rng.integers(len(book.ballots), size=size)


def _arbitrary(book: Textbook, rng: Generator) -> Ints:
    return _any(book, rng, book.voters)


def _unanimous(book: Textbook, rng: Generator) -> Ints:
    return np.repeat(_any(book, rng, 1), book.voters)


def _one_against_all(book: Textbook, rng: Generator) -> Ints:
    cast = _unanimous(book, rng)
    cast[rng.integers(book.voters)] = _any(book, rng, 1)[0]
    return cast


def _tied(book: Textbook, rng: Generator) -> Ints:
    """Two ballots share the voters evenly: often one and its opposite, so every label ties."""
    one = int(_any(book, rng, 1)[0])
    opposite = np.where(book.ballots[one] == -1, -1, 1 - book.ballots[one])
    match = np.flatnonzero((book.ballots == opposite).all(axis=1))
    two = int(match[0]) if len(match) else int(_any(book, rng, 1)[0])
    return np.array([one, two] * book.voters, np.int64)[: book.voters]


def _correlated(book: Textbook, rng: Generator) -> Ints:
    """Most repeat one ballot, the rest vote as they like."""
    leader = rng.random(book.voters) < rng.choice([0.5, 0.7, 0.9])
    return np.where(leader, _unanimous(book, rng), _arbitrary(book, rng))


def _leaning(book: Textbook, rng: Generator) -> Ints:
    """Sparse, dense or largely missing ballots: each yes and each gap is that much likelier."""
    yes, gap = ((book.ballots == vote).sum(axis=1) for vote in (1, -1))
    lean: npt.NDArray[np.float64] = rng.choice([0.05, 0.3, 3.0, 20.0]) ** yes * (
        rng.choice([0.1, 1.0, 10.0]) ** gap
    )
    return rng.choice(len(book.ballots), size=book.voters, p=lean / lean.sum())


def _few_kinds(book: Textbook, rng: Generator) -> Ints:
    """Three ballots only: many ties in counts, many unvoted classes."""
    kinds = _any(book, rng, 3)
    return np.asarray(kinds[rng.integers(3, size=book.voters)])

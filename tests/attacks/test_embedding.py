"""Attacks on a public embedding: functions whose place for a row depends on other rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.preprocessing import FunctionTransformer
from tests.attacks.conftest import Outcome

from privote.errors import InputError
from privote.learning.embedding import embed, fit_embedding

Floats = npt.NDArray[np.float64]
Function = Callable[[Any], Any]

RNG = np.random.default_rng(0)
PUBLIC, PRIVATE = RNG.normal(size=(300, 6)), RNG.normal(size=(301, 6))

#: What a batch tells: one number a feature, or one number.
SUMMARIES: dict[str, Callable[[Floats], Any]] = {
    "mean": lambda rows: rows.mean(axis=0),
    "median": lambda rows: np.median(rows, axis=0),
    "deviation": lambda rows: rows.std(axis=0),
    "largest": lambda rows: rows.max(axis=0),
    "smallest": lambda rows: rows.min(axis=0),
    "first": lambda rows: rows[0],
    "last": lambda rows: rows[-1],
    "size": lambda rows: len(rows) / 50,
    "sum": lambda rows: rows.sum(axis=0) / 30,
    "norm": lambda rows: np.linalg.norm(rows) / 20,
    "the whole array": lambda rows: (rows if rows.base is None else rows.base).mean(axis=0),
}

#: Which rows it is used on.
WHERE: dict[str, Callable[[Floats], npt.NDArray[np.bool_]]] = {
    "every row": lambda rows: np.ones(len(rows), bool),
    "the first": lambda rows: np.arange(len(rows)) == 0,
    "the last": lambda rows: np.arange(len(rows)) == len(rows) - 1,
    "all but the first": lambda rows: np.arange(len(rows)) > 0,
    "beyond the eighth": lambda rows: np.arange(len(rows)) >= 8,
    "rare rows": lambda rows: rows[:, 0] > 2.0,
    "many rows": lambda rows: np.full(len(rows), len(rows) > 100),
}

#: How.
USES: dict[str, Callable[[Floats, Any], Floats]] = {
    "less": lambda rows, told: rows - told,
    "times": lambda rows, told: rows * (1 + np.abs(told)),
    "a hair": lambda rows, told: rows + 1e-3 * np.tanh(told),
}


def functions() -> Iterator[Function]:
    """Yield functions of a batch: nearly all depend on the rows that come with a row."""
    for told, (where, use) in product(SUMMARIES.values(), product(WHERE.values(), USES.values())):

        def mixed(rows: Any, told: Any = told, where: Any = where, use: Any = use) -> Any:
            return np.where(where(rows)[:, None], use(rows, told(rows)), rows)

        yield mixed
    yield lambda rows: rows.argsort(axis=0).argsort(axis=0)  # ranks
    yield lambda rows: rows[np.argsort(rows[:, 0])]
    yield lambda rows: rows[::-1]
    yield lambda rows: np.cumsum(rows, axis=0)
    yield lambda rows: rows @ np.linalg.svd(rows, full_matrices=False)[2].T
    yield lambda rows: np.roll(rows, 1, axis=0)
    yield from (_Memory(kind) for kind in ("mean", "count", "last"))


class _Memory:
    """A function that remembers what it was given before."""

    def __init__(self, kind: str) -> None:
        self.kind, self.seen = kind, [np.zeros(PUBLIC.shape[1])]

    def __call__(self, rows: Any) -> Any:
        before = self.seen[-1] if self.kind == "last" else np.mean(self.seen, axis=0)
        told = len(self.seen) / 50 if self.kind == "count" else before
        self.seen += list(rows)
        return rows + told


def gets_through(embedding: Any) -> bool:
    """Return True if it is taken, and one record moves another."""
    moved = PRIVATE.copy()
    moved[150] = 9.0
    try:
        mapping = fit_embedding(embedding, PUBLIC)
        found = [np.asarray(embed(mapping, rows)) for rows in (PRIVATE, moved, PRIVATE[:-1])]
    except InputError:
        return False
    others = np.arange(len(PRIVATE)) != 150
    return not (
        np.array_equal(found[0][others], found[1][others])
        and np.array_equal(found[0][:-1], found[2])
    )


def test_no_function_of_a_batch_gets_through(outcome: Outcome) -> None:
    tried = [gets_through(function) for function in functions()]
    outcome("embeddings that mix records", len(tried), sum(tried))


def test_nor_does_a_transformer_that_looks_at_the_batch(outcome: Outcome) -> None:
    tried = [
        gets_through(FunctionTransformer(function))
        for function in functions()
        if not isinstance(function, _Memory)
    ]
    outcome("transformers that mix records", len(tried), sum(tried))


def test_what_maps_each_row_by_itself_is_taken() -> None:
    for function in (lambda rows: rows * 2, lambda rows: np.sign(rows), lambda rows: rows[:, :2]):
        mapping = fit_embedding(function, PUBLIC)
        np.testing.assert_allclose(embed(mapping, PRIVATE), function(PRIVATE), rtol=1e-6)

"""Attacks on what maps private rows: a row's place, vote or gradient that hangs on other rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.preprocessing import FunctionTransformer
from tests.attacks.conftest import Outcome, scaled

from privote.errors import InputError
from privote.learning.direct.linear import DPLinear, DPMoments, PrivateLinear, clipped_sum
from privote.learning.embedding import Embedding, embed, fit_embedding
from privote.learning.neighbours import NeighbourBallots
from privote.learning.tables import TableEncoder

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


#: Rows that rounding shows in: many features, in single precision.
POOL, ROWS = (RNG.normal(size=(many, 61)).astype(np.float32) for many in (200, 420))
WORDS = [sp.random(many, 61, 0.2, "csr", np.float32, RNG) for many in (200, 420)]


def sizes() -> Iterator[tuple[int, int]]:
    """Yield numbers of private rows, and at which place one more is put in."""
    for size in np.unique(np.linspace(1, 418, scaled(24, 418)).astype(int)):
        yield int(size), int(RNG.integers(0, size + 1))


def moved(mapping: Function, rows: Any) -> int:
    """Return at how many sizes one more row changes a bit of the others."""
    through = 0
    for size, place in sizes():
        others = np.delete(np.arange(size + 1), place)
        alone, together = (mapping(part) for part in (rows[others], rows[: size + 1]))
        alone, kept = (
            part.toarray() if sp.issparse(part) else np.asarray(part)
            for part in (alone, together[others])
        )
        through += alone.tobytes() != kept.tobytes()
    return through


def test_one_more_row_changes_no_bit_of_the_others(outcome: Outcome) -> None:
    tried = through = 0
    maps: list[tuple[str, Any, Any]] = [
        *(("pca:40", POOL, ROWS), ("std:17", POOL, ROWS), ("pca:9", POOL.astype(float), ROWS)),
        *(("lsa:20", *WORDS), ("tfidf", *WORDS)),
    ]
    for rule, public, rows in maps:
        mapping = fit_embedding(rule, public)
        through += moved(lambda part, mapping=mapping: embed(mapping, part), rows)
        tried += len(list(sizes()))
    outcome("rows that another row moves in an embedding", tried, through)


def test_rows_go_one_by_one_where_places_in_a_block_round_differently() -> None:
    def shifted(rows: Any) -> Any:
        return rows + 1e-9 * np.arange(len(rows))[:, None] % 7

    places = Embedding(FunctionTransformer(shifted))
    found = embed(places, ROWS[:50])
    assert np.array_equal(found, ROWS[:50])


def test_nor_of_their_design(outcome: Outcome) -> None:
    tried = through = 0
    models: list[PrivateLinear] = [
        *(DPLinear(embedding="pca:40"), DPLinear(embedding=None, normalise=False), DPMoments()),
    ]
    for model in models:
        model.n_features_in_ = POOL.shape[1]
        model._look(POOL, len(ROWS), 4)
        for rows in (ROWS, np.asfortranarray(ROWS)):
            through += moved(lambda part, own=model: own._design(own._read(part)), rows)
            tried += len(list(sizes()))
    outcome("rows that another row moves in a linear model's design", tried, through)


def test_nor_of_their_gradients(outcome: Outcome) -> None:
    tried = through = 0
    design = np.hstack([ROWS.astype(np.float64), np.ones((len(ROWS), 1))])
    weights = RNG.normal(size=(62, 5)) / 8
    for size, place in sizes():
        labels = np.full((size + 1, 5), -1, np.int8)  # which add nothing
        others = np.delete(np.arange(size + 1), place)
        labels[others[-1]] = RNG.integers(0, 2, 5)  # at an edge, where a product is cut
        alone, together = (
            clipped_sum(design[some], labels[some], weights, -1.0, 1.0)[0]
            for some in (others, np.arange(size + 1))
        )
        assert alone.any()
        tried, through = tried + 1, through + (alone.tobytes() != together.tobytes())
    outcome("gradients of a linear model that another record moves", tried, through)


def test_nor_of_their_ballots(outcome: Outcome) -> None:
    labels, tried, through = RNG.random((420, 3)) < 0.4, 0, 0
    for size, place in list(sizes())[:: scaled(4, 8)]:
        for metric in ("cosine", "euclidean"):
            others = np.delete(np.arange(size + 1), place)
            cast = []
            for some in (others, np.arange(size + 1)):
                ballots = NeighbourBallots(
                    ROWS[some], labels[some], POOL, 0.2, metric, embedding="pca:40"
                )
                (block,) = ballots.blocks()
                who = zip(block.query, some[block.voter], block.votes.tolist(), strict=True)
                cast.append({(query, voter): votes for query, voter, votes in who})
            cast[1] = {key: votes for key, votes in cast[1].items() if key[1] != place}
            tried, through = tried + 1, through + (cast[0] != cast[1])
    outcome("ballots of neighbours that another record moves", tried, through)


def test_nor_of_a_table(outcome: Outcome) -> None:
    words = np.array(["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"])
    table = {
        "age": RNG.normal(50, 20, 420),
        "when": np.array(RNG.integers(0, 20_000, 420), "M8[D]").astype(str),
        "said": np.array([" ".join(RNG.choice(words, 6)) for _ in range(420)]),
    }
    encoder = TableEncoder().fit({name: cells[:200].tolist() for name, cells in table.items()})
    rows = np.arange(420)

    def encoded(part: Any) -> Any:
        return encoder.numbers({name: cells[part].tolist() for name, cells in table.items()})

    outcome("rows of a table that another row moves", len(list(sizes())), moved(encoded, rows))

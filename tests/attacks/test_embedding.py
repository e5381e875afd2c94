"""Attacks on what maps private rows: a row's place, vote or gradient that hangs on other rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import PCA
from sklearn.preprocessing import FunctionTransformer
from tests.attacks.conftest import Outcome, scaled
from tests.refusals import refused

from privote.learning.embedding import Embedding, Landmarks, embed, fit_embedding
from privote.learning.gradients import DPLinear, clipped_sum
from privote.learning.moments import DPMoments
from privote.learning.neighbours import NeighbourBallots
from privote.learning.rows import same_anywhere
from privote.learning.tables import TableEncoder

Function = Callable[[Any], Any]

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("given", [np.tanh, PCA(2), FunctionTransformer(np.tanh)], ids=type)
def test_maps_that_may_look_at_a_batch_are_refused(given: Any) -> None:
    """What a map of somebody's own looks at cannot be known: embeddings have names."""
    with refused("embedding"):
        fit_embedding(given, RNG.normal(size=(300, 6)))


#: Rows that rounding shows in: many features, in single precision.
POOL, ROWS = (RNG.normal(size=(many, 61)).astype(np.float32) for many in (200, 420))
SCENES = RNG.random((420, 256)).astype(np.float32)
WORDS = [sp.random(many, 61, 0.2, "csr", np.float32, RNG) for many in (200, 420)]


def sizes() -> Iterator[tuple[int, int]]:
    """Yield numbers of private rows, and at which place one more is put in."""
    for size in np.unique(np.linspace(1, 418, scaled(24, 418)).astype(int)):
        yield int(size), int(RNG.integers(0, size + 1))


def moved(mapping: Function, rows: Any) -> Iterator[bool]:
    """Yield at each size whether one more row changes a bit of the others."""
    for size, place in sizes():
        others = np.delete(np.arange(size + 1), place)
        alone, together = (mapping(part) for part in (rows[others], rows[: size + 1]))
        alone, kept = (
            part.toarray() if sp.issparse(part) else np.asarray(part)
            for part in (alone, together[others])
        )
        yield alone.tobytes() != kept.tobytes()


def test_one_more_row_changes_no_bit_of_the_others(outcome: Outcome) -> None:
    found: list[bool] = []
    maps: list[tuple[str, Any, Any]] = [
        *(("pca:40", POOL, ROWS), ("std:17", POOL, ROWS), ("pca:9", POOL.astype(float), ROWS)),
        *(("lsa:20", *WORDS), ("tfidf", *WORDS)),
    ]
    for rule, public, rows in maps:
        mapping = fit_embedding(rule, public)
        found += moved(lambda part, mapping=mapping: embed(mapping, part), rows)
    found += moved(Landmarks().fit(SCENES[:200]).transform, SCENES)
    outcome.of("rows that another row moves in an embedding", found)


def test_rows_go_one_by_one_where_places_in_a_block_round_differently() -> None:
    def shifted(rows: Any) -> Any:
        return rows + 1e-9 * np.arange(len(rows))[:, None] % 7

    assert same_anywhere(np.tanh, (8, 3))
    assert not same_anywhere(shifted, (8, 3))
    places = Embedding(FunctionTransformer(shifted))
    found = embed(places, ROWS[:50])
    assert np.array_equal(found, ROWS[:50])


def test_nor_of_their_design(outcome: Outcome) -> None:
    found: list[bool] = []
    plain = DPLinear(embedding=None, normalise=False)
    for model in (DPLinear(embedding="pca:40"), plain, DPMoments()):
        model.n_features_in_ = POOL.shape[1]
        model._look(POOL, len(ROWS), 4)
        for rows in (ROWS, np.asfortranarray(ROWS)):
            found += moved(lambda part, own=model: own._design(own._read(part)), rows)
    outcome.of("rows that another row moves in a linear model's design", found)


def test_nor_of_their_gradients(outcome: Outcome) -> None:
    found = []
    design = np.hstack([ROWS.astype(np.float64), np.ones((len(ROWS), 1))])
    weights = RNG.normal(size=(62, 5)) / 8
    for size, place in sizes():
        labels = np.full((size + 1, 5), -1, np.int8)  # which add nothing
        others = np.delete(np.arange(size + 1), place)
        labels[others[-1]] = RNG.integers(0, 2, 5)  # at an edge, where a product is cut
        alone, together = (
            clipped_sum(design[some], labels[some], weights, -1.0, 1.0)
            for some in (others, np.arange(size + 1))
        )
        assert alone.any()
        found.append(alone.tobytes() != together.tobytes())
    outcome.of("gradients of a linear model that another record moves", found)


def test_nor_of_their_ballots(outcome: Outcome) -> None:
    labels, found = RNG.random((420, 3)) < 0.4, []
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
            found.append(cast[0] != cast[1])
    outcome.of("ballots of neighbours that another record moves", found)


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

    outcome.of("rows of a table that another row moves", moved(encoded, rows))

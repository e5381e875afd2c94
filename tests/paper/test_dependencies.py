"""Small versions of ``experiments/dependencies.py`` and ``experiments/extreme.py``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import privote as pv

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"


def script(name: str) -> ModuleType:
    """Load an experiment from its file: it is no part of a package."""
    called = f"experiment_{name}"
    spec = importlib.util.spec_from_file_location(called, EXPERIMENTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[called] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_gated_answers_more_queries_within_the_same_budget() -> None:
    ways = script("dependencies")
    rng = np.random.default_rng(0)
    truth = rng.random((200, 5)) < 0.4
    truth[:, 1:] &= truth[:, :1]
    votes = truth[:, None] ^ (rng.random((200, 30, 5)) < 0.05)
    found = ways.in_worst_case(votes, truth, 6.0, 0)
    queries = {name: row[0] for name, row in found.items()}
    assert queries["gated"] > 1.5 * queries["every label"]
    assert queries["more noise"] == queries["gated"]
    assert found["more noise"][1] > 6.0
    assert found["every label, same queries"][2] > ways.EPSILON
    accuracy = {name: row[3] for name, row in found.items()}
    assert accuracy["gated"] > accuracy["indicator only, same queries"]
    assert ways.until_one_runs_out(votes, 6.0, 0)[1] >= ways.until_one_runs_out(votes, 6.0, 0)[0]


def test_a_family_has_an_indicator_that_the_others_imply() -> None:
    rng = np.random.default_rng(1)
    truth = rng.random((2000, 12)) < 0.2
    truth[:, [5, 7, 8, 9]] &= rng.random((2000, 4)) < 0.4  # or it would be there in most queries
    truth[:, 3] |= truth[:, [5, 7, 8, 9]].any(axis=1)
    chosen = script("dependencies").family(truth)
    assert chosen[0] == 3
    assert set(chosen[1:]) == {5, 7, 8, 9}


def test_the_published_matrices_are_read() -> None:
    for name, labels in (("chexpert", 11), ("padchest", 15), ("chexpert_negative", 5)):
        names, matrix = script("dependencies").published(name)
        assert matrix.shape == (labels, labels) == (len(names), len(names))
        assert (np.diag(matrix) == 1).all()


def test_a_small_map_by_pixel_and_by_region() -> None:
    extreme = script("extreme")
    found = extreme.rows((6, 8), 4, 1, ("Binary",))
    assert list(found) == ["by pixel, 48 labels", "by region, 4 labels"]
    for table in found.values():
        assert table[1].epsilon <= extreme.EPSILON < table[0].epsilon or table[0].labels < 10
        assert all(row.here <= row.epsilon * (1 + 1e-9) for row in table)
    pixel, region = (table[0] for table in found.values())
    assert pixel.accuracy > 0.8
    assert region.epsilon < pixel.epsilon


@pytest.mark.parametrize("labels", [1_000, 40_000])
def test_powerset_draws_and_prices_a_map_without_listing_its_sets(labels: int) -> None:
    size = next(size for at, (size, _) in script("extreme").MAPS.items() if at == labels)
    truth = script("extreme").shapes(size, np.random.default_rng(0)).reshape(-1)
    votes = np.repeat(truth[None, None], 20, axis=1)  # of one mind, or no set could win
    mechanism = pv.PowersetVoting(sigma=0.25 * 20 / np.sqrt(2 * labels * np.log(2)))
    np.testing.assert_array_equal(mechanism.release(votes, seed=0)[0], truth)
    orders = np.array([2.0, 8.0])
    most = mechanism.worst_case_rdp(20, labels, orders, bound="gaussian")
    assert (mechanism.rdp(votes, orders)[0] <= most).all()

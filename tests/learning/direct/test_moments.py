"""Moments: one noisy sum of features times labels, what it costs, and what is made of it."""

from __future__ import annotations

import itertools
import math

import dp_accounting
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import norm

import privote as pv
from privote.learning.direct.linear import DPMoments, moments, on_the_ball
from privote.learning.direct.noise import Noise, TrainingPlan

RNG = np.random.default_rng(0)
DELTA = 1e-5
WEIGHTS = RNG.normal(size=(8, 3))
PUBLIC = RNG.normal(size=(400, 8))
X = RNG.normal(size=(3000, 8))
Y = (X @ WEIGHTS + RNG.normal(size=(3000, 3)) > [1.0, 3.0, 4.0]).astype(np.int8)
TEST = RNG.normal(size=(1000, 8))
TRUTH = (TEST @ WEIGHTS + RNG.normal(size=(1000, 3)) > [1.0, 3.0, 4.0]).astype(np.int8)


def _contribution(x, c, tau):
    return moments(np.append(x, 1.0)[None], np.asarray(c, np.int8)[None], None, tau)


@pytest.mark.parametrize("tau", [1.0, 1.5, 2.0, 3.0])
def test_no_pair_of_small_records_moves_the_sum_by_more_and_some_reach_it(tau):
    angles = np.linspace(0, 2 * math.pi, 8, endpoint=False)
    rows = [r * np.array([math.cos(a), math.sin(a)]) for r in (0.0, 0.5, 1.0) for a in angles]
    labels = list(itertools.product((0, 1, -1), repeat=4))
    found = np.array([_contribution(x, c, tau).ravel() for x in rows for c in labels])
    square = (found**2).sum(axis=1)
    apart = square[:, None] + square[None, :] - 2 * found @ found.T
    largest = math.sqrt(apart.max())
    # Two records of norm 1 whose labels have nothing in common: 2 labels each, at the most.
    reached = 2 * math.sqrt(min(tau, 2.0)) if tau <= 2 else 2 * math.sqrt(tau)
    assert largest <= 2 * math.sqrt(tau)
    # But for the hair that leaves room for the rounding of sums.
    assert largest == pytest.approx(min(reached, 2 * math.sqrt(tau)), rel=1.1e-4)


_ROWS = hnp.arrays(
    np.float64, st.tuples(st.integers(1, 3), st.just(4)), elements=st.floats(-1e308, 1e308)
)
_LABELS = hnp.arrays(np.int8, (3, 5), elements=st.sampled_from([-1, 0, 1]))


@given(_ROWS, _ROWS, _LABELS, _LABELS, st.floats(0.1, 6.0))
def test_replacing_a_person_moves_the_sum_by_at_most_what_is_priced(a, b, ya, yb, tau):
    def added(rows, labels):
        design = np.hstack([on_the_ball(rows), np.ones((len(rows), 1))])
        return moments(design, labels[: len(rows)], np.zeros(len(rows), np.int64), tau)

    first, second = added(a, ya), added(b, yb)
    assert np.isfinite(first).all()
    assert np.linalg.norm(first - second) <= 2 * math.sqrt(tau)


@pytest.mark.parametrize("size", [5e-324, 1.6e-162, 2.5e-162, 1e-154, 1.0, 1e154, 1.7e308])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_rows_of_any_size_end_on_the_ball(size, kind):
    rows = kind(size * np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
    placed = on_the_ball(rows)
    norms = np.linalg.norm(placed.toarray() if sp.issparse(placed) else placed, axis=1)
    assert (norms <= 1).all()
    np.testing.assert_allclose(norms, [1, 1, 0], rtol=1e-9)


def test_an_unknown_label_adds_nothing_and_a_person_adds_a_mean():
    design = np.hstack([on_the_ball(X[:4]), np.ones((4, 1))])
    known = np.array([[1, 0], [1, 1], [0, 1], [0, 0]], np.int8)
    np.testing.assert_array_equal(
        moments(design, np.where(known == 0, -1, known).astype(np.int8), None, 2.0),
        moments(design, known, None, 2.0),
    )
    together = moments(design, known, np.array([0, 0, 1, 1]), 2.0)
    each = [moments(design[n : n + 1], known[n : n + 1], None, 2.0) for n in range(4)]
    np.testing.assert_allclose(together, (each[0] + each[1]) / 2 + (each[2] + each[3]) / 2)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_the_promise_is_never_below_what_others_say_a_gaussian_costs(epsilon):
    model = DPMoments(epsilon, DELTA, tau=2.5).fit(X[:200], Y[:200], PUBLIC)
    facts = model.privacy_
    # What is drawn: deviation z √tau on a sum that moves by 2 √tau.
    z = facts.noise_multiplier / 2
    exact = dp_accounting.get_epsilon_gaussian(z, DELTA)
    losses = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE).compose(
        dp_accounting.GaussianDpEvent(z)
    )
    assert exact * (1 - 1e-9) <= facts.epsilon <= epsilon
    assert facts.epsilon <= losses.get_epsilon(DELTA) * 1.01
    # Balle and Wang 2018, Theorem 8, at the stated epsilon.
    delta = norm.cdf(0.5 / z - facts.epsilon * z) - math.exp(facts.epsilon) * norm.cdf(
        -0.5 / z - facts.epsilon * z
    )
    assert delta <= DELTA * (1 + 1e-6)


def test_neighbouring_data_sets_are_told_apart_as_well_as_promised_and_no_better():
    epsilon, runs = 1.0, 20_000
    # The pair with the largest effect: opposite features, no label in common.
    pair = [_contribution([1.0, 0.0], [1, 0], 1.0), _contribution([-1.0, 0.0], [0, 1], 1.0)]
    deviation = TrainingPlan(steps=1).noise_multiplier(epsilon, DELTA) * math.sqrt(1.0)
    noise, scores = Noise(7), []
    for own in pair:
        drawn = noise.add(np.broadcast_to(own, (runs, *own.shape)).copy(), deviation)
        scores.append((drawn * (pair[0] - pair[1])).sum(axis=(1, 2)))
    room = 4 * math.sqrt(0.25 / runs)
    for bar in np.quantile(np.concatenate(scores), [0.05, 0.25, 0.5, 0.75, 0.95]):
        hit, false = (scores[0] > bar).mean(), (scores[1] > bar).mean()
        assert hit - room <= math.exp(epsilon) * (false + room) + DELTA
        assert (1 - false) - room <= math.exp(epsilon) * (1 - hit + room) + DELTA
    hit, false = (scores[0] > 0).mean(), (scores[1] > 0).mean()
    z = deviation / 2
    assert hit - false == pytest.approx(2 * norm.cdf(0.5 / z) - 1, abs=room)


@pytest.mark.parametrize("embedding", ["auto", None])
def test_it_learns_ranks_and_says_how_common_labels_are(embedding):
    model = DPMoments(4.0, DELTA, embedding=embedding, seed=1).fit(X, Y, PUBLIC)
    found = pv.metrics.multilabel(TRUTH, model.predict_proba(TEST))
    assert found["AUC"] > 0.85
    np.testing.assert_allclose(model.prevalence_, Y.mean(axis=0), atol=0.06)
    np.testing.assert_allclose(model.predict(TEST).mean(axis=0), model.prevalence_, atol=0.06)
    np.testing.assert_allclose(
        model.predict_proba(PUBLIC).mean(axis=0), model.prevalence_, atol=0.01
    )
    assert model.classes_.tolist() == [0, 1, 2]


def test_without_noise_and_shrinking_it_is_least_squares(monkeypatch):
    monkeypatch.setattr(Noise, "add", lambda self, total, deviation: total)
    one = Y[:, :1]
    model = DPMoments(embedding=None, ridge=0.0, shrink=False, tau=1.0).fit(X, one, X)
    design = model._design(X)
    best, *_ = np.linalg.lstsq(design, one.astype(float), rcond=None)
    direction = model.coef_[0] / np.linalg.norm(model.coef_[0])
    np.testing.assert_allclose(direction, best[:-1, 0] / np.linalg.norm(best[:-1, 0]), atol=1e-6)


@pytest.mark.parametrize("embedding", [None, "auto"])
def test_dense_and_sparse_rows_are_the_same_rows(embedding):
    model = DPMoments(4.0, DELTA, embedding=embedding, seed=0).fit(X, Y, PUBLIC)
    other = DPMoments(4.0, DELTA, embedding=embedding, seed=0).fit(sp.csr_array(X), Y, PUBLIC)
    np.testing.assert_allclose(other.coef_, model.coef_, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        model.predict_proba(sp.csr_array(TEST)), model.predict_proba(TEST), rtol=1e-4
    )


def test_persons_count_once_however_many_rows_they_have():
    people = np.repeat([f"p{n}" for n in range(1000)], 3)
    model = DPMoments(4.0, DELTA, seed=0).fit(X, Y, PUBLIC, groups=people)
    assert model.privacy_.records == 1000
    assert (
        "for one person replaced"
        in DPMoments().fit(X, Y, PUBLIC, groups=people).privacy_.statement()
    )
    twice = np.repeat(np.arange(len(X)), 2)
    one = DPMoments(4.0, DELTA, seed=0).fit(X, Y, PUBLIC)
    doubled = DPMoments(4.0, DELTA, seed=0).fit(X[twice], Y[twice], PUBLIC, ids=twice)
    np.testing.assert_allclose(one.coef_, doubled.coef_)
    assert doubled.privacy_.protects == "a record"

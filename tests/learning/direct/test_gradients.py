"""Noisy gradient descent on a linear model: what one record can do, and what is learnt."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from privote.learning.direct.linear import DPLinear, clipped_sum
from privote.learning.direct.noise import Noise, split_for_clipping

RNG = np.random.default_rng(0)
X = RNG.normal(size=(1500, 12))
Y = (X[:, :4] + 0.3 * RNG.normal(size=(1500, 4)) > 0.5).astype(np.int8)
_START = (np.ones((12, 4)), 0.0)  # weights, and how far all logits are moved


def _loss(weights, x, y):
    """The logistic loss of one record, over known labels."""
    margin = x @ weights.reshape(len(x), -1) - 1.0
    known = y >= 0
    return -(np.log(expit(np.where(y == 1, margin, -margin)))[known]).sum()


def test_gradient_is_that_of_the_logistic_loss():
    weights = RNG.normal(size=(12, 4))
    y = np.array([1, 0, -1, 1], np.int8)
    total, _ = clipped_sum(X[:1], y[None], weights, -1.0, clip=1e9)
    slope = np.array(
        [
            (_loss(weights.ravel() + step, X[0], y) - _loss(weights.ravel() - step, X[0], y)) / 2e-6
            for step in 1e-6 * np.eye(48)
        ]
    ).reshape(12, 4)
    assert total == pytest.approx(slope, abs=1e-6)
    assert (total[:, 2] == 0).all()


@given(
    seed=st.integers(0, 10_000),
    scale=st.floats(1e-3, 1e3),
    clip=st.floats(0.01, 10.0),
    noise=st.floats(0.5, 50.0),
)
def test_one_record_moves_sum_and_count_by_no_more_than_was_priced(seed, scale, clip, noise):
    rng = np.random.default_rng(seed)
    rows = scale * rng.normal(size=(6, 5))
    truth = rng.integers(-1, 2, size=(6, 3)).astype(np.int8)
    weights = rng.normal(size=(5, 3))
    other, other_truth = rows.copy(), truth.copy()
    other[2] = scale * rng.normal(size=5) * rng.choice([0.0, 1.0, 100.0])
    other_truth[2] = rng.integers(-1, 2, size=3)
    gradients, count = split_for_clipping(noise, 6.0)
    one, below = clipped_sum(rows, truth, weights, 0.0, clip)
    two, other_below = clipped_sum(other, other_truth, weights, 0.0, clip)
    fewer, fewer_below = clipped_sum(
        np.delete(rows, 2, axis=0), np.delete(truth, 2, axis=0), weights, 0.0, clip
    )
    replaced = np.hypot(
        np.linalg.norm(one - two) / (gradients * clip), (below - other_below) / count
    )
    removed = np.hypot(
        np.linalg.norm(one - fewer) / (gradients * clip), (below - fewer_below) / count
    )
    assert replaced <= 2 / noise * (1 + 1e-9)
    assert removed <= 1 / noise * (1 + 1e-9)


@pytest.mark.parametrize("size", [1e150, 1e200, 1.7e308])
@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_a_record_that_overflows_is_as_quiet_as_any_other(size, normalise, kind):
    rows = X[:40].copy()
    rows[7] = size * (-1.0) ** np.arange(12)
    model = DPLinear(steps=5, seed=0, normalise=normalise)
    model.fit(kind(rows), Y[:40], X_public=kind(X[:20]))
    assert np.isfinite(model.coef_).all()
    with np.errstate(all="raise"):
        one, _ = clipped_sum(kind(rows), Y[:40], *_START, 0.5)
        two, _ = clipped_sum(kind(np.delete(rows, 7, 0)), np.delete(Y[:40], 7, 0), *_START, 0.5)
    assert np.linalg.norm(one - two) <= 0.5 * (1 + 1e-9)


def test_a_row_is_scaled_by_public_rows_and_by_itself_only():
    model = DPLinear(steps=1, seed=0).fit(X, Y, X_public=X[:50])
    every, alone = model._design(X), np.vstack([model._design(X[[n]]) for n in range(len(X))])
    assert every == pytest.approx(alone, rel=1e-12)
    other = DPLinear(steps=1, seed=0).fit(100 * X + 5, Y, X_public=X[:50])
    assert np.array_equal(model.mean_, other.mean_)
    assert np.array_equal(model.scale_, other.scale_)
    assert model.learning_rate_ == other.learning_rate_


@pytest.mark.parametrize("rate", [1.0, 0.3])
@pytest.mark.parametrize("adaptive", [False, True])
def test_it_learns_at_a_moderate_epsilon(rate, adaptive):
    model = DPLinear(8.0, 1e-5, sample_rate=rate, adaptive=adaptive, seed=1).fit(X, Y)
    assert roc_auc_score(Y, model.predict_proba(X)) > 0.9
    assert model.privacy_.epsilon <= 8.0
    assert (model.clip_ != 1.0) == adaptive


def test_labels_of_one_class_and_unknown_labels_are_fine():
    labels = Y.copy()
    labels[:, 0] = 1
    labels[:, 1] = 0
    labels[:, 2] = -1
    labels[RNG.random(len(X)) < 0.3, 3] = -1
    model = DPLinear(seed=0).fit(X, labels)
    answers = model.predict_proba(X)
    assert np.isfinite(answers).all()
    assert answers[:, 0].mean() > 0.8
    assert answers[:, 1].mean() < 0.1
    assert roc_auc_score(Y[:, 3], answers[:, 3]) > 0.85


def test_sparse_rows_give_the_same_model():
    dense = DPLinear(steps=5, seed=4).fit(X, Y)
    sparse = DPLinear(steps=5, seed=4).fit(sp.csr_matrix(X), Y)
    assert sparse.coef_ == pytest.approx(dense.coef_, abs=1e-5)
    assert sparse.predict_proba(sp.csr_matrix(X)) == pytest.approx(dense.predict_proba(X), abs=1e-4)


def test_public_rows_even_out_the_scales_of_features():
    hidden = X * np.logspace(-3, 3, 12)

    def quality(rows, **public):
        return roc_auc_score(
            Y, DPLinear(8.0, seed=1, power=1.0).fit(rows, Y, **public).predict_proba(rows)
        )

    assert quality(hidden) < 0.6
    assert quality(hidden, X_public=hidden[:50]) > 0.85
    sparse = sp.csr_matrix(hidden)
    assert quality(sparse, X_public=sparse[:50]) > 0.85


def test_a_feature_that_is_constant_in_public_does_no_harm():
    public = X[:50].copy()
    public[:, 5] = 7.0
    model = DPLinear(seed=0).fit(X, Y, X_public=public)
    assert np.isfinite(model.coef_).all()
    assert roc_auc_score(Y, model.predict_proba(X)) > 0.85


def test_an_empty_batch_is_only_noise(monkeypatch):
    model = DPLinear(0.1, steps=4, sample_rate=0.1, seed=0)
    monkeypatch.setattr(Noise, "sample", lambda *_: np.arange(0))
    model.fit(X, Y)
    assert np.isfinite(model.coef_).all()
    assert (model.coef_ != 0).all()

"""Linear models: what one record or person can do to a noisy sum, and what is learnt from it."""

import itertools
import math

import dp_accounting
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import expit
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from privote.learning.gradients import DPLinear, clipped_sum
from privote.learning.moments import DPMoments, moments
from privote.learning.noise import Noise, TrainingPlan
from privote.learning.rows import normalize_rows
from privote.learning.training import by_person, rows_of

RNG = np.random.default_rng(0)
DELTA = 1e-5
X, TEST, PUBLIC = (RNG.normal(size=(rows, 12)) for rows in (3000, 1000, 400))
Y, TRUTH = (
    (rows[:, :4] + 0.3 * RNG.normal(size=(len(rows), 4)) > [0.5, 0.5, 1.0, 1.3]).astype(np.int8)
    for rows in (X, TEST)
)
_START = (np.ones((12, 4)), 0.0)  # weights, and how far all logits are moved


# -- the sum of gradients ----------------------------------------------------------------------


def _loss(weights, x, y):
    """The logistic loss of one record, over known labels."""
    margin = x @ weights.reshape(len(x), -1) - 1.0
    known = y >= 0
    return -(np.log(expit(np.where(y == 1, margin, -margin)))[known]).sum()


def test_gradient_is_that_of_the_logistic_loss():
    weights = RNG.normal(size=(12, 4))
    y = np.array([1, 0, -1, 1], np.int8)
    total = clipped_sum(X[:1], y[None], weights, -1.0, clip=1e9)
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
)
def test_one_record_moves_the_sum_by_no_more_than_was_priced(seed, scale, clip):
    rng = np.random.default_rng(seed)
    rows = scale * rng.normal(size=(6, 5))
    truth = rng.integers(-1, 2, size=(6, 3)).astype(np.int8)
    weights = rng.normal(size=(5, 3))
    other, other_truth = rows.copy(), truth.copy()
    other[2] = scale * rng.normal(size=5) * rng.choice([0.0, 1.0, 100.0])
    other_truth[2] = rng.integers(-1, 2, size=3)
    one = clipped_sum(rows, truth, weights, 0.0, clip)
    two = clipped_sum(other, other_truth, weights, 0.0, clip)
    assert np.linalg.norm(one - two) <= 2 * clip


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
        one = clipped_sum(kind(rows), Y[:40], *_START, 0.5)
        two = clipped_sum(kind(np.delete(rows, 7, 0)), np.delete(Y[:40], 7, 0), *_START, 0.5)
    assert np.linalg.norm(one - two) <= 0.5 * (1 + 1e-9)


# -- persons -----------------------------------------------------------------------------------

CLIP = 0.7
# Records of a person, from which all persons of one or two records are made.
RECORDS = [
    (x, y)
    for x in ([3.0, 0.0, 1.0], [-3.0, 0.1, 1.0], [0.0, -0.2, 1.0], [1e8, -1e8, 1.0])
    for y in ([1, 0], [0, -1])
]
PERSONS = [
    some for count in (1, 2) for some in itertools.combinations_with_replacement(RECORDS, count)
]
OTHERS = [RECORDS[:3], RECORDS[4:5], RECORDS[2:6]]


def summed(persons, kind=np.asarray, clip=CLIP):
    records = [record for person in persons for record in person]
    rows, labels = (np.array(part) for part in zip(*records, strict=True))
    sizes = np.array([len(person) for person in persons])
    weights = np.linspace(-1, 1, 6).reshape(3, 2)
    return clipped_sum(kind(rows), labels.astype(np.int8), weights, 0.3, clip, sizes)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_no_person_moves_the_sum_by_more_than_a_record(kind):
    """Enumerated: every person of one or two records, replaced by every other, beside others."""
    sums = [summed([OTHERS[0], each, *OTHERS[1:]], kind).ravel() for each in PERSONS]
    apart = np.linalg.norm(np.array(sums)[:, None] - sums, axis=2)
    assert apart.max() <= 2 * CLIP
    assert apart.max() > 1.5 * CLIP  # some come close
    added = np.linalg.norm(sums - summed(OTHERS, kind).ravel(), axis=1)
    assert 0.99 * CLIP < added.max() <= CLIP


@pytest.mark.parametrize("clip", [CLIP, 100.0])
def test_a_person_adds_the_clipped_mean_of_its_gradients(clip):
    persons = [RECORDS[:3], RECORDS[1:2]]
    total = summed(persons, clip=clip)
    wanted = np.zeros((3, 2))
    for person in persons:
        # Alone and with a bound that clips nothing, a record adds its own gradient.
        rows, labels = (np.array(part) for part in zip(*person, strict=True))
        at = (np.linspace(-1, 1, 6).reshape(3, 2), 0.3, 1e9)
        each = [clipped_sum(rows[[n]], labels[[n]].astype(np.int8), *at) for n in range(len(rows))]
        mean = np.mean(each, axis=0)
        wanted += mean * min(1, clip / np.linalg.norm(mean))
    assert total == pytest.approx(wanted, abs=2e-4)  # but for the hair


def test_sampling_is_by_person():
    order, sizes = by_person(np.array([2, 0, 2, 1, 2]))
    assert order.tolist() == [1, 3, 0, 2, 4]
    assert rows_of(np.array([0, 2]), sizes).tolist() == [0, 2, 3, 4]
    assert rows_of(np.array([1]), None).tolist() == [1]


# -- gradient descent --------------------------------------------------------------------------


def test_rows_are_scaled_by_public_rows_only():
    model, other = (
        DPLinear(steps=1, seed=0).fit(rows, Y, X_public=PUBLIC) for rows in (X, 100 * X + 5)
    )
    assert np.array_equal(model.mean_, other.mean_)
    assert np.array_equal(model.scale_, other.scale_)
    assert model.learning_rate_ == other.learning_rate_


@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_it_learns_at_a_moderate_epsilon(rate):
    model = DPLinear(8.0, 1e-5, sample_rate=rate, seed=1).fit(X, Y)
    assert roc_auc_score(Y, model.predict_proba(X)) > 0.9
    assert model.guarantee_.epsilon <= 8.0


def test_every_record_of_a_person_counts():
    people = np.repeat(np.arange(1500), 2)

    def fitted(rows, order=slice(None)):
        return DPLinear(steps=3, seed=1).fit(rows[order], Y[order], groups=people[order]).coef_

    changed = X.copy()
    changed[1::2] *= -1  # the second record of each person
    assert not np.array_equal(fitted(changed), fitted(X))
    # The order of rows does not matter, but for rounding.
    assert fitted(X, RNG.permutation(len(X))) == pytest.approx(fitted(X), abs=1e-6)


# -- moments -----------------------------------------------------------------------------------


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
        design = np.hstack([normalize_rows(rows), np.ones((len(rows), 1))])
        return moments(design, labels[: len(rows)], np.zeros(len(rows), np.int64), tau)

    first, second = added(a, ya), added(b, yb)
    assert np.isfinite(first).all()
    assert np.linalg.norm(first - second) <= 2 * math.sqrt(tau)


@pytest.mark.parametrize("size", [5e-324, 1.6e-162, 2.5e-162, 1e-154, 1.0, 1e154, 1.7e308])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_rows_of_any_size_end_normalize_rows(size, kind):
    rows = kind(size * np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
    placed = normalize_rows(rows)
    norms = np.linalg.norm(placed.toarray() if sp.issparse(placed) else placed, axis=1)
    assert (norms <= 1).all()
    np.testing.assert_allclose(norms, [1, 1, 0], rtol=1e-9)


def test_an_unknown_label_adds_nothing_and_a_person_adds_a_mean():
    design = np.hstack([normalize_rows(X[:4]), np.ones((4, 1))])
    known = np.array([[1, 0], [1, 1], [0, 1], [0, 0]], np.int8)
    np.testing.assert_array_equal(
        moments(design, np.where(known == 0, -1, known).astype(np.int8), None, 2.0),
        moments(design, known, None, 2.0),
    )
    together = moments(design, known, np.array([0, 0, 1, 1]), 2.0)
    each = [moments(design[n : n + 1], known[n : n + 1], None, 2.0) for n in range(4)]
    np.testing.assert_allclose(together, (each[0] + each[1]) / 2 + (each[2] + each[3]) / 2)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_the_promise_is_never_below_what_others_say_a_gaussian_costs(epsilon, monkeypatch):
    drawn = []
    monkeypatch.setattr(Noise, "add", lambda _, total, size: drawn.append(size) or total)
    facts = DPMoments(epsilon, DELTA, tau=2.5).fit(X[:200], Y[:200], PUBLIC).guarantee_
    # The sum moves by 2 √tau, the largest norm of two records added up.
    z = drawn[0] / (2 * math.sqrt(2.5))
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
    assert roc_auc_score(TRUTH, model.predict_proba(TEST)) > 0.85
    np.testing.assert_allclose(model.prevalence_, Y.mean(axis=0), atol=0.06)
    np.testing.assert_allclose(model.predict(TEST).mean(axis=0), model.prevalence_, atol=0.06)
    np.testing.assert_allclose(
        model.predict_proba(PUBLIC).mean(axis=0), model.prevalence_, atol=0.01
    )


def test_without_noise_and_shrinking_it_is_least_squares(monkeypatch):
    monkeypatch.setattr(Noise, "add", lambda self, total, deviation: total)
    one = Y[:, :1]
    model = DPMoments(embedding=None, ridge=0.0, shrink=False, tau=1.0).fit(X, one, X)
    design = model._design(X)
    best, *_ = np.linalg.lstsq(design, one.astype(float), rcond=None)
    direction = model.coef_[0] / np.linalg.norm(model.coef_[0])
    np.testing.assert_allclose(direction, best[:-1, 0] / np.linalg.norm(best[:-1, 0]), atol=1e-6)


def test_a_record_counts_once_however_many_rows_it_has():
    twice = np.repeat(np.arange(len(X)), 2)
    one = DPMoments(4.0, DELTA, seed=0).fit(X, Y, PUBLIC)
    doubled = DPMoments(4.0, DELTA, seed=0).fit(X[twice], Y[twice], PUBLIC, ids=twice)
    np.testing.assert_allclose(one.coef_, doubled.coef_)
    assert doubled.guarantee_.protects == "a record"


@pytest.mark.parametrize(
    "make",
    [
        lambda: DPLinear(steps=5, seed=4),
        lambda: DPMoments(4.0, DELTA, embedding=None, seed=0),
        lambda: DPMoments(4.0, DELTA, embedding="auto", seed=0),
    ],
)
def test_dense_and_sparse_rows_are_the_same_rows(make):
    dense, sparse = (make().fit(kind(X), Y, PUBLIC) for kind in (np.asarray, sp.csr_array))
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-4, atol=1e-6)
    there, here = sparse.predict_proba(sp.csr_array(TEST)), dense.predict_proba(TEST)
    np.testing.assert_allclose(there, here, rtol=1e-4)

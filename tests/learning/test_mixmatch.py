"""MixMatch learns from guesses, takes what PATE gives, and is kept without code."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from tests.refusals import refused

from privote.datasets import load_scenes
from privote.errors import UnavailableError
from privote.learning.mixmatch import MixMatchClassifier, aligned, mixed, sharpen
from privote.learning.saving import load_student, save_student
from privote.learning.students import PartialLabels

torch = pytest.importorskip("torch")


def _topics(rows, seed):
    """Texts of 100 words on 4 topics: each topic makes its own 25 words likely."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((rows, 4)) < 0.25).astype(np.int8)
    share = np.full((rows, 100), 0.05)
    for topic in range(4):
        share[:, 25 * topic : 25 * topic + 25] += 0.3 * Y[:, [topic]]
    return (rng.random(share.shape) < share).astype(np.float32), Y


X, Y = _topics(16, 0)
POOL, _ = _topics(800, 1)
TEST, TRUTH = _topics(600, 2)
QUICK = {"steps": 20, "hidden": 16, "random_state": 0}


@pytest.fixture(scope="module")
def fitted():
    return MixMatchClassifier(**QUICK).fit(X, Y, POOL)


def test_it_beats_the_same_network_and_logistic_regressions_on_few_labels():
    student = MixMatchClassifier(steps=150, hidden=64, random_state=0)
    with_guesses = clone(student).fit(X, Y, X_unlabelled=POOL).predict_proba(TEST)
    without = clone(student).set_params(unlabelled_weight=0.0, mixup=0.0).fit(X, Y)
    linear = PartialLabels().fit(X, Y)
    score = roc_auc_score(TRUTH, with_guesses)
    assert score > roc_auc_score(TRUTH, without.predict_proba(TEST)) + 0.01
    assert score > roc_auc_score(TRUTH, linear.predict_proba(TEST)) + 0.01


def test_probabilities_are_learnt_as_far_as_they_are_sure():
    soft, doubtful = np.where(Y == 1, 0.95, 0.02), np.where(Y == 1, 0.6, 0.4)
    student = MixMatchClassifier("linear", steps=150, random_state=0, unlabelled_weight=0.0)
    score, spread = [], []
    for targets in (soft, doubtful):
        chance = clone(student).fit(X, targets).predict_proba(TEST)
        score.append(roc_auc_score(TRUTH, chance))
        spread.append(chance.std())
    assert min(score) > 0.8
    assert spread[1] < spread[0] / 2


def test_held_back_labels_are_guessed_and_never_learnt_from():
    held = Y.copy()
    held[:, 0] = -1
    held[::2, 1] = -1
    held[:3] = -1
    one = MixMatchClassifier(**QUICK).fit(X, held, POOL).predict_proba(TEST)
    assert np.isfinite(one).all()
    # Rows without any answer are not there at all.
    two = MixMatchClassifier(**QUICK).fit(X[3:], held[3:], POOL).predict_proba(TEST)
    assert np.array_equal(one, two)


def test_predictions_are_as_common_as_released_labels(fitted):
    wanted = (Y.sum(axis=0) + 1) / (len(Y) + 2)
    assert fitted.predict(POOL).mean(axis=0) == pytest.approx(wanted, abs=0.01)


def test_a_student_of_images():
    scenes = load_scenes(private=1, public=60, test=20)
    images, test = (rows.reshape(-1, 1, 16, 16) for rows in (scenes.X_public, scenes.X_test))
    student = MixMatchClassifier("smallcnn", steps=3, random_state=0)
    student.fit(images[:30], scenes.Y_public[:30], X_unlabelled=images[30:])
    assert student.predict_proba(test).shape == (20, 10)
    with refused("X"):
        student.predict_proba(test[:, :, :8])


def test_a_network_of_ones_own_learns_and_cannot_be_kept():
    student = MixMatchClassifier(lambda shape, labels: torch.nn.Linear(shape[0], labels), steps=2)
    assert student.fit(X, Y, POOL).predict_proba(TEST).shape == (600, 4)
    with refused(None, UnavailableError):
        student.to_arrays()


def test_it_is_saved_without_code(fitted, tmp_path):
    save_student(tmp_path / "a.student", fitted, label_names="abcd")
    again = load_student(tmp_path / "a.student").model
    assert np.array_equal(again.predict_proba(TEST), fitted.predict_proba(TEST))
    assert np.array_equal(again.predict(TEST), fitted.predict(TEST))


@pytest.mark.parametrize(
    "change",
    [
        {"thresholds": np.zeros(3)},
        {"thresholds": np.full(4, np.nan)},
        {"thresholds": None},
        {"scale/mean": np.zeros(3, np.float32)},
        {"scale/deviation": np.zeros(100, np.float32)},
        {"weights/1.weight": np.zeros((16, 3))},
        {"weights/1.bias": None},
        {"weights/9.bias": np.zeros(3)},
    ],
    ids=str,
)
def test_broken_files_are_refused(fitted, change):
    arrays = fitted.to_arrays() | change
    arrays = {name: value for name, value in arrays.items() if value is not None}
    with refused("arrays"):
        clone(fitted).restored((100,), arrays)


def test_a_file_cannot_ask_for_a_network_larger_than_itself(fitted):
    for hidden in (10**12, "many"):
        with refused("arrays"):
            clone(fitted).set_params(hidden=hidden).restored((100,), fitted.to_arrays())
    for shape in ((10**12,), (3, 5), ()):
        with refused():
            clone(fitted).restored(shape, fitted.to_arrays())


def test_bad_settings_and_rows_are_refused():
    wrong = {"network": "vgg", "steps": 0, "unlabelled_weight": -1.0, "feature_dropout": 1.0}
    for name, value in wrong.items():
        with refused(name):
            MixMatchClassifier(**{**QUICK, name: value}).fit(X, Y, POOL)
    with refused("y"):
        MixMatchClassifier(**QUICK).fit(X, np.full_like(Y, -1), POOL)
    with refused("X_unlabelled"):
        MixMatchClassifier(**QUICK).fit(X, Y, POOL[:, :5])


CHANCES = st.floats(1e-6, 1 - 1e-6)


@given(p=st.floats(0, 1), temperature=st.floats(0.1, 3.0))
@example(p=0.0, temperature=0.5)
@example(p=1.0, temperature=0.5)
def test_sharpening_is_the_formula(p, temperature):
    odds = p ** (1 / temperature), (1 - p) ** (1 / temperature)
    got = sharpen(torch.tensor([p], dtype=torch.float64), temperature).item()
    assert got == pytest.approx(odds[0] / sum(odds), abs=1e-9)


@given(p=CHANCES, wanted=st.floats(0.01, 0.99), running=st.floats(0.01, 0.99))
def test_alignment_scales_odds(p, wanted, running):
    def odds(x):
        return x / (1 - x)

    values = [torch.tensor([x], dtype=torch.float64) for x in (p, wanted, running)]
    got = aligned(*values).item()
    assert odds(got) == pytest.approx(odds(p) * odds(wanted) / odds(running), rel=1e-6)
    assert aligned(values[0], values[1], values[1]).item() == pytest.approx(p)


@pytest.mark.parametrize("shape", [(40, 7), (40, 1, 3, 3)])
def test_mixing_keeps_the_larger_share_of_each_row(shape):
    inputs = torch.zeros(shape)
    inputs[torch.arange(20)] = 1.0
    targets = inputs.reshape(40, -1)[:, :2].clone()
    x, y = mixed(inputs, targets, 0.75, np.random.default_rng(0))
    flat = x.reshape(40, -1)
    assert (flat[:20] >= 0.5).all()
    assert (flat[20:] <= 0.5).all()
    assert torch.allclose(flat[:, :2], y)  # labels are mixed as rows are
    assert len(torch.unique(y)) > 10
    assert x.mean().item() == pytest.approx(0.5, abs=0.15)

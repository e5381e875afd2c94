"""Students learn from what was answered, whatever they are made of."""

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.svm import LinearSVC

from privote.errors import InputError
from privote.learning.rows import label_probabilities
from privote.learning.students.classifiers import LinearStudent, PartialLabels, train_student

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 4))
Y = (X[:, :3] > 0).astype(np.int8)
STUDENTS = [
    None,
    OneVsRestClassifier(LogisticRegression()),
    RandomForestClassifier(20),
    KNeighborsClassifier(5),
    MLPClassifier((16,), max_iter=300),
    OneVsRestClassifier(LinearSVC()),
]


@pytest.mark.parametrize("student", STUDENTS, ids=str)
@pytest.mark.parametrize("held_back", [False, True])
def test_any_classifier_learns_what_was_answered(student, held_back):
    labels = Y.copy()
    if held_back:
        labels[RNG.random(labels.shape) < 0.2] = -1
        labels[:5] = -1
        if isinstance(student, OneVsRestClassifier) and isinstance(student.estimator, LinearSVC):
            pytest.skip("a support vector machine gives no probabilities label by label")
    model = train_student(student, X, labels, random_state=0)
    chance = label_probabilities(model, X, 3)
    assert chance.shape == (120, 3)
    assert ((chance >= 0) & (chance <= 1)).all()
    assert ((chance >= 0.5) == Y).mean() > 0.85


def test_each_label_is_fitted_on_its_own_answers_only():
    labels = Y.copy()
    labels[60:, 0] = -1
    model = PartialLabels().fit(X, labels)
    alone = LogisticRegression(max_iter=1000).fit(X[:60], Y[:60, 0])
    assert np.array_equal(model.predict_proba(X)[:, 0], alone.predict_proba(X)[:, 1])
    whole = LogisticRegression(max_iter=1000).fit(X, Y[:, 1])
    assert np.array_equal(model.predict_proba(X)[:, 1], whole.predict_proba(X)[:, 1])


def test_a_label_with_one_class_or_no_answer_gets_a_cautious_constant():
    labels = Y.copy()
    labels[:, 0], labels[:, 1] = 0, -1
    chance = PartialLabels().fit(X, labels).predict_proba(X[:2])
    assert chance[:, 0] == pytest.approx(1 / 122)
    assert chance[:, 1] == pytest.approx(1 / 2)
    chance = LinearStudent().fit(X, labels).predict_proba(X[:2])
    assert (chance[:, 0] > 0).all()
    assert (chance[:, :2] < 0.01).all()


def test_the_default_student_trusts_noise_less_than_truth():
    noisy = np.where(RNG.random(Y.shape) < 0.45, 1 - Y, Y)
    held = LinearStudent().fit(X, noisy)
    true = LinearStudent().fit(X, Y)
    assert held.C_.max() < true.C_.min()
    one = LinearStudent(Cs=[1.0]).fit(X, Y)
    alone = LogisticRegression(tol=1e-8).fit(X, Y[:, 0])
    assert one.predict_proba(X)[:, 0] == pytest.approx(alone.predict_proba(X)[:, 1], abs=1e-2)


@pytest.mark.parametrize("bad", [{"Cs": []}, {"Cs": [0.0]}, {"folds": 1}])
def test_bad_settings_of_the_default_student(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        LinearStudent(**bad).fit(X, Y)


class Greedy(DummyClassifier):
    def fit(self, X, y, X_unlabelled=None):
        self.seen_ = len(X_unlabelled)
        return super().fit(X, y)


def test_a_student_that_takes_unlabelled_rows_gets_them():
    assert train_student(Greedy(), X[:50], Y[:50], X[50:]).seen_ == 70


def test_a_random_state_of_its_own_is_kept():
    given = train_student(RandomForestClassifier(3, random_state=5), X, Y, random_state=7)
    filled = train_student(RandomForestClassifier(3), X, Y, random_state=7)
    assert (given.random_state, filled.random_state) == (5, 7)


@pytest.mark.parametrize(
    ("labels", "words"),
    [(Y[:7], r"\(120, labels\)"), (Y + 1, "1, 0 and -1"), (np.full((120, 2), "a"), "1, 0 and -1")],
)
def test_bad_labels_are_refused_by_name(labels, words):
    with pytest.raises(InputError, match=words):
        train_student(None, X, labels)


def test_probabilities_of_the_wrong_shape_are_refused():
    model = LogisticRegression().fit(X, Y[:, 0] + (X[:, 3] > 1))
    with pytest.raises(InputError, match="one probability a label"):
        label_probabilities(model, X, 2)


def test_a_skorch_network_teaches_and_learns():
    pytest.importorskip("skorch", reason="needs the extra [deep]")
    import torch
    from skorch import NeuralNet

    import privote as pv

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)

        def forward(self, X):
            return self.layer(X)

    network = NeuralNet(
        Net,
        criterion=torch.nn.BCEWithLogitsLoss,
        max_epochs=20,
        lr=1.0,
        train_split=None,
        verbose=0,
    )
    rows = X.astype(np.float32)
    for role in ("teacher", "student"):
        pate = pv.PATEClassifier(
            n_teachers=4,
            mechanism=pv.BinaryVoting(sigma=0.5),
            epsilon=1e4,
            delta=1e-5,
            guarantee="worst-case",
            threshold=0.5,
            **{role: network},
        ).fit(rows, Y, rows, seed=0)
        chance = pate.predict_proba(rows)
        assert ((chance >= 0.5) == Y).mean() > 0.8, role

"""Students learn from what was answered, whatever they are made of."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.svm import LinearSVC
from tests.refusals import refused

from privote.learning.rows import label_probabilities
from privote.learning.students import LinearStudent, PartialLabels, train_student

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 4))
Y = (X[:, :3] > 0).astype(np.int8)
SVM = OneVsRestClassifier(LinearSVC())
STUDENTS = [
    None,
    OneVsRestClassifier(LogisticRegression()),
    MultiOutputClassifier(LogisticRegression()),
    RandomForestClassifier(20),
    KNeighborsClassifier(5),
    MLPClassifier((16,), max_iter=300),
]


@pytest.mark.parametrize(
    ("student", "targets"),
    [
        *((each, kind) for each in STUDENTS for kind in ("all", "some", "chances")),
        (SVM, "all"),  # which has no probabilities of one label
    ],
)
def test_any_classifier_learns_what_was_answered(student, targets):
    labels = Y.copy()
    if targets == "chances":
        labels = np.clip(np.where(Y == 1, 0.8, 0.1) + RNG.normal(0, 0.1, Y.shape), 0, 1)
    if targets != "all":
        labels[RNG.random(labels.shape) < 0.15] = -1
        labels[:5] = -1
    chance = label_probabilities(train_student(student, X, labels, random_state=0), X, 3)
    assert chance.shape == (120, 3)
    assert ((chance >= 0) & (chance <= 1)).all()
    assert ((chance >= 0.5) == Y).mean() > 0.85


def test_a_classifier_without_soft_labels_sees_each_row_twice():
    chances = RNG.random(Y.shape)
    model = train_student(LogisticRegression(), X, chances)
    parts = np.concatenate([chances[:, 1], 1 - chances[:, 1]])
    twice = LogisticRegression().fit(np.tile(X, (2, 1)), np.repeat([1, 0], 120), parts)
    assert model.predict_proba(X)[:, 1] == pytest.approx(twice.predict_proba(X)[:, 1], abs=1e-6)


def test_the_default_student_learns_probabilities_and_chooses_its_penalty_by_them():
    chances = np.clip(expit(3 * X[:, :3]), 0, 1)
    model = LinearStudent().fit(X, chances)
    assert np.abs(model.predict_proba(X) - chances).mean() < 0.02
    noise = RNG.random(Y.shape)
    assert LinearStudent().fit(X, noise).C_.max() < model.C_.min()


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


@pytest.mark.parametrize("bad", [{"Cs": []}, {"Cs": [0.0]}, {"folds": 1}])
def test_bad_settings_of_the_default_student(bad):
    with refused(next(iter(bad))):
        LinearStudent(**bad).fit(X, Y)


class Greedy(DummyClassifier):
    def fit(self, X, y, X_unlabelled=None):
        self.seen_ = len(X_unlabelled)
        return super().fit(X, y)


def test_a_student_that_takes_unlabelled_rows_gets_them():
    assert train_student(Greedy(), X[:50], Y[:50], X[50:]).seen_ == 70


@pytest.mark.parametrize(
    "labels",
    [
        *(Y[:7], Y + 1, np.full((120, 2), "a")),
        *(np.where(np.arange(360).reshape(120, 3) == 7, bad, 0.5) for bad in (1.01, -0.5)),
        np.where(Y == 1, np.inf, 0.5),
    ],
)
def test_bad_labels_are_refused_by_name(labels):
    with refused("y"):
        train_student(None, X, labels)


def test_a_skorch_network_learns_from_probabilities():
    skorch = pytest.importorskip("skorch", reason="needs the extra [deep]")
    import torch

    how = {"max_epochs": 20, "lr": 1.0, "train_split": None, "verbose": 0}
    network = skorch.NeuralNet(
        torch.nn.Linear,
        module__in_features=4,
        module__out_features=3,
        criterion=torch.nn.BCEWithLogitsLoss,
        **how,
    )
    rows = X.astype(np.float32)
    chances = np.where(Y == 1, 0.8, 0.1)
    chances[:, 2] = 0.3
    chance = label_probabilities(train_student(network, rows, chances), rows, 3)
    assert chance.shape == (120, 3)
    assert roc_auc_score(Y[:, :2], chance[:, :2]) > 0.9
    assert chance[:, 2].mean() == pytest.approx(0.3, abs=0.1)

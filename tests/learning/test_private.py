"""One estimator for every method: tables in, a model, its thresholds and its promise out."""

import pickle
import warnings
from contextlib import closing

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d
from tests.refusals import refused

import privote as pv
from privote.datasets import load_patients
from privote.learning import PrivateClassifier

BUDGET = {"epsilon": 8.0, "delta": 1e-5}


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 6))
    Y = (X[:, :2] + 0.3 * rng.normal(size=(3000, 2)) > 0.8).astype(np.int8)
    return X[:2000], Y[:2000], X[2000:2400], X[2400:], Y[2400:]


@pytest.fixture(scope="module")
def patients():
    data = load_patients(1500, 0)
    frame = pd.DataFrame({name: column for name, column in data.X.columns.items()})
    labels = pd.DataFrame(data.Y, columns=list(data.label_names))
    frame = frame.assign(who=data.groups, **labels)
    return frame[:1000], frame[1000:1300], frame[1300:], list(data.label_names)


def test_private_rows_are_not_public_ones(patients, arrays):
    X, Y, *_ = arrays
    frame, _, _, labels = patients
    for given in ((X, Y, X), (X, Y, X.copy()), (csr_matrix(X), Y, csr_matrix(X))):
        with refused("public"):
            PrivateClassifier(**BUDGET).fit(*given)
    with refused("public"):
        PrivateClassifier(**BUDGET).fit(frame, labels, frame.copy(), groups="who")


def test_every_fold_of_a_cross_validation_needs_a_budget(arrays, tmp_path):
    """As the advice says: a budget per fold; one that is for one fold is gone after it."""
    X, Y, *_ = arrays
    one = {"ledger": tmp_path / "one.db", "budget": 8.0}
    model, how = PrivateClassifier("gradients", **BUDGET), {"cv": 3, "error_score": "raise"}
    with pytest.raises(pv.BudgetError):
        cross_validate(model, X, Y, params=one, **how)
    all_three = {"ledger": tmp_path / "three.db", "budget": 24.0}
    assert (cross_validate(model, X, Y, params=all_three, **how)["test_score"] > 0.5).all()
    with closing(pv.Ledger.open(tmp_path / "three.db")) as ledger:
        assert sum("cost" in entry for entry in ledger.published()) == 3


def test_gaps_are_refused_in_an_array_and_stand_in_a_table(arrays):
    """As the advice says: in a data frame, or filled by public rows before."""
    X, Y, X_public, X_test, _ = arrays
    holes = np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X)
    model = PrivateClassifier("gradients", **BUDGET)
    with refused("records"):
        model.fit(holes, Y, X_public)
    names = [f"x{number}" for number in range(X.shape[1])]
    frame, public, test = (pd.DataFrame(rows, columns=names) for rows in (holes, X_public, X_test))
    assert model.fit(frame, Y, public, seed=0).predict(test).shape == (len(test), Y.shape[1])
    filling = FrozenEstimator(SimpleImputer().fit(X_public))
    piped = make_pipeline(filling, PrivateClassifier("gradients", **BUDGET))
    assert piped.fit(holes, Y).predict(X_test).shape == (len(test), Y.shape[1])


class Checked(PrivateClassifier):
    """Its public rows are its private ones, and two classes are one label: as checks call it."""

    def __init__(self, method="gradients", epsilon=1e4, random_state=0):
        super().__init__(method, epsilon, 1e-5, random_state=random_state)

    def fit(self, X, y):
        given = None if y is None else np.asarray(y)
        if given is not None and given.ndim == 2 and given.shape[1] > 1:
            self.known_ = None
            return super().fit(X, given, X, seed=0)
        check_classification_targets(column_or_1d(given, warn=True))
        self.known_, given = np.unique(column_or_1d(given), return_inverse=True)
        if len(self.known_) > 2:
            raise ValueError("Only binary classification is supported: the target is multiclass")
        super().fit(X, given.astype(np.int8), X, seed=0)
        self.classes_ = self.known_
        return self

    def predict_proba(self, X):
        check_is_fitted(self, "student_")
        yes = super().predict_proba(X)
        return yes if self.known_ is None else np.hstack([1 - yes, yes])

    def predict(self, X):
        chance = self.predict_proba(X)
        if self.known_ is None:
            return (chance >= 0.5).astype(np.int64)
        return self.known_[np.minimum(chance.argmax(axis=1), len(self.known_) - 1)]


@pytest.mark.filterwarnings("ignore::privote.PrivoteWarning")
@parametrize_with_checks(
    [Checked(method) for method in ("gradients", "moments", "teachers")],
    expected_failed_checks=lambda _: {
        "check_dtype_object": "a cell that is no number is a ValueError",
    },
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("method", ["auto", "gradients", "moments", "teachers", "neighbours"])
def test_every_method_learns_and_says_what_it_promises(arrays, method):
    X, Y, X_public, X_test, Y_test = arrays
    model = PrivateClassifier(method, **BUDGET).fit(X, Y, X_public, seed=1)
    found = pv.metrics.multilabel(Y_test, model.predict_proba(X_test), model.predict(X_test))
    assert found["AUC"] > 0.8
    assert found["BAC"] > 0.65
    assert model.method_ == method or method == "auto"
    assert model.reasons_
    assert model.guarantee_.epsilon <= 8.0
    assert model.guarantee_.simulated is True
    assert (model.release_ is None) == (model.public_rows_ is None)
    # Predictions on public rows are as common as what was released says.
    assert np.allclose(model.predict(X_public).mean(axis=0), model.shares_, atol=0.02)
    assert np.allclose(model.shares_, Y.mean(axis=0), atol=0.2)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_proba(X_test), model.predict_proba(X_test))


def test_what_private_rows_say_is_nothing_that_the_encoder_knows(patients):
    private, public, test, labels = patients
    rows = private, private.assign(notes="something nobody else ever wrote")
    one, two = (
        PrivateClassifier("moments", **BUDGET).fit(each, labels, public, groups="who", seed=1)
        for each in rows
    )
    assert one.encoder_.to_plain() == two.encoder_.to_plain()
    assert one.label_names_ == tuple(labels)
    assert one.numbers_.records == private["who"].nunique()
    assert one.guarantee_.protects.startswith("a person")
    assert pv.metrics.multilabel(test[labels], one.predict_proba(test))["AUC"] > 0.7


def test_labels_may_be_a_frame_with_gaps(patients):
    private, public, _, labels = patients
    Y = private[labels].astype(object).replace(-1, "")
    Y = Y.rename_axis("who")  # which is no label
    rows, public = (side.drop(columns=[*labels, "who"]) for side in (private, public))
    model = PrivateClassifier("moments", **BUDGET).fit(rows, Y, public, seed=1)
    again = PrivateClassifier("moments", **BUDGET)
    again.fit(rows, private[labels].to_numpy(), public, seed=1)
    assert model.label_names_ == tuple(labels)
    assert np.array_equal(model.student_.coef_, again.student_.coef_)


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        (lambda a: {"public": None}, "public"),
        (lambda a: {"labels": ["flu", "plague"]}, None),
        (lambda a: {"groups": "nobody"}, None),
        (lambda a: {"records": a.drop(columns=["age"])}, None),
        (lambda a: {"records": a.assign(flu="perhaps")}, "table, row 0, column 'flu'"),
        (lambda a: {"records": a.assign(who="")}, "table, row 0, column 'who'"),
        (lambda a: {"records": a.assign(age="old")}, "table, row 0, column 'age'"),
    ],
)
def test_bad_tables_are_named_and_charge_nothing(patients, tmp_path, change, argument):
    private, public, _, labels = patients
    given = {"records": private, "labels": labels, "public": public, "groups": "who"}
    given |= change(private)
    place = tmp_path / "a.ledger"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with refused(argument):
            PrivateClassifier("moments", **BUDGET).fit(**given, ledger=place)
    assert not place.exists()


def test_without_public_rows_gradients_take_numbers(arrays):
    X, Y, *_ = arrays
    model = PrivateClassifier(**BUDGET).fit(X, Y, seed=1)
    assert model.method_ == "gradients"
    assert model.shares_ is None
    with refused("public"):
        PrivateClassifier("moments", **BUDGET).fit(X, Y, seed=1)


def test_a_saved_model_answers_the_same(arrays, tmp_path):
    X, Y, X_public, *_ = arrays
    model = PrivateClassifier(**BUDGET).fit(X, Y, X_public)
    model.save(tmp_path / "a.student")
    again = pv.load(tmp_path / "a.student")
    np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    with refused(None):
        model.save(tmp_path / "a.txt")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("method", "least"), [("auto", 0.95), ("neighbours", 0.95), ("teachers", 0.93)]
)
def test_models_of_pictures_at_epsilon_10(shared_data, method, least):
    """The figures of docs/pictures.md, from features of Pascal VOC 2012 and its own sides."""
    with np.load(shared_data / "voc2012_trainval_efficientnet_lite0_160.npz") as file:
        X, Y, train = file["features"].astype(np.float32), file["labels"], file["train"]
    others = np.flatnonzero(~train)
    public, test = others[::2], others[1::2]
    model = PrivateClassifier(method, epsilon=10.0, delta=1e-5)
    model.fit(X[train], Y[train], X[public])
    figures = pv.metrics.multilabel(Y[test], model.predict_proba(X[test]))
    assert figures["AUC"] >= least
    assert model.guarantee_.epsilon <= 10.0

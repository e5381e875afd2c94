"""A site trains on its own records, then on those and on what the coalition released."""

import numpy as np
import pytest
import scipy.sparse as sp
from tests.refusals import refused

from privote import BinaryVoting
from privote.capc.coalition import Simulation
from privote.capc.retrain import Records, judge, retrain_site, train_site, weakest
from privote.capc.terms import Terms

LABELS = ("a", "b", "c")


def made_up(count, seed, flip=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 6))
    truth = np.random.default_rng(7).normal(size=(6, 3))
    Y = (X @ truth - 0.8 > 0) ^ (rng.random((count, 3)) < flip)
    return X, Y.astype(np.int8)


TEST = made_up(400, 99)


def test_thresholds_give_every_label_its_own_share_of_yeses():
    X, Y = made_up(600, 0, flip=0.1)
    model = train_site(Records(X=X, Y=Y), LABELS)
    share = model.votes(made_up(2000, 1)[0]).mean(axis=0)
    assert share == pytest.approx(Y.mean(axis=0), abs=0.06)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_labels_of_the_coalition_improve_a_small_site(kind):
    X, Y = made_up(24, 2)
    records = Records(X=kind(X), Y=Y)
    X_new, Y_new = made_up(300, 3, flip=0.05)
    before = judge(train_site(records, LABELS), *TEST)
    after = judge(retrain_site(records, LABELS, kind(X_new), Y_new), *TEST)
    assert after["BAC"] > before["BAC"] + 0.03
    assert after["AUC"] > before["AUC"]


def test_abstained_cells_teach_nothing():
    X, Y = made_up(40, 2)
    X_new, _ = made_up(100, 3)
    nothing = np.full((100, 3), -1, np.int8)
    model = retrain_site(Records(X=X, Y=Y), LABELS, X_new, nothing)
    assert np.isfinite(model.scores(X_new)).all()
    assert judge(model, *TEST)["AUC"] > 0.7


def test_a_label_without_records_is_learned_from_the_coalition():
    X, Y = made_up(60, 2)
    Y[:, 1] = -1
    records = Records(X=X, Y=Y)
    assert records.knows().tolist() == [True, False, True]
    assert not train_site(records, LABELS).votes(TEST[0])[:, 1].any()
    X_new, Y_new = made_up(300, 3)
    votes = retrain_site(records, LABELS, X_new, Y_new).votes(TEST[0])[:, 1]
    assert (votes == TEST[1][:, 1]).mean() > 0.9


def test_the_weakest_models_come_first():
    models = {
        str(count): train_site(Records(**dict(zip("XY", made_up(count, 5), strict=True))), LABELS)
        for count in (200, 6, 30)
    }
    assert weakest(models, *TEST, 2)[0] == "6"
    with refused("count"):
        weakest(models, *TEST, 4)


def test_what_does_not_fit_is_refused():
    X, Y = made_up(10, 0)
    with refused("Y"):
        Records(X=X, Y=Y[:5])
    with refused("Y"):
        Records(X=X, Y=Y * 2)
    with refused("released"):
        retrain_site(Records(X=X, Y=Y), LABELS, X, Y[:, :2])


def test_a_whole_coalition_improves_its_smallest_site():
    parts = {f"site-{place}": made_up(200, 10 + place) for place in range(10)}
    parts["site-0"] = made_up(20, 50)
    records = {name: Records(X=X, Y=Y) for name, (X, Y) in parts.items()}
    models = {name: train_site(own, LABELS) for name, own in records.items()}
    terms = Terms(
        name="test",
        labels=LABELS,
        features=6,
        mechanism=BinaryVoting(sigma=3.0),
        epsilon=20.0,
        delta=1e-5,
        guardian="guardian",
        parties=dict.fromkeys(parts),
        queriers=("site-0",),
    )
    X_new, _ = made_up(40, 3)
    answers = Simulation(terms, models, seed=0).ask("site-0", X_new)
    after = retrain_site(records["site-0"], LABELS, X_new, answers.labels)
    assert judge(after, *TEST)["BAC"] > judge(models["site-0"], *TEST)["BAC"]

"""Image networks as teachers: trained, tuned, frozen, and kept without code."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline

from privote.datasets import load_scenes
from privote.datasets.images import Images
from privote.errors import InputError, MissingExtraError
from privote.learning.networks.classifier import Augment
from privote.learning.networks.image import TRAINING, ImageFeatures, ImageNetwork
from privote.learning.students.classifiers import train_student
from privote.learning.teachers.votes import best_thresholds

torch = pytest.importorskip("torch")

SCENES = load_scenes(private=400, public=1, test=200)
X = SCENES.images(SCENES.X_private)[:, None]
TEST = SCENES.images(SCENES.X_test)[:, None]
Y = SCENES.Y_private
QUICK = {"architecture": "smallcnn", "n_epochs": 1, "random_state": 0}


def test_a_small_network_learns_scenes():
    model = ImageNetwork("smallcnn", n_epochs=8, batch_size=32, random_state=0).fit(X, Y)
    assert roc_auc_score(SCENES.Y_test, model.predict_proba(TEST)) > 0.7
    assert len(model.history_["train_loss"]) == 8
    assert model.history_["train_loss"][-1] < model.history_["train_loss"][0]


def test_probabilities_move_a_network_by_as_much():
    model = ImageNetwork(**{**QUICK, "n_epochs": 4}, validation=0.0)
    doubtful = clone(model).fit(X, np.where(Y == 1, 0.55, 0.45))
    assert np.abs(doubtful.predict_proba(TEST) - 0.5).mean() < 0.1
    held = clone(model).fit(X, np.where(Y == 1, Y, -1)).predict_proba(TEST)
    assert held.mean() > clone(model).fit(X, Y).predict_proba(TEST).mean() + 0.1


def test_defaults_are_those_of_the_paper():
    assert TRAINING["densenet121"] == {
        "optimizer": "adam",
        "n_epochs": 100,
        "batch_size": 64,
        "learning_rate": 1e-3,
        "weight_decay": 1e-5,
    }
    settings = ImageNetwork("resnet50", learning_rate=0.5)._settings()
    assert (settings.optimizer, settings.n_epochs, settings.weight_decay) == ("sgd", 1000, 1e-4)
    assert settings.learning_rate == 0.5


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_adam_is_with_amsgrad(optimizer, monkeypatch):
    made = []
    name = {"adam": "Adam", "sgd": "SGD"}[optimizer]
    plain = getattr(torch.optim, name)

    def recorded(weights, **settings):
        made.append(settings)
        return plain(weights, **settings)

    monkeypatch.setattr(torch.optim, name, recorded)
    ImageNetwork(**QUICK, optimizer=optimizer, weight_decay=0.25).fit(X[:20], Y[:20])
    assert made[0]["weight_decay"] == 0.25
    assert made[0].get("amsgrad", False) == (optimizer == "adam")


def test_the_best_epoch_is_the_one_kept():
    # At this rate the loss explodes: the first epochs are the best.
    model = ImageNetwork(
        "smallcnn", n_epochs=4, learning_rate=0.5, optimizer="sgd", random_state=0, validation=0.3
    ).fit(X, Y)
    order = np.random.RandomState(0)
    order.randint(2**31 - 1)
    held = order.permutation(400)[:120]
    chance = np.clip(model.predict_proba(X[held]), 1e-12, 1 - 1e-12)
    loss = -np.where(Y[held] == 1, np.log(chance), np.log(1 - chance)).mean()
    assert loss == pytest.approx(min(model.history_["valid_loss"]), rel=1e-3)
    tuned = best_thresholds(model.predict_proba(X[np.sort(held)]), Y[np.sort(held)], "BAC")
    assert model.thresholds_ == pytest.approx(tuned)


def test_the_rate_falls_on_a_plateau_and_patience_ends():
    epochs = []
    model = ImageNetwork(
        "smallcnn",
        n_epochs=30,
        learning_rate=1e-3,
        plateau=1,
        patience=5,
        random_state=0,
        progress=lambda done, total: epochs.append((done, total)),
    ).fit(X[:60], np.full_like(Y[:60], -1))  # without labels the loss is always 0
    rates = model.history_["learning_rate"]
    assert len(rates) == len(model.history_["valid_loss"]) < 30
    assert rates[0] == 1e-3
    assert rates[-1] < 0.2e-3
    assert epochs[0] == (1, 30)


def test_unknown_labels_do_not_count():
    labels = Y.copy()
    labels[:, 0] = -1
    plain = {**QUICK, "validation": 0.0, "weight_decay": 0.0}
    trained = ImageNetwork(**plain).fit(X, labels)
    start = ImageNetwork(**plain, learning_rate=1e-12).fit(X, labels)
    one, two = (model.network_.state_dict()["13.weight"] for model in (trained, start))
    assert torch.allclose(one[0], two[0], atol=1e-6)
    assert not torch.allclose(one[1:], two[1:], atol=1e-3)


def test_labels_of_one_class_are_fine():
    labels = Y.copy()
    labels[:, 0], labels[:, 1] = 1, 0
    model = ImageNetwork("smallcnn", n_epochs=3, random_state=0).fit(X, labels)
    assert model.predict_proba(TEST)[:, 0].mean() > model.predict_proba(TEST)[:, 1].mean()
    assert model.thresholds_[:2].tolist() == [0.5, 0.5]


def test_random_state_decides_everything():
    one, two = (ImageNetwork(**QUICK, augment=Augment(shift=1)).fit(X, Y) for _ in range(2))
    assert np.array_equal(one.predict_proba(TEST), two.predict_proba(TEST))
    other = ImageNetwork(**{**QUICK, "random_state": 1}).fit(X, Y)
    assert not np.array_equal(one.predict_proba(TEST), other.predict_proba(TEST))


def test_bytes_and_files_are_the_same_images(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    pixels = (X[:20] * 255).round().clip(0, 255).astype(np.uint8)
    for place, image in enumerate(pixels):
        pillow.fromarray(image[0]).save(tmp_path / f"{place}.png")
    files = Images(paths=[str(tmp_path / f"{n}.png") for n in range(20)], size=16, channels=1)
    by_bytes = ImageNetwork(**QUICK).fit(pixels, Y[:20])
    by_files = ImageNetwork(**QUICK).fit(files, Y[:20])
    assert by_files.predict_proba(files) == pytest.approx(by_bytes.predict_proba(pixels), abs=1e-5)


def test_a_frozen_network_trains_its_last_layer_only():
    model = ImageNetwork(**{**QUICK, "n_epochs": 30}, frozen=True).fit(X, Y)
    start = ImageNetwork(**QUICK, frozen=True, learning_rate=1e-12).fit(X, Y)
    ours, theirs = model.network_.state_dict(), start.network_.state_dict()
    for name in ours:
        assert torch.allclose(ours[name], theirs[name]) != name.startswith("13."), name
    assert model.features(TEST).shape == (200, 64)
    assert roc_auc_score(SCENES.Y_test, model.predict_proba(TEST)) > 0.55
    head = torch.nn.functional.linear(
        torch.as_tensor(model.features(TEST)), ours["13.weight"], ours["13.bias"]
    )
    assert torch.sigmoid(head).numpy() == pytest.approx(model.predict_proba(TEST), abs=1e-5)


def test_features_are_computed_once_for_linear_teachers(tmp_path):
    trained = ImageNetwork("smallcnn", n_epochs=5, random_state=0).fit(X, Y)
    torch.save(trained.network_.state_dict(), tmp_path / "weights.pt")
    maker = ImageFeatures("smallcnn", weights=tmp_path / "weights.pt")
    teacher = make_pipeline(maker, OneVsRestClassifier(LogisticRegression(max_iter=500)))
    teacher.fit(X[:200], Y[:200])
    assert clone(maker).fit(X).transform(X) == pytest.approx(trained.features(X), abs=1e-5)
    assert roc_auc_score(SCENES.Y_test, teacher.predict_proba(TEST)) > 0.6


def test_features_of_an_image_know_no_others():
    images = np.random.default_rng(0).random((70, 1, 16, 16)).astype(np.float32)
    maker = ImageFeatures("smallcnn").fit(images)
    every = maker.transform(images)
    for some in (np.arange(2), np.arange(31), np.delete(np.arange(70), 7), np.arange(33)[::-1]):
        assert maker.transform(images[some]).tobytes() == every[some].tobytes()


@pytest.mark.parametrize(
    ("architecture", "channels"),
    [("densenet121", 1), ("densenet121", 3), ("resnet50", 1), ("resnet50", 3)],
)
def test_the_large_networks_train(architecture, channels):
    pytest.importorskip("monai")
    images = np.repeat(np.pad(X[:9], ((0, 0), (0, 0), (8, 8), (8, 8))), channels, axis=1)
    model = ImageNetwork(
        architecture, n_epochs=1, batch_size=4, normalise="imagenet", random_state=0
    ).fit(images, Y[:9])
    assert model.predict_proba(images).shape == (9, 10)
    again = ImageNetwork.from_arrays(model.to_arrays())
    assert np.array_equal(again.predict_proba(images), model.predict_proba(images))


def test_it_is_a_teacher_a_student_and_pickles():
    model = train_student(clone(ImageNetwork("smallcnn", n_epochs=1)), X[:50], Y[:50], None, 3)
    assert model.predict(TEST).shape == (200, 10)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(TEST), model.predict(TEST))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"architecture": "vgg"}, "network"),
        ({"optimizer": "lion"}, "optimizer"),
        ({"n_epochs": 0}, "n_epochs"),
        ({"validation": 1.0}, "validation"),
        ({"tune": "AUC"}, "tune"),
        ({"normalise": "mean"}, "normalise"),
        ({"patience": 0}, "patience"),
        ({"learning_rate": 0.0}, "learning_rate"),
    ],
)
def test_bad_settings_are_refused(wrong, says):
    with pytest.raises(InputError, match=says):
        ImageNetwork(**{**QUICK, **wrong}).fit(X, Y)


def test_without_the_extra_it_says_which(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"\[deep\]"):
        ImageNetwork(**QUICK).fit(X, Y)


def test_importing_the_room_loads_no_torch():
    code = (
        "import sys; import privote.learning.students.mixmatch, privote.learning.networks.image,"
        " privote.learning.direct.dpsgd; heavy = {'torch', 'opacus', 'monai', 'skorch'};"
        " assert not heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_label_of_one_class_leaves_a_student_one_network():
    images = np.random.default_rng(0).random((12, 1, 8, 8)).astype(np.float32)
    labels = np.column_stack([np.zeros(12), np.arange(12) % 2, np.repeat([-1, 0, 1], 4)])
    student = train_student(ImageNetwork("smallcnn", n_epochs=1), images, labels.astype(np.int8))
    assert isinstance(student, ImageNetwork)  # else it could not be saved without code
    assert student.predict_proba(images).shape == (12, 3)

"""Image networks as teachers: trained, tuned, frozen, and kept without code."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from tests.refusals import refused

from privote.datasets import load_scenes
from privote.learning.networks import ImageNetwork, Rows, Scaling, image_features
from privote.learning.students import train_student

torch = pytest.importorskip("torch")

SCENES = load_scenes(private=400, public=1, test=200)
X = SCENES.X_private.reshape(-1, 1, 16, 16)
TEST = SCENES.X_test.reshape(-1, 1, 16, 16)
Y = SCENES.Y_private
QUICK = {"architecture": "smallcnn", "n_epochs": 1, "random_state": 0}


def test_a_small_network_learns_scenes():
    model = ImageNetwork("smallcnn", n_epochs=8, batch_size=32, learning_rate=2e-3, random_state=0)
    model.fit(X, Y)
    assert roc_auc_score(SCENES.Y_test, model.predict_proba(TEST)) > 0.7
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(TEST), model.predict(TEST))


def test_the_best_epoch_is_the_one_kept():
    order = np.random.RandomState(0)
    order.randint(2**31 - 1)
    held = order.permutation(400)[:120]

    def loss(epochs):
        # At this rate the loss explodes: the first epochs are the best.
        how = {"n_epochs": epochs, "learning_rate": 0.5, "validation": 0.3, "random_state": 0}
        model = ImageNetwork("smallcnn", **how).fit(X, Y)
        chance = np.clip(model.predict_proba(X[held]), 1e-12, 1 - 1e-12)
        return -np.where(Y[held] == 1, np.log(chance), np.log(1 - chance)).mean()

    losses = [loss(epochs) for epochs in (1, 2, 4)]
    assert losses == sorted(losses, reverse=True)


def test_unknown_labels_do_not_count_and_labels_of_one_class_are_fine():
    labels = Y.copy()
    labels[:, 0], labels[:, 1] = -1, 1
    plain = {**QUICK, "validation": 0.0, "weight_decay": 0.0}
    trained = ImageNetwork(**plain).fit(X, labels)
    start = ImageNetwork(**plain, learning_rate=1e-12).fit(X, labels)
    one, two = (model.network_.state_dict()["13.weight"] for model in (trained, start))
    assert torch.allclose(one[0], two[0], atol=1e-6)
    assert not torch.allclose(one[1:], two[1:], atol=1e-3)


def test_a_frozen_network_trains_its_last_layer_only():
    model = ImageNetwork(**{**QUICK, "n_epochs": 30}, frozen=True).fit(X, Y)
    start = ImageNetwork(**QUICK, frozen=True, learning_rate=1e-12).fit(X, Y)
    ours, theirs = model.network_.state_dict(), start.network_.state_dict()
    for name in ours:
        assert torch.allclose(ours[name], theirs[name]) != name.startswith("13."), name
    assert roc_auc_score(SCENES.Y_test, model.predict_proba(TEST)) > 0.55


def test_features_of_an_image_know_no_others():
    images = np.random.default_rng(0).random((70, 1, 16, 16)).astype(np.float32)
    network = ImageNetwork(**QUICK).fit(images, np.arange(70)[:, None] % 2).network_

    def features(some):
        return image_features(network, Rows(images[some]), Scaling.none((1, 16, 16)))

    every = features(np.arange(70))
    for some in (np.arange(2), np.arange(31), np.delete(np.arange(70), 7), np.arange(33)[::-1]):
        assert features(some).tobytes() == every[some].tobytes()


class _Placed(torch.nn.Module):
    """Rounds by the place in the batch, as some processors' products do."""

    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(256, 1)

    def forward(self, x):
        return self.head(x.flatten(1) + 1e-3 * torch.arange(len(x))[:, None])


def test_images_go_one_by_one_where_places_in_a_batch_round_differently():
    found = image_features(_Placed(), Rows(X[:40]), Scaling.none((1, 16, 16)))
    assert found.tobytes() == X[:40].reshape(40, -1).astype(np.float32).tobytes()


@pytest.mark.parametrize(("architecture", "channels"), [("densenet121", 1), ("resnet50", 3)])
def test_the_large_networks_train(architecture, channels):
    pytest.importorskip("monai")
    images = np.repeat(np.pad(X[:9], ((0, 0), (0, 0), (8, 8), (8, 8))), channels, axis=1)
    how = {"n_epochs": 1, "batch_size": 4, "normalise": "imagenet", "random_state": 0}
    model = ImageNetwork(architecture, **how).fit(images, Y[:9])
    assert model.predict_proba(images).shape == (9, 10)
    again = clone(model).restored(model.shape_, model.to_arrays())
    assert np.array_equal(again.predict_proba(images), model.predict_proba(images))


def test_bad_settings_are_refused():
    wrong = {"n_epochs": 0, "validation": 1.0, "weight_decay": -1.0}
    wrong |= {"normalise": "mean", "learning_rate": 0.0, "device": "nowhere"}
    for name, value in wrong.items():
        with refused(name):
            ImageNetwork(**{**QUICK, name: value}).fit(X, Y)
    with refused("network"):
        ImageNetwork("vgg").fit(X, Y)


def test_importing_the_room_loads_no_torch():
    code = (
        "import sys; import privote.learning.mixmatch, privote.learning.networks,"
        " privote.learning.dpsgd; heavy = {'torch', 'opacus', 'monai', 'skorch'};"
        " assert not heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_label_of_one_class_leaves_a_student_one_network():
    images = np.random.default_rng(0).random((12, 1, 8, 8)).astype(np.float32)
    labels = np.column_stack([np.zeros(12), np.arange(12) % 2, np.repeat([-1, 0, 1], 4)])
    student = train_student(ImageNetwork("smallcnn", n_epochs=1), images, labels.astype(np.int8))
    assert isinstance(student, ImageNetwork)  # else it could not be saved without code
    assert student.predict_proba(images).shape == (12, 3)

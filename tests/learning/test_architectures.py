"""Networks by name, their weights as arrays, and weights from files."""

import sys

import numpy as np
import pytest
from tests.refusals import refused

from privote.errors import InputError, UnavailableError

torch = pytest.importorskip("torch")
pytest.importorskip("monai")

from privote.learning.networks import (  # noqa: E402
    build_network,
    check_network,
    last_layer,
    load_weights,
    on_device,
    set_weights,
    weights_of,
)


@pytest.mark.parametrize(
    ("network", "shape"),
    [
        ("smallcnn", (10,)),
        ("densenet121", (1, 16, 16)),
        ("mlp", (1, 16, 16)),
        ("linear", (3, 9, 9)),
    ],
)
def test_rows_of_the_wrong_kind_are_refused(network, shape):
    with refused():  # no dense layer on raw pixels either
        build_network(network, shape, 2)


def test_unknown_networks_and_devices_are_refused():
    for wrong in ("vgg", None, 3):
        with refused("network", value=wrong):
            check_network(wrong)
    assert last_layer(build_network("mlp", (4,), 2)).out_features == 2
    with pytest.raises(UnavailableError):
        last_layer(torch.nn.Conv2d(1, 1, 1))
    with refused("device", value="nowhere"):
        on_device(torch.nn.Linear(1, 1), "nowhere")


def test_arrays_bring_a_network_back():
    one, two = (build_network("smallcnn", (1, 8, 8), 3) for _ in range(2))
    set_weights(two, weights_of(one))
    batch = torch.rand(2, 1, 8, 8)
    assert torch.equal(one.eval()(batch), two.eval()(batch))
    own = weights_of(one)
    for wrong in ({}, {**own, "0.bias": np.zeros(5)}, {**own, "0.bias": np.array(["x"] * 32)}):
        with pytest.raises(InputError):
            set_weights(two, wrong)


def test_a_file_for_other_labels_starts_everything_but_the_last_layer(tmp_path):
    elsewhere = build_network("smallcnn", (1, 8, 8), 7)
    torch.save(elsewhere.state_dict(), tmp_path / "weights.pt")
    ours = build_network("smallcnn", (1, 8, 8), 3)
    head = ("13.weight", "13.bias")
    assert sorted(load_weights(ours, tmp_path / "weights.pt")) == sorted(head)
    theirs = weights_of(elsewhere)
    for name, value in weights_of(ours).items():
        assert name in head or np.array_equal(value, theirs[name])


def test_three_channels_are_summed_for_one(tmp_path):
    colour = build_network("smallcnn", (3, 8, 8), 2).eval()
    torch.save({"state_dict": colour.state_dict()}, tmp_path / "weights.pt")
    grey = build_network("smallcnn", (1, 8, 8), 2).eval()
    load_weights(grey, tmp_path / "weights.pt")
    image = torch.rand(2, 1, 8, 8)
    assert torch.allclose(grey(image), colour(image.repeat(1, 3, 1, 1)), atol=1e-5)


def test_torchvision_names_are_understood(tmp_path):
    module = build_network("densenet121", (3, 32, 32), 4)
    theirs = {
        name.replace(".layers.", ".").replace("class_layers.out", "classifier"): value
        for name, value in module.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    assert "features.denseblock1.denselayer1.norm1.weight" in theirs
    torch.save(theirs, tmp_path / "weights.pt")
    other = build_network("densenet121", (3, 32, 32), 4)
    assert load_weights(other, tmp_path / "weights.pt") == []
    image = torch.rand(2, 3, 32, 32)
    assert torch.equal(other.eval()(image), module.eval()(image))
    own = build_network("resnet50", (3, 32, 32), 2).state_dict()
    for name in ("conv1.weight", "bn1.running_var", "layer4.2.conv3.weight", "fc.bias"):
        assert name in own
    assert own["layer1.0.downsample.0.weight"].shape == (256, 64, 1, 1)
    assert "layer1.0.downsample.0.bias" not in own


class _Mischief:
    def __reduce__(self):
        return (sys.exit, ("code ran",))


@pytest.mark.parametrize("content", [_Mischief(), {"a": _Mischief()}, [1, 2], {"1.bias": 3}, None])
def test_files_that_are_not_weights_are_refused_and_run_nothing(tmp_path, content):
    if content is not None:
        torch.save(content, tmp_path / "weights.pt")
    with pytest.raises(InputError):
        load_weights(build_network("linear", (4,), 2), tmp_path / "weights.pt")
    torch.save(build_network("mlp", (4,), 2).state_dict(), tmp_path / "weights.pt")
    with pytest.raises(InputError):  # of another network
        load_weights(build_network("smallcnn", (1, 8, 8), 2), tmp_path / "weights.pt")

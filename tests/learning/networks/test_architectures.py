"""Networks by name, their weights as arrays, and weights from files."""

import sys

import numpy as np
import pytest

from privote.errors import InputError, MissingExtraError, UnavailableError
from privote.learning.networks.architectures import check_network, require_torch

torch = pytest.importorskip("torch")

from privote.learning.networks.architectures import (  # noqa: E402
    build_network,
    last_layer,
    load_weights,
    seeded,
    set_weights,
    weights_of,
)


@pytest.mark.parametrize("network", ["linear", "mlp", "smallcnn", "densenet121", "resnet50"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_network_gives_one_logit_a_label(network, channels):
    if network in ("densenet121", "resnet50"):
        pytest.importorskip("monai")
    module = build_network(network, (channels, 32, 32), 5).eval()
    with torch.no_grad():
        assert module(torch.rand(2, channels, 32, 32)).shape == (2, 5)
    assert last_layer(module).out_features == 5


def test_the_large_networks_have_the_sizes_in_print():
    pytest.importorskip("monai")
    counts = {
        # DenseNet-121 and ResNet-50 of the original papers, three channels, 1000 classes.
        "densenet121": 7_978_856,
        "resnet50": 25_557_032,
    }
    for name, wanted in counts.items():
        module = build_network(name, (3, 32, 32), 1000)
        assert sum(weight.numel() for weight in module.parameters()) == wanted


def test_vectors_for_an_image_network_are_refused():
    with pytest.raises(InputError, match="channels, height, width"):
        build_network("smallcnn", (10,), 2)
    with pytest.raises(InputError, match="32 x 32"):
        build_network("densenet121", (1, 16, 16), 2)


@pytest.mark.parametrize("wrong", ["vgg", None, 3])
def test_unknown_networks_are_refused(wrong):
    with pytest.raises(InputError, match="network must be one of"):
        check_network(wrong)


def test_a_network_needs_a_last_layer():
    with pytest.raises(UnavailableError, match="Linear"):
        last_layer(torch.nn.Conv2d(1, 1, 1))


def test_seeds_make_networks_and_leave_the_generator_alone():
    before = torch.random.get_rng_state()
    with seeded(1):
        one = weights_of(build_network("mlp", (4,), 2))
    with seeded(1):
        two = weights_of(build_network("mlp", (4,), 2))
    with seeded(2):
        three = weights_of(build_network("mlp", (4,), 2))
    assert all(np.array_equal(one[name], two[name]) for name in one)
    assert not np.array_equal(one["1.weight"], three["1.weight"])
    assert torch.equal(torch.random.get_rng_state(), before)


def test_arrays_bring_a_network_back():
    one, two = (build_network("smallcnn", (1, 8, 8), 3) for _ in range(2))
    set_weights(two, weights_of(one))
    batch = torch.rand(2, 1, 8, 8)
    assert torch.equal(one.eval()(batch), two.eval()(batch))
    with pytest.raises(InputError, match="missing"):
        set_weights(two, {})
    with pytest.raises(InputError, match="shape"):
        set_weights(two, {**weights_of(one), "0.bias": np.zeros(5)})
    with pytest.raises(InputError, match="shape"):
        set_weights(two, {**weights_of(one), "0.bias": np.array(["x"] * 32)})


def test_a_file_for_other_labels_starts_everything_but_the_last_layer(tmp_path):
    elsewhere = build_network("smallcnn", (1, 8, 8), 7)
    torch.save(elsewhere.state_dict(), tmp_path / "weights.pt")
    ours = build_network("smallcnn", (1, 8, 8), 3)
    left_out = load_weights(ours, tmp_path / "weights.pt")
    head = ("13.weight", "13.bias")
    assert sorted(left_out) == sorted(head)
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


def test_torchvision_names_of_a_densenet_are_understood(tmp_path):
    pytest.importorskip("monai")
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


def test_torchvision_names_of_a_resnet_are_monais(tmp_path):
    pytest.importorskip("monai")
    own = build_network("resnet50", (3, 32, 32), 2).state_dict()
    for name in ("conv1.weight", "bn1.running_var", "layer4.2.conv3.weight", "fc.bias"):
        assert name in own
    assert own["layer1.0.downsample.0.weight"].shape == (256, 64, 1, 1)
    torch.save({**own, "fc.weight": torch.zeros(1000, 2048)}, tmp_path / "weights.pt")
    grey = build_network("resnet50", (1, 32, 32), 2)
    assert load_weights(grey, tmp_path / "weights.pt") == ["fc.weight"]


class _Mischief:
    def __reduce__(self):
        return (sys.exit, ("code ran",))


@pytest.mark.parametrize("content", [_Mischief(), {"a": _Mischief()}, [1, 2], {"1.bias": 3}])
def test_files_that_are_not_weights_are_refused_and_run_nothing(tmp_path, content):
    torch.save(content, tmp_path / "weights.pt")
    with pytest.raises(InputError, match="weights"):
        load_weights(build_network("linear", (4,), 2), tmp_path / "weights.pt")


def test_files_of_another_network_are_refused(tmp_path):
    torch.save(build_network("mlp", (4,), 2).state_dict(), tmp_path / "weights.pt")
    with pytest.raises(InputError, match="match this network"):
        load_weights(build_network("smallcnn", (1, 8, 8), 2), tmp_path / "weights.pt")
    with pytest.raises(InputError, match="does not exist"):
        load_weights(build_network("linear", (4,), 2), tmp_path / "absent.pt")


def test_without_torch_it_says_which_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"networks needs the extra \[deep\]"):
        require_torch("networks")

"""Augmentations change pixels and features, and leave what they should."""

import numpy as np
import pytest

from privote.errors import InputError
from privote.learning.networks.augment import Augment

torch = pytest.importorskip("torch")

from privote.learning.networks.augment import shifted  # noqa: E402

IMAGES = torch.arange(2 * 3 * 5 * 4, dtype=torch.float32).reshape(2, 3, 5, 4) + 1


def _generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_nothing_asked_for_changes_nothing():
    assert torch.equal(Augment()(IMAGES, _generator()), IMAGES)


def test_every_shift_is_a_translation_with_zeros_moving_in():
    many = IMAGES[:1].repeat(200, 1, 1, 1)
    moved = shifted(many, 2, _generator())
    padded = torch.nn.functional.pad(IMAGES[0], (2, 2, 2, 2))
    windows = {
        (down, right): padded[:, down : down + 5, right : right + 4]
        for down in range(5)
        for right in range(5)
    }
    seen = set()
    for image in moved:
        (place,) = [at for at, window in windows.items() if torch.equal(image, window)]
        seen.add(place)
    assert len(seen) == 25


def test_half_of_the_images_are_mirrored():
    many = IMAGES[:1].repeat(400, 1, 1, 1)
    flipped = Augment(flip=True)(many, _generator())
    mirrored = [torch.equal(image, IMAGES[0].flip(-1)) for image in flipped]
    same = [torch.equal(image, IMAGES[0]) for image in flipped]
    assert sum(mirrored) + sum(same) == 400
    assert 150 < sum(mirrored) < 250


def test_dropout_keeps_the_mean_and_noise_has_its_deviation():
    ones = torch.ones(400, 500)
    dropped = Augment(feature_dropout=0.5)(ones, _generator())
    assert set(np.unique(dropped.numpy())) == {0.0, 2.0}
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.01)
    noisy = Augment(noise=0.3)(ones, _generator())
    assert (noisy - ones).std().item() == pytest.approx(0.3, rel=0.02)


def test_the_generator_decides():
    change = Augment(noise=0.1, flip=True, shift=1)
    assert torch.equal(change(IMAGES, _generator(1)), change(IMAGES, _generator(1)))
    assert not torch.equal(change(IMAGES, _generator(1)), change(IMAGES, _generator(2)))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"noise": -1.0}, "noise"),
        ({"feature_dropout": 1.0}, "feature_dropout"),
        ({"flip": 1}, "flip"),
        ({"shift": 1.5}, "shift"),
    ],
)
def test_bad_settings_are_refused(wrong, says):
    with pytest.raises(InputError, match=says):
        Augment(**wrong)

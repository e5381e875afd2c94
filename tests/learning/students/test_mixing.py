"""The pieces of a MixMatch step, one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from privote.learning.networks.architectures import masked_loss  # noqa: E402
from privote.learning.students.mixmatch import Recipe, aligned, mixed, sharpen  # noqa: E402

CHANCES = st.floats(1e-6, 1 - 1e-6)


@given(p=CHANCES, temperature=st.floats(0.1, 3.0))
def test_sharpening_is_the_formula(p, temperature):
    odds = p ** (1 / temperature), (1 - p) ** (1 / temperature)
    got = sharpen(torch.tensor([p], dtype=torch.float64), temperature).item()
    assert got == pytest.approx(odds[0] / sum(odds), abs=1e-9)


def test_certain_guesses_stay_finite():
    assert sharpen(torch.tensor([0.0, 1.0]), 0.5).tolist() == [0.0, 1.0]


@given(p=CHANCES, wanted=st.floats(0.01, 0.99), running=st.floats(0.01, 0.99))
def test_alignment_scales_odds(p, wanted, running):
    def odds(x):
        return x / (1 - x)

    values = [torch.tensor([x], dtype=torch.float64) for x in (p, wanted, running)]
    got = aligned(*values).item()
    assert odds(got) == pytest.approx(odds(p) * odds(wanted) / odds(running), rel=1e-6)
    assert aligned(values[0], values[1], values[1]).item() == pytest.approx(p)


@pytest.mark.parametrize(
    ("warmup", "wanted"),
    [
        (0.0, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 5.0, 5.0, 5.0, 5.0]),
        (0.4, [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
    ],
)
def test_the_unlabelled_loss_waits_then_rises(warmup, wanted):
    recipe = Recipe(steps=10, unlabelled_weight=5.0, warmup=warmup)
    assert [recipe.weight(step) for step in range(10)] == pytest.approx(wanted)


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


def test_unknown_labels_do_not_count():
    logits = torch.tensor([[2.0, -1.0], [0.5, 3.0]], requires_grad=True)
    truth = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    known = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    loss = masked_loss(logits, truth, known)
    wanted = (np.log1p(np.exp(-2.0)) + np.log1p(np.exp(0.5))) / 2
    assert loss.item() == pytest.approx(wanted, rel=1e-5)
    loss.backward()
    assert (logits.grad[:, 1] == 0).all()
    assert masked_loss(logits, truth, torch.zeros(2, 2)).item() == 0.0

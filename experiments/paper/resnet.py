"""Table 1's DPSGD as a network: a small ResNet-18 trained from scratch on VOC's pictures.

A quarter of the usual width, 2,000 pictures of train at 32 x 32 pixels, 1,000 of val for the test,
epsilon 10, delta 1e-5. The paper starts a ResNet-50 from ImageNet's weights at 224 x 224. It takes
minutes: it is measured by name only, and kept.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from privote.datasets import voc2012

from .bench import Bench, Measured
from .learning import figures
from .sources import VOC, find

PRIVATE, TEST, SIDE = 2_000, 1_000, 32
BATCH, EPOCHS = 128, 10


class Block(nn.Module):  # type: ignore[misc]
    """Two convolutions beside a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.GroupNorm(8, outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.GroupNorm(8, outputs),
        )
        same = inputs == outputs
        self.skip = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Any) -> Any:
        """Return what the path adds to the row."""
        return nn.functional.relu(self.path(x) + self.skip(x))


def resnet18(shape: tuple[int, ...], labels: int) -> Any:
    """Return a ResNet-18 of a quarter of the width for small pictures, with group normalisation."""
    stages = ((16, 16, 1), (16, 32, 2), (32, 64, 2), (64, 128, 2))
    blocks = [
        block
        for inputs, outputs, stride in stages
        for block in (Block(inputs, outputs, stride), Block(outputs, outputs, 1))
    ]
    stem = (nn.Conv2d(shape[0], 16, 3, 2, 1, bias=False), nn.GroupNorm(8, 16), nn.ReLU())
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, labels))
    return nn.Sequential(*stem, *blocks, *head)


def fit(X: Any, Y: Any, epsilon: float, delta: float) -> Any:
    """Return the network after noisy gradients of Opacus' engine, priced by its own accountant."""
    torch.manual_seed(0)
    rows = TensorDataset(torch.tensor(X), torch.tensor(Y, dtype=torch.float32))
    network = resnet18(X.shape[1:], Y.shape[1])
    with torch.no_grad():
        network[-1].bias.fill_(-2.5)  # about how often a label is there: public
    network, descent, loader = PrivacyEngine(accountant="prv").make_private_with_epsilon(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.5, momentum=0.9),
        data_loader=DataLoader(rows, batch_size=BATCH, shuffle=True),
        target_epsilon=epsilon,
        target_delta=delta,
        epochs=EPOCHS,
        max_grad_norm=1.0,
    )
    for epoch in range(EPOCHS):
        for x, y in loader:
            descent.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(network(x), y, reduction="none").sum(
                dim=1
            ).mean().backward()
            descent.step()
        print(f"epoch {epoch + 1} of {EPOCHS}", file=sys.stderr, flush=True)
    return network.eval()


def private_resnet(bench: Bench) -> Measured | None:
    """Train it, and judge it per label and per picture, beside the labels' frequencies."""
    place = find(bench.data, VOC)
    if place is None:
        return None
    sides = []
    for part, number in (("train", PRIVATE), ("val", TEST)):
        data = voc2012(place.path, part, difficult="positive", size=SIDE)
        chosen = np.sort(np.random.default_rng(0).permutation(len(data.Y))[:number])
        sides.append((np.asarray(data.X[chosen], np.float32), data.Y[chosen].astype(np.int8)))
    (X, Y), (X_test, Y_test) = sides
    centre, scale = X.mean(), X.std()  # two numbers of all pixels, taken as public
    network = fit((X - centre) / scale, Y, 10.0, 1e-5)
    with torch.no_grad():
        chance = torch.sigmoid(network(torch.tensor((X_test - centre) / scale))).numpy()
    models = {"DPSGD, ResNet-18": chance, "constant": np.tile(Y.mean(axis=0), (TEST, 1))}
    rows = [{"model": name, **figures(Y_test, answers)} for name, answers in models.items()]
    facts = {
        "auc": rows[0]["AUC"],
        "auc_picture": rows[0]["AUC, picture"],
        "constant": rows[1]["AUC, picture"],
    }
    return Measured(rows=rows, facts=facts)

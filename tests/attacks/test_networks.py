"""Attacks on DPSGD by networks that remember rows, and by rows that move other rows' gradients."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.attacks.conftest import Outcome, scaled

from privote.errors import InputError
from privote.learning.direct.noise import Noise, TrainingPlan

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from privote.learning.direct.dpsgd import DPSGDClassifier  # noqa: E402

nn: Any = torch.nn
RNG = np.random.default_rng(0)
IMAGES = RNG.random((40, 1, 8, 8)).astype(np.float32)
FINDINGS = (RNG.random((40, 2)) < 0.5).astype(np.int8)
QUICK = {"epsilon": 1.0, "steps": 4, "sample_rate": 1.0, "chunk": 32, "random_state": 0}


class Plain(nn.Module):  # type: ignore[misc]
    """One layer, and a look at what comes in."""

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.head = nn.Linear(64, labels)
        self.set_up()

    def set_up(self) -> None:
        """Make room for what is remembered."""

    def look(self, x: Any) -> None:
        """Remember something."""

    def forward(self, x: Any) -> Any:
        """Return logits."""
        x = x.flatten(1)
        self.look(x)
        return self.head(x)


class Buffer(Plain):
    """Keeps a running mean, as layers of normalisation do."""

    persistent = True

    def set_up(self) -> None:
        self.register_buffer("mean", torch.zeros(64), persistent=self.persistent)

    def look(self, x: Any) -> None:
        with torch.no_grad():
            self.mean.mul_(0.9).add_(0.1 * x.mean(dim=0))


class HiddenBuffer(Buffer):
    """Keeps it where no state dictionary shows it."""

    persistent = False


class LateBuffer(Plain):
    """Registers a buffer when it sees the first batch."""

    def look(self, x: Any) -> None:
        if not hasattr(self, "first"):
            self.register_buffer("first", x.detach().clone())


class SecondPass(Buffer):
    """Remembers the second batch only."""

    def set_up(self) -> None:
        super().set_up()
        self.passes = 0

    def look(self, x: Any) -> None:
        self.passes += 1
        if self.passes == 2:
            super().look(x)


class Attribute(Plain):
    """Stores its last batch in a plain attribute."""

    def look(self, x: Any) -> None:
        self.last = x


class Log(Plain):
    """Appends to a list."""

    def set_up(self) -> None:
        self.log: list[float] = []

    def look(self, x: Any) -> None:
        self.log.append(float(x.mean()))


class OnItsWeight(Plain):
    """Stores its last batch with a weight."""

    def look(self, x: Any) -> None:
        self.head.weight.last = x.detach()


class Writer(Plain):
    """Writes its own weights."""

    def look(self, x: Any) -> None:
        self.head.weight.data.add_(0.1 * x.mean())


class OwnChance(Plain):
    """Leaves out by a generator whose seed is known."""

    def set_up(self) -> None:
        self.chance = torch.Generator().manual_seed(0)

    def look(self, x: Any) -> None:
        x.mul_(torch.rand(x.shape, generator=self.chance) > 0.5)


class Centred(Plain):
    """Mixes records in training only, without a slope."""

    def forward(self, x: Any) -> Any:
        x = x.flatten(1)
        return self.head(x - x.mean(dim=0).detach() if self.training else x)


class BelowZero(Plain):
    """Mixes records only where a value is negative, which no pixel is."""

    def forward(self, x: Any) -> Any:
        x = x.flatten(1)
        return self.head(x + (-x).clamp(min=0).mean(dim=0))


class BelowZeroInTraining(BelowZero):
    """The same in training only, and without a slope."""

    def forward(self, x: Any) -> Any:
        if not self.training:
            return self.head(x.flatten(1))
        return self.head(x.flatten(1) + (-x.flatten(1)).clamp(min=0).mean(dim=0).detach())


class RemembersBelowZero(Buffer):
    """Keeps negative values only."""

    def look(self, x: Any) -> None:
        if (x < 0).any():
            super().look(x)


def _sequence(*layers: Any) -> Callable[[Any, int], Any]:
    return lambda _, labels: nn.Sequential(*(layer() for layer in layers), nn.Linear(64, labels))


def _own(kind: type[Plain]) -> Callable[[Any, int], Any]:
    return lambda _, labels: kind(labels)


OWN = (
    *(Buffer, HiddenBuffer, LateBuffer, SecondPass, Attribute, Log, OnItsWeight, Writer, OwnChance),
    *(BelowZero, BelowZeroInTraining, RemembersBelowZero),
)
NETWORKS = {
    "instance": _sequence(lambda: nn.InstanceNorm2d(1, track_running_stats=True), nn.Flatten),
    "affine instance": _sequence(
        lambda: nn.InstanceNorm2d(1, affine=True, track_running_stats=True), nn.Flatten
    ),
    "spectral": _sequence(
        nn.Flatten, lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(64, 64))
    ),
    "old spectral": _sequence(nn.Flatten, lambda: nn.utils.spectral_norm(nn.Linear(64, 64))),
    "centred": _own(Centred),
    **{kind.__name__: _own(kind) for kind in OWN},
}


def test_no_network_that_remembers_is_trained_or_charged(outcome: Outcome, tmp_path: Path) -> None:
    through = 0
    for name, network in NETWORKS.items():
        ledger = tmp_path / f"{name}.db"
        model = DPSGDClassifier(network=network, **QUICK)
        try:
            model.fit(IMAGES, FINDINGS, ledger=ledger)
        except InputError as refusal:
            through += refusal.argument != "network" or ledger.exists()
        else:
            through += 1
    outcome("networks that remember rows, or mix them in training", len(NETWORKS), through)


class Late(Buffer):
    """Remembers all it can once it has been asked often enough not to be on trial."""

    passes, trusted = 0, 0

    def look(self, x: Any) -> None:
        type(self).passes += 1
        if type(self).passes > self.trusted:
            super().look(x)
            self.last, self.head.weight.last = x, x.detach()
            self.head.weight.data[0] = x.mean(dim=0)


@pytest.mark.parametrize("frozen", [False, True])
def test_what_passes_the_trial_and_remembers_later_is_not_released(
    outcome: Outcome, frozen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Noise, "add", lambda _, total, __: np.zeros_like(total))
    tries, through = scaled(2, 20), 0
    for _ in range(tries):
        Late.passes, Late.trusted = 0, 12 if frozen else 20
        model = DPSGDClassifier(network=_own(Late), frozen=frozen, learning_rate=1.0, **QUICK)
        model.fit(IMAGES, FINDINGS)
        assert Late.passes > Late.trusted
        with torch.random.fork_rng():
            torch.manual_seed(int(np.random.RandomState(0).randint(2**31 - 1)))
            first = Late(2)
        kept = model.network_
        # Steps without a gradient leave the first weights, which are public.
        clean = torch.equal(kept.head.weight, first.head.weight) and not kept.mean.any()
        through += not clean or b"last" in pickle.dumps(kept)
    outcome("rows that a network remembers once it is trusted", tries, through)


def _sums(monkeypatch: pytest.MonkeyPatch, network: Any, rows: Any, labels: Any) -> Any:
    """Return the clipped sum of one step without noise: (weights,)."""
    seen: list[Any] = []

    def add(_: Noise, total: Any, __: float) -> Any:
        seen.append(total.ravel().copy())
        return total.copy()

    monkeypatch.setattr(Noise, "add", add)
    monkeypatch.setattr(TrainingPlan, "noise_multiplier", lambda *_: 1.0)
    monkeypatch.setattr(TrainingPlan, "epsilon", lambda *_: 1.0)
    settings: dict[str, Any] = {"hidden": 24, "clip": 0.5, "steps": 1, "sample_rate": 1.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        DPSGDClassifier(network=network, random_state=0, **settings).fit(rows, labels)
    return np.concatenate(seen)


def _convolutions(shape: Any, labels: int) -> Any:
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 8, 3), nn.Sigmoid(), nn.Flatten(), nn.Linear(32, labels)),
    )


@pytest.mark.parametrize("network", ["mlp", _convolutions])
def test_no_record_changes_a_bit_of_anothers_gradient(
    outcome: Outcome, network: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = (37,) if network == "mlp" else (1, 8, 8)
    tries, through = scaled(8, 200), 0
    for size in np.linspace(1, scaled(70, 300), tries).astype(int):
        rows = RNG.normal(size=(size + 1, *shape)).astype(np.float32)
        labels = np.full((size + 1, 7), -1, np.int8)  # which add nothing
        one, other = RNG.choice(size + 1, 2, replace=False)
        labels[one] = RNG.integers(0, 2, 7)
        fewer = (np.delete(each, other, axis=0) for each in (rows, labels))
        alone = _sums(monkeypatch, network, *fewer)
        through += not np.array_equal(alone, _sums(monkeypatch, network, rows, labels))
        assert alone.any()
    outcome("gradients that another record moves", tries, through)


def test_no_record_moves_the_sum_by_more_than_the_clip(
    outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rows so large that rounding decides about an answer, each by each.
    tries, through = scaled(8, 100), 0
    for _ in range(tries):
        size = int(RNG.integers(2, 40))
        rows = RNG.normal(size=(size, 37)) * 10.0 ** RNG.integers(0, 9, (1, 37))
        labels = RNG.integers(0, 2, (size, 7)).astype(np.int8)
        both = (_sums(monkeypatch, "mlp", rows[:n], labels[:n]) for n in (size - 1, size))
        through += bool(np.linalg.norm(np.subtract(*both)) > 0.5)
    outcome("sums that one more record moves by more than the clip", tries, through)

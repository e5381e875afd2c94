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
from tests.refusals import refused

from privote.learning.noise import Noise, TrainingPlan

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from privote.learning.dpsgd import DPSGDClassifier  # noqa: E402

nn: Any = torch.nn
RNG = np.random.default_rng(0)
IMAGES = RNG.random((40, 1, 8, 8)).astype(np.float32)
FINDINGS = (RNG.random((40, 2)) < 0.5).astype(np.int8)
QUICK = {"epsilon": 1.0, "steps": 4, "sample_rate": 1.0, "chunk": 32, "random_state": 0}


class Looking(nn.Module):  # type: ignore[misc]
    """One layer, and a look at what comes in, (rows, 64), which may give other rows."""

    def __init__(self, labels: int, kind: str) -> None:
        super().__init__()
        self.head, self.kind = nn.Linear(64, labels), kind
        for set_up in LOOKS[kind][1:]:
            set_up(self)

    def look(self, x: Any) -> Any:
        return LOOKS[self.kind][0](self, x)

    def forward(self, x: Any) -> Any:
        """Return logits."""
        x = x.flatten(1)
        other = self.look(x)
        return self.head(x if other is None else other)


def _with_mean(network: Any) -> None:
    network.register_buffer("mean", torch.zeros(64))


def _keep_mean(network: Any, x: Any) -> None:
    """Keep a running mean, as layers of normalisation do."""
    with torch.no_grad():
        network.mean.mul_(0.9).add_(0.1 * x.mean(dim=0))


def _register(network: Any, x: Any) -> None:
    if not hasattr(network, "first"):
        network.register_buffer("first", x.detach().clone())


def _keep_second(network: Any, x: Any) -> None:
    network.passes = getattr(network, "passes", 0) + 1
    if network.passes == 2:
        _keep_mean(network, x)


def _keep_negative(network: Any, x: Any) -> None:
    if (x < 0).any():
        _keep_mean(network, x)


def _write(network: Any, x: Any) -> None:
    network.head.weight.data.add_(0.1 * x.mean())


def _own_chance(network: Any, x: Any) -> Any:
    """Leave out by a generator whose seed is known."""
    return x.mul_(torch.rand(x.shape, generator=network.chance) > 0.5)


def _below_zero(network: Any, x: Any) -> Any:
    """Mix records only where a value is negative, which no pixel is."""
    return x + (-x).clamp(min=0).mean(dim=0)


# The look, and what it needs.
LOOKS: dict[str, tuple[Callable[..., Any], ...]] = {
    "harmless": (lambda network, x: None,),
    "buffer": (_keep_mean, _with_mean),
    "hidden buffer": (
        _keep_mean,
        lambda network: network.register_buffer("mean", torch.zeros(64), persistent=False),
    ),
    "late buffer": (_register,),
    "second pass": (_keep_second, _with_mean),
    "attribute": (lambda network, x: setattr(network, "last", x),),
    "log": (
        lambda network, x: network.log.append(float(x.mean())),
        lambda network: setattr(network, "log", []),
    ),
    "on its weight": (lambda network, x: setattr(network.head.weight, "last", x.detach()),),
    "writer": (_write,),
    "own chance": (
        _own_chance,
        lambda network: setattr(network, "chance", torch.Generator().manual_seed(0)),
    ),
    # Those that mix do so in training only, and without a slope.
    "centred": (lambda network, x: x - x.mean(dim=0).detach() if network.training else x,),
    "below zero": (_below_zero,),
    "below zero in training": (
        lambda network, x: _below_zero(network, x).detach() if network.training else x,
    ),
    "keeps negative": (_keep_negative, _with_mean),
}


def _sequence(*layers: Any) -> Callable[[Any, int], Any]:
    return lambda _, labels: nn.Sequential(*(layer() for layer in layers), nn.Linear(64, labels))


def _own(kind: str) -> Callable[[Any, int], Any]:
    return lambda _, labels: Looking(labels, kind)


# What these keep stays with the copy that sees private rows, which is thrown away.
FORGOTTEN = ("harmless", "attribute", "log", "on its weight", "own chance")
NETWORKS = {
    "instance": _sequence(lambda: nn.InstanceNorm2d(1, track_running_stats=True), nn.Flatten),
    "affine instance": _sequence(
        lambda: nn.InstanceNorm2d(1, affine=True, track_running_stats=True), nn.Flatten
    ),
    "spectral": _sequence(
        nn.Flatten, lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(64, 64))
    ),
    "old spectral": _sequence(nn.Flatten, lambda: nn.utils.spectral_norm(nn.Linear(64, 64))),
    **{kind: _own(kind) for kind in LOOKS if kind not in FORGOTTEN},
}


def test_no_network_that_remembers_is_trained_or_charged(outcome: Outcome, tmp_path: Path) -> None:
    for name, network in NETWORKS.items():
        model = DPSGDClassifier(network=network, **QUICK)
        with refused("network"):
            model.fit(IMAGES, FINDINGS, ledger=tmp_path / f"{name}.db")
    made = len(list(tmp_path.iterdir()))
    outcome("networks that remember rows, or mix them in training", len(NETWORKS), made)
    kept = [
        DPSGDClassifier(network=_own(kind), **QUICK).fit(IMAGES, FINDINGS).network_
        for kind in FORGOTTEN
    ]
    first = {*vars(kept[0])} | {"log", "chance"}
    found = [{*vars(network)} > first or bool(getattr(network, "log", [])) for network in kept]
    found += [hasattr(network.head.weight, "last") for network in kept]
    outcome.of("rows that a network keeps apart from its weights", found)


class Late(Looking):
    """Remembers all it can once it has been asked often enough not to be on trial."""

    passes, trusted = 0, 0

    def __init__(self, labels: int) -> None:
        super().__init__(labels, "buffer")

    def look(self, x: Any) -> None:
        Late.passes += 1
        if Late.passes > Late.trusted:
            _keep_mean(self, x)
            self.last, self.head.weight.last = x, x.detach()
            self.head.weight.data[0] = x.mean(dim=0)


@pytest.mark.parametrize("frozen", [False, True])
def test_what_passes_the_trial_and_remembers_later_is_not_released(
    outcome: Outcome, frozen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Noise, "add", lambda _, total, __: np.zeros_like(total))
    found = []
    for _ in range(scaled(2, 20)):
        Late.passes, Late.trusted = 0, 2 if frozen else 10
        model = DPSGDClassifier(
            network=lambda _, n: Late(n), frozen=frozen, learning_rate=1.0, **QUICK
        )
        model.fit(IMAGES, FINDINGS)
        assert Late.passes > Late.trusted
        with torch.random.fork_rng():
            torch.manual_seed(int(np.random.RandomState(0).randint(2**31 - 1)))
            first = Late(2)
        kept = model.network_
        # Steps without a gradient leave the first weights, which are public.
        clean = torch.equal(kept.head.weight, first.head.weight) and not kept.mean.any()
        found.append(not clean or b"last" in pickle.dumps(kept))
    outcome.of("rows that a network remembers once it is trusted", found)


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
    found = []
    for size in np.linspace(1, scaled(70, 300), scaled(8, 200)).astype(int):
        rows = RNG.normal(size=(size + 1, *shape)).astype(np.float32)
        labels = np.full((size + 1, 7), -1, np.int8)  # which add nothing
        one, other = RNG.choice(size + 1, 2, replace=False)
        labels[one] = RNG.integers(0, 2, 7)
        fewer = (np.delete(each, other, axis=0) for each in (rows, labels))
        alone = _sums(monkeypatch, network, *fewer)
        found.append(not np.array_equal(alone, _sums(monkeypatch, network, rows, labels)))
        assert alone.any()
    outcome.of("gradients that another record moves", found)


def test_no_record_moves_the_sum_by_more_than_the_clip(
    outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rows so large that rounding decides about an answer, each by each.
    found = []
    for _ in range(scaled(8, 100)):
        size = int(RNG.integers(2, 40))
        rows = RNG.normal(size=(size, 37)) * 10.0 ** RNG.integers(0, 9, (1, 37))
        labels = RNG.integers(0, 2, (size, 7)).astype(np.int8)
        both = (_sums(monkeypatch, "mlp", rows[:n], labels[:n]) for n in (size - 1, size))
        found.append(np.linalg.norm(np.subtract(*both)) > 0.5)
    outcome.of("sums that one more record moves by more than the clip", found)

"""DPSGD for networks: Opacus' gradients, our noise, and the same model as in closed form."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from tests.refusals import refused

from privote.datasets.images import Images
from privote.errors import MissingExtraError
from privote.learning import dpsgd
from privote.learning.gradients import DPLinear
from privote.learning.noise import Noise, TrainingPlan, scheduled

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from privote.learning.dpsgd import (  # noqa: E402
    ClippedSum,
    DPSGDClassifier,
    _kept_bytes,
    chunk_size,
    gradients,
)
from privote.learning.networks import build_network, seeded  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 6)).astype(np.float32)
Y = (X[:, :3] > 0.3).astype(np.int8)
Y[RNG.random(Y.shape) < 0.1] = -1
FINDINGS = np.array([[1, 0], [0, 1], [1, 1], [0, 0]], np.int8)
QUICK = {"steps": 3, "sample_rate": 1.0}  # a full batch is priced in a moment


@pytest.fixture
def silent(monkeypatch):
    """Training without noise, to compare sums."""
    monkeypatch.setattr(Noise, "add", lambda _, total, deviation: total.astype(np.float64))


@pytest.mark.parametrize(("chunk", "people"), [(150, None), (1, 40), (64, 40)])
def test_opacus_and_closed_form_give_the_same_linear_model(silent, chunk, people):
    rows, truth = (X, Y) if people is None else (X[:90], Y[:90])
    groups = None if people is None else RNG.integers(0, people, 90)
    same = {"steps": 12, "clip": 0.4, "learning_rate": 0.5}
    closed = DPLinear(**same, normalise=False).fit(rows, truth, groups=groups)
    by_opacus = DPSGDClassifier(**same, sample_rate=1.0, network="linear", chunk=chunk)
    by_opacus.fit(rows, truth, groups=groups)
    assert by_opacus.predict_proba(rows) == pytest.approx(closed.predict_proba(rows), abs=1e-4)
    promises = [replace(m.guarantee_, drawn="", made_at="") for m in (by_opacus, closed)]
    assert promises[0] == promises[1]


def test_each_record_is_clipped_over_all_its_labels():
    clip = 0.05
    with seeded(0):
        network = build_network("mlp", (6,), 3, hidden=8, dropout=0.0)
    clipped = ClippedSum(list(network.parameters()), clip)
    rows, truth = torch.as_tensor(X[:24]), torch.as_tensor(Y[:24]).float()
    clipped.add(gradients(network, rows, truth), 20)  # the last 4 only fill the chunk
    ours = [total.clone() for total in clipped.sums]
    wanted = [torch.zeros_like(part) for part in ours]
    for place in range(20):
        parts = gradients(network, rows[place : place + 1], truth[place : place + 1])
        norm = torch.sqrt(sum(part.pow(2).sum() for part in parts))
        for total, part in zip(wanted, parts, strict=True):
            total += part[0] * min(1.0, clip / norm)
    for one, two in zip(ours, wanted, strict=True):
        assert one.detach().numpy() == pytest.approx(two.detach().numpy(), abs=1e-5)


def test_no_bit_of_a_persons_mean_depends_on_where_chunks_end():
    weight, sizes = torch.zeros(3), np.array([3, 2, 4])
    gradients = torch.tensor(RNG.normal(size=(9, 3)) * 10.0 ** RNG.integers(0, 12, (9, 1))).float()
    owners, seen = np.repeat(np.arange(3), sizes), []
    for chunk in (1, 2, 4, 9):
        total, kept = ClippedSum([weight], 0.7), []
        add = total.add
        total.add = lambda parts, n, add=add, kept=kept: (
            kept.extend(parts[0][:n].clone()) or add(parts, n)
        )
        for start in range(0, 9, chunk):
            part = gradients[start : start + chunk]
            total.add_means([part], owners[start : start + chunk], sizes)
        total.close()
        seen.append(torch.stack(kept))
        assert float(total.sums[0].norm()) <= 3 * 0.7
    assert all(torch.equal(seen[0], other) for other in seen)


@pytest.mark.parametrize("place", [0, 399])
def test_one_record_moves_a_release_by_no_more_than_was_priced(monkeypatch, place):
    def released(rows, labels):
        seen = []

        def add(_, total, size):
            seen.append((total, size))
            return total.copy()

        monkeypatch.setattr(Noise, "add", add)
        settings = {"network": "mlp", "hidden": 5, "clip": 0.3, "chunk": 64, "random_state": 0}
        settings |= {"steps": 1, "sample_rate": 1.0}
        return seen, DPSGDClassifier(**settings).fit(rows, labels).guarantee_

    rows, labels = X[::-1].copy(), Y[::-1].copy()
    seen, privacy = released(rows, labels)
    rows[place], labels[place] = -50 * rows[place], 1 - np.maximum(labels[place], 0)
    other, _ = released(rows, labels)
    assert len(seen) == 4
    distance = 0.0
    for (one, size), (two, other_size) in zip(seen, other, strict=True):
        assert size == other_size
        distance += np.sum((one - two) ** 2) / size**2
    reach = 2 / privacy.mechanism["noise_multiplier"]
    # Not much less either: these records have gradients of the largest norm.
    assert 0.4 * reach < np.sqrt(distance) <= reach * (1 + 1e-6)


@pytest.mark.filterwarnings("ignore:invalid value encountered in reduce")  # scikit-learn's
@pytest.mark.parametrize("make", [DPSGDClassifier, DPLinear])
def test_no_error_depends_on_which_rows_are_sampled(monkeypatch, make):
    monkeypatch.setattr(TrainingPlan, "noise_multiplier", lambda *_: 1.0)
    monkeypatch.setattr(TrainingPlan, "epsilon", lambda *_: 8.0)
    settings = {"steps": 2, "sample_rate": 0.3}
    rows = X.astype(np.float64)
    for value in (3e38, 1e39, 1e200, 1.7e308):
        rows[:3] = value * (-1.0) ** np.arange(6)
        for seed in range(6):
            model = make(**settings, seed=seed).fit(rows, Y)
            assert np.isfinite(model.predict_proba(X)).all()
    for value in (np.nan, np.inf):
        rows[:3] = value
        for seed in range(6):
            with pytest.raises(ValueError, match=r"NaN|inf"):
                make(**{**settings, "sample_rate": 1e-9}, seed=seed).fit(rows, Y)


@pytest.mark.parametrize("network", ["linear", "mlp"])
def test_it_learns_and_keeps_its_promise(network):
    how = {"learning_rate": 1.0, "hidden": 16, "steps": 40, "sample_rate": 1.0}
    model = DPSGDClassifier(20.0, network=network, **how, random_state=0, seed=0).fit(X, Y)
    assert roc_auc_score(X[:, :3] > 0.3, model.predict_proba(X)) > 0.9
    assert model.guarantee_.epsilon <= 20.0
    assert model.guarantee_.simulated


def test_what_dropout_leaves_out_is_as_secret_as_the_noise(silent):
    def answers(**seeds):
        model = DPSGDClassifier(network="mlp", dropout=0.5, random_state=0, **QUICK, **seeds)
        return model.fit(X, Y).predict_proba(X)

    # The state of the first weights may be known; nothing else differs without noise.
    assert not np.array_equal(answers(), answers())
    assert np.array_equal(answers(seed=1), answers(seed=1))


def test_every_step_takes_a_sample_of_its_own(monkeypatch):
    taken = []
    draw = Noise.sample

    def sample(self, records, rate):
        taken.append(draw(self, records, rate))
        assert (records, rate) == (400, 0.2)
        return taken[-1]

    monkeypatch.setattr(Noise, "sample", sample)
    DPSGDClassifier(steps=8, sample_rate=0.2, seed=0).fit(X, Y)
    assert len({some.tobytes() for some in taken}) == 8
    assert len({len(some) for some in taken}) > 3  # Poisson: sizes differ


def test_what_a_schedule_draws_is_what_was_priced(monkeypatch):
    drawn = []
    monkeypatch.setattr(Noise, "add", lambda _, total, size: drawn.append(size) or total)
    how = {"steps": 4, "sample_rate": 1.0, "clip": 2.0, "seed": 0}
    model = DPSGDClassifier(**how, schedule="0.5,0.25").fit(X, Y)
    z = model.guarantee_.mechanism["noise_multiplier"]
    clips = 2.0 * scheduled(0.25, 4)
    assert drawn[::2] == pytest.approx(z * scheduled(0.5, 4) * clips)  # weights; biases are as many
    assert model.guarantee_.mechanism["decay"] == 0.5
    assert z > DPSGDClassifier(**how).fit(X, Y).guarantee_.mechanism["noise_multiplier"]


@pytest.mark.parametrize(("network", "frozen"), [("resnet50", False), ("densenet121", True)])
def test_large_networks_train_whole_and_on_top(network, frozen):
    """Two steps each: residual sums and batch normalisation are no obstacle, memory is bounded."""
    pytest.importorskip("monai")
    pictures = RNG.random((2, 3, 32, 32)).astype(np.float32)
    how = {"network": network, "frozen": frozen, "steps": 2, "sample_rate": 1.0, "seed": 0}
    model = DPSGDClassifier(**how, random_state=0).fit(pictures, FINDINGS[:2])
    with seeded(int(np.random.RandomState(0).randint(2**31 - 1))):
        start = build_network(network, (3, 32, 32), 2).state_dict()
    ours = model.network_.state_dict()
    moved = {name for name in ours if not torch.equal(ours[name], start[name])}
    head = {"fc.weight", "fc.bias", "class_layers.out.weight", "class_layers.out.bias"}
    if frozen:
        assert moved <= head
    else:  # group normalisation has no running statistics
        assert len(moved) > 100
        assert not any("running" in name for name in ours)


def test_steps_follow_from_epochs_and_budget():
    plan = DPSGDClassifier(8.0)._plan(5717)
    assert plan.steps * plan.sample_rate == pytest.approx(25, rel=0.02)
    assert plan.sample_rate == pytest.approx(256 / 5717)
    assert DPSGDClassifier(2.0)._plan(100).steps == 10
    assert DPSGDClassifier(epochs=3, sample_rate=0.5)._plan(100).steps == 6
    assert DPSGDClassifier(epochs=3, steps=6)._plan(100).sample_rate == 0.5


def test_a_chunk_keeps_less_than_memory_allows(monkeypatch):
    with seeded(0):
        network = build_network("smallcnn", (3, 16, 16), 2)
    assert 1e5 < _kept_bytes(network, (3, 16, 16)) < 2e6
    monkeypatch.setattr(dpsgd, "_MEMORY", 1 << 20)
    assert chunk_size(network, (3, 16, 16), 2, 64) == 1


def test_a_broken_picture_is_refused_before_anything_is_charged(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    for place in range(4):
        pixels = RNG.integers(0, 256, (32, 32)).astype(np.uint8)
        pillow.fromarray(pixels).save(tmp_path / f"{place}.png")
    whole = (tmp_path / "3.png").read_bytes()
    (tmp_path / "3.png").write_bytes(whole[: len(whole) // 2])  # its header is that of a picture
    files = Images(paths=[str(tmp_path / f"{n}.png") for n in range(4)], size=8, channels=1)
    model = DPSGDClassifier(network="smallcnn", steps=1, sample_rate=1e-9)
    with refused(sealed="3.png"):
        model.fit(files, FINDINGS[:4], ledger=tmp_path / "l.db")
    assert not (tmp_path / "l.db").exists()


class _Mixed(torch.nn.Module):
    """Subtracts what it reads off the batch, which no validator knows."""

    def __init__(self, inputs, labels, read):
        super().__init__()
        self.read, self.head = read, torch.nn.Linear(inputs, labels)
        torch.nn.init.zeros_(self.head.weight)

    def forward(self, x):
        return self.head(x - self.read(x))


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.mean(dim=0),
        lambda x: x.mean(dim=0).detach(),
        lambda x: x.max(dim=0).values.detach(),
    ],
)
def test_networks_that_mix_records_in_their_own_way_are_refused(read, monkeypatch):
    monkeypatch.setattr(Noise, "add", lambda *_: pytest.fail("noise was drawn"))
    network = lambda shape, labels: _Mixed(shape[0], labels, read)  # noqa: E731
    with refused("network"):
        DPSGDClassifier(network=network, **QUICK).fit(X, Y)


def test_a_frozen_network_looks_at_each_record_by_itself(monkeypatch):
    seen = []
    monkeypatch.setattr(Noise, "add", lambda _, total, __: seen.append(total) or total * 0)
    how = {"network": lambda shape, labels: _Mixed(shape[0], labels, lambda x: x.mean(dim=0))}
    # Less the mean of the batch, which is the row itself, nothing is left of a row's features.
    DPSGDClassifier(**how, frozen=True, **QUICK).fit(X[:40], Y[:40])
    assert all((weights == 0).all() for weights in seen[::2])
    assert seen[1].any()


@pytest.mark.parametrize("absent", ["torch", "opacus"])
def test_without_the_extra_it_says_which(absent, monkeypatch):
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(MissingExtraError, match=r"\[deep\]"):
        DPSGDClassifier(**QUICK).fit(X, Y)

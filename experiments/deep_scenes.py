"""Scenes as images: deep teachers, frozen features, and private gradients on the same network.

The network is the small convolutional one. Its first weights are learnt from public scenes without
their labels, by telling how far each was turned. Everything private promises (8, 1e-5) for changing
one record. Two ways to use the weights: frozen, so that linear models on 64 features learn, and as
a start for the whole network. PATE has many linear teachers in the first case and a few deep ones
in the second, because deep teachers need more records each. One run; noise is simulated. Training
is short, to take minutes.

Run: python experiments/deep_scenes.py
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import privote as pv
from privote.datasets import Scenes, load_scenes
from privote.learning import cast, train
from privote.learning.comparison import Comparison
from privote.learning.direct.dpsgd import DPSGDClassifier
from privote.learning.networks.image import ImageFeatures, ImageNetwork
from privote.learning.students.classifiers import LinearStudent
from privote.learning.students.mixmatch import MixMatchClassifier
from privote.learning.teachers.partition import partition

EPSILON, DELTA = 8.0, 1e-5
SIDES = ("private", "public", "test")
MANY, FEW = 100, 10  # linear teachers, deep teachers
QUERIES = 300


def learn_to_see(images: np.ndarray, epochs: int, seed: int, path: Path) -> None:
    """Learn weights from public images without labels: by how many quarters each was turned."""
    turned = np.concatenate([np.rot90(images, turns, axes=(2, 3)) for turns in range(4)])
    answers = np.repeat(np.eye(4, dtype=np.int8), len(images), axis=0)
    model = ImageNetwork("smallcnn", n_epochs=epochs, random_state=seed).fit(turned, answers)
    torch.save(model.network_.state_dict(), path)


class Match:
    """The same scenes as images and as features, and one row of figures a model."""

    def __init__(self, scenes: Scenes, weights: Path, seed: int, steps: int) -> None:
        self.scenes, self.weights, self.seed, self.steps = scenes, weights, seed, steps
        self.images = {side: scenes.images(getattr(scenes, f"X_{side}"))[:, None] for side in SIDES}
        maker = ImageFeatures("smallcnn", weights=weights).fit(self.images["public"])
        seen = {side: maker.transform(images) for side, images in self.images.items()}
        # By public scenes only.
        centre, scale = seen["public"].mean(axis=0), seen["public"].std(axis=0) + 1e-6
        self.features = {side: (values - centre) / scale for side, values in seen.items()}
        self.contest = Comparison(
            **{f"X_{side}": values for side, values in self.features.items()},
            Y_private=scenes.Y_private,
            Y_test=scenes.Y_test,
            epsilon=EPSILON,
            delta=DELTA,
            n_teachers=MANY,
            random_state=seed,
            seed=seed,
        )

    def judge(self, name: str, chance: np.ndarray, **facts: Any) -> dict[str, Any]:
        return self.contest.judge(name, chance, **facts)

    def frozen_pate(self) -> dict[str, Any]:
        return self.contest.pate(f"PATE, {MANY} linear teachers")

    def frozen_gradients(self) -> dict[str, Any]:
        return self.contest.dpsgd()

    def frozen_network(self) -> dict[str, Any]:
        return self.private_gradients("DPSGD by Opacus, last layer", frozen=True, sample_rate=1.0)

    def frozen_open(self) -> dict[str, Any]:
        return self.contest.without_privacy()

    def frozen_public(self) -> dict[str, Any]:
        model = LinearStudent().fit(self.features["public"], self.scenes.Y_public)
        return self.judge("true public labels", model.predict_proba(self.features["test"]))

    def private_gradients(self, name: str, **settings: Any) -> dict[str, Any]:
        model = DPSGDClassifier(
            EPSILON,
            DELTA,
            network="smallcnn",
            weights=self.weights,
            random_state=self.seed,
            seed=self.seed,
            **{"steps": self.steps, "sample_rate": 0.1, **settings},
        ).fit(self.images["private"], self.scenes.Y_private)
        chance = model.predict_proba(self.images["test"])
        return self.judge(name, chance, epsilon=model.privacy_.epsilon)

    def deep_gradients(self) -> dict[str, Any]:
        return self.private_gradients("DPSGD by Opacus, all layers")

    def deep_open(self, epochs: int) -> dict[str, Any]:
        model = ImageNetwork(
            "smallcnn", weights=self.weights, n_epochs=epochs, random_state=self.seed
        ).fit(self.images["private"], self.scenes.Y_private)
        return self.judge("not private", model.predict_proba(self.images["test"]))

    def deep_pate(self, epochs: int, steps: int) -> list[dict[str, Any]]:
        """Return the student of a few deep teachers, and that of the same votes without noise."""
        teacher = ImageNetwork("smallcnn", weights=self.weights, n_epochs=epochs)
        parts = partition(len(self.images["private"]), FEW, key=self.seed)
        ensemble = train(
            teacher, self.images["private"], self.scenes.Y_private, parts, FEW, random_state=0
        )
        public = self.images["public"]
        votes = cast(ensemble, public)[:QUERIES]
        # Whatever the votes are: the noise at which composition lets out this many queries.
        sigma = pv.planning.sigma_for(
            lambda s: pv.BinaryVoting(sigma=s), FEW, 10, EPSILON, DELTA, QUERIES
        )
        released = {
            f"PATE, {FEW} deep teachers": pv.BinaryVoting(sigma=sigma).release(
                votes, seed=self.seed
            ),
            "  without noise (not private)": (2 * votes.sum(axis=1) > FEW).astype(np.int8),
        }
        rows = []
        for name, labels in released.items():
            student = MixMatchClassifier("smallcnn", steps=steps, random_state=self.seed)
            student.fit(public[:QUERIES], labels, X_unlabelled=public[QUERIES:])
            facts = {"epsilon": None if "not" in name else EPSILON, "answered": QUERIES}
            rows.append(self.judge(name, student.predict_proba(self.images["test"]), **facts))
        return rows


def show(row: dict[str, Any], started: float) -> None:
    epsilon = "-" if row["epsilon"] is None else f"{row['epsilon']:.2f}"
    figures = "  ".join(f"{row[name]:.3f}" if name in row else "  -  " for name in ("AUC", "MAP"))
    answered = "-" if row["answered"] is None else row["answered"]
    print(
        f"  {row['model']:32s} {epsilon:>7s} {answered!s:>7s}  {figures} "
        f"{time.perf_counter() - started:5.0f} s"
    )
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--private", type=int, default=3_000)
    parser.add_argument(
        "--epochs", type=int, default=4, help="of every network that is not private"
    )
    parser.add_argument("--steps", type=int, default=30, help="of private gradients")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)
    torch.set_num_threads(1)
    scenes = load_scenes(private=arguments.private, public=1_000, test=500, seed=arguments.seed)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "weights.pt"
        public = scenes.images(scenes.X_public)[:, None]
        learn_to_see(public, arguments.epochs, arguments.seed, weights)
        match = Match(scenes, weights, arguments.seed, arguments.steps)
        print(f"{scenes!r}; weights from turned public scenes")
        print(f"  {'':32s} epsilon answers  AUC    MAP    time")
        print("frozen features, linear models")
        for name in ("open", "pate", "gradients", "network", "public"):
            started = time.perf_counter()
            show(getattr(match, f"frozen_{name}")(), started)
        print("the whole network")
        for job in (
            lambda: [match.deep_open(arguments.epochs)],
            lambda: [match.deep_gradients()],
            lambda: match.deep_pate(2 * arguments.epochs, 100),
        ):
            started = time.perf_counter()
            for row in job():
                show(row, started)
    return 0


if __name__ == "__main__":
    sys.exit(main())

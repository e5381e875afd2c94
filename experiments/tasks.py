"""The four data sets of the experiments, split into private, public and test rows.

Mulan's files are read from ../shared/data, or from the folder that PRIVOTE_SHARED names. Features
are scaled by public rows only. A seed draws another split (of the scenes: other scenes).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from privote.datasets import load_scenes, mulan
from privote.learning.embedding import Landmarks

SHARED = Path(os.environ.get("PRIVOTE_SHARED", Path(__file__).resolve().parents[2] / "shared"))
# Rows that are private, public and for the test; None: the rest.
SIZES = {"tmc2007": (20_000, 4_000), "yeast": (1_600, 400), "scene": (1_600, 400)}
SIDES = ("private", "public", "test")
NAMES = (*SIZES, "scenes")


@dataclass(frozen=True, kw_only=True)
class Task:
    """One data set, cut in three; ``Y_public`` is for evaluation only."""

    name: str
    X_private: np.ndarray
    Y_private: np.ndarray
    X_public: np.ndarray
    Y_public: np.ndarray
    X_test: np.ndarray
    Y_test: np.ndarray


def load(name: str, seed: int = 0) -> Task:
    """Return a task; the same for the same seed on every machine."""
    if name == "scenes":
        return _scenes(seed)
    files = {
        "tmc2007": ["mulan_tmc2007-500.arff"],
        "yeast": ["mulan_yeast.arff"],
        "scene": ["mulan_scene-train.arff", "mulan_scene-test.arff"],
    }[name]
    xml = SHARED / "data" / f"mulan_{'scene' if name == 'scene' else files[0][6:-5]}.xml"
    parts = [mulan(SHARED / "data" / file, xml=xml) for file in files]
    X = np.concatenate([np.asarray(part.X, np.float32) for part in parts])
    Y = np.concatenate([part.Y for part in parts])
    order = np.random.default_rng(seed).permutation(len(X))
    private, public = SIZES[name]
    cut = np.split(order, [private, private + public])
    centre, scale = X[cut[1]].mean(axis=0), X[cut[1]].std(axis=0)
    if name != "tmc2007":  # its features are words: 0 or 1 as they are
        X = (X - centre) / np.where(scale > 0, scale, 1)
    return Task(
        name=name,
        **{f"X_{side}": X[rows] for side, rows in zip(SIDES, cut, strict=True)},
        **{f"Y_{side}": Y[rows] for side, rows in zip(SIDES, cut, strict=True)},
    )


def _scenes(seed: int) -> Task:
    scenes = load_scenes(seed=seed)
    landmarks = Landmarks().fit(scenes.X_public)
    return Task(
        name="scenes",
        **{f"X_{side}": landmarks.transform(getattr(scenes, f"X_{side}")) for side in SIDES},
        **{f"Y_{side}": getattr(scenes, f"Y_{side}") for side in SIDES},
    )

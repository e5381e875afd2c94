"""Data that comes with privote: scenes of handwritten digits, made-up patients, teachers' votes.

Scenes are small images with several handwritten digits, made from what scikit-learn ships: the
1,797 real 8x8 images of ``sklearn.datasets.load_digits``. A scene is 2x2 slots; one to four of them
hold a digit, the others are empty, and every pixel gets a little noise. The label vector says which
of the ten digits are present.

Every digit belongs to exactly one of three pools: private, public or test. The pools depend on
nothing, not even on the seed, so a digit seen in a public scene is never in a private one.

The *record* is the scene. There are more private scenes than private digits, so a digit appears in
several of them: a guarantee for scenes is not one for the people who wrote the digits.

Patients who never lived are a table as a hospital has it, with words, dates, gaps and texts. They
are made up from a seed, to try training on: no record is anybody's. What is ill shows in the
numbers, in the words of the notes and in the season, with noise, so a model can learn it but not
fully.

Real votes are of logistic regressions that were each trained on a part of a data set.
``experiments/make_teacher_votes.py`` makes votes like the first from the public Mulan file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privote.errors import InputError, numbers, whole
from privote.votes.tables import RawTable

from .records import MISSING, SIDES, MultiLabelData

Pixels = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int8]
Sources = npt.NDArray[np.int16]

EMPTY = -1
SIDE = 8  # a digit, and so a slot, is 8x8 pixels
GRID = 2  # slots in a row, and rows of slots
_SLAB = 4096  # scenes
_NOISE = 0.1
_POOL_SHARES = (2 / 3, 1 / 6, 1 / 6)  # private, public, test


@dataclass(frozen=True, kw_only=True, eq=False)
class Scenes:
    """Private, public and test scenes with no digit in common.

    Attributes
    ----------
    X_private, X_public, X_test
        float32 (scenes, 256) in [0, 1]: images of 16 x 16 pixels, row by row.
    Y_private, Y_public, Y_test
        int8 (scenes, 10), 1 where the digit is present. ``Y_public`` is the truth and is there for
        evaluation only: whoever labels the public scenes must not read it.
    sources_private, sources_public, sources_test
        int16 (scenes, slots): the index in ``load_digits`` of the digit in each slot, or -1 if the
        slot is empty.
    ids_private
        (scenes,) the name of each private record, for the partition and the ledger.
    label_names
        The ten labels.
    seed
        What the scenes were drawn with.
    """

    X_private: Pixels
    Y_private: Labels
    X_public: Pixels
    Y_public: Labels
    X_test: Pixels
    Y_test: Labels
    sources_private: Sources
    sources_public: Sources
    sources_test: Sources
    ids_private: npt.NDArray[np.str_]
    label_names: tuple[str, ...]
    seed: int

    def __repr__(self) -> str:
        sizes = f"private={len(self.X_private)}, public={len(self.X_public)}"
        return f"Scenes({sizes}, test={len(self.X_test)}, seed={self.seed})"


def slots_of(X: Any) -> npt.NDArray[Any]:
    """Return rows of pixels (scenes, 256) cut into slots (scenes, 4, 64)."""
    rows = numbers("X", X)
    if rows.shape[1:] != ((GRID * SIDE) ** 2,):
        raise InputError("X", f"must have {(GRID * SIDE) ** 2} pixels, got shape {rows.shape}")
    cut = rows.reshape(len(rows), GRID, SIDE, GRID, SIDE).transpose(0, 1, 3, 2, 4)
    return cut.reshape(len(rows), GRID**2, SIDE**2)


def load_scenes(
    *, private: int = 10_000, public: int = 2_000, test: int = 1_000, seed: int = 0
) -> Scenes:
    """Compose scenes from the digits that scikit-learn ships; nothing is downloaded.

    Parameters
    ----------
    private, public, test
        How many scenes of each kind. Asking for more of one kind leaves the others as they are.
    seed
        Draws the scenes. The noise of a private release never comes from here.

    Returns
    -------
    Scenes
        256 pixels and ten labels, each present in about 0.23 of the scenes.
    """
    counts = {"private": private, "public": public, "test": test}
    sizes = {name: whole(name, size) for name, size in counts.items()}
    # One stream for each kind, so that the size of one does not change another.
    children = np.random.SeedSequence(whole("seed", seed, 0)).spawn(3)
    streams = (np.random.default_rng(child) for child in children)
    arrays: dict[str, Any] = {}
    for (name, size), pool, rng in zip(sizes.items(), digit_pools(), streams, strict=True):
        X, Y, sources = _compose(pool, size, rng)
        arrays |= {f"X_{name}": X, f"Y_{name}": Y, f"sources_{name}": sources}
    return Scenes(
        **arrays,
        ids_private=np.array([f"private-{i:06d}" for i in range(private)]),
        label_names=tuple(f"digit {d}" for d in range(10)),
        seed=int(seed),
    )


def scene_data(**options: Any) -> MultiLabelData:
    """Return the embedded scenes, which fix their own private, public and test sides.

    ``options`` are those of :func:`load_scenes`.
    """
    scenes = load_scenes(**options)
    parts = {side: (getattr(scenes, f"X_{side}"), getattr(scenes, f"Y_{side}")) for side in SIDES}
    return MultiLabelData(
        X=np.concatenate([X for X, _ in parts.values()]),
        Y=np.concatenate([Y for _, Y in parts.values()]),
        label_names=scenes.label_names,
        ids=np.array(
            [f"{side}-{row:06d}" for side, (X, _) in parts.items() for row in range(len(X))]
        ),
        sides=np.repeat(list(parts), [len(X) for X, _ in parts.values()]),
        name="scenes",
    )


def digit_pools() -> tuple[Sources, Sources, Sources]:
    """Return the indices in ``load_digits`` of the private, public and test digits."""
    count = len(_digits()[1])
    # Order by a hash of the index: the same on every machine and for every seed, and unrelated to
    # the order of the file, in which one writer's digits stand together.
    order = sorted(range(count), key=lambda i: blake2b(str(i).encode(), digest_size=16).digest())
    ends = np.round(np.cumsum(_POOL_SHARES) * count).astype(int)
    private, public, test = np.split(np.array(order, dtype=np.int16), ends[:-1])
    return private, public, test


def _compose(
    pool: Sources, scenes: int, rng: np.random.Generator
) -> tuple[Pixels, Labels, Sources]:
    """Draw scenes from one pool of digits: pixels, labels and source digits."""
    pixels, targets = _digits()
    slots = GRID**2
    digits = rng.integers(1, slots + 1, size=scenes)
    place_in_line = rng.random((scenes, slots)).argsort(axis=1).argsort(axis=1)
    filled = place_in_line < digits[:, None]
    row, slot = np.nonzero(filled)
    # First which digit, then whose: else a label would be more common in one pool than in another.
    digit = rng.integers(0, 10, size=len(row))
    by_digit = [pool[targets[pool] == d] for d in range(10)]
    which = np.floor(rng.random(len(row)) * np.array([len(d) for d in by_digit])[digit])
    sources = np.full((scenes, slots), EMPTY, dtype=np.int16)
    for d, choices in enumerate(by_digit):
        here = digit == d
        sources[row[here], slot[here]] = choices[which[here].astype(int)]

    labels = np.zeros((scenes, 10), dtype=np.int8)
    labels[row, digit] = 1

    canvas = np.zeros((scenes, GRID, SIDE, GRID, SIDE), dtype=np.float32)
    canvas[row, slot // GRID, :, slot % GRID, :] = pixels[sources[row, slot]]
    flat = canvas.reshape(scenes, slots * SIDE * SIDE)
    for start in range(0, scenes, _SLAB):  # else the noise needs as much memory as the data
        slab = flat[start : start + _SLAB]
        noise = rng.standard_normal(slab.shape, dtype=np.float32)
        slab[:] = np.clip(slab + _NOISE * noise, 0.0, 1.0)
    return flat, labels, sources


@lru_cache(maxsize=1)
def _digits() -> tuple[Pixels, npt.NDArray[np.int64]]:
    """Return the digits (1797, 8, 8) in [0, 1] and what they are (1797,)."""
    # Imported here because it takes a second that other uses of the package should not pay.
    from sklearn.datasets import load_digits

    digits = load_digits()
    return (digits.images / 16.0).astype(np.float32), digits.target.astype(np.int64)


# -- patients --------------------------------------------------------------------------------------

PATIENT_LABELS = (
    "flu", "asthma", "diabetes", "hypertension", "fracture", "allergy", "migraine", "anaemia",
)  # fmt: skip
# What notes may say of each, and what they say anyway.
_SIGNS = (
    ("fever", "aching limbs", "sudden onset", "chills"),
    ("wheezing", "short of breath", "inhaler", "tight chest"),
    ("thirsty", "blood sugar", "blurred vision", "metformin"),
    ("blood pressure", "dizzy", "ramipril", "palpitations"),
    ("fell", "swelling", "x-ray", "plaster"),
    ("itching", "hives", "sneezing", "antihistamine"),
    ("one-sided headache", "sensitive to light", "aura", "triptan"),
    ("pale", "tired", "iron", "brittle nails"),
)
_ANYWAY = ("sleeps badly", "lives alone", "retired", "no fever", "good appetite", "tired", "cough",
           "follow-up in two weeks", "came with a relative", "no known allergies")  # fmt: skip
_WARDS = np.array(["internal", "surgery", "emergency", "outpatient", "geriatrics", "dermatology"])


def load_patients(n: int = 3000, seed: int = 0) -> MultiLabelData:
    """Return ``n`` visits of made-up patients, each of whom comes once to four times.

    ``X`` is a :class:`RawTable` with the columns age, sex, smoker, admitted, ward, temperature,
    pressure and notes; ``groups`` name the patients. About one label in fifty is unknown.
    """
    rng = np.random.default_rng([whole("seed", seed, 0), 20])
    n = whole("n", n)
    person = np.repeat(np.arange(n), rng.choice(4, n, p=[0.5, 0.3, 0.15, 0.05]) + 1)[:n]
    age = rng.integers(1, 96, n)[person]
    sex = rng.choice(["female", "male", "diverse"], n, p=[0.5, 0.48, 0.02])[person]
    smoker = (rng.random(n) < 0.25)[person]
    day = rng.integers(0, 5 * 365, n)
    winter = np.cos(2 * np.pi * day / 365.25)
    old = (age - 45) / 25.0
    lean = np.stack([
        1.8 * winter - 1.4, 1.2 * smoker - 0.6 * old - 1.9, 1.1 * old - 1.9, 1.4 * old - 1.5,
        0.5 * np.abs(old) - 2.0, -1.4 * winter - 0.3 * old - 1.7, -0.7 * old - 1.9,
        0.5 * old + 0.6 * (sex == "female") - 2.2,
    ], axis=1)  # fmt: skip
    Y = (rng.random(lean.shape) < 1 / (1 + np.exp(-lean))).astype(np.int8)
    temperature = 36.7 + 0.8 * Y[:, 0] + rng.normal(0, 0.5, n)
    pressure = 118 + 16.0 * Y[:, 3] + 4 * old + rng.normal(0, 9, n)
    home = np.where(Y[:, 4] == 1, 1, np.where(Y[:, 5] == 1, 5, np.where(age > 75, 4, 0)))
    ward = _WARDS[np.where(rng.random(n) < 0.6, home, rng.integers(0, len(_WARDS), n))]
    columns = {
        "age": _gaps(rng, age.astype(str), 0.04),
        "sex": _gaps(rng, sex, 0.02),
        "smoker": _gaps(rng, np.where(smoker, "yes", "no"), 0.15),
        "admitted": _gaps(rng, (np.datetime64("2019-01-01") + day).astype(str), 0.01),
        "ward": _gaps(rng, ward, 0.03),
        "temperature": _gaps(rng, np.char.mod("%.1f", temperature), 0.2),
        "pressure": _gaps(rng, np.char.mod("%.0f", pressure), 0.1),
        "notes": _gaps(rng, _notes(rng, Y), 0.05),
    }
    Y[rng.random(Y.shape) < 0.02] = MISSING
    return MultiLabelData(
        X=RawTable("patients", columns, np.arange(n), "row"),
        Y=Y,
        label_names=PATIENT_LABELS,
        ids=np.array([f"visit-{row:06d}" for row in range(n)]),
        groups=np.array([f"patient-{number:06d}" for number in person]),
        feature_names=tuple(columns),
        name="patients",
    )


def _gaps(rng: np.random.Generator, cells: npt.NDArray[Any], share: float) -> npt.NDArray[Any]:
    """Return cells as texts, a share of them empty."""
    texts = cells.astype(object)
    texts[rng.random(len(cells)) < share] = ""
    return texts


def _notes(rng: np.random.Generator, Y: npt.NDArray[Any]) -> npt.NDArray[Any]:
    notes = []
    for row in Y:
        chance = np.where(row == 1, 0.3, 0.05)  # a sign may be left out, and may mean nothing
        drawn = rng.random((len(_SIGNS), 4)) < chance[:, None]
        phrases = [_SIGNS[ill][sign] for ill, sign in np.argwhere(drawn).tolist()]
        phrases += rng.choice(_ANYWAY, 2, replace=False).tolist()
        notes.append(", ".join(rng.permutation(phrases).tolist()))
    return np.array(notes)


# -- votes of real teachers -----------------------------------------------------------------------

#: The files, as ``privote label`` reads them: packed bits, their shape, and the truth. Aviation
#: safety reports (tmc2007-500, Mulan repository) by 50 and by 250 teachers, and pictures of
#: Pascal VOC 2012 by 50.
TEACHER_VOTES = {
    "tmc2007": Path(__file__).with_name("tmc2007_votes.npz"),
    "tmc2007-250": Path(__file__).with_name("tmc2007_250_votes.npz"),
    "voc2012": Path(__file__).with_name("voc2012_votes.npz"),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class TeacherVotes:
    """Votes of real teachers, and what they should have said.

    Attributes
    ----------
    votes
        (queries, voters, labels) bool: (4000, 50, 22), (1000, 250, 22) or (5823, 50, 20).
    truth
        (queries, labels) bool: the labels that the reports and pictures come with.
    label_names, query_names
        What they are called; None for the reports.
    """

    votes: npt.NDArray[np.bool_]
    truth: npt.NDArray[np.bool_]
    label_names: tuple[str, ...] | None = None
    query_names: tuple[str, ...] | None = None


def load_teacher_votes(name: str = "tmc2007") -> TeacherVotes:
    """Return embedded votes, read-only: ``"tmc2007"``, ``"tmc2007-250"`` or ``"voc2012"``."""
    if name not in TEACHER_VOTES:
        raise InputError("name", f"must be one of {', '.join(TEACHER_VOTES)}", name)
    with np.load(TEACHER_VOTES[name]) as file:
        queries, voters, labels = (int(size) for size in file["shape"])
        names = {
            axis: tuple(file[axis].tolist()) if axis in file else None
            for axis in ("label_names", "query_names")
        }
        return TeacherVotes(
            votes=_unpacked(file["votes"], (queries, voters, labels)),
            truth=_unpacked(file["truth"], (queries, labels)),
            **names,
        )


def _unpacked(packed: npt.NDArray[np.uint8], shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    bits = np.unpackbits(packed.reshape(-1), count=int(np.prod(shape)))
    cube = bits.astype(np.bool_).reshape(shape)
    cube.setflags(write=False)
    return cube

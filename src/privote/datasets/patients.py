"""Patients who never lived: a table as a hospital has it, with words, dates, gaps and texts.

Made up from a seed, to try training on: no record is anybody's. What is ill shows in the numbers,
in the words of the notes and in the season, with noise, so a model can learn it but not fully.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from privote.errors import whole

from .records import MISSING, MultiLabelData, RawTable

Cells = npt.NDArray[Any]

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
        groups=np.array([f"patient-{one:06d}" for one in person]),
        feature_names=tuple(columns),
        name="patients",
    )


def _gaps(rng: np.random.Generator, cells: Cells, share: float) -> Cells:
    """Return cells as texts, a share of them empty."""
    made = cells.astype(object)
    made[rng.random(len(cells)) < share] = ""
    return made


def _notes(rng: np.random.Generator, Y: Cells) -> Cells:
    notes = []
    for row in Y:
        chance = np.where(row == 1, 0.3, 0.05)  # a sign may be left out, and may mean nothing
        drawn = rng.random((len(_SIGNS), 4)) < chance[:, None]
        said = [_SIGNS[ill][sign] for ill, sign in np.argwhere(drawn).tolist()]
        said += rng.choice(_ANYWAY, 2, replace=False).tolist()
        notes.append(", ".join(rng.permutation(said).tolist()))
    return np.array(notes)

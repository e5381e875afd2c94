"""Versions that pyproject.toml allows: none with a hole that a file, or a caller, could reach."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.attacks.conftest import Outcome
from tests.wheel_smoke import hostile_student, lower_bounds

import privote as pv
from privote.learning.saving import load_student

# The first version with all fixes, and what the one before let through.
FIXED = {
    "scikit-learn": ("1.5", "CVE-2024-5206: words of private texts stay in a fitted vectorizer"),
    "skops": ("0.13", "CVE-2025-54412, -54413, -54886: a model's file runs code"),
    "pyarrow": ("23.0.1", "CVE-2023-47248: a Parquet file runs code; CVE-2026-25087 (IPC files)"),
    "numcodecs": ("0.16.6", "a pickle codec in an array's metadata runs code"),
    "torch": ("2.10", "CVE-2025-32434, CVE-2026-24747: weights_only=True runs code"),
    "monai": ("1.5.2", "CVE-2025-58755 to -58757, CVE-2026-21851: archives and checkpoints"),
    "pillow": ("13", "CVE-2026-25990, -40192, -96639, -112403: pictures overwrite memory"),
    "grpcio": ("1.66.2", "CVE-2024-7246, -11407: a caller poisons, or reads, another's call"),
    "cryptography": ("46.0.7", "CVE-2024-12797, CVE-2026-26007, -34073, -39892"),
    "ray": ("2.54", "CVE-2025-62593, CVE-2026-27482: a web page runs or ends jobs"),
    "distributed": ("2026.1", "CVE-2026-23528: a web page runs code"),
}


def _parts(version: str) -> list[int]:
    return [int(part) for part in version.split(".")] + [0, 0]


def test_lower_bounds_have_all_fixes(outcome: Outcome) -> None:
    bounds = lower_bounds()
    low = {name for name, (least, _) in FIXED.items() if _parts(bounds[name]) < _parts(least)}
    print(*(f"{name}: {FIXED[name][1]}" for name in sorted(low)), sep="\n")
    outcome("a version with a known hole is allowed", len(FIXED), len(low))


def test_a_hostile_student_does_not_reach_builtins(tmp_path: Path) -> None:
    path = tmp_path / "model.student"
    hostile_student(path)
    with pytest.raises(pv.InputError, match="malicious"):
        load_student(path)

"""Teachers for the scenes: quick models, one for each part of the private data.

A teacher looks at each slot of a scene, measures how similar it is to a few hundred *landmarks*
(slots of public scenes), adds these similarities up over the slots, and fits one logistic
regression per label on the sums. Landmarks and kernel width come from public scenes only, so a
private record reaches exactly one teacher.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from privote.errors import InputError

from .scenes import Scenes

Floats = npt.NDArray[np.float64]
Progress = Callable[[int, int], None]

_LANDMARKS = 300
_WIDTH = 0.4  # of the kernel exp(-width |a - b|^2) between two slots with pixels in [0, 1]
_STRENGTH = 10.0  # C of the logistic regressions
_KEY = b"privote scenes"


def scene_teachers(
    scenes: Scenes,
    teachers: int = 50,
    n_jobs: int | None = None,
    progress: Progress | None = None,
    *,
    queries: npt.NDArray[Any] | None = None,
    key: bytes = _KEY,
) -> Floats:
    """Train one teacher on each part of the private scenes and ask all of them.

    Parameters
    ----------
    scenes
        The data; ``Y_public`` and the test scenes are not read.
    teachers
        How many parts, and so teachers.
    n_jobs
        Processes to train in, as joblib counts them; None means one.
    progress
        Called as ``progress(done, teachers)`` as teachers get ready.
    queries
        Scenes to ask about (queries, pixels); the public scenes by default.
    key
        Key of the hash that sends a record to its part. The default is public, which is fine for
        embedded data; for real records it is a secret.

    Returns
    -------
    float array (queries, voters, labels)
        Each teacher's probability that the digit is present. Where a teacher saw only one class of
        a label, its answer is that class; a teacher without records answers 0.
    """
    # Imported here because it takes a second that other uses of the package should not pay.
    from joblib import Parallel, delayed, effective_n_jobs

    asked = _check_queries(scenes, queries)
    part = partition(scenes.ids_private, teachers, key)
    landmarks = _landmarks(scenes)
    X = _similarities(scenes, scenes.X_private, landmarks)
    Z = _similarities(scenes, asked, landmarks)
    answers = np.empty((len(Z), teachers, scenes.Y_private.shape[1]))
    at_once = max(1, int(effective_n_jobs(n_jobs)))
    with Parallel(n_jobs=n_jobs) as pool:
        for start in range(0, teachers, at_once):
            batch = range(start, min(start + at_once, teachers))
            members = [np.flatnonzero(part == teacher) for teacher in batch]
            jobs = [delayed(_answer)(X[who], scenes.Y_private[who], Z) for who in members]
            for teacher, answer in zip(batch, pool(jobs), strict=True):
                answers[:, teacher] = answer
            if progress is not None:
                progress(batch.stop, teachers)
    return answers


def partition(ids: npt.NDArray[np.str_], parts: int, key: bytes = _KEY) -> npt.NDArray[np.int64]:
    """Return the part (records,) of each record: a keyed hash of its id and of nothing else.

    A record's part must not depend on other records or on anybody's values. Otherwise changing one
    record could move others, and one record would reach more than one voter.
    """
    if isinstance(parts, bool) or not isinstance(parts, Integral) or parts < 1:
        raise InputError(f"teachers must be a whole number of at least 1, got {parts!r}")
    if not isinstance(key, bytes) or not 1 <= len(key) <= blake2b.MAX_KEY_SIZE:
        raise InputError(f"key must be 1 to {blake2b.MAX_KEY_SIZE} bytes, got {type(key).__name__}")
    # 128 bits: the remainder favours no part by more than parts / 2^128.
    digests = (blake2b(str(name).encode(), key=key, digest_size=16).digest() for name in ids)
    return np.array([int.from_bytes(d, "big") % int(parts) for d in digests], dtype=np.int64)


def _check_queries(scenes: Scenes, queries: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
    if queries is None:
        return scenes.X_public
    asked = np.asarray(queries)
    pixels = scenes.X_private.shape[1]
    if asked.ndim != 2 or asked.shape[1] != pixels:
        raise InputError(f"queries must have the shape (queries, {pixels}), got {asked.shape}")
    return asked


def _landmarks(scenes: Scenes) -> Floats:
    """Return filled slots of public scenes (landmarks, 64), evenly spread over the pool."""
    slots = scenes.slots(scenes.X_public).reshape(-1, scenes.slots(scenes.X_public[:1]).shape[2])
    # A slot's ink says whether it is filled: an empty slot has only noise, at most 5 in total,
    # and the faintest digit has 11.
    filled = slots[slots.sum(axis=1) > 8.0].astype(np.float64)
    chosen = np.linspace(0, len(filled) - 1, min(_LANDMARKS, len(filled))).astype(int)
    landmarks: Floats = filled[chosen]
    return landmarks


def _similarities(scenes: Scenes, X: npt.NDArray[Any], landmarks: Floats) -> Floats:
    """Return (scenes, landmarks): kernel values between slots and landmarks, summed over slots."""
    total = np.zeros((len(X), len(landmarks)))
    cut = scenes.slots(X)
    norms = (landmarks**2).sum(axis=1)
    for slot in range(cut.shape[1]):
        content = cut[:, slot].astype(np.float64)
        square = (content**2).sum(axis=1)[:, None] + norms - 2.0 * content @ landmarks.T
        total += np.exp(-_WIDTH * square)
    return total


def _answer(X: Floats, Y: npt.NDArray[np.int8], Z: Floats) -> Floats:
    """Fit one teacher on (X, Y) and return its probabilities for Z: (queries, labels)."""
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    answer = np.zeros((len(Z), Y.shape[1]))
    # The systems are tiny: on busy cores, threads that wait for each other take ten times as long.
    with threadpool_limits(limits=1):
        for label, truth in enumerate(Y.T):
            seen = np.unique(truth)
            if len(seen) == 2:
                model = LogisticRegression(C=_STRENGTH, max_iter=500).fit(X, truth)
                answer[:, label] = model.predict_proba(Z)[:, 1]
            elif len(seen) == 1:
                answer[:, label] = float(seen[0])
    return answer

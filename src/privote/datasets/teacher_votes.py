"""Real votes, embedded: fifty teachers on four thousand aviation safety reports they never saw.

Fifty logistic regressions, each trained on its own part of tmc2007-500 (Mulan repository), vote on
22 labels of 4,000 reports. ``experiments/make_teacher_votes.py`` makes votes like these from the
public file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

#: The file, as ``privote label`` reads it: packed bits and their shape, and the truth.
TEACHER_VOTES = Path(__file__).with_name("tmc2007_votes.npz")

Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class TeacherVotes:
    """Votes of real teachers, and what they should have said.

    Attributes
    ----------
    votes
        (4000 queries, 50 voters, 22 labels) bool.
    truth
        (4000 queries, 22 labels) bool: the reports' own labels.
    """

    votes: Bits
    truth: Bits


def load_teacher_votes() -> TeacherVotes:
    """Return the embedded votes, read-only."""
    with np.load(TEACHER_VOTES) as file:
        queries, voters, labels = (int(size) for size in file["shape"])
        return TeacherVotes(
            votes=_unpacked(file["votes"], (queries, voters, labels)),
            truth=_unpacked(file["truth"], (queries, labels)),
        )


def _unpacked(packed: npt.NDArray[np.uint8], shape: tuple[int, ...]) -> Bits:
    bits = np.unpackbits(packed.reshape(-1), count=int(np.prod(shape)))
    made = bits.astype(np.bool_).reshape(shape)
    made.setflags(write=False)
    return made
